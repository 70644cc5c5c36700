"""Dense linear algebra, arranged so that two CPU cores neither hang nor crawl.

jaxlib runs a *batched* Cholesky or triangular solve on the CPU by scheduling chunks on the thread
pool its caller already occupies; with two in flight on two cores the program stops for ever. So
nothing here emits one there: latents are visited one after another (`lax.map`) on a CPU and all at
once (`vmap`) on an accelerator. `over` and `over_latents` own that choice for the whole package.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PyTree
from threadpoolctl import ThreadpoolController

__all__ = [
    "cholesky",
    "inverse_of_lower",
    "over",
    "over_latents",
    "session",
    "solve_lower",
    "solve_lower_transposed",
]


def cholesky(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower triangle L with L Lᵀ = K; NaN everywhere if K is not positive definite."""
    return jnp.linalg.cholesky(K)


def solve_lower(L: Float[Array, "M M"], B: Float[Array, "M *n"]) -> Float[Array, "M *n"]:
    """L⁻¹ B for lower triangular L."""
    return solve_triangular(L, B, lower=True)


def solve_lower_transposed(L: Float[Array, "M M"], B: Float[Array, "M *n"]) -> Float[Array, "M *n"]:
    """L⁻ᵀ B for lower triangular L."""
    return solve_triangular(L, B, lower=True, trans=1)


def inverse_of_lower(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L⁻¹ for lower triangular L."""
    return solve_triangular(L, jnp.eye(L.shape[0], dtype=L.dtype), lower=True)


def over(f: Callable, *stacked: PyTree) -> PyTree:
    """Apply `f` to each slice along the leading axis of its arguments and stack the results."""
    if jax.tree.leaves(stacked)[0].shape[0] == 1:
        alone = jax.tree.map(lambda a: a[0], stacked)
        return jax.tree.map(lambda a: a[None], f(*alone))
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda slices: f(*slices), stacked)
    return jax.vmap(f)(*stacked)


def over_latents(f: Callable, *per_latent: Sequence[PyTree] | Array) -> PyTree:
    """Apply `f` to each latent's arguments and stack the results.

    Latents whose arguments have the same structure are compiled once and run together, so that the
    cost of compiling does not grow with their number; others (another kernel) follow by themselves.

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

    results, order = [], []
    for members in alike.values():
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(arguments[q] for q in members))
        results.append(over(f, *stacked))
        order += members
    if len(results) == 1:
        return results[0]
    back = np.argsort(order)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[back], *results)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def session(dtype: str = "float64") -> Iterator[None]:
    """Everything numerical happens inside this: the precision asked for, and one BLAS thread.

    OpenBLAS's own threads fight XLA's for the same cores (measured: up to 30 times slower); the
    limit is lifted again on leaving, and no process-wide setting is touched.
    """
    with jax.enable_x64(dtype == "float64"), _blas().limit(limits=1, user_api="blas"):
        yield
