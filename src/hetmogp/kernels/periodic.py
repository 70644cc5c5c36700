"""Functions that repeat."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import held
from .base import positive
from .leaf import Leaf, with_unit

__all__ = ["Periodic"]


class Periodic(Leaf):
    """exp(−2 Σ sin²(π (x − z)/period)/ℓ²): functions that repeat.

    The lengthscale is a fraction of the phase and has no unit; the period has the inputs' unit.

    Args:
        lengthscale: roughness within one period; starts at 1.
        active_dims: see `RBF`.
        ard: see `RBF`.
        period: where learning of the period starts. Give it whenever it is known (a day, a year):
            a period is hard to find from afar. `None` starts at the inputs' spread.
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
