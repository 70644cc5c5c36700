"""Mini-batches from a table on disk, read ahead by threads so that steps need not wait."""

import math
import queue
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Int

from .. import distributed
from ..data import Block, Scaling, as_block
from ..disk import Table
from ..tables import Dataset, read
from .mesh import everywhere, spread
from .svi import LONGEST, SENT, positions

__all__ = ["StreamFeed"]

AHEAD = 2  # shuffled buffers that wait to be used


class StreamFeed:
    """The rows of steps to come: every row of the table once an epoch, in an order by the seed.

    Attributes:
        epoch: the steps in which every row is met once.
        longest: the most steps that `take` gives at a time.
        taken: how many were taken, counting those left out at the beginning.
    """

    def __init__(
        self,
        table: Table,
        sample: Dataset,
        like: Block,
        scaling: Scaling,
        batch_size: int,
        seed: int,
        skip: int,
    ):
        grain = math.lcm(table.lanes, len(distributed.devices()))
        size = -(-min(batch_size, len(table)) // grain) * grain
        self.epoch = -(-len(table) // size)
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(like)) / len(like.X)
        self.longest = int(np.clip(SENT / (row * size), 1, LONGEST))
        self.taken = skip
        self._none: Block = jax.tree.map(
            lambda leaf: leaf[:0] if np.ndim(leaf) else np.asarray(float(len(table))), like
        )
        self._lanes = [
            Lane(table, lane, sample, scaling, size // table.lanes, self.epoch, seed, skip)
            for lane in table.own
        ]

    def close(self) -> None:
        """End the threads."""
        for lane in self._lanes:
            lane.close()

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...]]:
        """The rows of n steps, n ≤ longest, and where they are; always of the same shape."""
        size, lanes = self._lanes[0].size, len(self._lanes)
        there = np.zeros((self.longest, lanes * size), bool)
        pieces = [self._none]
        for t in range(n):
            for k, lane in enumerate(self._lanes):
                found = lane.step()
                there[t, k * size : k * size + sum(len(piece.X) for piece in found)] = True
                pieces += found
        self.taken += n

        def placed(*leaves: np.ndarray) -> Any:
            if not leaves[0].ndim:  # how many rows there are in all
                return everywhere(leaves[0])
            table = np.zeros((*there.shape, *leaves[0].shape[1:]), leaves[0].dtype)
            table[there] = np.concatenate(leaves)
            return spread(table)

        return [jax.tree.map(placed, *pieces)], (spread(positions(there)),)


class Lane:
    """The rows of one lane, so many a step, with a thread that reads ahead.

    Attributes:
        size: rows of a step, unless the epoch ends.
    """

    def __init__(
        self,
        table: Table,
        lane: int,
        sample: Dataset,
        scaling: Scaling,
        size: int,
        epoch: int,
        seed: int,
        skip: int,
    ):
        self._table, self._lane, self._sample, self._scaling = table, lane, sample, scaling
        self.size, self._epoch, self._seed = size, epoch, seed
        self._taken, self._ended = skip, False
        self._rest: Block | None = None  # of a buffer, from row `_at` on
        self._at = 0
        self._queue: queue.Queue[Block | BaseException | None] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_ahead, args=(skip,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    # -- in the thread -----------------------------------------------------------------------------

    def _read_ahead(self, skip: int) -> None:
        try:
            for found in self._buffers(skip):
                if not self._put(found):
                    return
        except BaseException as error:  # told by `step`
            self._put(error)

    def _buffers(self, skip: int) -> Iterator[Block | None]:
        """Blocks of shuffled rows for ever, None after each epoch."""
        epoch, steps = divmod(skip, self._epoch)
        names, likelihoods = self._sample.names, self._sample.likelihoods
        beside = [column for of in likelihoods for column in of.beside]
        columns = list(dict.fromkeys([*self._table.inputs, *names, *beside]))
        while True:
            rows = steps * self.size
            for frame in self._table.epoch(columns, self._seed, epoch, rows, self._lane):
                try:
                    data = self._read(frame)
                except ValueError:
                    self._table.blame(self._read, columns, self._lane, self._table.lanes)
                    raise
                yield as_block(data, self._scaling, self._sample, len(self._table))
            yield None
            epoch, steps = epoch + 1, 0

    def _read(self, frame: pd.DataFrame) -> Dataset:
        named = dict(zip(self._sample.names, self._sample.likelihoods, strict=True))
        return read(named, frame[self._table.inputs], frame, self._sample.columns, some=True)

    def _put(self, found: Block | BaseException | None) -> bool:
        """Hand something over, unless nobody wants it any more."""
        while not self._closed.is_set():
            try:
                self._queue.put(found, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    # -- outside of it -----------------------------------------------------------------------------

    def step(self) -> list[Block]:
        """The rows of the next step in one or more pieces; fewer than `size` as the epoch ends."""
        pieces, missing = [], self.size
        while missing and not self._ended:
            if self._rest is None or self._at == len(self._rest.X):
                self._next()
                continue
            end = min(self._at + missing, len(self._rest.X))
            pieces.append(_rows(self._rest, self._at, end))
            missing -= end - self._at
            self._at = end
        self._taken += 1
        if self._taken % self._epoch == 0:
            while not self._ended:
                self._next()  # nothing but the sign that it ended
            self._ended = False
        return pieces

    def _next(self) -> None:
        """Go on to the next buffer, or learn that the epoch has ended."""
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        self._rest, self._at, self._ended = found, 0, found is None


def _rows(block: Block, begin: int, end: int) -> Block:
    return jax.tree.map(lambda leaf: leaf[begin:end] if np.ndim(leaf) else leaf, block)
