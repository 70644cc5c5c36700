"""A prior: how independent latent functions become correlated parameter functions."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..kernels import Kernel
from ..linalg import over_latents, whiten

__all__ = ["Matrices", "Prior", "Projection", "copies"]


class Matrices(NamedTuple):
    """The covariances of each latent that a batch needs.

    Attributes:
        inducing: k(Z, Z), with a jitter on its diagonal.
        cross: k(Z, X).
        variance: k(x, x).
    """

    inducing: Float[Array, "Q M M"]
    cross: Float[Array, "Q M N"]
    variance: Float[Array, "Q N"]


class Projection(NamedTuple):
    """What the inducing variables of each copy of each latent say about the inputs X.

    Attributes:
        A: L⁻¹ k(Z, X), with L Lᵀ = k(Z, Z).
        residual: k(x, x) − |A|², the variance they cannot explain.
    """

    A: Float[Array, "R M N"]
    residual: Float[Array, "R N"]


def copies(per_latent: Float[Array, "Q ..."], ranks: tuple[int, ...]) -> Float[Array, "R ..."]:
    """What belongs to a latent, for each of its copies."""
    if set(ranks) == {1}:
        return per_latent
    return per_latent[np.repeat(np.arange(len(ranks)), ranks)]


class Prior(eqx.Module):
    """f(x) = b + W u(x), with u the ΣR_q latent functions, R_q copies of each kernel's process.

    Each parameter function is held in units of its own (`centre`, `spread`), so that the learned
    numbers are of order one whatever the scale of the data.

    Attributes:
        kernels: k_q, one per latent.
        inducing_inputs: Z_q, one per latent, or a single one (Q = 1) that all latents share.
        weights: the learned part of W, in units of `spread`; a subclass says how it enters.
        constants: the learned part of b, in units of `spread`.
        centre: where b starts.
        spread: the unit of each parameter function.
        ranks: R_q, the number of copies of each latent.
    """

    kernels: tuple[Kernel, ...]
    inducing_inputs: Float[Array, "Q M p"]
    weights: Float[Array, "J R"]
    constants: Float[Array, " J"]
    centre: Float[Array, " J"]
    spread: Float[Array, " J"]
    ranks: tuple[int, ...] = eqx.field(static=True)

    @property
    @abstractmethod
    def W(self) -> Float[Array, "J R"]:  # noqa: N802
        """The mixing weights a, one column per copy of a latent."""

    @property
    def b(self) -> Float[Array, " J"]:
        """The constant of each parameter function."""
        return self.centre + self.spread * self.constants

    @property
    def coregionalisation(self) -> Float[np.ndarray, "Q J J"]:
        """B_q = A_q A_qᵀ, the covariance that latent q gives the parameter functions."""
        ends, W = np.cumsum(self.ranks), np.asarray(self.W)
        A = [W[:, end - rank : end] for end, rank in zip(ends, self.ranks, strict=True)]
        return np.stack([a @ a.T for a in A])

    @property
    def Z(self) -> Float[Array, "Q M p"]:  # noqa: N802
        """The inducing inputs of each latent."""
        return jnp.broadcast_to(
            self.inducing_inputs, (len(self.kernels), *self.inducing_inputs.shape[1:])
        )

    def matrices(self, X: Float[Array, "N p"], jitter: float | Array) -> Matrices:
        """The covariances of each latent among its inducing inputs and between them and X."""

        def of_one(kernel: Kernel, Z: Float[Array, "M p"]) -> Matrices:
            Kzz = kernel.matrix(Z, Z)
            scale = jnp.maximum(jnp.mean(kernel.diag(Z)), 1e-30)  # one, but for a Linear kernel
            Kzz = Kzz + jitter * scale * jnp.eye(Z.shape[0], dtype=Z.dtype)
            return Matrices(Kzz, kernel.matrix(Z, X), kernel.diag(X))

        return over_latents(of_one, self.kernels, self.Z)

    def project(self, X: Float[Array, "N p"], jitter: float | Array) -> Projection:
        """Project the inputs on each latent's inducing variables: Q solves, whatever J is."""
        Kzz, Kzx, variance = self.matrices(X, jitter)
        A = whiten(Kzz, Kzx)
        residual = jnp.maximum(variance - jnp.sum(A * A, axis=1), 0.0)
        return Projection(copies(A, self.ranks), copies(residual, self.ranks))
