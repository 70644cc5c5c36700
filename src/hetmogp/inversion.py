"""Quantiles of many predictive distributions at once: the roots of P(Y ≤ y) − level.

SciPy brackets and finds the roots row by row (Chandrupatla's method): rows are dropped as soon as
their root is found, the number of iterations is bounded, and a search ends when floats no longer
change. This module transforms the problem so that the search is short. Real values are mapped to
the whole line according to their range (a logarithm for positive numbers, a logit between two ends)
and measured in standard deviations. Probabilities are mapped by the normal quantile. For a normal
or log-normal output the function is then a straight line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize.elementwise import bracket_root, find_root
from scipy.special import expit, ndtri

from .likelihoods import Likelihood

__all__ = ["quantiles"]

DOUBLINGS = 100  # the most iterations to find a bracket
TURNS = 200  # the most iterations of the search in it; bisection alone would take 64
LARGEST = 1e300  # the largest first guess
SLACK = 4 * np.finfo(float).eps  # the rounding error of a probability near one
LEAST, MOST = 1e-300, 1.0 - SLACK / 8  # the range of probabilities with a finite normal quantile

Rows = Int[np.ndarray, " n"]
Distribution = Callable[[Float[np.ndarray, " n"], Rows], Float[np.ndarray, " n"]]


def quantiles(
    likelihood: Likelihood,
    distribution: Distribution,
    levels: Float[np.ndarray, " k"],
    mean: Float[np.ndarray, " N"],
    std: Float[np.ndarray, " N"],
    precision: float = 1e-7,
) -> Float[np.ndarray, "k N"]:
    """The smallest attainable y with P(Y ≤ y) ≥ level at each row.

    Args:
        likelihood: says the range of values, whether they are whole numbers, and which of them are
            atoms (have positive probability).
        distribution: P(Y ≤ y) for one value at each of some rows.
        levels: the levels, strictly between 0 and 1.
        mean: where the search starts; need not be finite.
        std: the width of the first bracket; need not be finite.
        precision: the tolerance of the probability of a real value, as a normal quantile.
    """
    N, k = len(mean), len(levels)
    if N == 0:
        return np.empty((k, 0))
    rows, level = np.tile(np.arange(N), k), np.repeat(levels, N)
    asked = Asked(distribution, level, rows, mean, std)
    with np.errstate(all="ignore"):  # overflow to infinity is intended
        if likelihood.discrete:
            y = _whole(asked, likelihood.ends).reshape(k, N)
        else:
            y = _real(asked, likelihood.ends, likelihood.atoms, precision).reshape(k, N)
    upwards = np.argsort(levels)  # despite rounding, a higher level must not have a lower quantile
    y[upwards] = np.maximum.accumulate(y[upwards], axis=0)
    return y


class Asked(NamedTuple):
    """The quantiles to find, each for a level at a row, and the moments of every row.

    Attributes:
        distribution: P(Y ≤ y) for one value at each of some rows.
        level: the level of each quantile.
        rows: the row of each quantile.
        mean: the mean at each row.
        std: the standard deviation at each row.
    """

    distribution: Distribution
    level: Float[np.ndarray, " n"]
    rows: Rows
    mean: Float[np.ndarray, " N"]
    std: Float[np.ndarray, " N"]


def _whole(asked: Asked, ends: tuple[float, float]) -> np.ndarray:
    """Quantiles among whole numbers: ⌊b⌋ if F(⌊a⌋) < level ≤ F(⌊b⌋) and b − a < 1."""
    distribution, level, rows, mean, std = asked
    low, high = ends
    lowest = low - 1.0  # where no probability remains

    def above(y: np.ndarray, rows: Rows, level: np.ndarray) -> np.ndarray:
        by = distribution(np.floor(y), rows) - level + SLACK * (level > 0.5)
        return np.where(by == 0.0, SLACK, by)  # reached; zero would end the search too early

    centre = np.where(np.isfinite(mean), mean, 1.0)[rows]
    reach = np.where(np.isfinite(std), std, 0.0)[rows] + np.abs(centre) * 1e-3 + 1.0
    guess = np.clip(centre + ndtri(level) * reach, max(lowest, -LARGEST), min(high, LARGEST))
    left = np.clip(guess - reach, lowest, high - 1.0)
    right = np.clip(guess + reach, np.nextafter(left + 1.0, np.inf), high)
    _, end, sign = _root(above, left, right, (rows, level), (lowest, high), (0.5, 0.0))
    return np.where(sign == 0, np.floor(end), np.where(sign > 0, low, high))


def _real(
    asked: Asked, ends: tuple[float, float], atoms: tuple[float, ...], precision: float
) -> np.ndarray:
    """Quantiles among real numbers, or at an end of their range if that is an atom."""
    distribution, level, rows, mean, std = asked
    low, high = ends
    scale = _scale(low, high)
    centre, unit = scale.started(mean, std)
    every = np.arange(len(mean))

    def up_to(y: float) -> np.ndarray:
        return distribution(np.full(len(every), y), every)

    below = up_to(low) if low in atoms else np.zeros(len(every))
    within = (up_to(np.nextafter(high, low)) if high in atoms else 1.0) - below

    def value(x: np.ndarray, rows: Rows) -> np.ndarray:
        return scale.back(centre[rows] + unit[rows] * x)

    def above(x: np.ndarray, rows: Rows, level: np.ndarray) -> np.ndarray:
        p = (distribution(value(x, rows), rows) - below[rows]) / within[rows]
        p = np.clip(np.where(p > 0.5, p + SLACK, p), LEAST, MOST)
        return ndtri(p) - ndtri(level)

    share = (level - below[rows]) / within[rows]  # the level within the continuous part
    y = np.where(share <= 0, low, np.where(share > 1, high, np.nan))
    left = np.flatnonzero(np.isnan(y))
    if left.size:
        rows, share = rows[left], np.clip(share[left], LEAST, MOST)
        z, tolerance = ndtri(share), (1e-4 * precision, precision)
        x, _, sign = _root(above, z - 2.0, z + 2.0, (rows, share), (-np.inf, np.inf), tolerance)
        y[left] = np.where(sign == 0, value(x, rows), np.where(sign > 0, low, high))
    return y


def _root(
    f: Callable,
    left: np.ndarray,
    right: np.ndarray,
    arguments: tuple[np.ndarray, ...],
    limits: tuple[float, float],
    tolerance: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The root of an increasing function in each row; the first bracket need not contain it.

    Returns:
        The root, the upper end of the last bracket, and the sign of the function if it has no root
        (zero if it has one). All are NaN where the function is NaN.
    """
    lowest, highest = limits
    first = bracket_root(
        f, left, right, xmin=lowest, xmax=highest, args=arguments, maxiter=DOUBLINGS
    )
    known = [*zip(first.bracket, first.f_bracket, strict=True)]

    def remembered(x: np.ndarray, *arguments: np.ndarray) -> np.ndarray:
        for at, value in known:  # the ends of the bracket are evaluated again
            if x.shape == at.shape and np.array_equal(x, at):
                return value
        return f(x, *arguments)

    tolerances = {"xatol": tolerance[0], "fatol": tolerance[1]}
    last = find_root(
        remembered, first.bracket, args=arguments, maxiter=TURNS, tolerances=tolerances
    )
    (_, below), (_, above) = known
    sign = np.where(np.isnan(below) | np.isnan(above), np.nan, np.where(below > 0, 1.0, -1.0))
    sign[first.success] = 0.0
    middle = np.where(last.success, last.x, 0.5 * (last.bracket[0] + last.bracket[1]))
    return middle, last.bracket[1], sign


