"""Choose the inducing inputs: spread over the rows first, then where the latents need them.

Before anything is known about a latent, its inducing inputs are k-means centres of the rows. Once
it has been learned roughly, they are rows chosen one by one, each where the inducing inputs so far
lose most of what the data say about the latent. This loss is measured in nats, so latents compete
for a common budget. A latent that is smooth, or about which the data say little, gets few.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int
from scipy.linalg.lapack import dpstrf
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from ..columns import Column
from ..data import Scaling
from ..inputs import read_inputs
from ..kernels import Kernel
from ..linalg import compiled
from ..priors import Prior

__all__ = [
    "AUTO_INDUCING",
    "Placed",
    "beside",
    "by_need",
    "choose_inducing",
    "for_supports",
    "how_many_inducing",
    "inputs_of",
    "is_auto",
    "padded",
    "place_inducing",
]

# The most inducing inputs of all latents together: full batches cost its cube, mini-batches less.
AUTO_INDUCING = {"vem": 800, "svi": 1200}
LEVELS = 500  # the most levels of a group that have an intercept of their own
KMEANS_ROWS = 10_000  # the most rows that k-means uses
NEED_ROWS = 2_000  # the most rows from which inducing inputs are chosen by need
FASTER = (2.0, 1.7, 1.4, 1.2, 1.0)  # factors by which a lengthscale may still shrink
LEAST_GAIN = 0.02  # nats that one more inducing input must be able to gain
ALIKE = 0.6  # a latent that needs this share of another's count gets the same count; see `gram`


class Placed(NamedTuple):
    """Inducing inputs.

    Attributes:
        inputs: standardised; one set for each latent, or one for all.
        counts: the number of rows in use in each set; empty if all are.
    """

    inputs: Float[np.ndarray, "Q M p"]
    counts: tuple[int, ...] = ()


def is_auto(inducing: Any) -> bool:
    """Whether the fit chooses the number of inducing inputs."""
    return inducing is None or (isinstance(inducing, str) and inducing == "auto")


def how_many_inducing(inducing: Any, distinct: int, R: int, method: str = "vem") -> int:
    """M, from the user's argument, the number of distinct input rows and the copies of latents."""
    if is_auto(inducing):
        return min(AUTO_INDUCING[method] // max(R, 1), distinct) or 1
    if np.ndim(inducing) > 0:
        return len(_tables(inducing)[0])
    if isinstance(inducing, bool) or not (isinstance(inducing, int | np.integer) and inducing > 0):
        raise ValueError(f'inducing must be a whole number >= 1, or "auto", not {inducing!r}')
    return min(int(inducing), distinct)


def _tables(inducing: Any) -> Sequence[Any]:
    """The inducing inputs given by the user: one table, or one per latent."""
    if len(inducing) == 0:
        raise ValueError("inducing is empty: give a number, an array, or a list of arrays")
    per_latent = isinstance(inducing, list | tuple) and np.ndim(inducing[0]) >= 1
    if per_latent and np.ndim(inducing[0]) == 1:
        per_latent = isinstance(inducing[0], np.ndarray)  # a list of rows is one table
    return inducing if per_latent else [inducing]


def place_inducing(
    inducing: Any,
    X: Float[np.ndarray, "N p"],
    scaling: Scaling,
    columns: Sequence[Column],
    Q: int,
    *,
    shared: bool,
    seed: int,
) -> Float[np.ndarray, "Q M p"]:
    """Standardised inducing inputs, (Q, M, p), or (1, M, p) where the latents share them.

    Args:
        inducing: how many, or where, as the user wrote it.
        X: the standardised inputs.
        scaling: how they were standardised.
        columns: the inputs.
        Q: the number of latents.
        shared: whether all latents share one set, where the set is chosen here.
        seed: the seed of the choice.
    """
    if np.ndim(inducing) == 0:
        labels = [j for j, column in enumerate(columns) if column.kind == "category"]
        Z = choose_inducing(X, inducing, seed, labels)
        return np.repeat(Z[None], 1 if shared else Q, axis=0)
    tables = [_inducing_table(table, columns) for table in _tables(inducing)]
    if len(tables) not in (1, Q) or len({table.shape for table in tables}) > 1:
        shapes = [table.shape for table in tables]
        n = len(tables) if Q == 1 else Q  # one for all where the fit chooses the latents
        also = f" and latents={n}" if Q == 1 else ""
        raise ValueError(
            f"inducing is a list of arrays of shapes {shapes}; give one array, or {n} of one "
            f"shape{also}"
        )
    return np.stack([scaling.apply(table) for table in tables])


def _inducing_table(table: Any, columns: Sequence[Column]) -> np.ndarray:
    p = 1 if np.ndim(table) == 1 else np.shape(table)[-1]
    if p != len(columns) and not isinstance(table, pd.DataFrame):
        raise ValueError(f"inducing has {p} columns, but there are {len(columns)} inputs")
    return read_inputs(table, columns, "inducing")[0]


def choose_inducing(
    X: Float[np.ndarray, "N p"], number: int, seed: int, labels: Sequence[int] = ()
) -> Float[np.ndarray, "M p"]:
    """M inducing inputs among the rows: k-means centres, or the distinct rows if there are few.

    Labels have no mean, so a centre takes the labels of the nearest row. Where all inputs are
    labels, the most frequent combinations are taken.
    """
    distinct, rows_of = np.unique(X, axis=0, return_counts=True)
    M = min(number, len(distinct))
    if number > M:
        warnings.warn(
            f"inducing={number} is more than the {M} distinct input rows; using {M}",
            UserWarning,
            stacklevel=2,
        )
    if len(distinct) == M:
        return distinct
    others = [j for j in range(X.shape[1]) if j not in labels]
    if not others:
        return distinct[np.argsort(-rows_of, kind="stable")[:M]]
    X = _some(X, seed)
    if len(np.unique(X, axis=0)) < M:  # most rows are alike
        X = _some(distinct, seed)
    if not labels:
        return _centres(X, M, seed)
    levels = [X[:, j, None] == np.unique(X[:, j]) for j in labels]
    unfolded = np.column_stack([X[:, others], *levels]).astype(float)
    centres = _centres(unfolded, M, seed)
    Z = X[cKDTree(unfolded).query(centres)[1]]
    Z[:, others] = centres[:, : len(others)]
    return Z


def _some(X: Float[np.ndarray, "N p"], seed: int) -> Float[np.ndarray, "n p"]:
    """As many of the rows as k-means uses."""
    if len(X) <= KMEANS_ROWS:
        return X
    return X[np.sort(np.random.default_rng(seed).choice(len(X), KMEANS_ROWS, replace=False))]


def _centres(X: Float[np.ndarray, "N p"], M: int, seed: int) -> Float[np.ndarray, "M p"]:
    """Centres by k-means, on one thread: several threads sum in a different order each time."""
    with threadpool_limits(1, user_api="openmp"):
        return KMeans(M, n_init=1, random_state=seed).fit(X).cluster_centers_


def inputs_of(kernel: Kernel, p: int) -> list[int]:
    """The positions of the inputs that a kernel uses, out of p."""
    parts = [one for part in kernel.parts for one in inputs_of(part, p)]
    dims = getattr(kernel, "active_dims", None)
    if parts:
        return sorted(set(parts))
    return list(range(p)) if dims is None else [int(dim) for dim in dims]


def for_supports(
    kernels: Sequence[Kernel],
    X: Float[np.ndarray, "N p"],
    number: int,
    seed: int,
    labels: Sequence[int],
    most: int = LEVELS,
) -> Placed:
    """Inducing inputs for each kernel, over the inputs that it uses, up to a given number.

    An input that the kernel does not use is held at the value of the first row. A kernel that
    treats its inputs as labels may have twice as many, because one label says nothing about
    another. A kernel that a few inducing inputs span (`Kernel.spanning`) gets those, `most` at
    most.
    """
    p, tables = X.shape[1], []
    for kernel in kernels:
        whole = kernel.spanning(X)
        if whole is not None:
            tables.append(whole[:most])
            continue
        seen = inputs_of(kernel, p)
        rows = X[:, seen]
        own = [place for place, j in enumerate(seen) if j in labels or kernel.by_level]
        M = min(2 * number if kernel.by_level else number, len(np.unique(rows, axis=0)))
        table = np.repeat(X[:1], M, axis=0)
        table[:, seen] = choose_inducing(rows, M, seed, own)
        tables.append(table)
    return padded(tables)


def beside(
    Z: Float[np.ndarray, "Q M p"], kernels: Sequence[Kernel], X: Float[np.ndarray, "N p"]
) -> Placed:
    """Inducing inputs, replaced for kernels that a few of them can span."""
    each = [kernel.spanning(X) for kernel in kernels]
    if all(one is None for one in each):
        return Placed(Z)
    every = np.broadcast_to(Z, (len(kernels), *Z.shape[1:]))
    return padded(
        [own if one is None else one[:LEVELS] for own, one in zip(every, each, strict=True)]
    )


def padded(tables: Sequence[np.ndarray]) -> Placed:
    """Sets of different sizes, padded to one size with rows that are not in use."""
    counts = tuple(len(table) for table in tables)
    room = [np.pad(table, ((0, max(counts) - len(table)), (0, 0)), "edge") for table in tables]
    return Placed(np.stack(room), counts if len(set(counts)) > 1 else ())


def by_need(
    prior: Prior,
    X: Float[np.ndarray, "N p"],
    information: Float[np.ndarray, "N R"],
    budget: int,
    labels: Sequence[int] = (),
    seed: int = 0,
) -> Placed:
    """Choose rows as inducing inputs, within a budget, where the latents of a prior need them most.

    Inducing inputs cost the bound of a latent about ½ Σ_n Λ_n (k(x_n, x_n) − |A_n|²), where Λ_n is
    the precision with which the data determine the latent at row n. A pivoted Cholesky
    factorisation of √Λ K √Λ says how much each further row would gain. As far as the budget
    allows, the computation assumes lengthscales up to two times shorter, so that the fit has room
    to shorten them.

    Args:
        prior: a prior whose kernels are roughly right; each latent has one copy.
        X: the standardised rows.
        information: Λ of each latent at each row.
        budget: the most inducing inputs of all latents together.
        labels: the inputs that are labels.
        seed: the seed for drawing the rows to consider, if there are too many.
    """
    some = np.arange(len(X))
    if len(X) > NEED_ROWS:
        some = np.sort(np.random.default_rng(seed).choice(len(X), NEED_ROWS, replace=False))
    known = information[some] * len(X) / len(some)
    numbers = ~np.isin(np.arange(X.shape[1]), labels)
    for factor in FASTER:
        needs = _needs(prior.kernels, X[some] * np.where(numbers, factor, 1.0), known)
        counts = _counts(needs, LEAST_GAIN)
        if sum(counts) <= budget:
            break
    least = LEAST_GAIN
    while sum(counts) > max(budget, len(counts)):
        least *= 1.2
        counts = _counts(needs, least)
    rows = [
        some[order[:n]] if len(order) else some[:1]
        for n, (order, _) in zip(counts, needs, strict=True)
    ]
    return padded([X[own] for own in rows])


Need = tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]


