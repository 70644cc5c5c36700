"""The devices of all processes as one mesh: rows are spread over it, everything else is copied."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ..distributed import devices

__all__ = ["ROWS", "everywhere", "mesh", "rounded", "spread"]

ROWS = "rows"
Tree = TypeVar("Tree")


def mesh() -> Mesh:
    """All devices of all processes as a one-dimensional mesh."""
    return Mesh(np.asarray(devices()), ROWS)


def rounded(rows: int) -> int:
    """The number of rows, rounded up so that every device has equally many."""
    return -(-rows // len(devices())) * len(devices())


def everywhere(tree: Tree) -> Tree:
    """Copy arrays that are equal in all processes to every device."""
    return jax.tree.map(lambda leaf: _placed(leaf, PartitionSpec()), tree)


def spread(leaf: np.ndarray) -> Array:
    """The rows of this process, (T, B / processes, ...), as its part of an array (T, B, ...)."""
    return _placed(leaf, PartitionSpec(None, ROWS))


def _placed(leaf: Array | np.ndarray, how: PartitionSpec) -> Array:
    sharding = NamedSharding(mesh(), how)
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    if sharding.num_devices == 1:
        return jax.device_put(jnp.asarray(leaf), sharding)  # nothing is copied
    values = np.asarray(leaf)
    values = values.astype(jax.dtypes.canonicalize_dtype(values.dtype), copy=False)
    return jax.make_array_from_process_local_data(sharding, values)
