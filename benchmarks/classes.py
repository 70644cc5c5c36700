"""Categorical outputs of many classes: time of a fit, and predictions beside the truth.

python benchmarks/classes.py --classes 10 50
"""

import argparse
import time

import numpy as np

import hetmogp as hm


def simulate(
    K: int, n: int, rng: np.random.Generator, W: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, classes and their true probabilities."""
    x = np.sort(rng.uniform(0.0, 1.0, n))
    u = np.stack([np.sin(6.0 * x), np.cos(9.0 * x + 1.0), np.ones(n)], axis=1)
    f = u @ W.T
    p = np.exp(f - f.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return x, np.array([rng.choice(K, p=row) for row in p]), p


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    for K in options.classes:
        rng = np.random.default_rng(K)
        W = rng.normal(size=(K, 3)) * [2.0, 2.0, 0.5]
        x, y, _ = simulate(K, options.rows, rng, W)
        z = np.sin(6.0 * x) + 0.3 * rng.standard_normal(len(x))
        fresh, classes, p = simulate(K, 2000, rng, W)
        began = time.perf_counter()
        model = hm.HetMOGP(
            {"class": hm.Categorical(classes=range(K)), "z": hm.Gaussian()}, progress=False
        ).fit(x, {"class": y, "z": z})
        took = time.perf_counter() - began
        pred = model.predict(fresh)["class"]
        truth = -np.log(p[np.arange(len(classes)), classes]).mean()
        print(
            f"K = {K:>3}: {took:6.1f} s, {model.n_iter_} rounds, converged {model.converged_}; "
            f"NLPD {-pred.log_prob(classes).mean():.3f}, truth {truth:.3f}; mean error of a "
            f"probability {np.abs(pred.probabilities - p).mean():.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
