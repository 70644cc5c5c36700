"""One Gaussian q(v) over all latents together.

Every observation ties the latents that its parameter functions mix, so the posterior is correlated
between latents. A product over latents has the right means but wrong variances, and its bound is
too low. With Gaussian outputs and inducing inputs at all rows this q is exact.

With P = I + Σ_n Ã_n Λ_n Ã_nᵀ, Λ_n the precisions of the sites and Ã_n the block-diagonal stack of
A_q(x_n), S = P⁻¹ and P m = Σ_n Ã_n λ_n: one factorisation of an RM × RM matrix gives both. Where
likelihoods are not log-concave, P may not be positive definite far from the best q. Then there is
no such q, the bound is NaN, and fitting takes a shorter step. At the best q, P = S⁻¹ is positive
definite. So nothing needs to be clipped, and the fixed point is the right one.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg import gram, inverse_root, spread, transposed
from ..priors import Latents, Matrices, Projection
from .base import LatentSites
from .blocks import Blocks

__all__ = ["Coupled"]

PROBES = 2  # random vectors used to estimate a trace


class Coupled(Blocks):
    """q(v) = N(m, S) over all K inducing variables: mean (1, K) and root (1, K, K)."""

    arrays: ClassVar[Mapping[str, str]] = {"mean": "1K", "root": "1KK"}

    @classmethod
    def at_prior(cls, widths: Sequence[int]) -> Self:
        """See `Family.at_prior`."""
        K = sum(widths)
        return cls(*map(jnp.asarray, (np.zeros((1, K)), np.eye(K)[None])))

    @classmethod
    def from_sites(cls, projection: Projection, sites: LatentSites) -> Self:
        """See `Family.from_sites`."""
        A, widths = projection.A, projection.widths
        P = jnp.eye(sum(widths), dtype=A.dtype) + gram(A, sites.precision, widths)
        pull = _stacked(jnp.einsum("rmn,nr->rm", A, sites.linear), widths)
        root = transposed(inverse_root(P[None]))
        return cls((root[0] @ (root[0].T @ pull))[None], root)

    def promise(self, projection: Projection, change: LatentSites) -> Float[Array, ""]:
        """½ gᵀSg + ¼ tr(SDSD), with g the change of P m for fixed m, and D the change of P.

        This is the divergence of this q from the next one if the sites are exact. The trace is the
        mean of |Rᵀ D R ε|² over standard normal ε, with S = R Rᵀ, estimated from a few ε.
        """
        A, widths, root = projection.A, projection.widths, self.root[0]
        g = _stacked(jnp.einsum("rmn,nr->rm", A, change.linear), widths)
        total = 0.5 * jnp.sum((root.T @ g) ** 2)
        noise = np.random.default_rng(0).standard_normal((PROBES, sum(widths)))
        for one in jnp.asarray(noise, A.dtype):
            at_rows = jnp.einsum("rmn,rm->nr", A, _apart(root @ one, widths))
            pull = jnp.einsum("nrs,ns->nr", change.precision, at_rows)
            back = _stacked(jnp.einsum("rmn,nr->rm", A, pull), widths)
            total += 0.25 * jnp.sum((root.T @ back) ** 2) / PROBES
        return total

    @staticmethod
    def metric(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
        """The precision itself: means and covariances come from the same matrix."""
        return precision

    def latents(self, view: Matrices | Projection) -> Latents:
        """See `Family.latents`."""
        return self.of_moments(view, self.mean, self.cov)

    @classmethod
    def of_moments(cls, view: Matrices | Projection, mean: Array, cov: Array) -> Latents:
        """Mean Aᵀm and covariance diag(residual) + Ãᵀ S Ã."""
        projection = view.project()
        A, widths = projection.A, projection.widths
        eye = jnp.eye(len(A), dtype=A.dtype)
        C = spread(A, cov[0], widths) + projection.residual.T[:, :, None] * eye
        return Latents(jnp.einsum("rmn,rm->nr", A, _apart(mean[0], widths)), C)

    def joint(
        self, projection: Projection, prior: Float[Array, "R N N"]
    ) -> Float[Array, "N R N R"]:
        """See `Family.joint`."""
        A, widths = projection.A, projection.widths
        R, _, N = A.shape
        both = jnp.zeros((R, N, sum(widths)), A.dtype)  # Ã for each latent and row
        for r, (end, width) in enumerate(zip(np.cumsum(widths), widths, strict=True)):
            both = both.at[r, :, end - width : end].set(A[r, :width].T)
        rest = self.cov[0] - jnp.eye(sum(widths), dtype=A.dtype)
        own = jnp.einsum("rnl,rs->nrls", prior, jnp.eye(R, dtype=A.dtype))
        return own + jnp.einsum("rnj,jk,slk->nrls", both, rest, both)

    @staticmethod
    def apart(v: Float[Array, "n K"], widths: tuple[int, ...]) -> Float[Array, "n R M"]:
        """See `Family.apart`."""
        return jax.vmap(lambda one: _apart(one, widths))(v)


def _stacked(each: Float[Array, "R M"], widths: tuple[int, ...]) -> Float[Array, " K"]:
    """The numbers of all latents, one latent after another."""
    return jnp.concatenate([one[:width] for one, width in zip(each, widths, strict=True)])


def _apart(stacked: Float[Array, " K"], widths: tuple[int, ...]) -> Float[Array, "R M"]:
    """The numbers of each latent, padded with zeros to the same length."""
    parts = jnp.split(stacked, np.cumsum(widths)[:-1])
    return jnp.stack([jnp.pad(part, (0, max(widths) - len(part))) for part in parts])
