"""From tables to the data of the bound: standardised inputs, one batch, or blocks.

The full data are one batch over the *distinct* input rows, so that each is projected once, however
many outputs were observed there and how often. Mini-batches are drawn from blocks of outputs that
share their inputs.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .batch import Batch, Block, Observations
from .rows import padded, roomy
from .tables import Dataset

__all__ = ["Scaling", "as_block", "blocks", "full_batch", "row_draws"]


class Scaling(NamedTuple):
    """How inputs are centred and scaled, column by column; labels are not. Users never see it."""

    centre: np.ndarray  # (p,)
    scale: np.ndarray  # (p,)

    @classmethod
    def of(cls, X: Float[np.ndarray, "N p"], labels: Sequence[int] = ()) -> "Scaling":
        """From the mean and standard deviation; a constant column has the scale one."""
        constant = X.max(axis=0) == X.min(axis=0)
        centre = np.where(constant, X[0], X.mean(axis=0))
        scale = np.where(constant, 1.0, X.std(axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        centre[list(labels)], scale[list(labels)] = 0.0, 1.0
        return cls(centre, scale)

    def apply(self, X: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N p"]:
        """From the user's units to standard units."""
        standard = X - self.centre
        standard /= self.scale  # in place: the table may be large
        return standard

    def undo(self, X: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N p"]:
        """From standard units to the user's units."""
        return X * self.scale + self.centre


def full_batch(data: Dataset, scaling: Scaling | None = None) -> tuple[Batch, Scaling]:
    """All data as one batch over the distinct input rows at which something was observed."""
    observed = data.observed()
    inputs = [X[seen] for X, seen in zip(data.inputs, observed, strict=True)]
    distinct, row = np.unique(np.concatenate(inputs), axis=0, return_inverse=True)
    rows = np.split(row.reshape(-1), np.cumsum([len(X) for X in inputs])[:-1])
    scaling = scaling or Scaling.of(distinct, data.labels)
    outputs = tuple(
        Observations(
            jnp.asarray(padded(row)),
            jnp.asarray(padded(y[seen])),
            jnp.asarray(np.arange(roomy(len(row))) < len(row)),
            jnp.asarray(padded(weight[seen])),
            {name: jnp.asarray(padded(column[seen])) for name, column in given.items()},
            jnp.asarray(1.0),
        )
        for row, y, weight, given, seen in zip(
            rows, data.values, data.weights, data.given, observed, strict=True
        )
    )
    return Batch(jnp.asarray(padded(scaling.apply(distinct))), outputs), scaling


def blocks(data: Dataset, scaling: Scaling | None = None) -> tuple[list[Block], Scaling]:
    """Group the outputs by their inputs, as NumPy arrays in the host's memory."""
    groups: list[list[int]] = []
    for d, X in enumerate(data.inputs):
        for group in groups:
            other = data.inputs[group[0]]
            if X is other or np.array_equal(X, other):
                group.append(d)
                break
        else:
            groups.append([d])
    observed = data.observed()
    kept: list[np.ndarray | slice] = []
    for group in groups:
        anything = np.any([observed[d] for d in group], axis=0)
        kept.append(slice(None) if anything.all() else anything)  # a slice copies nothing
    inputs = [data.inputs[group[0]][keep] for group, keep in zip(groups, kept, strict=True)]
    if scaling is None:
        rows = inputs[0] if len(inputs) == 1 else np.concatenate(inputs)
        scaling = Scaling.of(rows, data.labels)
    result = [
        _block(data, group, keep, scaling.apply(raw), data, len(raw))
        for group, keep, raw in zip(groups, kept, inputs, strict=True)
    ]
    return result, scaling


def as_block(data: Dataset, scaling: Scaling, sample: Dataset, size: int) -> Block:
    """Some rows of outputs that share their inputs, as part of a block.

    Args:
        data: the rows; outputs may be missing.
        scaling: that of the whole table.
        sample: other rows, whose first values replace missing ones.
        size: the number of rows of the whole table.
    """
    every = range(len(data.names))
    return _block(data, every, slice(None), scaling.apply(data.inputs[0]), sample, size)


def _block(
    data: Dataset,
    members: Sequence[int],
    keep: np.ndarray | slice,
    X: Float[np.ndarray, "N p"],
    sample: Dataset,
    size: int,
) -> Block:
    """Some rows of some outputs; the sample's first value and its arguments replace gaps."""
    y = np.stack([data.values[d][keep] for d in members], axis=1)
    seen = ~np.isnan(y)
    given: list[dict[str, Any]] = []
    for values, ok, d in zip(y.T, seen.T, members, strict=True):
        first = np.flatnonzero(~np.isnan(sample.values[d]))[0]
        values[~ok] = sample.values[d][first]
        given.append(
            {n: np.where(ok, c[keep], sample.given[d][n][first]) for n, c in data.given[d].items()}
        )
    weight = np.stack([data.weights[d][keep] for d in members], axis=1)
    return Block(tuple(members), X, y, seen, weight, tuple(given), np.asarray(float(size)))


def row_draws(
    N: int, size: int, seed: int, block: int, skip: int = 0
) -> Iterator[Int[np.ndarray, " size"]]:
    """The rows of each mini-batch, without end: every row once an epoch, −1 as padding at its end.

    The order of an epoch depends only on (seed, block, epoch). The first `skip` batches are left
    out.
    """
    epoch, done = divmod(skip, -(-N // size))
    while True:
        rows = np.random.default_rng([seed, block, epoch]).permutation(N).astype(np.int32)
        padding = np.full(-N % size, -1, np.int32)
        yield from np.concatenate([rows, padding]).reshape(-1, size)[done:]
        epoch, done = epoch + 1, 0
