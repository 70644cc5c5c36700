"""A table larger than memory: what a fit takes of it, and what a step costs beside one in memory.

    python benchmarks/out_of_core.py --rows 50000000 --folder /tmp/rows

Writes the table (inputs x, y, z; a count, a real and a binary output with gaps) as Parquet files of
a million rows, unless the folder has it already. Each fit is a process of its own.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

import hetmogp as hm
import hetmogp.model
from hetmogp.fitting import Progress

PART = 1_000_000
IN_MEMORY = 2_000_000  # rows of the fit beside
STEPS = 2000
ROUNDS = 7  # of both, in turn
LIKELIHOODS = {"count": hm.Poisson(), "real": hm.HetGaussian(), "binary": hm.Bernoulli()}
INPUTS = ["x", "y", "z"]


def make(folder: Path, rows: int) -> None:
    """Write the table, part by part."""
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(-(-rows // PART)):
        path = folder / f"{k:04d}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng([7, k])
        n = min(PART, rows - k * PART)
        X = rng.uniform(0, 1, (n, 3))
        f = np.sin(6 * X[:, 0]) + np.cos(5 * X[:, 1]) * X[:, 2]
        real = f + np.exp(-1 + X[:, 0]) * rng.standard_normal(n)
        part = pd.DataFrame(
            {
                **dict(zip(INPUTS, X.T, strict=True)),
                "count": rng.poisson(np.exp(f)).astype(float),
                "real": np.where(rng.random(n) < 0.3, np.nan, real),
                "binary": (rng.random(n) < 1 / (1 + np.exp(-2 * f))).astype(float),
            }
        )
        part.to_parquet(path, index=False, row_group_size=100_000)
        print(f"\rwritten {k + 1} million rows", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


class Clock(Progress):
    """When a fit was where."""

    seen: ClassVar[list[tuple[float, int]]] = []

    def update(self, what: str, fraction: float, bound: float | None = None) -> None:
        if what.startswith("step "):
            self.seen.append((time.perf_counter(), int(what.split()[1])))


def fit(folder: Path, how: str) -> dict[str, float]:
    """One fit: from disk, or of the first rows in memory."""
    model = hm.HetMOGP(LIKELIHOODS, method="svi", max_iter=STEPS, tol=1e-12, progress=False)
    hetmogp.model.Progress = Clock  # type: ignore[misc]
    began = time.perf_counter()
    if how == "disk":
        table = hm.Table(folder, inputs=INPUTS)
        model.fit(table)
        rows = len(table)
    else:
        files = sorted(folder.glob("*.parquet"))[: IN_MEMORY // PART]
        frame = pd.concat([pd.read_parquet(path) for path in files], ignore_index=True)
        began = time.perf_counter()
        model.fit(frame[INPUTS], frame)
        rows = len(frame)
    (begin, first), (end, last) = Clock.seen[1], Clock.seen[-1]  # the first one compiled
    return {
        "rows": rows,
        "seconds": time.perf_counter() - began,
        "ms a step": 1e3 * (end - begin) / (last - first),
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "bound per value": model.elbo_ / sum(model.n_observed_.values()),
    }


def main() -> None:
    """Make the table, and fit it both ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--one", choices=["disk", "memory"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(fit(options.folder, options.one)))
        return
    make(options.folder, options.rows)
    costs: dict[str, list[float]] = {"disk": [], "memory": []}
    for _ in range(ROUNDS):
        for how, of in costs.items():
            command = [sys.executable, __file__, "--folder", str(options.folder), "--one", how]
            told = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(told.stdout)
            print(f"{how:<6}", {name: round(value, 3) for name, value in found.items()}, flush=True)
            of.append(found["ms a step"])
    ratio = statistics.median(a / b for a, b in zip(*costs.values(), strict=True))
    disk, memory = map(statistics.median, costs.values())
    print(
        f"a step, median of {ROUNDS}: {disk:.2f} ms from disk, {memory:.2f} ms in memory;", end=""
    )
    print(f" the median ratio is {ratio:.3f}")


if __name__ == "__main__":
    main()
