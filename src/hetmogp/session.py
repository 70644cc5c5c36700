"""Settings while the package computes: precision, BLAS threads, the cache of programs.

Each setting of the process is restored when the computation ends.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import jax
from threadpoolctl import ThreadpoolController

from . import forks, jax_private, programs

__all__ = ["session"]

MOST_PROGRAMS = 500  # each takes about 45 memory maps; Linux allows a process 65,530


@contextmanager
def session(dtype: str = "float64") -> Iterator[None]:
    """The context of all computations: the chosen precision, and one BLAS thread.

    The threads of OpenBLAS compete with those of XLA for the same cores, which was measured to be
    up to 30 times slower. Their number is restored on leaving. Matrix products have full precision:
    by default a GPU multiplies float32 with ten bits, and kernel matrices would not be positive
    definite. Compiled programs are cached for the next process.
    """
    forks.refuse()
    with (
        jax.enable_x64(dtype == "float64"),
        jax.default_matmul_precision("highest"),
        _computation as kept,
        jax_private.keep_from(programs.SHORTEST) if kept else nullcontext(),
    ):
        yield


class _Computation:
    """Counts computations that run at once: the first sets things up, the last restores them.

    The number of BLAS threads and the cache of programs belong to the process. If each of two
    computations at once set and restored them, one could restore what the other had set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit: Any = None
        self._programs = 0
        self._kept: programs.Programs | None = None

    def compiled(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Count a program that JAX has compiled."""
        self._programs += event == "/jax/core/compile/backend_compile_duration"

    def __enter__(self) -> programs.Programs | None:
        with self._lock:
            if self._users == 0:
                _any_thread_may_set()
                self._limit = _blas().limit(limits=1, user_api="blas")
                self._let_go()
                self._kept = programs.begin()
            self._users += 1
            return self._kept

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _any_thread_may_set()
                self._limit.restore_original_limits()
                if self._kept is not None:
                    programs.end(self._kept)

    def _let_go(self) -> None:
        """Drop all compiled programs before there are too many; JAX itself never does."""
        if self._programs > MOST_PROGRAMS:
            self._programs = 0
            jax.clear_caches()
            _return_memory()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _return_memory() -> None:
    """Return freed memory to the system; glibc would keep it in fragments."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _any_thread_may_set() -> None:
    """Let this thread set the number of threads.

    threadpoolctl may silently ignore every thread but the first that has set it. Here another
    thread may have to restore it.
    """
    for library in _blas().lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)


_computation = _Computation()
jax.monitoring.register_event_duration_secs_listener(_computation.compiled)
