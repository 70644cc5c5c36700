"""The default fit on ordinary tables, beside models that share nothing and boosted trees.

The tables are not part of this repository. Name the folder that holds them, with a module `cases`
that cuts them and a module `run_cases` with the baselines, by `--tables` or `HETMOGP_TABLES`.

    python benchmarks/tables.py --tables FOLDER --cases mite_random,seattle_hidden --splits 0,1,2

Every case is fitted twice in one process. The second fit is what is timed: nothing is compiled
in it.
"""

import argparse
import csv
import os
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np

import hetmogp as hm

FIELDS = (
    *("case", "split", "joint", "alone", "trees", "coverage", "first_s", "second_s", "shared"),
    *("latents", "inducing", "bound", "converged"),
)


def timed(make, case):
    """A fitted model and the seconds it took."""
    began = time.perf_counter()
    model = make(case["likelihoods"], progress=False).fit(case["X_train"], case["Y_train"])
    return model, time.perf_counter() - began


def coverage(model, case, scored):
    """The share of held-out numbers within central 90% intervals."""
    inside = []
    for name in scored:
        if model.likelihoods_[name].outcome not in ("real", "count"):
            continue
        seen = case["Y_test"][name].notna().to_numpy()
        pred = model.predict(case["X_test"][seen].reset_index(drop=True), outputs=name)[name]
        lower, upper = pred.interval(0.9)
        y = case["Y_test"][name][seen].to_numpy(float)
        inside.append((y >= lower) & (y <= upper))
    return float(np.mean(np.concatenate(inside))) if inside else float("nan")


def measured(name, split, cases, baseline):
    """A row of results."""
    case = cases.CASES[name](split)
    scored = [o for o in case["likelihoods"] if case["Y_test"][o].notna().any()]

    def total(model):
        scores = model.nlpd(case["X_test"], case["Y_test"])
        return sum(scores[o] for o in scored)

    _, first = timed(hm.HetMOGP, case)
    model, second = timed(hm.HetMOGP, case)
    alone, _ = timed(hm.independent, case)
    trees = sum(baseline("gbm", case, scored)[0].values())
    return {
        **{"case": name, "split": split, "joint": total(model), "alone": total(alone)},
        **{"trees": trees, "coverage": coverage(model, case, scored)},
        **{"first_s": first, "second_s": second, "shared": bool(model.summary().shared)},
        **{"latents": model.weights_.shape[1], "inducing": len(model.inducing_inputs_[0])},
        **{"bound": model.elbo_, "converged": model.converged_},
    }


def _short(value):
    return f"{value:.3f}" if isinstance(value, float) else value


def main():
    """Measure, print and write a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", default=os.environ.get("HETMOGP_TABLES"))
    parser.add_argument("--cases", default="all")
    parser.add_argument("--splits", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path("tables.csv"))
    options = parser.parse_args()
    if options.tables is None:
        parser.error("name the folder of tables by --tables or HETMOGP_TABLES")
    sys.path.insert(0, options.tables)
    sys.dont_write_bytecode = True
    cases, baseline = import_module("cases"), import_module("run_cases").baseline

    names = list(cases.CASES) if options.cases == "all" else options.cases.split(",")
    warnings.simplefilter("ignore")
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for name in names:
            for split in map(int, options.splits.split(",")):
                row = measured(name, split, cases, baseline)
                writer.writerow(row)
                file.flush()
                print(", ".join(f"{k} {_short(v)}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
