"""From data and options to a fit: prepare the data, choose where to start, run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import distributed
from ..batch import Batch, Block
from ..columns import Column
from ..data import Scaling, blocks, full_batch
from ..disk import Table
from ..inputs import restored
from ..parameters import Parameters
from ..priors import PRIORS
from ..tables import Dataset
from ..variational import Blocks
from . import svi
from .checkpoint import Checkpoints, identity
from .fit import Fit, NotPositiveDefiniteError
from .full_batch import run_vem
from .mesh import rounded
from .mini_batches import Feed, run_svi
from .options import Method, Options
from .progress import Progress
from .start import (
    Beginning,
    how_many_inducing,
    initial_lengthscales,
    initial_parameters,
    latent_kernels,
    observed_values,
    place_inducing,
)
from .stream import StreamFeed, rows_of_a_batch
from .vem import Problem

__all__ = ["Learned", "Source", "learn"]

# Full batches cost about N (RM)² operations a pass; beyond this mini-batches are a better bargain.
LARGEST_VEM_COST = 3e8
LARGEST_VEM_ROWS = 20_000
LARGEST_VEM_CLASSES = 30_000  # values times classes, each at hundreds of points in every pass


class Source(NamedTuple):
    """All rows of a fit that starts from a sample, and how many values each output has there."""

    table: Table
    observed: dict[str, int]


class Learned(NamedTuple):
    """A fit, its outputs in order of their names; how inputs were scaled; the method."""

    fit: Fit
    scaling: Scaling
    method: Method


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
    ready = _prepared(data, options, source)
    starts = _starts(data, options, ready)
    try:
        if ready.method == "vem":
            fit = _full_batch(options, ready, starts, progress, checkpoints)
        else:
            feeds = _feeds(data, options, ready, source)
            fit = _mini_batches(options, ready, starts, feeds, progress, checkpoints)
    except NotPositiveDefiniteError:
        why = _impossible(starts[0], data) or _crowded(starts[0], ready.scaling, data.columns)
        raise ArithmeticError(why) from None
    return Learned(fit, ready.scaling, ready.method)


@dataclass
class _Ready:
    """Data and latents, ready to be learned from.

    Attributes:
        method: full batches or mini-batches.
        data: the full batch, or blocks to draw mini-batches from.
        scaling: of the inputs.
        beginning: what the latents begin with.
        family: of q(u).
        limits: the most iterations, and the gain in nats that counts as none.
    """

    method: Method
    data: Batch | list[Block]
    scaling: Scaling
    beginning: Beginning
    family: type[Blocks]
    limits: tuple[int, float]


def _prepared(data: Dataset, options: Options, source: Source | None) -> _Ready:
    """Choose the method, and bring data and latents into the shape it needs."""
    kernels, ranks = latent_kernels(
        *(options.kernel, options.latents, options.rank),
        alone=PRIORS[options.prior].one_each,
        J=sum(len(likelihood.latent) for likelihood in data.likelihoods),
        columns=data.columns,
    )
    method = _method(data, options, sum(ranks), source)
    ready: Batch | list[Block]
    if method == "vem":
        ready, scaling = full_batch(data)
        X = ready.observed
    else:
        ready, scaling = blocks(data)
        rows = [np.asarray(group.X, float) for group in ready]
        X = rows[0] if len(rows) == 1 else np.concatenate(rows)
    Z = place_inducing(
        *(options.inducing, X, scaling, data.columns),
        Q=len(kernels),
        shared=not options.learn_inducing,
        seed=options.seed,
    )
    numbers = [j for j in range(len(data.columns)) if j not in data.labels]
    among = None if method == "vem" else Z[0][:, numbers]
    lengthscales = initial_lengthscales(len(kernels), X[:, numbers], among)
    counts = [int(seen.sum()) for seen in data.observed()]
    observed = sum(counts if source is None else source.observed.values())
    return _Ready(
        method,
        ready,
        scaling,
        Beginning(kernels, ranks, Z, lengthscales),
        options.family(method, sum(ranks), Z.shape[1]),
        options.limits(method, observed),
    )


def _method(data: Dataset, options: Options, R: int, source: Source | None) -> Method:
    """Full batches where the user wants them, or where a pass over the data costs little."""
    if source is not None:
        if options.method == "vem":
            raise ValueError('method="vem" needs all rows at once; a Table is fitted by "svi"')
        return "svi"
    if options.method != "auto":
        return options.method
    every = {id(X): X for X in data.inputs}.values()
    if sum(map(len, every)) > 10 * LARGEST_VEM_ROWS:
        return "svi"
    seen = [X[ok] for X, ok in zip(data.inputs, data.observed(), strict=True)]
    distinct = len(np.unique(np.concatenate(seen), axis=0))
    cost = distinct * (R * how_many_inducing(options.inducing, distinct)) ** 2
    classes = sum(
        len(y) * len(likelihood.latent)
        for _, likelihood, y, _ in observed_values(data)
        if likelihood.softmax
    )
    small = distinct <= LARGEST_VEM_ROWS and classes <= LARGEST_VEM_CLASSES
    return "vem" if small and cost <= LARGEST_VEM_COST else "svi"


def _starts(data: Dataset, options: Options, ready: _Ready) -> list[Parameters]:
    """The models to start from."""
    starts = [
        initial_parameters(
            *(data, ready.beginning, ready.scaling),
            prior=options.prior,
            weight_scale=options.weight_scale,
            seed=options.seed,
            restart=restart,
        )
        for restart in range(options.restarts or 1)
    ]
    return distributed.numbers_of_first(starts)  # machines differ by rounding


def _full_batch(
    options: Options,
    ready: _Ready,
    starts: list[Parameters],
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Run VEM, in the first process alone: the others are given what it found."""
    assert isinstance(ready.data, Batch)
    tolerance = 0.1 * ready.limits[1]
    problem = Problem(ready.data, options.rules, ready.family, tolerance, options.learn_inducing)

    def by_first() -> tuple[list[np.ndarray], dict[str, Any]]:
        fit = run_vem(starts, problem, options, ready.limits, progress, checkpoints)
        rest = {k: v for k, v in vars(fit).items() if k not in ("parameters", "q")}
        return [np.asarray(n) for n in jax.tree.leaves((fit.parameters, fit.q))], rest

    numbers, rest = distributed.from_first(by_first)
    q = ready.family.at_prior(*starts[0].prior.sizes)
    return Fit(*jax.tree.unflatten(jax.tree.structure((starts[0], q)), numbers), **rest)


def _mini_batches(
    options: Options,
    ready: _Ready,
    starts: list[Parameters],
    feeds: Callable[[int], Feed],
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Run SVI from every start, and take the best."""
    fits: list[Fit] = []
    for number, start in enumerate(starts):
        kept = checkpoints and checkpoints.within(f"start{number}")
        fits.append(run_svi(start, ready.family, feeds, options, ready.limits, progress, kept))
        if fits[-1].interrupted:
            break
    return max(fits, key=lambda fit: fit.bound)


def _feeds(
    data: Dataset, options: Options, ready: _Ready, source: Source | None
) -> Callable[[int], Feed]:
    """What makes mini-batches, less so many at the beginning."""
    groups, size, seed = ready.data, options.batch_size, options.seed
    assert isinstance(groups, list)

    def from_memory(skip: int) -> Feed:
        feed = svi.Feed(groups, size, seed, skip)
        groups[:] = feed.blocks  # where the devices can reach them, for the next one too
        return feed

    if source is None:
        return from_memory
    table = source.table
    return lambda skip: StreamFeed(table, data, groups[0], ready.scaling, size, seed, skip)


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
    for q, (kernel, Z) in enumerate(zip(parameters.prior.kernels, parameters.prior.Z, strict=True)):
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