class Scale(NamedTuple):
    """A map from the values of an output to the whole line, and its inverse."""

    forward: Callable[[Any], Any]
    back: Callable[[Any], Any]
    spread: Callable[[Any, Any], Any]  # the standard deviation on the new scale

    def started(self, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A first guess and its width on this scale; any finite numbers work."""
        unit, centre = self.spread(mean, std), self.forward(mean)
        usual = np.isfinite(unit) & (unit > 0) & np.isfinite(centre)
        centre = np.where(np.isfinite(centre), centre, 0.0)
        return centre, np.where(usual, unit, 1.0 + np.abs(centre) * 1e-3)


def _log_spread(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The standard deviation of the logarithm, as if y were log-normal."""
    return np.sqrt(np.log1p((std / mean) ** 2))


def _scale(low: float, high: float) -> Scale:
    """The scale for values between two ends, each of which may be infinite."""
    if np.isfinite(low) and np.isfinite(high):
        length = high - low
        return Scale(
            lambda y: np.log((y - low) / (high - y)),
            lambda t: low + length * expit(t),
            lambda mean, std: std * length / ((mean - low) * (high - mean)),
        )
    if np.isfinite(low):
        return Scale(
            lambda y: np.log(y - low),
            lambda t: low + np.exp(np.minimum(t, 709.0)),
            lambda mean, std: _log_spread(mean - low, std),
        )
    if np.isfinite(high):
        return Scale(
            lambda y: -np.log(high - y),
            lambda t: high - np.exp(np.minimum(-t, 709.0)),
            lambda mean, std: _log_spread(high - mean, std),
        )
    return Scale(lambda y: y, lambda t: t, lambda mean, std: std)
