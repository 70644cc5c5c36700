"""Values that are known in part: beyond a limit, between two, or rounded.

One mechanism for every likelihood of numbers that has a distribution function. A value known in
part contributes the probability of an interval, P(a < Y ≤ b); an exact value contributes its
density. Predictions are of the value itself, not of what would be seen of it.

- `lower=0.2`, a number: a value at or below it is only known to be at most 0.2 (a detection limit).
  `upper=50`: a value at or above it is only known to be at least 50. Both: Tobit's model.
- `lower="from"`, `upper="to"`, columns: each row's value is known to lie between the two. If one is
  missing, that end is open. If both are missing, or both are equal, the value is exact. Limits that
  allow the whole range, such as 0 and none for a positive number, count as missing.
- `event="seen"`, of those that take one: where it is 0, the value is only known to be larger than
  y, whatever the limits say.
- `step=0.1`: values were rounded to a multiple of it, so y stands for y − 0.05 to y + 0.05. An
  amount of a `Hurdle` is never rounded to zero, so there 0.1 stands for 0 to 0.15. An end with a
  probability of its own, as of `ZeroOneInflatedBeta`, belongs to the values rounded to it.
"""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logit, logsumexp
from jaxtyping import Array

from ..quadrature import constant
from .special import log_complement

__all__ = ["LIMITS", "Argument", "Known", "Limits", "known", "log_between", "read"]

SMALL = 1e-6  # a probability below this loses its digits in a distribution function
SAFE = 0.5  # stands in for an end that is not used
NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)


class Argument(NamedTuple):
    """A number that comes with each observation, in a column of its own; one where not given."""

    support: str  # what it may be, in words
    valid: Callable[[np.ndarray], np.ndarray]
    constant: bool = False  # whether one number for all observations makes sense
    default: float = 1.0  # where not given; NaN for what may be missing
    partly: bool = False  # whether it says how much of a value is known


class Limits(TypedDict, total=False):
    """What every likelihood of numbers takes besides its own options; see the module."""

    lower: float | str | None
    upper: float | str | None
    step: float | None


_END = Argument("a number, or nothing", np.isfinite, default=np.nan, partly=True)
LIMITS: Mapping[str, Argument] = {"lower": _END, "upper": _END}


class Known(NamedTuple):
    """What is known of values: which are exact; of the others, that a < Y ≤ b."""

    exact: Any
    a: Any
    b: Any


