"""The incomplete gamma and beta functions, at a cost that does not depend on their arguments.

JAX's iterate until the slowest of all elements has converged: thousands of turns where a shape is
large, for every element. Here each is one Gauss–Legendre sum over the nearer tail of its density,

    P(a, x) = 1/Γ(a) ∫ e^{a u − e^u} du,  u < log x,
    I_x(a, b) = 1/B(a, b) ∫ σ(u)^a σ(−u)^b du,  u < logit x.

On these scales the densities have one peak, and both functions keep their digits however close x
is to an end. Small shapes have long tails, so shapes are raised first, by closed forms; the nodes
of the sum are laid in asinh u, which is fine at the peak and coarse far out.

Student's t has one shape only, and needs no sum: its degrees of freedom are raised too, and from
there on Hill's expansion (1970) makes a normal quantile of a quantile, to ten digits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import digamma, log_ndtr
from jaxtyping import Array

from .special import log_gamma, log_rising

__all__ = ["log_student_tail", "lower_beta", "lower_gamma"]

DEPTH = 24.0  # nats below its peak at which a density counts as zero
RAISED = 6  # what is added to a shape
FAR = 1e5  # beyond this a logarithm is as good as infinite
NEAR = 3e-3  # of the peak, where a series keeps the digits that a difference would lose
NODES, WEIGHTS = (side[8:] for side in np.polynomial.legendre.leggauss(16))  # and their mirror


@jax.custom_jvp
def lower_gamma(a: Array, log_x: Array) -> Array:
    """P(a, x), the share of a gamma distribution of shape a > 0 that lies below x."""
    return _gamma(a, log_x)[0]


@jax.custom_jvp
def lower_beta(a: Array, b: Array, log_odds: Array) -> Array:
    """I_x(a, b), the share of a beta distribution below x, for x = σ(log_odds) and a, b > 0."""
    return _beta(a, b, log_odds)[0]


def log_student_tail(df: Array, log_z: Array) -> Array:
    """log P(T > z), T ~ t(df), z > 0; all digits, however far out z lies.

    With a = df/2, x = df/(df + z²) and t = −log x it is ½ I_x(a, ½). Raising a to A = a + k adds
    terms that are all positive, x^j √(1 − x) / (j B(j, ½)) for j = a, ..., A − 1, and the rest is
    the tail of t(2A) at the same x. There w² = (2A − ½) t is nearly the square of the normal
    quantile, and its expansion in 48 (2A − ½)² has two terms. All is in units of x^a.
    """
    a = 0.5 * df
    u = 2.0 * log_z - jnp.log(df)
    t, x = jax.nn.softplus(u), jax.nn.sigmoid(-u)
    log_first = log_rising(a, jnp.asarray(0.5, a.dtype)) - 0.5 * jnp.log(np.pi * a)
    term = jnp.exp(log_first + 0.5 * jax.nn.log_sigmoid(u))
    steps = jnp.zeros_like(term)
    for k in range(RAISED):
        steps += term
        term = term * x * ((a + 0.5 + k) / (a + 1.0 + k))
    n = df + (2 * RAISED - 0.5)
    w = jnp.sqrt(n * t)
    v, b = jnp.minimum(w, 1e4), 48.0 * n**2  # beyond, the rest is nothing beside the steps
    v2 = v**2
    second = v * (855.0 + v2 * (240.0 + v2 * (33.0 + 4.0 * v2))) / (b * (100.0 + b + 0.8 * v2**2))
    rest = a * t + log_ndtr(-(w + v * (v2 + 3.0) / b - 0.1 * second))
    return jnp.log(0.5 * steps + jnp.exp(rest)) - a * t


# Their slopes: along x the density. Along a shape, the score of the density is summed at the nodes
# that the function needs anyway; what is left are closed forms. What nobody asks for, the compiler
# leaves out.


def _gamma(a: Array, log_x: Array) -> tuple[Array, Array]:
    """P(a, x) and its slope along a."""
    b = a + RAISED
    reach = DEPTH / b
    wide = jnp.sqrt(2.0 * reach)
    log_b, t = jnp.log(b), jnp.clip(log_x, -FAR, FAR)
    mean = digamma(b) - log_b  # of log x, from the peak

    def at(u: Array) -> tuple[Array, Array]:
        return _gamma_height(b, u), u - mean

    u = t - log_b  # from the peak
    below, slope = _below(at, u, -(wide + reach), jnp.log1p(wide + reach), _gamma_log_area(b))
    steps, moved = jax.jvp(lambda a: _gamma_steps(a, t), (a,), (jnp.ones_like(a),))
    inside = log_x > -jnp.inf
    share = jnp.where(inside, jnp.clip(below + steps, 0.0, 1.0), 0.0)
    return share, jnp.where(inside & jnp.isfinite(moved), slope + moved, 0.0)


def _gamma_height(b: Array, u: Array) -> Array:
    near = u**2 * (-0.5 - u * (1.0 / 6.0 + u * (1.0 / 24.0 + u / 120.0)))
    return b * jnp.where(jnp.abs(u) < NEAR, near, u + 1.0 - jnp.exp(u))


def _gamma_log_area(b: Array) -> Array:
    return 0.5 * jnp.log(2.0 * jnp.pi / b) + _stirling_rest(b)


def _gamma_steps(a: Array, t: Array) -> Array:
    """P(a, x) − P(b, x) = Σ x^k e^−x / Γ(k + 1), k = a, ..., b − 1, for t = log x.

    Each term follows from the last.
    """
    b = a + RAISED
    u = jnp.minimum(t - jnp.log(b), 700.0)
    term = jnp.exp(_gamma_height(b, u) - _gamma_log_area(b) - RAISED * t)
    for k in range(1, RAISED):
        term *= a + k
    x, steps = jnp.exp(jnp.minimum(t, 700.0)), term
    for k in range(1, RAISED):
        term = term * x / (a + k)
        steps += term
    return steps


def _beta(a: Array, b: Array, log_odds: Array) -> tuple[Array, Array, Array]:
    """I_x(a, b) and its slopes along a and b."""
    A, B = a + RAISED, b + RAISED
    N, less = A + B, A < B
    wide = jnp.sqrt(2.0 * DEPTH * N / A / B)
    u = jnp.clip(log_odds - jnp.log(A) + jnp.log(B), -FAR, FAR)  # from the peak
    sign = jnp.where(less, 1.0, -1.0)
    p, q = jnp.minimum(A, B) / N, jnp.maximum(A, B) / N  # the smaller share keeps its digits
    mean = jnp.log(p) - digamma(p * N) + digamma(N)  # less those of the log of x or of 1 − x
    other = jnp.log(q) - digamma(q * N) + digamma(N)

    def at(u: Array) -> tuple[Array, Array, Array]:
        v = sign * u
        rest = _log1p(p * (jnp.exp(v) - 1.0))
        return N * (p * v - rest), v - rest + mean, other - rest

    ends = -(wide + DEPTH / A), wide + DEPTH / B
    below, first, second = _below(at, u, *ends, _beta_log_area(A, B))
    along = jnp.where(less, first, second), jnp.where(less, second, first)
    t = jnp.clip(log_odds, -FAR, FAR)
    one, zero = jnp.ones_like(a), jnp.zeros_like(a)
    steps, by_a = jax.jvp(lambda a, b: _beta_steps(a, b, t), (a, b), (one, zero))
    by_b = jax.jvp(lambda a, b: _beta_steps(a, b, t), (a, b), (zero, one))[1]
    inside = jnp.abs(log_odds) < jnp.inf
    share = jnp.clip(below + steps, 0.0, 1.0)
    share = jnp.where(inside, share, jnp.where(log_odds > 0, 1.0, 0.0))
    first, second = (
        jnp.where(inside & jnp.isfinite(moved), slope + moved, 0.0)
        for slope, moved in zip(along, (by_a, by_b), strict=True)
    )
    return share, first, second


def _beta_log_area(A: Array, B: Array) -> Array:
    rest = _stirling_rest(A) + _stirling_rest(B) - _stirling_rest(A + B)
    return 0.5 * jnp.log(2.0 * jnp.pi * (A + B) / A / B) + rest


def _beta_steps(a: Array, b: Array, t: Array) -> Array:
    """I(a, b) − I(A, B) for x = σ(t).

    I(a, b) − I(A, b) = Σ x^k (1 − x)^b / (k B(k, b)), k = a, ..., A − 1; I(A, b) − I(A, B) is minus
    the same with b and 1 − x for a and x. Each term follows from the one before.
    """
    A, B = a + RAISED, b + RAISED
    N = A + B
    one, other = jax.nn.softplus(-t), jax.nn.softplus(t)  # −log x and −log(1 − x)
    u = t - jnp.log(A) + jnp.log(B)
    sign = jnp.where(A < B, 1.0, -1.0)
    p, v = jnp.minimum(A, B) / N, sign * jnp.clip(u, -20.0, 20.0)
    near = N * (p * v - _log1p(p * (jnp.exp(v) - 1.0)))
    far = A * (jnp.log(N / A) - one) + B * (jnp.log(N / B) - other)
    log_density = jnp.where(jnp.abs(u) < 20.0, near, far) - _beta_log_area(A, B)
    first = jnp.exp(log_density + RAISED * (one + other))
    second = jnp.exp(log_density + RAISED * other)
    x, y = jax.nn.sigmoid(t), jax.nn.sigmoid(-t)
    up, down = jnp.zeros_like(x), jnp.zeros_like(x)
    for k in range(RAISED):
        first *= (a + k if k else 1.0) / (a + b + 2 * k) * ((b + k) / (a + b + 2 * k + 1))
        second *= (b + k if k else 1.0) / (A + b + k)
    for k in range(RAISED):
        up, first = up + first, first * x * (a + b + k) / (a + k + 1)
        down, second = down + second, second * y * (A + b + k) / (b + k + 1)
    return up - down


def _gamma_density(a: Array, log_x: Array) -> Array:
    """Of log x."""
    t = jnp.clip(log_x, -FAR, 700.0)
    return jnp.exp(a * t - jnp.exp(t) - log_gamma(a))


def _beta_density(a: Array, b: Array, log_odds: Array) -> Array:
    """Of the log odds."""
    t = jnp.clip(log_odds, -FAR, FAR)
    log_area = log_gamma(a) + log_gamma(b) - log_gamma(a + b)
    return jnp.exp(-a * jax.nn.softplus(-t) - b * jax.nn.softplus(t) - log_area)


def _combined(here: Array, slopes: Sequence[Array], tangents: Any) -> tuple[Array, Array]:
    """The value and its tangent, to which constants (such as the count itself) add nothing."""
    moved = [
        slope * tangent
        for slope, tangent in zip(slopes, tangents, strict=True)
        if not isinstance(tangent, SymbolicZero)
    ]
    return here, sum(moved, start=jnp.zeros_like(here))


def _gamma_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    here, slope = _gamma(*primals)
    return _combined(here, (slope, _gamma_density(*primals)), tangents)


def _beta_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    here, *slopes = _beta(*primals)
    return _combined(here, (*slopes, _beta_density(*primals)), tangents)


lower_gamma.defjvp(_gamma_tangent, symbolic_zeros=True)
lower_beta.defjvp(_beta_tangent, symbolic_zeros=True)


def _below(
    at: Callable[[Array], tuple[Array, ...]],
    u: Array,
    lowest: Array,
    highest: Array,
    log_area: Array,
) -> list[Array]:
    """The share of e^height that lies below u, by the side of the peak (at 0) on which u is.

    `at` gives the height at a node, and scores with a mean of zero. The sum of each score below u
    follows the share.
    """
    u = jnp.clip(u, lowest, highest)
    left = u < 0
    first = jnp.arcsinh(jnp.where(left, lowest, u))
    last = jnp.arcsinh(jnp.where(left, u, highest))
    middle, half = 0.5 * (first + last), 0.5 * (last - first)
    centre = jnp.exp(middle)
    back, totals = 1.0 / centre, None
    for node, weight in zip(NODES.tolist(), WEIGHTS.tolist(), strict=True):
        out = jnp.exp(half * node)
        home = 1.0 / out
        for up, down in ((centre * out, back * home), (centre * home, back * out)):
            height, *scores = at(0.5 * (up - down))
            mass = weight * (up + down) * jnp.exp(height)
            each = [mass, *(mass * score for score in scores)]
            totals = each if totals is None else [a + b for a, b in zip(totals, each, strict=True)]
    assert totals is not None
    share, *moments = (0.5 * half * jnp.exp(-log_area) * total for total in totals)
    return [jnp.where(left, share, 1.0 - share), *(jnp.where(left, m, -m) for m in moments)]


def _stirling_rest(x: Array) -> Array:
    """log Γ(x) less Stirling's formula, (x − ½) log x − x + ½ log 2π, for x ≥ RAISED."""
    square = 1.0 / x**2
    series = 1.0 / 360.0 - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0))
    return (1.0 / 12.0 - square * series) / x


def _log1p(z: Array) -> Array:
    """log(1 + z) to twelve digits; XLA's own takes several times as long."""
    small = z * (1.0 - z * (0.5 - z * (1.0 / 3.0 - z * (0.25 - z / 5.0))))
    return jnp.where(jnp.abs(z) < 3e-3, small, jnp.log(1.0 + z))
