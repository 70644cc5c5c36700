"""The linear model of coregionalisation."""

from jaxtyping import Array, Float

from .base import Prior

__all__ = ["LMC"]


class LMC(Prior):
    """f_j(x) = b_j + Σ_q Σ_i a_{jq}^i u_q^i(x), with `weights` the (J, ΣR_q) matrix of the a's.

    Attributes:
        mask: one where a weight may be learned, zero where it is absent. All ones is the full
            model; the identity is one process per parameter function (chained GPs).
    """

    mask: Float[Array, "J R"]

    @property
    def W(self) -> Float[Array, "J R"]:  # noqa: N802
        """See `Prior.W`."""
        return self.spread[:, None] * self.mask * self.weights
