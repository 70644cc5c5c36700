"""The predictive distribution of one output at one input: p(y) = ∫ p(y | f) N(f; mean, C) df.

The covariance of f comes as a factor, C = F Fᵀ with F = W_d diag(√v_u): it has a column per latent.

Where a likelihood offers it in closed form (`mixture`, `predictive_moments`) that is used; else
densities come from quadrature centred on the integrand, moments and distribution functions from
fixed nodes, quantiles from inverting the mixed distribution function.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float

from .likelihoods import Likelihood
from .likelihoods.real import normal_log_density
from .quadrature import place, root, standard_nodes

__all__ = ["distribution_function", "log_density", "moments", "nodes", "quantile"]


def nodes(mean: Array, factor: Array) -> tuple[Array, Array]:
    """Values of f and their weights, standing for N(mean, factor factorᵀ).

    One or two parameter functions have a grid of their own; more of them follow from nodes for the
    latents behind them, whose number does not grow with that of the classes.
    """
    J, R = factor.shape
    if J <= 2:
        points, weights = standard_nodes(J, n={1: 64, 2: 20}[J])
        return place(points, mean, factor @ factor.T), weights
    points, weights = standard_nodes(R, n={1: 64, 2: 20, 3: 11}.get(R, 512))
    return mean + points @ factor.T, weights


def moments(likelihood: Likelihood, mean: Array, factor: Array) -> tuple[Array, Array]:
    """Mean and variance of y: E[E[y|f]] and E[var(y|f)] + var(E[y|f])."""
    closed = (
        likelihood.predictive_moments(mean, factor @ factor.T) if likelihood.is_default else None
    )
    if closed is not None:
        return closed
    f, weights = nodes(mean, factor)
    inner_mean, inner_variance = jax.vmap(likelihood.mean)(f), jax.vmap(likelihood.variance)(f)
    expected = weights @ inner_mean
    return expected, weights @ (inner_variance + (inner_mean - expected) ** 2)


def log_density(likelihood: Likelihood, y: Array, mean: Array, factor: Array) -> Array:
    """Log ∫ p(y | f) N(f; mean, factor factorᵀ) df."""
    cov = factor @ factor.T
    mixture = likelihood.mixture(mean, cov) if len(mean) <= 2 else None
    if mixture is not None:
        weights, centres, variances = mixture
        z, log_slope = _warped(likelihood, y)
        density = logsumexp(normal_log_density(z, centres, variances), b=weights) + log_slope
        if "event" not in likelihood.given:
            return density
        longer = logsumexp(log_ndtr((centres - z) / jnp.sqrt(variances)), b=weights)
        return jnp.where(jnp.asarray(likelihood.given["event"]) > 0, density, longer)
    if len(mean) <= 2:
        return _centred_quadrature(lambda f: likelihood.log_prob(y, f), mean, cov)
    f, weights = nodes(mean, factor)
    return logsumexp(jax.vmap(lambda f: likelihood.log_prob(y, f))(f), b=weights)


def _warped(likelihood: Likelihood, y: Array) -> tuple[Array, Array]:
    """y on the scale of the likelihood's mixture, and the log of that scale's slope."""
    if likelihood.warp is None:
        return y, jnp.zeros_like(y)
    return likelihood.warp.forward(y), likelihood.warp.log_slope(y)


def _centred_quadrature(log_p: Callable[[Array], Array], mean: Array, cov: Array) -> Array:
    """log ∫ p(f) N(f; mean, cov) df by Gauss–Hermite around the mode of the integrand, J ≤ 2.

    Nodes laid on N(mean, cov) would miss a likelihood much narrower than it (a large count).
    """
    C = root(cov)

    def psi(e: Float[Array, " J"]) -> Array:
        return log_p(mean + C @ e) - 0.5 * e @ e

    def axes(e: Array) -> tuple[Array, Array]:
        """Principal axes of the curvature −∇²ψ, and the standard deviation along each."""
        H = -jax.hessian(psi)(e)
        if len(mean) == 1:
            turn, values = jnp.ones((1, 1), mean.dtype), H[0]
        else:
            angle = 0.5 * jnp.arctan2(2.0 * H[0, 1], H[0, 0] - H[1, 1])
            c, s = jnp.cos(angle), jnp.sin(angle)
            turn = jnp.array([[c, -s], [s, c]])
            values = jnp.diagonal(turn.T @ H @ turn)
        return turn, 1.0 / jnp.sqrt(jnp.maximum(values, 1.0))  # the prior alone gives one

    def newton(_: int, e: Array) -> Array:
        turn, width = axes(e)
        move = turn @ (width**2 * (turn.T @ jax.grad(psi)(e)))
        return e + move / jnp.maximum(jnp.linalg.norm(move), 1.0)

    mode = jax.lax.fori_loop(0, 25, newton, jnp.zeros_like(mean))
    turn, width = axes(mode)
    x, weights = standard_nodes(len(mean), n={1: 32}.get(len(mean), 16))
    terms = jax.vmap(psi)(mode + (x * width) @ turn.T) + 0.5 * jnp.sum(x**2, axis=1)
    return jnp.sum(jnp.log(width)) + logsumexp(terms, b=weights)


def _even_nodes(*counts: int) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spaced nodes for standard normals: a steep step in f is met at a fine spacing."""
    lines = [np.linspace(-5.5, 5.5, count) for count in counts]
    points = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(counts))
    mass = np.exp(-0.5 * np.sum(points**2, axis=1))
    heavy = mass > 1e-7
    return points[heavy], mass[heavy] / mass[heavy].sum()


