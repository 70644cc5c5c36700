"""Which blocks of places the steps of a fit with local latents take, and the rows in them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .options import Options

__all__ = ["STEPS", "Drawn", "Feed"]

ROWS = 4  # mini-batches of the usual size in a step: the rows of a block are alike
STEPS = 8  # the most steps of a chunk


class Drawn(NamedTuple):
    """Blocks for some steps and their rows in each block of data; −1 marks an empty entry.

    Attributes:
        block: the blocks of each step.
        rows: the rows in these blocks.
        which: for each row, the position of its block among those of the step.
    """

    block: Int[Array, "T B"]
    rows: tuple[Int[Array, "T N"], ...]
    which: tuple[Int[Array, "T N"], ...]


class Feed:
    """Blocks and their rows for steps to come, every block once an epoch.

    Blocks are sorted by their number of rows and cut into groups of `epoch` blocks. A step takes
    one block of each group, so that all steps have about equally many rows and no block is left
    out.

    Attributes:
        epoch: the number of steps in which every block is used once.
        taken: the number of steps taken, including those skipped at the beginning.
        longest: the most steps that `take` gives.
    """

    longest = STEPS

    def __init__(self, in_blocks: Sequence[np.ndarray], C: int, options: Options, skip: int = 0):
        counts = np.stack([np.bincount(blocks, minlength=C) for blocks in in_blocks])  # (groups, C)
        rows = max(1.0, counts.sum() / C)
        self.size = int(np.clip(round(ROWS * options.batch_size / rows), 1, C))
        self.epoch, self.taken, self.seed = -(-C // self.size), skip, options.seed
        order = np.full(self.size * self.epoch, -1)
        order[:C] = np.argsort(-counts.sum(axis=0), kind="stable")
        self.ranks = order.reshape(self.size, self.epoch)
        room = np.where(self.ranks >= 0, counts[:, self.ranks], 0)
        self.room = [max(int(n), 1) for n in room.max(axis=2).sum(axis=1)]
        self.sorted = [np.argsort(blocks, kind="stable") for blocks in in_blocks]
        self.ends = [np.cumsum(count) for count in counts]
        self.counts = counts

    def close(self) -> None:
        """Do nothing: there are no threads to stop."""

    def take(self, n: int) -> Drawn:
        """Blocks and rows for n steps, always of the same shape."""
        blocks = np.full((STEPS, self.size), -1, np.int32)
        rows = [np.full((STEPS, room), -1, np.int32) for room in self.room]
        which = [np.full((STEPS, room), -1, np.int32) for room in self.room]
        for t in range(n):
            blocks[t] = self._drawn(self.taken + t)
            for g, (order, ends) in enumerate(zip(self.sorted, self.ends, strict=True)):
                there = np.flatnonzero(blocks[t] >= 0)
                own = blocks[t, there]
                count = self.counts[g, own]
                found = [order[e - c : e] for e, c in zip(ends[own], count, strict=True)]
                rows[g][t, : count.sum()] = np.concatenate(found)
                which[g][t, : count.sum()] = np.repeat(there, count)
        self.taken += n
        arrays = [tuple(map(jnp.asarray, some)) for some in (rows, which)]
        return Drawn(jnp.asarray(blocks), *arrays)

    def _drawn(self, step: int) -> Int[np.ndarray, " B"]:
        """The blocks of a step, which depend only on the seed and the number of the step."""
        epoch, place = divmod(step, self.epoch)
        draw = np.random.default_rng([self.seed, epoch])
        return draw.permuted(self.ranks, axis=1)[:, place]
