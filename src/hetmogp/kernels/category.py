"""Inputs that are labels: a kernel for them, and the inputs of a kernel that names none."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Combined, Domain, Kernel, Product
from .features import Level
from .held import names
from .leaf import Leaf, position
from .stationary import RBF

__all__ = ["Category", "suited"]

UNRELATED = 0.01  # the lengthscale of unrelated levels: their correlation is e⁻¹⁰⁰


class Category(Leaf):
    """exp(−Σ [x ≠ z]/ℓ): values at two levels of a label have the correlation exp(−1/ℓ).

    The correlation is the same for any two levels, as for a random effect. With ℓ → 0 levels
    become independent, with ℓ → ∞ identical. Multiplied by a kernel of the other inputs, it gives
    one function per level, related to each other. Inputs that are labels get it automatically
    (`suited`). If the input is a number, such as an age that identifies a patient, every value is a
    level.

    Args:
        lengthscale: its initial value; 2 by default, which is a correlation of 0.61.
        active_dims: the inputs it uses, by position or name; all labels by default.
        ard: one lengthscale per input or one for all.
        fixed: see `RBF`.
    """

    by_level: ClassVar[bool] = True

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`. Codes and standardised numbers are the same up to rounding."""
        X, Z = self._select(X), self._select(Z)
        weight = jnp.broadcast_to(1.0 / self.lengthscale, (X.shape[1],))
        rounding = 1e3 * jnp.finfo(X.dtype).eps
        differ = (jnp.abs(X[:, j, None] - Z[:, j]) > rounding for j in range(X.shape[1]))
        return jnp.exp(-sum(w * d for w, d in zip(weight, differ, strict=True)))

    @classmethod
    def unrelated(cls, dim: int) -> Self:
        """Unrelated levels of one input: random intercepts."""
        return cls(lengthscale=UNRELATED, active_dims=dim, fixed=("lengthscale",))

    @property
    def is_unrelated(self) -> bool:
        """Whether its levels are unrelated and stay so in learning."""
        held = "lengthscale" in names(self)
        return held and bool(np.all(np.asarray(self.lengthscale) <= UNRELATED))

    @property
    def numbers(self) -> tuple[str, ...]:
        """See `Leaf.numbers`: none where levels are unrelated."""
        return () if self.is_unrelated else super().numbers

    def spanning(self, X: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "M p"] | None:
        """See `Kernel.spanning`: a row of each level, those with most rows first."""
        if not self.is_unrelated:
            return None
        dims = list(self.active_dims or range(X.shape[1]))
        _, first, rows = np.unique(X[:, dims], axis=0, return_index=True, return_counts=True)
        Z = np.repeat(X[:1], len(first), axis=0)
        order = first[np.argsort(-rows, kind="stable")]
        Z[:, dims] = X[order][:, dims]
        return Z

    def _number_in_words(self, unit: str, *values: float) -> str:
        if self.is_unrelated:
            return "an intercept for each"
        return f"correlation {np.exp(-1.0 / values[0]):.2f}"

    def basis(self, domain: Domain) -> Any:
        """See `Kernel.basis`: for each input √ρ and, at each level, √(1 − ρ), ρ = exp(−1/ℓ)."""
        dims = self.active_dims or tuple(range(domain.p))
        if not all(dim in domain.levels for dim in dims):
            return None
        levels = tuple(jnp.asarray(domain.levels[dim]) for dim in dims)
        if np.prod([1.0 + len(each) for each in levels]) > domain.most:
            return None
        return _OneOfEach(jnp.asarray(self._correlations(len(dims))), levels, dims)

    def signs(self, H: int, p: int, generator: np.random.Generator) -> Any:
        """See `Kernel.signs`: a feature depends on an input with probability 1 − ρ."""
        dims = self.active_dims or tuple(range(p))
        even = [(generator.permutation(H) + generator.random(H)) / H for _ in dims]
        seen = np.stack(even, axis=1) > self._correlations(len(dims))
        key = jax.random.key(int(generator.integers(2**31)))
        return Level(key, jnp.asarray(seen.astype(float)), tuple(dims))

    def _correlations(self, d: int) -> Float[np.ndarray, " d"]:
        """exp(−1/ℓ) for each input."""
        return np.exp(-1.0 / np.broadcast_to(np.asarray(self.lengthscale), (d,)))

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`. The spread and the unit of an input have no meaning here."""
        return super().start(np.full(np.shape(spread), 2.0), columns, np.ones(np.shape(scale)))

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`. Levels have no unit."""
        return super().rescaled(np.ones(np.shape(scale)), centre)


class _OneOfEach(eqx.Module):
    """Every product, over the inputs, of √ρ or of √(1 − ρ) at one of its levels."""

    correlations: Float[Array, " d"]
    levels: tuple[Float[Array, " L"], ...]
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N G"]:
        result = jnp.ones((len(X), 1), X.dtype)
        for d, (dim, levels) in enumerate(zip(self.dims, self.levels, strict=True)):
            rho = self.correlations[d]
            here = jnp.abs(X[:, dim, None] - levels) < 0.5  # codes are whole numbers
            one = jnp.concatenate(
                [jnp.full((len(X), 1), jnp.sqrt(rho)), jnp.sqrt(1.0 - rho) * here], axis=1
            )
            result = (result[:, :, None] * one[:, None, :]).reshape(len(X), -1)
        return result


def suited(
    kernel: Kernel | None,
    columns: Sequence[str],
    labels: Sequence[int],
    hidden: Sequence[int] = (),
) -> Kernel:
    """Adapt a kernel to inputs of which some are labels.

    Leaves that name no inputs use those that suit them: a `Category` uses the labels and any other
    leaf the rest. A kernel without a `Category` of labels is multiplied by one. `None` means RBF.

    Args:
        kernel: as the user wrote it.
        columns: the names of the inputs.
        labels: the positions of those that are labels.
        hidden: the positions of those that are used only by leaves that name them.
    """
    others = tuple(j for j in range(len(columns)) if j not in labels and j not in hidden)
    shown = tuple(j for j in labels if j not in hidden)
    if not labels and not hidden:
        return RBF() if kernel is None else _placed(kernel, columns, (), others)
    if kernel is None:
        kernel = RBF() if others else Category()
    _refuse_labels(kernel, columns, labels)
    placed = _placed(kernel, columns, shown, others)
    if not shown or _sees_labels(placed, columns, shown):
        return placed
    return Product((placed, Category(active_dims=shown)))


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
        plain = not labels and len(others) == len(columns)
        return kernel if plain else dataclasses.replace(kernel, active_dims=mine)
    return kernel


def _refuse_labels(kernel: Kernel, columns: Sequence[str], labels: Sequence[int]) -> None:
    """Raise an error for a kernel of numbers that is applied to labels."""
    for part in kernel.parts:
        _refuse_labels(part, columns, labels)
    if isinstance(kernel, Category) or not isinstance(kernel, Leaf):
        return
    for at in (position(dim, columns) for dim in kernel.active_dims or ()):
        if at in labels:
            kind = type(kernel).__name__
            raise ValueError(
                f"{kind} is set on input {columns[at]!r}, which holds labels: use Category"
            )


def _sees_labels(kernel: Kernel, columns: Sequence[str], labels: Sequence[int]) -> bool:
    """Whether a part of the kernel is a `Category` of labels."""
    if isinstance(kernel, Category):
        return any(position(dim, columns) in labels for dim in kernel.active_dims)
    return any(_sees_labels(part, columns, labels) for part in kernel.parts)
