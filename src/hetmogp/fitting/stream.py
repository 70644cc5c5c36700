"""Mini-batches from a table on disk, read ahead by a thread so that steps need not wait."""

import queue
import threading
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..data import Block, Scaling, as_block
from ..disk import Table
from ..tables import Dataset, read
from .svi import LONGEST, SENT

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
        self._table, self._sample, self._scaling = table, sample, scaling
        self._seed, self.taken = seed, skip
        self.size = min(batch_size, len(table))
        self.epoch = -(-len(table) // self.size)
        row = sum(leaf.nbytes for leaf in jax.tree.leaves(like)) / len(like.X)
        self.longest = int(np.clip(SENT / (row * self.size), 1, LONGEST))
        self._queue: queue.Queue[Block | BaseException | None] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._rest = like  # of a buffer, from row `_at` on
        self._at = len(like.X)
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
        except BaseException as error:  # told by `take`
            self._put(error)

    def _buffers(self, skip: int) -> Iterator[Block | None]:
        """Blocks of shuffled rows for ever, None after each epoch."""
        epoch, steps = divmod(skip, self.epoch)
        names, likelihoods = self._sample.names, self._sample.likelihoods
        named = dict(zip(names, likelihoods, strict=True))
        beside = [column for of in likelihoods for column in of.beside]
        columns = list(dict.fromkeys([*self._table.inputs, *names, *beside]))
        while True:
            rows = steps * self.size
            for frame in self._table.epoch(columns, self._seed, epoch, rows):
                X = frame[self._table.inputs]
                try:
                    data = read(named, X, frame, self._sample.columns, some=True)
                except ValueError as error:
                    raise ValueError(f"{error} (row of a shuffled part of the table)") from None
                yield as_block(data, self._scaling, self._sample, len(self._table))
            yield None
            epoch, steps = epoch + 1, 0

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

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...]]:
        """A block and its rows for n steps, n ≤ longest; always of the same shape."""
        pieces: list[Block] = []
        rows = np.full((self.longest, self.size), -1, np.int32)
        used = 0
        for step in range(n):
            filled = 0
            while filled < self.size:
                if self._at == len(self._rest.X) and not self._next():
                    if filled:
                        break  # the epoch ends with a batch that is not full
                    continue  # it ended with the batch before
                end = min(self._at + self.size - filled, len(self._rest.X))
                count = end - self._at
                pieces.append(_rows(self._rest, self._at, end))
                rows[step, filled : filled + count] = np.arange(used, used + count)
                self._at, filled, used = end, filled + count, used + count
        self.taken += n
        whole = jax.tree.map(lambda *leaves: self._full(leaves), *pieces)
        return [whole], (jnp.asarray(rows),)

    def _next(self) -> bool:
        """Go on to the next buffer; False where an epoch ended instead."""
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        if found is None:
            return False
        self._rest, self._at = found, 0
        return True

    def _full(self, leaves: tuple[np.ndarray, ...]) -> Array:
        """Rows one after another, with room for all that `take` may give."""
        if leaves[0].ndim == 0:  # how many rows there are in all
            return jnp.asarray(leaves[0])
        found = np.zeros((self.longest * self.size, *leaves[0].shape[1:]), leaves[0].dtype)
        found[: sum(map(len, leaves))] = np.concatenate(leaves)
        return jnp.asarray(found)


def _rows(block: Block, begin: int, end: int) -> Block:
    return jax.tree.map(lambda leaf: leaf[begin:end] if np.ndim(leaf) else leaf, block)
