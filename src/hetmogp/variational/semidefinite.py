"""Small symmetric matrices, many at once, by array operations: LAPACK gets no batches on a CPU."""

from itertools import combinations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["positive_part", "semi_root"]

SWEEPS = 6  # of Jacobi rotations; the last ones change nothing noticeable


def positive_part(A: Float[Array, "n R R"]) -> Float[Array, "n R R"]:
    """V max(D, 0) Vᵀ with A = V D Vᵀ: the nearest positive semi-definite matrices.

    A positive semi-definite matrix stays as it is, even if it is singular. The curvature of one
    function of several latents has rank one.
    """
    R = A.shape[1]
    if R == 1:
        return jnp.maximum(A, 0.0)

    def sweep(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        D, V = carry
        for p, q in combinations(range(R), 2):
            turn = _rotation(D, p, q)
            D = jnp.einsum("nij,njk,nlk->nil", turn, D, turn)
            V = jnp.einsum("nij,nkj->nki", turn, V)
        return D, V

    V = jnp.broadcast_to(jnp.eye(R, dtype=A.dtype), A.shape)
    D, V = jax.lax.fori_loop(0, SWEEPS, sweep, (A, V))
    values = jnp.maximum(jnp.diagonal(D, axis1=1, axis2=2), 0.0)
    return jnp.einsum("nij,nj,nkj->nik", V, values, V)


def _rotation(A: Float[Array, "n R R"], p: int, q: int) -> Float[Array, "n R R"]:
    """The rotations T for which T A Tᵀ has a zero at (p, q), by the smaller angle."""
    off = A[:, p, q]
    there = jnp.abs(off) > jnp.finfo(A.dtype).tiny
    half = 0.5 * (A[:, q, q] - A[:, p, p]) / jnp.where(there, off, 1.0)
    tangent = jnp.where(half < 0, -1.0, 1.0) / (jnp.abs(half) + jnp.sqrt(1.0 + half**2))
    tangent = jnp.where(there, tangent, 0.0)
    cos = 1.0 / jnp.sqrt(1.0 + tangent**2)
    sin = tangent * cos
    turn = jnp.broadcast_to(jnp.eye(A.shape[1], dtype=A.dtype), A.shape)
    turn = turn.at[:, p, p].set(cos).at[:, q, q].set(cos)
    return turn.at[:, p, q].set(-sin).at[:, q, p].set(sin)


def semi_root(A: Float[Array, "n R R"]) -> Float[Array, "n R R"]:
    """A lower triangular root of matrices that are positive semi-definite and may be singular."""
    R, columns = A.shape[1], []
    for j in range(R):
        pivot = jnp.sqrt(jnp.maximum(A[:, j, j], 0.0))
        column = jnp.where(
            pivot[:, None] > 0.0, A[:, :, j] / jnp.where(pivot > 0, pivot, 1.0)[:, None], 0.0
        )
        column = jnp.where(jnp.arange(R) >= j, column, 0.0)
        A = A - column[:, :, None] * column[:, None, :]
        columns.append(column)
    return jnp.stack(columns, axis=2)
