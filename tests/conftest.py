"""Tests compile hundreds of small programs and run each for a moment: compile them quickly.

The stress test, the demo's own process and the benchmarks run with XLA's usual optimisation.
"""

import gc
import os
from pathlib import Path

import jax
import matplotlib as mpl
import pytest

jax.config.update("jax_disable_most_optimizations", True)
with pytest.MonkeyPatch.context() as patch:  # XLA reads it once; processes started here do not
    patch.setenv(
        "XLA_FLAGS",
        "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false "
        + os.environ.get("XLA_FLAGS", ""),
    )
    jax.devices()
gc.set_threshold(50_000)  # tracing makes many small objects, few of them garbage
mpl.use("agg")


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs take pieces of the memory map, of which Linux gives out 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > 25_000:
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="session")
def no_users_cache(tmp_path_factory):
    """What is compiled here must not reach the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HETMOGP_CACHE", "off")
        yield
