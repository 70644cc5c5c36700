"""Functions drawn from the posterior, which can be evaluated anywhere and again.

A draw of a latent with inducing variables is a draw of its prior, moved to a draw of q (Wilson and
others, 2020, 2021):

    u(x) = φ(x)ᵀw + k(x, Z) K⁻¹ (u_Z − φ(Z)ᵀw − ε),     w ~ N(0, I),  u_Z ~ q,

with φ the features of the kernel (`kernels.features`), K = k(Z, Z) with its jitter, and ε noise of
the jitter's variance. For a local latent, the values at the places nearest to x take the place of
u_Z, and ε is the part that each place, and each x, has to itself. It follows from the coordinates.

Draws come in groups. Each group has features of its own: with one set for all, every draw would
have the same error.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.spatial import cKDTree

from .kernels import Features, Kernel, features
from .linalg import compiled, inverse_root
from .places import nearest
from .priors import Prior
from .rows import padded, rowwise
from .variational import Family, Neighbourhood

__all__ = ["FREQUENCIES", "GROUP", "Paths", "exact_draws"]

GROUP = 128  # draws that share their features
FREQUENCIES = 256  # of each latent, in each group
LARGEST = 1e6  # the most numbers of all draws for a chunk of rows


class _Waves(eqx.Module):
    """Draws of the prior of one latent: φ(x)ᵀw.

    Attributes:
        features: φ of each of G groups, stacked.
        w: the weights in each group, for each draw and each copy of the latent.
    """

    features: Features
    w: Float[Array, "G F D"]

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        copies: int,
        sizes: tuple[int, int],
        domain: tuple[int, Mapping[int, np.ndarray]],
        seed: Sequence[int],
    ) -> "_Waves":
        """Draw them.

        Args:
            kernel: the kernel of the latent.
            copies: the number of copies of the latent.
            sizes: how many groups there are, and draws in each.
            domain: the number of inputs, and the values of those that are labels.
            seed: the seed of all groups, used for nothing else.
        """
        maps, weights = [], []
        for group in range(sizes[0]):
            generator = np.random.default_rng([*seed, group])
            maps.append(features(kernel, FREQUENCIES, *domain, generator))
            F = maps[-1](jnp.zeros((1, domain[0]))).shape[1]
            weights.append(generator.standard_normal((sizes[1] * copies, F)).T)
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *maps)
        return cls(stacked, jnp.asarray(np.stack(weights)))

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N GD"]:
        """The draws at each row, group after group."""
        parts = jax.lax.map(lambda pair: pair[0](X) @ pair[1], (self.features, self.w))
        return jnp.swapaxes(parts, 0, 1).reshape(len(X), -1)


class Paths:
    """n functions drawn from a posterior, at standardised inputs.

    Args:
        prior: the latents and how they make parameter functions.
        q: the distribution of the whitened inducing variables.
        jitter: added to the diagonals of k(Z, Z).
        near: the distribution of the local latents, if there are any.
        n: the number of functions.
        seed: the seed of the draws.
        levels: the values of inputs that are labels, by their positions.
    """

    def __init__(
        self,
        prior: Prior,
        q: Family,
        jitter: float,
        near: Neighbourhood | None,
        n: int,
        seed: int,
        levels: Mapping[int, np.ndarray],
    ):
        self.n = n
        self._prior, q = jax.tree.map(jnp.asarray, (prior, q))
        groups = -(-n // GROUP)
        sizes, domain = (groups, min(n, GROUP)), (prior.inducing_inputs.shape[2], levels)
        kernels, ranks = prior.smooth, prior.smooth_ranks
        self._waves = tuple(
            _Waves.of(kernel, rank, sizes, domain, [seed, 0, latent])
            for latent, (kernel, rank) in enumerate(zip(kernels, ranks, strict=True))
        )
        keys = jax.random.split(jax.random.key(seed), (3, groups))
        v = jax.vmap(lambda key: q.draws(key, sizes[1]))(keys[0]).reshape(groups * sizes[1], -1)
        noise = jax.random.normal(keys[1, 0], (self.rows, *prior.sizes), v.dtype)
        whitened = q.apart(v, prior.widths)
        self._pull = _pulls(self._prior, self._waves, jnp.asarray(jitter), whitened, noise)
        self._local = None
        if near is not None:
            self._local = _Local(prior.nearby, near, keys[2], sizes, domain, seed)

    @property
    def rows(self) -> int:
        """The number of draws that are made; it may be more than the number wanted."""
        groups, _, _ = self._waves[0].w.shape
        return groups * min(self.n, GROUP)

    def __call__(self, X: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N n J"]:
        """The parameter functions at each row, of each draw."""
        R = sum(self._prior.ranks)
        J = len(self._prior.values(slice(None), jnp.zeros(R)))
        chunk = int(np.clip(2 ** round(np.log2(LARGEST / (self.rows * (J + R)))), 64, 8192))
        if self._local is None:
            return rowwise(self._at_rows, np.asarray(X), chunk=chunk)[:, : self.n]
        near = self._local.nearest(X)
        order = self._local.order(near)  # so that few blocks are needed at a time
        values = rowwise(self._at_rows, np.asarray(X)[order], near[order], chunk=chunk)
        result = np.empty_like(values)
        result[order] = values
        return result[:, : self.n]

    def order(self, X: Float[np.ndarray, "N p"]) -> Int[np.ndarray, " N"] | None:
        """The best order in which to ask for rows, some at a time; None if it does not matter."""
        return None if self._local is None else self._local.order(self._local.nearest(X))

    def _at_rows(self, x: Array, *near: Array) -> Array:
        local = () if self._local is None else (self._local(x, near[0]),)
        return _values(self._prior, self._waves, self._pull, x, local)


@compiled
def _pulls(
    prior: Prior,
    waves: tuple[_Waves, ...],
    jitter: Array,
    v: Float[Array, "n R M"],
    noise: Float[Array, "n R M"],
) -> list[Float[Array, "M nr"]]:
    """K⁻¹ (u_Z − φ(Z)ᵀw − ε) = L⁻ᵀ (v − L⁻¹ (φ(Z)ᵀw + ε)) for the draws of each latent."""
    Z, n, first, pulls = prior.Z, len(v), 0, []
    matrices = prior.matrices(Z[0, :1], jitter)
    inverse = inverse_root(matrices.inducing)
    counts = prior.counts or (Z.shape[1],) * len(waves)
    for q, (kernel, rank) in enumerate(zip(prior.smooth, prior.smooth_ranks, strict=True)):
        M = Z.shape[1]
        own = jnp.diagonal(matrices.inducing[q]) - kernel.diag(Z[q])  # the jitter
        used = (jnp.arange(M) < counts[q])[:, None]
        mine = slice(first, first + rank)
        extra = jnp.moveaxis(noise[:, mine], 2, 0).reshape(M, n * rank)
        at_Z = waves[q](Z[q]) + jnp.sqrt(jnp.maximum(own, 0.0))[:, None] * extra
        white = jnp.moveaxis(v[:, mine], 2, 0).reshape(M, n * rank)
        rest = white - inverse[q] @ jnp.where(used, at_Z, 0.0)
        pulls.append(jnp.where(used, inverse[q].T @ rest, 0.0))
        first += rank
    return pulls


@partial(compiled, often=True)
def _values(
    prior: Prior,
    waves: tuple[_Waves, ...],
    pulls: list[Float[Array, "M nr"]],
    X: Float[Array, "N p"],
    local: tuple[Float[Array, "N n S"], ...],
) -> Float[Array, "N n J"]:
    """The parameter functions of all draws at some rows."""
    each = []
    for q, rank in enumerate(prior.smooth_ranks):
        cross = prior.smooth[q].matrix(X, prior.Z[q])
        u = waves[q](X) + cross @ pulls[q]
        each.append(u.reshape(len(X), -1, rank))
    return prior.values(slice(None), jnp.concatenate([*each, *local], axis=2))


class _Local:
    """Draws of the local latents, from the places nearest to each row."""

    def __init__(
        self,
        kernels: tuple[Kernel, ...],
        near: Neighbourhood,
        keys: Array,
        sizes: tuple[int, int],
        domain: tuple[int, Mapping[int, np.ndarray]],
        seed: int,
    ):
        self._kernels, self._near = jax.tree.map(jnp.asarray, (kernels, near))
        self._keys, self._size = keys, sizes[1]
        self._tree = cKDTree(np.asarray(near.at))
        self._blocks = np.asarray(near.block)
        self._waves = tuple(
            _Waves.of(kernel, 1, sizes, domain, [seed, 1, latent])
            for latent, kernel in enumerate(kernels)
        )

    def nearest(self, X: Float[np.ndarray, "N p"]) -> Int[np.ndarray, "N K"]:
        """The places nearest to each row."""
        return nearest(self._tree, X, self._near.neighbours)

    def order(self, near: Int[np.ndarray, "N K"]) -> Int[np.ndarray, " N"]:
        """The rows, sorted by the block of their nearest place."""
        return np.argsort(self._blocks[near[:, 0]], kind="stable")

    def __call__(self, X: Float[Array, "N p"], near: Int[Array, "N K"]) -> Float[Array, "N n S"]:
        """The local latents at some rows, of each draw."""
        places, which = np.unique(np.asarray(near), return_inverse=True)
        blocks, whose = np.unique(self._blocks[places], return_inverse=True)
        some = (jnp.asarray(padded(part)) for part in (places, whose, blocks))
        at = jnp.asarray(which.reshape(near.shape))
        rest = _surplus(self._near, self._waves, self._keys, self._size, *some)
        return _near_values(self._near, self._kernels, self._waves, self._keys, X, near, at, rest)


@partial(compiled, static=("n",))
def _surplus(
    near: Neighbourhood,
    waves: tuple[_Waves, ...],
    keys: Array,
    n: int,
    places: Int[Array, " U"],
    whose: Int[Array, " U"],
    blocks: Int[Array, " B"],
) -> Float[Array, "U nG S"]:
    """u_Z − φ(Z)ᵀw − ε at some places: draws of q less the matching draws of the prior."""
    u = near.draws(_folded(keys, 0), places, whose, blocks, n)  # G U n S
    u = jnp.swapaxes(u, 0, 1).reshape(len(places), -1, len(waves))
    prior = jnp.stack([wave(near.at[places]) for wave in waves], axis=2)
    noise = _noise(keys, near.at[places], (n, len(waves)))
    return u - jnp.sqrt(1.0 - near.own) * prior - jnp.sqrt(near.own) * noise


@partial(compiled, often=True)
def _near_values(
    near: Neighbourhood,
    kernels: tuple[Kernel, ...],
    waves: tuple[_Waves, ...],
    keys: Array,
    X: Float[Array, "N p"],
    places: Int[Array, "N K"],
    which: Int[Array, "N K"],
    surplus: Float[Array, "U n S"],
) -> Float[Array, "N n S"]:
    """φ(x)ᵀw + ε + aᵀ(u_n − φ(z_n)ᵀw − ε_n), a the weights of the nearest places.

    If x is one of the places, a is one there and ε is the same, so the place's own value remains.
    """
    a = near.given(kernels, X, places).a
    each = []
    for s, wave in enumerate(waves):
        pull = sum(a[s, :, k, None] * surplus[which[:, k], :, s] for k in range(which.shape[1]))
        each.append(jnp.sqrt(1.0 - near.own[s]) * wave(X) + pull)
    n = surplus.shape[1] // len(keys)
    return jnp.stack(each, axis=2) + jnp.sqrt(near.own) * _noise(keys, X, (n, len(waves)))


def _noise(keys: Array, X: Float[Array, "N p"], shape: tuple[int, int]) -> Float[Array, "N nG S"]:
    """Standard normal numbers that depend only on the inputs, for each group of draws."""
    bits = jax.lax.bitcast_convert_type(X + 0.0, jnp.uint32).reshape(len(X), -1)  # −0 is 0

    def of_row(key: Array, row: Int[Array, " b"]) -> Array:
        for part in row:
            key = jax.random.fold_in(key, part)
        return jax.random.normal(key, shape, float)

    groups = jax.lax.map(lambda key: jax.vmap(partial(of_row, key))(bits), _folded(keys, 1))
    return jnp.swapaxes(groups, 0, 1).reshape(len(X), -1, shape[1])


def _folded(keys: Array, kind: int) -> Array:
    """Keys for one kind of noise."""
    return jax.vmap(lambda key: jax.random.fold_in(key, kind))(keys)


def exact_draws(
    mean: Float[np.ndarray, "N R"], cov: Float[np.ndarray, "N R N R"], n: int, seed: int
) -> Float[np.ndarray, "N n R"]:
    """n draws of latents over all rows together, from their mean and covariance."""
    N, R = mean.shape
    square = np.asarray(cov, float).reshape(N * R, N * R)
    noise = np.random.default_rng(seed).standard_normal((N * R, n))
    draws = (_root(square) @ noise).reshape(N, R, n)
    return np.asarray(mean)[:, None, :] + np.moveaxis(draws, 1, 2)


def _root(cov: Float[np.ndarray, "K K"]) -> Any:
    """A lower root of a covariance, some of whose eigenvalues may be zero up to rounding."""
    scale = max(float(np.mean(np.diagonal(cov))), 1e-300)
    for jitter in (1e-13, 1e-11, 1e-9, 1e-7):
        try:
            return np.linalg.cholesky(cov + jitter * scale * np.eye(len(cov)))
        except np.linalg.LinAlgError:
            continue
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0.0))
