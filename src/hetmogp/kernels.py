"""Covariance functions k(x, z) of the latent functions, with unit variance.

The scale of a latent lives in the mixing weights, so k(x, x) = 1 for every stationary kernel, and a
sum carries *relative* weights. All matrices come from matrix products on centred inputs: no
N × M × p array is ever formed. Every learned number of a kernel is positive (it is optimised by its
logarithm) and `None` means "start from the data".
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

__all__ = [
    "RBF",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Sum",
]

Column = int | str


def _positive(value: Any) -> Any:
    """Turn a user's number or list into an array, checked once; arrays of JAX pass through."""
    if isinstance(value, int | float | list | tuple | np.ndarray | np.number):
        value = np.asarray(value, dtype=float)
        if not (np.all(np.isfinite(value)) and np.all(value > 0)):
            raise ValueError(f"kernel hyperparameters must be positive and finite, not {value}")
    return value


def _columns(value: Column | Sequence[Column] | None) -> tuple[Column, ...] | None:
    if value is None:
        return None
    columns = (value,) if isinstance(value, int | str | np.integer) else tuple(value)
    return tuple(column if isinstance(column, str) else int(column) for column in columns)


@jax.custom_vjp
def squared_distance(X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
    """|x − z|², by one matrix product on inputs centred at the mean of Z.

    Its gradient takes two products more, where differentiating through takes six passes over
    arrays of N × M.
    """
    X, Z = _centred(X, Z)
    squares = jnp.sum(X * X, axis=1)[:, None] + jnp.sum(Z * Z, axis=1)
    return jnp.maximum(squares - 2.0 * X @ Z.T, 0.0)


def _centred(X: Array, Z: Array) -> tuple[Array, Array]:
    centre = jnp.mean(Z, axis=0)  # which distances do not depend on
    return X - centre, Z - centre


def _distance_gradient(saved: tuple[Array, Array], c: Float[Array, "N M"]) -> tuple[Array, Array]:
    """dX = 2 (X ∘ Σ_m c − c Z) and dZ likewise, each sum a further column of the product."""
    X, Z = _centred(*saved)
    cZ = c @ jnp.column_stack([Z, jnp.ones(len(Z), Z.dtype)])
    cX = jnp.column_stack([X, jnp.ones(len(X), X.dtype)]).T @ c
    return 2.0 * (X * cZ[:, -1:] - cZ[:, :-1]), 2.0 * (Z * cX[-1][:, None] - cX[:-1].T)


squared_distance.defvjp(lambda X, Z: (squared_distance(X, Z), (X, Z)), _distance_gradient)


@jax.custom_jvp
def _decay(x: Array) -> Array:
    """exp(x) for x ≤ 0, ending at 1e-87: denormal numbers are slow. Its slope is itself."""
    return jnp.exp(jnp.maximum(x, -200.0))


@_decay.defjvp
def _decay_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    k = _decay(*primals)
    return k, k * tangents[0]


def _root(r2: Array) -> Array:
    """The square root, with a gradient of zero rather than infinity at zero."""
    return jnp.sqrt(jnp.maximum(r2, 1e-20))


class Kernel(eqx.Module):
    """A covariance function. Subclasses write `matrix` and `diag`; `+` and `*` combine them."""

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
            spread: a typical lengthscale per standardised input, for what is `None`.
            columns: the names of the inputs, for `active_dims`.
            scale: what each input was divided by, for what the user gave in their own units.
        """

    @abstractmethod
    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """The same function of x where this one is a function of (x − centre) / scale."""

    def __repr__(self) -> str:
        shown = []
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "centre" and not (value is None or value is item.default):
                numbers = isinstance(value, np.ndarray | jax.Array)
                shown.append(
                    f"{item.name}={np.array2string(value, precision=4) if numbers else value}"
                )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum((self, other))

    def __mul__(self, other: "Kernel") -> "Product":
        return Product((self, other))


class Leaf(Kernel):
    """A kernel with lengthscales on some of the inputs.

    Args:
        lengthscale: where learning starts, in the units of the inputs; one number or one per active
            input. `None` starts from the spread of the data.
        active_dims: the inputs it sees, by position or by column name; all of them by default.
        ard: one lengthscale per input (automatic relevance determination) or one for all.
    """

    lengthscale: Any = eqx.field(default=None, converter=_positive)
    active_dims: Any = eqx.field(default=None, static=True, converter=_columns)
    ard: bool = eqx.field(default=True, static=True)

    def _select(self, X: Array) -> Array:
        return X if self.active_dims is None else X[:, np.asarray(self.active_dims)]

    def _active(self, values: np.ndarray) -> np.ndarray:
        return values if self.active_dims is None else values[np.asarray(self.active_dims)]

    def _bound_to(self, columns: Sequence[str]) -> Self:
        """This kernel with its columns as checked positions and lengthscales that fit them."""
        dims = self.active_dims
        if dims is not None:
            dims = tuple(_position(dim, columns) for dim in dims)
        p = len(columns) if dims is None else len(dims)
        if self.lengthscale is not None and np.size(self.lengthscale) not in (1, p):
            raise ValueError(
                f"{type(self).__name__} has {np.size(self.lengthscale)} lengthscales for {p} "
                f"inputs: give one number, or {p}"
            )
        return dataclasses.replace(self, active_dims=dims)

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        kernel = self._bound_to(columns)
        lengthscale = kernel._active(spread)
        if self.lengthscale is not None:
            lengthscale = self.lengthscale / kernel._active(scale)
        return dataclasses.replace(
            kernel, lengthscale=lengthscale if self.ard else np.mean(lengthscale, keepdims=True)
        )

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`. A shared lengthscale becomes one per input."""
        if self.lengthscale is None:
            return self
        return dataclasses.replace(
            self, lengthscale=np.asarray(self.lengthscale) * self._active(np.asarray(scale))
        )


def _position(column: Column, columns: Sequence[str]) -> int:
    if isinstance(column, str):
        if column not in columns:
            raise ValueError(f"active_dims names {column!r}; the inputs are {list(columns)}")
        return list(columns).index(column)
    if not -len(columns) <= column < len(columns):
        raise ValueError(f"active_dims names input {column}, but there are {len(columns)} inputs")
    return int(column) % len(columns)


class Stationary(Leaf):
    """A function of the scaled distance r² = Σ (x − z)² / ℓ² alone: write `profile`."""

    @abstractmethod
    def profile(self, r2: Array) -> Array:
        """K as a function of r²."""

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        X, Z = self._select(X) / self.lengthscale, self._select(Z) / self.lengthscale
        return self.profile(squared_distance(X, Z))

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return jnp.ones(X.shape[0], X.dtype)


class RBF(Stationary):
    """exp(−r²/2): very smooth functions.

    >>> import numpy as np
    >>> kernel = RBF(lengthscale=2.0)
    >>> round(float(kernel.matrix(np.array([[0.0]]), np.array([[2.0]]))[0, 0]), 4)
    0.6065
    """

    def profile(self, r2: Array) -> Array:
        """exp(−r²/2)."""
        return _decay(-0.5 * r2)


class Matern12(Stationary):
    """exp(−r): continuous, nowhere smooth."""

    def profile(self, r2: Array) -> Array:
        """exp(−r)."""
        return _decay(-_root(r2))


class Matern32(Stationary):
    """(1 + √3 r) exp(−√3 r): once differentiable."""

    def profile(self, r2: Array) -> Array:
        """(1 + √3 r) exp(−√3 r)."""
        r = _root(3.0 * r2)
        return (1.0 + r) * _decay(-r)


class Matern52(Stationary):
    """(1 + √5 r + 5r²/3) exp(−√5 r): twice differentiable."""

    def profile(self, r2: Array) -> Array:
        """(1 + √5 r + 5r²/3) exp(−√5 r)."""
        r = _root(5.0 * r2)
        return (1.0 + r + 5.0 / 3.0 * r2) * _decay(-r)


class RationalQuadratic(Stationary):
    """(1 + r²/2α)^−α: a mixture of RBFs of many lengthscales; α → ∞ is the RBF.

    Args:
        lengthscale: see `RBF`.
        active_dims: see `RBF`.
        ard: see `RBF`.
        alpha: where learning of the mixing exponent starts.
    """

    alpha: Any = eqx.field(default=1.0, converter=_positive)

    def profile(self, r2: Array) -> Array:
        """(1 + r²/2α)^−α."""
        return jnp.exp(-self.alpha * jnp.log1p(0.5 * r2 / self.alpha))


class Periodic(Leaf):
    """exp(−2 Σ sin²(π (x − z)/period)/ℓ²): functions that repeat.

    The lengthscale is a fraction of the phase and has no unit; the period has the inputs' unit.

    Args:
        lengthscale: roughness within one period; starts at 1.
        active_dims: see `RBF`.
        ard: see `RBF`.
        period: where learning of the period starts. Give it whenever it is known (a day, a year):
            a period is hard to find from afar. `None` starts at the inputs' spread.
    """

    period: Any = eqx.field(default=None, converter=_positive)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`. 2 sin²(a/2) = 1 − cos a, and cos(a − b) is a matrix product."""
        X, Z = self._select(X), self._select(Z)
        phase_x, phase_z = (2.0 * jnp.pi * V / self.period for V in (X, Z))
        weight = jnp.broadcast_to(1.0 / self.lengthscale, (X.shape[1],))  # 1/ℓ
        waves_x = jnp.concatenate([jnp.cos(phase_x) * weight, jnp.sin(phase_x) * weight], axis=1)
        waves_z = jnp.concatenate([jnp.cos(phase_z) * weight, jnp.sin(phase_z) * weight], axis=1)
        return jnp.exp(jnp.minimum(waves_x @ waves_z.T - jnp.sum(weight**2), 0.0))

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return jnp.ones(X.shape[0], X.dtype)

    def start(self, spread: np.ndarray, columns: Sequence[str], scale: np.ndarray) -> Self:
        """See `Kernel.start`."""
        kernel = self._bound_to(columns)
        period = kernel._active(spread)
        if self.period is not None:
            if np.size(self.period) not in (1, len(period)):
                raise ValueError(
                    f"Periodic has {np.size(self.period)} periods for {len(period)} inputs: "
                    f"give one number, or {len(period)}"
                )
            period = self.period / kernel._active(scale)
        lengthscale = np.broadcast_to(
            1.0 if self.lengthscale is None else self.lengthscale, period.shape
        )
        return dataclasses.replace(
            kernel,
            lengthscale=lengthscale if self.ard else np.mean(lengthscale, keepdims=True),
            period=period,
        )

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`. Only the period has a unit."""
        if self.period is None:
            return self
        return dataclasses.replace(
            self, period=np.asarray(self.period) * self._active(np.asarray(scale))
        )


class Linear(Leaf):
    """Σ (x − c)(z − c)/ℓ²: straight lines; c is the centre of the data. Add it to another kernel.

    The only kernel here whose variance is not one: it grows from zero at c to one at a distance ℓ.
    """

    centre: Any = eqx.field(default=0.0, static=True)

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        return self._scaled(X) @ self._scaled(Z).T

    def diag(self, X: Float[Array, "N p"]) -> Float[Array, " N"]:
        """See `Kernel.diag`."""
        return jnp.sum(self._scaled(X) ** 2, axis=1)

    def rescaled(self, scale: np.ndarray, centre: np.ndarray) -> Self:
        """See `Kernel.rescaled`."""
        moved = np.asarray(self.centre) * self._active(scale) + self._active(centre)
        return dataclasses.replace(super().rescaled(scale, centre), centre=tuple(moved.tolist()))

    def _scaled(self, X: Array) -> Array:
        return (self._select(X) - np.asarray(self.centre)) / self.lengthscale


class Sum(Kernel):
    """Σ wᵢ kᵢ with Σ wᵢ = 1: written `a + b`. The weights are learned."""

    kernels: tuple[Kernel, ...]
    weights: Any = eqx.field(default=None, converter=_positive)

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

    def __repr__(self) -> str:
        parts = (f"({k!r})" if isinstance(k, Sum) else repr(k) for k in self.kernels)
        return " * ".join(parts)

    def __mul__(self, other: Kernel) -> "Product":
        return Product((*self.kernels, other))
