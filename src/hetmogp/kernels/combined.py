"""Sums and products of kernels."""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Kernel, positive

__all__ = ["Product", "Sum"]


class Combined(Kernel):
    """A kernel made of others."""

    kernels: tuple[Kernel, ...]

    def each(self, change: Callable[[Kernel], Kernel]) -> Self:
        """The same combination of changed kernels."""
        return dataclasses.replace(self, kernels=tuple(map(change, self.kernels)))

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        return self.each(lambda kernel: kernel.start(spread, columns, scale))

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        return self.each(lambda kernel: kernel.rescaled(scale, centre))


class Sum(Combined):
    """Σ wᵢ kᵢ with Σ wᵢ = 1: written `a + b`. The weights are learned."""

    weights: Any = eqx.field(default=None, converter=positive)

    def _weighted(self) -> Iterator[tuple[Any, Kernel]]:
        """The kernels with their weights."""
        weights = jnp.ones(len(self.kernels)) if self.weights is None else jnp.asarray(self.weights)
        return zip(weights / jnp.sum(weights), self.kernels, strict=True)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return sum(w * kernel.matrix(X, Z) for w, kernel in self._weighted())

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return sum(w * kernel.diag(X) for w, kernel in self._weighted())

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        weights = np.ones(len(self.kernels)) if self.weights is None else self.weights
        return dataclasses.replace(super().start(spread, columns, scale), weights=weights)

    def check(self, columns: Sequence[str], *, fitted: bool = True) -> None:
        """See `Kernel.check`."""
        if fitted and np.shape(self.weights) != (len(self.kernels),):
            raise ValueError(f"a Sum of {len(self.kernels)} has {np.size(self.weights)} weights")
        super().check(columns, fitted=fitted)

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        return " + ".join(f"{w:.0%} {kernel.in_words(units)}" for w, kernel in self._weighted())

    def __repr__(self) -> str:
        if self.weights is None:
            return " + ".join(map(repr, self.kernels))
        return " + ".join(f"{w:.3g}·{kernel!r}" for w, kernel in self._weighted())

    def __add__(self, other: Kernel) -> "Sum":
        return Sum((*self.kernels, other)) if self.weights is None else Sum((self, other))


class Product(Combined):
    """Π kᵢ: written `a * b`."""

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return reduce(operator.mul, (kernel.matrix(X, Z) for kernel in self.kernels))

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return reduce(operator.mul, (kernel.diag(X) for kernel in self.kernels))

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        return " × ".join(_bracketed(kernel, kernel.in_words(units)) for kernel in self.kernels)

    def __repr__(self) -> str:
        return " * ".join(_bracketed(kernel, repr(kernel)) for kernel in self.kernels)

    def __mul__(self, other: Kernel) -> "Product":
        return Product((*self.kernels, other))


def _bracketed(kernel: Kernel, said: str) -> str:
    return f"({said})" if isinstance(kernel, Sum) else said
