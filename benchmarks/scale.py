"""What a fit takes as data grow past memory: rows a second by batch size, and what is all-reduced.

    python benchmarks/scale.py --folder build/rows

Reads the table that `benchmarks/out_of_core.py` writes (and writes ten million rows of it where
there is none). Rows a second of one process, from disk and from memory, for several batch sizes.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import pandas as pd
from out_of_core import INPUTS, LIKELIHOODS, make

import hetmogp as hm
from hetmogp.fitting import runs

IN_MEMORY = 2  # files, of a million rows each
BATCHES = (500, 2_000, 10_000, 50_000)
STEPS = {"cpu": (50, 250), "gpu": (100, 700)}


def steps_per_second(data: tuple, size: int, dtype: str) -> float:
    """From the difference of two fits, so that preparing and compiling do not count."""
    taken = []
    counts = STEPS[jax.default_backend()]
    for steps in (counts[0], *counts):  # the first one compiles
        model = hm.HetMOGP(
            LIKELIHOODS,
            method="svi",
            batch_size=size,
            max_iter=steps,
            tol=1e-12,
            dtype=dtype,
            progress=False,
        )
        begun: list[float] = []
        run = runs.run_svi

        def timed(*a: Any, run: Any = run, begun: list[float] = begun, **k: Any) -> Any:
            begun.append(time.perf_counter())
            return run(*a, **k)

        with mock.patch.object(runs, "run_svi", timed):
            model.fit(*data)
        taken.append(time.perf_counter() - begun[0])
    return (counts[1] - counts[0]) / (taken[2] - taken[1])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--lanes", type=int, default=1, help="readers, each with a thread")
    parser.add_argument("--dtypes", nargs="+", default=["float64"])
    options = parser.parse_args()
    if not options.folder.is_dir():
        make(options.folder, 10_000_000)
    device = jax.devices()[0]
    print(f"{device.device_kind}, {os.cpu_count()} cores, jax {jax.__version__}", flush=True)
    table = hm.Table(options.folder, inputs=INPUTS, lanes=options.lanes)
    frame = pd.concat([pd.read_parquet(p) for p in table.files[:IN_MEMORY]], ignore_index=True)
    print("dtype     batch  memory: ms/step  rows/s     disk: ms/step  rows/s", flush=True)
    for dtype in options.dtypes:
        for size in BATCHES:
            memory = steps_per_second((frame[INPUTS], frame), size, dtype)
            disk = steps_per_second((table,), size, dtype)
            print(
                f"{dtype}  {size:>6,}  {1e3 / memory:>8.2f}  {size * memory:>13,.0f}"
                f"  {1e3 / disk:>13.2f}  {size * disk:>13,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
