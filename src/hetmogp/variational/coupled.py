"""One Gaussian q(v) over all latents together.

Every observation ties the latents that its parameter functions mix, so the posterior is correlated
between latents; a product over them gets the means right and the variances wrong, and its bound is
too low. With Gaussian outputs and inducing inputs at all rows this q is exact.

With P = I + Σ_n Ã_n Λ_n Ã_nᵀ, Λ_n the precisions of the sites and Ã_n the block-diagonal stack of
A_q(x_n), S = P⁻¹ and P m = Σ_n Ã_n λ_n: one factorisation of an RM × RM matrix for both. Where
likelihoods are not log-concave P may fail to be positive definite far from the best q. There is no
such q then, the bound is NaN, and fitting takes a shorter step. At the best q, P is S⁻¹ and so
positive definite by itself: nothing is lifted or clipped, and the fixed point is the right one.
"""

from collections.abc import Mapping
from typing import ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import gram, inverse_root, spread, transposed
from ..priors import Latents, Matrices, Projection
from .base import LatentSites
from .blocks import Blocks

__all__ = ["Coupled"]


class Coupled(Blocks):
    """q(v) = N(m, S) over all copies of all latents: mean (1, RM) and root (1, RM, RM)."""

    arrays: ClassVar[Mapping[str, str]] = {"mean": "1K", "root": "1KK"}

    @classmethod
    def at_prior(cls, R: int, M: int) -> Self:
        """See `Family.at_prior`."""
        return cls(jnp.zeros((1, R * M)), jnp.eye(R * M)[None])

    @classmethod
    def from_sites(cls, projection: Projection, sites: LatentSites) -> Self:
        """See `Family.from_sites`."""
        A = projection.A
        P = jnp.eye(A.shape[0] * A.shape[1], dtype=A.dtype) + gram(A, sites.precision)
        pull = jnp.einsum("rmn,nr->rm", A, sites.linear).reshape(-1)
        root = transposed(inverse_root(P[None]))
        return cls((root[0] @ (root[0].T @ pull))[None], root)

    @staticmethod
    def metric(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
        """The precision itself: means and covariances come from one matrix."""
        return precision

    def latents(self, view: Matrices | Projection) -> Latents:
        """See `Family.latents`."""
        return self.of_moments(view, self.mean, self.cov)

    @classmethod
    def of_moments(cls, view: Matrices | Projection, mean: Array, cov: Array) -> Latents:
        """Mean Aᵀm and covariance diag(residual) + Ãᵀ S Ã."""
        A, residual = view.project()
        R, M, _ = A.shape
        eye = jnp.eye(R, dtype=A.dtype)
        C = spread(A, cov[0]) + residual.T[:, :, None] * eye
        return Latents(jnp.einsum("rmn,rm->nr", A, mean.reshape(R, M)), C)

    def joint(
        self, projection: Projection, prior: Float[Array, "R N N"]
    ) -> Float[Array, "N R N R"]:
        """See `Family.joint`."""
        A = projection.A
        R, M, _ = A.shape
        rest = (self.cov[0] - jnp.eye(R * M, dtype=A.dtype)).reshape(R, M, R, M)
        own = jnp.einsum("rnl,rs->nrls", prior, jnp.eye(R, dtype=A.dtype))
        return own + jnp.einsum("rmn,rmsk,skl->nrls", A, rest, A)
