"""What hurdles, limits and rounding cost in a fit, beside the likelihood that they are made from.

Each likelihood is fitted with defaults to 300 rows of one output, three times in one process; the
first fit also compiles, and the least CPU time of the others counts. Beside it stand the number of
evaluations of the bound with its gradient, and the CPU milliseconds of each. A hurdle asks two
questions, so the two as outputs of their own, a Bernoulli and the part, are measured too.

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
    }


def likelihoods(y):
    """The rows of the table: a parent, and what is made from it."""
    low = {name: float(np.nanquantile(values, 0.25)) for name, values in y.items()}
    hurdle = {"wet": hm.Bernoulli()}
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
        "StudentT(df=4)": (
            {"heavy": hm.StudentT(df=4)},
            {"lower": {"heavy": hm.StudentT(lower=low["heavy"], df=4)}},
        ),
        "LogNormal": (
            {"positive": hm.LogNormal()},
            {
                "lower": {"positive": hm.LogNormal(lower=low["positive"])},
                "step": {"positive": hm.LogNormal(step=0.5)},
                "hurdle, zero constant": {"more": hm.Hurdle(hm.LogNormal(), latent=("mean",))},
                "hurdle": {"more": hm.Hurdle(hm.LogNormal())},
                "two outputs": {**hurdle, "more": hm.LogNormal()},
            },
        ),
        "Gamma": (
            {"gamma": hm.Gamma()},
            {
                "lower": {"gamma": hm.Gamma(lower=low["gamma"])},
                "event": {"gamma": hm.Gamma(event="seen")},
                "step": {"gamma": hm.Gamma(step=0.5)},
                "hurdle, zero constant": {
                    "amount": hm.Hurdle(hm.Gamma(), latent=("shape", "rate"))
                },
                "hurdle": {"amount": hm.Hurdle(hm.Gamma())},
                "two outputs": {**hurdle, "amount": hm.Gamma()},
            },
        ),
        "Poisson": (
            {"count": hm.Poisson()},
            {
                "upper": {"count": hm.Poisson(upper=5)},
                "hurdle, zero constant": {"many": hm.Hurdle(hm.Poisson(), latent=("rate",))},
                "hurdle": {"many": hm.Hurdle(hm.Poisson())},
                "two outputs": {**hurdle, "many": hm.Poisson()},
            },
        ),
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
    """CPU seconds of a fit that compiles nothing, its evaluations and milliseconds of each."""
    Y = {name: y[name] for name in kinds}
    for likelihood in kinds.values():
        if isinstance(likelihood, hm.Hurdle):
            Y = {name: np.nan_to_num(values) for name, values in Y.items()}
        Y |= {name: y[name] for name in likelihood.extra_columns}
    best = None
    for attempt in range(3):
        with Counter() as counter:
            began = time.process_time()
            hm.HetMOGP(kinds, progress=False).fit(x, Y)
            took = time.process_time() - began
        if attempt and (best is None or took < best[0]):
            best = took, counter.evaluations, 1000 * counter.seconds / counter.evaluations
    return best


def main():
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parents, separated by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    x, y = columns()
    rows = likelihoods(y)
    chosen = options.only.split(",") if options.only else list(rows)
    print("| likelihood | | CPU s | times its parent | evaluations | ms each |")
    print("|---|---|---|---|---|---|")
    for name in chosen:
        parent, made = rows[name]
        first, n, each = measured(x, y, parent)
        print(f"| {name} | plain | {first:.2f} | | {n} | {each:.1f} |", flush=True)
        for label, kinds in made.items():
            took, n, each = measured(x, y, kinds)
            print(
                f"| {name} | {label} | {took:.2f} | {took / first:.1f} | {n} | {each:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
