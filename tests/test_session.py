"""What a computation must leave behind as it was: threads, precision, memory."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from hetmogp import session as module
from hetmogp.session import session


def threads():
    """The threads of each BLAS in the process."""
    return [lib["num_threads"] for lib in ThreadpoolController().select(user_api="blas").info()]


@pytest.fixture
def two_threads():
    """BLAS with two threads, however many cores there are."""
    np.ones((2, 2)) @ np.ones((2, 2))
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        yield


def test_computations_at_once_restore_the_threads_of_blas(two_threads):
    """The first to begin is the first to end, while the other one goes on."""
    before = threads()
    assert max(before) > 1
    begun, ended = threading.Event(), threading.Event()

    def first():
        with session():
            begun.set()
            ended.wait(10)

    other = threading.Thread(target=first)
    other.start()
    begun.wait(10)
    with session():
        ended.set()
        other.join()
        assert set(threads()) == {1}  # this one still computes
    assert threads() == before


def test_a_computation_that_fails_restores_them_too(two_threads):
    before = threads()
    with pytest.raises(KeyError), session(), session("float32"):
        raise KeyError
    assert threads() == before


def test_old_programs_are_let_go(monkeypatch):
    """Compiled programs stay until there are many, and then leave all at once."""
    computation = module._Computation()
    monkeypatch.setattr(module, "_computation", computation)
    monkeypatch.setattr(module, "MOST_PROGRAMS", 5)
    jax.monitoring.register_event_duration_secs_listener(computation.compiled)
    try:
        kept: list[Any] = []
        for n in range(12):
            with session():
                program = jax.jit(lambda x: jnp.sin(x) * 2.0)
                program(jnp.zeros(3000 + n))
                kept.append(program)
        sizes = [program._cache_size() for program in kept]
    finally:
        jax.monitoring.unregister_event_duration_listener(computation.compiled)
    assert sum(sizes) < len(kept)  # the first ones are gone
    assert sizes[-1] == 1
