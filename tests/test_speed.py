"""The speed benchmark in short, and how many operations a step takes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hetmogp.session import session
from hetmogp.variational.one_pass import _one_pass, _projected

SPEED = Path(__file__).parents[1] / "benchmarks" / "speed.py"


@pytest.mark.slow
def test_the_benchmark_runs_without_peers_and_says_so(tmp_path):
    options = ["--only", "step", "--sizes", "20,50", "--rounds", "1", "--out", tmp_path]
    done = subprocess.run(
        [sys.executable, SPEED, *options, "--peers", tmp_path / "python"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "make peers" in done.stdout
    assert "20, 50" in done.stdout
    written = [path.name for path in tmp_path.iterdir()]
    assert len(written) == 1
    assert written[0].startswith("performance")


def test_a_gradient_takes_four_m2n_operations_and_the_readable_form_many_more():
    M, N = 30, 20_000
    shapes = [(1, M, M), (1, M, N), (1, N), (1, M), (1, M, M)]
    with session():
        arrays = [jnp.zeros(shape) for shape in shapes]

        def operations(way):
            def f(*arrays):
                mean, variance = way((1,), *arrays)
                return jnp.sum(mean) + jnp.sum(variance)

            lowered: Any = jax.jit(jax.grad(f, (0, 1, 2, 3, 4))).lower(*arrays)
            return lowered.cost_analysis()["flops"] / (M**2 * N)

        # N grows alone, so passes over M × N arrays add a little to each.
        assert operations(_one_pass) == pytest.approx(4.0, abs=0.6)
        assert operations(_projected) > 1.6 * operations(_one_pass)
