"""Competing starts: each gets a few iterations, the better ones get more, and the best continues.

The bound has several local maxima: lengthscales may be short or long, and one part of a kernel may
do the work of another. A climb ends at the maximum near its start.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..kernels import Kernel
from .vem import Interrupted, State

__all__ = ["LENGTHSCALES", "best_of", "variants"]

LENGTHSCALES = (0.02, 0.07, 0.25, 0.9)  # to start from, for one input, in standardised units
SHORT, LONGER = 6, 15  # iterations of each start, and of the better ones
KEEP = 3  # one start in this many continues, but at least two
SAME = 0.01  # nats; starts that differ by less have reached the same point


def best_of(
    states: Sequence[State],
    climb: Callable[[State, int], State],
    worth: Callable[[State], float],
) -> State:
    """The state with the highest worth after some iterations.

    Args:
        states: where to start.
        climb: takes a state a given number of iterations further.
        worth: the criterion.

    Raises:
        Interrupted: if the user interrupts, with the best state so far.
    """
    runs = list(states)
    try:
        for n in (SHORT, LONGER):
            if len(runs) == 1:
                break
            for k, run in enumerate(runs):
                runs[k] = climb(run, n)
            runs = _different(sorted(runs, key=worth, reverse=True), worth)
            runs = runs[: max(2, len(states) // KEEP)]
    except KeyboardInterrupt as stop:
        reached = [*runs, stop.state] if isinstance(stop, Interrupted) else runs
        raise Interrupted(max(reached, key=worth)) from None
    return max(runs, key=worth)


def _different(states: Sequence[State], worth: Callable[[State], float]) -> list[State]:
    """The states with different worth, the best first."""
    kept: list[State] = []
    for state in states:
        if np.isfinite(worth(state)) and (not kept or worth(kept[-1]) - worth(state) > SAME):
            kept.append(state)
    return kept


def variants(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """Alternative starts: other lengthscales than given, and sums dominated by one part."""
    plain = [kernel.forgotten() for kernel in kernels]
    yield plain
    for q, kernel in enumerate(plain):
        for other in kernel.leaning():
            yield [*plain[:q], other, *plain[q + 1 :]]
