"""Straight lines whose slopes have a prior of fixed width, for reported effects."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Domain
from .leaf import Leaf

__all__ = ["Slopes"]


class Slopes(Leaf):
    """1 + Σ (x − c)(z − c)/ℓ²: a line per input, with slopes β ~ N(0, 1/ℓ²), c the data's centre.

    The 1 is the variance of an intercept. The constant of a parameter function cannot take its
    place, for it is learned as a number without an error. Slopes would then be too certain where
    the most informative rows, such as those of large counts, are not centred at c.

    It is `Linear` with nothing to learn. A learned scale would shrink to zero wherever a slope is
    smaller than its error, and the slope would be reported as certainly zero. So the width of the
    prior is fixed, and so is the weight of the latent. `HetMOGP(linear=...)` makes these.

    Args:
        lengthscale: for each input, the distance over which a line rises by one prior standard
            deviation.
        active_dims: the inputs that it uses.
    """

    per_input = ("lengthscale", "centre")
    own_scale: ClassVar[bool] = True

    centre: Any = eqx.field(default=0.0, static=True)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return 1.0 + self._scaled(X) @ self._scaled(Z).T

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return 1.0 + jnp.sum(self._scaled(X) ** 2, axis=1)

    def spanning(self, X: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "M p"]:
        """See `Kernel.spanning`: the centre, and a step from it along each input."""
        dims = self.active_dims or tuple(range(X.shape[1]))
        Z = np.repeat(X[:1], 1 + len(dims), axis=0)
        Z[:, list(dims)] = np.asarray(self.centre) + np.eye(1 + len(dims))[:, 1:]
        return Z

    def basis(self, domain: Domain) -> Any:
        """See `Kernel.basis`: 1 and (x − c)/ℓ."""
        return _Lines(self)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        moved = np.asarray(self.centre) * self._active(scale) + self._active(centre)
        return dataclasses.replace(super().rescaled(scale, centre), centre=tuple(moved.tolist()))

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        return f"Slopes({', '.join(self._active(np.array(list(units), dtype=object)))})"

    def _scaled(self, X: Array) -> Array:
        # Inducing inputs that already span all lines do not improve by moving.
        return jax.lax.stop_gradient(self._select(X) - np.asarray(self.centre)) / self.lengthscale


class _Lines(eqx.Module):
    """An intercept, and one straight line per input."""

    kernel: Slopes

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N G"]:
        return jnp.pad(self.kernel._scaled(X), ((0, 0), (1, 0)), constant_values=1.0)
