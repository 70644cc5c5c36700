"""Outputs that are yes or no: Bernoulli, and Binomial for how often out of several times."""

from collections.abc import Mapping
from typing import Any, Literal, Self, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, ndtr
from jaxtyping import Array
from scipy.special import ndtri

from .base import Likelihood
from .incomplete import lower_beta
from .limits import Argument, Limits
from .links import logistic
from .reading import yes_or_no_in
from .special import expected_logistic, expected_softplus
from .starts import Start

__all__ = ["Bernoulli", "Binomial"]


class Bernoulli(Likelihood):
    """A yes/no output: y ~ Bernoulli(probability(x)).

    Values are 0 and 1, False and True, or text: no and yes, false and true, in any case. Inside the
    package, and in everything it returns, they are 0 and 1.

    Args:
        link: "logit" or "probit".
        weight: the column that says how many times each observation counts.
    """

    links = {"probability": logistic}
    support = "0 or 1, or the words no and yes, false and true (recode two other values as these)"
    outcome = "yes/no"
    levels = (0, 1)
    mean_name = "probability"
    ends = (0.0, 1.0)

    link: str = eqx.field(static=True)

    def __init__(self, link: Literal["logit", "probit"] = "logit", *, weight: str | None = None):
        if link not in ("logit", "probit"):
            raise ValueError(f'Bernoulli: link must be "logit" or "probit", not {link!r}')
        super().__init__(weight=weight)
        self.link = link

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        signed = (2.0 * y - 1.0) * f[0]
        return jax.nn.log_sigmoid(signed) if self.link == "logit" else log_ndtr(signed)

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array | None:
        """For the logit, y μ − E[log(1 + e^f)]."""
        if self.link == "probit":
            return None
        return y * mean[0] - expected_softplus(mean[0], cov[0, 0])

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jax.nn.sigmoid(f[0]) if self.link == "logit" else ndtr(f[0])

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        p = self.mean(f)
        return p * (1.0 - p)

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """E[Φ(f)] = Φ(μ / √(1 + v)) for the probit, a mixture of such for the logit."""
        if self.link == "logit":
            yes, no = expected_logistic(mean[0], cov[0, 0])
        else:
            t = mean[0] / jnp.sqrt(1.0 + cov[0, 0])
            yes, no = ndtr(t), ndtr(-t)
        return yes, yes * no

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return jnp.where(y < 0, 0.0, jnp.where(y < 1, 1.0 - self.mean(f), 1.0))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return jax.random.bernoulli(key, self.mean(f)).astype(f.dtype)

    def observe(self, column: np.ndarray) -> tuple[Self, np.ndarray]:
        """Read numbers or words."""
        return self, yes_or_no_in(column)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y == 0) | (y == 1)

    def start(self, y: np.ndarray) -> Start:
        """The link of the share of ones, kept off the ends."""
        p = (np.sum(y) + 0.5) / (y.size + 1.0)
        constant = np.log(p / (1.0 - p)) if self.link == "logit" else ndtri(p)
        return Start(np.array([constant]), np.ones(1), {})

    @property
    def options(self) -> dict[str, Any]:
        """See `Likelihood.options`."""
        return ({} if self.link == "logit" else {"link": self.link}) | super().options


class Binomial(Likelihood):
    """How many of several trials came out yes: y ~ Binomial(trials, probability(x)).

    Args:
        trials: the column that holds the number of trials of each observation, or one number for
            all. Predictions are for one trial, a proportion, unless `given` says how many.
        weight: the column that says how many times each observation counts.
        **limits: `lower` and `upper`, for values known in part.
    """

    links = {"probability": logistic}
    arguments = {
        "trials": Argument(
            "a whole number >= 0", lambda n: (n >= 0) & (n == np.floor(n)), constant=True
        )
    }
    support = "a whole number from 0 to the number of trials"
    outcome = "count"
    unit = "trials"
    mean_name = "probability"
    ends = (0.0, np.inf)

    def __init__(
        self,
        trials: int | str | None = None,
        *,
        weight: str | None = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(trials=trials, weight=weight, **limits)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        n = self.given["trials"]
        return _log_choices(n, y) + y * f[0] - n * jax.nn.softplus(f[0])

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Log C(n, y) + y μ − n E[log(1 + e^f)]."""
        n = self.given["trials"]
        return _log_choices(n, y) + y * mean[0] - n * expected_softplus(mean[0], cov[0, 0])

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return self.given["trials"] * jax.nn.sigmoid(f[0])

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return self.given["trials"] * jax.nn.sigmoid(f[0]) * jax.nn.sigmoid(-f[0])

    def cdf(self, y: Array, f: Array) -> Array:
        """P(Y ≤ k) = I_{1−p}(n − k, k + 1)."""
        n, k = self.given["trials"], jnp.floor(y)
        inside = (k >= 0) & (k < n)
        a, b = jnp.where(inside, n - k, 1.0), jnp.where(inside, k + 1.0, 1.0)
        return jnp.where(inside, lower_beta(a, b, -f[0]), jnp.where(k < 0, 0.0, 1.0))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        n = jnp.asarray(self.given["trials"], f.dtype)
        return jax.random.binomial(key, n, jax.nn.sigmoid(f[0]), dtype=f.dtype)

    def sample_many(self, generator: np.random.Generator, f: np.ndarray) -> np.ndarray:
        """See `Likelihood.sample_many`."""
        n = np.asarray(self.given["trials"]).astype(int)
        return generator.binomial(n, np.asarray(jax.nn.sigmoid(f[0]))).astype(float)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y >= 0) & (y == np.floor(y)) & (y <= np.asarray(self.given["trials"]))

    def support_for(self, given: Mapping[str, float]) -> str:
        """See `Likelihood.support_for`."""
        if self.unit_column is None:
            return self.support
        if "trials" in given:
            return (
                f"{self.support} (trials, in column {self.unit_column!r}, is {given['trials']:g})"
            )
        return f"{self.support} (trials are taken as 1 where {self.unit_column!r} is not given)"

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The share of yes among all trials, kept off the ends."""
        n = float(np.sum(np.broadcast_to(self.given["trials"], y.shape)))
        return {"probability": (np.sum(y) + 0.5) / (n + 1.0)}


def _log_choices(n: Array, y: Array) -> Array:
    return gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)
