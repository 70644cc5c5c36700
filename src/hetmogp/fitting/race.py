"""Starts compete: each is given a few iterations, the better ones more, and the best goes on.

The bound has several hills where lengthscales may be short or long, and where one part of a kernel
can do the work of another. A climb ends on the hill it starts on.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..kernels import Kernel
from .vem import Interrupted, State

__all__ = ["LENGTHSCALES", "best_of", "variants"]

LENGTHSCALES = (0.02, 0.07, 0.25, 0.9)  # to start from, for one input, in standardised units
SHORT, LONGER = 6, 15  # iterations of each start, and of the better ones
KEEP = 3  # the share of starts that are the better ones: one in so many, and two at least
SAME = 0.01  # nats: starts that differ by less have come to the same place


def best_of(
    states: Sequence[State],
    climb: Callable[[State, int], State],
    worth: Callable[[State], float],
) -> State:
    """The state that is worth most after some iterations.

    Args:
        states: where to start.
        climb: takes a state so many iterations on.
        worth: what is compared.

    Raises:
        Interrupted: with the best so far, where the user stops it.
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
    """States that have come to different places, as their worth tells; the best come first."""
    kept: list[State] = []
    for state in states:
        if np.isfinite(worth(state)) and (not kept or worth(kept[-1]) - worth(state) > SAME):
            kept.append(state)
    return kept


def variants(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """Where else learning may start: lengthscales not as given, sums that lean to one part."""
    plain = [kernel.forgotten() for kernel in kernels]
    yield plain
    for q, kernel in enumerate(plain):
        for other in kernel.leaning():
            yield [*plain[:q], other, *plain[q + 1 :]]
