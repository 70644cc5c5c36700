"""Outputs that count, plain or with more zeros than a count would have.

All take an `exposure`: the population at risk, the area searched, the hours watched. The rate is
then per unit of exposure.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array
from scipy.special import expit

from ..quadrature import expect
from .base import Latent, Likelihood
from .incomplete import lower_beta, lower_gamma
from .limits import Argument, Limits
from .links import exp, logistic
from .special import expected_softplus, log_complement, log_rising

__all__ = ["NegativeBinomial", "Poisson", "ZeroInflatedNegativeBinomial", "ZeroInflatedPoisson"]

ALMOST = 1.0 - 1e-12  # the latest first arrival, where arrivals are counted for one unit of time
LARGE = 16.0  # the log of a rate from which on a count is as good as normal


def _poisson_log_prob(y: Array, log_rate: Array) -> Array:
    """Log of λ^y e^−λ / y!."""
    return y * log_rate - jnp.exp(log_rate) - gammaln(y + 1.0)


def _poisson_cdf(y: Array, log_rate: Array) -> Array:
    more = lower_gamma(jnp.floor(jnp.maximum(y, 0.0)) + 1.0, log_rate)  # P(Y > y)
    return jnp.where(y < 0, 0.0, 1.0 - more)


def _poisson_sample(key: Array, log_rate: Array) -> Array:
    """One draw; from a normal distribution if it is large, because JAX's integers overflow."""
    large = log_rate > LARGE
    exact = jax.random.poisson(key, jnp.exp(jnp.where(large, 0.0, log_rate)))
    rate = jnp.exp(log_rate)
    normal = rate + jnp.sqrt(rate) * jax.random.normal(key, dtype=log_rate.dtype)
    return jnp.where(large, jnp.round(normal), exact.astype(log_rate.dtype))


def _poisson_positive(key: Array, log_rate: Array) -> Array:
    """One draw above zero: the first arrival within a unit of time, and those after it."""
    first, second = jax.random.split(key)
    rate = jnp.exp(log_rate)
    uniform = jax.random.uniform(first, dtype=log_rate.dtype)
    when = -jnp.log1p(uniform * jnp.expm1(-rate)) / rate
    return 1.0 + _poisson_sample(second, log_rate + jnp.log1p(-jnp.minimum(when, ALMOST)))


def _negative_binomial_log_prob(y: Array, log_mean: Array, log_c: Array) -> Array:
    """A Poisson whose rate is mean · Gamma(c, c)."""
    c = jnp.exp(log_c)
    odds = jax.nn.softplus(log_mean - log_c)  # log(1 + mean/c)
    return log_rising(c, y) - gammaln(y + 1.0) + y * (log_mean - odds) - c * odds


def _negative_binomial_cdf(y: Array, log_mean: Array, log_c: Array) -> Array:
    """P(Y ≤ k) = I_{c/(c + mean)}(c, k + 1)."""
    k = jnp.floor(jnp.maximum(y, 0.0))
    return jnp.where(y < 0, 0.0, lower_beta(jnp.exp(log_c), k + 1.0, log_c - log_mean))


def _negative_binomial_sample(key: Array, log_mean: Array, log_c: Array) -> Array:
    first, second = jax.random.split(key)
    gamma = jax.random.loggamma(first, jnp.exp(log_c), dtype=log_mean.dtype)
    return _poisson_sample(second, log_mean + gamma - log_c)


def _poisson_many(generator: np.random.Generator, log_rate: np.ndarray) -> np.ndarray:
    """See `_poisson_sample`."""
    large, rate = log_rate > 2.0 * LARGE, np.exp(log_rate)
    normal = rate + np.sqrt(rate) * generator.standard_normal(rate.shape)
    return np.where(large, np.round(normal), generator.poisson(np.where(large, 1.0, rate)))


def _negative_binomial_many(
    generator: np.random.Generator, log_mean: np.ndarray, log_c: np.ndarray
) -> np.ndarray:
    c = np.exp(np.broadcast_to(log_c, log_mean.shape))
    # Gamma(c) is Gamma(c + 1) U^(1/c), whose logarithm does not underflow for small c.
    gamma = np.log(generator.standard_gamma(c + 1.0)) - generator.standard_exponential(c.shape) / c
    return _poisson_many(generator, log_mean + gamma - log_c)


def _negative_binomial_positive(key: Array, log_mean: Array, log_c: Array) -> Array:
    """The same, where P(no arrival before t) = (1 + mean t/c)^−c.

    The rate given an arrival at t is Gamma(c + 1, c/mean + t).
    """
    first, second, third = jax.random.split(key, 3)
    c, odds = jnp.exp(log_c), jax.nn.softplus(log_mean - log_c)
    uniform = jax.random.uniform(first, dtype=log_mean.dtype)
    log_none = jnp.log1p(uniform * jnp.expm1(-c * odds))  # log P(no arrival before it)
    when = jnp.minimum(jnp.expm1(-log_none / c) * jnp.exp(log_c - log_mean), ALMOST)
    log_rate = jax.random.loggamma(second, c + 1.0, dtype=log_mean.dtype)
    log_rate -= jnp.log(jnp.exp(log_c - log_mean) + when)
    return 1.0 + _poisson_sample(third, log_rate + jnp.log1p(-when))


