"""How long joint draws take, and how much memory: `make draws`.

A thousand draws at 10,000 rows of a model with three outputs, three latents and 100 inducing inputs
each; beside scikit-learn's `sample_y`, which factorises the covariance over all rows and so is
asked for 2,000.
"""

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import hetmogp as hm

DRAWS, ROWS, FEW = 1000, 10_000, 2000
LIKELIHOODS = {"level": hm.Gaussian(), "high": hm.Bernoulli(), "count": hm.Poisson()}


def memory() -> float:
    """The most that this process has held so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def timed(name: str, draw: Callable[[int], Any]) -> None:
    """Once to compile, once to measure, with other draws."""
    draw(0)
    began, cpu = time.perf_counter(), time.process_time()
    draw(1)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"{name:34s} {wall:6.2f} s, CPU {used:6.2f} s, most memory {memory():.2f} GB", flush=True)


def main(million: bool) -> None:
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0, 10, (600, 2)), rng.uniform(0, 10, (ROWS, 2))
    g = np.sin(X[:, 0]) + np.cos(X[:, 1])
    Y = {
        "level": g + 0.2 * rng.standard_normal(600),
        "high": (rng.uniform(size=600) < 1 / (1 + np.exp(-4 * g))).astype(float),
        "count": rng.poisson(np.exp(g)).astype(float),
    }
    options: dict = {"latents": 3, "inducing": 100, "max_iter": 5, "prune": False}
    model = hm.HetMOGP(LIKELIHOODS, **options, progress=False).fit(X, Y)
    print(f"the model itself: {memory():.2f} GB")
    timed("functions at 10,000 rows", lambda seed: model.sample_functions(DRAWS, seed)(new))
    timed("observations at 10,000 rows", lambda seed: model.sample_y(new, DRAWS, seed))
    if million:
        many = rng.uniform(0, 10, (1_000_000, 2))
        group = rng.integers(0, 50, len(many))
        began = time.perf_counter()
        model.aggregate(many, group, n_samples=200)
        took = time.perf_counter() - began
        print(f"a million rows in 50 groups, 200 draws: {took:.0f} s, {memory():.2f} GB")
    peer = GaussianProcessRegressor(RBF(1.0) + WhiteKernel(0.04), optimizer=None).fit(X, Y["level"])
    few = new[:FEW]
    timed("scikit-learn, one output, 2,000", lambda seed: peer.sample_y(few, DRAWS, seed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="aggregate a million rows too")
    main(parser.parse_args().million)
