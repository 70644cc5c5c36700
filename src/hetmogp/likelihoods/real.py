"""Real-valued outputs: Gaussian and Student-t, with one noise for all inputs or one at each."""

from collections.abc import Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float

from ..quadrature import constant, gauss_hermite
from .base import Latent, Likelihood
from .incomplete import log_student_tail
from .limits import Limits, log_difference
from .links import exp, identity
from .special import log_complement, log_rising

__all__ = ["Gaussian", "HetGaussian", "HetStudentT", "StudentT"]

LOG_2PI = float(np.log(2.0 * np.pi))
NEAR = 1e-5  # scales from its centre, where the distribution function of a t is straight


def normal_log_interval(a: Array, b: Array) -> Array:
    """Log P(a < Z ≤ b), Z standard normal, computed in the tail where it keeps its digits."""
    upper = a > 0
    low, high = jnp.where(upper, -b, a), jnp.where(upper, -a, b)
    return log_difference(log_ndtr(high), log_ndtr(low))


def normal_log_density(y: Array, mean: Array, variance: Array) -> Array:
    """Log N(y; mean, variance)."""
    return -0.5 * (LOG_2PI + jnp.log(variance) + (y - mean) ** 2 / variance)


class Normal(Likelihood):
    """An output that is normal, on the scale of its `warp` where it has one.

    Its second parameter is the standard deviation, unless a subclass writes its own `_normal`.
    """

    links = {"mean": identity, "scale": exp}

    def __init__(self, **options: Any):
        super().__init__(**options)

    def _normal(self, f: Array) -> tuple[Array, Array]:
        """Mean and variance on that scale."""
        mean, scale = self.parameters(f)
        return mean, jnp.square(scale)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        z, log_slope = self.warped(y)
        return normal_log_density(z, *self._normal(f)) + log_slope

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """Log N(y; μ, σ²) − v/2σ²."""
        return self.log_prob(y, mean) - 0.5 * cov[0, 0] / self._normal(mean)[1]

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return self._normal(f)[0]

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return self._normal(f)[1]

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        mean, variance = self._normal(f)
        return ndtr((self.warped(jnp.clip(y, *self.ends))[0] - mean) / jnp.sqrt(variance))

    def _standard(self, y: Array, f: Array) -> Array:
        """How many standard deviations y is above the mean."""
        mean, variance = self._normal(f)
        return (self.warped(y)[0] - mean) / jnp.sqrt(variance)

    def log_cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_cdf`."""
        return log_ndtr(self._standard(y, f))

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_survival`."""
        return log_ndtr(-self._standard(y, f))

    def log_interval(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_interval`."""
        return normal_log_interval(self._standard(a, f), self._standard(b, f))

    def log_cell(self, a: Array, b: Array, f: Array) -> Array:
        """See `Likelihood.log_cell`."""
        if self.warp is None:
            return self.log_interval(a, b, f)
        return super().log_cell(a, b, f)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        mean, variance = self._normal(f)
        z = mean + jnp.sqrt(variance) * jax.random.normal(key, dtype=f.dtype)
        return z if self.warp is None else self.warp.back(z)

    def mixture(self, mean: Array, cov: Array) -> tuple[Array, Array, Array] | None:
        """N(μ, v + σ²), or a mixture over a latent σ."""
        if self.latent == tuple(self.links):  # normal given f₂
            weights, centre, rest, f2 = _given_second(mean, cov, 48)
            noise = jax.vmap(lambda f2: self._normal(jnp.stack([mean[0], f2]))[1])(f2)
            return weights, centre, rest + noise
        if self.latent != ("mean",):
            return None
        return jnp.ones(1, mean.dtype), mean[:1], cov[0, :1] + self._normal(mean)[1]

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The mean, and a noise of a third of the variance."""
        z = np.asarray(self.warped(y)[0])
        mean, noise = self.links
        third = _spread(z) / 3
        return {mean: np.mean(z), noise: third if noise == "variance" else np.sqrt(third)}


class Gaussian(Normal):
    """A real output: y ~ N(mean(x), scale²).

    Args:
        scale: the standard deviation of the noise; learned when not given.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the mean by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    default_latent = ("mean",)

    def __init__(
        self,
        scale: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(scale=scale, weight=weight, latent=latent, **limits)


class HetGaussian(Normal):
    """A real output with its own noise at every input: y ~ N(mean(x), variance(x)).

    Args:
        weight: the column that says how many times each observation counts.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    links = {"mean": identity, "variance": exp}

    def __init__(self, *, weight: str | None = None, **limits: Unpack[Limits]):
        super().__init__(weight=weight, **limits)

    def _normal(self, f: Array) -> tuple[Array, Array]:
        mean, variance = self.parameters(f)
        return mean, variance

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """With c = cov(f₁, f₂): E[(y − f₁)² e^−f₂] = e^(−μ₂ + v₂/2) ((y − μ₁ + c)² + v₁)."""
        precision = jnp.exp(-mean[1] + 0.5 * cov[1, 1])
        square = (y - mean[0] + cov[0, 1]) ** 2 + cov[0, 0]
        return -0.5 * (LOG_2PI + mean[1] + precision * square)


class Student(Likelihood):
    """location + scale · t(df): what the two below share."""

    links = {"location": identity, "scale": exp, "df": exp}

    def __init__(self, **options: Any):
        super().__init__(**options)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        location, scale, df = self.parameters(f)
        log_tail = jnp.log1p(((y - location) / scale) ** 2 / df)
        return _log_normaliser(df) - jnp.log(scale) - 0.5 * (df + 1.0) * log_tail

    def mean(self, f: Array) -> Array:
        """The location; where df ≤ 1 there is no mean and this is its median."""
        return self.parameters(f)[0]

    def variance(self, f: Array) -> Array:
        """scale² df/(df − 2), infinite for df ≤ 2."""
        _, scale, df = self.parameters(f)
        df = jnp.asarray(df, f.dtype)
        return jnp.where(df > 2, scale**2 * df / jnp.where(df > 2, df - 2, 1.0), jnp.inf)

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return jnp.exp(self.log_cdf(y, f))

    def log_cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_cdf`."""
        location, scale, df = self.parameters(f)
        z, df = (y - location) / scale, jnp.asarray(df, f.dtype)
        near = jnp.abs(z) < NEAR  # where it is a straight line, and a logarithm of z has no slope
        log_tail = log_student_tail(df, jnp.log(jnp.abs(jnp.where(near, 1.0, z))))
        line = jnp.log1p(2.0 * z * jnp.exp(_log_normaliser(df))) - float(np.log(2.0))
        return jnp.where(near, line, jnp.where(z > 0, log_complement(log_tail), log_tail))

    def log_survival(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_survival`: that of the mirror image."""
        return self.log_cdf(2.0 * self.parameters(f)[0] - y, f)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        location, scale, df = self.parameters(f)
        return location + scale * jax.random.t(key, jnp.asarray(df, f.dtype), dtype=f.dtype)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """The median, a quarter of the interquartile range, and four degrees of freedom."""
        quarter = 0.25 * float(np.subtract(*np.percentile(y, [75, 25])))
        return {"location": np.median(y), "scale": quarter or np.sqrt(_spread(y) / 3), "df": 4.0}

    def mixture(self, mean: Array, cov: Array) -> tuple[Array, Array, Array] | None:
        """A t is a Gaussian of precision λ/scale², λ ~ Gamma(df/2, df/2): a mixture over λ.

        Where the scale is latent too, each λ stands with each of a few values of the scale.
        """
        if self.latent == ("location",):
            _, scale, df = self.parameters(mean)
            weights, log_lambda = _precisions(df, 161, mean.dtype)
            centres = jnp.broadcast_to(mean[0], weights.shape)
            return weights, centres, cov[0, 0] + scale**2 * jnp.exp(-log_lambda)
        if self.latent != ("location", "scale"):
            return None
        weights, log_lambda = _precisions(self.parameters(mean)[2], 61, mean.dtype)
        outer, centre, rest, f2 = _given_second(mean, cov, 24)
        noise = jnp.exp(2.0 * f2[:, None] - log_lambda)
        shape = noise.shape
        return (
            (outer[:, None] * weights).ravel(),
            jnp.broadcast_to(centre[:, None], shape).ravel(),
            (rest + noise).ravel(),
        )


class StudentT(Student):
    """A real output with heavy tails: y ~ location(x) + scale · t(df).

    Args:
        scale: the scale of the noise; learned when not given.
        df: the degrees of freedom; learned when not given.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; the location by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    default_latent = ("location",)

    def __init__(
        self,
        scale: float | None = None,
        df: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(scale=scale, df=df, weight=weight, latent=latent, **limits)


class HetStudentT(Student):
    """A real output with heavy tails and its own noise at every input: location(x) + scale(x) · t.

    Args:
        df: the degrees of freedom; learned when not given.
        weight: the column that says how many times each observation counts.
        latent: the parameters that are functions of the input; location and scale by default.
        **limits: `lower`, `upper` and `step`, for values known in part.
    """

    default_latent = ("location", "scale")

    def __init__(
        self,
        df: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
        **limits: Unpack[Limits],
    ):
        super().__init__(df=df, weight=weight, latent=latent, **limits)


def _log_normaliser(df: Array | float) -> Array:
    """log Γ((df + 1)/2) − log Γ(df/2) − ½ log(π df), of which the first two cancel for large df."""
    half = 0.5 * jnp.asarray(df)
    return log_rising(half, jnp.asarray(0.5)) - 0.5 * float(np.log(2.0 * np.pi))


def _precisions(df: Array | float, n: int, dtype: Any) -> tuple[Array, Array]:
    """Weights of values of log λ, λ ~ Gamma(df/2, df/2)."""
    left = -4.0 - 40.0 / df
    right = jnp.log(1.0 + 9.0 * jnp.sqrt(2.0 / df) + 60.0 / df)
    share = jnp.linspace(0.0, 1.0, n, dtype=dtype)
    tail = left - 46.0 * share[:0:-2]  # few nodes far out, which explain a distant y
    t = jnp.concatenate([tail, left + (right - left) * share])
    log_mass = 0.5 * df * (t - jnp.exp(t)) + jnp.log(
        0.5 * (jnp.append(t[1:], t[-1]) - jnp.append(t[:1], t[:-1]))
    )
    return jnp.exp(log_mass - logsumexp(log_mass)), t


def _given_second(mean: Array, cov: Array, n: int) -> tuple[Array, Array, Array, Array]:
    """f₁ given each of n values of f₂: their weights, the means and the variance of f₁, and f₂."""
    nodes, weights = map(constant, gauss_hermite(n))
    v2 = jnp.maximum(cov[1, 1], 1e-30)
    f2 = mean[1] + jnp.sqrt(v2) * nodes
    centre = mean[0] + cov[0, 1] / v2 * (f2 - mean[1])
    return weights, centre, jnp.maximum(cov[0, 0] - cov[0, 1] ** 2 / v2, 0.0), f2


def _spread(y: Float[np.ndarray, " N"]) -> float:
    """The variance of y; if y does not vary, its squared size, or one."""
    return float(np.var(y)) or float(np.max(np.abs(y), initial=0.0)) ** 2 or 1.0
