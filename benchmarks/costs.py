"""What hurdles, limits and rounding cost in a fit, beside the likelihood that they are made from.

Each likelihood is fitted with defaults to 300 rows of one output. The fits that are compared take
turns in one process, `--times` after a first that also compiles; the median CPU time counts. Beside
it stand the number of evaluations of the bound with its gradient, and the CPU milliseconds of each.
A hurdle has one parameter function more than its part, so a likelihood of the part's kind with one
more function is measured too.

    python benchmarks/costs.py --only Poisson
"""

import argparse
import time
import warnings

import numpy as np

import hetmogp as hm
from hetmogp.fitting import vem

ROWS = 300
ZERO = 0.35  # the share of zeros, on average


def columns(seed: int = 0):
    """An input, and an output for each kind of likelihood."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, ROWS))
    f, g = np.sin(x), np.cos(0.7 * x)
    wet = rng.uniform(size=ROWS) < 1 / (1 + np.exp(-g - np.log(1 / ZERO - 1)))
    count = rng.poisson(np.exp(1.0 + 0.7 * f))
    positive = np.exp(0.3 + 0.7 * f + 0.5 * rng.normal(size=ROWS))
    gamma = rng.gamma(np.exp(0.8 + 0.4 * g), np.exp(0.5 * f))
    return x, {
        "real": f + 0.4 * rng.normal(size=ROWS),
        "het": f + 0.4 * np.exp(0.5 * g) * rng.normal(size=ROWS),
        "heavy": f + 0.3 * rng.standard_t(3, ROWS),
        "positive": positive,
        "gamma": gamma,
        "count": count.astype(float),
        "wet": wet.astype(float),
        "more": np.where(wet, positive, np.nan),
        "amount": np.where(wet, gamma, np.nan),
        "many": np.where(wet, np.maximum(count, 1), np.nan),
        "seen": (rng.uniform(size=ROWS) < 0.7).astype(float),
        "share": rng.beta(np.exp(1.0 + 0.5 * f), np.exp(1.2 - 0.3 * f)),
    }


def likelihoods(y):
    """The rows of the table: a parent, and what is made from it."""
    low = {name: float(np.nanquantile(values, 0.25)) for name, values in y.items()}
    return {
        "Gaussian": (
            {"real": hm.Gaussian()},
            {
                "lower": {"real": hm.Gaussian(lower=low["real"])},
                "step": {"real": hm.Gaussian(step=0.5)},
            },
        ),
        "HetGaussian": (
            {"het": hm.HetGaussian()},
            {"lower": {"het": hm.HetGaussian(lower=low["het"])}},
        ),
        "StudentT": (
            {"heavy": hm.StudentT()},
            {"lower": {"heavy": hm.StudentT(lower=low["heavy"])}},
        ),
        "LogNormal": (
            {"positive": hm.LogNormal()},
            {
                "lower": {"positive": hm.LogNormal(lower=low["positive"])},
                "step": {"positive": hm.LogNormal(step=0.5)},
                "hurdle": {"more": hm.Hurdle(hm.LogNormal())},
                "hurdle, zero constant": {"more": hm.Hurdle(hm.LogNormal(), latent=("mean",))},
                "one more function": {"positive": hm.LogNormal(latent=("mean", "scale"))},
            },
        ),
        "Gamma": (
            {"gamma": hm.Gamma()},
            {
                "lower": {"gamma": hm.Gamma(lower=low["gamma"])},
                "event": {"gamma": hm.Gamma(event="seen")},
                "step": {"gamma": hm.Gamma(step=0.5)},
                "hurdle": {"amount": hm.Hurdle(hm.Gamma())},
            },
        ),
        "Poisson": (
            {"count": hm.Poisson()},
            {
                "upper": {"count": hm.Poisson(upper=5)},
                "hurdle": {"many": hm.Hurdle(hm.Poisson())},
                "one more function": {"many": hm.ZeroInflatedPoisson()},
            },
        ),
        "NegativeBinomial": (
            {"count": hm.NegativeBinomial()},
            {
                "upper": {"count": hm.NegativeBinomial(upper=5)},
                "hurdle": {"many": hm.Hurdle(hm.NegativeBinomial())},
            },
        ),
        "Beta": ({"share": hm.Beta()}, {"lower": {"share": hm.Beta(lower=low["share"])}}),
    }


class Counter:
    """How often the bound and its gradient are evaluated in full-batch fits, and the CPU time."""

    def __init__(self):
        self.evaluations, self.seconds = 0, 0.0
        self._maximise = vem.maximise

    def __enter__(self):
        def counted(function, *rest):
            def evaluate(z):
                began = time.process_time()
                value, slope = function(z)
                found = np.asarray(value), np.asarray(slope)
                self.evaluations += 1
                self.seconds += time.process_time() - began
                return found

            return self._maximise(evaluate, *rest)

        vem.maximise = counted
        return self

    def __exit__(self, *error):
        vem.maximise = self._maximise


def measured(x, y, kinds):
    """CPU seconds of a fit, its evaluations and the milliseconds of each."""
    Y = {name: y[name] for name in kinds}
    for likelihood in kinds.values():
        if isinstance(likelihood, hm.Hurdle | hm.ZeroInflatedPoisson):
            Y = {name: np.nan_to_num(values) for name, values in Y.items()}
        Y |= {name: y[name] for name in likelihood.extra_columns}
    with Counter() as counter:
        began = time.process_time()
        hm.HetMOGP(kinds, progress=False).fit(x, Y)
        took = time.process_time() - began
    return took, counter.evaluations, 1000 * counter.seconds / counter.evaluations


def main():
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parents, separated by commas")
    parser.add_argument("--times", type=int, default=3, help="fits of each that count")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    x, y = columns()
    rows = likelihoods(y)
    chosen = options.only.split(",") if options.only else list(rows)
    print("| likelihood | | CPU s | times its parent | evaluations | ms each | times |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen:
        parent, made = rows[name]
        every = {"plain": parent, **made}
        turns = [
            {label: measured(x, y, kinds) for label, kinds in every.items()}
            for _ in range(1 + options.times)
        ][1:]
        found = {label: np.median([turn[label] for turn in turns], axis=0) for label in every}
        for label, (took, n, each) in found.items():
            times, by = took / found["plain"][0], each / found["plain"][2]
            numbers = f"{took:.2f} | {times:.1f} | {n:.0f} | {each:.1f} | {by:.1f}"
            print(f"| {name} | {label} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
