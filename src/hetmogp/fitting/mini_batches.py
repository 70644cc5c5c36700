"""The loop around stochastic inference: chunks, windows, convergence, interruption, checkpoints."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Array, Int

from .. import distributed
from ..batch import Block
from ..parameters import Parameters
from ..variational import Blocks
from . import svi
from .checkpoint import Checkpoints
from .fit import LARGEST_JITTER, Fit, NotPositiveDefiniteError, towards
from .mesh import everywhere, mesh
from .options import Options
from .progress import Progress

__all__ = ["LAST_LOOK", "Feed", "Run", "climb", "run_svi"]

PATIENCE = (100, 1000)  # the fewest and the most steps of a window of mini-batch bounds
FIRST_CHUNK = 20  # steps of the first chunk, after which control returns to the host
CHUNK_SECONDS = 0.3  # the duration of later chunks
STEPS = 500  # between two checkpoints
SMALL_GAINS = 2  # windows in a row without much gain before a stochastic fit has converged
LAST_LOOK = 200  # the most batches over which the final bound is averaged


class Feed(Protocol):
    """Supplies the rows of each step, in an order that depends only on the seed.

    Attributes:
        epoch: the number of steps in which every row is used once.
        taken: the number of steps taken, including those skipped at the beginning.
    """

    epoch: int
    taken: int

    @property
    def longest(self) -> int:
        """The most steps that `take` can return now."""

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...], int]:
        """Blocks and rows for n steps, and the first step; shapes are always the same."""

    def close(self) -> None:
        """Stop the threads that read ahead."""


def run_svi(
    start: Parameters,
    family: type[Blocks],
    feeds: Callable[[int], Feed],
    options: Options,
    limits: tuple[int, float],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Run stochastic inference to convergence.

    The mean of the mini-batch bounds over a window (whole epochs, within `PATIENCE`) is compared
    with that of the window before. The fit has converged when it gains less than the tolerance
    `SMALL_GAINS` times in a row.

    Args:
        start: the initial model.
        family: the family of q(u).
        feeds: makes a feed of the data that skips a given number of steps.
        options: the options of the fit.
        limits: the most steps, and the gain of a window, in nats, below which the fit has
            converged.
        progress: where to report progress.
        checkpoints: where to save the fit while it runs.
    """
    # NumPy numbers have one type, so the program compiled for one state serves all states.
    natural = options.natural_gradients
    begin = svi.init(start, family, options.learn_inducing, options.optimizer, natural)
    state = jax.tree.map(np.asarray, begin)
    fit = Fit(start, svi.result(start, state)[1], -np.inf, options.jitter)
    run = Run(start, options, fit, state)
    if checkpoints is not None:
        run.resume(checkpoints)
    run.state, run.start = everywhere((run.state, start))
    feed = feeds(run.taken)
    try:
        climb(run, feed, limits, progress, checkpoints)
    finally:
        feed.close()
    if run.bounds:
        fit.history.append(float(np.mean(run.bounds)))
    fit.parameters, fit.q = svi.result(start, jax.tree.map(np.asarray, run.state))
    try:
        fit.bound = run.final_bound(feeds(0), min(feed.epoch, LAST_LOOK))
    except KeyboardInterrupt:
        if distributed.count() > 1 or not fit.history:
            raise
        fit.bound = fit.history[-1]
        fit.interrupt()
    return fit


