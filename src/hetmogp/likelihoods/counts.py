"""Outputs that count: Poisson."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from .base import Likelihood, exp
from .special import lower_gamma

__all__ = ["Poisson"]


class Poisson(Likelihood):
    """A count: y ~ Poisson(rate(x))."""

    links = {"rate": exp}
    support = "a whole number >= 0"
    discrete = True

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return y * f[0] - jnp.exp(f[0]) - gammaln(y + 1.0)

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Y μ − e^(μ + v/2) − log y!."""
        return y * mean[0] - jnp.exp(mean[0] + 0.5 * cov[0, 0]) - gammaln(y + 1.0)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jnp.exp(f[0])

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return jnp.exp(f[0])

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """The rate is log-normal."""
        rate = jnp.exp(mean[0] + 0.5 * cov[0, 0])
        return rate, rate + rate**2 * jnp.expm1(cov[0, 0])

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        more = lower_gamma(jnp.floor(jnp.maximum(y, 0.0)) + 1.0, jnp.exp(f[0]))  # P(Y > y)
        return jnp.where(y < 0, 0.0, 1.0 - more)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return jax.random.poisson(key, jnp.exp(f[0])).astype(f.dtype)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y >= 0) & (y == np.floor(y))

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The mean count, kept above zero."""
        return {"rate": np.mean(y) if np.any(y > 0) else 0.5 / y.size}
