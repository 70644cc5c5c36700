"""Outputs that count, plain or with more zeros than a count would have.

All take an `exposure`: the population at risk, the area searched, the hours watched. The rate is
then per unit of exposure.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from ..quadrature import expect
from .base import Argument, Latent, Likelihood, exp, logistic
from .incomplete import lower_beta, lower_gamma
from .special import expected_softplus, log_rising

__all__ = ["NegativeBinomial", "Poisson", "ZeroInflatedNegativeBinomial", "ZeroInflatedPoisson"]

LARGE = 16.0  # the log of a rate from which on a count is as good as normal


def poisson_log_prob(y: Array, log_rate: Array) -> Array:
    """Log of λ^y e^−λ / y!."""
    return y * log_rate - jnp.exp(log_rate) - gammaln(y + 1.0)


def poisson_cdf(y: Array, log_rate: Array) -> Array:
    """P(Y ≤ y)."""
    more = lower_gamma(jnp.floor(jnp.maximum(y, 0.0)) + 1.0, log_rate)  # P(Y > y)
    return jnp.where(y < 0, 0.0, 1.0 - more)


def poisson_sample(key: Array, log_rate: Array) -> Array:
    """One draw. A large one is normal, and beyond JAX's integers, which would hold the largest."""
    large = log_rate > LARGE
    exact = jax.random.poisson(key, jnp.exp(jnp.where(large, 0.0, log_rate)))
    rate = jnp.exp(log_rate)
    normal = rate + jnp.sqrt(rate) * jax.random.normal(key, dtype=log_rate.dtype)
    return jnp.where(large, jnp.round(normal), exact.astype(log_rate.dtype))


def negative_binomial_log_prob(y: Array, log_mean: Array, log_c: Array) -> Array:
    """A Poisson whose rate is mean · Gamma(c, c)."""
    c = jnp.exp(log_c)
    odds = jax.nn.softplus(log_mean - log_c)  # log(1 + mean/c)
    return log_rising(c, y) - gammaln(y + 1.0) + y * (log_mean - odds) - c * odds


def negative_binomial_cdf(y: Array, log_mean: Array, log_c: Array) -> Array:
    """P(Y ≤ k) = I_{c/(c + mean)}(c, k + 1)."""
    k = jnp.floor(jnp.maximum(y, 0.0))
    return jnp.where(y < 0, 0.0, lower_beta(jnp.exp(log_c), k + 1.0, log_c - log_mean))


def negative_binomial_sample(key: Array, log_mean: Array, log_c: Array) -> Array:
    """One draw."""
    c = jnp.exp(log_c)
    first, second = jax.random.split(key)
    share = jax.random.loggamma(first, c, dtype=log_mean.dtype) - log_c  # log of Gamma(c, c)
    return poisson_sample(second, log_mean + share)


class Count(Likelihood):
    """A whole number; its first parameter is multiplied by the exposure."""

    arguments = {"exposure": Argument("a number > 0", lambda e: e > 0)}
    support = "a whole number >= 0"
    outcome = "count"
    unit = "exposure"
    mean_name = "rate"
    ends = (0.0, np.inf)

    def __init__(self, **options: Any):
        super().__init__(**options)

    def _log_mean(self, f: Array) -> Array:
        """Log of the first parameter times the exposure."""
        return jnp.asarray(self.unlinked(f)[0], f.dtype) + jnp.log(self.given["exposure"])

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y >= 0) & (y == np.floor(y))

    def _typical(self, y: np.ndarray) -> tuple[float, float]:
        """The count per unit of exposure, kept above zero, and a concentration by moments."""
        exposure = np.broadcast_to(self.given["exposure"], y.shape)
        rate = (np.sum(y) if np.any(y > 0) else 0.5) / np.sum(exposure)
        expected = rate * exposure
        excess = np.mean((y - expected) ** 2) - np.mean(expected)
        return rate, float(np.clip(np.mean(expected**2) / max(excess, 1e-300), 0.1, 20.0))


class Poisson(Count):
    """A count: y ~ Poisson(exposure · rate(x)).

    Args:
        exposure: the column that holds the exposure of each observation.
        weight: the column that says how many times each observation counts.
    """

    links = {"rate": exp}

    def __init__(
        self,
        *,
        exposure: str | None = None,
        weight: str | None = None,
    ):
        super().__init__(exposure=exposure, weight=weight)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return poisson_log_prob(y, self._log_mean(f))

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Y μ − e^(μ + v/2) − log y!."""
        log_rate = self._log_mean(mean)
        return y * log_rate - jnp.exp(log_rate + 0.5 * cov[0, 0]) - gammaln(y + 1.0)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jnp.exp(self._log_mean(f))

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return jnp.exp(self._log_mean(f))

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """The rate is log-normal."""
        rate = jnp.exp(self._log_mean(mean) + 0.5 * cov[0, 0])
        return rate, rate + rate**2 * jnp.expm1(cov[0, 0])

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return poisson_cdf(y, self._log_mean(f))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return poisson_sample(key, self._log_mean(f))

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The mean count, kept above zero."""
        return {"rate": self._typical(y)[0]}


