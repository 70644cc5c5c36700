"""Outputs that are directions: the von Mises distribution."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, i1e, ndtr
from jaxtyping import Array

from ..quadrature import place, standard_nodes
from .base import Likelihood
from .links import identity
from .real import LOG_2PI
from .starts import Start

__all__ = ["VonMises"]

SERIES = 60  # terms of the Fourier series of the distribution function, enough up to κ = WIDE
WIDE = 50.0


class VonMises(Likelihood):
    """A direction in radians, from −π to π: p(y) ∝ exp(κ cos(y − μ)).

    Its two parameter functions are the components of the vector κ (cos μ, sin μ): its direction is
    the mean direction, its length the concentration. In these the log density is concave, and it
    does not depend on where the circle is cut open, as it would with an angle for a parameter.

    `mean` is the mean direction and `std` the circular standard deviation √(−2 log R), R the length
    of the mean of (cos y, sin y). Quantiles and the distribution function count from −π; an
    interval is the arc around the mean direction, from lower to upper, and may reach beyond ±π.

    Args:
        weight: the column that says how many times each observation counts.
    """

    links = {"cosine": identity, "sine": identity}
    support = "an angle in radians, from -pi to pi"
    outcome = "circular"
    ends = (-np.pi, np.pi)

    def __init__(self, *, weight: str | None = None):
        super().__init__(weight=weight)

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return f[0] * jnp.cos(y) + f[1] * jnp.sin(y) - LOG_2PI - _log_i0(_length(f))

    def mean(self, f: Array) -> Array:
        """The mean direction."""
        return jnp.arctan2(f[1], f[0])

    def variance(self, f: Array) -> Array:
        """−2 log R: the square of the circular standard deviation."""
        return -2.0 * jnp.log(_resultant(_length(f)))

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """From the mean of (cos y, sin y), whose direction and length are asked for."""
        points, weights = standard_nodes(2, n=20)

        def vector(f: Array) -> Array:
            return f * _resultant(_length(f)) / _length(f)

        cosine, sine = weights @ jax.vmap(vector)(place(points, mean, cov))
        return jnp.arctan2(sine, cosine), -jnp.log(cosine**2 + sine**2)

    def cdf(self, y: Array, f: Array) -> Array:
        """The probability of the arc from −π to y."""
        turned = jnp.arctan2(f[1], f[0])

        def up_to(angle: Array) -> Array:  # from the point opposite the mean, for any angle
            turns = jnp.floor((angle + jnp.pi) / (2.0 * jnp.pi))
            return turns + _centred_cdf(angle - 2.0 * jnp.pi * turns, _length(f))

        y = jnp.clip(y, -jnp.pi, jnp.pi)
        return jnp.clip(up_to(y - turned) - up_to(-jnp.pi - turned), 0.0, 1.0)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        from numpyro.distributions import VonMises as Numpyro  # slow to import, seldom needed

        draw = Numpyro(self.mean(f), jnp.maximum(_length(f), 1e-6)).sample(key)
        return jnp.asarray(draw, f.dtype)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return np.abs(y) <= np.pi * (1.0 + 1e-12)

    def difference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The shorter way round, from −π to π."""
        return np.angle(np.exp(1j * (a - b)))

    def within(self, y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Which directions lie on the arc from lower to upper, which may reach beyond ±π."""
        turns = 2.0 * np.pi * np.arange(-1, 2)[:, None]
        return ((lower <= y + turns) & (y + turns <= upper)).any(axis=0)

    def turned(
        self, angle: np.ndarray, mean: np.ndarray, factor: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The vector κ (cos μ, sin μ), turned back by the angle."""
        c, s = np.cos(angle), np.sin(angle)
        turn = np.stack([np.stack([c, s], axis=1), np.stack([-s, c], axis=1)], axis=1)
        return np.einsum("nij,nj->ni", turn, mean), turn @ factor

    def start(self, y: np.ndarray) -> Start:
        """The mean direction, and the concentration that belongs to the length R of the mean."""
        c, s = float(np.mean(np.cos(y))), float(np.mean(np.sin(y)))
        R = float(np.clip(np.hypot(c, s), 1e-3, 0.99))
        kappa = R * (2.0 - R**2) / (1.0 - R**2)  # Banerjee et al. (2005)
        return Start(
            kappa * np.array([c, s]) / max(np.hypot(c, s), 1e-3), np.full(2, 1 + kappa), {}
        )


def _length(f: Array) -> Array:
    return jnp.sqrt(jnp.sum(f**2) + 1e-30)


def _log_i0(kappa: Array) -> Array:
    return kappa + jnp.log(i0e(kappa))


def _resultant(kappa: Array) -> Array:
    """R = I₁(κ)/I₀(κ)."""
    return jnp.maximum(i1e(kappa) / i0e(kappa), 1e-30)


def _centred_cdf(x: Array, kappa: Array) -> Array:
    """The probability of (−π, x) around a mean direction of zero, for x in (−π, π).

    Up to κ = 50 by the Fourier series ½ + x/2π + Σ (I_j/I₀) sin(jx)/(πj), the Bessel ratios by
    backward recurrence; beyond, s = 2 sin(x/2) is nearly normal with variance 1/κ, and its density
    is expanded to s⁴.
    """
    small = jnp.minimum(kappa, WIDE)

    twice = 2.0 * jnp.cos(x)
    sine, next_sine = jnp.sin(SERIES * x), jnp.sin((SERIES + 1) * x)  # of jx and (j + 1)x
    ratio, total = jnp.zeros_like(x), jnp.zeros_like(x)  # I_{j+1}/I_j, Σ_{i>j} (I_i/I_j) sin(ix)/i
    for j in range(SERIES, 0, -1):  # unrolled, so that it is one pass over memory
        ratio = 1.0 / (2.0 * j / small + ratio)  # I_j/I_{j−1}
        total = ratio * (sine / j + total)
        sine, next_sine = twice * sine - next_sine, sine
    series = 0.5 + x / (2.0 * jnp.pi) + total / jnp.pi

    large = jnp.maximum(kappa, WIDE)
    z = 2.0 * jnp.sqrt(large) * jnp.sin(0.5 * x)
    a, b = 1.0 / (8.0 * large), 3.0 / (128.0 * large**2)
    density = jnp.exp(-0.5 * z**2 - 0.5 * LOG_2PI)
    whole = 1.0 + a + 3.0 * b
    normal = ndtr(z) - density * (a * z + b * (z**3 + 3.0 * z)) / whole
    return jnp.where(kappa > WIDE, normal, series)
