"""Fits of ever new shapes in one process: compiled programs must not pile up.

    python benchmarks/shapes.py --fits 500

JAX keeps every program that it compiles. Each shape takes some hundred memory maps, of which Linux
gives a process 65,530. Exits with 1 if memory or maps have grown from the first hundred fits on.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np

import hetmogp as hm

PAGE = 4096


def state() -> tuple[float, int]:
    """Megabytes of memory and the number of memory maps of this process (on Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE / 1e6, len(Path("/proc/self/maps").read_text().splitlines())


def main(fits: int, quick: bool) -> int:
    jax.config.update("jax_disable_most_optimizations", quick)
    rng = np.random.default_rng(0)
    began, seen = time.perf_counter(), []
    for number in range(fits):
        N, M = 20 + 9 * (number % 50), 4 + number // 50  # of which no pair comes twice
        x = np.linspace(0.0, 1.0, N)
        Y = {"a": rng.normal(size=N), "b": rng.poisson(2.0, N)}
        named = {"a": hm.Gaussian(), "b": hm.Poisson()}
        model = hm.HetMOGP(named, latents=1, inducing=M, max_iter=0, progress=False)
        model.fit(x, Y).predict(x).to_frame()
        seen.append(state())
        if number % 25 == 24:
            memory, maps = seen[-1]
            seconds = time.perf_counter() - began
            print(
                f"{number + 1:4d} fits {memory:6.0f} MB {maps:6d} maps {seconds:5.0f} s", flush=True
            )
    most = np.max(seen[: max(fits // 5, 1)], axis=0)
    last = np.max(seen[-max(fits // 5, 1) :], axis=0)
    for what, (memory, maps) in (("first", most), ("last", last)):
        print(f"the {what} fifth: at most {memory:.0f} MB and {maps:.0f} maps")
    return 0 if np.all(last < 1.25 * most) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="compile without optimising")
    options = parser.parse_args()
    sys.exit(main(options.fits, options.quick))
