"""scipy's L-BFGS with our own stopping rule, keeping the curvature that it met."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import OptimizeResult, minimize

__all__ = ["MANY", "Climbed", "maximise"]

LARGE = 1e10  # replaces values that are not finite: scipy would otherwise end at NaN silently
WINDOW = 10  # iterations over which a gain is measured: a single one may gain little
PATIENCE = 5  # trials of one step within which it must gain something
MANY = 500  # with more numbers than this the curvature is not kept: the matrix would be large


class Climbed(NamedTuple):
    """Where a climb ended.

    Attributes:
        z: the last point.
        still: whether the climb ended because nothing was left to gain.
        reach: the inverse curvature along the path; None if none was met.
    """

    z: Float[np.ndarray, " n"]
    still: bool
    reach: Float[np.ndarray, "n n"] | None


class _Point(NamedTuple):
    """A point of a climb in its own coordinates, with the value and the gradient there."""

    w: np.ndarray
    value: float
    slope: np.ndarray


class _NothingToGainError(Exception):
    """Several trials of one step gained almost nothing."""


def maximise(
    value_and_gradient: Callable[[np.ndarray], tuple[Array, Array]],
    start: Float[np.ndarray, " n"],
    iterations: int,
    tolerance: float = 0.0,
    reach: Float[np.ndarray, "n n"] | None = None,
    far: float = np.inf,
) -> Climbed:
    """Maximise a function by L-BFGS.

    Args:
        value_and_gradient: the function and its gradient, for a vector like `start`.
        start: where to begin.
        iterations: the most iterations.
        tolerance: the climb stops when `WINDOW` iterations together gain less than this.
        reach: the inverse curvature that an earlier climb found. The climb uses coordinates in
            which it is the identity, so the first step already benefits from the earlier climb.
        far: the most that any number may move.
    """
    start = np.asarray(start, float)
    root = None if reach is None else _root(reach)
    path: list[_Point] = []  # the end of each iteration
    tried: list[_Point] = []  # points tried since the last of them

    def back(w: np.ndarray) -> np.ndarray:
        return start + (w if root is None else root @ w)

    def negative(w: np.ndarray) -> tuple[float, np.ndarray]:
        if len(tried) >= PATIENCE and max(p.value for p in tried) < path[-1].value + tolerance:
            raise _NothingToGainError
        z = back(w)
        if np.abs(z - start).max(initial=0.0) > far:
            return LARGE, np.zeros_like(w)
        value, slope = (np.asarray(a, float) for a in value_and_gradient(z))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return LARGE, np.zeros_like(w)
        point = _Point(w.copy(), float(value), slope if root is None else slope @ root)
        (tried if path else path).append(point)
        return -point.value, -point.slope

    def watch(intermediate_result: OptimizeResult) -> None:
        path.extend(p for p in tried if np.array_equal(p.w, intermediate_result.x))
        tried.clear()
        if len(path) > WINDOW + 1 and path[-1].value - path[-1 - WINDOW].value < tolerance:
            raise StopIteration

    options = {"maxiter": iterations, "ftol": 0.0, "gtol": 1e-6, "maxcor": 20}
    try:
        best = minimize(
            *(negative, np.zeros_like(start)),
            **{"jac": True, "method": "L-BFGS-B", "callback": watch, "options": options},
        )
        w, still = best.x, best.status in (0, 99)  # a flat gradient, or the rule above
    except _NothingToGainError:
        w, still = max(path + tried, key=lambda p: p.value).w, True
    met = _inverse_curvature(path) if len(start) <= MANY else None
    if met is None or root is None:
        return Climbed(back(w), still, reach if met is None else met)
    return Climbed(back(w), still, root @ met @ root.T)


def _inverse_curvature(path: Sequence[_Point]) -> Float[np.ndarray, "n n"] | None:
    """The BFGS matrix of a path; None if it met no curvature."""
    pairs = [(b.w - a.w, a.slope - b.slope) for a, b in pairwise(path)]
    pairs = [(s, y) for s, y in pairs if s @ y > 1e-10 * (y @ y)]
    if not pairs:
        return None
    s, y = pairs[-1]
    H = (s @ y) / (y @ y) * np.eye(len(s))
    for s, y in pairs:
        along, Hy = s @ y, H @ y
        cross = np.outer(Hy, s) / along
        H += (1.0 + y @ Hy / along) * np.outer(s, s) / along - cross - cross.T
    return H


def _root(reach: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"] | None:
    """A triangular L with L Lᵀ = reach, so that a number without a gradient keeps every bit.

    None if rounding errors leave no such L.
    """
    try:
        return np.linalg.cholesky(reach + 1e-12 * np.diag(np.diag(reach)))
    except np.linalg.LinAlgError:
        return None
