"""Mini-batches from a table on disk, made ready by threads so that steps need not wait.

A thread for each lane reads and shuffles; one more puts the rows of the next steps together and
sends them to the devices.
"""

import math
import queue
import threading
from collections.abc import Iterator
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

__all__ = ["StreamFeed", "rows_of_a_batch"]

BUFFERS = 2  # of a lane, that wait to be used
CHUNKS = 1  # of steps, that wait to be used
CHUNK_BYTES = 2**22  # bytes of the rows of a chunk
LENGTHS = (8, 100)  # steps of a chunk at least and at most
T = TypeVar("T")


class Ahead(Generic[T]):
    """What an iterator gives, made by a thread before it is asked for."""

    def __init__(self, items: Iterator[T], room: int):
        self._queue: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(room)
        self._closed = threading.Event()
        self._double = bool(jnp.zeros(()).dtype == jnp.float64)  # a thread does not inherit it
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
        """Hand something over, unless nobody wants it any more."""
        while not self._closed.is_set():
            try:
                self._queue.put((item, error), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def next(self) -> Any:
        """The next item, or the error that came instead."""
        while not self._closed.is_set():
            try:
                item, error = self._queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            return item
        raise RuntimeError("nothing is read ahead any more")

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()


class StreamFeed:
    """The rows of steps to come: every row of the table once an epoch, in an order by the seed.

    Attributes:
        epoch: the steps in which every row is met once.
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
        size = rows_of_a_batch(table, batch_size)
        self.epoch = -(-len(table) // size)
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(like)) / len(like.X)
        self._length = int(np.clip(CHUNK_BYTES / (row * size), *LENGTHS))
        self._any: Block = jax.tree.map(  # a row that fills gaps
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
        """The most steps that `take` gives now: those that are left of a chunk."""
        return self._length - (self.taken - self._skipped) % self._length

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...], int]:
        """A block with the rows of n steps, where in it they are, and which step is the first."""
        first = (self.taken - self._skipped) % self._length
        if first == 0:
            self._now = self._chunks.next()
        self.taken += n
        block, rows = self._now
        return [block], (rows,), first

    def _all_chunks(self) -> Iterator[tuple[Block, Int[Array, "T B"]]]:
        """Steps by the chunk, on the devices, for ever."""
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
    """So many or a few more, so that lanes and devices have as many each."""
    grain = math.lcm(table.lanes, len(distributed.devices()))
    return -(-min(batch_size, len(table)) // grain) * grain


def _placed(there: np.ndarray, any_row: np.ndarray, rows: tuple[np.ndarray, ...]) -> Any:
    """Rows one after another, as a table of steps; where there is none, any row that is real.

    What is not there counts for nothing, but a gradient at zero may be infinite.
    """
    if not any_row.ndim:  # how many rows there are in all
        return everywhere(any_row)
    table = np.empty((*there.shape, *any_row.shape[1:]), any_row.dtype)
    table[...] = any_row[0]
    table[there] = np.concatenate([any_row[:0], *rows])
    return spread(table)


class Lane:
    """The rows of one lane, so many a step, read ahead.

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
        self._buffers = Ahead(self._all_buffers(skip), BUFFERS)

    def close(self) -> None:
        """End the thread."""
        self._buffers.close()

    def _all_buffers(self, skip: int) -> Iterator[Block | None]:
        """Blocks of shuffled rows for ever, None after each epoch."""
        epoch, steps = divmod(skip, self._epoch)
        names, likelihoods = self._sample.names, self._sample.likelihoods
        extra = [column for likelihood in likelihoods for column in likelihood.extra_columns]
        columns = list(dict.fromkeys([*self._table.inputs, *names, *extra]))
        while True:
            rows = steps * self.size
            lane = (self._seed, epoch, rows, self._lane)
            for data in self._table.epoch(columns, *lane, do=self._read):
                yield as_block(data, self._scaling, self._sample, len(self._table))
            yield None
            epoch, steps = epoch + 1, 0

    def _read(self, frame: pd.DataFrame) -> Dataset:
        named = dict(zip(self._sample.names, self._sample.likelihoods, strict=True))
        return read(named, frame[self._table.inputs], frame, self._sample.columns, some=True)

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
        self._rest, self._at = self._buffers.next(), 0
        self._ended = self._rest is None


def _rows(block: Block, begin: int, end: int) -> Block:
    return jax.tree.map(lambda leaf: leaf[begin:end] if np.ndim(leaf) else leaf, block)
