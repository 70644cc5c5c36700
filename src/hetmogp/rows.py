"""Process columns some rows at a time, in few shapes: little memory, few compilations."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["CHUNK", "SIZES", "Piece", "padded", "pieces", "roomy", "rowwise"]

CHUNK = 2048  # rows at a time; bounds memory whatever the number of inputs
SIZES = (8, 64, 512, 4096)  # of pieces; each is compiled once, however many rows there are


class Piece(NamedTuple):
    """Some rows, and the number of rows that they are padded to."""

    rows: slice
    size: int


def pieces(n: int, most: int = CHUNK, *, few: bool = False) -> Iterator[Piece]:
    """Cut n rows into pieces of few sizes, so that tables of all lengths share programs.

    At most half of a piece is padding, unless it has the smallest size.

    >>> [piece.size for piece in pieces(700)]
    [512, 64, 64, 64]

    Args:
        n: the number of rows.
        most: the largest size.
        few: whether to use the size for a handful of rows.
    """
    sizes = [*(size for size in SIZES[0 if few else 1 :] if size < most), most]
    begin = 0
    while begin < n:
        left = n - begin
        size = max((size for size in sizes if size <= 2 * left), default=sizes[0])
        yield Piece(slice(begin, min(begin + size, n)), size)
        begin += size


def roomy(n: int) -> int:
    """`n` rounded up by at most an eighth, so that data of similar size share a compilation."""
    grain = 2 ** max(n.bit_length() - 4, 3)
    return -(-n // grain) * grain


def padded(values: np.ndarray, size: int | None = None) -> np.ndarray:
    """Values padded with copies of the last one, to a length or to that of `roomy`."""
    more = (roomy(len(values)) if size is None else size) - len(values)
    return np.pad(values, [(0, more)] + [(0, 0)] * (values.ndim - 1), "edge")


def rowwise(f: Callable, *arrays: Any, chunk: int = CHUNK) -> Any:
    """Apply a compiled function to columns (or dicts of columns), some rows at a time."""
    N = len(jax.tree.leaves(arrays)[0])
    if N == 0:  # a row of any value gives the right shape; drop it afterwards
        one = jax.tree.map(lambda a: np.zeros((1, *np.shape(a)[1:]), np.asarray(a).dtype), arrays)
        return jax.tree.map(lambda a: a[:0], rowwise(f, *one))
    parts = []
    for at, size in pieces(N, chunk, few=SIZES[0] >= N):
        rows = jax.tree.map(lambda a, at=at: np.asarray(a[at]), arrays)
        n = at.stop - at.start
        out = f(*jax.tree.map(lambda row, size=size: jnp.asarray(padded(row, size)), rows))
        parts.append(jax.tree.map(lambda a, n=n: np.asarray(a)[:n], out))
    return jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)
