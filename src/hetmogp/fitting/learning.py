"""From data and options to a fit: prepare the data, choose where to start, run."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import distributed
from ..columns import Column
from ..data import Scaling
from ..inputs import restored
from ..kernels import Kernel
from ..parameters import Parameters
from ..tables import Dataset
from .checkpoint import Checkpoints, identity
from .choice import Choice
from .choosing import chosen, rechecked, with_inducing
from .fit import Fit, NotPositiveDefiniteError
from .inducing import is_auto
from .local import FEW, how_many_local, pays, run_local
from .mesh import rounded
from .options import Method, Options
from .progress import Progress
from .race import LENGTHSCALES, variants
from .ready import Ready, Source, kernels_and_ranks, placed_inducing, prepared
from .runs import Rough, feeds, on_full_batch, on_mini_batches
from .start import (
    Beginning,
    initial_lengthscales,
    initial_parameters,
    observed_values,
)
from .stream import rows_of_a_batch

__all__ = ["Learned", "Source", "learn"]


class Learned(NamedTuple):
    """A fit, its outputs in order of their names; how inputs were scaled; the method.

    `choice` says what was chosen, where latents were.
    """

    fit: Fit
    scaling: Scaling
    method: Method
    choice: Choice | None = None


def learn(
    data: Dataset,
    options: Options,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    source: Source | None = None,
) -> Learned:
    """Prepare the data, choose where to start, and run.

    Args:
        data: what was read.
        options: how to fit.
        progress: where to report.
        checkpoints: where to keep the fit on its way.
        source: where all rows are, should `data` be a sample of them.
    """
    data = _by_name(data)
    if checkpoints is not None:
        checkpoints = replace(checkpoints, identity=_identity(data, options, source))
    ready = prepared(data, options, source)
    choice, starts = None, []
    try:
        choice = chosen(data, options, ready, progress) if options.chooses else None
        if choice is not None and (choice.interrupted or choice.final):
            return Learned(_as_chosen(choice), ready.scaling, "vem", choice)
        if ready.method == "vem":
            starts = _starts(data, options, ready, choice)
            rough = None
            if choice is not None:
                rough = Rough(choice.chosen, choice.q, choice.jitter, choice.reach)
            fit = on_full_batch(options, ready, starts, progress, checkpoints, rough)
            if choice is not None:
                fit, choice = rechecked(data, options, ready, choice, fit, progress)
        else:
            fit = _on_mini_batches(data, options, ready, choice, progress, checkpoints, source)
    except NotPositiveDefiniteError:
        start = (starts or _starts(data, options, ready, None))[0]
        why = _impossible(start, data) or _crowded(start, ready.scaling, data.columns)
        raise ArithmeticError(why) from None
    return Learned(fit, ready.scaling, ready.method, choice)


def _on_mini_batches(
    data: Dataset,
    options: Options,
    ready: Ready,
    choice: Choice | None,
    progress: Progress,
    checkpoints: Checkpoints | None,
    source: Source | None,
) -> Fit:
    """A fit on mini-batches, with local latents where they were asked for or pay."""
    batches = feeds(data, options, ready, source)
    number = how_many_local(data, options, ready, source)
    if number:
        _refuse_local(data, number, source)
        few = replace(options, inducing=FEW) if is_auto(options.inducing) else options
        kept, further = (checkpoints and checkpoints.within(part) for part in ("smooth", "local"))
        starts = _starts(data, few, ready, choice)
        smooth = on_mini_batches(few, ready, starts, batches, progress, kept)
        if smooth.interrupted:
            return smooth
        fit = run_local(smooth, number, ready, options, progress, further)
        if fit.interrupted or options.local != "auto" or pays(fit, smooth):
            return fit
    starts = _starts(data, options, ready, choice)
    return on_mini_batches(options, ready, starts, batches, progress, checkpoints)


def _refuse_local(data: Dataset, number: int, source: Source | None) -> None:
    """Complain of data that local latents cannot be learned from."""
    if source is not None or distributed.count() > 1:
        raise ValueError(
            f"local={number} needs all rows in the memory of one process: local=0 fits a Table, or "
            "by several processes"
        )
    if data.labels:
        name = data.columns[data.labels[0]].name
        raise ValueError(
            f"local={number} needs inputs that are numbers or dates, and {name!r} holds labels"
        )


def _as_chosen(choice: Choice) -> Fit:
    """The model as it was chosen, where that is all: nothing is left to learn, or no patience."""
    bound = float(choice.own.sum())
    objective = bound + float(choice.chosen.log_density())
    fit = Fit(choice.chosen, choice.q, bound, choice.jitter, [objective])
    if choice.interrupted:
        return fit.interrupt()
    fit.converged, fit.iterations, fit.each = True, 1, tuple(choice.own.tolist())
    return fit


def _starts(
    data: Dataset, options: Options, ready: Ready, choice: Choice | None
) -> list[Parameters]:
    """The models to start from."""
    if choice is not None:
        known = choice.rows, choice.information
        start = with_inducing(choice.parameters, known, data, options, ready)
        return distributed.numbers_of_first([start])
    kernels, ranks = kernels_and_ranks(data, options)
    Z = placed_inducing(data, options, ready, ranks)
    numbers = [j for j in range(len(data.columns)) if j not in data.labels]
    among = None if ready.method == "vem" else Z[0][:, numbers]
    lengthscales = initial_lengthscales(len(kernels), ready.X[:, numbers], among)

    def begun(kernels: Sequence[Kernel], lengthscales: np.ndarray, restart: int = 0) -> Parameters:
        return initial_parameters(
            *(data, Beginning(kernels, ranks, Z, lengthscales), ready.scaling),
            prior=options.prior,
            weight_scale=options.weight_scale,
            hyperpriors=options.hyperpriors is not None,
            seed=options.seed,
            restart=restart,
        )

    starts = [begun(kernels, lengthscales, restart) for restart in range(options.restarts or 1)]
    if ready.method == "vem" and options.natural_gradients and options.restarts is None:
        size = np.sqrt(max(len(numbers), 1))
        for some, factor in product(variants(kernels), LENGTHSCALES):
            starts.append(begun(some, np.full(len(kernels), size * factor)))
    return distributed.numbers_of_first(starts)  # machines differ by rounding


def _identity(data: Dataset, options: Options, source: Source | None) -> dict[str, str]:
    """What is fitted to what, for checkpoints."""
    words, size = identity(data, options), rounded(options.batch_size)
    if source is not None:
        words["the table"] = source.table.in_words
        size = rows_of_a_batch(source.table, options.batch_size)
    return {**words, "the number of rows in a batch": str(size)}


def _by_name(data: Dataset) -> Dataset:
    """The outputs sorted by name, so that the user's order changes nothing, to the last bit."""
    places = np.argsort(data.names)
    lists = ("names", "likelihoods", "inputs", "values", "given", "weights")
    return replace(data, **{name: [getattr(data, name)[d] for d in places] for name in lists})


