"""The loops around VEM and SVI: convergence, restarts, interruption, trouble with Cholesky."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .. import distributed
from ..bound import Parameters, Rules
from ..data import Batch, Block
from ..variational import Factors
from . import direct, svi, vem
from .checkpoint import Checkpoints
from .free import Anchor
from .mesh import everywhere, mesh
from .progress import Progress
from .prune import without_idle_weights

__all__ = ["Fit", "run_svi", "run_vem"]

JITTER = {"float64": 1e-6, "float32": 1e-4}
LARGEST_JITTER = 1e-2
SHORT_ROUNDS = 3  # rounds of each start before the best is carried on
PATIENCE = (100, 1000)  # least and most steps between two looks at the mini-batch bounds
FIRST_CHUNK = 20  # steps before the host looks for the first time
CHUNK_SECONDS = 0.3  # and between two looks later on
STEPS = 500  # between two checkpoints
SMALL_GAINS = 2  # windows in a row without much gain before a stochastic fit has converged


class Feed(Protocol):
    """Rows for steps, in an order that depends on the seed alone.

    Attributes:
        epoch: the steps in which every row is met once.
        longest: the most steps that `take` gives now.
        taken: how many were taken, counting those left out at the beginning.
    """

    epoch: int
    taken: int

    @property
    def longest(self) -> int: ...

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...], int]:
        """Blocks and rows for n steps, and which is the first; always of the same shape."""

    def close(self) -> None:
        """End what runs beside."""


class NotPositiveDefiniteError(ArithmeticError):
    """The bound could not be evaluated at the start, even with the largest jitter."""


@dataclass
class Fit:
    """What a fit found.

    Attributes:
        parameters: the model.
        q: q(u).
        bound: the evidence lower bound.
        history: the objective after each round (VEM), or the mean bound of each window (SVI).
        converged: whether the convergence rule was met.
        interrupted: whether the user stopped it.
        jitter: what was added to the diagonals of k(Z, Z).
        iterations: rounds (VEM) or steps (SVI).
    """

    parameters: Parameters
    q: Factors
    bound: float
    jitter: float
    history: list[float] = field(default_factory=list)
    converged: bool = False
    interrupted: bool = False
    iterations: int = 0


def _interrupted(fit: Fit) -> Fit:
    fit.interrupted = True
    warnings.warn(
        f"interrupted after {fit.iterations} iterations; the model is usable as it stands",
        RuntimeWarning,
        stacklevel=3,
    )
    return fit


def run_vem(
    starts: Sequence[Parameters],
    anchor: Anchor,
    batch: Batch,
    rules: Rules,
    *,
    natural_gradients: bool,
    learn_inducing: bool,
    prune: bool,
    max_iter: int,
    tolerance: float,
    jitter: float,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Variational EM to convergence, from the most promising of the starts.

    Args:
        starts: models to start from; each gets a few rounds, the best bound is carried on.
        anchor: the priors of constants and weights.
        batch: all the data.
        rules: how the bound is evaluated.
        natural_gradients: False learns q(u) by L-BFGS with the rest, as the paper does.
        learn_inducing: whether inducing inputs move.
        prune: whether to drop mixing weights that gain less than a nat, and go on without them.
        max_iter: the most rounds; 0 fits q(u) alone.
        tolerance: nats; converged when a round gains less.
        jitter: where to begin.
        progress: where to report.
        checkpoints: where to keep the fit between rounds, once the best start is known.
    """
    method = vem if natural_gradients else direct
    every = (checkpoints and checkpoints.every) or 1

    def begin(start: Parameters) -> tuple[Fit, vem.State]:
        level = jitter
        while True:
            state = method.init(start, anchor, batch, level, rules, 0.1 * tolerance)
            if np.isfinite(state.bound):
                fit = Fit(state.parameters, state.q, state.bound, level, [state.bound])
                return fit, state
            level *= 10.0
            if level > LARGEST_JITTER:
                raise NotPositiveDefiniteError

    def keep(fit: Fit, state: vem.State, pruned: bool, until: int) -> None:
        if checkpoints is not None:
            notes = {
                **{"bound": state.bound, "objective": state.objective, "jitter": fit.jitter},
                **{"history": fit.history, "converged": fit.converged, "until": until},
                **{"iterations": fit.iterations, "pruned": pruned},
            }
            arrays = (state.parameters, state.sites, state.q)
            checkpoints.save(fit.iterations, arrays, notes)

    def kept() -> tuple[Fit, vem.State, bool, int] | None:
        R, M = sum(starts[0].prior.ranks), starts[0].prior.inducing_inputs.shape[1]
        sites = vem.flat_sites(starts[0], batch, rules) if natural_gradients else ()
        q = Factors(jnp.zeros((R, M)), jnp.zeros((R, M, M)))
        found = checkpoints.latest((starts[0], sites, q)) if checkpoints is not None else None
        if found is None:
            return None
        (parameters, sites, q), notes = found
        state = vem.State(parameters, sites, q, notes["bound"], notes["objective"], anchor)
        fit = Fit(parameters, q, state.bound, notes["jitter"], notes["history"])
        fit.converged, fit.iterations = notes["converged"], notes["iterations"]
        return fit, state, notes["pruned"], notes["until"]

    def advance(
        fit: Fit, state: vem.State, until: int, label: str, pruned: bool | None = None
    ) -> vem.State:
        first_gain = np.nan
        while fit.iterations < until and not fit.converged:
            before = state.objective
            state = method.step(state, batch, fit.jitter, rules, 0.1 * tolerance, learn_inducing)
            gain = state.objective - before
            fit.parameters, fit.q, fit.bound = state.parameters, state.q, state.bound
            fit.history.append(state.objective)
            fit.iterations += 1
            first_gain = gain if np.isnan(first_gain) else first_gain
            fraction = _towards(gain, first_gain, tolerance)
            progress.update(f"{label}round {fit.iterations}", fraction, fit.bound)
            fit.converged = bool(gain < tolerance)
            if pruned is not None and (fit.converged or fit.iterations % every == 0):
                keep(fit, state, pruned, until)
        return state

    best: tuple[Fit, vem.State] | None = None
    pruned, until = False, max_iter
    try:
        earlier = kept()
        if earlier is not None:
            best, pruned, until = earlier[:2], *earlier[2:]
            until = max(until, max_iter) if pruned else max_iter
        for number, start in enumerate(starts if earlier is None else ()):
            label = f"start {number + 1}/{len(starts)} · " if len(starts) > 1 else ""
            fit, state = begin(start)
            progress.update(f"{label}first q(u)", 0.0, fit.bound)
            if best is None:
                best = (fit, state)
            if len(starts) > 1:
                state = advance(fit, state, min(SHORT_ROUNDS, max_iter), label)
                if fit.bound >= best[0].bound or fit is best[0]:
                    best = (fit, state)
        assert best is not None
        fit, state = best
        state = advance(fit, state, until, "pruned · " if pruned else "", pruned)
        if prune and fit.converged and not pruned:
            less = without_idle_weights(state, batch, fit.jitter, rules, 0.1 * tolerance)
            if less is not state:
                fit.converged, fit.bound = False, less.bound
                until = max(max_iter, fit.iterations + 1)
                advance(fit, less, until, "pruned · ", pruned=True)
        return fit
    except KeyboardInterrupt:
        if best is None:
            raise
        return _interrupted(best[0])


