"""How often 90% intervals of hyperparameters hold the truth: functions simulated from the model.

    python benchmarks/intervals.py --simulations 100

Two latents with different lengthscales, a Gaussian and a Poisson output that mix them.
"""

import argparse
import warnings

import numpy as np

import hetmogp as hm

LENGTHSCALES = (0.1, 0.3)
W = np.array([[1.0, 0.6], [0.5, -0.7]])
N = 150


def simulated(seed):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, 1.0, N))
    u = [
        np.linalg.cholesky(np.exp(-0.5 * ((t[:, None] - t) / ell) ** 2) + 1e-8 * np.eye(N))
        @ rng.standard_normal(N)
        for ell in LENGTHSCALES
    ]
    f = W @ np.stack(u)
    return t, {"a": f[0] + 0.3 * rng.standard_normal(N), "b": rng.poisson(np.exp(1.0 + f[1]))}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--prune", action="store_true", help="drop idle weights, as by default")
    chosen = parser.parse_args()
    B = W @ W.T
    rho = B[0, 1] / np.sqrt(B[0, 0] * B[1, 1])
    options = {"latents": 2, "inducing": 30, "learn_inducing": False, "progress": False}
    options["prune"] = chosen.prune
    scales, correlations = [], []
    for seed in range(chosen.simulations):
        t, Y = simulated(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = hm.HetMOGP({"a": hm.Gaussian(), "b": hm.Poisson()}, **options).fit(t, Y)
            table = model.intervals(t, Y).sort_values("value")
        summary = model.summary()
        if len(table) == len(LENGTHSCALES):
            scales += ((table["lower"] < LENGTHSCALES) & (table["upper"] > LENGTHSCALES)).tolist()
        if summary.correlation_lower is not None and summary.correlated:
            low, high = summary.correlation_lower.iat[0, 1], summary.correlation_upper.iat[0, 1]
            correlations.append(low < rho < high)
        print(
            f"simulations={seed + 1} lengthscales={np.mean(scales):.3f} of {len(scales)} "
            f"correlation={np.mean(correlations):.3f} of {len(correlations)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
