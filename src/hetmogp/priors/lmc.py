"""The linear model of coregionalisation, and its opposite, in which nothing is shared."""

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .affine import Affine

__all__ = ["LMC", "Independent"]


class LMC(Affine):
    """f_j(x) = b_j + Σ_q Σ_i a_{jq}^i u_q^i(x), with `weights` the (J, ΣR_q) matrix of the a's.

    Attributes:
        mask: one where a weight may be learned, zero where it was dropped.
    """

    arrays: ClassVar[Mapping[str, str]] = {**Affine.arrays, "mask": "JR"}

    mask: Float[Array, "J R"]

    @classmethod
    def start(cls, centre: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> dict:
        """See `Prior.start`."""
        return {**super().start(centre, spread, noise), "mask": np.ones(noise.shape)}

    @property
    def W(self) -> Float[Array, "J R"]:  # noqa: N802
        """See `Affine.W`."""
        return self.spread[:, None] * self.mask * self.weights


class Independent(Affine):
    """f_j(x) = b_j + a_j u_j(x): a latent for each parameter function (chained GPs)."""

    arrays: ClassVar[Mapping[str, str]] = {**Affine.arrays, "weights": "J1"}
    one_each: ClassVar[bool] = True

    weights: Float[Array, "J 1"]

    @classmethod
    def start(cls, centre: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> dict:
        """See `Prior.start`."""
        return {**super().start(centre, spread, noise), "weights": np.ones((len(centre), 1))}

    @property
    def W(self) -> Float[Array, "J J"]:  # noqa: N802
        """See `Affine.W`."""
        return jnp.diag(self.spread * self.weights[:, 0])
