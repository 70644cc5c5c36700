"""Tests compile hundreds of small programs and run each for a moment: compile them quickly.

The stress test, the demo's own process and the benchmarks run with XLA's usual optimisation.
"""

import jax
import matplotlib as mpl
import pytest

jax.config.update("jax_disable_most_optimizations", True)
mpl.use("agg")


@pytest.fixture(autouse=True, scope="session")
def a_cache_of_its_own(tmp_path_factory):
    """The command line keeps what it compiles; tests of it must not touch the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
