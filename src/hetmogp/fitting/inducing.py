"""Where inducing inputs go: among the rows, and where latents need them.

Before anything is known of a latent they are k-means centres of the rows. Once it has been learned
roughly, they are rows taken one by one where its own inducing inputs leave most unsaid that the
data could tell. What they leave unsaid is measured in nats, so that latents compete for a common
budget: one that is smooth, or that the data hardly sees, gets few.
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
    "by_need",
    "choose_inducing",
    "for_supports",
    "how_many_inducing",
    "inputs_of",
    "is_auto",
    "place_inducing",
]

# What all latents together may have: full batches cost the cube of it, mini-batches less.
AUTO_INDUCING = {"vem": 800, "svi": 1200}
KMEANS_ROWS = 10_000  # k-means looks at no more rows than this
NEED_ROWS = 2_000  # rows among which latents choose by need
FASTER = (2.0, 1.7, 1.4, 1.2, 1.0)  # than it was learned a latent may turn out to change
LEAST_GAIN = 0.02  # nats that one more inducing input must be able to gain
ALIKE = 0.6  # latents that need this share of what another does get as many: few sizes, see `gram`


class Placed(NamedTuple):
    """Inducing inputs.

    Attributes:
        inputs: standardised, a set for each latent, or one for all.
        counts: how many rows of each set count, if not all do.
    """

    inputs: Float[np.ndarray, "Q M p"]
    counts: tuple[int, ...] = ()


def is_auto(inducing: Any) -> bool:
    """Whether the user leaves the number of inducing inputs to the fit."""
    return inducing is None or (isinstance(inducing, str) and inducing == "auto")


def how_many_inducing(inducing: Any, distinct: int, R: int, method: str = "vem") -> int:
    """M, from what the user wrote, the number of distinct input rows and of copies of latents."""
    if is_auto(inducing):
        return min(AUTO_INDUCING[method] // R, distinct) or 1
    if np.ndim(inducing) > 0:
        return len(_tables(inducing)[0])
    if isinstance(inducing, bool) or not (isinstance(inducing, int | np.integer) and inducing > 0):
        raise ValueError(f'inducing must be a whole number >= 1, or "auto", not {inducing!r}')
    return min(int(inducing), distinct)


def _tables(inducing: Any) -> Sequence[Any]:
    """The tables of inducing inputs that the user placed: one, or one per latent."""
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
        shared: whether those chosen here are to be one set for all latents.
        seed: of the choice.
    """
    if np.ndim(inducing) == 0:
        labels = [j for j, column in enumerate(columns) if column.kind == "category"]
        Z = choose_inducing(X, inducing, seed, labels)
        return np.repeat(Z[None], 1 if shared else Q, axis=0)
    tables = [_inducing_table(table, columns) for table in _tables(inducing)]
    if len(tables) not in (1, Q) or len({table.shape for table in tables}) > 1:
        raise ValueError(
            f"inducing is a list of arrays of shapes {[t.shape for t in tables]}; give one "
            f"array, or {Q} of one shape"
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

    Among labels there is no centre: those of the row nearest to it are taken. Where there is
    nothing else, those that most rows have.
    """
    if len(X) > KMEANS_ROWS:
        rows = np.random.default_rng(seed).choice(len(X), KMEANS_ROWS, replace=False)
        X = X[np.sort(rows)]
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
    if not labels:
        return _centres(X, M, seed)
    others = [j for j in range(X.shape[1]) if j not in labels]
    if not others:
        return distinct[np.argsort(-rows_of, kind="stable")[:M]]
    levels = [X[:, j, None] == np.unique(X[:, j]) for j in labels]
    unfolded = np.column_stack([X[:, others], *levels]).astype(float)
    centres = _centres(unfolded, M, seed)
    Z = X[cKDTree(unfolded).query(centres)[1]]
    Z[:, others] = centres[:, : len(others)]
    return Z


def _centres(X: Float[np.ndarray, "N p"], M: int, seed: int) -> Float[np.ndarray, "M p"]:
    """By k-means; on one thread, for several add up in an order of their own every time."""
    with threadpool_limits(1, user_api="openmp"):
        return KMeans(M, n_init=1, random_state=seed).fit(X).cluster_centers_


def inputs_of(kernel: Kernel, p: int) -> list[int]:
    """Which of p inputs a kernel sees."""
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
) -> Placed:
    """At most so many inducing inputs for each kernel, over the inputs that it sees.

    An input that it does not see stands still, at the value of the first row. A kernel that takes
    its inputs as labels may have twice as many: of the others it says nothing.
    """
    p, tables = X.shape[1], []
    for kernel in kernels:
        seen = inputs_of(kernel, p)
        rows = X[:, seen]
        own = [place for place, j in enumerate(seen) if j in labels or kernel.by_level]
        M = min(2 * number if kernel.by_level else number, len(np.unique(rows, axis=0)))
        table = np.repeat(X[:1], M, axis=0)
        table[:, seen] = choose_inducing(rows, M, seed, own)
        tables.append(table)
    return _padded(tables)


def _padded(tables: Sequence[np.ndarray]) -> Placed:
    """Sets of different sizes, filled up with rows that do not count."""
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
    """Rows as inducing inputs, so many in all, where the latents of a prior need them most.

    The bound loses about half of Σ_n Λ_n (k(x_n, x_n) − |A_n|²) to the inducing inputs of a latent,
    with Λ_n the precision of what the data says of it at row n. A Cholesky factorisation of
    √Λ K √Λ that always takes the largest pivot next says how much each further row would gain.
    As far as the budget allows, that is asked of latents that change faster, up to twice as fast,
    which leaves room to learn shorter lengthscales.

    Args:
        prior: with kernels that are roughly right; each latent has one copy.
        X: the standardised rows.
        information: Λ of each latent at each row.
        budget: how many inducing inputs all latents may have together.
        labels: the inputs that are labels.
        seed: of the rows that are looked at, where there are too many.
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
    return _padded([X[own] for own in rows])


Need = tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]


def _needs(
    kernels: Sequence[Kernel], X: Float[np.ndarray, "N p"], information: Float[np.ndarray, "N R"]
) -> list[Need]:
    """Of each latent rows in the order in which it needs them, and what each gains."""
    result = []
    for kernel, weight in zip(kernels, information.T, strict=True):
        rows = np.flatnonzero(weight > 0)
        order, gain = _pivots(kernel, X[rows], weight[rows])
        result.append((rows[order], gain))
    return result


def _counts(needs: Sequence[Need], least: float) -> list[int]:
    """How many rows each latent gets where one must gain so much; in few different sizes.

    The one that needs most gets that; those that need nearly as much get the same.
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
    """Rows in the order in which they are needed, and what each gains, never more than before."""
    if len(X) == 0:
        return np.zeros(0, int), np.zeros(0)
    x, root = jnp.asarray(X), np.sqrt(weight)
    K = root[:, None] * np.asarray(_matrix(kernel, x), float) * root
    with threadpool_limits(1, user_api="blas"):
        factor, places, rank, _ = dpstrf(K, lower=1, tol=1e-6 * LEAST_GAIN)
    gain = 0.5 * np.sum(np.tril(factor[:, :rank]) ** 2, axis=0)
    return places[:rank] - 1, np.minimum.accumulate(gain)
