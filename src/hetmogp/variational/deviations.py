"""How local latents deviate from their means together, beyond the blocks of q.

Given the sites, the exact posterior of the local latents is Gaussian with precision P = Q + Λ. Here
Q = Σ_i w_i w_iᵀ / v_i comes from the conditionals of all places, w_i = (1, −a_i). A q of blocks
takes each block with the others held at their means, so it is too sure of what reaches across them.
What it leaves out is found by draws. With standard normal numbers ξ and ζ,

    b = Σ_i w_i ξ_i / √v_i + Λ^½ ζ   has covariance P,   so   x = P⁻¹ b   has covariance P⁻¹

(Papandreou and Yuille, 2010). The system is solved by conjugate gradients, with the covariances S_c
of the blocks as preconditioner. Given the rest, block c has the mean y_c = x_c − S_c b_c and the
covariance S_c, so its covariance is S_c plus that of y_c. The y are kept: only what reaches across
blocks is subject to the noise of finitely many draws.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..linalg import compiled
from .evidence import semi_root
from .neighbours import Conditional, Neighbourhood, with_own

__all__ = ["TOGETHER", "deviations"]

TOGETHER = 8  # draws at a time: more would take most of the memory of a fit
TURNS = 200  # of conjugate gradients at most
CLOSE = 0.01  # the residual, relative to b, at which they end


class _System(NamedTuple):
    """P, and the covariances of the blocks, which are nearly its inverse."""

    given: Conditional
    every: Int[Array, "L k"]
    precision: Float[Array, "L R R"]
    cov: Float[Array, "C b b"]
    members: Int[Array, "C n"]

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
        """For each place, the sum of what the conditionals say of it."""
        S, L, _ = values.shape
        to = jnp.where(self.every >= 0, self.every, L)
        return jnp.zeros((S, L + 1), values.dtype).at[:, to].add(values)[:, :L]

    def blockwise(self, b: Float[Array, "S L R"]) -> Float[Array, "S L R"]:
        """S_c b_c for every block."""
        (S, L, R), (C, n) = b.shape, self.members.shape
        there = self.members >= 0
        own = jnp.where(there[:, :, None], b[:, self.members], 0.0)  # S C n R
        flat = jnp.swapaxes(own, 2, 3).reshape(S, C, R * n)
        found = jnp.einsum("cij,scj->sci", self.cov, flat).reshape(S, C, R, n)
        to = jnp.where(there, self.members, L)
        back = jnp.zeros((S, L + 1, R), b.dtype).at[:, to].set(jnp.swapaxes(found, 2, 3))
        return back[:, :L]

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
        q: of the local latents; the covariances of its blocks are those of the sites.
        kernels: of the same.
        near: the places near to each that come before it.
        members: the places of each block.
        precision: of the sites.
        key: of the draws.
    """
    L = len(near)
    every = jnp.concatenate([jnp.arange(L)[:, None], near], axis=1)
    system = _System(q.prior(kernels, near), every, precision, q.cov, members)
    b = system.drawn(key, TOGETHER)

    def inner(a: Array, b: Array) -> Array:
        return jnp.sum(a * b, axis=(1, 2), keepdims=True)

    def unfinished(carry: tuple) -> Array:
        _, rest, _, _, n = carry
        return (n < TURNS) & jnp.any(inner(rest, rest) > CLOSE**2 * inner(b, b))

    def turn(carry: tuple) -> tuple:
        x, rest, way, size, n = carry
        image = system.times(way)
        step = size / inner(way, image)
        x, rest = x + step * way, rest - step * image
        eased = system.blockwise(rest)
        further = inner(rest, eased)
        return x, rest, eased + further / size * way, further, n + 1

    eased = system.blockwise(b)
    start = jnp.zeros_like(b), b, eased, inner(b, eased), 0
    x = jax.lax.while_loop(unfinished, turn, start)[0]
    return (x - eased).astype(jnp.float32)
