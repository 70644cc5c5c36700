"""Kernels that are functions of the scaled distance alone."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammaincinv, ndtri

from .base import positive
from .leaf import Leaf

__all__ = [
    "RBF",
    "Matern12",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "Stationary",
    "squared_distance",
]


@jax.custom_vjp
def squared_distance(X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
    """|x − z|², by one matrix product on inputs centred at the mean of Z.

    Its gradient takes two more products. Automatic differentiation would take six passes over
    arrays of N × M.
    """
    X, Z = _centred(X, Z)
    squares = jnp.sum(X * X, axis=1)[:, None] + jnp.sum(Z * Z, axis=1)
    return jnp.maximum(squares - 2.0 * X @ Z.T, 0.0)


def _centred(X: Array, Z: Array) -> tuple[Array, Array]:
    centre = jnp.mean(Z, axis=0)  # distances do not depend on the centre
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
    """exp(x) for x ≤ 0, at least 1e-87, because denormal numbers are slow. Its slope is itself."""
    return jnp.exp(jnp.maximum(x, -200.0))


@_decay.defjvp
def _decay_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    k = _decay(*primals)
    return k, k * tangents[0]


def _root(r2: Array) -> Array:
    """The square root, with a gradient of zero rather than infinity at zero."""
    return jnp.sqrt(jnp.maximum(r2, 1e-20))


def _student(u: Float[np.ndarray, " H"], nu: int) -> Float[np.ndarray, " H"]:
    """√(ν/χ²_ν): times a normal variable it is Student's t, as for Matern kernels."""
    return np.sqrt(0.5 * nu / gammaincinv(0.5 * nu, u))


class Stationary(Leaf):
    """A function of the scaled distance r² = Σ (x − z)² / ℓ² only; subclasses write `profile`."""

    by_distance: ClassVar[bool] = True

    @abstractmethod
    def profile(self, r2: Array) -> Array:
        """The kernel k as a function of r²."""

    def matrix(self, X: Float[Array, "N p"], Z: Float[Array, "M p"]) -> Float[Array, "N M"]:
        """See `Kernel.matrix`."""
        X, Z = self._select(X) / self.lengthscale, self._select(Z) / self.lengthscale
        return self.profile(squared_distance(X, Z))

    def scale_of_waves(self, u: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"] | None:
        """τ from uniform numbers, such that k = E exp(−τ² r²/2); None if it is not known.

        The frequencies of k are then τ z/ℓ with z standard normal.
        """
        return None

    def chances(self, p: int) -> int:
        """See `Kernel.chances`."""
        known = self.scale_of_waves(np.array([0.5])) is not None
        return self._width(p) + 1 if known else 0

    def frequencies(
        self, uniforms: Float[np.ndarray, "H c"], p: int
    ) -> tuple[Float[np.ndarray, "H p"], Float[np.ndarray, " H"]]:
        """See `Kernel.frequencies`: z comes from a wider normal distribution, with weights.

        Beyond the inducing inputs, the update of a draw multiplies high frequencies by hundreds.
        Without the wider distribution they are rare, and one group of draws in a hundred is far
        too wide.
        """
        scale = self.scale_of_waves(uniforms[:, -1])
        assert scale is not None
        wider = 1.0 + 1.0 / self._width(p)
        z = wider * ndtri(uniforms[:, :-1])
        log_weight = len(z[0]) * np.log(wider) - 0.5 * (1.0 - wider**-2.0) * np.sum(z**2, axis=1)
        waves = self._spread_out(scale[:, None] * z / np.asarray(self.lengthscale), p)
        return waves, np.exp(log_weight)


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

    def scale_of_waves(self, u: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
        """One: its frequencies are normal."""
        return np.ones(len(u))


class Matern12(Stationary):
    """exp(−r): continuous, nowhere smooth."""

    def profile(self, r2: Array) -> Array:
        """exp(−r)."""
        return _decay(-_root(r2))

    def scale_of_waves(self, u: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
        """See `_student`; 1 degree of freedom."""
        return _student(u, 1)


class Matern32(Stationary):
    """(1 + √3 r) exp(−√3 r): once differentiable."""

    def profile(self, r2: Array) -> Array:
        """(1 + √3 r) exp(−√3 r)."""
        r = _root(3.0 * r2)
        return (1.0 + r) * _decay(-r)

    def scale_of_waves(self, u: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
        """See `_student`; 3 degrees of freedom."""
        return _student(u, 3)


class Matern52(Stationary):
    """(1 + √5 r + 5r²/3) exp(−√5 r): twice differentiable."""

    def profile(self, r2: Array) -> Array:
        """(1 + √5 r + 5r²/3) exp(−√5 r)."""
        r = _root(5.0 * r2)
        return (1.0 + r + 5.0 / 3.0 * r2) * _decay(-r)

    def scale_of_waves(self, u: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
        """See `_student`; 5 degrees of freedom."""
        return _student(u, 5)


class RationalQuadratic(Stationary):
    """(1 + r²/2α)^−α: a mixture of RBFs of many lengthscales; α → ∞ is the RBF.

    Args:
        lengthscale: see `RBF`.
        active_dims: see `RBF`.
        ard: see `RBF`.
        alpha: the initial mixing exponent.
        fixed: see `RBF`.
    """

    once = ("alpha",)

    alpha: Any = eqx.field(default=1.0, converter=positive)

    def profile(self, r2: Array) -> Array:
        """(1 + r²/2α)^−α."""
        return jnp.exp(-self.alpha * jnp.log1p(0.5 * r2 / self.alpha))

    def scale_of_waves(self, u: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
        """The root of a gamma variable of shape α and mean one."""
        alpha = float(np.ravel(self.alpha)[0])
        return np.sqrt(gammaincinv(alpha, u) / alpha)