class NegativeBinomial(Count):
    """A count that varies more than a Poisson: variance m + m²/concentration, m the mean.

    Args:
        mean: a fixed mean, where it is not latent.
        concentration: a fixed concentration; learned when not given. The larger, the nearer a
            Poisson.
        exposure: the column that holds the exposure of each observation; the mean is per unit.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the mean by default.
    """

    links = {"mean": exp, "concentration": exp}
    default_latent = ("mean",)

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        *,
        exposure: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
    ):
        super().__init__(
            mean=mean, concentration=concentration, exposure=exposure, weight=weight, latent=latent
        )

    def _logs(self, f: Array) -> tuple[Array, Array]:
        return self._log_mean(f), jnp.asarray(self.unlinked(f)[1], f.dtype)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return negative_binomial_log_prob(y, *self._logs(f))

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jnp.exp(self._log_mean(f))

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        log_mean, log_c = self._logs(f)
        return jnp.exp(log_mean) + jnp.exp(2.0 * log_mean - log_c)

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """The mean is log-normal."""
        log_mean, log_c = self._logs(mean)
        expected = jnp.exp(log_mean + 0.5 * cov[0, 0])
        square = expected**2 * jnp.exp(cov[0, 0])
        return expected, expected + square * jnp.exp(-log_c) + expected**2 * jnp.expm1(cov[0, 0])

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return negative_binomial_cdf(y, *self._logs(f))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return negative_binomial_sample(key, *self._logs(f))

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Moments."""
        rate, concentration = self._typical(y)
        return {"mean": rate, "concentration": concentration}


class ZeroInflated(Count):
    """A count that is zero for sure with probability `zero`, the last parameter."""

    def __init__(self, **options: Any):
        super().__init__(**options)

    @abstractmethod
    def _count_log_prob(self, y: Array, f: Array) -> Array:
        """Of the count itself."""

    @abstractmethod
    def _count_cdf(self, y: Array, f: Array) -> Array:
        """Of the count itself."""

    @abstractmethod
    def _count_sample(self, key: Array, f: Array) -> Array:
        """Of the count itself."""

    @abstractmethod
    def _count_variance(self, f: Array) -> Array:
        """Of the count itself."""

    def _log_odds(self, f: Array) -> Array:
        """Of a sure zero."""
        return jnp.asarray(self.unlinked(f)[-1], f.dtype)

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log of zero · [y = 0] + (1 − zero) · count(y)."""
        odds, count = self._log_odds(f), self._count_log_prob(y, f)
        return jnp.where(y == 0, jnp.logaddexp(odds, count), count) - jax.nn.softplus(odds)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jax.nn.sigmoid(-self._log_odds(f)) * jnp.exp(self._log_mean(f))

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        odds, mean = self._log_odds(f), jnp.exp(self._log_mean(f))
        both = self._count_variance(f) + jax.nn.sigmoid(odds) * mean**2
        return jax.nn.sigmoid(-odds) * both

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        zero = jax.nn.sigmoid(self._log_odds(f))
        return jnp.where(y < 0, 0.0, zero + (1.0 - zero) * self._count_cdf(y, f))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        first, second = jax.random.split(key)
        sure = jax.random.bernoulli(first, jax.nn.sigmoid(self._log_odds(f)))
        return jnp.where(sure, 0.0, self._count_sample(second, f))

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Half of the zeros are sure; the count is that of the rest."""
        zero = float(np.clip(0.5 * np.mean(y == 0), 0.01, 0.99))
        rate, concentration = self._typical(y)
        first, *between, last = self.links
        return {first: rate / (1.0 - zero), last: zero, **dict.fromkeys(between, concentration)}


class ZeroInflatedPoisson(ZeroInflated):
    """A Poisson count with more zeros: y = 0 with probability zero(x), else Poisson(rate(x)).

    Args:
        rate: a fixed rate, where it is not latent.
        zero: a fixed probability of a sure zero, where it is not latent.
        exposure: the column that holds the exposure of each observation; the rate is per unit.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; both by default.
    """

    links = {"rate": exp, "zero": logistic}

    def __init__(
        self,
        rate: float | None = None,
        zero: float | None = None,
        *,
        exposure: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
    ):
        super().__init__(rate=rate, zero=zero, exposure=exposure, weight=weight, latent=latent)

    def _count_log_prob(self, y: Array, f: Array) -> Array:
        return poisson_log_prob(y, self._log_mean(f))

    def _count_cdf(self, y: Array, f: Array) -> Array:
        return poisson_cdf(y, self._log_mean(f))

    def _count_sample(self, key: Array, f: Array) -> Array:
        return poisson_sample(key, self._log_mean(f))

    def _count_variance(self, f: Array) -> Array:
        return jnp.exp(self._log_mean(f))

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Closed but for E[log(e^f₂ + e^−λ)], needed where y = 0."""
        log_rate = self._log_mean(mean)
        count = y * log_rate - jnp.exp(log_rate + 0.5 * cov[0, 0]) - gammaln(y + 1.0)
        none = expect(lambda f: jnp.logaddexp(f[1], -jnp.exp(self._log_mean(f))), mean, cov)
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
    """

    links = {"mean": exp, "concentration": exp, "zero": logistic}
    default_latent = ("mean", "zero")

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        zero: float | None = None,
        *,
        exposure: str | None = None,
        weight: str | None = None,
        latent: Latent = None,
    ):
        super().__init__(
            mean=mean,
            concentration=concentration,
            zero=zero,
            exposure=exposure,
            weight=weight,
            latent=latent,
        )

    def _logs(self, f: Array) -> tuple[Array, Array]:
        return self._log_mean(f), jnp.asarray(self.unlinked(f)[1], f.dtype)

    def _count_log_prob(self, y: Array, f: Array) -> Array:
        return negative_binomial_log_prob(y, *self._logs(f))

    def _count_cdf(self, y: Array, f: Array) -> Array:
        return negative_binomial_cdf(y, *self._logs(f))

    def _count_sample(self, key: Array, f: Array) -> Array:
        return negative_binomial_sample(key, *self._logs(f))

    def _count_variance(self, f: Array) -> Array:
        log_mean, log_c = self._logs(f)
        return jnp.exp(log_mean) + jnp.exp(2.0 * log_mean - log_c)
