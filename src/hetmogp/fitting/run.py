"""The loops around VEM and SVI: convergence, restarts, interruption, trouble with Cholesky."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..bound import Parameters, Rules
from ..data import Batch, Block
from ..variational import Factors
from . import direct, svi, vem
from .free import Anchor
from .progress import Progress
from .prune import without_idle_weights

__all__ = ["Fit", "run_svi", "run_vem"]

JITTER = {"float64": 1e-6, "float32": 1e-4}
LARGEST_JITTER = 1e-2
SHORT_ROUNDS = 3  # rounds of each start before the best is carried on
PATIENCE = (100, 1000)  # least and most steps between two looks at the mini-batch bounds
FIRST_CHUNK = 20  # steps before the host looks for the first time
CHUNK_SECONDS = 0.3  # and between two looks later on
SMALL_GAINS = 2  # windows in a row without much gain before a stochastic fit has converged


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
    """
    method = vem if natural_gradients else direct

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

    def advance(fit: Fit, state: vem.State, rounds: int, label: str) -> vem.State:
        first_gain = np.nan
        for _ in range(rounds):
            before = state.objective
            state = method.step(state, batch, fit.jitter, rules, 0.1 * tolerance, learn_inducing)
            gain = state.objective - before
            fit.parameters, fit.q, fit.bound = state.parameters, state.q, state.bound
            fit.history.append(state.objective)
            fit.iterations += 1
            first_gain = gain if np.isnan(first_gain) else first_gain
            fraction = _towards(gain, first_gain, tolerance)
            progress.update(f"{label}round {fit.iterations}", fraction, fit.bound)
            if gain < tolerance:
                fit.converged = True
                break
        return state

    best: tuple[Fit, vem.State] | None = None
    try:
        for number, start in enumerate(starts):
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
        if not fit.converged:
            state = advance(fit, state, max_iter - fit.iterations, "")
        if prune and fit.converged:
            pruned = without_idle_weights(state, batch, fit.jitter, rules, 0.1 * tolerance)
            if pruned is not state:
                fit.converged, fit.bound = False, pruned.bound
                advance(fit, pruned, max(1, max_iter - fit.iterations), "pruned · ")
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
    blocks: list[Block],
    rules: Rules,
    *,
    batch_size: int,
    optimiser: svi.Optimiser,
    natural_gradients: bool,
    learn_inducing: bool,
    max_iter: int,
    tolerance: float,
    jitter: float,
    seed: int,
    progress: Progress,
) -> Fit:
    """Stochastic inference to convergence.

    The mean of the mini-batch bounds over a window (whole epochs, within `PATIENCE`) is
    compared with the window before; the fit has converged when it gains less than the tolerance
    `SMALL_GAINS` times in a row.

    Args:
        start: the model to start from.
        anchor: the priors of constants and weights.
        blocks: the data.
        rules: how the bound is evaluated.
        batch_size: rows per step from each block.
        optimiser: for everything but q(u).
        natural_gradients: False learns q(u) by the same optimiser, as the paper does.
        learn_inducing: whether inducing inputs move.
        max_iter: the most steps.
        tolerance: nats; the gain of a window that counts as none.
        jitter: where to begin.
        seed: of the order of the rows.
        progress: where to report.
    """
    feed = svi.Feed(blocks, batch_size, seed)
    least, most = PATIENCE
    window = min(feed.epoch * -(-least // feed.epoch), most)
    key = jax.random.key(seed)

    state = svi.init(start, learn_inducing, optimiser, natural_gradients)
    fit = Fit(start, svi.result(start, state)[1], -np.inf, jitter)
    bounds: list[float] = []
    looked, small, pace, first_gain, fraction = 0, 0, 1.0, np.nan, 0.0
    length = FIRST_CHUNK

    def steps(
        state: svi.State, feed: svi.Feed, n: int, pace: float
    ) -> tuple[svi.State, Array, Array]:
        data, rows = feed.take(n)
        return svi.chunk(
            *(state, start, data, rows, jnp.asarray(n), jnp.asarray(fit.jitter), rules),
            optimiser=optimiser,
            pace=jnp.asarray(pace),
            anchor=anchor,
            key=key,
        )

    try:
        while fit.iterations < max_iter:
            # A chunk ends with its window: what is found does not depend on how fast it goes.
            n = min(length, feed.longest, looked + window - len(bounds), max_iter - len(bounds))
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
            bounds += np.asarray(chunk_bounds)[:n].tolist()
            if fit.iterations > n:  # the first one may have compiled
                length = max(1, round(CHUNK_SECONDS * n / (time.perf_counter() - began)))
            if len(bounds) - looked >= window:
                fit.history.append(float(np.mean(bounds[looked:])))
                looked = len(bounds)
                if len(fit.history) > 1:
                    gain = fit.history[-1] - fit.history[-2]
                    first_gain = gain if np.isnan(first_gain) else first_gain
                    fraction = max(fraction, _towards(gain, first_gain, tolerance))
                    small = small + 1 if gain < tolerance else 0
                if small == SMALL_GAINS:
                    fit.converged = True
                    break
            progress.update(f"step {fit.iterations}", fraction, float(np.mean(bounds[-window:])))
    except KeyboardInterrupt:
        _interrupted(fit)
    if len(bounds) > looked:
        fit.history.append(float(np.mean(bounds[looked:])))
    fit.parameters, fit.q = svi.result(start, state)

    # The bound over an epoch, or over its first 200 batches: steps of size zero, compiled already.
    again, left, found = svi.Feed(feed.blocks, batch_size, seed), min(feed.epoch, 200), []
    while left:
        n = min(left, feed.longest)
        found.append(np.asarray(steps(state, again, n, 0.0)[1])[:n])
        left -= n
    fit.bound = float(np.mean(np.concatenate(found)))
    return fit