def climb(
    run: "Run",
    feed: Any,
    limits: tuple[int, float],
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> None:
    """Take chunks of steps until windows gain too little or the user interrupts."""
    fit, (max_iter, tolerance) = run.fit, limits
    length, every = FIRST_CHUNK, (checkpoints and checkpoints.every) or STEPS
    least, most = PATIENCE
    window = min(feed.epoch * -(-least // feed.epoch), most)
    agreed = False  # whether all processes of a group agreed to stop
    try:
        with distributed.interrupts() as interrupted:
            while fit.iterations < max_iter and not fit.converged:
                # A chunk ends with its window, so the result does not depend on the speed.
                n = min(length, feed.longest, window - len(run.bounds), max_iter - fit.iterations)
                if checkpoints is not None:
                    n = min(n, every - fit.iterations % every)
                began = time.perf_counter()
                if not run.advance(feed, n):
                    continue
                if fit.iterations > n:  # the first chunk may include compilation
                    length = max(1, round(CHUNK_SECONDS * n / (time.perf_counter() - began)))
                if len(run.bounds) == window:
                    run.end_window(tolerance)
                if checkpoints is not None and (fit.converged or fit.iterations % every == 0):
                    run.keep(checkpoints, feed.taken)
                now = float(np.mean(run.bounds)) if run.bounds else fit.history[-1]
                progress.update(f"step {fit.iterations}", run.fraction, now)
                said = distributed.gathered((length, interrupted()))
                length = said[0][0]
                agreed = any(stop for _, stop in said)
                if agreed:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        if distributed.count() > 1 and not agreed:
            raise
        fit.interrupt()


@dataclass
class Run:
    """A fit in progress.

    Attributes:
        start: the initial model.
        options: the options of the fit.
        fit: the result so far.
        state: the state from which the next step starts.
        bounds: the mini-batch bounds of the current window.
        small: the number of windows in a row that gained too little.
        pace: multiplies the step sizes; less than one after steps have failed.
        taken: the number of steps of the feed that a resumed fit skips.
        first_gain: the gain from the first window to the second.
        fraction: the progress, from 0 to 1.
    """

    start: Parameters
    options: Options
    fit: Fit
    state: Any
    bounds: list[float] = field(default_factory=list)
    small: int = 0
    pace: float = 1.0
    taken: int = 0
    first_gain: float = np.nan
    fraction: float = 0.0

    def advance(self, feed: Any, n: int) -> bool:
        """Take n steps; if they fail, return to the last good state and reduce the step sizes."""
        state, bounds, finite = self._steps(feed, n, self.pace)
        if not finite:
            self.fit.jitter *= 10.0
            self.pace *= 0.5
            if self.fit.jitter > LARGEST_JITTER:
                raise NotPositiveDefiniteError
            return False
        self.state = state
        self.fit.iterations += n
        self.bounds += bounds
        return True

    def _steps(self, feed: Any, n: int, pace: float) -> tuple[Any, list[float], bool]:
        """The state after n steps, their bounds, and whether all numbers are finite."""
        data, rows, first = distributed.together(lambda: feed.take(n))
        numbers: Any = map(np.asarray, (first, n, self.fit.jitter, pace, self.options.seed % 2**31))
        with distributed.in_touch():
            state, every_bound, finite = svi.chunk(
                *(self.state, self.start, data, rows),
                everywhere(svi.Numbers(*numbers)),
                self.options.rules,
                optimiser=self.options.optimizer,
                devices=mesh(),
            )
            bounds = np.asarray(every_bound)[first : first + n].tolist()
        # All processes must make the same decision.
        return state, *distributed.from_first(lambda: (bounds, bool(finite)))

    def end_window(self, tolerance: float) -> None:
        """Compare a complete window with the one before."""
        fit = self.fit
        fit.history.append(float(np.mean(self.bounds)))
        self.bounds.clear()
        if len(fit.history) > 1:
            gain = fit.history[-1] - fit.history[-2]
            self.first_gain = gain if np.isnan(self.first_gain) else self.first_gain
            self.fraction = max(self.fraction, towards(gain, self.first_gain, tolerance))
            self.small = self.small + 1 if gain < tolerance else 0
        fit.converged = self.small == SMALL_GAINS

    def final_bound(self, feed: Any, left: int) -> float:
        """The mean bound over `left` batches: steps of size zero, which are already compiled."""
        bounds: list[float] = []
        try:
            with distributed.interrupts():
                while left:
                    n = min(left, feed.longest)
                    bounds += self._steps(feed, n, 0.0)[1]
                    left -= n
        finally:
            feed.close()
        return float(np.mean(bounds))

    def keep(self, checkpoints: Checkpoints, taken: int) -> None:
        """Write a checkpoint."""
        fit = self.fit
        notes = {
            **{"history": fit.history, "jitter": fit.jitter, "bounds": self.bounds},
            **{"iterations": fit.iterations, "converged": fit.converged},
            **{"small": self.small, "pace": self.pace, "taken": taken},
        }
        checkpoints.save(fit.iterations, self.state, notes)

    def resume(self, checkpoints: Checkpoints) -> None:
        """Continue from the latest checkpoint, if there is one."""
        earlier = checkpoints.latest(self.state)
        if earlier is not None:
            self.state, notes = earlier
            fit, self.bounds = self.fit, notes["bounds"]
            fit.history, fit.jitter = notes["history"], notes["jitter"]
            fit.iterations, fit.converged = notes["iterations"], notes["converged"]
            self.small, self.pace, self.taken = notes["small"], notes["pace"], notes["taken"]
