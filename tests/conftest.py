"""Tests compile hundreds of small programs and run each for a moment: compile them quickly.

The stress test, the demo's own process and the benchmarks run with XLA's usual optimisation.
"""

from pathlib import Path

import jax
import matplotlib as mpl
import pytest

jax.config.update("jax_disable_most_optimizations", True)
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
