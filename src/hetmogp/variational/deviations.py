"""How local latents deviate from their means together, beyond the blocks of q.

Given the sites, the exact posterior of the local latents is Gaussian with precision P = Q + Λ. Here
Q = Σ_i w_i w_iᵀ / v_i comes from the conditionals of all places, w_i = (1, −a_i). A q of blocks
takes each block with the others held at their means, so it is too certain about what reaches across
blocks. Draws supply what it leaves out. With standard normal numbers ξ and ζ,

    b = Σ_i w_i ξ_i / √v_i + Λ^½ ζ   has covariance P,   so   x = P⁻¹ b   has covariance P⁻¹

(Papandreou and Yuille, 2010). The system is solved by conjugate gradients, with the covariances S_c
of the blocks as preconditioner. Given the rest, block c has the mean y_c = x_c − S_c b_c and the
covariance S_c, so its covariance is S_c plus that of y_c. The y are kept. So only what reaches
across blocks has the noise of finitely many draws.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..linalg import compiled
from .neighbours import Conditional, Neighbourhood, Sites, with_own
from .semidefinite import semi_root

__all__ = ["TOGETHER", "deviations", "means"]

TOGETHER = 8  # draws of one call
AT_ONCE = 2  # draws that are solved for at once: more would take most of the memory of a fit
TURNS = 200  # the most iterations of conjugate gradients
CLOSE = 0.01  # the residual, relative to b, at which the solution for draws ends
VERY_CLOSE = 1e-4  # the same for means


class _System(NamedTuple):
    """P, and the covariances of the blocks, which are nearly its inverse."""

    given: Conditional
    every: Int[Array, "L k"]
    precision: Float[Array, "L R R"]
    cov: Float[Array, "C b b"]
    members: Int[Array, "C n"]

    @classmethod
    def of(
        cls,
        q: Neighbourhood,
        kernels: tuple,
        near: Int[Array, "L K"],
        members: Int[Array, "C n"],
        precision: Float[Array, "L R R"],
    ) -> "_System":
        """The system of a q and the sites from which it follows."""
        every = jnp.concatenate([jnp.arange(len(near))[:, None], near], axis=1)
        return cls(q.prior(kernels, near), every, precision, q.cov, members)

    def solved(
        self, b: Float[Array, "S L R"], x: Float[Array, "S L R"], close: float
    ) -> Float[Array, "S L R"]:
        """P⁻¹b by conjugate gradients from x, until the residual is `close`, relative to b."""
        least = jnp.finfo(b.dtype).tiny  # a quotient of zeros is zero

        def inner(a: Array, b: Array) -> Array:
            return jnp.sum(a * b, axis=(1, 2), keepdims=True)

        def unfinished(carry: tuple) -> Array:
            _, rest, _, _, n = carry
            return (n < TURNS) & jnp.any(inner(rest, rest) > close**2 * inner(b, b))

        def turn(carry: tuple) -> tuple:
            x, rest, way, size, n = carry
            image = self.times(way)
            step = size / jnp.maximum(inner(way, image), least)
            x, rest = x + step * way, rest - step * image
            eased = self.blockwise(rest)
            further = inner(rest, eased)
            return x, rest, eased + further / jnp.maximum(size, least) * way, further, n + 1

        rest = b - self.times(x)
        eased = self.blockwise(rest)
        return jax.lax.while_loop(unfinished, turn, (x, rest, eased, inner(rest, eased), 0))[0]

    def times(self, x: Float[Array, "S L R"]) -> Float[Array, "S L R"]:
        """P x."""
        parts = []
        for r in range(x.shape[2]):
            w = with_own(self.given.a[r])
            at = jnp.where(self.every >= 0, x[:, self.every, r], 0.0)
            along = jnp.einsum("lk,slk->sl", w, at) / self.given.v[r]
            parts.append(self._gathered(along[:, :, None] * w))
        return jnp.stack(parts, axis=2) + jnp.einsum("lrs,nls->nlr", self.precision, x)

    def _gathered(self, values: Float[Array, "S L k"]) -> Float[Array, "S L"]:
        """For each place, the sum of the values that belong to it."""
        S, L, _ = values.shape
        to = jnp.where(self.every >= 0, self.every, L)
        return jnp.zeros((S, L + 1), values.dtype).at[:, to].add(values)[:, :L]

    def blockwise(self, b: Float[Array, "S L R"]) -> Float[Array, "S L R"]:
        """S_c b_c for every block, in the precision of S."""
        (S, L, R), (C, n) = b.shape, self.members.shape
        there = self.members >= 0
        own = jnp.where(there[:, :, None], b[:, self.members], 0.0)  # S C n R
        own = own.astype(self.cov.dtype)
        flat = jnp.swapaxes(own, 2, 3).reshape(S, C, R * n)
        found = jnp.einsum("cij,scj->sci", self.cov, flat).reshape(S, C, R, n)
        to = jnp.where(there, self.members, L)
        found = jnp.swapaxes(found, 2, 3).astype(b.dtype)
        return jnp.zeros((S, L + 1, R), b.dtype).at[:, to].set(found)[:, :L]

    def drawn(self, key: Array, S: int) -> Float[Array, "S L R"]:
        """b, with covariance P."""
        first, second = jax.random.split(key)
        L, R = self.precision.shape[:2]
        dtype = self.precision.dtype
        xi = jax.random.normal(first, (R, S, L), dtype)
        zeta = jax.random.normal(second, (S, L, R), dtype)
        parts = [
            self._gathered(
                (xi[r] / jnp.sqrt(self.given.v[r]))[:, :, None] * with_own(self.given.a[r])
            )
            for r in range(R)
        ]
        sites = jnp.einsum("lrs,nls->nlr", semi_root(self.precision), zeta)
        return jnp.stack(parts, axis=2) + sites


@compiled
def deviations(
    q: Neighbourhood,
    kernels: tuple,
    near: Int[Array, "L K"],
    members: Int[Array, "C n"],
    precision: Float[Array, "L R R"],
    key: Array,
) -> Float[Array, "S L R"]:
    """`TOGETHER` draws of how the blocks' conditional means deviate from the means.

    Args:
        q: the q of the local latents; the covariances of its blocks follow from the sites.
        kernels: the kernels of the local latents.
        near: the places near to each that come before it.
        members: the places of each block.
        precision: the precisions of the sites.
        key: the random key of the draws.
    """
    system = _System.of(q, kernels, near, members, precision)

    def some(key: Array) -> Array:
        b = system.drawn(key, AT_ONCE)
        x = system.solved(b, jnp.zeros_like(b), CLOSE)
        return (x - system.blockwise(b)).astype(jnp.float32)

    drawn = jax.lax.map(some, jax.random.split(key, TOGETHER // AT_ONCE))
    return drawn.reshape(TOGETHER, *q.mean.shape)


@compiled
def means(
    q: Neighbourhood,
    kernels: tuple,
    near: Int[Array, "L K"],
    members: Int[Array, "C n"],
    sites: Sites,
) -> Float[Array, "L R"]:
    """P⁻¹λ: the means of all places together, given the sites.

    Block by block, the means of a latent that reaches across many blocks would take hundreds of
    epochs to settle.

    Args:
        q: the q of the local latents, with the means to start from.
        kernels: the kernels of the local latents.
        near: the places near to each that come before it.
        members: the places of each block.
        sites: the site at each place.
    """
    system = _System.of(q, kernels, near, members, sites.precision)
    return system.solved(sites.linear[None], q.mean[None], VERY_CLOSE)[0]
