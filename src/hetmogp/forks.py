"""An error at once in forked processes, where JAX would wait for ever.

`fork` copies a process without its threads. JAX computes in threads, so a fork of a process that
has used JAX waits for threads that do not exist.
"""

import os

from .jax_private import backends_are_initialized

__all__ = ["refuse"]

_used = False  # whether JAX had threads when this process was last forked
_copied = False  # whether this process is a fork that lacks these threads


def refuse() -> None:
    """Raise an error if JAX was in use before this process was forked.

    Raises:
        RuntimeError: with advice on how to start processes instead.
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


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before, after_in_child=_in_the_copy)
