"""What a kernel is, and how kernels combine: sums and products of kernels are kernels."""

import dataclasses
import itertools
import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import held

__all__ = ["Combined", "Domain", "Kernel", "Product", "Sum", "positive"]

LEANING = 30.0  # a start may give one part of a sum this many times the weight of the others


def positive(value: Any) -> Any:
    """A user's number or list as a checked array; JAX arrays are returned unchanged.

    Durations become days, the unit in which dates are counted.
    """
    if isinstance(value, str):
        raise ValueError(f"kernel hyperparameters must be numbers or durations, not {value!r}")
    if isinstance(value, timedelta | np.timedelta64):
        value = _days(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "m":
        value = value / np.timedelta64(1, "D")
    elif isinstance(value, list | tuple):
        value = [_days(v) if isinstance(v, timedelta | np.timedelta64) else v for v in value]
    if isinstance(value, int | float | list | tuple | np.ndarray | np.number):
        value = np.asarray(value, dtype=float)
        if not (np.all(np.isfinite(value)) and np.all(value > 0)):
            raise ValueError(f"kernel hyperparameters must be positive and finite, not {value}")
    return value


def _days(value: timedelta | np.timedelta64) -> float:
    return float(np.timedelta64(value) / np.timedelta64(1, "D"))


class Domain(NamedTuple):
    """The inputs for which the features of a kernel are needed.

    Attributes:
        p: the number of inputs.
        levels: the values of inputs that are labels, by their positions.
        most: the most features that a basis may have.
    """

    p: int
    levels: Mapping[int, np.ndarray]
    most: int


class Kernel(eqx.Module):
    """A covariance function. Subclasses write `matrix` and `diag`; `+` and `*` combine them.

    Attributes:
        by_level: whether it compares only which values are equal, not how far apart they are.
        own_scale: whether it sets the size of its functions, so that no weight is learned.
        by_distance: whether its lengthscales are distances along the inputs.
    """

    by_level: ClassVar[bool] = False
    own_scale: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False

    @abstractmethod
    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """k(x, z) for every pair of rows."""

    @abstractmethod
    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """k(x, x) for every row."""

    @abstractmethod
    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """This kernel on standardised inputs, ready to be learned.

        Args:
            spread: a typical lengthscale for each standardised input, used for `None`.
            columns: the names of the inputs, for `active_dims`.
            scale: what each input was divided by, to convert numbers in the user's units.
        """

    @abstractmethod
    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """This kernel in the user's units; it is a function of (x − centre) / scale itself."""

    @property
    def parts(self) -> tuple["Kernel", ...]:
        """The kernels that this one combines."""
        fields = [getattr(self, item.name) for item in dataclasses.fields(self)]
        every = [part for field in fields for part in (field if type(field) is tuple else [field])]
        return tuple(part for part in every if isinstance(part, Kernel))

    @property
    def leaves(self) -> tuple[Any, ...]:
        """The kernels with lengthscales (`Leaf`) that this one is made of."""
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    def check(self, columns: Sequence[str], *, fitted: bool = True) -> None:
        """Check this kernel against the inputs: which of them it uses, how many numbers it has.

        Args:
            columns: the names of the inputs.
            fitted: whether it was learned. A kernel that was not may refer to inputs by name.
        """
        for part in self.parts:
            part.check(columns, fitted=fitted)

    def learned(self) -> Self:
        """This kernel, and its parts, with None in place of every fixed number."""

        def changed(kernel: Kernel) -> list[Any]:
            return [*(getattr(kernel, name) for name in held.names(kernel)), *kernel.parts]

        none = [None] * len(held.names(self))
        return eqx.tree_at(changed, self, [*none, *(part.learned() for part in self.parts)])

    def terms(self) -> list[tuple[float, tuple["Kernel", ...]]]:
        """This kernel as a weighted sum of products of others, for features (`features`)."""
        return [(1.0, (self,))]

    def spanning(self, X: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "M p"] | None:
        """A few inducing inputs that determine the function at the rows X, if there are such."""
        return None

    def basis(self, domain: Domain) -> Any:
        """A module ψ from inputs (N, p) to (N, G) with ψ(x)ᵀψ(z) = k(x, z), or None."""
        return None

    def chances(self, p: int) -> int:
        """How many uniform numbers make one frequency; zero if it has no frequencies."""
        return 0

    def frequencies(
        self, uniforms: Float[np.ndarray, "H c"], p: int
    ) -> tuple[Float[np.ndarray, "H p"], Float[np.ndarray, " H"]]:
        """Random ω, symmetric around zero, and their weights v: k(x, z) = E v cos ωᵀ(x − z).

        Args:
            uniforms: numbers between 0 and 1; `chances` says how many for each frequency.
            p: the number of inputs.
        """
        raise NotImplementedError

    def signs(self, H: int, p: int, generator: np.random.Generator) -> Any:
        """A random module s from inputs to (N, H), with E s(x) s(z) = k(x, z), or None."""
        return None

    def forgotten(self) -> Self:
        """This kernel without the user's initial lengthscales."""
        return self

    def leaning(self) -> list[Self]:
        """Alternative starts: sums in which one part has nearly all the weight."""
        return []

    def in_words(self, units: Mapping[str, str]) -> str:
        """A fitted kernel in words; `units` has the unit of each input by name."""
        return repr(self)

    def __repr__(self) -> str:
        shown = []
        for item in sorted(dataclasses.fields(self), key=lambda item: item.name == "fixed"):
            value = getattr(self, item.name)
            if item.name != "centre" and not (value is None or value is item.default):
                numbers = isinstance(value, np.ndarray | jax.Array)
                shown.append(
                    f"{item.name}={np.array2string(value, precision=4) if numbers else value}"
                )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum((*_summands(self), *_summands(other)))

    def __mul__(self, other: "Kernel") -> "Kernel":
        return Product((self, other))


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

    def forgotten(self) -> Self:
        """See `Kernel.forgotten`."""
        return self.each(lambda kernel: kernel.forgotten())


class Sum(Combined):
    """Σ wᵢ kᵢ with Σ wᵢ = 1: written `a + b`. The weights are learned.

    Args:
        kernels: the parts.
        weights: their initial values; equal by default.
        fixed: `("weights",)` keeps the weights as given.
    """

    weights: Any = eqx.field(default=None, converter=positive)
    fixed: held.Fixed = eqx.field(default=(), static=True, converter=held.as_held, kw_only=True)

    def __check_init__(self) -> None:
        held.refuse_unheld(self, ("weights",))

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
        if self.weights is not None:
            self._refuse_unequal()
        weights = np.ones(len(self.kernels)) if self.weights is None else self.weights
        fixed = held.remembered(self)
        begun = super().start(spread, columns, scale)
        return dataclasses.replace(begun, weights=weights, fixed=fixed)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        return held.as_given(super().rescaled(scale, centre))

    def terms(self) -> list[tuple[float, tuple[Kernel, ...]]]:
        """See `Kernel.terms`."""
        return [
            (float(w) * own, leaves)
            for w, kernel in self._weighted()
            for own, leaves in kernel.terms()
        ]

    def leaning(self) -> list[Self]:
        """See `Kernel.leaning`."""
        if self.weights is not None:
            return []
        shares = 1.0 + (LEANING - 1.0) * np.eye(len(self.kernels))
        return [dataclasses.replace(self, weights=share) for share in shares]

    def check(self, columns: Sequence[str], *, fitted: bool = True) -> None:
        """See `Kernel.check`."""
        if fitted or self.weights is not None:
            self._refuse_unequal()
        if fitted:
            held.refuse_unfit(self, "weights", (len(self.kernels),))
        super().check(columns, fitted=fitted)

    def _refuse_unequal(self) -> None:
        """Raise an error unless there is one weight for each kernel."""
        n = len(self.kernels)
        if np.shape(self.weights) != (n,):
            raise ValueError(
                f"the weights of a Sum must be {n} numbers, one for each kernel, not {self.weights}"
            )

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        return " + ".join(f"{w:.0%} {kernel.in_words(units)}" for w, kernel in self._weighted())

    def __repr__(self) -> str:
        if self.weights is None:
            return " + ".join(map(repr, self.kernels))
        parts = " + ".join(f"{w:.3g}·{kernel!r}" for w, kernel in self._weighted())
        return f"{parts} with fixed weights" if self.fixed else parts


class Product(Combined):
    """Π kᵢ: written `a * b`."""

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return reduce(operator.mul, (kernel.matrix(X, Z) for kernel in self.kernels))

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return reduce(operator.mul, (kernel.diag(X) for kernel in self.kernels))

    def terms(self) -> list[tuple[float, tuple[Kernel, ...]]]:
        """See `Kernel.terms`: a product of sums is a sum of products."""
        each = itertools.product(*(kernel.terms() for kernel in self.kernels))
        return [
            (math.prod(w for w, _ in parts), sum((leaves for _, leaves in parts), ()))
            for parts in each
        ]

    def leaning(self) -> list[Self]:
        """See `Kernel.leaning`: those of each part."""
        each = enumerate(self.kernels)
        return [
            dataclasses.replace(self, kernels=(*self.kernels[:k], other, *self.kernels[k + 1 :]))
            for k, kernel in each
            for other in kernel.leaning()
        ]

    def in_words(self, units: Mapping[str, str]) -> str:
        """See `Kernel.in_words`."""
        return " × ".join(_bracketed(kernel, kernel.in_words(units)) for kernel in self.kernels)

    def __repr__(self) -> str:
        return " * ".join(_bracketed(kernel, repr(kernel)) for kernel in self.kernels)

    def __mul__(self, other: Kernel) -> "Product":
        return Product((*self.kernels, other))


def _summands(kernel: Kernel) -> tuple[Kernel, ...]:
    """The parts of a plain sum, so that brackets make no difference; else the kernel itself."""
    return kernel.kernels if isinstance(kernel, Sum) and kernel.weights is None else (kernel,)


def _bracketed(kernel: Kernel, said: str) -> str:
    return f"({said})" if isinstance(kernel, Sum) else said
