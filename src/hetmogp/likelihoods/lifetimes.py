"""Outputs that last: waiting and survival times, of which the end may not have been seen.

All take an `event`: 1 where the end was seen, 0 where the time is right-censored, that is, only
known to be longer.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array

from ..quadrature import expect
from .base import Latent, Likelihood, Warp
from .limits import Argument, Limits, log_difference
from .links import exp, identity
from .real import normal_log_density, normal_log_interval
from .special import expected_softplus, log_complement

__all__ = ["Exponential", "LogLogistic", "LogNormal", "Weibull"]


class Lifetime(Likelihood):
    """A positive time, its end seen or not."""

    arguments = {
        "event": Argument("0 (right-censored) or 1", lambda e: (e == 0) | (e == 1), partly=True)
    }
    censoring = "event"
    support = "a number > 0"
    ends = (0.0, np.inf)

    def __init__(self, **options: Any):
        super().__init__(**options)

    @abstractmethod
    def log_density(self, y: Array, f: Array) -> Array:
        """The log density of an end seen at y."""

    @abstractmethod
    def log_survival(self, y: Array, f: Array) -> Array:
        """Log P(Y > y)."""

    def log_prob(self, y: Array, f: Array) -> Array:
        """The density where the end was seen, the survival function where it was not."""
        seen = jnp.asarray(self.given["event"]) > 0
        return jnp.where(seen, self.log_density(y, f), self.log_survival(y, f))

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return jnp.where(y > 0, -jnp.expm1(self.log_survival(jnp.maximum(y, 1e-300), f)), 0.0)

    def log_cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_cdf`."""
        return log_complement(self.log_survival(y, f))

    def log_interval(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_interval`."""
        return log_difference(self.log_survival(a, f), self.log_survival(b, f))

    def log_cell(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_cell`; an interval from zero has the distribution function."""
        from_zero = a <= 0
        inside = self.log_interval(jnp.where(from_zero, 0.5 * b, a), b, f)
        return jnp.where(from_zero, self.log_cdf(b, f), inside)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return y > 0

    def doubt(self, y: np.ndarray) -> str | None:
        """See `Likelihood.doubt`."""
        if np.any(np.asarray(self.given["event"]) > 0):
            return None
        return (
            "no end was seen: all of its times are right-censored, so they are only lower limits; "
            "predictions are a guess"
        )

    def _typical(self, y: np.ndarray) -> tuple[float, float, float]:
        """Mean and spread of log y, and the share of ends that were seen, kept above zero."""
        log_y = np.log(y)
        share = float(np.mean(np.broadcast_to(self.given["event"], y.shape)))
        return float(np.mean(log_y)), float(np.std(log_y)) or 1.0, max(share, 0.5 / y.size)


class Exponential(Lifetime):
    """A waiting time: y ~ Exponential(rate(x)), with mean 1/rate.

    Args:
        event: the column that holds 1 where the end was seen and 0 where not; all seen by default.
        weight: the column that says how many times each observation counts.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    links = {"rate": exp}
    support = "a number >= 0"

    def __init__(
        self, *, event: str | None = None, weight: str | None = None, **limits: Unpack[Limits]
    ):
        super().__init__(event=event, weight=weight, **limits)

    def log_density(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_density`."""
        return f[0] - y * jnp.exp(f[0])

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_survival`."""
        return -y * jnp.exp(f[0])

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """μ − y e^(μ + v/2), without the μ where the end was not seen."""
        return self.given["event"] * mean[0] - y * jnp.exp(mean[0] + 0.5 * cov[0, 0])

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jnp.exp(-f[0])

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return jnp.exp(-2.0 * f[0])

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """One over the rate is log-normal, and E[y²] = 2 E[rate⁻²]."""
        expected = jnp.exp(-mean[0] + 0.5 * cov[0, 0])
        return expected, expected**2 * (2.0 * jnp.exp(cov[0, 0]) - 1.0)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return jax.random.exponential(key, dtype=f.dtype) * jnp.exp(-f[0])

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return y >= 0

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Ends seen per unit of time."""
        seen = max(float(np.sum(np.broadcast_to(self.given["event"], y.shape))), 0.5)
        return {"rate": seen / np.sum(y) if np.any(y > 0) else 1.0}


class Scaled(Lifetime):
    """A lifetime that depends on (y/scale)^shape only."""

    links = {"scale": exp, "shape": exp}
    default_latent = ("scale",)

    def __init__(self, **options: Any):
        super().__init__(**options)

    def _log_power(self, y: Array, f: Array) -> Array:
        """Log of (y/scale)^shape."""
        log_scale, log_shape = self.unlinked(f)
        return jnp.exp(log_shape) * (jnp.log(y) - log_scale)


class Weibull(Scaled):
    """A lifetime: P(y > t) = exp(−(t/scale(x))^shape).

    A shape above one means wear; below one, the early days are the dangerous ones.

    Args:
        scale: a fixed scale, where it is not latent.
        shape: a fixed shape; learned when not given.
        event: the column that holds 1 where the end was seen and 0 where not; all seen by default.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the scale by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    def __init__(
        self,
        scale: float | None = None,
        shape: float | None = None,
        *,
        event: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            scale=scale, shape=shape, event=event, weight=weight, latent=latent, **limits
        )

    def log_density(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_density`."""
        z = self._log_power(y, f)
        return self.unlinked(f)[1] + z - jnp.log(y) - _hazard_of(z)

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_survival`."""
        return -_hazard_of(self._log_power(y, f))

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """All closed: (y/scale)^shape is log-normal."""
        log_scale, log_shape = self.unlinked(mean)
        shape = jnp.exp(log_shape)
        z = shape * (jnp.log(y) - log_scale)
        hazard = _hazard_of(z + 0.5 * shape**2 * cov[0, 0])
        return self.given["event"] * (log_shape + z - jnp.log(y)) - hazard

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        log_scale, log_shape = self.unlinked(f)
        return jnp.exp(log_scale + _log_factorial(jnp.exp(-log_shape)))

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        log_scale, log_shape = self.unlinked(f)
        one, two = _log_factorial(jnp.exp(-log_shape)), _log_factorial(2.0 * jnp.exp(-log_shape))
        return jnp.exp(2.0 * (log_scale + one)) * jnp.expm1(two - 2.0 * one)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        scale, shape = self.parameters(f)
        return scale * jax.random.exponential(key, dtype=f.dtype) ** (1.0 / shape)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """From the mean and spread of log y, whose distribution is Gumbel's."""
        centre, spread, seen = self._typical(y)
        shape = float(np.clip(np.pi / np.sqrt(6.0) / spread, 0.2, 20.0))
        # Euler's constant; a share of ends unseen lengthens the scale as in a constant hazard
        return {"scale": np.exp(centre + (0.5772 - np.log(seen)) / shape), "shape": shape}


class LogLogistic(Scaled):
    """A lifetime whose odds of having ended grow as a power: P(y > t) = 1/(1 + (t/scale(x))^shape).

    Args:
        scale: a fixed scale (the median), where it is not latent.
        shape: a fixed shape; learned when not given.
        event: the column that holds 1 where the end was seen and 0 where not; all seen by default.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the scale by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    def __init__(
        self,
        scale: float | None = None,
        shape: float | None = None,
        *,
        event: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            scale=scale, shape=shape, event=event, weight=weight, latent=latent, **limits
        )

    def log_density(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_density`."""
        z = self._log_power(y, f)
        return self.unlinked(f)[1] - jnp.log(y) + z - 2.0 * jax.nn.softplus(z)

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_survival`."""
        return -jax.nn.softplus(self._log_power(y, f))

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """All closed, by E[log(1 + e^z)]."""
        log_shape = self.unlinked(mean)[1]
        z = self._log_power(y, mean)
        odds = expected_softplus(z, jnp.exp(2.0 * log_shape) * cov[0, 0])
        return self.given["event"] * (log_shape - jnp.log(y) + z - odds) - odds

    def mean(self, f: Array) -> Array:
        """scale · (π/shape)/sin(π/shape), infinite for shape ≤ 1."""
        scale, shape = self.parameters(f)
        angle = jnp.pi / jnp.asarray(shape, f.dtype)
        finite = jnp.where(angle < jnp.pi, angle, 1.0)
        return jnp.where(angle < jnp.pi, scale * finite / jnp.sin(finite), jnp.inf)

    def variance(self, f: Array) -> Array:
        """Infinite for shape ≤ 2."""
        scale, shape = self.parameters(f)
        angle = jnp.pi / jnp.asarray(shape, f.dtype)
        a = jnp.where(angle < 0.5 * jnp.pi, angle, 1.0)
        square = 2.0 * a / jnp.sin(2.0 * a) - (a / jnp.sin(a)) ** 2
        return jnp.where(angle < 0.5 * jnp.pi, scale**2 * square, jnp.inf)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        scale, shape = self.parameters(f)
        return scale * jnp.exp(jax.random.logistic(key, dtype=f.dtype) / shape)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """From the mean and spread of log y, whose distribution is logistic."""
        centre, spread, seen = self._typical(y)
        shape = float(np.clip(np.pi / np.sqrt(3.0) / spread, 0.2, 20.0))
        return {"scale": np.exp(centre - np.log(seen) / shape), "shape": shape}


class LogNormal(Lifetime):
    """A positive output, normal on the log scale: log y ~ N(mean(x), scale²).

    Args:
        scale: the standard deviation of log y; learned when not given.
        event: the column that holds 1 where the end was seen and 0 where not; all seen by default.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the mean of log y by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    links = {"mean": identity, "scale": exp}
    default_latent = ("mean",)
    warp = Warp(jnp.log, lambda y: -jnp.log(y), jnp.exp)

    def __init__(
        self,
        scale: float | None = None,
        *,
        event: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(scale=scale, event=event, weight=weight, latent=latent, **limits)

    def log_density(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_density`."""
        mean, scale = self.parameters(f)
        return normal_log_density(jnp.log(y), mean, jnp.square(scale)) - jnp.log(y)

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Lifetime.log_survival`."""
        return log_ndtr(-self._standard(y, f))

    def log_cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_cdf`."""
        return log_ndtr(self._standard(y, f))

    def log_interval(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_interval`."""
        return normal_log_interval(self._standard(a, f), self._standard(b, f))

    def _standard(self, y: Array, f: Array) -> Array:
        mean, scale = self.parameters(f)
        return (jnp.log(y) - mean) / scale

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Closed where the end was seen; E[log Φ] by quadrature where not."""
        _, scale = self.parameters(mean)
        seen = self.log_density(y, mean) - 0.5 * cov[0, 0] / scale**2
        if self.censoring not in dict(self.columns):
            return seen
        longer = expect(lambda f: self.log_survival(y, f), mean, cov, few=True)
        return jnp.where(jnp.asarray(self.given["event"]) > 0, seen, longer)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        mean, scale = self.parameters(f)
        return jnp.exp(mean + 0.5 * jnp.square(scale))

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return self.mean(f) ** 2 * jnp.expm1(jnp.square(self.parameters(f)[1]))

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Log-normal too, of variance v + scale²."""
        total = cov[0, 0] + jnp.square(self.parameters(mean)[1])
        expected = jnp.exp(mean[0] + 0.5 * total)
        return expected, expected**2 * jnp.expm1(total)

    def mixture(self, mean: Array, cov: Array) -> tuple[Array, Array, Array] | None:
        """On the log scale the predictive is N(μ, v + scale²)."""
        if not self.is_default:
            return None
        total = cov[0, :1] + jnp.square(self.parameters(mean)[1])
        return jnp.ones(1, mean.dtype), mean[:1], total

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        mean, scale = self.parameters(f)
        return jnp.exp(mean + scale * jax.random.normal(key, dtype=f.dtype))

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The mean of log y, and a noise of a third of its variance."""
        centre, spread, seen = self._typical(y)
        return {"mean": centre - spread * np.log(seen), "scale": spread / np.sqrt(3.0)}


def _hazard_of(z: Array) -> Array:
    """e^z, continued as a straight line beyond z = 60: finite and sloped, however far off."""
    return jnp.where(z > 60.0, np.exp(60.0) * (z - 59.0), jnp.exp(jnp.minimum(z, 60.0)))


def _log_factorial(x: Array) -> Array:
    return jax.scipy.special.gammaln(1.0 + jnp.asarray(x))
