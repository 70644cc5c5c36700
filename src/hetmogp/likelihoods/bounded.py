"""Outputs between zero and one: Beta, with and without values at the ends, and LogitNormal."""

from collections.abc import Mapping
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logit
from jaxtyping import Array

from ..quadrature import constant, expect, gauss_hermite
from .base import Latent, Likelihood, Warp
from .incomplete import lower_beta
from .limits import Limits
from .links import exp, logistic
from .real import Normal
from .special import expected_logistic, expected_softplus, log_gamma

__all__ = ["Beta", "LogitNormal", "ZeroOneInflatedBeta"]

TINY = 1e-12


def shapes(log_odds: Array, log_concentration: Array) -> tuple[Array, Array]:
    """The two shapes; 1 − σ(f) = σ(−f) keeps its digits where the mean is close to one."""
    concentration = jnp.exp(log_concentration)
    a, b = jax.nn.sigmoid(log_odds), jax.nn.sigmoid(-log_odds)
    return jnp.maximum(a * concentration, TINY), jnp.maximum(b * concentration, TINY)


def beta_log_density(y: Array, a: Array, b: Array) -> Array:
    """Log of y^(a−1) (1 − y)^(b−1) / B(a, b)."""
    log_beta = log_gamma(a) + log_gamma(b) - log_gamma(a + b)
    return (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y) - log_beta


class Beta(Likelihood):
    """A proportion: y ~ Beta(m c, (1 − m) c), with mean m(x) and concentration c(x).

    Args:
        mean: a fixed mean, where it is not latent.
        concentration: a fixed concentration, where it is not latent.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; both by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    links = {"mean": logistic, "concentration": exp}
    support = "a number strictly between 0 and 1"
    ends = (0.0, 1.0)

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            mean=mean, concentration=concentration, weight=weight, latent=latent, **limits
        )

    def _shapes(self, f: Array) -> tuple[Array, Array]:
        return shapes(*self.unlinked(f))

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return beta_log_density(y, *self._shapes(f))

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return self.parameters(f)[0]

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        mean, concentration = self.parameters(f)
        return mean * (1.0 - mean) / (1.0 + concentration)

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return lower_beta(*self._shapes(f), logit(jnp.clip(y, 0.0, 1.0)))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        a, b = self._shapes(f)
        return jax.random.beta(key, a, b, dtype=f.dtype)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y > 0) & (y < 1)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Moments: mean, and mean (1 − mean)/variance − 1, neither taken to an extreme."""
        return _moments(y)


