"""How long quantiles take, by likelihood: 500 rows of each, and a million of HetGaussian."""

import argparse
import time

import numpy as np
from families import COLUMNS, simulate

import hetmogp as hm

ROWS = 300
AT = np.linspace(0.0, 1.0, 500)


def seconds(kind: str, at: np.ndarray, repeats: int) -> float:
    """The median time of the 90% quantile at some inputs, its programs compiled before."""
    sample = simulate(COLUMNS[kind], ROWS, seed=0)
    outputs = {"y": COLUMNS[kind].likelihood}
    model = hm.HetMOGP(outputs, latents=2, inducing=15, max_iter=3, prune=False, progress=False)
    prediction = model.fit(sample.x, {"y": sample.y, **sample.beside}).predict(at)["y"]
    prediction.quantile(0.9)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        prediction.quantile(0.9)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def main(million: bool) -> None:
    for kind in COLUMNS:
        if kind != "Categorical":  # which has none
            print(f"{kind:30s} {1e3 * seconds(kind, AT, 5):8.1f} ms for 500 rows", flush=True)
    if million:
        many = np.random.default_rng(0).uniform(0.0, 1.0, 1_000_000)
        print(f"{'HetGaussian':30s} {seconds('HetGaussian', many, 3):8.1f} s for a million rows")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="a million rows of HetGaussian too")
    main(parser.parse_args().million)
