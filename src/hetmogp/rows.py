"""Process columns some rows at a time, in few shapes: little memory, few compilations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["CHUNK", "padded", "roomy", "rowwise"]

CHUNK = 2048  # rows at a time; bounds memory whatever the number of inputs


def roomy(n: int) -> int:
    """`n` rounded up by at most an eighth, so that data of similar size share a compilation."""
    grain = 2 ** max(n.bit_length() - 4, 3)
    return -(-n // grain) * grain


def padded(values: np.ndarray) -> np.ndarray:
    """Values padded with copies of the last one, to the length of `roomy`."""
    return np.pad(
        values, [(0, roomy(len(values)) - len(values))] + [(0, 0)] * (values.ndim - 1), "edge"
    )


def rowwise(f: Callable, *arrays: Any, chunk: int = CHUNK) -> Any:
    """Apply a compiled function to columns (or dicts of columns), some rows at a time."""
    N = len(jax.tree.leaves(arrays)[0])
    if N == 0:  # a row of any value gives the right shape; drop it afterwards
        one = jax.tree.map(lambda a: np.zeros((1, *np.shape(a)[1:])), arrays)
        return jax.tree.map(lambda a: a[:0], rowwise(f, *one))
    parts = []
    for begin in range(0, N, chunk):
        rows = jax.tree.map(lambda a, begin=begin: np.asarray(a[begin : begin + chunk]), arrays)
        n = len(jax.tree.leaves(rows)[0])
        out = f(*jax.tree.map(lambda row: jnp.asarray(padded(row)), rows))
        parts.append(jax.tree.map(lambda a, n=n: np.asarray(a)[:n], out))
    return jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)