def _needs(
    kernels: Sequence[Kernel], X: Float[np.ndarray, "N p"], information: Float[np.ndarray, "N R"]
) -> list[Need]:
    """For each latent, the rows in the order of need, and the gain of each."""
    result = []
    for kernel, weight in zip(kernels, information.T, strict=True):
        rows = np.flatnonzero(weight > 0)
        order, gain = _pivots(kernel, X[rows], weight[rows])
        result.append((rows[order], gain))
    return result


def _counts(needs: Sequence[Need], least: float) -> list[int]:
    """The number of rows of each latent if each row must gain at least `least` nats.

    The latent that needs most gets what it needs. Latents that need nearly as many get the same
    number, so that there are few different sizes.
    """
    needed = [max(int(np.sum(gain > least)), 1) for _, gain in needs]
    counts, level = [0] * len(needed), np.inf
    for r in np.argsort(needed)[::-1]:
        if needed[r] < ALIKE * level:
            level = needed[r]
        counts[r] = min(int(level), max(len(needs[r][0]), 1))
    return counts


@compiled
def _matrix(kernel: Kernel, X: Float[Array, "N p"]) -> Float[Array, "N N"]:
    return kernel.matrix(X, X)


def _pivots(
    kernel: Kernel, X: Float[np.ndarray, "N p"], weight: Float[np.ndarray, " N"]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows in the order of need, and the gain of each; gains never increase."""
    if len(X) == 0:
        return np.zeros(0, int), np.zeros(0)
    x, root = jnp.asarray(X), np.sqrt(weight)
    K = root[:, None] * np.asarray(_matrix(kernel, x), float) * root
    with threadpool_limits(1, user_api="blas"):
        factor, places, rank, _ = dpstrf(K, lower=1, tol=1e-6 * LEAST_GAIN)
    gain = 0.5 * np.sum(np.tril(factor[:, :rank]) ** 2, axis=0)
    return places[:rank] - 1, np.minimum.accumulate(gain)
