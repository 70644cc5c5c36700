"""Run VEM on the full batch or SVI on mini-batches, in one process or several."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import distributed
from ..batch import Batch
from ..parameters import Parameters
from ..priors import Prior
from ..tables import Dataset
from ..variational import Family
from . import svi
from .apart import run_apart, share_nothing
from .checkpoint import Checkpoints
from .fit import Fit
from .full_batch import run_vem
from .mini_batches import Feed, run_svi
from .options import Options
from .progress import Progress
from .ready import Ready, Source, moves_inducing
from .sharing import hint
from .stream import StreamFeed
from .vem import Problem

__all__ = ["Rough", "feeds", "on_full_batch", "on_mini_batches", "problem_of"]


class Rough(NamedTuple):
    """A model fitted to similar data, as a starting point.

    Attributes:
        parameters: the model; unused latents are ignored.
        q: its q(u).
        jitter: added to the diagonals of its k(Z, Z).
        reach: the inverse curvature of its hyperparameters as far as known; see `lbfgs`.
    """

    parameters: Parameters
    q: Family
    jitter: float
    reach: np.ndarray | None = None


def problem_of(options: Options, ready: Ready, prior: Prior, rough: Rough | None = None) -> Problem:
    """The full batch and how its bound is evaluated, for models with the given kind of prior."""
    batch = ready.data
    assert isinstance(batch, Batch)
    family = options.family("vem", *prior.sizes)
    moves = moves_inducing(options, ready, prior.sizes[1])
    problem = Problem(batch, options.rules, family, 0.1 * ready.limits[1], moves)
    if rough is None:
        return problem
    known = hint(rough.parameters, rough.q, rough.jitter, np.asarray(batch.X))
    return problem._replace(hint=known, reach=None if moves else rough.reach)


def on_full_batch(
    options: Options,
    ready: Ready,
    starts: list[Parameters],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    rough: Rough | None = None,
) -> Fit:
    """Run VEM in the first process only, and send the result to the others."""
    problem = problem_of(options, ready, starts[0].prior, rough)

    def by_first() -> tuple[list[np.ndarray], dict[str, Any]]:
        rest = options, ready.limits, progress, checkpoints
        if len(starts) == 1 and share_nothing(starts[0], problem):
            fit = run_apart(starts[0], problem, *rest)
        else:
            fit = run_vem(starts, problem, *rest)
        facts = {k: v for k, v in vars(fit).items() if k not in ("parameters", "q")}
        return [np.asarray(n) for n in jax.tree.leaves((fit.parameters, fit.q))], facts

    numbers, rest = distributed.from_first(by_first)
    q = problem.family.at_prior(starts[0].prior.widths)
    return Fit(*jax.tree.unflatten(jax.tree.structure((starts[0], q)), numbers), **rest)


def on_mini_batches(
    options: Options,
    ready: Ready,
    starts: list[Parameters],
    feeds: Callable[[int], Feed],
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Run SVI from every start, and return the best fit."""
    family = options.family("svi", *starts[0].prior.sizes)
    fits: list[Fit] = []
    for number, start in enumerate(starts):
        kept = checkpoints and checkpoints.within(f"start{number}")
        fits.append(run_svi(start, family, feeds, options, ready.limits, progress, kept))
        if fits[-1].interrupted:
            break
    return max(fits, key=lambda fit: fit.bound)


def feeds(
    data: Dataset, options: Options, ready: Ready, source: Source | None
) -> Callable[[int], Feed]:
    """A function that makes a feed of mini-batches and skips a given number of steps."""
    groups, size, seed = ready.data, options.batch_size, options.seed
    assert isinstance(groups, list)

    def from_memory(skip: int) -> Feed:
        feed = svi.Feed(groups, size, seed, skip)
        groups[:] = feed.blocks  # already on the devices; the next feed uses them too
        return feed

    if source is None:
        return from_memory
    table = source.table
    return lambda skip: StreamFeed(table, data, groups[0], ready.scaling, size, seed, skip)