def _impossible(parameters: Parameters, data: Dataset) -> str | None:
    """Which value has no density where learning starts, in words, if any has none."""
    prior = parameters.prior
    for part, likelihood, (name, _, y, given) in zip(
        parameters.slices, parameters.likelihoods, observed_values(data), strict=True
    ):
        f = prior.values(part, jnp.zeros(sum(prior.ranks)))
        log_p = jax.vmap(lambda y, own, of=likelihood, f=f: of.at(own).log_prob(y, f))(y, given)
        bad = np.flatnonzero(~np.isfinite(log_p))
        if bad.size:
            return (
                f"output {name!r}: the value {y[bad[0]]:g} cannot be explained by {likelihood!r} "
                f"where learning starts ({bad.size} such values); leave it out, give the values in "
                "other units, or take another likelihood"
            )
    return None


def _crowded(parameters: Parameters, scaling: Scaling, columns: Sequence[Column]) -> str:
    """Why k(Z, Z) has no Cholesky factor, in words."""
    worst: tuple[float, str] = (np.inf, "")
    for q, (kernel, Z) in enumerate(
        zip(parameters.prior.kernels, parameters.prior.tables, strict=True)
    ):
        Z = scaling.undo(np.asarray(Z))
        apart = np.linalg.norm((Z[:, None] - Z[None]) / scaling.scale, axis=-1)
        apart[np.diag_indices(len(Z))] = np.inf
        i, j = np.unravel_index(np.argmin(apart), apart.shape)
        if apart[i, j] < worst[0]:
            shown = kernel.rescaled(scaling.scale, scaling.centre)
            worst = (
                apart[i, j],
                f"latent {q} ({shown}): inducing inputs {i} and {j} are closest, at "
                f"{restored(Z[[i]], columns).to_dict('records')[0]} and "
                f"{restored(Z[[j]], columns).to_dict('records')[0]}",
            )
    return (
        "the covariance of the inducing inputs is not positive definite even with jitter 1e-2; "
        f"{worst[1]}. Use fewer inducing inputs or a shorter lengthscale"
    )
