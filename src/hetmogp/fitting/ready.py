"""Data, ready to be learned from: the method that fits its size, and the arrays that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..batch import Batch, Block
from ..data import Scaling, blocks, full_batch
from ..disk import Table
from ..kernels import Kernel
from ..priors import PRIORS
from ..tables import Dataset
from .inducing import how_many_inducing, is_auto, place_inducing
from .options import Method, Options
from .start import latent_kernels, observed_values

__all__ = [
    "Ready",
    "Source",
    "functions",
    "kernels_and_ranks",
    "moves_inducing",
    "placed_inducing",
    "prepared",
]

# Full batches cost about N (RM)² operations a pass; beyond this mini-batches are a better bargain.
LARGEST_VEM_COST = 1e9
LARGEST_VEM_ROWS = 20_000
LARGEST_CHOICE = 3_000  # rows of a fit on full batches where latents are chosen
LARGEST_VEM_CLASSES = 30_000  # values times classes, each at hundreds of points in every pass


class Source(NamedTuple):
    """All rows of a fit that starts from a sample, and how many values each output has there."""

    table: Table
    observed: dict[str, int]


@dataclass
class Ready:
    """Data, ready to be learned from.

    Attributes:
        method: full batches or mini-batches.
        data: the full batch, or blocks to draw mini-batches from.
        X: the standardised inputs.
        scaling: of the inputs.
        limits: the most iterations, and the gain in nats that counts as none.
    """

    method: Method
    data: Batch | list[Block]
    X: np.ndarray
    scaling: Scaling
    limits: tuple[int, float]

    @property
    def distinct(self) -> int:
        """How many different input rows there are."""
        return len(self.X if self.method == "vem" else np.unique(self.X, axis=0))


def prepared(data: Dataset, options: Options, source: Source | None) -> Ready:
    """Choose the method, and bring the data into the shape it needs."""
    method = _method(data, options, source)
    ready: Batch | list[Block]
    if method == "vem":
        ready, scaling = full_batch(data)
        X = ready.observed
    else:
        ready, scaling = blocks(data)
        rows = [np.asarray(group.X, float) for group in ready]
        X = rows[0] if len(rows) == 1 else np.concatenate(rows)
    counts = [int(seen.sum()) for seen in data.observed()]
    observed = sum(counts if source is None else source.observed.values())
    return Ready(method, ready, X, scaling, options.limits(method, observed))


def functions(data: Dataset) -> int:
    """J, the number of parameter functions."""
    return sum(len(likelihood.latent) for likelihood in data.likelihoods)


def _method(data: Dataset, options: Options, source: Source | None) -> Method:
    """Full batches where the user wants them, or where a pass over the data costs little."""
    if source is not None:
        if options.method == "vem":
            raise ValueError('method="vem" needs all rows at once; a Table is fitted by "svi"')
        return "svi"
    if options.method != "auto":
        return options.method
    if options.local not in ("auto", 0):
        return "svi"
    every = {id(X): X for X in data.inputs}.values()
    if sum(map(len, every)) > 10 * LARGEST_VEM_ROWS:
        return "svi"
    seen = [X[ok] for X, ok in zip(data.inputs, data.observed(), strict=True)]
    distinct = len(np.unique(np.concatenate(seen), axis=0))
    classes = sum(
        len(y) * len(likelihood.latent)
        for _, likelihood, y, _ in observed_values(data)
        if likelihood.softmax
    )
    if classes > LARGEST_VEM_CLASSES:
        return "svi"
    if options.chooses:
        return "vem" if distinct <= LARGEST_CHOICE else "svi"
    R = sum(kernels_and_ranks(data, options)[1])
    cost = distinct * (R * how_many_inducing(options.inducing, distinct, R)) ** 2
    return "vem" if distinct <= LARGEST_VEM_ROWS and cost <= LARGEST_VEM_COST else "svi"


def kernels_and_ranks(data: Dataset, options: Options) -> tuple[list[Kernel], list[int]]:
    """The kernel and rank of each latent, where the user says how many there are."""
    J, Q = functions(data), options.latents
    if Q == "auto":
        Q = len(options.kernel) if isinstance(options.kernel, list | tuple) else J + 1
    return latent_kernels(
        *(options.kernel, Q, options.rank),
        J=J,
        columns=data.columns,
        alone=PRIORS[options.prior].one_each,
    )


def placed_inducing(
    data: Dataset, options: Options, ready: Ready, ranks: Sequence[int]
) -> np.ndarray:
    """The inducing inputs to start from: one set for all latents where they stay in place."""
    inducing = options.inducing
    if np.ndim(inducing) == 0:
        few = how_many_inducing(inducing, ready.distinct, sum(ranks), ready.method)
        inducing = few if is_auto(inducing) else inducing
    return place_inducing(
        *(inducing, ready.X, ready.scaling, data.columns, len(ranks)),
        shared=not moves_inducing(options, ready, inducing),
        seed=options.seed,
    )


def moves_inducing(options: Options, ready: Ready, M: Any) -> bool:
    """Whether inducing inputs are learned.

    Those at all rows are where they should be. Those of full batches that were not asked for are
    many, and gain less by moving than it costs.
    """
    if ready.method == "vem" and np.ndim(options.inducing) == 0:
        given = not is_auto(options.inducing)
        return options.learn_inducing and given and ready.distinct > int(M)
    return options.learn_inducing
