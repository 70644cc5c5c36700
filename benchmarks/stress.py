"""Fits in fresh processes while every core is kept busy: none may hang.

    python benchmarks/stress.py --fits 200
    taskset -c 0,1 python benchmarks/stress.py --fits 20 --first 100    # on two cores of many

Batched LAPACK calls on a CPU with few cores can wait for each other for ever (see
`hetmogp/linalg.py`); this is the test that ours do not. Exits with 1 if a fit stalls or fails.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

FIT = """
import sys
import numpy as np
import hetmogp as hm

seed, method = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(seed)
x = rng.uniform(size=(120, 2))
f = np.sin(5 * x[:, 0])
Y = {"b": (f > 0).astype(float), "h": f + 0.1 * rng.standard_normal(120)}
model = hm.HetMOGP({"b": hm.Bernoulli(), "h": hm.HetGaussian()}, inducing=15, latents=3,
                   method=method, max_iter=3 if method == "vem" else 60, batch_size=50, seed=seed)
print(model.fit(x, Y).elbo_, model.nlpd(x, Y)["global"])
"""


def spin() -> None:
    while True:
        sum(range(100_000))


def main(fits: int, limit: float, first: int) -> int:
    cores = len(os.sched_getaffinity(0))  # those this process may use
    load = [multiprocessing.Process(target=spin, daemon=True) for _ in range(cores)]
    for process in load:
        process.start()
    seconds, failures = [], 0
    try:
        for number in range(first, first + fits):
            method = ("vem", "svi")[number % 2]
            began = time.perf_counter()
            command = [sys.executable, "-c", FIT, str(number), method]
            try:
                done = subprocess.run(command, timeout=limit, capture_output=True, text=True)
                problem = None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
            except subprocess.TimeoutExpired:
                problem = f"stalled: not done in {limit:.0f} s"
            seconds.append(time.perf_counter() - began)
            failures += problem is not None
            verdict = problem or "ok"
            print(
                f"fit {number + 1 - first}/{fits} {method} {seconds[-1]:.1f} s {verdict}",
                flush=True,
            )
    finally:
        for process in load:
            process.terminate()
    print(f"{fits - failures} of {fits} done, median {statistics.median(seconds):.1f} s under load")
    return 1 if failures else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds each fit may take")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    sys.exit(main(options.fits, options.limit, options.first))
