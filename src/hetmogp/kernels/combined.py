"""Sums and products of kernels."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Kernel, positive

__all__ = ["Product", "Sum"]


class Sum(Kernel):
    """Σ wᵢ kᵢ with Σ wᵢ = 1: written `a + b`. The weights are learned."""

    kernels: tuple[Kernel, ...]
    weights: Any = eqx.field(default=None, converter=positive)

    def _shares(self) -> Array:
        weights = jnp.ones(len(self.kernels)) if self.weights is None else jnp.asarray(self.weights)
        return weights / jnp.sum(weights)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return sum(w * k.matrix(X, Z) for w, k in zip(self._shares(), self.kernels, strict=True))

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return sum(w * k.diag(X) for w, k in zip(self._shares(), self.kernels, strict=True))

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        weights = np.ones(len(self.kernels)) if self.weights is None else self.weights
        kernels = tuple(k.start(spread, columns, scale) for k in self.kernels)
        return dataclasses.replace(self, kernels=kernels, weights=weights)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        moved = tuple(k.rescaled(scale, centre) for k in self.kernels)
        return dataclasses.replace(self, kernels=moved)

    def check(self, columns: Sequence[str], *, fitted: bool = True) -> None:
        """See `Kernel.check`."""
        if fitted and np.shape(self.weights) != (len(self.kernels),):
            n, found = len(self.kernels), np.size(self.weights)
            raise ValueError(f"a {type(self).__name__} of {n} has {found} weights")
        super().check(columns, fitted=fitted)

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        shares = zip(np.asarray(self._shares()), self.kernels, strict=True)
        return " + ".join(f"{w:.0%} {k.in_words(units)}" for w, k in shares)

    def __repr__(self) -> str:
        if self.weights is None:
            return " + ".join(map(repr, self.kernels))
        shares = np.asarray(self.weights) / np.sum(self.weights)
        return " + ".join(f"{w:.3g}·{k!r}" for w, k in zip(shares, self.kernels, strict=True))

    def __add__(self, other: Kernel) -> "Sum":
        return Sum((*self.kernels, other)) if self.weights is None else Sum((self, other))


class Product(Kernel):
    """Π kᵢ: written `a * b`."""

    kernels: tuple[Kernel, ...]

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        first, *rest = (k.matrix(X, Z) for k in self.kernels)
        for factor in rest:
            first = first * factor
        return first

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        first, *rest = (k.diag(X) for k in self.kernels)
        for factor in rest:
            first = first * factor
        return first

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        kernels = tuple(k.start(spread, columns, scale) for k in self.kernels)
        return dataclasses.replace(self, kernels=kernels)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        moved = tuple(k.rescaled(scale, centre) for k in self.kernels)
        return dataclasses.replace(self, kernels=moved)

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        words = [(k.in_words(units), isinstance(k, Sum)) for k in self.kernels]
        return " × ".join(f"({said})" if bracketed else said for said, bracketed in words)

    def __repr__(self) -> str:
        parts = (f"({k!r})" if isinstance(k, Sum) else repr(k) for k in self.kernels)
        return " * ".join(parts)

    def __mul__(self, other: Kernel) -> "Product":
        return Product((*self.kernels, other))
