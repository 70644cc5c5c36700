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

PATIENCE = (100, 1000)  # least and most steps between two looks at the mini-batch bounds
FIRST_CHUNK = 20  # steps before the host looks for the first time
CHUNK_SECONDS = 0.3  # and between two looks later on
STEPS = 500  # between two checkpoints
SMALL_GAINS = 2  # windows in a row without much gain before a stochastic fit has converged
LAST_LOOK = 200  # batches over which the final bound is taken, at most


class Feed(Protocol):
    """Rows for steps, in an order that depends on the seed alone.

    Attributes:
        epoch: the steps in which every row is met once.
        taken: how many were taken, counting those left out at the beginning.
    """

    epoch: int
    taken: int

    @property
    def longest(self) -> int:
        """The most steps that `take` gives now."""

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...], int]:
        """Blocks and rows for n steps, and which is the first; always of the same shape."""

    def close(self) -> None:
        """End the threads that read ahead."""


def run_svi(
    start: Parameters,
    family: type[Blocks],
    feeds: Callable[[int], Feed],
    options: Options,
    limits: tuple[int, float],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """Stochastic inference to convergence.

    The mean of the mini-batch bounds over a window (whole epochs, within `PATIENCE`) is
    compared with the window before; the fit has converged when it gains less than the tolerance
    `SMALL_GAINS` times in a row.

    Args:
        start: the model to start from.
        family: of q(u).
        feeds: the data and their order, less so many steps at the beginning.
        options: of the fit.
        limits: the most steps, and the gain of a window, in nats, that counts as none.
        progress: where to report.
        checkpoints: where to keep the fit on its way.
    """
    # By NumPy, in which numbers have one type: what was compiled for one state is for all.
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
    fit.bound = run.final_bound(feeds(0), min(feed.epoch, LAST_LOOK))
    return fit


def climb(
    run: "Run",
    feed: Any,
    limits: tuple[int, float],
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> None:
    """Take chunks of steps until windows gain too little, or the user stops."""
    fit, (max_iter, tolerance) = run.fit, limits
    length, every = FIRST_CHUNK, (checkpoints and checkpoints.every) or STEPS
    least, most = PATIENCE
    window = min(feed.epoch * -(-least // feed.epoch), most)
    agreed = False  # to stop, in a group
    try:
        with distributed.interrupts() as interrupted:
            while fit.iterations < max_iter and not fit.converged:
                # A chunk ends with its window: what is found does not depend on how fast it goes.
                n = min(length, feed.longest, window - len(run.bounds), max_iter - fit.iterations)
                if checkpoints is not None:
                    n = min(n, every - fit.iterations % every)
                began = time.perf_counter()
                if not run.advance(feed, n):
                    continue
                if fit.iterations > n:  # the first one may have compiled
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
    """A fit on its way.

    Attributes:
        start: the model it started from.
        options: of the fit.
        fit: what was found so far.
        state: what the next step starts from.
        bounds: of the window so far.
        small: windows in a row that gained too little.
        pace: multiplies the step sizes; less than one once steps failed.
        taken: steps of the feed that a resumed fit leaves out.
        first_gain: of the first two windows.
        fraction: how far the fit has come.
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
        """Take n steps; if they failed, go back to the last good state, to be more careful."""
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
        """The state after n steps, their bounds, and whether all is finite."""
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
        # What is decided by these must be decided by all.
        return state, *distributed.from_first(lambda: (bounds, bool(finite)))

    def end_window(self, tolerance: float) -> None:
        """Compare a whole window with the one before."""
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
        """The bound over so many batches: steps of size zero, compiled already."""
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
        """Go on from the latest checkpoint, if there is any."""
        earlier = checkpoints.latest(self.state)
        if earlier is not None:
            self.state, notes = earlier
            fit, self.bounds = self.fit, notes["bounds"]
            fit.history, fit.jitter = notes["history"], notes["jitter"]
            fit.iterations, fit.converged = notes["iterations"], notes["converged"]
            self.small, self.pace, self.taken = notes["small"], notes["pace"], notes["taken"]
