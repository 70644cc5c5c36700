"""A special function that is slow in JAX where it matters least."""

import jax.numpy as jnp
from jax.scipy.special import gammainc, ndtr
from jaxtyping import Array

__all__ = ["lower_gamma"]

LARGE = 1e4


def lower_gamma(a: Array, x: Array) -> Array:
    """P(a, x), the regularised lower incomplete gamma function.

    JAX's takes a number of terms that grows with √a. Beyond a = 10⁴ the cube root of a gamma
    variable is normal to about 10⁻⁶ (Wilson and Hilferty), and that is used.
    """
    large = a > LARGE
    exact = gammainc(jnp.where(large, 1.0, a), jnp.where(large, 1.0, x))
    spread = 1.0 / (9.0 * jnp.where(large, a, 1.0))
    root = jnp.cbrt(jnp.where(large, x / a, 1.0))
    return jnp.where(large, ndtr((root - 1.0 + spread) / jnp.sqrt(spread)), exact)
