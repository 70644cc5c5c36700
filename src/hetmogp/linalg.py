"""Dense linear algebra that neither hangs nor slows down on two CPU cores.

On a CPU, jaxlib runs a *batched* Cholesky factorisation or triangular solve by scheduling chunks on
the thread pool that its caller occupies. Two of these at once on two cores wait for each other for
ever. So this module never emits one on a CPU: matrices are processed one after another (`lax.map`)
there, and all at once (`vmap`) on an accelerator. Only `whiten` and `inverse_root` call LAPACK.
Matrix products may be batched everywhere.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import cholesky, triangular_solve
from jaxtyping import Array, Float, PyTree

__all__ = [
    "compiled",
    "congruence",
    "gram",
    "inverse_root",
    "over_latents",
    "spread",
    "transposed",
    "whiten",
]

BLOCK = 64  # matrices up to this size are passed to LAPACK undivided


def compiled(
    f: Callable,
    *,
    static: tuple[str, ...] = (),
    donate: tuple[str, ...] = (),
    often: bool = False,
) -> Any:
    """`jax.jit` with compiler options for the CPU, chosen by measurements with jaxlib 0.10.

    Programs that run thousands of times (`often`) use the widest vectors, with which a mini-batch
    step takes 70 to 90% of the time. All others use XLA's older emitters, with which compiling
    takes 60% of the time; compiling is most of the wait before a first fit. Other versions of XLA
    keep their own defaults.
    """
    measured = version("jaxlib").startswith("0.10.")
    options = (
        {"xla_cpu_prefer_vector_width": 512} if often else {"xla_cpu_use_fusion_emitters": False}
    )
    return jax.jit(
        f,
        static_argnames=static,
        donate_argnames=donate,
        compiler_options=options if measured else None,
    )


def _one_by_one(f: Callable, *stacked: Array) -> PyTree:
    """Apply `f`, which calls LAPACK, to each slice along the leading axis."""
    if stacked[0].shape[0] == 1:
        return jax.tree.map(lambda a: a[None], f(*(a[0] for a in stacked)))
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda slices: f(*slices), stacked)
    return jax.vmap(f)(*stacked)


def whiten(
    K: Float[Array, "Q M M"], B: Float[Array, "Q M N"], widths: Sequence[int] = ()
) -> Float[Array, "Q M N"]:
    """A = L⁻¹ B with L Lᵀ = K, for each of Q matrices; NaN where K is not positive definite.

    In double precision it multiplies by L⁻¹, and products use all cores. In single precision that
    would be too inexact, so it solves instead. If `widths` is given, only that many rows of each
    matrix count, and the others become zero.
    """
    if len(set(widths)) > 1:
        M, Ks, Bs = K.shape[1], _singles(K), _singles(B)
        result: list[Array] = [B] * len(Ks)
        for width in dict.fromkeys(widths):
            members = [q for q, own in enumerate(widths) if own == width]
            parts = (
                jnp.concatenate([Ks[q][:, :width, :width] for q in members]),
                jnp.concatenate([Bs[q][:, :width] for q in members]),
            )
            for q, A in zip(members, _singles(whiten(*parts)), strict=True):
                result[q] = jnp.pad(A, ((0, 0), (0, M - width), (0, 0)))
        return jnp.concatenate(result)
    if K.dtype == jnp.float64:
        return jnp.einsum("qij,qjn->qin", inverse_root(K), B)
    return _solved(K, B)


def _singles(stacked: Float[Array, "Q ..."]) -> Sequence[Array]:
    """The slices along the leading axis; unlike that of indexing, the gradient is cheap."""
    return jax.lax.split(stacked, [1] * len(stacked))


@jax.custom_vjp
def _solved(K: Float[Array, "Q M M"], B: Float[Array, "Q M N"]) -> Float[Array, "Q M N"]:
    """L⁻¹ B, by a triangular solve for each of Q matrices."""
    return _whiten(K, B)[0]


def _whiten(K: Array, B: Array) -> tuple[Array, tuple[Array, Array]]:
    def one(K: Float[Array, "M M"], B: Float[Array, "M N"]) -> tuple[Array, Array]:
        L = cholesky(K, symmetrize_input=False)
        return L, triangular_solve(L, B, left_side=True, lower=True)

    L, A = _one_by_one(one, K, B)
    return A, (L, A)


def _whiten_gradient(saved: tuple[Array, Array], dA: Array) -> tuple[Array, Array]:
    """dB = L⁻ᵀ dA and dK = −sym(L⁻ᵀ Φ(dA Aᵀ) L⁻¹), Φ the lower triangle with its diagonal halved.

    This takes three solves; differentiating through the factorisation takes several more.
    """
    L, A = saved
    product = jnp.einsum("qmn,qkn->qmk", dA, A)
    phi = jnp.tril(product) - 0.5 * product * jnp.eye(L.shape[1], dtype=L.dtype)

    def one(L: Array, dA: Array, phi: Array) -> tuple[Array, Array]:
        left = triangular_solve(L, phi, left_side=True, lower=True, transpose_a=True)
        both = triangular_solve(L, left, left_side=False, lower=True)
        return triangular_solve(L, dA, left_side=True, lower=True, transpose_a=True), both

    dB, both = _one_by_one(one, L, dA, phi)
    return -0.5 * (both + jnp.swapaxes(both, 1, 2)), dB


_solved.defvjp(_whiten, _whiten_gradient)


@jax.custom_vjp
def inverse_root(K: Float[Array, "Q M M"]) -> Float[Array, "Q M M"]:
    """L⁻¹ with L Lᵀ = K, lower triangular, for each of Q matrices; NaN if not positive definite.

    It is computed by halves, so nearly all of the work is matrix products: LAPACK is limited to one
    thread and reaches a quarter of their speed. With K = [a ·; b c] and L⁻¹ = [A 0; · C],

        A = root⁻¹(a),  B = b Aᵀ,  C = root⁻¹(c − B Bᵀ),  and below the diagonal −C B A.
    """
    Q, M, _ = K.shape
    if M <= BLOCK:
        eye = jnp.eye(M, dtype=K.dtype)

        def one(K: Float[Array, "M M"]) -> Array:
            L = cholesky(K, symmetrize_input=False)
            return triangular_solve(L, eye, left_side=True, lower=True)

        return _one_by_one(one, K)
    half = -(-M // 16) * 8
    A = inverse_root(K[:, :half, :half])
    B = jnp.einsum("qij,qkj->qik", K[:, half:, :half], A)
    C = inverse_root(K[:, half:, half:] - jnp.einsum("qij,qkj->qik", B, B))
    below = -jnp.einsum("qij,qjk->qik", C, jnp.einsum("qij,qjk->qik", B, A))
    above = jnp.zeros((Q, half, M - half), K.dtype)
    return jnp.block([[A, above], [below, C]])


def _inverse_root_gradient(X: Array, dX: Array) -> tuple[Array]:
    """With X = L⁻¹: dK = −sym(Xᵀ Φ(dX Xᵀ) X), Φ the lower triangle with its diagonal halved."""
    product = jnp.einsum("qij,qkj->qik", dX, X)
    phi = jnp.tril(product) - 0.5 * product * jnp.eye(X.shape[1], dtype=X.dtype)
    return (-congruence(transposed(X), 0.5 * (phi + jnp.swapaxes(phi, 1, 2))),)


inverse_root.defvjp(lambda K: (inverse_root(K),) * 2, _inverse_root_gradient)


def gram(
    A: Float[Array, "R M N"], metric: Float[Array, "N R R"], widths: tuple[int, ...] = ()
) -> Float[Array, "K K"]:
    """Σ_n Ã_n Λ_n Ã_nᵀ for symmetric Λ_n, with Ã_n the block-diagonal stack of A's columns n.

    `spread` is its adjoint. Both compute only blocks on and below the diagonal: N K² operations.
    If `widths` is given, only that many rows of each A_r count. Neighbours of equal width are
    handled together, so that the time to compile grows with R and not with its square.
    """
    R, _, N = A.shape
    widths = widths or (A.shape[1],) * R
    weights = _turned(0.5 * (metric + jnp.swapaxes(metric, 1, 2)))
    columns, first = [], 0  # rows r >= s of column s; weights on the left take half the time
    for s, width in enumerate(widths):
        parts = [
            (A[run, :rows_of] * weights[s, run, None, :]).reshape(-1, N)
            for run, rows_of in _runs(widths, s, R)
        ]
        column = jnp.concatenate(parts) @ A[s, :width].T
        columns.append(jnp.pad(column, ((first, 0), (0, 0))))
        first += width
    lower = jnp.tril(jnp.concatenate(columns, axis=1))
    return lower + jnp.tril(lower, -1).T


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def spread(
    A: Float[Array, "R M N"], S: Float[Array, "K K"], widths: tuple[int, ...] = ()
) -> Float[Array, "N R R"]:
    """Ã_nᵀ S Ã_n for every n and symmetric S; see `gram`."""
    R, _, N = A.shape
    widths = widths or (A.shape[1],) * R
    lower, first = [], 0  # rows r >= s of column s
    for s, width in enumerate(widths):
        product, parts, begin = S[first:, first : first + width] @ A[s, :width], [], 0
        first += width
        for run, rows_of in _runs(widths, s, R):
            end = begin + rows_of * (run.stop - run.start)
            part = product[begin:end].reshape(-1, rows_of, N)
            parts.append(jnp.sum(A[run, :rows_of] * part, axis=1))
            begin = end
        lower.append(jnp.concatenate(parts))
    rows = [jnp.stack([lower[min(r, s)][abs(r - s)] for s in range(R)]) for r in range(R)]
    return jnp.stack(rows).T


def _spread_gradient(
    widths: tuple[int, ...], saved: tuple[Array, Array], dC: Array
) -> tuple[Array, Array]:
    """dA_r = 2 Σ_s dC_rs S_rs A_s, one s at a time: as one reduction it is 20 times slower."""
    A, S = saved
    R, M, N = A.shape
    dC = 0.5 * (dC + jnp.swapaxes(dC, 1, 2))
    weights, first = _turned(dC), 0
    runs = _runs(widths or (M,) * R, 0, R)
    each = [jnp.zeros((run.stop - run.start, rows_of, N), A.dtype) for run, rows_of in runs]
    for s, width in enumerate(widths or (M,) * R):
        product, begin = S[:, first : first + width] @ A[s, :width], 0
        first += width
        for k, (run, _) in enumerate(runs):
            end = begin + each[k].shape[0] * each[k].shape[1]
            part = product[begin:end].reshape(each[k].shape)
            each[k] += 2.0 * weights[s, run, None, :] * part
            begin = end
    dA = [jnp.pad(part, ((0, 0), (0, M - part.shape[1]), (0, 0))) for part in each]
    return jnp.concatenate(dA), gram(A, dC, widths)


def _runs(widths: tuple[int, ...], first: int, last: int) -> list[tuple[slice, int]]:
    """Runs of latents of equal width: the first, the one after the last, and the width."""
    runs = []
    for width, members in groupby(range(first, last), key=widths.__getitem__):
        places = list(members)
        runs.append((slice(places[0], places[-1] + 1), width))
    return runs


def _turned(metric: Float[Array, "N R R"]) -> Float[Array, "R R N"]:
    """Λ with its rows last, copied to that layout where it is read many times."""
    return jax.lax.optimization_barrier(metric.T)


spread.defvjp(lambda A, S, widths: (spread(A, S, widths), (A, S)), _spread_gradient)


def transposed(A: Float[Array, "Q M N"]) -> Float[Array, "Q N M"]:
    """Aᵀ as a copy: a product with a left factor transposed in place takes three times as long.

    This is for CPUs only; elsewhere the compiler does well without it.
    """
    turned = jnp.swapaxes(A, 1, 2)
    return jax.lax.optimization_barrier(turned) if jax.default_backend() == "cpu" else turned


def congruence(A: Float[Array, "Q K M"], B: Float[Array, "Q M M"]) -> Float[Array, "Q K K"]:
    """A B Aᵀ for symmetric B, by two products in the fastest layout."""
    return jnp.einsum("qij,qkj->qik", jnp.einsum("qij,qkj->qik", A, B), A)


def over_latents(f: Callable, *per_latent: Sequence[PyTree] | Array) -> PyTree:
    """Apply `f`, which must not call LAPACK, to each latent's arguments and stack the results.

    Latents whose arguments have the same structure are compiled once and run together, so the time
    to compile does not grow with their number. Others (with another kernel) run separately.

    Args:
        f: a function of one latent's arguments.
        *per_latent: for each argument of `f`, a sequence of Q pytrees or an array with a leading
            axis of Q.
    """
    arguments = list(zip(*per_latent, strict=True))
    alike: dict[Any, list[int]] = {}
    for q, trees in enumerate(arguments):
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(trees))
        alike.setdefault((jax.tree.structure(trees), shapes), []).append(q)

    results, places = [], []
    for members in alike.values():
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(arguments[q] for q in members))
        results.append(jax.vmap(f)(*stacked))
        places += members
    if len(results) == 1:
        return results[0]
    back = np.argsort(places)

    def in_order(*parts: Array) -> Array:
        single = [one for part in parts for one in _singles(part)]
        return jnp.concatenate([single[place] for place in back])

    return jax.tree.map(in_order, *results)