class ZeroOneInflatedBeta(Likelihood):
    """A proportion that may be exactly 0 or 1.

    With probability edge(x) the value is at an end, and then 1 with probability `one`; otherwise
    it is Beta with mean mean(x) and a concentration.

    Args:
        mean: a fixed mean of the values between the ends, where it is not latent.
        concentration: a fixed concentration of those; learned when not given.
        edge: a fixed probability of an end, where it is not latent.
        one: a fixed probability that an end is 1; learned when not given.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; mean and edge by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    links = {"mean": logistic, "concentration": exp, "edge": logistic, "one": logistic}
    default_latent = ("mean", "edge")
    support = "a number from 0 to 1"
    ends = (0.0, 1.0)
    atoms = (0.0, 1.0)

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        edge: float | None = None,
        one: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(
            mean=mean,
            concentration=concentration,
            edge=edge,
            one=one,
            weight=weight,
            latent=latent,
            **limits,
        )

    def log_prob(self, y: Array, f: Array) -> Array:
        """A probability at the ends, a density between them."""
        log_odds, log_concentration, edge, one = self.unlinked(f)
        inside, at_end = _inside(y), (y <= 0) | (y >= 1)
        between = beta_log_density(inside, *shapes(log_odds, log_concentration))
        return jnp.where(
            at_end,
            -jax.nn.softplus(-edge) - jax.nn.softplus(jnp.where(y > 0.5, -one, one)),
            between - jax.nn.softplus(edge),
        )

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """The two parts add up, so each parameter function is integrated by itself."""
        _, log_concentration, edge, one = self.unlinked(mean)
        inside, at_end = _inside(y), (y <= 0) | (y >= 1)
        between = expect(
            lambda f: beta_log_density(inside, *shapes(f[0], log_concentration)),
            *(mean[:1], cov[:1, :1]),
        )
        at = -expected_softplus(-edge, cov[1, 1]) - jax.nn.softplus(jnp.where(y > 0.5, -one, one))
        return jnp.where(at_end, at, between - expected_softplus(edge, cov[1, 1]))

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        mean, _, edge, one = self.parameters(f)
        return edge * one + (1.0 - edge) * mean

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        mean, concentration, edge, one = self.parameters(f)
        square = mean**2 + mean * (1.0 - mean) / (1.0 + concentration)
        return edge * one + (1.0 - edge) * square - self.mean(f) ** 2

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        log_odds, log_concentration, *_ = self.unlinked(f)
        _, _, edge, one = self.parameters(f)
        at = logit(jnp.clip(y, 0.0, 1.0))
        between = lower_beta(*shapes(log_odds, log_concentration), at)
        below = edge * (1.0 - one) + (1.0 - edge) * between
        return jnp.where(y < 0, 0.0, jnp.where(y < 1, below, 1.0))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        log_odds, log_concentration, *_ = self.unlinked(f)
        _, _, edge, one = self.parameters(f)
        first, second, third = jax.random.split(key, 3)
        between = jax.random.beta(third, *shapes(log_odds, log_concentration), dtype=f.dtype)
        end = jax.random.bernoulli(second, one).astype(f.dtype)
        return jnp.where(jax.random.bernoulli(first, edge), end, between)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y >= 0) & (y <= 1)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Shares at the ends, and moments between them."""
        at_end = (y <= 0) | (y >= 1)
        inside = y[~at_end] if not at_end.all() else np.array([0.5])
        return {
            **_moments(inside),
            "edge": (np.sum(at_end) + 0.5) / (y.size + 1.0),
            "one": (np.sum(y >= 1) + 0.5) / (np.sum(at_end) + 1.0),
        }


def _moments(y: np.ndarray) -> dict[str, float]:
    """The mean and the concentration of a Beta that has the mean and the variance of y."""
    mean = float(np.mean(y))
    concentration = mean * (1.0 - mean) / max(float(np.var(y)), 1e-300) - 1.0
    return {"mean": mean, "concentration": float(np.clip(concentration, 0.5, 200.0))}


def _inside(y: Array) -> Array:
    """The value itself, or one half at the ends, where its density is not used."""
    return jnp.where((y <= 0) | (y >= 1), 0.5, y)


class LogitNormal(Normal):
    """A proportion, normal on the logit scale: log(y/(1 − y)) ~ N(mean(x), scale²).

    Args:
        scale: the standard deviation of the noise on that scale; learned when not given.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the mean by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    default_latent = ("mean",)
    support = "a number strictly between 0 and 1"
    ends = (0.0, 1.0)
    warp = Warp(logit, lambda y: -jnp.log(y) - jnp.log1p(-y), jax.nn.sigmoid)

    def __init__(
        self,
        scale: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(scale=scale, weight=weight, latent=latent, **limits)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return expected_logistic(*self._normal(f))[0]

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return _logistic_variance(*self._normal(f))

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """Logit-normal too, of variance v + scale²."""
        total = cov[0, 0] + self._normal(mean)[1]
        return expected_logistic(mean[0], total)[0], _logistic_variance(mean[0], total)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y > 0) & (y < 1)


def _logistic_variance(mean: Array, variance: Array) -> Array:
    """var[σ(f)], f ~ N(mean, variance), by quadrature."""
    nodes, weights = map(constant, gauss_hermite(64))
    p = jax.nn.sigmoid(mean + jnp.sqrt(variance) * nodes)
    return weights @ (p - weights @ p) ** 2
