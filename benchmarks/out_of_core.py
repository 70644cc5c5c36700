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

import numpy as np
import pandas as pd

import hetmogp as hm

PART = 1_000_000
IN_MEMORY = 2_000_000  # rows of the fit beside
STEPS = (200, 1700)  # the cost of a step is the difference of two fits
ROUNDS = 5  # of both, in turn
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


def fit(folder: Path, how: str, steps: int) -> dict[str, float]:
    """One fit: from disk, or of the first rows in memory."""
    model = hm.HetMOGP(LIKELIHOODS, method="svi", latents=3, max_iter=steps, progress=False)
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
    return {
        "rows": rows,
        "seconds": time.perf_counter() - began,
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "bound per value": model.elbo_ / sum(model.n_observed_.values()),
    }


def main() -> None:
    """Make the table, and fit it both ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--one", nargs=2, metavar=("HOW", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        how, steps = options.one
        print(json.dumps(fit(options.folder, how, int(steps))))
        return
    make(options.folder, options.rows)
    costs: dict[str, list[float]] = {"disk": [], "memory": []}
    for _ in range(ROUNDS):
        for how, of in costs.items():
            found = []
            for steps in STEPS:
                command = [sys.executable, __file__, "--folder", str(options.folder)]
                told = subprocess.run(
                    [*command, "--one", how, str(steps)], check=True, capture_output=True, text=True
                )
                found.append(json.loads(told.stdout))
                print(how, steps, "steps:", found[-1], flush=True)
            of.append((found[1]["seconds"] - found[0]["seconds"]) / (STEPS[1] - STEPS[0]))
    disk, memory = (1e3 * statistics.median(costs[how]) for how in ("disk", "memory"))
    print(f"a step, median of {ROUNDS}: {disk:.2f} ms from disk, {memory:.2f} ms in memory")
    print({how: [round(1e3 * cost, 2) for cost in of] for how, of in costs.items()})


if __name__ == "__main__":
    main()
