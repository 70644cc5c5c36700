"""Prepare the data: choose the method by the size of the data, and build the arrays it needs."""

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
from .effects import Effects
from .inducing import (
    Placed,
    beside,
    for_supports,
    how_many_inducing,
    is_auto,
    place_inducing,
)
from .options import Method, Options
from .start import latent_kernels, observed_values

__all__ = [
    "Ready",
    "Source",
    "functions",
    "kernels_and_ranks",
    "moves_inducing",
    "only_effects",
    "placed_inducing",
    "prepared",
]

# Full batches cost about N (RM)² operations a pass; beyond this limit mini-batches are cheaper.
LARGEST_VEM_COST = 1e9
LARGEST_VEM_ROWS = 20_000
LARGEST_CHOICE = 3_000  # the most rows for full batches where latents are chosen
LARGEST_VEM_CLASSES = 30_000  # values times classes; each is evaluated at hundreds of points a pass


class Source(NamedTuple):
    """All rows of a fit that starts from a sample, and the number of values of each output."""

    table: Table
    observed: dict[str, int]


@dataclass
class Ready:
    """Data prepared for fitting.

    Attributes:
        method: full batches or mini-batches.
        data: the full batch, or blocks to draw mini-batches from.
        X: the standardised inputs.
        scaling: how the inputs were standardised.
        limits: the most iterations, and the gain in nats below which a fit has converged.
    """

    method: Method
    data: Batch | list[Block]
    X: np.ndarray
    scaling: Scaling
    limits: tuple[int, float]

    @property
    def distinct(self) -> int:
        """The number of distinct input rows."""
        return len(self.X if self.method == "vem" else np.unique(self.X, axis=0))


def prepared(
    data: Dataset,
    options: Options,
    source: Source | None,
    scaling: Scaling | None = None,
) -> Ready:
    """Choose the method, and build the arrays it needs; `scaling` may say how inputs are scaled."""
    method = _method(data, options, source)
    ready: Batch | list[Block]
    if method == "vem":
        ready, scaling = full_batch(data, scaling)
        X = ready.observed
    else:
        ready, scaling = blocks(data, scaling)
        rows = [np.asarray(group.X, float) for group in ready]
        X = rows[0] if len(rows) == 1 else np.concatenate(rows)
    counts = [int(seen.sum()) for seen in data.observed()]
    observed = sum(counts if source is None else source.observed.values())
    return Ready(method, ready, X, scaling, options.limits(method, observed))


def functions(data: Dataset) -> int:
    """J, the number of parameter functions."""
    return sum(len(likelihood.latent) for likelihood in data.likelihoods)


def _method(data: Dataset, options: Options, source: Source | None) -> Method:
    """Full batches if the user asks for them or a pass over the data is cheap."""
    if source is not None:
        if options.method == "vem":
            raise ValueError('method="vem" needs all rows in memory; use "svi" for a Table')
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
    """The kernel and rank of each latent, where the user gave the number of latents."""
    J, Q = functions(data), options.latents
    if Q == "auto":
        Q = len(options.kernel) if isinstance(options.kernel, list | tuple) else J + 1
    hidden = Effects.of(options, data.columns).inputs
    if only_effects(data, options):
        if options.latents != "auto":
            raise ValueError(
                f"latents={options.latents} have no input to see: all are named in linear or "
                'groups. Leave latents at "auto"'
            )
        return [], []
    return latent_kernels(
        *(options.kernel, Q, options.rank),
        J=J,
        columns=data.columns,
        hidden=hidden,
        alone=PRIORS[options.prior].one_each,
    )


def only_effects(data: Dataset, options: Options) -> bool:
    """Whether all inputs act by effects, so that no other latent has anything to see."""
    every = len(Effects.of(options, data.columns).inputs) == len(data.columns)
    return every and options.kernel is None


def placed_inducing(
    data: Dataset,
    options: Options,
    ready: Ready,
    kernels: Sequence[Kernel],
    ranks: Sequence[int],
) -> Placed:
    """The initial inducing inputs: one set for all latents if they are not learned.

    With effects each latent has its own set, over the inputs that it uses.
    """
    inducing = options.inducing
    if np.ndim(inducing) == 0:
        few = how_many_inducing(inducing, ready.distinct, sum(ranks), ready.method)
        inducing = few if is_auto(inducing) else inducing
        if options.has_effects:
            return for_supports(kernels, ready.X, few, options.seed, data.labels)
    smooth = [kernel for kernel in kernels if kernel.spanning(ready.X[:1]) is None]
    Z = place_inducing(
        *(inducing, ready.X, ready.scaling, data.columns, len(smooth)),
        shared=not moves_inducing(options, ready, inducing),
        seed=options.seed,
    )
    if len(smooth) == len(kernels):
        return Placed(Z)
    rest = np.broadcast_to(Z[:1], (len(kernels) - len(smooth), *Z.shape[1:]))
    each = np.broadcast_to(Z, (len(smooth), *Z.shape[1:]))
    return beside(np.concatenate([each, rest]), kernels, ready.X)


def moves_inducing(options: Options, ready: Ready, M: Any) -> bool:
    """Whether inducing inputs are learned.

    Inducing inputs at all rows need not move. On full batches the default number is large, and
    moving them gains less than it costs.
    """
    if ready.method == "vem" and np.ndim(options.inducing) == 0:
        given = not is_auto(options.inducing)
        return options.learn_inducing and given and ready.distinct > int(M)
    return options.learn_inducing
