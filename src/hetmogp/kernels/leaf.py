"""The base class of kernels with lengthscales on some of the inputs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import held
from .base import Kernel, positive

__all__ = ["Leaf", "position", "with_unit"]

Column = int | str


def _columns(value: Column | Sequence[Column] | None) -> tuple[Column, ...] | None:
    if value is None:
        return None
    columns = (value,) if isinstance(value, int | str | np.integer) else tuple(value)
    return tuple(column if isinstance(column, str) else int(column) for column in columns)


def _is_static(field: dataclasses.Field) -> bool:
    return bool(field.metadata.get("static", False))


class Leaf(Kernel):
    """A kernel with lengthscales on some of the inputs.

    Args:
        lengthscale: the initial value, in the units of the inputs; one number or one per active
            input. `None` takes it from the spread of the data.
        active_dims: the inputs it uses, by position or by column name; all of them by default.
        ard: one lengthscale per input (automatic relevance determination) or one for all.
        fixed: the names of numbers that are not learned but stay as given, such as
            `("lengthscale",)`.

    Attributes:
        once: the names of numbers of which it has one.
        per_input: the names of numbers of which it has one, or one for each of its inputs.
    """

    once: ClassVar[tuple[str, ...]] = ()
    per_input: ClassVar[tuple[str, ...]] = ("lengthscale",)

    lengthscale: Any = eqx.field(default=None, converter=positive)
    active_dims: Any = eqx.field(default=None, static=True, converter=_columns)
    ard: bool = eqx.field(default=True, static=True)
    fixed: held.Fixed = eqx.field(default=(), static=True, converter=held.as_held, kw_only=True)

    def __check_init__(self) -> None:
        known = [field.name for field in dataclasses.fields(self) if not _is_static(field)]
        held.refuse_unheld(self, known)

    @property
    def leaves(self) -> tuple[Self, ...]:
        """See `Kernel.leaves`."""
        return (self,)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the numbers for each input that are worth showing."""
        return tuple(name for name in self.per_input if name != "centre")

    def _select(self, X: Array) -> Array:
        return X if self.active_dims is None else X[:, np.asarray(self.active_dims)]

    def _active(self, values: np.ndarray) -> np.ndarray:
        return values if self.active_dims is None else values[np.asarray(self.active_dims)]

    def _spread_out(self, values: np.ndarray, p: int) -> np.ndarray:
        """Numbers for each active input as numbers for all p inputs, zero for the others."""
        if self.active_dims is None:
            return values
        every = np.zeros((len(values), p))
        every[:, np.asarray(self.active_dims)] = values
        return every

    def _width(self, p: int) -> int:
        """The number of inputs that it uses."""
        return p if self.active_dims is None else len(self.active_dims)

    def _bound_to(self, columns: Sequence[str]) -> Self:
        """This kernel with its inputs as checked positions, and with matching numbers."""
        dims = self.active_dims
        if dims is not None:
            dims = tuple(position(dim, columns) for dim in dims)
        p = len(columns) if dims is None else len(dims)
        for name in self.per_input:
            values = getattr(self, name)
            if values is not None and np.size(values) not in (1, p):
                raise ValueError(
                    f"{type(self).__name__} has {np.size(values)} {name}s for {p} inputs: give one "
                    f"number, or {p}"
                )
        return dataclasses.replace(self, active_dims=dims, fixed=held.remembered(self))

    def _one_or_each(self, lengthscale: np.ndarray) -> np.ndarray:
        """One lengthscale per input, or their mean; a fixed one keeps its value for each input."""
        each = self.ard or "lengthscale" in held.names(self)
        return lengthscale if each else np.mean(lengthscale, keepdims=True)

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`. One, unless a subclass overrides it."""
        return jnp.ones(X.shape[0], X.dtype)

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        kernel = self._bound_to(columns)
        lengthscale = kernel._active(spread)
        if self.lengthscale is not None:
            lengthscale = self.lengthscale / kernel._active(scale)
        return dataclasses.replace(kernel, lengthscale=self._one_or_each(lengthscale))

    def forgotten(self) -> Self:
        """See `Kernel.forgotten`."""
        if "lengthscale" in held.names(self):
            return self
        return dataclasses.replace(self, lengthscale=None)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`. A shared lengthscale becomes one per input."""
        if self.lengthscale is None:
            return self
        lengthscale = np.asarray(self.lengthscale) * self._active(np.asarray(scale))
        return held.as_given(dataclasses.replace(self, lengthscale=lengthscale))

    def check(self, columns: Sequence[str], *, fitted: bool = True) -> None:
        """See `Kernel.check`."""
        kind, p, dims = type(self).__name__, len(columns), self.active_dims
        if dims is not None:
            known = (*range(p), *(() if fitted else (*range(-p, 0), *columns)))
            if not dims or any(dim not in known for dim in dims):
                raise ValueError(f"a {kind} uses the inputs {dims}, and there are {p}")
        most = dict.fromkeys(self.once, 1) | dict.fromkeys(self.per_input, len(dims or columns))
        for name, n in most.items() if fitted else ():
            values = getattr(self, name)
            if values is None or np.shape(values) not in ((), (1,), (n,)):
                raise ValueError(f"the {name} of a {kind} must be one number, or {n}")
            held.refuse_unfit(self, name, (1, n))
        super().check(columns, fitted=fitted)

    def in_words(self, units: Mapping[str, str]) -> str:
        """Its numbers, with the names and units of its inputs."""
        seen = self._active(np.array(list(units), dtype=object)).tolist()
        numbers = [np.broadcast_to(getattr(self, name), len(seen)) for name in self.per_input]
        parts = [
            f"{name} {self._number_in_words(units[name], *map(float, values))}"
            for name, *values in zip(seen, *numbers, strict=True)
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _number_in_words(self, unit: str, *values: float) -> str:
        """Its numbers for one input (see `per_input`), in words."""
        return with_unit(values[0], unit)


def with_unit(value: float, unit: str) -> str:
    """A number with its unit, if any; less than a day in hours, minutes or seconds."""
    if not unit:
        return _three_digits(value)
    for smaller, size in ((unit, 1.0), ("h", 1 / 24), ("min", 1 / 1440)):
        if value >= size:
            return f"{_three_digits(value / size)} {smaller}"
    return f"{value * 86400:.3g} s"


def _three_digits(value: float) -> str:
    """Three digits; thousands are written out."""
    short = f"{value:.3g}"
    return f"{float(short):,.0f}" if 1e3 <= float(short) < 1e6 else short


def position(column: Column, columns: Sequence[str]) -> int:
    """The position of an input that is given by name or number."""
    if isinstance(column, str):
        if column not in columns:
            raise ValueError(f"active_dims names {column!r}; the inputs are {list(columns)}")
        return list(columns).index(column)
    if not -len(columns) <= column < len(columns):
        raise ValueError(f"active_dims names input {column}, but there are {len(columns)} inputs")
    return int(column) % len(columns)
