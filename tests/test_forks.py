"""Processes that are forked from one that has used JAX: an error at once, where it would hang."""

import os
import subprocess
import sys

import pytest

FORKING = """
import multiprocessing
import warnings
import jax.numpy as jnp
import hetmogp as hm
from hetmogp.session import session

warnings.filterwarnings("ignore", "os.fork")  # JAX's own warning
hm.HetMOGP([hm.Gaussian()], kernel=hm.RBF())  # to name a model is not to compute

def compute():
    with session():
        return float(jnp.linalg.norm(jnp.arange(5.0)))

def learn():
    return hm.HetMOGP([hm.Gaussian()], progress=False).fit([0.0, 1.0], [0.0, 1.0]).elbo_

def nested():
    return forked(compute)

def forked(task):
    there = multiprocessing.get_context("fork").SimpleQueue()
    def run():
        try:
            there.put(task())
        except RuntimeError as error:
            there.put(f"RuntimeError: {error}")
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(30)
    if child.is_alive():
        child.kill()
        return "it hangs"
    return there.get()

print("before", forked(compute))
print("itself", compute())
print("after", forked(compute))
print("learning", forked(learn))
print("nested", forked(nested))
print("still", compute())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_computes_before_jax_is_used_and_is_refused_after():
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    for task in ("before", "itself", "still"):
        assert float(said[task]) == pytest.approx(30**0.5, rel=1e-15)
    for task in ("after", "learning", "nested"):
        assert said[task].startswith("RuntimeError: this process was forked from one that had used")
        assert 'multiprocessing.get_context("spawn").Pool()' in said[task]
