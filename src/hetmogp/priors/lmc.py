"""The linear model of coregionalisation, and its opposite, in which nothing is shared."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .affine import Affine

__all__ = ["LMC", "Independent"]


class LMC(Affine):
    """f_j(x) = b_j + Σ_q Σ_i a_{jq}^i u_q^i(x), with `weights` the (J, ΣR_q) matrix of the a's.

    Attributes:
        mask: one where a weight may be learned, zero where it was dropped.
    """

    mask: Float[Array, "J R"]

    @property
    def W(self) -> Float[Array, "J R"]:  # noqa: N802
        """See `Affine.W`."""
        return self.spread[:, None] * self.mask * self.weights


class Independent(Affine):
    """f_j(x) = b_j + a_j u_j(x): a latent for each parameter function (chained GPs)."""

    weights: Float[Array, "J 1"]

    @property
    def W(self) -> Float[Array, "J J"]:  # noqa: N802
        """See `Affine.W`."""
        return jnp.diag(self.spread * self.weights[:, 0])
