"""The posterior, which is the prior with q(u).

It gives latents and parameter functions at any inputs: row by row, jointly over rows, or as
functions drawn from it (`pathwise`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.spatial import cKDTree

from .linalg import compiled
from .pathwise import Paths, exact_draws
from .places import nearest
from .priors import Functions, Latents, Prior, copies
from .rows import CHUNK, padded, rowwise
from .variational import Family, Neighbourhood

__all__ = ["Posterior"]

LARGEST_CROSS = 2e6  # the most entries of k(Z, X) at once, over all latents
JOINTLY = 128  # rows taken jointly are padded to a multiple, so that few programs are compiled


class Posterior(eqx.Module):
    """The prior with q(u), on standardised inputs.

    Attributes:
        prior: the latents and how they make parameter functions.
        q: the distribution of the whitened inducing variables.
        jitter: added to the diagonals of k(Z, Z).
        near: the distribution of the local latents, if there are any.
    """

    prior: Prior
    q: Family
    jitter: float
    near: Neighbourhood | None = None

    def latents(self, X: Float[np.ndarray, "N p"]) -> Latents:
        """The latent functions at each row: their means, and their variances or covariances."""
        smooth = self._smooth(X)
        if self.near is None:
            return smooth
        prior, near = jax.tree.map(jnp.asarray, (self.prior, self.near))
        local = rowwise(lambda x, at: _local(prior, near, x, at), X, self._nearest(X))
        return jax.tree.map(np.asarray, Latents(*smooth).beside(Latents(*local)))

    def _nearest(self, X: Float[np.ndarray, "N p"]) -> Int[np.ndarray, "N K"]:
        """The places nearest to each row."""
        assert self.near is not None
        return nearest(cKDTree(np.asarray(self.near.at)), np.asarray(X), self.near.neighbours)

    def _smooth(self, X: Float[np.ndarray, "N p"]) -> Latents:
        """The latents that have inducing inputs."""
        R, M = self.prior.sizes
        rows = int(np.clip(2 ** round(np.log2(LARGEST_CROSS / (R * M))), 256, 4 * CHUNK))
        prior, q = jax.tree.map(jnp.asarray, (self.prior, self.q))
        jitter = jnp.asarray(self.jitter)
        ready = _ready(prior, q, jitter)  # what does not depend on X is computed once
        return rowwise(lambda x: _latents(prior, ready, jitter, x), X, chunk=rows)

    def functions(self, X: Float[np.ndarray, "N p"]) -> Functions:
        """All J parameter functions at each row: means (N, J) and covariances (N, J, J)."""
        prior = jax.tree.map(jnp.asarray, self.prior)
        return rowwise(lambda *latents: _functions(prior, Latents(*latents)), *self.latents(X))

    def joint(
        self, X: Float[np.ndarray, "N p"]
    ) -> tuple[Float[np.ndarray, "N J"], Float[np.ndarray, "N J N J"]]:
        """Mean and covariance of all parameter functions over all rows, up to some hundreds."""
        latents, cov = self._joint_latents(X)
        prior = jax.tree.map(jnp.asarray, self.prior)
        return np.asarray(_values(prior, latents)), np.asarray(_mixed(prior, cov))

    def draws(self, X: Float[np.ndarray, "N p"], n: int, seed: int) -> Float[np.ndarray, "N n J"]:
        """`n` joint draws of all parameter functions over all rows, up to some hundreds."""
        mean, cov = self._joint_latents(X)
        u = exact_draws(np.asarray(mean), np.asarray(cov), n, seed)
        prior = jax.tree.map(jnp.asarray, self.prior)
        return np.asarray(_values(prior, jnp.asarray(u)))

    def paths(self, n: int, seed: int, levels: Mapping[int, np.ndarray]) -> Paths:
        """Draw `n` functions, for any number of rows; `levels` has the values of labels."""
        return Paths(self.prior, self.q, self.jitter, self.near, n, seed, levels)

    def _joint_latents(
        self, X: Float[np.ndarray, "N p"]
    ) -> tuple[Float[Array, "N R"], Float[Array, "N R N R"]]:
        """Mean and covariance of the latents over all rows."""
        prior, q = jax.tree.map(jnp.asarray, (self.prior, self.q))
        N, jitter, x = len(X), jnp.asarray(self.jitter), jnp.asarray(X)
        more = padded(np.asarray(X), -(-N // JOINTLY) * JOINTLY)
        latents, cov = _joint(prior, q, jitter, jnp.asarray(more))
        latents, cov = latents[:N], cov[:N, :, :N]
        if self.near is not None:
            near = jax.tree.map(jnp.asarray, self.near)
            own, other = _joint_local(prior, near, x, jnp.asarray(self._nearest(X)))
            R, S = latents.shape[1], own.shape[1]
            latents = jnp.concatenate([latents, own], axis=1)
            none, after, before = (0, 0), (0, S), (R, 0)
            cov = jnp.pad(cov, (none, after) * 2) + jnp.pad(other, (none, before) * 2)
        return latents, cov


@compiled
def _ready(prior: Prior, q: Family, jitter: Array) -> Any:
    return q.ready(prior.matrices(prior.Z[0, :1], jitter).inducing, prior.smooth_ranks)


@compiled
def _latents(prior: Prior, q: Any, jitter: Array, X: Array) -> Latents:
    return q.latents(prior.matrices(X, jitter))


@compiled
def _functions(prior: Prior, latents: Latents) -> Functions:
    return prior.functions(slice(None), latents)


@compiled
def _joint(prior: Prior, q: Family, jitter: Array, X: Array) -> tuple[Array, Array]:
    projection = prior.matrices(X, jitter).project()
    among = jnp.stack([kernel.matrix(X, X) for kernel in prior.smooth])
    cov = q.joint(projection, copies(among, prior.smooth_ranks))
    return q.latents(projection).mean, cov


@partial(compiled, often=True)
def _local(prior: Prior, near: Neighbourhood, X: Array, places: Int[Array, "N K"]) -> Latents:
    return near.latents(near.given(prior.nearby, X, places), places)


@compiled
def _joint_local(
    prior: Prior, near: Neighbourhood, X: Array, places: Int[Array, "N K"]
) -> tuple[Array, Array]:
    given = near.given(prior.nearby, X, places)
    return near.latents(given, places).mean, near.joint(given, X, places)


@compiled
def _values(prior: Prior, u: Array) -> Array:
    return prior.values(slice(None), u)


@compiled
def _mixed(prior: Prior, cov: Array) -> Array:
    return prior.joint(cov)
