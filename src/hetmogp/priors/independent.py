"""Independent Gaussian processes, one per parameter function: chained GPs, the paper's baseline."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import Prior

__all__ = ["Independent"]


class Independent(Prior):
    """f_j(x) = b_j + a_j u_j(x): W is diagonal, with `weights` its (J,) diagonal."""

    @property
    def W(self) -> Float[Array, "J J"]:  # noqa: N802
        """See `Prior.W`."""
        return jnp.diag(self.spread * self.weights)
