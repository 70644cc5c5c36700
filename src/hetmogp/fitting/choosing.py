"""Choose what the outputs share: first on a sample of the rows, then check it on all of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from .. import distributed
from ..batch import Batch
from ..data import full_batch
from ..parameters import Parameters
from ..tables import Dataset
from ..variational import Coupled
from .alone import PRICE, Candidates
from .choice import Choice, in_use
from .effects import Effects
from .fit import LARGEST_JITTER, Fit, NotPositiveDefiniteError
from .inducing import (
    AUTO_INDUCING,
    beside,
    by_need,
    for_supports,
    how_many_inducing,
    is_auto,
    place_inducing,
)
from .options import Options
from .progress import Progress
from .ready import Ready, functions, placed_inducing
from .runs import Rough, on_full_batch, problem_of
from .sharing import Chooser, weights, without
from .start import latent_kernels
from .supports import groups, over, tells_units
from .vem import Problem, init

__all__ = ["chosen", "rechecked", "with_inducing"]

SAMPLE = 1_000  # the most rows on which the latents are chosen
ALONE = 128  # inducing inputs of each latent while an output is fitted alone
COARSE = 450  # inducing inputs of all latents together
ENOUGH_FOR_GROUPS = 200  # rows; with fewer, no latent over a group of inputs can pay


def chosen(data: Dataset, options: Options, ready: Ready, progress: Progress) -> Choice:
    """Choose what the outputs share, on a full batch of all rows or of a sample of them."""
    some, batch = data, ready.data
    if not isinstance(batch, Batch) or ready.distinct > SAMPLE:
        some = data.sampled(SAMPLE, options.seed)
        batch, _ = full_batch(some, ready.scaling)
    J, X = functions(data), batch.observed
    effects = Effects.of(options, data.columns)
    kernels = latent_kernels(
        options.kernel, 1, 1, J=1, columns=data.columns, hidden=effects.inputs
    )[0]
    several = len(X) >= ENOUGH_FOR_GROUPS
    if options.kernel is None and options.prior == "lmc" and several:
        exact = ready.method == "vem"  # for mini-batches the inducing inputs are k-means centres
        kernels += [
            over(group, data.columns, exact and tells_units(group, ready.X))
            for group in groups(data.columns, effects.inputs)
        ]
    slopes, intercepts = effects.slopes(ready.scaling), effects.intercepts()
    kernels += [*slopes, *intercepts]
    if np.ndim(options.inducing) == 0:
        M = min(how_many_inducing(options.inducing, len(X), 1), ALONE)
        placed = for_supports(kernels, X, M, options.seed, data.labels)
    else:
        Z = place_inducing(
            *(options.inducing, X, ready.scaling, data.columns, 1), shared=True, seed=options.seed
        )
        placed = beside(np.repeat(Z, len(kernels), axis=0), kernels, X)
    candidates = Candidates(
        *(kernels, placed, ready.scaling, data.columns, X), len(slopes), len(intercepts)
    )
    whole, observed = (sum(int(seen.sum()) for seen in d.observed()) for d in (data, some))
    share = whole / observed
    family = options.family("vem", J + 1, placed.inputs.shape[1])
    dense = is_auto(options.inducing) and placed.inputs.shape[1] == len(X) and not placed.counts
    complete = some is data and ready.method == "vem" and dense and family is Coupled
    tolerance = 0.1 * options.limits("vem", observed)[1]
    problem = Problem(batch, options.rules, family, tolerance, learn_inducing=False)

    def by_first() -> Choice:
        jitter = options.jitter
        while True:
            try:
                task = some, problem, candidates, options, jitter, progress
                return Chooser(*task, COARSE, share, complete).choice()
            except NotPositiveDefiniteError:
                jitter *= 10.0
                if jitter > LARGEST_JITTER:
                    raise

    packed = distributed.from_first(lambda: by_first().packed(candidates))
    return Choice.unpacked(packed, some, candidates, options, family)


def with_inducing(
    parameters: Parameters,
    known: tuple[np.ndarray, np.ndarray],
    data: Dataset,
    options: Options,
    ready: Ready,
) -> Parameters:
    """The chosen model, with the inducing inputs for the final fit.

    By default these are all rows, or the rows that the latents need most.
    """
    prior, budget = parameters.prior, AUTO_INDUCING["vem"]
    few = ready.distinct * sum(prior.ranks) <= budget
    if ready.method != "vem" or not is_auto(options.inducing) or few:
        placed = placed_inducing(data, options, ready, prior.kernels, prior.ranks)
    else:
        placed = distributed.from_first(
            lambda: by_need(prior, *known, budget, data.labels, options.seed)
        )
    return replace(parameters, prior=prior.with_inducing(*placed))


def rechecked(
    data: Dataset,
    options: Options,
    ready: Ready,
    choice: Choice,
    fit: Fit,
    progress: Progress,
) -> tuple[Fit, Choice]:
    """The joint fit, or the fit of the outputs alone if sharing does not pay on all rows.

    The choice was made with few inducing inputs, and perhaps on a sample of the rows. Here the
    alone model gets as many inducing inputs as the joint one, and the two are compared again at
    the same price per weight.
    """
    exact = min(fit.parameters.prior.widths) >= ready.distinct
    if fit.interrupted or (exact and ready.distinct <= SAMPLE):
        return fit, choice
    own, joint = fit, None
    if choice.shared:
        joint = fit
        known = choice.rows, choice.alone_information
        start = with_inducing(in_use(choice.alone), known, data, options, ready)
        once = replace(ready, limits=(1, ready.limits[1]))
        rough = Rough(choice.alone, choice.alone_q, choice.jitter, choice.alone_reach)
        own = on_full_batch(options, once, [start], progress, None, rough)
        if own.interrupted:
            return fit, choice
        extra = weights(fit.parameters) - weights(own.parameters)
        if fit.history[-1] - own.history[-1] <= PRICE * max(extra, 0):
            if not own.converged:
                rough = Rough(own.parameters, own.q, own.jitter)
                own = on_full_batch(options, ready, [own.parameters], progress, None, rough)
            fit, choice = own, choice._replace(shared=False)
    if ready.distinct > SAMPLE:
        try:
            gains = distributed.from_first(lambda: _on_all_rows(choice, own, joint, options, ready))
        except KeyboardInterrupt:
            return fit.interrupt(), choice
        choice = choice._replace(**gains)
    return fit, choice._replace(alone=own.parameters, alone_q=own.q, jitter=own.jitter)


def _on_all_rows(
    choice: Choice, own: Fit, joint: Fit | None, options: Options, ready: Ready
) -> dict[str, Any]:
    """The bound of each output alone and its gain from sharing, extended from a sample to all rows.

    Where no joint model was fitted to all rows, the gain on the sample is scaled up.
    """

    def each(fit: Fit) -> np.ndarray:
        parameters = fit.parameters
        rough = Rough(parameters, fit.q, fit.jitter)
        problem = problem_of(options, ready, parameters.prior, rough)
        return np.array(
            [
                fit.bound - init(parameters, without(d, problem), fit.jitter).bound
                for d in range(len(parameters.likelihoods))
            ]
        )

    alone = np.array(own.each) if own.each else each(own)
    if joint is not None:
        return {"own": alone, "together": each(joint), "joint": joint.bound}
    gains, gain = choice.together - choice.own, choice.joint - float(choice.own.sum())
    share = len(ready.X) / len(choice.rows)
    return {"own": alone, "together": alone + share * gains, "joint": own.bound + share * gain}
