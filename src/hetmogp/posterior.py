"""The posterior: what conditioning on data gives, the prior with q(u).

It answers for any inputs, row by row or jointly. Draws of whole functions will have their place
here: q gives draws of the inducing variables (`Family.draws`), the prior what lies between them.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .linalg import compiled
from .priors import Functions, Latents, Prior, copies
from .rows import CHUNK, rowwise
from .variational import Family

__all__ = ["Posterior"]

LARGEST_CROSS = 2e6  # entries of k(Z, X) at once, over all latents


class Posterior(eqx.Module):
    """q(u) with the prior, at standardised inputs.

    Attributes:
        prior: latents and how they make parameter functions.
        q: of the whitened inducing variables.
        jitter: what is added to the diagonals of k(Z, Z).
    """

    prior: Prior
    q: Family
    jitter: float

    def latents(self, X: Float[np.ndarray, "N p"]) -> Latents:
        """The latent functions at each row: mean, and variances or covariances."""
        R, M = self.prior.sizes
        rows = int(np.clip(2 ** round(np.log2(LARGEST_CROSS / (R * M))), 256, 4 * CHUNK))
        prior, q = jax.tree.map(jnp.asarray, (self.prior, self.q))
        jitter = jnp.asarray(self.jitter)
        ready = _ready(prior, q, jitter)  # all that does not depend on X, once
        return rowwise(lambda x: _latents(prior, ready, jitter, x), X, chunk=rows)

    def functions(self, X: Float[np.ndarray, "N p"]) -> Functions:
        """All J parameter functions at each row: mean (N, J) and covariance (N, J, J)."""
        prior = jax.tree.map(jnp.asarray, self.prior)
        return rowwise(lambda *latents: _functions(prior, Latents(*latents)), *self.latents(X))

    def joint(
        self, X: Float[np.ndarray, "N p"]
    ) -> tuple[Float[np.ndarray, "N J"], Float[np.ndarray, "N J N J"]]:
        """Mean and covariance of all parameter functions over all rows; for some hundreds."""
        prior, q = jax.tree.map(jnp.asarray, (self.prior, self.q))
        mean, cov = _joint(prior, q, jnp.asarray(self.jitter), jnp.asarray(X))
        return np.asarray(mean), np.asarray(cov)


@compiled
def _ready(prior: Prior, q: Family, jitter: Array) -> Any:
    return q.ready(prior.matrices(prior.Z[0, :1], jitter).inducing, prior.ranks)


@partial(compiled, often=True)
def _latents(prior: Prior, q: Any, jitter: Array, X: Array) -> Latents:
    return q.latents(prior.matrices(X, jitter))


@compiled
def _functions(prior: Prior, latents: Latents) -> Functions:
    return prior.functions(slice(None), latents)


@compiled
def _joint(prior: Prior, q: Family, jitter: Array, X: Array) -> tuple[Array, Array]:
    projection = prior.matrices(X, jitter).project()
    among = jnp.stack([kernel.matrix(X, X) for kernel in prior.kernels])
    cov = q.joint(projection, copies(among, prior.ranks))
    return prior.values(slice(None), q.latents(projection).mean), prior.joint(cov)
