"""From data and options to a fit: full batches or mini-batches, where to start, what to run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import numpy as np

from .. import distributed
from ..bound import Parameters, Rules
from ..columns import Column
from ..data import Scaling, blocks, full_batch
from ..disk import Table
from ..inputs import restored
from ..likelihoods import Categorical
from ..tables import Dataset
from ..variational import Factors
from . import svi
from .checkpoint import Checkpoints, identity
from .free import Anchor
from .mesh import rounded
from .progress import Progress
from .run import JITTER, Feed, Fit, NotPositiveDefiniteError, run_svi, run_vem
from .start import initial_lengthscales, initial_parameters, latent_kernels, place_inducing
from .stream import StreamFeed, rows_of_a_batch

if TYPE_CHECKING:
    from ..model import HetMOGP

__all__ = ["Source", "learn"]

# Full batches cost about N (RM)² operations a pass; beyond this mini-batches are a better bargain.
LARGEST_VEM_COST = 3e8
LARGEST_VEM_ROWS = 20_000
LARGEST_VEM_CLASSES = 30_000  # values times classes, each at hundreds of points in every pass
DEFAULTS = {"vem": (100, 1e-5), "svi": (5000, 5e-4)}  # max_iter, tol


class Source(NamedTuple):
    """All rows of a fit that starts from a sample, and how many values each output has there."""

    table: Table
    observed: dict[str, int]


def learn(
    data: Dataset,
    options: "HetMOGP",
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    source: Source | None = None,
) -> tuple[Fit, Scaling, Literal["vem", "svi"]]:
    """Prepare the data, choose a method and run it.

    Args:
        data: what was read.
        options: the model's constructor arguments.
        progress: where to report.
        checkpoints: where to keep the fit on its way.
        source: where all rows are, should `data` be a sample of them.

    Returns:
        The fit, with its outputs in order of their names; how inputs were scaled; the method.
    """
    data = _by_name(data)
    if checkpoints is not None:
        of = identity(data, options)
        size = rounded(options.batch_size)
        if source is not None:
            of["the table"] = source.table.told
            size = rows_of_a_batch(source.table, options.batch_size)
        of["the number of rows in a batch"] = str(size)
        checkpoints = replace(checkpoints, of=of)
    observed_at = data.observed()
    values = [
        y if seen.all() else y[seen] for y, seen in zip(data.values, observed_at, strict=True)
    ]
    given = [
        {name: column[seen] for name, column in columns.items()}
        for columns, seen in zip(data.given, observed_at, strict=True)
    ]
    observed = sum(map(len, values)) if source is None else sum(source.observed.values())
    kernels, ranks = latent_kernels(
        *(options.kernel, options.latents, options.rank),
        alone=options.prior == "independent",
        J=sum(len(of.latent) for of in data.likelihoods),
        columns=data.columns,
    )
    numbers = [j for j in range(len(data.columns)) if j not in data.labels]

    def inducing(X: np.ndarray, scaling: Scaling) -> np.ndarray:
        return place_inducing(
            *(options.inducing, X, scaling, data.columns),
            Q=len(kernels),
            shared=not options.learn_inducing,
            seed=options.seed,
        )

    N = sum(len(X) for X in {id(X): X for X in data.inputs}.values())
    method = options.method
    if source is not None:
        if method == "vem":
            raise ValueError('method="vem" needs all rows at once; a Table is fitted by "svi"')
        method = "svi"
    if method == "vem" or (method == "auto" and N <= 10 * LARGEST_VEM_ROWS):
        batch, scaling = full_batch(data)
        distinct = batch.observed
        Z = inducing(distinct, scaling)
        cost = len(distinct) * (sum(ranks) * Z.shape[1]) ** 2
        classes = sum(
            len(y) * len(of.latent)
            for y, of in zip(values, data.likelihoods, strict=True)
            if isinstance(of, Categorical)
        )
        small = len(distinct) <= LARGEST_VEM_ROWS and classes <= LARGEST_VEM_CLASSES
        if method == "vem" or (cost <= LARGEST_VEM_COST and small):
            method = "vem"
            lengthscales = initial_lengthscales(len(kernels), distinct[:, numbers])
    if method != "vem":
        method = "svi"
        groups, scaling = blocks(data)
        rows = [np.asarray(group.X, float) for group in groups]
        X = rows[0] if len(rows) == 1 else np.concatenate(rows)
        Z = inducing(X, scaling)
        lengthscales = initial_lengthscales(len(kernels), X[:, numbers], Z[0][:, numbers])

    max_iter, tol = DEFAULTS[method]
    max_iter = max_iter if options.max_iter is None else options.max_iter
    tol = (tol if options.tol is None else options.tol) * observed
    starts = [
        initial_parameters(
            data.names,
            data.likelihoods,
            values,
            given,
            kernels,
            ranks,
            Z,
            lengthscales,
            [column.name for column in data.columns],
            scaling.scale,
            prior=options.prior,
            seed=options.seed,
            restart=restart,
        )
        for restart in range(options.restarts or 1)
    ]
    starts = distributed.numbers_of_first(starts)  # machines differ by rounding
    anchor = Anchor.of(starts[0], values, options.weight_scale)
    rules = Rules(joint=options.bound == "joint", expectation=options.expectation)
    common: dict[str, Any] = {
        "natural_gradients": options.natural_gradients,
        "learn_inducing": options.learn_inducing,
        "max_iter": max_iter,
        "tolerance": tol,
        "jitter": JITTER[options.dtype],
        "progress": progress,
    }
    try:
        if method == "vem":
            prune = options.prune and options.prior == "lmc" and options.natural_gradients

            def by_first() -> tuple[list[np.ndarray], dict[str, Any]]:
                fit = run_vem(
                    starts, anchor, batch, rules, prune=prune, checkpoints=checkpoints, **common
                )
                told = {k: v for k, v in vars(fit).items() if k not in ("parameters", "q")}
                return [np.asarray(n) for n in jax.tree.leaves((fit.parameters, fit.q))], told

            learned, told = distributed.from_first(by_first)
            structure = jax.tree.structure((starts[0], Factors(*np.zeros(2))))
            return Fit(*jax.tree.unflatten(structure, learned), **told), scaling, method

        def feeds(skip: int) -> Feed:
            size, seed = options.batch_size, options.seed
            if source is not None:
                return StreamFeed(source.table, data, groups[0], scaling, size, seed, skip)
            feed = svi.Feed(groups, size, seed, skip)
            groups[:] = feed.blocks  # where the devices can reach them, for the next one too
            return feed

        fits: list[Fit] = []
        for number, start in enumerate(starts):
            fit = run_svi(
                start,
                anchor,
                feeds,
                rules,
                optimiser=options.optimizer,
                seed=options.seed,
                checkpoints=checkpoints and checkpoints.within(f"start{number}"),
                **common,
            )
            fits.append(fit)
            if fit.interrupted:
                break
        return max(fits, key=lambda fit: fit.bound), scaling, method
    except NotPositiveDefiniteError:
        why = _impossible(starts[0], data.names, values, given)
        raise ArithmeticError(why or _crowded(starts[0], scaling, data.columns)) from None


def _by_name(data: Dataset) -> Dataset:
    """The outputs sorted by name, so that the user's order changes nothing, to the last bit."""
    order = np.argsort(data.names)
    return replace(
        data,
        names=[data.names[d] for d in order],
        likelihoods=[data.likelihoods[d] for d in order],
        inputs=[data.inputs[d] for d in order],
        values=[data.values[d] for d in order],
        given=[data.given[d] for d in order],
        weights=[data.weights[d] for d in order],
    )


def _impossible(
    parameters: Parameters,
    names: Sequence[str],
    values: Sequence[np.ndarray],
    given: Sequence[Mapping[str, np.ndarray]],
) -> str | None:
    """Which value has no density where learning starts, in words, if any has none."""
    for name, likelihood, part, y, own in zip(
        *(names, parameters.likelihoods, parameters.slices, values, given), strict=True
    ):
        f = parameters.prior.b[part]
        log_p = jax.vmap(lambda y, own, of=likelihood, f=f: of.at(own).log_prob(y, f))(y, own)
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