def _towards(gain: float, first: float, tolerance: float) -> float:
    """How far gains have fallen from the first one to the tolerance, in logarithms."""
    if gain <= tolerance or first <= tolerance:
        return 1.0
    return float(np.log(first / gain) / np.log(first / tolerance))


def run_svi(
    start: Parameters,
    anchor: Anchor,
    feeds: Callable[[int], Feed],
    rules: Rules,
    *,
    optimiser: svi.Optimiser,
    natural_gradients: bool,
    learn_inducing: bool,
    max_iter: int,
    tolerance: float,
    jitter: float,
    seed: int,
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Stochastic inference to convergence.

    The mean of the mini-batch bounds over a window (whole epochs, within `PATIENCE`) is
    compared with the window before; the fit has converged when it gains less than the tolerance
    `SMALL_GAINS` times in a row.

    Args:
        start: the model to start from.
        anchor: the priors of constants and weights.
        feeds: the data and their order, less so many steps at the beginning.
        rules: how the bound is evaluated.
        optimiser: for everything but q(u).
        natural_gradients: False learns q(u) by the same optimiser, as the paper does.
        learn_inducing: whether inducing inputs move.
        max_iter: the most steps.
        tolerance: nats; the gain of a window that counts as none.
        jitter: where to begin.
        seed: of the order of the rows.
        progress: where to report.
        checkpoints: where to keep the fit on its way.
    """
    # By NumPy, in which numbers have one type: what was compiled for one state is for all.
    state = jax.tree.map(np.asarray, svi.init(start, learn_inducing, optimiser, natural_gradients))
    fit = Fit(start, svi.result(start, state)[1], -np.inf, jitter)
    bounds: list[float] = []  # of the window so far
    small, pace, first_gain, fraction = 0, 1.0, np.nan, 0.0
    length, every = FIRST_CHUNK, (checkpoints and checkpoints.every) or STEPS
    earlier = checkpoints.latest(state) if checkpoints is not None else None
    taken = 0
    if earlier is not None:
        state, notes = earlier
        fit.history, fit.jitter, bounds = notes["history"], notes["jitter"], notes["bounds"]
        fit.iterations, fit.converged = notes["iterations"], notes["converged"]
        small, pace, taken = notes["small"], notes["pace"], notes["taken"]
    state, fixed = everywhere((state, (start, anchor)))
    agreed = False  # to stop, in a group
    feed = feeds(taken)
    least, most = PATIENCE
    window = min(feed.epoch * -(-least // feed.epoch), most)

    def keep() -> None:
        if checkpoints is not None:
            notes = {
                **{"history": fit.history, "jitter": fit.jitter, "bounds": bounds},
                **{"iterations": fit.iterations, "converged": fit.converged},
                **{"small": small, "pace": pace, "taken": feed.taken},
            }
            checkpoints.save(fit.iterations, state, notes)

    def steps(
        state: svi.State, feed: Feed, n: int, pace: float
    ) -> tuple[svi.State, list[float], bool]:
        data, rows, first = distributed.together(lambda: feed.take(n))
        numbers = tuple(map(np.asarray, (first, n, fit.jitter, pace, seed % 2**31)))
        begin, count, jitter, now, key = everywhere(numbers)
        with distributed.in_touch():
            state, found, finite = svi.chunk(
                *(state, fixed[0], data, rows, begin, count, jitter, rules),
                optimiser=optimiser,
                pace=now,
                anchor=fixed[1],
                seed=key,
                devices=mesh(),
            )
            bounds = np.asarray(found)[first : first + n].tolist()
        # What is decided by these must be decided by all.
        bounds, finite = distributed.from_first(lambda: (bounds, bool(finite)))
        return state, bounds, finite

    try:
        with distributed.interrupts() as interrupted:
            while fit.iterations < max_iter and not fit.converged:
                # A chunk ends with its window: what is found does not depend on how fast it goes.
                n = min(length, feed.longest, window - len(bounds), max_iter - fit.iterations)
                if checkpoints is not None:
                    n = min(n, every - fit.iterations % every)
                began = time.perf_counter()
                new, chunk_bounds, finite = steps(state, feed, n, pace)
                if not finite:  # take the last good state up again, more carefully
                    fit.jitter *= 10.0
                    pace *= 0.5
                    if fit.jitter > LARGEST_JITTER:
                        raise NotPositiveDefiniteError
                    continue
                state = new
                fit.iterations += n
                bounds += chunk_bounds
                if fit.iterations > n:  # the first one may have compiled
                    length = max(1, round(CHUNK_SECONDS * n / (time.perf_counter() - began)))
                if len(bounds) == window:
                    fit.history.append(float(np.mean(bounds)))
                    bounds.clear()
                    if len(fit.history) > 1:
                        gain = fit.history[-1] - fit.history[-2]
                        first_gain = gain if np.isnan(first_gain) else first_gain
                        fraction = max(fraction, _towards(gain, first_gain, tolerance))
                        small = small + 1 if gain < tolerance else 0
                    fit.converged = small == SMALL_GAINS
                if fit.converged or fit.iterations % every == 0:
                    keep()
                now = float(np.mean(bounds)) if bounds else fit.history[-1]
                progress.update(f"step {fit.iterations}", fraction, now)
                said = distributed.gathered((length, interrupted()))
                length = said[0][0]
                agreed = any(stop for _, stop in said)
                if agreed:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        if distributed.count() > 1 and not agreed:
            raise
        _interrupted(fit)
    finally:
        feed.close()
    if bounds:
        fit.history.append(float(np.mean(bounds)))
    fit.parameters, fit.q = svi.result(start, jax.tree.map(np.asarray, state))

    # The bound over an epoch, or over its first 200 batches: steps of size zero, compiled already.
    again, left, found = feeds(0), min(feed.epoch, 200), []
    try:
        with distributed.interrupts():
            while left:
                n = min(left, again.longest)
                found += steps(state, again, n, 0.0)[1]
                left -= n
    finally:
        again.close()
    fit.bound = float(np.mean(found))
    return fit
