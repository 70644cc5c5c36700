"""Inputs that are labels: a kernel for them, and which inputs a kernel sees when it names none."""

import dataclasses
from collections.abc import Sequence
from typing import Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Combined, Kernel, Product
from .leaf import Leaf, position
from .stationary import RBF

__all__ = ["Category", "suited"]


class Category(Leaf):
    """exp(−Σ [x ≠ z]/ℓ): values at two levels of a label have the correlation exp(−1/ℓ).

    It is the same for any two levels, as in a random effect; ℓ → 0 makes them independent, ℓ → ∞
    the same. Multiply it with a kernel of the other inputs for one function per level, related to
    each other. Inputs that are labels get it without being asked (`suited`).

    Args:
        lengthscale: where learning starts; 2 by default, a correlation of 0.61.
        active_dims: the inputs it sees, by position or name; all labels by default.
        ard: one lengthscale per input or one for all.
        fixed: see `RBF`.
    """

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`. Codes are whole numbers, up to rounding."""
        X, Z = self._select(X), self._select(Z)
        weight = jnp.broadcast_to(1.0 / self.lengthscale, (X.shape[1],))
        differ = (jnp.abs(X[:, j, None] - Z[:, j]) > 0.5 for j in range(X.shape[1]))
        return jnp.exp(-sum(w * d for w, d in zip(weight, differ, strict=True)))

    def _number_in_words(self, unit: str, *values: float) -> str:
        return f"correlation {np.exp(-1.0 / values[0]):.2f}"

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`. The typical lengthscale of the other inputs means nothing here."""
        return super().start(np.full(np.shape(spread), 2.0), columns, scale)


def suited(kernel: Kernel | None, columns: Sequence[str], labels: Sequence[int]) -> Kernel:
    """A kernel for inputs some of which are labels.

    Leaves that name no inputs see those they are made for, a `Category` the labels and any other
    the rest; a kernel without a `Category` is multiplied by one. `None` stands for an RBF.

    Args:
        kernel: as the user wrote it.
        columns: the names of the inputs.
        labels: the positions of those that are labels.
    """
    others = tuple(j for j in range(len(columns)) if j not in labels)
    if not labels:
        return RBF() if kernel is None else _placed(kernel, columns, (), others)
    if kernel is None:
        kernel = RBF() if others else Category()
    placed = _placed(kernel, columns, tuple(labels), others)
    return placed if _has_category(placed) else Product((placed, Category(active_dims=labels)))


def _placed(
    kernel: Kernel, columns: Sequence[str], labels: tuple[int, ...], others: tuple[int, ...]
) -> Kernel:
    if isinstance(kernel, Combined):
        return kernel.each(lambda part: _placed(part, columns, labels, others))
    if not isinstance(kernel, Leaf):
        return kernel
    kind = type(kernel).__name__
    mine = labels if isinstance(kernel, Category) else others
    if kernel.active_dims is None:
        if not mine:
            what = "labels" if isinstance(kernel, Category) else "numbers"
            raise ValueError(f"{kind} is for inputs that are {what}, and there are none")
        return dataclasses.replace(kernel, active_dims=mine) if labels else kernel
    for dim in kernel.active_dims:
        at = position(dim, columns)
        if at not in mine:
            what = "labels: use Category" if at in labels else "numbers, not labels"
            raise ValueError(f"{kind} is set on input {columns[at]!r}, which holds {what}")
    return kernel


def _has_category(kernel: Kernel) -> bool:
    return isinstance(kernel, Category) or any(map(_has_category, kernel.parts))
