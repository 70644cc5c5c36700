"""Functions that repeat."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ive

from . import held
from .base import Domain, positive
from .leaf import Leaf, with_unit

__all__ = ["Periodic"]


LEFT = 1e-10  # the share of the variance that a series may lack
MOST_WAVES = 4096  # the most waves of a series that are drawn from


class Periodic(Leaf):
    """exp(−2 Σ sin²(π (x − z)/period)/ℓ²): functions that repeat.

    The lengthscale is a fraction of the phase and has no unit; the period has the inputs' unit.

    Args:
        lengthscale: the roughness within one period; 1 at the start by default.
        active_dims: see `RBF`.
        ard: see `RBF`.
        period: its initial value. Give it whenever it is known (a day, a year), because learning
            finds only a period near the initial one. `None` starts at the inputs' spread.
        fixed: see `RBF`; `("period",)` for a period that is known exactly.
    """

    per_input = ("lengthscale", "period")

    period: Any = eqx.field(default=None, converter=positive)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`. 2 sin²(a/2) = 1 − cos a, and cos(a − b) is a matrix product."""
        X, Z = self._select(X), self._select(Z)
        phase_x, phase_z = (2.0 * jnp.pi * V / self.period for V in (X, Z))
        weight = jnp.broadcast_to(1.0 / self.lengthscale, (X.shape[1],))  # 1/ℓ
        waves_x = jnp.concatenate([jnp.cos(phase_x) * weight, jnp.sin(phase_x) * weight], axis=1)
        waves_z = jnp.concatenate([jnp.cos(phase_z) * weight, jnp.sin(phase_z) * weight], axis=1)
        return jnp.exp(jnp.minimum(waves_x @ waves_z.T - jnp.sum(weight**2), 0.0))

    def basis(self, domain: Domain) -> Any:
        """See `Kernel.basis`: its Fourier series, for one input."""
        if self._width(domain.p) != 1:
            return None
        shares = _shares(float(np.ravel(self.lengthscale)[0]), domain.most // 2)
        if shares.sum() < 1.0 - LEFT:
            return None
        turns = np.arange(len(shares))[:, None] * 2.0 * np.pi / np.ravel(self.period)
        return _Series(*map(jnp.asarray, (self._spread_out(turns, domain.p), np.sqrt(shares))))

    def chances(self, p: int) -> int:
        """See `Kernel.chances`."""
        return self._width(p)

    def frequencies(
        self, uniforms: Float[np.ndarray, "H c"], p: int
    ) -> tuple[Float[np.ndarray, "H p"], Float[np.ndarray, " H"]]:
        """See `Kernel.frequencies`: 2πj/period, j drawn by the weights of the Fourier series."""
        each = np.broadcast_to(np.ravel(self.lengthscale), uniforms.shape[1])
        waves = np.empty(uniforms.shape)
        for d, (u, lengthscale) in enumerate(zip(uniforms.T, each, strict=True)):
            ends = np.cumsum(_shares(float(lengthscale), MOST_WAVES))
            # Uniform numbers in the upper half give positive frequencies, the others negative ones.
            j = np.searchsorted(ends, np.abs(2.0 * u - 1.0) * ends[-1])
            waves[:, d] = np.sign(u - 0.5) * j
        turns = waves * 2.0 * np.pi / np.asarray(self.period)
        return self._spread_out(turns, p), np.ones(len(waves))

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        kernel = self._bound_to(columns)
        period = kernel._active(spread)
        if self.period is not None:
            period = self.period / kernel._active(scale)
        lengthscale = np.broadcast_to(
            1.0 if self.lengthscale is None else self.lengthscale, period.shape
        )
        return dataclasses.replace(
            kernel,
            lengthscale=self._one_or_each(lengthscale),
            period=period,
        )

    def _number_in_words(self, unit: str, *values: float) -> str:
        lengthscale, period = values
        return f"every {with_unit(period, unit)}, lengthscale {lengthscale:.3g}"

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`. Only the period has a unit."""
        if self.period is None:
            return self
        period = np.asarray(self.period) * self._active(np.asarray(scale))
        return held.as_given(dataclasses.replace(self, period=period))


def _shares(lengthscale: float, most: int) -> Float[np.ndarray, " J"]:
    """The weights of cos(2πjd/period) in the Fourier series: Bessel functions of 1/ℓ²."""
    a = lengthscale**-2.0
    j = np.arange(min(most, int(10.0 + 12.0 * np.sqrt(a + 1.0))))
    return np.where(j > 0, 2.0, 1.0) * ive(j, a)


class _Series(eqx.Module):
    """The waves of a Fourier series."""

    frequencies: Float[Array, "J p"]
    amplitudes: Float[Array, " J"]

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N G"]:
        phase = X @ self.frequencies.T
        waves = [self.amplitudes * jnp.cos(phase), self.amplitudes * jnp.sin(phase)]
        return jnp.concatenate(waves, axis=1)
