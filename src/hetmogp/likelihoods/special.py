"""Functions that likelihoods share: expectations of the logistic, and what JAX lacks."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, gammaln, ndtr
from jaxtyping import Array

from ..quadrature import constant

__all__ = ["expected_logistic", "expected_softplus", "log_rising"]

# The logistic function as a mixture of normal distribution functions, σ(f) = Σ p Φ(s f) to 2e-9
# (Monahan and Stefanski, 1992): expectations under a Gaussian are then closed forms, good for any
# variance, where a 20-node quadrature loses its digits beyond a variance of about ten.
_SHARE = np.array(
    [
        [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818],
        [0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354],
    ]
).ravel()
_SLOPE = np.array(
    [
        [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391],
        [0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306],
    ]
).ravel()


def expected_logistic(mean: Array, variance: Array) -> tuple[Array, Array]:
    """E[σ(f)] and E[σ(−f)], f ~ N(mean, variance): E[Φ(s f)] = Φ(s μ / √(1 + s² v))."""
    share, slope = constant(_SHARE), constant(_SLOPE)
    t = mean * slope / jnp.sqrt(1.0 + slope**2 * variance)
    yes, no = jnp.sum(share * ndtr(t)), jnp.sum(share * ndtr(-t))
    return yes / (yes + no), no / (yes + no)


def expected_softplus(mean: Array, variance: Array) -> Array:
    """E[log(1 + e^f)], f ~ N(mean, variance): the integral of Σ p Φ(s μ / √(1 + s² v)) over μ."""
    share, slope = constant(_SHARE), constant(_SLOPE)
    width = jnp.sqrt(1.0 + slope**2 * variance)
    t = mean * slope / width
    density = jnp.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)
    below = 0.5 * (1.0 + erf(t / np.sqrt(2.0)))  # Φ(t), to an absolute error of 1e-16
    return jnp.sum(share * width / slope * (t * below + density))


def log_rising(c: Array, y: Array) -> Array:
    """log Γ(c + y) − log Γ(c) − y log c, which tends to 0 as c grows.

    For large c the two log gammas cancel to nothing; there Stirling's series is taken first.
    """
    large = c > 100.0
    big, small = jnp.where(large, jnp.minimum(c, 1e30), 100.0), jnp.where(large, 1.0, c)

    def rest(x: Array) -> Array:
        return 1.0 / (12.0 * x) - 1.0 / (360.0 * x**3)

    stirling = (big + y - 0.5) * jnp.log1p(y / big) - y + rest(big + y) - rest(big)
    exact = gammaln(small + y) - gammaln(small) - y * jnp.log(small)
    return jnp.where(large, stirling, exact)
