"""Positive outputs: Gamma. Those that may be right-censored are in `lifetimes`."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..quadrature import constant, gauss_hermite
from .base import Latent, Likelihood, Start, exp
from .incomplete import lower_gamma
from .special import log_gamma

__all__ = ["Gamma"]


class Gamma(Likelihood):
    """A positive output: y ~ Gamma(shape(x), rate(x)), with mean shape/rate.

    Args:
        shape: a fixed shape, where it is not latent.
        rate: a fixed rate, where it is not latent.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; both by default.
    """

    links = {"shape": exp, "rate": exp}
    support = "a number > 0"
    ends = (0.0, np.inf)

    def __init__(
        self,
        shape: float | None = None,
        rate: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
    ):
        super().__init__(shape=shape, rate=rate, weight=weight, latent=latent)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        log_shape, log_rate = self.unlinked(f)
        z = log_rate + jnp.log(y)  # the slopes of log(rate · y) overflow where y is tiny
        shape = jnp.exp(log_shape)
        return shape * z - jnp.log(y) - jnp.exp(z) - log_gamma(shape)

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """All closed, with E[e^f₁ f₂] = e^(μ₁ + v₁/2) (μ₂ + c), but for E[log Γ(e^f₁)]."""
        nodes, weights = map(constant, gauss_hermite(20))
        shape = jnp.exp(mean[0] + 0.5 * cov[0, 0])
        rate = jnp.exp(mean[1] + 0.5 * cov[1, 1])
        shapes = jnp.exp(mean[0] + jnp.sqrt(jnp.maximum(cov[0, 0], 1e-30)) * nodes)
        size = jnp.sum(weights * log_gamma(shapes))
        return shape * (mean[1] + cov[0, 1] + jnp.log(y)) - jnp.log(y) - rate * y - size

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        shape, rate = self.parameters(f)
        return shape / rate

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        shape, rate = self.parameters(f)
        return shape / rate**2

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        log_shape, log_rate = self.unlinked(f)
        return lower_gamma(jnp.exp(log_shape), log_rate + jnp.log(jnp.maximum(y, 0.0)))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        shape, rate = self.parameters(f)
        return jax.random.gamma(key, jnp.asarray(shape, f.dtype), dtype=f.dtype) / rate

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return y > 0

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Moments: shape = mean²/variance, rate = mean/variance, neither taken to an extreme."""
        mean = float(np.mean(y))
        shape = float(np.clip(mean**2 / max(float(np.var(y)), 1e-300), 0.1, 100.0))
        return {"shape": shape, "rate": shape / mean}

    def start(self, y: np.ndarray) -> Start:
        """The constant model; half a unit on the log scale is already a wide prior for a shape."""
        start = super().start(y)
        return start._replace(spread=0.5 * start.spread)