def _negative_binomial_variance(log_mean: Array, log_c: Array) -> Array:
    return jnp.exp(log_mean) + jnp.exp(2.0 * log_mean - log_c)


class Family(NamedTuple):
    """A distribution of counts, by the logarithms of its mean and of its other parameters."""

    log_prob: Callable[..., Array]  # of y and those
    cdf: Callable[..., Array]  # of y and those
    sample: Callable[..., Array]  # of a key and those
    sample_many: Callable[..., np.ndarray]  # of NumPy's generator and those
    variance: Callable[..., Array]
    positive: Callable[..., Array]  # as `sample`, given that it is not zero


POISSON = Family(
    _poisson_log_prob,
    _poisson_cdf,
    _poisson_sample,
    _poisson_many,
    jnp.exp,
    _poisson_positive,
)
NEGATIVE_BINOMIAL = Family(
    _negative_binomial_log_prob,
    _negative_binomial_cdf,
    _negative_binomial_sample,
    _negative_binomial_many,
    _negative_binomial_variance,
    _negative_binomial_positive,
)


class Count(Likelihood):
    """A whole number; its first parameter, the mean, is multiplied by the exposure."""

    arguments = {"exposure": Argument("a number > 0", lambda e: e > 0)}
    support = "a whole number >= 0"
    outcome = "count"
    unit = "exposure"
    mean_name = "rate"
    ends = (0.0, np.inf)
    family: ClassVar[Family]

    def __init__(self, **options: Any):
        super().__init__(**options)

    def _logs(self, f: Array) -> list[Array]:
        """All parameters before their links, the mean times the exposure."""
        mean, *others = (jnp.asarray(value, f.dtype) for value in self.unlinked(f))
        return [mean + jnp.log(self.given["exposure"]), *others]

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return self.family.log_prob(y, *self._logs(f))

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jnp.exp(self._logs(f)[0])

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return self.family.variance(*self._logs(f))

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return self.family.cdf(y, *self._logs(f))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return self.family.sample(key, *self._logs(f))

    def sample_many(self, generator: np.random.Generator, f: np.ndarray) -> np.ndarray:
        """See `Likelihood.sample_many`."""
        return self.family.sample_many(generator, *map(np.asarray, self._logs(jnp.asarray(f))))

    def log_positive(self, f: Array) -> Array:
        """See `Likelihood.log_positive`."""
        return log_complement(self.log_prob(jnp.zeros((), f.dtype), f))

    def sample_positive(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample_positive`."""
        return self.family.positive(key, *self._logs(f))

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y >= 0) & (y == np.floor(y))

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The count per unit of exposure, kept above zero, and a concentration by moments."""
        exposure = np.broadcast_to(self.given["exposure"], y.shape)
        rate = (np.sum(y) if np.any(y > 0) else 0.5) / np.sum(exposure)
        expected = rate * exposure
        excess = np.mean((y - expected) ** 2) - np.mean(expected)
        concentration = float(np.clip(np.mean(expected**2) / max(excess, 1e-300), 0.1, 20.0))
        mean, *others = self.links
        return {mean: rate, **dict.fromkeys(others, concentration)}


class Poisson(Count):
    """A count: y ~ Poisson(exposure · rate(x)).

    Args:
        exposure: the column that holds the exposure of each observation.
        weight: the column that says how many times each observation counts.
        **limits: `lower` and `upper`, for values known in part.
    """

    links = {"rate": exp}
    family = POISSON

    def __init__(
        self, *, exposure: str | None = None, weight: str | None = None, **limits: Unpack[Limits]
    ):
        super().__init__(exposure=exposure, weight=weight, **limits)

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """It is y μ − e^(μ + v/2) − log y!."""
        return _expected_poisson(y, self._logs(mean)[0], cov[0, 0])

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """The rate is log-normal."""
        rate = jnp.exp(self._logs(mean)[0] + 0.5 * cov[0, 0])
        return rate, rate + rate**2 * jnp.expm1(cov[0, 0])


def _expected_poisson(y: Array, mean: Array, variance: Array) -> Array:
    """E[log p(y)] of a Poisson whose log rate is N(mean, variance)."""
    return y * mean - jnp.exp(mean + 0.5 * variance) - gammaln(y + 1.0)


class NegativeBinomial(Count):
    """A count that varies more than a Poisson: variance m + m²/concentration, m the mean.

    Args:
        mean: a fixed mean, where it is not latent.
        concentration: a fixed concentration; learned when not given. The larger, the nearer a
            Poisson.
        exposure: the column that holds the exposure of each observation; the mean is per unit.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the mean by default.
        **limits: `lower` and `upper`, for values known in part.
    """

    links = {"mean": exp, "concentration": exp}
    default_latent = ("mean",)
    family = NEGATIVE_BINOMIAL

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        *,
        exposure: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            mean=mean,
            concentration=concentration,
            exposure=exposure,
            weight=weight,
            latent=latent,
            **limits,
        )

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """The mean is log-normal."""
        log_mean, log_c = self._logs(mean)
        expected = jnp.exp(log_mean + 0.5 * cov[0, 0])
        square = expected**2 * jnp.exp(cov[0, 0])
        return expected, expected + square * jnp.exp(-log_c) + expected**2 * jnp.expm1(cov[0, 0])


class ZeroInflated(Count):
    """A count that is zero for sure with probability `zero`, the last parameter."""

    def __init__(self, **options: Any):
        super().__init__(**options)

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log of zero · [y = 0] + (1 − zero) · count(y)."""
        *logs, odds = self._logs(f)
        count = self.family.log_prob(y, *logs)
        return jnp.where(y == 0, jnp.logaddexp(odds, count), count) - jax.nn.softplus(odds)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        log_mean, *_, odds = self._logs(f)
        return jax.nn.sigmoid(-odds) * jnp.exp(log_mean)

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        *logs, odds = self._logs(f)
        both = self.family.variance(*logs) + jax.nn.sigmoid(odds) * jnp.exp(2.0 * logs[0])
        return jax.nn.sigmoid(-odds) * both

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        *logs, odds = self._logs(f)
        zero = jax.nn.sigmoid(odds)
        return jnp.where(y < 0, 0.0, zero + (1.0 - zero) * self.family.cdf(y, *logs))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        *logs, odds = self._logs(f)
        first, second = jax.random.split(key)
        sure = jax.random.bernoulli(first, jax.nn.sigmoid(odds))
        return jnp.where(sure, 0.0, self.family.sample(second, *logs))

    def sample_many(self, generator: np.random.Generator, f: np.ndarray) -> np.ndarray:
        """See `Likelihood.sample_many`."""
        *logs, odds = map(np.asarray, self._logs(jnp.asarray(f)))
        count = self.family.sample_many(generator, *logs)
        return np.where(generator.random(count.shape) < expit(odds), 0.0, count)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Half of the zeros are sure; the count is that of the rest."""
        zero = float(np.clip(0.5 * np.mean(y == 0), 0.01, 0.99))
        count = dict(super().initial(y))
        first, *_, last = self.links
        return {**count, first: count[first] / (1.0 - zero), last: zero}


class ZeroInflatedPoisson(ZeroInflated):
    """A Poisson count with more zeros: y = 0 with probability zero(x), else Poisson(rate(x)).

    Args:
        rate: a fixed rate, where it is not latent.
        zero: a fixed probability of a sure zero, where it is not latent.
        exposure: the column that holds the exposure of each observation; the rate is per unit.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; both by default.
        **limits: `lower` and `upper`, for values known in part.
    """

    links = {"rate": exp, "zero": logistic}
    family = POISSON

    def __init__(
        self,
        rate: float | None = None,
        zero: float | None = None,
        *,
        exposure: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            rate=rate, zero=zero, exposure=exposure, weight=weight, latent=latent, **limits
        )

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Closed but for E[log(e^f₂ + e^−λ)], needed where y = 0."""
        count = _expected_poisson(y, self._logs(mean)[0], cov[0, 0])
        none = expect(lambda f: jnp.logaddexp(f[1], -jnp.exp(self._logs(f)[0])), mean, cov)
        return jnp.where(y == 0, none, count) - expected_softplus(mean[1], cov[1, 1])


class ZeroInflatedNegativeBinomial(ZeroInflated):
    """A negative binomial count with more zeros: y = 0 with probability zero(x).

    Args:
        mean: a fixed mean of the count, where it is not latent.
        concentration: a fixed concentration; learned when not given.
        zero: a fixed probability of a sure zero, where it is not latent.
        exposure: the column that holds the exposure of each observation; the mean is per unit.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; mean and zero by default.
        **limits: `lower` and `upper`, for values known in part.
    """

    links = {"mean": exp, "concentration": exp, "zero": logistic}
    default_latent = ("mean", "zero")
    family = NEGATIVE_BINOMIAL

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        zero: float | None = None,
        *,
        exposure: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        values = {"mean": mean, "concentration": concentration, "zero": zero}
        super().__init__(**values, exposure=exposure, weight=weight, latent=latent, **limits)
