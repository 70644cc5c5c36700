"""London house sales: flat or not (Bernoulli) and log price (HetGaussian), joint and independent.

    python benchmarks/london.py --splits 5

Reads `london2017.csv` from the folder named by HETMOGP_DATA, or from ../shared/data. Default
settings: only Q = 3, M = 100 and batches of 500 are said, which are the defaults anyway.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

import hetmogp as hm


def load() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    folder = Path(os.environ.get("HETMOGP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "london2017.csv"
    if not path.exists():
        sys.exit(
            f"{path} is not there. It is an extract of HM Land Registry's Price Paid Data (open "
            "government licence) with columns latitude, longitude, price, contract, new, type; "
            "name its folder in HETMOGP_DATA."
        )
    table = pd.read_csv(path)
    log_price = np.log(table["price"].to_numpy())
    outputs = {
        "flat": table["type"].to_numpy(float),
        "log_price": (log_price - log_price.mean()) / log_price.std(),
    }
    return table[["longitude", "latitude"]].to_numpy(), outputs


def main(splits: int) -> None:
    X, Y = load()
    likelihoods = {"flat": hm.Bernoulli(), "log_price": hm.HetGaussian()}
    settings = {"latents": 3, "inducing": 100, "batch_size": 500, "progress": False}
    print(f"split {'model':<12} {'flat':>7} {'price':>7} {'global':>7} {'steps':>6} {'s':>6}")
    results: dict[str, list[float]] = {"joint": [], "independent": []}
    for split in range(splits):
        order = np.random.RandomState(split).permutation(len(X))
        test, train = order[:1000], order[1000:]
        for name, make in (("joint", hm.HetMOGP), ("independent", hm.independent)):
            began = time.perf_counter()
            model = make(likelihoods, **settings)
            model.fit(X[train], {output: y[train] for output, y in Y.items()})
            seconds = time.perf_counter() - began
            nlpd = model.nlpd(X[test], {output: y[test] for output, y in Y.items()})
            results[name].append(nlpd["global"])
            print(
                f"{split:>5} {name:<12} {nlpd['flat']:>7.3f} {nlpd['log_price']:>7.3f} "
                f"{nlpd['global']:>7.3f} {model.n_iter_:>6} {seconds:>6.1f}"
                f"{'' if model.converged_ else '  (not converged)'}",
                flush=True,
            )
    for name, scores in results.items():
        print(f"mean  {name:<12} global {np.mean(scores):.4f}")
    difference = np.subtract(results["joint"], results["independent"])
    print(f"joint − independent: {difference.mean():+.4f}, per split {difference.round(4)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=5)
    main(parser.parse_args().splits)