def distribution_function(likelihood: Likelihood, y: Array, mean: Array, factor: Array) -> Array:
    """P(Y ≤ y), f integrated out."""
    J, cov = len(mean), factor @ factor.T
    mixture = likelihood.mixture(mean, cov) if J <= 2 else None
    if mixture is not None:
        weights, centres, variances = mixture
        z = _warped(likelihood, jnp.clip(y, *likelihood.ends))[0]
        return weights @ ndtr((z - centres) / jnp.sqrt(variances))
    if J <= 2:
        points, weights = map(jnp.asarray, _even_nodes(*{1: (193,), 2: (45, 17)}[J]))
        f = place(points, mean, cov)
    else:
        f, weights = nodes(mean, factor)
    return weights @ jax.vmap(lambda f: likelihood.cdf(y, f))(f)


def quantile(
    likelihood: Likelihood, level: Array, mean: Array, factor: Array, guess: Array, width: Array
) -> Array:
    """The smallest attainable y with P(Y ≤ y) ≥ level, between brackets grown from a guess."""

    def above(y: Array) -> Array:
        return distribution_function(likelihood, y, mean, factor) - level

    if likelihood.discrete:
        whole = jnp.ceil(jnp.maximum(guess, 0.0)) + 1.0
        high = jax.lax.while_loop(
            lambda y: (above(y) < 0) & (y < 1e15), lambda y: 2.0 * y + 1.0, whole
        )
        low = jnp.full_like(high, -1.0)

        def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = jnp.floor(0.5 * (low + high))
            reached = above(middle) >= 0
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        return jax.lax.while_loop(lambda b: b[1] - b[0] > 1.0, halve, (low, high))[1]

    def grow(direction: float) -> tuple[Array, Array]:
        def unfinished(state: tuple[Array, Array, Array]) -> Array:
            return (direction * state[1] < 0) & jnp.isfinite(state[2])

        def further(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            y, _, step = state
            y = jnp.clip(y + direction * step, lowest, highest)
            stop = (y == lowest) if direction < 0 else (y == highest)
            return y, above(y), jnp.where(stop, jnp.inf, 2.0 * step)

        y, value, _ = jax.lax.while_loop(unfinished, further, (guess, above(guess), width))
        return y, value

    def narrow(state):
        """The Illinois method: false position, an end's value halved when it stays twice."""
        low, f_low, high, f_high, side, n = state
        point = (low * f_high - high * f_low) / (f_high - f_low)
        inside = (point > low) & (point < high)
        point = jnp.where(inside & (n % 4 < 3), point, 0.5 * (low + high))
        value = above(point)
        below = value < 0
        f_high = jnp.where(below & (side < 0), 0.5 * f_high, f_high)
        f_low = jnp.where(~below & (side > 0), 0.5 * f_low, f_low)
        return (
            jnp.where(below, point, low),
            jnp.where(below, value, f_low),
            jnp.where(below, high, point),
            jnp.where(below, f_high, value),
            jnp.where(below, -1, 1),
            n + 1,
        )

    def wide(state) -> Array:
        low, _, high, f_high, _, n = state
        precise = (high - low) <= 1e-7 * (jnp.abs(high) + jnp.abs(low) + width * 1e-3)
        return ~precise & (n < 80) & (f_high != 0) & ~at_lowest

    lowest, highest = likelihood.ends
    low, f_low = grow(-1.0)
    high, f_high = grow(1.0)
    at_lowest = f_low >= 0  # so much probability at the lowest value itself
    _, _, found, _, _, _ = jax.lax.while_loop(
        wide, narrow, (low, f_low, high, f_high, jnp.zeros((), int), 0)
    )
    return jnp.where(at_lowest, low, found)
