"""Do intervals of slopes and intercepts hold the truth? Simulated tables of repeated measures.

Two tables of 400 rows with 40 patients, two linear inputs that are correlated, and a random
intercept in each output. "plain" has a count and a yes/no, and nothing else; "smooth" has a real
number and a count, and a time that acts through a sine. The shares of intervals of probability 0.9
that hold the true slopes and intercepts are printed, with the mean error of the slopes in their
standard deviations (a bias) and the slope of true on estimated intercepts (one if they are shrunk
as they should be).

    python benchmarks/slopes.py --tables 20
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd

import hetmogp as hm

ROWS, PATIENTS = 400, 40
SLOPES = {"dose": 0.25, "age": -0.03}
SIZE = 0.7  # of the intercepts
TABLES = {
    "plain": {"visits": hm.Poisson(), "ill": hm.Bernoulli()},
    "smooth": {"pressure": hm.Gaussian(), "visits": hm.Poisson()},
}


def simulated(kind: str, seed: int):
    """Inputs, outputs, and the true intercepts of each output."""
    rng = np.random.default_rng([seed, 7])
    dose = rng.uniform(0, 4, ROWS)
    X = pd.DataFrame({"dose": dose, "age": 40 + 4 * dose + rng.normal(0, 10, ROWS)})
    who = rng.integers(0, PATIENTS, ROWS)
    own = rng.normal(0, SIZE, (2, PATIENTS))
    line = SLOPES["dose"] * (X["dose"] - 2) + SLOPES["age"] * (X["age"] - 48) + 0.5
    if kind == "smooth":
        X["time"] = rng.uniform(0, 10, ROWS)
        line = line + 0.6 * np.sin(X["time"])
    f = line.to_numpy() + own[:, who]
    made = {
        "pressure": lambda f: f + 0.8 * rng.normal(size=ROWS),
        "visits": lambda f: rng.poisson(np.exp(f)),
        "ill": lambda f: (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-f))).astype(float),
    }
    Y = {name: made[name](f[d]) for d, name in enumerate(TABLES[kind])}
    labels = [f"p{k:02}" for k in range(PATIENTS)]
    X["patient"] = np.array(labels)[who]
    return X, Y, dict(zip(Y, own, strict=True)), labels


def one(kind: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The slopes and the intercepts of one fit, beside the truth."""
    X, Y, own, labels = simulated(kind, seed)
    model = hm.HetMOGP(TABLES[kind], linear=list(SLOPES), groups=["patient"], progress=False)
    model.fit(X, Y)
    slopes = model.effects_.assign(truth=lambda t: t["input"].map(SLOPES))
    true = pd.DataFrame(own, index=labels)
    intercepts = model.intercepts_
    intercepts["truth"] = [
        true.loc[level, output]
        for level, output in zip(intercepts["level"], intercepts["output"], strict=True)
    ]
    return slopes, intercepts


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--only", default="plain,smooth", help="kinds, separated by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| table | output | slopes held | bias of slopes | intercepts held | true on estimated |")
    print("|---|---|---|---|---|---|")
    for kind in options.only.split(","):
        began = time.process_time()
        found = [one(kind, seed) for seed in range(options.tables)]
        slopes, intercepts = (pd.concat(frames) for frames in zip(*found, strict=True))
        for frame in (slopes, intercepts):
            frame["held"] = frame["truth"].between(frame["lower"], frame["upper"])
            frame["error"] = (frame["mean"] - frame["truth"]) / frame["sd"]
        for output in TABLES[kind]:
            s, i = (frame[frame["output"] == output] for frame in (slopes, intercepts))
            bias = ", ".join(f"{n} {v:+.2f}" for n, v in s.groupby("input")["error"].mean().items())
            slope = np.polyfit(i["mean"], i["truth"], 1)[0]
            print(
                f"| {kind} | {output} | {s['held'].mean():.3f} of {len(s)} | {bias} | "
                f"{i['held'].mean():.3f} of {len(i)} | {slope:.2f} |",
                flush=True,
            )
        print(f"{kind}: {(time.process_time() - began) / len(found):.1f} CPU s a fit", flush=True)


if __name__ == "__main__":
    main()
