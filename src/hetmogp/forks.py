"""Forked processes, in which JAX cannot compute: said at once, where it would wait for ever.

`fork` copies a process without its threads. JAX's own do the work, so a copy of a process that has
used JAX waits for threads that it does not have.
"""

import os

from .jax_private import backends_are_initialized

__all__ = ["refuse"]

_used = False  # whether JAX had its threads when this process was last forked from
_copied = False  # whether this process is such a copy


def refuse() -> None:
    """Complain where JAX was in use before this process was forked.

    Raises:
        RuntimeError: says how to start processes instead.
    """
    if _copied:
        raise RuntimeError(
            "this process was forked from one that had used JAX. A fork has none of its threads, "
            "and would wait for them for ever. Start processes afresh instead: by "
            'multiprocessing.get_context("spawn").Pool(), by '
            'ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")), or by joblib '
            'with its default, loky; "forkserver" does as well as "spawn"'
        )


def _before() -> None:
    global _used
    _used = backends_are_initialized()


def _in_the_copy() -> None:
    global _copied
    _copied = _copied or _used


if hasattr(os, "register_at_fork"):  # where there is a fork
    os.register_at_fork(before=_before, after_in_child=_in_the_copy)
