"""What a computation must leave behind as it was: threads, precision, memory; and what it keeps."""

import os
import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from threadpoolctl import ThreadpoolController

from hetmogp import programs
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


# -- compiled programs -----------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where compiled programs are kept, however short it took to compile them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HETMOGP_CACHE")
    monkeypatch.setattr(programs, "SHORTEST", 0.0)
    return tmp_path / "hetmogp" / "xla"


def compile_one(number):
    """Compile a program that has not been compiled before."""
    jax.clear_caches()
    return float(jax.jit(lambda x: jnp.sin(x) * number)(1.0))


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_programs_are_kept_while_a_computation_lasts_and_read_again(kept):
    hits: list[str] = []

    def hear(event, **_):
        hits.extend([event] if event.endswith("cache_hits") else [])

    jax.monitoring.register_event_listener(hear)
    try:
        compile_one(2.0)
        assert not files_in(kept)
        with session():
            first = compile_one(3.0)
            before = len(hits)
            assert compile_one(3.0) == first == 3.0 * np.sin(1.0)
        assert len(hits) > before
    finally:
        jax.monitoring.unregister_event_listener(hear)
    then = files_in(kept)
    assert then
    compile_one(4.0)
    assert files_in(kept) == then
    assert jax.config.values["jax_compilation_cache_dir"] is None
    assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 1.0


def test_a_cache_that_jax_was_told_of_is_used(kept, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        with session():
            compile_one(5.0)
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
        compilation_cache.reset_cache()
    assert files_in(tmp_path / "mine")
    assert not files_in(kept)


def others_may_write(kept):
    mine: Any = programs._in_folder(kept)
    mine._path.chmod(0o777)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda kept: os.environ.update(HETMOGP_CACHE="off"),
        lambda kept: os.environ.update(XDG_CACHE_HOME="here"),  # nobody's home: not beside the data
        lambda kept: (kept.parent.mkdir(), kept.write_text("a file")),
        others_may_write,
    ],
    ids=["off", "no home", "no folder", "others may write"],
)
def test_programs_are_not_kept_where_they_should_not_be(kept, prepare, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HETMOGP_CACHE", "")
    prepare(kept)
    programs._in_folder.cache_clear()
    with session():
        assert compile_one(6.0) == 6.0 * np.sin(1.0)
    assert [path for path in files_in(tmp_path) if "jit" in path.name] == []


def test_each_kind_of_cpu_has_its_own_programs(kept, monkeypatch):
    for cpu in ("one", "another"):
        monkeypatch.setattr(programs, "_cpu", lambda cpu=cpu: cpu)
        programs._in_folder.cache_clear()
        with session():
            compile_one(7.0)
    programs._in_folder.cache_clear()
    names = [sorted(path.name for path in files_in(folder)) for folder in kept.iterdir()]
    assert len(names) == 2
    assert names[0] == names[1] != []


def test_programs_that_were_not_used_for_longest_are_let_go(tmp_path, monkeypatch):
    """Of all kinds of CPU together, and never the one that was just kept."""
    monkeypatch.setattr(programs, "MOST_BYTES", 2500)
    monkeypatch.setattr(
        programs, "SWEEP_BYTES", 1000
    )  # the size is checked at the first and at every second
    old, new = (programs.Programs(tmp_path / name) for name in ("old", "new"))
    for k, one in enumerate((old, new)):
        one._path.mkdir()
        for name in "ab":
            one.put(f"{name}{k}", bytes(600))
            os.utime(one._path / f"{name}{k}", (k, k))
    assert len(files_in(tmp_path)) == 4
    assert old.get("a0") == bytes(600)  # which uses it
    new.put("c", bytes(1500))
    assert {path.name for path in files_in(tmp_path)} == {"a0", "c"}
    assert old.get("b0") is None


A_FIT = """
import jax, numpy as np, hetmogp as hm
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event.endswith("cache_hits")))
x = np.linspace(0.0, 1.0, 30)
model = hm.HetMOGP([hm.Gaussian()], inducing=5, latents=1, max_iter=1, progress=False)
print(model.fit(x, np.sin(6 * x)).elbo_, sum(hits))
"""


def test_a_second_process_compiles_nothing_large_again(kept):
    """And finds the same to the last bit."""
    found = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", A_FIT],
            env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        for _ in range(2)
    ]
    assert [one.stderr for one in found] == ["", ""]
    (first, none), (second, some) = (one.stdout.split() for one in found)
    assert first == second
    assert none == "0"
    assert int(some) >= 1  # the profile of the bound at least


@pytest.mark.parametrize(
    ("number", "quiet"),
    [("0.11.0rc1", True), ("0.10.2+local", True), ("0.10.1.dev7", False), ("0.9", False)],
)
def test_any_version_of_jaxlib_can_be_read(number, quiet, tmp_path, monkeypatch):
    """Of a candidate, of a local build; no programs are kept for those that warn."""
    monkeypatch.setattr(programs, "version", lambda name: number)
    programs._in_folder.cache_clear()
    assert (programs._in_folder(tmp_path / "xla") is not None) == quiet
    programs._in_folder.cache_clear()
