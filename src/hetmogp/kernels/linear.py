"""Straight lines."""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Domain
from .leaf import Leaf

__all__ = ["Linear"]


class Linear(Leaf):
    """Σ (x − c)(z − c)/ℓ²: straight lines, with c the centre of the data. Add it to another kernel.

    Unlike other kernels it has no unit variance: it grows from zero at c to one at a distance ℓ.
    """

    per_input = ("lengthscale", "centre")

    centre: Any = eqx.field(default=0.0, static=True)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return self._scaled(X) @ self._scaled(Z).T

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return jnp.sum(self._scaled(X) ** 2, axis=1)

    def basis(self, domain: Domain) -> Any:
        """See `Kernel.basis`: (x − c)/ℓ."""
        return _Lines(self)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        moved = np.asarray(self.centre) * self._active(scale) + self._active(centre)
        return dataclasses.replace(super().rescaled(scale, centre), centre=tuple(moved.tolist()))

    def _scaled(self, X: Array) -> Array:
        return (self._select(X) - np.asarray(self.centre)) / self.lengthscale


class _Lines(eqx.Module):
    """One straight line per input."""

    kernel: Linear

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N G"]:
        return self.kernel._scaled(X)
