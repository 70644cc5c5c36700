"""The predictive distribution of one output at one input: p(y) = ∫ p(y | f) N(f; mean, C) df.

The covariance of f is given by a factor, C = F Fᵀ with F = W_d diag(√v_u), a column per latent.

Closed forms of the likelihood (`mixture`, `predictive_moments`) are used if there are any.
Otherwise densities come from quadrature centred on the integrand, and moments and distribution
functions from fixed nodes. `inversion` finds quantiles from the distribution function.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, log_ndtr, logsumexp
from jaxtyping import Array, Float

from .likelihoods import Likelihood
from .likelihoods.real import normal_log_density, normal_log_interval
from .quadrature import constant, place, root, standard_nodes

__all__ = ["distribution_function", "log_density", "moments", "nodes"]


def nodes(mean: Array, factor: Array) -> tuple[Array, Array]:
    """Nodes f and their weights for N(mean, factor factorᵀ).

    One or two parameter functions have a grid. For more, the nodes are placed on the latents behind
    them, and their number does not grow with the number of classes.
    """
    J, R = factor.shape
    if J <= 2:
        points, weights = standard_nodes(J, n={1: 64, 2: 20}[J])
        return place(points, mean, factor @ factor.T), weights
    points, weights = standard_nodes(R, n={1: 64, 2: 20, 3: 11}.get(R, 512))
    return mean + points @ factor.T, weights


def _collapsed(
    likelihood: Likelihood, mean: Array, factor: Array
) -> tuple[Likelihood, Array, Array]:
    """The same distribution with fewer functions to integrate over, if there is such a form."""
    fewer = likelihood.collapsed(mean, factor @ factor.T)
    if fewer is None:
        return likelihood, mean, factor
    made, J = fewer
    return made, mean[:J], factor[:J]


def moments(likelihood: Likelihood, mean: Array, factor: Array) -> tuple[Array, Array]:
    """Mean and variance of y: E[E[y|f]] and E[var(y|f)] + var(E[y|f])."""
    likelihood, mean, factor = _collapsed(likelihood, mean, factor)
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
    """The log density log ∫ p(y | f) N(f; mean, factor factorᵀ) df."""
    likelihood, mean, factor = _collapsed(likelihood, mean, factor)
    cov = factor @ factor.T
    mixture = likelihood.mixture(mean, cov) if len(mean) <= 2 else None
    if mixture is not None:
        weights, centres, variances = mixture
        z, log_slope = likelihood.warped(y)
        density = logsumexp(normal_log_density(z, centres, variances), b=weights) + log_slope
        if likelihood.limited:
            exact, *ends = likelihood.known(y)
            a, b = ((_on_scale(likelihood, end) - centres) / jnp.sqrt(variances) for end in ends)
            partly = logsumexp(normal_log_interval(a, b), b=weights)
            density = jnp.where(exact, density, partly)
        censored = likelihood.censored(likelihood.given)
        if censored is False:
            return density
        larger = logsumexp(log_ndtr((centres - z) / jnp.sqrt(variances)), b=weights)
        return jnp.where(censored, larger, density)
    if len(mean) <= 2:
        return _centred_quadrature(lambda f: likelihood.log_observed(y, f), mean, cov)
    f, weights = nodes(mean, factor)
    return logsumexp(jax.vmap(lambda f: likelihood.log_observed(y, f))(f), b=weights)


def _on_scale(likelihood: Likelihood, y: Array) -> Array:
    """An end of an interval on the scale of the mixture; infinite ends stay infinite."""
    finite = jnp.isfinite(y)
    return jnp.where(finite, likelihood.warped(jnp.where(finite, y, 0.5))[0], y)


def _centred_quadrature(log_p: Callable[[Array], Array], mean: Array, cov: Array) -> Array:
    """log ∫ p(f) N(f; mean, cov) df by Gauss–Hermite around the mode of the integrand, J ≤ 2.

    Nodes placed for N(mean, cov) would miss a likelihood that is much narrower (a large count).
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
        return turn, 1.0 / jnp.sqrt(jnp.maximum(values, 1.0))  # the normal density gives one

    def newton(_: int, e: Array) -> Array:
        turn, width = axes(e)
        move = turn @ (width**2 * (turn.T @ jax.grad(psi)(e)))
        return e + move / jnp.maximum(jnp.linalg.norm(move), 1.0)

    mode = jax.lax.fori_loop(0, 25, newton, jnp.zeros_like(mean))
    turn, width = axes(mode)
    x, weights = standard_nodes(len(mean), n={1: 32}.get(len(mean), 16))
    terms = jax.vmap(psi)(mode + (x * width) @ turn.T) + 0.5 * jnp.sum(x**2, axis=1)
    return jnp.sum(jnp.log(width)) + logsumexp(terms, b=weights)


@cache
def _line() -> tuple[np.ndarray, np.ndarray]:
    """Evenly spaced nodes for a standard normal, so that a steep step in f is resolved."""
    points = np.linspace(-5.5, 5.5, 193)[:, None]
    mass = np.exp(-0.5 * points[:, 0] ** 2)
    return points, mass / mass.sum()


@cache
def _lattice() -> tuple[np.ndarray, np.ndarray]:
    """Nodes for two standard normals, fine along the first axis and coarse along the second.

    Each line of nodes is shifted against the next by the golden ratio of their spacing. So no two
    lines have the same error at a step across the first axis, and their errors cancel.
    """
    i, j = np.meshgrid(np.arange(-60, 61), np.arange(-6, 7), indexing="ij")
    points = np.stack([0.3 * (i + j * (np.sqrt(5.0) - 1.0) / 2.0), 0.85 * j], axis=-1)
    points = points.reshape(-1, 2)
    points = points[np.sum(points**2, axis=1) < 4.2**2]
    mass = np.exp(-0.5 * np.sum(points**2, axis=1))
    return points, mass / mass.sum()


def _across(likelihood: Likelihood, mean: Array, cov: Array) -> Array:
    """The lattice's nodes for N(mean, cov), fine along the direction in which E[y | f] changes.

    In that direction P(Y ≤ y | f) is steep.
    """
    C = root(cov)
    slope = C.T @ jax.grad(likelihood.mean)(mean)
    angle = jnp.arctan2(slope[1], slope[0])
    angle = jnp.where(jnp.isfinite(angle), angle, 0.0)
    c, s = jnp.cos(angle), jnp.sin(angle)
    points = constant(_lattice()[0]) @ jnp.array([[c, s], [-s, c]])
    return mean + points @ C.T


def distribution_function(likelihood: Likelihood, y: Array, mean: Array, factor: Array) -> Array:
    """P(Y ≤ y), with f integrated out."""
    likelihood, mean, factor = _collapsed(likelihood, mean, factor)
    J, cov = len(mean), factor @ factor.T
    mixture = likelihood.mixture(mean, cov) if J <= 2 else None
    if mixture is not None:
        weights, centres, variances = mixture
        z = likelihood.warped(jnp.clip(y, *likelihood.ends))[0]
        return 0.5 + 0.5 * jnp.sum(weights * erf((z - centres) / jnp.sqrt(2.0 * variances)))
    if J == 1:
        points, weights = map(constant, _line())
        f = place(points, mean, cov)
    elif J == 2:
        f, weights = _across(likelihood, mean, cov), constant(_lattice()[1])
    else:
        f, weights = nodes(mean, factor)
    return jnp.sum(weights * jax.vmap(lambda f: likelihood.cdf(y, f))(f))