def read(likelihood: Any, values: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """Take the limits that are numbers out of a constructor's options, and check them."""
    kind = likelihood.kind
    given = {name: values[name] for name in Limits.__annotations__ if values.get(name) is not None}
    if given and likelihood.outcome not in ("real", "count"):
        raise ValueError(f"{kind} takes no {next(iter(given))}: its values have no limits")
    if given and not likelihood.has_cdf:
        raise ValueError(
            f"{kind} has no cdf(y, f), which {next(iter(given))} needs: the probability of what is "
            "beyond a limit comes from it"
        )
    if not given:
        return ()
    numbers: dict[str, float] = {}
    low, high = likelihood.ends
    for name, value in given.items():
        if name != "step" and isinstance(value, str):
            continue
        column = "" if name == "step" else " or the name of a column"
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ValueError(f"{kind}: {name} must be a number{column}, not {value!r}")
        numbers[name] = float(values.pop(name))
        inside = low <= value < high if likelihood.discrete else low < value < high
        if name != "step" and not inside:
            raise ValueError(f"{kind}: {name}={value:g} must lie between {low:g} and {high:g}")
    if numbers.get("step", 1.0) <= 0 or ("step" in numbers and likelihood.discrete):
        why = "counts are whole already" if likelihood.discrete else "it is the width of rounding"
        raise ValueError(f"{kind}: step={numbers['step']:g} is not possible: {why}")
    if "step" in numbers and any(isinstance(value, str) for value in given.values()):
        raise ValueError(f"{kind}: step cannot be combined with columns of limits")
    if numbers.get("lower", -np.inf) >= numbers.get("upper", np.inf):
        raise ValueError(
            f"{kind}: lower={numbers['lower']:g} is not below upper={numbers['upper']:g}"
        )
    return tuple(numbers.items())


# -- what is known of a value ----------------------------------------------------------------------


def known(likelihood: Any, y: Any, xp: Any = jnp) -> Known:
    """The interval that each value stands for, in JAX or NumPy (`xp`)."""
    numbers, columns = dict(likelihood.limits), dict(likelihood.columns)
    whole = 1.0 if likelihood.discrete else 0.0  # P(Y ≥ k) is P(Y > k − 1)
    step = numbers.get("step", 0.0)
    a, b = y - 0.5 * step, y + 0.5 * step
    if step and likelihood.amount:  # none is rounded to zero
        a = xp.where(y < 1.25 * step, -xp.inf, a)
    exact = xp.full(xp.shape(y), not step)
    if "lower" in numbers:
        beyond = y <= numbers["lower"]
        a, b = xp.where(beyond, -xp.inf, a), xp.where(beyond, _edge(numbers, "lower"), b)
        exact = exact & ~beyond
    if "upper" in numbers:
        beyond = y >= numbers["upper"]
        a = xp.where(beyond, _edge(numbers, "upper") - whole, a)
        b = xp.where(beyond, xp.inf, b)
        exact = exact & ~beyond
    if columns.keys() & LIMITS.keys():
        low, high = _stated(likelihood, xp)
        stated = ~((xp.isnan(low) & xp.isnan(high)) | (low == high))
        a = xp.where(stated, xp.where(xp.isnan(low), -xp.inf, low - whole), a)
        b = xp.where(stated, xp.where(xp.isnan(high), xp.inf, high), b)
        exact = exact & ~stated
    if likelihood.censoring in columns:  # without rounding, the density knows of it
        longer = likelihood.censored(likelihood.given)
        a, b = xp.where(longer, y, a), xp.where(longer, xp.inf if step else y, b)
        exact = xp.where(longer, not step, exact)
    least, most = likelihood.ends
    a = xp.where(a < least if likelihood.discrete else a <= least, -xp.inf, a)
    if likelihood.discrete and likelihood.amount:  # which is no zero
        a = xp.maximum(a, 0.0)
    return Known(exact, a, xp.where(b >= most, xp.inf, b))


def _stated(likelihood: Any, xp: Any) -> tuple[Any, Any]:
    """The limits from columns, NaN where there are none; the whole range says nothing."""
    low, high = (xp.asarray(likelihood.given.get(name, xp.nan)) for name in LIMITS)
    least, most = likelihood.ends
    whole = (xp.isnan(low) | (low <= least)) & (xp.isnan(high) | (high >= most))
    return xp.where(whole, xp.nan, low), xp.where(whole, xp.nan, high)


def _edge(numbers: Mapping[str, float], name: str) -> float:
    """Where values beyond a limit begin; with rounding, halfway between two multiples."""
    limit, step = numbers[name], numbers.get("step")
    if step is None:
        return limit
    units, slack = limit / step, 1e-9
    if name == "lower":
        return float(step * (np.floor(units + slack) + 0.5))
    return float(step * (np.ceil(units - slack) - 0.5))


def noted(likelihood: Any, y: np.ndarray) -> np.ndarray:
    """Values as a fit uses them: at the limit if beyond one, in the middle if between two.

    A missing value whose interval is stated counts as observed. A censored one stays, or is above
    the lower end.
    """
    numbers, columns = dict(likelihood.limits), dict(likelihood.columns)
    larger, seen = likelihood.censored(likelihood.given), y
    if "lower" in numbers or "upper" in numbers:
        y = np.clip(y, numbers.get("lower", -np.inf), numbers.get("upper", np.inf))
    if columns.keys() & LIMITS.keys():
        low, high = (np.broadcast_to(end, y.shape) for end in _stated(likelihood, np))
        least, most = likelihood.ends
        middle = 0.5 * (np.maximum(low, least) + np.minimum(high, most))
        middle = np.floor(middle) if likelihood.discrete else middle
        middle = np.where(np.isnan(low), high, np.where(np.isnan(high), low, middle))
        y = np.where(np.isnan(middle), y, middle)
        seen = np.where(np.isnan(seen), low, seen)
    return np.where(larger, seen, y)


def typical(likelihood: Any, y: np.ndarray) -> np.ndarray:
    """The middle of what a rounded value stands for; atoms and values not rounded stay."""
    step = dict(likelihood.limits).get("step")
    if step is None:
        return y
    low, high = likelihood.ends
    middle = 0.5 * (np.maximum(y - 0.5 * step, low) + np.minimum(y + 0.5 * step, high))
    return np.where(np.isin(y, likelihood.atoms), y, middle)


def one_sided(likelihood: Any, y: np.ndarray) -> str | None:
    """A warning, in words, if all values are bounded on one side only, and on the same one."""
    exact, a, b = likelihood.known(y, np)
    if not likelihood.limited or np.any(exact | (np.isfinite(a) & np.isfinite(b))):
        return None
    if np.any(np.isfinite(a)) and np.any(np.isfinite(b)):
        return None
    side = "lower" if np.any(np.isfinite(a)) else "upper"
    return f"all of its values are only {side} limits; predictions are a guess"


# -- its probability -------------------------------------------------------------------------------


def log_observed(likelihood: Any, y: Array, f: Array) -> Array:
    """Log of the density of an exact value, or of the probability of an interval."""
    seen = known(likelihood, y)
    partly = log_between(likelihood, seen, f)
    if "step" in dict(likelihood.limits):
        return partly
    return jnp.where(seen.exact, likelihood.log_prob(y, f), partly)


def log_between(likelihood: Any, seen: Known, f: Array) -> Array:
    """Log P(a < Y ≤ b | f); anything finite where the value is exact.

    Only the kinds of interval that can occur are computed.
    """
    exact, a, b = seen
    numbers, columns = dict(likelihood.limits), dict(likelihood.columns)
    left = "lower" in numbers or "upper" in columns
    right = "upper" in numbers or "lower" in columns
    open_left, open_right = jnp.isinf(a), jnp.isinf(b)
    low = jnp.where(exact | open_left, SAFE, a)
    high = jnp.where(exact | open_right, SAFE, b)
    result = jnp.zeros(())
    if "step" in numbers:
        return _rounded(likelihood, seen, f, left or right or likelihood.censoring in columns)
    if (left and right and columns) or (left and likelihood.discrete and likelihood.amount):
        both = ~(exact | open_left | open_right)
        ends = jnp.where(both, low, SAFE), jnp.where(both, high, SAFE + SAFE / 2)
        result = likelihood.log_interval(*ends, f)
    if right:
        result = jnp.where(open_right, likelihood.log_survival(low, f), result)
    if left:
        result = jnp.where(open_left, likelihood.log_cdf(high, f), result)
    return jnp.where(open_left & open_right, 0.0, result)


def _rounded(likelihood: Any, seen: Known, f: Array, limited: bool) -> Array:
    """The same for rounded values, some of which may also lie beyond a limit."""
    _, a, b = seen
    least, most = likelihood.ends
    low, high = jnp.maximum(a, least), jnp.minimum(b, most)
    step = dict(likelihood.limits)["step"]
    cell = high - low < 1.75 * step
    own = jnp.where(cell, low, SAFE), jnp.where(cell, high, SAFE + 0.5 * step)
    within = likelihood.log_cell(*own, f)
    for atom, here in ((least, jnp.isinf(a)), (most, jnp.isinf(b))):
        if atom in likelihood.atoms:  # which has a probability besides the density
            more = jnp.logaddexp(within, likelihood.log_density(jnp.asarray(atom), f))
            within = jnp.where(here, more, within)
    if not limited:
        return within
    ends = jnp.where(jnp.isinf(a), SAFE, a), jnp.where(jnp.isinf(b), SAFE, b)
    below, above = likelihood.log_cdf(ends[1], f), likelihood.log_survival(ends[0], f)
    beyond = jnp.where(jnp.isinf(a), jnp.where(jnp.isinf(b), 0.0, below), above)
    return jnp.where(cell, within, beyond)


def log_difference(log_more: Array, log_less: Array) -> Array:
    """Log of e^log_more − e^log_less."""
    return log_more + log_complement(log_less - log_more)


def log_lower(likelihood: Any, y: Array, f: Array) -> Array:
    """Log P(Y ≤ y), from the distribution function, and far out from the density."""
    return _tail(likelihood, likelihood.cdf(y, f), y, f, -1.0)


def log_upper(likelihood: Any, y: Array, f: Array) -> Array:
    """Log P(Y > y)."""
    return _tail(likelihood, 1.0 - likelihood.cdf(y, f), y, f, 1.0)


def _tail(likelihood: Any, p: Array, y: Array, f: Array, side: float) -> Array:
    large = p > SMALL
    far = (_far_count if likelihood.discrete else _far)(likelihood, y, f, side)
    return jnp.where(large, jnp.log(jnp.where(large, p, 1.0)), far)


def _far(likelihood: Any, y: Array, f: Array, side: float) -> Array:
    """Log of a small tail: e^ψ · 2/(s + √(s² + 4c)), s = |ψ'|, c = −ψ'', ψ the log density.

    Exact for a tail that is exponential on the scale of the support (log y of a positive number,
    logit y between 0 and 1), and within a thousandth for a normal one from five deviations on.
    """
    low, high = likelihood.ends
    bounded = np.isfinite(low) and np.isfinite(high)

    def psi(u: Array) -> Array:
        if bounded:
            p = jax.nn.sigmoid(u)
            slope = jnp.log(high - low) - jax.nn.softplus(u) - jax.nn.softplus(-u)
            return likelihood.log_density(low + (high - low) * p, f) + slope
        if np.isfinite(low):
            return likelihood.log_density(low + jnp.exp(u), f) + u
        return likelihood.log_density(u, f)

    if bounded:
        u = logit((y - low) / (high - low))
    else:
        u = jnp.log(y - low) if np.isfinite(low) else jnp.asarray(y, f.dtype)
    slope = jnp.maximum(-side * jax.grad(psi)(u), 1e-6)
    curve = jnp.maximum(-jax.grad(jax.grad(psi))(u), 0.0)
    return psi(u) + np.log(2.0) - jnp.log(slope + jnp.sqrt(slope**2 + 4.0 * curve))


def _far_count(likelihood: Any, y: Array, f: Array, side: float) -> Array:
    """The same of a count: its nearest value, and the others as a geometric series."""
    k = jnp.floor(y) + (1.0 if side > 0 else 0.0)
    there = (side > 0) | (k > 0)  # whether there is a value beyond
    first = likelihood.log_density(k, f)
    second = likelihood.log_density(jnp.where(there, k + side, k), f)
    ratio = jnp.exp(jnp.minimum(second - first, -1e-3))
    return first - jnp.where(there, jnp.log1p(-ratio), 0.0)


def log_interval(likelihood: Any, a: Array, b: Array, f: Array) -> Array:
    """Log P(a < Y ≤ b); where it is small, from the density inside."""
    p = likelihood.cdf(b, f) - likelihood.cdf(a, f)
    large = p > SMALL
    if likelihood.discrete:  # in a tail the largest is at an end
        ends = jnp.stack([jnp.floor(a) + 1.0, jnp.floor(b)])
        weight = jnp.array([1.0, 0.0]) + jnp.array([0.0, 1.0]) * (ends[1] > ends[0])
        density = jax.vmap(lambda k: likelihood.log_density(k, f))(ends)
        small = logsumexp(density, b=weight)
    else:
        small = log_cell(likelihood, a, b, f)
    return jnp.where(large, jnp.log(jnp.where(large, p, 1.0)), small)


def log_cell(likelihood: Any, a: Array, b: Array, f: Array) -> Array:
    """Log P(a < Y ≤ b) from the density at a few nodes.

    Towards an end of the range, where a density may be infinite, the nodes are closer together.
    """
    low, high = likelihood.ends
    x, w = constant(0.5 + 0.5 * NODES), constant(0.5 * WEIGHTS)
    share, weight = x, w
    if np.isfinite(low):
        share, weight = (jnp.where(a <= low, *pair) for pair in ((x**4, share), (4 * x**3 * w, w)))
    if np.isfinite(high):
        share = jnp.where(b >= high, 1.0 - x**4, share)
        weight = jnp.where(b >= high, 4 * x**3 * w, weight)
    y = a + (b - a) * share
    density = jax.vmap(lambda y: likelihood.log_density(y, f))(y)
    return logsumexp(density, b=weight) + jnp.log(b - a)
