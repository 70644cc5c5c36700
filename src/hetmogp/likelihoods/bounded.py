"""Outputs between zero and one: Beta."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln
from jaxtyping import Array

from .base import Likelihood, exp, logistic

__all__ = ["Beta"]

TINY = 1e-12


class Beta(Likelihood):
    """A proportion: y ~ Beta(m c, (1 − m) c), with mean m(x) and concentration c(x).

    Args:
        mean: a fixed mean, where it is not latent.
        concentration: a fixed concentration, where it is not latent.
        latent: the parameters that are functions of the input; both by default.
    """

    links = {"mean": logistic, "concentration": exp}
    support = "a number strictly between 0 and 1"

    def __init__(
        self,
        mean: float | None = None,
        concentration: float | None = None,
        *,
        latent: tuple[str, ...] | None = None,
    ):
        super().__init__(latent=latent, mean=mean, concentration=concentration)

    def _shapes(self, f: Array) -> tuple[Array, Array]:
        mean, concentration = self.parameters(f)
        # 1 − σ(f) = σ(−f) keeps its digits where the mean is close to one.
        rest = jax.nn.sigmoid(-f[0]) if "mean" in self.latent else 1.0 - mean
        return jnp.maximum(mean * concentration, TINY), jnp.maximum(rest * concentration, TINY)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        a, b = self._shapes(f)
        return (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y) - betaln(a, b)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return self.parameters(f)[0]

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        mean, concentration = self.parameters(f)
        return mean * (1.0 - mean) / (1.0 + concentration)

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        a, b = self._shapes(f)
        return betainc(a, b, jnp.clip(y, 0.0, 1.0))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        a, b = self._shapes(f)
        return jax.random.beta(key, a, b, dtype=f.dtype)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y > 0) & (y < 1)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """Moments: mean, and mean (1 − mean)/variance − 1, neither taken to an extreme."""
        mean = float(np.mean(y))
        concentration = mean * (1.0 - mean) / max(float(np.var(y)), 1e-300) - 1.0
        return {"mean": mean, "concentration": float(np.clip(concentration, 0.5, 200.0))}
