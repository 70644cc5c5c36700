"""q(v) independent over all copies of all latents, as in the paper."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import gram, inverse_root, transposed
from ..priors import Latents, Matrices, Projection, copies
from .base import LatentSites
from .blocks import Blocks
from .one_pass import condensed, from_condensed, marginals

__all__ = ["Factorised", "dominant"]


class Factorised(Blocks):
    """q(v) = Π N(m, S) over the R copies of latents: means (R, M) and roots (R, M, M)."""

    arrays: ClassVar[Mapping[str, str]] = {"mean": "RM", "root": "RMM"}
    diagonal: ClassVar[bool] = True

    @classmethod
    def at_prior(cls, widths: Sequence[int]) -> Self:
        """See `Family.at_prior`; numbers beyond the width of a copy always stay at the prior."""
        R, M = len(widths), max(widths)
        return cls(jnp.zeros((R, M)), jnp.broadcast_to(jnp.eye(M), (R, M, M)))

    @classmethod
    def from_sites(cls, projection: Projection, sites: LatentSites) -> Self:
        """The means are solved for all latents *together*, because every observation ties them.

        One latent at a time, they would converge slowly or not at all. The covariances are those of
        the best factorised q: one block per copy, from the diagonal of the precision.
        """
        A = projection.A
        R, M, _ = A.shape
        P = jnp.eye(R * M, dtype=A.dtype) + gram(A, sites.metric)
        pull = jnp.einsum("rmn,nr->rm", A, sites.linear).reshape(R * M)
        inverse = inverse_root(P[None])[0]
        mean = inverse.T @ (inverse @ pull)
        along = jnp.diagonal(sites.precision, axis1=1, axis2=2)
        blocks = jnp.einsum("rmn,nr,rkn->rmk", A, along, A)
        blocks = jnp.eye(M, dtype=A.dtype) + 0.5 * (blocks + jnp.swapaxes(blocks, 1, 2))
        return cls(mean.reshape(R, M), transposed(inverse_root(blocks)))

    @staticmethod
    def metric(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
        """The precisions made positive semi-definite, as all means are solved for together."""
        return dominant(precision)

    def latents(self, view: Matrices | Projection) -> Latents:
        """See `Family.latents`."""
        projection = view.project()
        A, residual = projection.A, projection.residual
        mean = jnp.einsum("rmn,rm->nr", A, self.mean)
        spread = jnp.einsum("rmk,rmn->rkn", self.root, A)
        return Latents(mean, (residual + jnp.sum(spread * spread, axis=1)).T)

    @classmethod
    def of_moments(cls, view: Matrices | Projection, mean: Array, cov: Array) -> Latents:
        """See `Blocks.of_moments`: in one pass, without forming a projection."""
        assert isinstance(view, Matrices)
        return marginals(view, mean, cov)

    def joint(
        self, projection: Projection, prior: Float[Array, "R N N"]
    ) -> Float[Array, "N R N R"]:
        """See `Family.joint`."""
        A = projection.A
        rest = self.cov - jnp.eye(A.shape[1], dtype=A.dtype)
        each = prior + jnp.einsum("rmn,rmk,rkl->rnl", A, rest, A)
        return jnp.einsum("rnl,rs->nrls", each, jnp.eye(len(A), dtype=A.dtype))

    @staticmethod
    def apart(v: Float[Array, "n K"], widths: tuple[int, ...]) -> Float[Array, "n R M"]:
        """See `Family.apart`."""
        each = v.reshape(len(v), len(widths), -1)
        return jnp.where(jnp.arange(each.shape[2]) < jnp.array(widths)[:, None], each, 0.0)

    def ready(
        self, inducing: Float[Array, "Q M M"], ranks: tuple[int, ...]
    ) -> "Factorised | Condensed":
        """See `Family.ready`; single precision is too coarse for the shorter way (`one_pass`)."""
        if self.mean.dtype != jnp.float64:
            return self
        return Condensed(*condensed(inducing, ranks, self.mean, self.cov)[:2])


def dominant(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
    """Make matrices positive semi-definite: raise diagonals until they dominate their rows.

    Each row is measured in units of its diagonal, so the scale of y makes no difference.
    """
    diagonal = jnp.diagonal(precision, axis1=1, axis2=2)
    unit = jnp.sqrt(jnp.abs(diagonal) + jnp.finfo(diagonal.dtype).tiny)
    relative = precision / (unit[:, :, None] * unit[:, None, :])
    own = diagonal / unit**2
    others = jnp.sum(jnp.abs(relative), axis=2) - jnp.abs(own)
    lift = jnp.maximum(others - own, 0.0) * unit**2
    return precision + lift[:, :, None] * jnp.eye(lift.shape[1], dtype=lift.dtype)


class Condensed(eqx.Module):
    """q with what does not depend on the rows computed: α = L⁻ᵀ m and Ω = L⁻ᵀ (S − I) L⁻¹."""

    alpha: Float[Array, "R M"]
    omega: Float[Array, "R M M"]

    def latents(self, view: Matrices) -> Latents:
        """See `Family.latents`."""
        cross, variance = copies(view.cross, view.ranks), copies(view.variance, view.ranks)
        mean, spread, _ = from_condensed(self.alpha, self.omega, cross, variance)
        return Latents(mean.T, spread.T)
