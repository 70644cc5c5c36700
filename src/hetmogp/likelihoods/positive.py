"""Positive outputs whose shape may vary: Gamma."""

from collections.abc import Mapping
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..quadrature import constant, expect, gauss_hermite
from .base import Latent
from .incomplete import lower_gamma
from .lifetimes import Lifetime
from .limits import Limits, log_cell, log_interval, log_lower, log_upper
from .links import exp
from .special import log_gamma
from .starts import Start

__all__ = ["Gamma"]


class Gamma(Lifetime):
    """A positive output: y ~ Gamma(shape(x), rate(x)), with mean shape/rate.

    Args:
        shape: a fixed shape, where it is not latent.
        rate: a fixed rate, where it is not latent.
        event: the column that holds 1 where the end was seen and 0 where not; all seen by default.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; both by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    links = {"shape": exp, "rate": exp}

    def __init__(
        self,
        shape: float | None = None,
        rate: float | None = None,
        *,
        event: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            shape=shape, rate=rate, event=event, weight=weight, latent=latent, **limits
        )

    def log_density(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_density`."""
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
        seen = shape * (mean[1] + cov[0, 1] + jnp.log(y)) - jnp.log(y) - rate * y - size
        if self.censoring not in dict(self.columns):
            return seen
        longer = expect(lambda f: self.log_survival(y, f), mean, cov, few=True)
        return jnp.where(jnp.asarray(self.given["event"]) > 0, seen, longer)

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_survival`."""
        return log_upper(self, y, f)

    def log_cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_cdf`."""
        return log_lower(self, y, f)

    def log_interval(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_interval`."""
        return log_interval(self, a, b, f)

    def log_cell(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_cell`."""
        return log_cell(self, a, b, f)

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

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Moments: shape = mean²/variance, rate = mean/variance, neither taken to an extreme."""
        mean = float(np.mean(y))
        shape = float(np.clip(mean**2 / max(float(np.var(y)), 1e-300), 0.1, 100.0))
        return {"shape": shape, "rate": shape / mean}

    def start(self, y: np.ndarray) -> Start:
        """The constant model; half a unit on the log scale is already a wide prior for a shape."""
        start = super().start(y)
        return start._replace(spread=0.5 * start.spread)
