"""Repeated measures: what the patient as a group is worth, on visits of known patients.

The table `pbc2` has 1,945 visits of 312 patients and six outputs. It is not part of this
repository: name the folder that holds it by `--tables` or `HETMOGP_TABLES`. In each split 15% of
the visits are held out at random, all outputs at once, so that most of their patients have other
visits in the training rows. Every model has the inputs year, age and sex; the models with the
patient also have its label, which acts only as a random intercept (`groups=["patient"]`).

    python benchmarks/effects.py --tables FOLDER --splits 3
"""

import argparse
import os
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

import hetmogp as hm

SHARE = 0.15
INPUTS = ["year", "age", "sex"]


def visits(cases, split):
    """The likelihoods, and training and test tables, of one split."""
    data, table = cases.table("pbc2")
    likelihoods = data.likelihoods(hm)
    rng = np.random.default_rng([split, 20])
    held = np.zeros(len(table), bool)
    held[rng.permutation(len(table))[: round(SHARE * len(table))]] = True
    table = table.astype({"patient": object})
    train, test = table[~held].reset_index(drop=True), table[held].reset_index(drop=True)
    known = test["patient"].isin(set(train["patient"])).to_numpy()
    return likelihoods, train, test, known


def log_densities(model, inputs, test, outputs):
    """The log density of each held-out value, one column per output; NaN where it was not seen."""
    pred = model.predict(test[inputs])
    result = {}
    for name in outputs:
        seen = test[name].notna().to_numpy()
        result[name] = np.full(len(test), np.nan)
        result[name][seen] = pred[name].log_prob(test[name].tolist())[seen]
    return pd.DataFrame(result)


MODELS = {
    "without": (INPUTS, {}),
    "with": ([*INPUTS, "patient"], {"groups": ["patient"]}),
}


def measured(cases, split, label, folder):
    """The log densities of one model, kept in a folder so that a long run can be continued."""
    kept = folder / f"{label}_{split}.csv"
    if kept.exists():
        return pd.read_csv(kept)
    likelihoods, train, test, known = visits(cases, split)
    inputs, options = MODELS[label]
    began = time.process_time()
    model = hm.HetMOGP(likelihoods, progress=False, **options)
    model.fit(train[inputs], train[list(likelihoods)])
    found = log_densities(model, inputs, test, likelihoods)
    nlpd = -found.mean()
    print(
        f"split {split}, {label} the patient: NLPD {nlpd.sum():.3f} ("
        + ", ".join(f"{name} {value:.3f}" for name, value in nlpd.items())
        + f"), bound {model.elbo_:.1f}, {model.weights_.shape[1]} latents, "
        f"{time.process_time() - began:.0f} CPU s, converged {model.converged_}; {known.mean():.1%}"
        " of the visits are of patients in the training rows",
        flush=True,
    )
    found.to_csv(kept, index=False)
    return found


def report(gains):
    """The gain per value of each output and of their sum, with standard errors."""
    print(
        "\n| output | gain per value (standard error over splits) | of each split (over values) |"
    )
    print("|---|---|---|")
    rows = {name: [gain[name].dropna() for gain in gains] for name in gains[0]}
    for name, each in rows.items():
        _line(name, [one.mean() for one in each], [one.std() / np.sqrt(len(one)) for one in each])
    _line("all", [gain.mean().sum() for gain in gains], [_error(gain) for gain in gains])


def _error(gain):
    """The standard error of the sum of means over outputs; the values of a visit count as one."""
    of_visit = ((gain - gain.mean()) / gain.notna().sum()).sum(axis=1)
    return np.sqrt(len(gain) / (len(gain) - 1) * (of_visit**2).sum())


def _line(name, means, errors):
    over = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else float("nan")
    each = ", ".join(f"{m:+.3f} ({e:.3f})" for m, e in zip(means, errors, strict=True))
    print(f"| {name} | {np.mean(means):+.3f} ({over:.3f}) | {each} |")


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", default=os.environ.get("HETMOGP_TABLES"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--models", default="without,with", help="separated by commas")
    parser.add_argument("--folder", type=Path, default=Path("build/effects"))
    options = parser.parse_args()
    if options.tables is None:
        parser.error("name the folder of tables by --tables or HETMOGP_TABLES")
    sys.path.insert(0, options.tables)
    sys.dont_write_bytecode = True
    cases = import_module("cases")
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    labels, splits = options.models.split(","), range(options.splits)
    found = {o: [measured(cases, s, o, options.folder) for s in splits] for o in labels}
    if len(found) == len(MODELS):
        report([b - a for a, b in zip(found["without"], found["with"], strict=True)])


if __name__ == "__main__":
    main()
