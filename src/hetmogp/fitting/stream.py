"""Mini-batches from a table on disk, prepared by threads so that steps need not wait.

One thread per lane reads and shuffles rows. Another thread assembles the rows of the next steps and
sends them to the devices.
"""

import math
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Int

from .. import distributed
from ..batch import Block
from ..data import Scaling, as_block
from ..disk import Table
from ..tables import Dataset, read
from .mesh import everywhere, spread
from .svi import positions

__all__ = ["StreamFeed", "in_memory", "rows_of_a_batch"]

BUFFERS = 2  # buffers of rows that each lane prepares in advance
CHUNKS = 1  # chunks of steps prepared in advance
CHUNK_BYTES = 2**22  # bytes of the rows of a chunk
LENGTHS = (8, 100)  # the fewest and the most steps of a chunk
T = TypeVar("T")


class Ahead(Generic[T]):
    """Runs an iterator in a thread, ahead of its consumer."""

    def __init__(self, items: Iterator[T], room: int):
        self._queue: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(room)
        self._closed = threading.Event()
        self._double = bool(jnp.zeros(()).dtype == jnp.float64)  # threads do not inherit this
        self._thread = threading.Thread(target=self._run, args=(items,), daemon=True)
        self._thread.start()

    def _run(self, items: Iterator[T]) -> None:
        with jax.enable_x64(self._double):
            try:
                for item in items:
                    if not self._put(item, None):
                        return
            except BaseException as error:  # raised again by `next`
                self._put(None, error)

    def _put(self, item: T | None, error: BaseException | None) -> bool:
        """Put an item or an error into the queue, unless the consumer has gone."""
        while not self._closed.is_set():
            try:
                self._queue.put((item, error), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def next(self) -> Any:
        """The next item; raises the error that occurred instead."""
        while not self._closed.is_set():
            try:
                item, error = self._queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            return item
        raise RuntimeError("this reader has been closed")

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()


class StreamFeed:
    """Supplies the rows of each step: every row once an epoch, in an order set by the seed.

    Attributes:
        epoch: the number of steps in which every row is used once.
        taken: the number of steps taken, including those skipped at the beginning.
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
        size = rows_of_a_batch(table, batch_size)
        self.epoch = -(-len(table) // size)
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(like)) / len(like.X)
        self._length = int(np.clip(CHUNK_BYTES / (row * size), *LENGTHS))
        self._any: Block = jax.tree.map(  # a row used as padding
            lambda leaf: leaf[:1] if np.ndim(leaf) else np.asarray(float(len(table))), like
        )
        self.taken, self._skipped = skip, skip
        self._lanes = [
            Lane(table, lane, sample, scaling, size // table.lanes, self.epoch, seed, skip)
            for lane in table.own
        ]
        self._chunks = Ahead(self._all_chunks(), CHUNKS)
        self._now: tuple[Block, Int[Array, "T B"]]

    def close(self) -> None:
        """End the threads."""
        for lane in self._lanes:
            lane.close()
        self._chunks.close()

    @property
    def longest(self) -> int:
        """The most steps that `take` can return now: the rest of the chunk."""
        return self._length - (self.taken - self._skipped) % self._length

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...], int]:
        """A block with the rows of n steps, their positions in it, and the first step."""
        first = (self.taken - self._skipped) % self._length
        if first == 0:
            self._now = self._chunks.next()
        self.taken += n
        block, rows = self._now
        return [block], (rows,), first

    def _all_chunks(self) -> Iterator[tuple[Block, Int[Array, "T B"]]]:
        """Endless chunks of steps, on the devices."""
        size = self._lanes[0].size
        while True:
            there = np.zeros((self._length, len(self._lanes) * size), bool)
            pieces: list[Block] = []
            for t in range(self._length):
                for k, lane in enumerate(self._lanes):
                    rows = lane.step()
                    there[t, k * size : k * size + sum(len(piece.X) for piece in rows)] = True
                    pieces += rows
            block = jax.tree.map(
                lambda any_row, *rows, there=there: _placed(there, any_row, rows),
                *(self._any, *pieces),
            )
            yield block, spread(positions(there))


def rows_of_a_batch(table: Table, batch_size: int) -> int:
    """The batch size, rounded up so that all lanes and devices have equally many rows."""
    grain = math.lcm(table.lanes, len(distributed.devices()))
    return -(-min(batch_size, len(table)) // grain) * grain


def _placed(there: np.ndarray, any_row: np.ndarray, rows: tuple[np.ndarray, ...]) -> Any:
    """Rows laid out as a table of steps; missing rows are padded with a copy of a real row.

    Padding has no effect on the bound, but at a row of zeros a gradient could be infinite.
    """
    if not any_row.ndim:  # the total number of rows
        return everywhere(any_row)
    table = np.empty((*there.shape, *any_row.shape[1:]), any_row.dtype)
    table[...] = any_row[0]
    table[there] = np.concatenate([any_row[:0], *rows])
    return spread(table)


class Lane:
    """Reads the rows of one lane ahead, a fixed number for each step.

    Attributes:
        size: rows of a step; the last step of an epoch may have fewer.
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
        self._rest: Block | None = None  # the current buffer, whose rows from `_at` on are left
        self._at = 0
        self._buffers = Ahead(self._all_buffers(skip), BUFFERS)

    def close(self) -> None:
        """End the thread."""
        self._buffers.close()

    def _all_buffers(self, skip: int) -> Iterator[Block | None]:
        """Endless blocks of shuffled rows, with None after each epoch."""
        epoch, steps = divmod(skip, self._epoch)
        columns, read_rows = _columns(self._table, self._sample), _reader(self._table, self._sample)
        while True:
            rows = steps * self.size
            lane = (self._seed, epoch, rows, self._lane)
            for data in self._table.epoch(columns, *lane, do=read_rows):
                yield as_block(data, self._scaling, self._sample, len(self._table))
            yield None
            epoch, steps = epoch + 1, 0

    def step(self) -> list[Block]:
        """The rows of the next step in one or more pieces; the last step may have fewer rows."""
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
                self._next()  # the mark of the epoch's end
            self._ended = False
        return pieces

    def _next(self) -> None:
        """Move to the next buffer, or note that the epoch has ended."""
        self._rest, self._at = self._buffers.next(), 0
        self._ended = self._rest is None


def in_memory(table: Table, sample: Dataset, scaling: Scaling) -> Block:
    """All rows of a table as one block, read by this process alone.

    Args:
        table: the table.
        sample: some of its rows.
        scaling: how the inputs are standardised.
    """
    with distributed.alone():
        parts = [
            as_block(data, scaling, sample, len(table))
            for data in table.each(_reader(table, sample), _columns(table, sample))
        ]
    return jax.tree.map(lambda *some: np.concatenate(some) if some[0].ndim else some[0], *parts)


def _columns(table: Table, sample: Dataset) -> list[str]:
    """The columns that a fit needs: inputs, outputs, and what comes with their observations."""
    extra = [column for likelihood in sample.likelihoods for column in likelihood.extra_columns]
    return list(dict.fromkeys([*table.inputs, *sample.names, *extra]))


def _reader(table: Table, sample: Dataset) -> Callable[[pd.DataFrame], Dataset]:
    """A function that reads rows of the table as the sample was read."""
    named = dict(zip(sample.names, sample.likelihoods, strict=True))
    return lambda rows: read(named, rows[table.inputs], rows, sample.columns, some=True)


def _rows(block: Block, begin: int, end: int) -> Block:
    return jax.tree.map(lambda leaf: leaf[begin:end] if np.ndim(leaf) else leaf, block)
