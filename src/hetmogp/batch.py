"""The data of the bound: some input rows, and what was observed there.

A `Batch` is a set of input rows and, for each output, which of those rows it was observed at. A
`Block` holds outputs that share their inputs, and mini-batches are drawn from it row by row.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

__all__ = ["Batch", "Block", "Observations"]


class Observations(eqx.Module):
    """The values of one output in a batch.

    Attributes:
        row: the row of the batch's inputs at which each value was seen.
        y: the values; any value of the support where `seen` is false.
        seen: which values count.
        weight: how many times each value counts.
        given: the arguments that come with each value, by name.
        scale: the factor that makes a sum over these values an estimate of that over all data.
    """

    row: Int[Array, " n"]
    y: Float[Array, " n"]
    seen: Bool[Array, " n"]
    weight: Float[Array, " n"]
    given: dict[str, Float[Array, " n"]]
    scale: Float[Array, ""]


class Batch(eqx.Module):
    """Input rows and the observations made there, one entry per output."""

    X: Float[Array, "N p"]
    outputs: tuple[Observations, ...]

    @property
    def observed(self) -> Float[np.ndarray, "n p"]:
        """The rows at which something was observed; in a full batch, all but the padding."""
        last = max(int(np.max(np.asarray(seen.row))) for seen in self.outputs)
        return np.asarray(self.X, float)[: last + 1]


class Block(eqx.Module):
    """Outputs that share their inputs, ready to be drawn from row by row.

    Attributes:
        members: the positions of these outputs in the model.
        X: the standardised inputs of the rows at which at least one of them was observed.
        y: their values, one column each, with some valid value where nothing was observed.
        seen: which values were observed.
        weight: how many times each value counts.
        given: for each of the outputs, the arguments of its observations by name.
        size: the number of rows of the whole table, if these are only some of them.
    """

    members: tuple[int, ...] = eqx.field(static=True)
    X: Float[Array | np.ndarray, "N p"]
    y: Float[Array | np.ndarray, "N D"]
    seen: Bool[Array | np.ndarray, "N D"]
    weight: Float[Array | np.ndarray, "N D"]
    given: tuple[dict[str, Float[Array | np.ndarray, " N"]], ...]
    size: Float[Array | np.ndarray, ""]
