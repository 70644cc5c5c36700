"""How long joint draws take, and how much memory: `make draws`, and part of `make bench`.

A thousand draws at 10,000 rows of a model with three outputs, three latents and 100 inducing inputs
each. scikit-learn's `sample_y` and GPflow's `predict_f_samples` factorise the covariance over all
rows, so they are asked for 2,000 rows; scikit-learn's of one output, GPflow's of three functions.
Each kind of draw has a process of its own, whose memory is that of everything it holds.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import hetmogp as hm

DRAWS, ROWS, FEW, MANY = 1000, 10_000, 2000, 1_000_000
LIKELIHOODS = {"level": hm.Gaussian(), "high": hm.Bernoulli(), "count": hm.Poisson()}
OPTIONS: dict = {"latents": 3, "inducing": 100, "max_iter": 5, "prune": False, "progress": False}
KINDS = {
    "functions": f"functions at {ROWS:,} rows",
    "observations": f"observations at {ROWS:,} rows",
    "scikit-learn": f"scikit-learn, one output at {FEW:,} rows",
    "million": f"means of 50 groups of {MANY:,} rows, 200 draws",
}


def memory() -> float:
    """The most that this process has held so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def timed(draw: Callable[[int], Any], before: float) -> dict[str, float]:
    """Once to compile, once to measure, with other draws."""
    draw(0)
    began, cpu = time.perf_counter(), time.process_time()
    draw(1)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": wall, "cpu_s": used, "peak_gb": memory(), "before_gb": before}


def measure(kind: str) -> dict[str, float]:
    """One kind of draw, in this process."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0, 10, (600, 2)), rng.uniform(0, 10, (ROWS, 2))
    g = np.sin(X[:, 0]) + np.cos(X[:, 1])
    Y = {
        "level": g + 0.2 * rng.standard_normal(600),
        "high": (rng.uniform(size=600) < 1 / (1 + np.exp(-4 * g))).astype(float),
        "count": rng.poisson(np.exp(g)).astype(float),
    }
    if kind == "scikit-learn":
        peer = GaussianProcessRegressor(RBF(1.0) + WhiteKernel(0.04), optimizer=None)
        peer.fit(X, Y["level"])
        return timed(lambda seed: peer.sample_y(new[:FEW], DRAWS, seed), memory())
    model = hm.HetMOGP(LIKELIHOODS, **OPTIONS).fit(X, Y)
    before = memory()
    if kind == "functions":
        return timed(lambda seed: model.sample_functions(DRAWS, seed)(new), before)
    if kind == "observations":
        return timed(lambda seed: model.sample_y(new, DRAWS, seed), before)
    many, group = rng.uniform(0, 10, (MANY, 2)), rng.integers(0, 50, MANY)
    model.aggregate(many[:5000], group[:5000], n_samples=200)  # to compile
    began, cpu = time.perf_counter(), time.process_time()
    model.aggregate(many, group, n_samples=200)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": wall, "cpu_s": used, "peak_gb": memory(), "before_gb": before}


def apart(kind: str) -> dict[str, float]:
    """One kind of draw, in a process of its own; printed."""
    order = [sys.executable, __file__, "--only", kind]
    done = subprocess.run(order, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(
        f"  {KINDS[kind]:<48} {found['seconds']:6.1f} s, CPU {found['cpu_s']:6.1f} s, most memory "
        f"{found['peak_gb']:.2f} GB, {found['before_gb']:.2f} before",
        flush=True,
    )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="aggregate a million rows too")
    parser.add_argument("--only", choices=KINDS, help="one kind, in this process, as JSON")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only)))
    else:
        for each in KINDS:
            if each != "million" or arguments.million:
                apart(each)
