"""What is shared, chosen: on a sample of the rows first, then asked once more on all of them."""

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
from .fit import LARGEST_JITTER, Fit, NotPositiveDefiniteError
from .inducing import (
    AUTO_INDUCING,
    Placed,
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

SAMPLE = 1_000  # rows that are looked at to choose them, at most
ALONE = 128  # inducing inputs of each latent of an output's own model meanwhile
COARSE = 450  # those of all latents together
ENOUGH_FOR_GROUPS = 200  # rows; with fewer, no latent over a group of inputs can pay


def chosen(data: Dataset, options: Options, ready: Ready, progress: Progress) -> Choice:
    """What the outputs share, found on full batches: of all rows, or of a sample of them."""
    some, batch = data, ready.data
    if not isinstance(batch, Batch) or ready.distinct > SAMPLE:
        some = data.sampled(SAMPLE, options.seed)
        batch, _ = full_batch(some, ready.scaling)
    J, X = functions(data), batch.observed
    kernels = latent_kernels(options.kernel, 1, 1, J=1, columns=data.columns)[0]
    several = len(X) >= ENOUGH_FOR_GROUPS
    if options.kernel is None and options.prior == "lmc" and several:
        exact = ready.method == "vem"  # mini-batches have centres of rows as inducing inputs
        kernels += [
            over(group, data.columns, exact and tells_units(group, ready.X))
            for group in groups(data.columns)
        ]
    if np.ndim(options.inducing) == 0:
        M = min(how_many_inducing(options.inducing, len(X), 1), ALONE)
        placed = for_supports(kernels, X, M, options.seed, data.labels)
    else:
        Z = place_inducing(
            *(options.inducing, X, ready.scaling, data.columns, 1), shared=True, seed=options.seed
        )
        placed = Placed(np.repeat(Z, len(kernels), axis=0))
    candidates = Candidates(kernels, placed, ready.scaling, data.columns, X)
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
    """A model that was chosen, with the inducing inputs to learn it with.

    Where the user leaves them to the fit they are all rows, or those that its latents need most.
    """
    prior, budget = parameters.prior, AUTO_INDUCING["vem"]
    few = ready.distinct * sum(prior.ranks) <= budget
    if ready.method != "vem" or not is_auto(options.inducing) or few:
        placed = Placed(placed_inducing(data, options, ready, prior.ranks))
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
    """The joint fit, or that of the outputs alone where sharing does not pay after all.

    What is shared was chosen with few inducing inputs, and perhaps on some of the rows. Now the
    alone model is given as many as the joint one, and the price is asked for once more.
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
    """What each output has alone and adds to the others, where that was found on some rows.

    Where no joint model was fitted to all rows, what was gained on some is extended to all.
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
