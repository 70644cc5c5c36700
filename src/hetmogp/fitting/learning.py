"""Fit a model: prepare the data, choose where to start, and run."""

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
from .choice import Choice, in_use
from .choosing import chosen, rechecked, with_inducing
from .effects import Effects, within_budget
from .fit import Fit, NotPositiveDefiniteError
from .inducing import inputs_of, is_auto
from .local import FEW, how_many_local, pays, with_local
from .mesh import rounded
from .options import Method, Options
from .progress import Progress
from .race import LENGTHSCALES, variants
from .ready import (
    Ready,
    Source,
    functions,
    kernels_and_ranks,
    only_effects,
    placed_inducing,
    prepared,
)
from .runs import Rough, feeds, on_full_batch, on_mini_batches
from .start import (
    Beginning,
    initial_lengthscales,
    initial_parameters,
    observed_values,
)
from .stream import rows_of_a_batch

__all__ = ["Learned", "Source", "learn"]

STEPS = 1_000  # without local latents before they join, where a full batch has been fitted


class Learned(NamedTuple):
    """A fit with its outputs sorted by name, the scaling of the inputs, and the method used.

    `choice` records which latents were chosen, where the fit chose them.
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
    """Prepare the data, choose where to start, and run the fit.

    Args:
        data: the outputs and their inputs.
        options: how to fit.
        progress: where to report progress.
        checkpoints: where to save the fit while it runs.
        source: where all rows are, if `data` is only a sample of them.
    """
    data = _by_name(data)
    if checkpoints is not None:
        checkpoints = replace(checkpoints, identity=_identity(data, options, source))
    ready = prepared(data, options, source)
    fewer = within_budget(data, options, ready.method)
    if fewer is not options:
        options, ready = fewer, prepared(data, fewer, source)
    choice, starts = None, []
    try:
        chooses = options.chooses and not only_effects(data, options)
        choice = chosen(data, options, ready, progress) if chooses else None
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
                finer = _finer(fit, data, options, ready, choice, progress, checkpoints)
                if finer is not None:
                    return Learned(finer, ready.scaling, "svi", choice)
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
    """Fit on mini-batches, with local latents where the user asked for them or they pay."""
    number = how_many_local(data, options, ready, source)
    if number:
        rest = data, options, ready, choice, progress, checkpoints, source
        smooth, fit = _with_detail(number, *rest)
        if fit.interrupted or options.local != "auto" or pays(fit, smooth):
            return fit
    starts, batches = _starts(data, options, ready, choice), feeds(data, options, ready, source)
    return on_mini_batches(options, ready, starts, batches, progress, checkpoints)


def _with_detail(
    number: int,
    data: Dataset,
    options: Options,
    ready: Ready,
    choice: Choice | None,
    progress: Progress,
    checkpoints: Checkpoints | None,
    source: Source | None = None,
    goal: float = -np.inf,
) -> tuple[Fit, Fit]:
    """A fit with few inducing inputs, and one that has local latents as well.

    Both are the same fit after an interrupt of the first. Where there is a goal, the first is cut
    short, and the second is given up if its bound will not reach the goal.
    """
    few = replace(options, inducing=FEW) if is_auto(options.inducing) else options
    kept, further = (checkpoints and checkpoints.within(part) for part in ("smooth", "local"))
    starts, batches = _starts(data, few, ready, choice), feeds(data, few, ready, source)
    steps, tolerance = ready.limits
    short = replace(ready, limits=(min(steps, STEPS) if np.isfinite(goal) else steps, tolerance))
    smooth = on_mini_batches(few, short, starts, batches, progress, kept)
    if smooth.interrupted:
        return smooth, smooth
    rest = data, ready, options, progress, further, source, goal
    return smooth, with_local(smooth, number, *rest)


def _finer(
    fit: Fit,
    data: Dataset,
    options: Options,
    ready: Ready,
    choice: Choice,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit | None:
    """A fit with local latents, if inducing inputs are too few for this table and it pays.

    Units that numbers identify (`supports`) have no neighbours. Whatever becomes of the attempt,
    the fit to the full batch is not lost.
    """
    number = how_many_local(data, options, ready, None)
    kernels = in_use(choice.chosen).prior.kernels
    exact = min(fit.parameters.prior.widths) >= ready.distinct
    units = any(
        kernel.by_level and not set(inputs_of(kernel, len(data.columns))) <= set(data.labels)
        for kernel in kernels
    )
    if not number or options.max_iter is not None or fit.interrupted or exact or units:
        return None
    svi = prepared(data, replace(options, method="svi"), None, ready.scaling)
    rest = data, options, svi, choice, progress, checkpoints, None, fit.bound
    try:
        _, finer = _with_detail(number, *rest)
    except NotPositiveDefiniteError:
        return None
    except KeyboardInterrupt:
        if distributed.count() > 1:
            raise
        fit.interrupt()
        return None
    if finer.interrupted:
        fit.interrupted = True
        return None
    return finer if pays(finer, fit) else None


def _as_chosen(choice: Choice) -> Fit:
    """The chosen model as the final fit: nothing is left to learn, or the user stopped it."""
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
    effects = Effects.of(options, data.columns)
    added = effects.latents(ready.scaling, functions(data), len(kernels) or None)
    owners = tuple(owner for _, owner in added)
    kernels, ranks = [*kernels, *(kernel for kernel, _ in added)], [*ranks, *[1] * len(added)]
    Z, counts = placed_inducing(data, options, ready, kernels, ranks)
    numbers = [j for j in range(len(data.columns)) if j not in (*data.labels, *effects.inputs)]
    among = None if ready.method == "vem" else Z[0][: counts[0] if counts else None, numbers]
    lengthscales = initial_lengthscales(len(kernels), ready.X[:, numbers], among)

    def begun(kernels: Sequence[Kernel], lengthscales: np.ndarray, restart: int = 0) -> Parameters:
        return initial_parameters(
            *(data, Beginning(kernels, ranks, Z, lengthscales, counts, owners), ready.scaling),
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
    return distributed.numbers_of_first(starts)  # machines differ in rounding


def _identity(data: Dataset, options: Options, source: Source | None) -> dict[str, str]:
    """A description of the model and its data, which checkpoints are compared with."""
    words, size = identity(data, options), rounded(options.batch_size)
    if source is not None:
        words["the table"] = source.table.in_words
        size = rows_of_a_batch(source.table, options.batch_size)
    return {**words, "the number of rows in a batch": str(size)}


def _by_name(data: Dataset) -> Dataset:
    """Sort the outputs by name, so that the user's order does not change a single bit."""
    places = np.argsort(data.names)
    lists = ("names", "likelihoods", "inputs", "values", "given", "weights")
    return replace(data, **{name: [getattr(data, name)[d] for d in places] for name in lists})


def _impossible(parameters: Parameters, data: Dataset) -> str | None:
    """An error message if some value has no finite density where learning starts, else None."""
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
                "other units, or use another likelihood"
            )
    return None


def _crowded(parameters: Parameters, scaling: Scaling, columns: Sequence[Column]) -> str:
    """An error message that says why k(Z, Z) has no Cholesky factor."""
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
