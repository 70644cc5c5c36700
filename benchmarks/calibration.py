"""Are predictions as sure as they should be? Every likelihood on data from a known smooth truth.

For each: 1,000 rows of the output and of a Gaussian one that shares its latents, a fit with
defaults, 2,000 fresh rows; 90% coverage by (randomised) probability integral transforms, and the
negative log predictive density beside the truth's own. Writes a table and a figure.

    python benchmarks/calibration.py --out docs --seeds 5
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
BINS = 20


def one_family(name: str, seeds: int, first: int, rows: int = 1000, fresh: int = 2000) -> dict:
    """Fit, predict and score one family; everything is a mean over the seeds."""
    from families import FAMILIES, censor, simulate

    import hetmogp as hm

    family = FAMILIES[name]
    timed = "event" in dict(family.likelihood.columns)
    found: list[dict] = []
    for seed in range(first, first + seeds):
        train, test = simulate(family, rows, seed), simulate(family, fresh, 1000 + seed)
        Y = {"y": train.y, "other": train.other, **train.beside}
        if "step" in dict(family.likelihood.limits):
            Y["y"] = np.round(train.y)
        if timed:
            Y["y"], Y["event"] = censor(train)
        began = time.perf_counter()
        model = hm.HetMOGP({"y": family.likelihood, "other": hm.Gaussian()}, progress=False)
        model.fit(train.x, Y)
        took = time.perf_counter() - began
        pred = model.predict(test.x, given=test.beside)["y"]
        log_density = _exact(pred).log_prob(test.y)
        result = {
            "nlpd": -log_density.mean(),
            "truth": -test.log_density.mean(),
            "seconds": took,
            "converged": model.converged_,
        }
        if name == "Categorical":
            p, hit = pred.probabilities, test.y[:, None] == np.arange(4)
            result["off"] = p.mean(axis=0) - hit.mean(axis=0)
            edges = np.linspace(0.0, 1.0, 11)
            cell = np.clip(np.digitize(p, edges) - 1, 0, 9)
            result["bins"] = [
                (p[cell == k].sum(), hit[cell == k].sum(), (cell == k).sum()) for k in range(10)
            ]
        else:
            result["pit"] = pit(pred, test.y, log_density, seed)
            result["covered"] = np.mean((result["pit"] > 0.05) & (result["pit"] < 0.95))
        found.append(result)

    summary: dict[str, Any] = {
        key: float(np.mean([one[key] for one in found])) for key in ("nlpd", "truth", "converged")
    }
    summary["name"], summary["excess"] = name, summary["nlpd"] - summary["truth"]
    summary["seconds"] = float(np.median([one["seconds"] for one in found]))
    if name == "Categorical":
        summary["off"] = float(np.abs(np.mean([one["off"] for one in found], axis=0)).max())
        summary["bins"] = np.sum([one["bins"] for one in found], axis=0)
    else:
        summary["covered"] = float(np.mean([one["covered"] for one in found]))
        pits = np.concatenate([one["pit"] for one in found])
        summary["histogram"] = np.histogram(pits, BINS, (0.0, 1.0), density=True)[0]
    return summary


def _exact(pred):
    """A prediction whose values are judged as they are, whatever limits the fit had."""
    import copy

    likelihood = pred.likelihood
    if not likelihood.limited:
        return pred
    made = type(likelihood).from_plain_options(
        **{n: v for n, v in likelihood.plain_options().items() if n not in likelihood.common}
    )
    exact = copy.copy(pred)
    exact.likelihood = eqx.tree_at(
        lambda of: of.free, made, likelihood.free, is_leaf=lambda leaf: isinstance(leaf, dict)
    )
    return exact


def pit(pred, y: np.ndarray, log_density: np.ndarray, seed: int) -> np.ndarray:
    """P(Y ≤ y), spread at random over the probability of y itself where it has one."""
    upto = pred.cdf(y)
    atom = np.exp(log_density)
    if not pred.likelihood.discrete:
        atom = np.where(np.isin(y, pred.likelihood.atoms), atom, 0.0)
    return upto - np.random.default_rng([seed, 2]).uniform(size=len(y)) * atom


def passes(one: dict) -> bool:
    """Whether a family meets the standard."""
    close = one["excess"] <= 0.03
    return close and (one["off"] <= 0.02 if "off" in one else 0.87 <= one["covered"] <= 0.93)


PAGE = """# Calibration

Are predictions as sure as they should be? For each likelihood, data come from a known smooth truth
(1,000 rows of the output and of a Gaussian one that shares its latents), the model is fitted with
its defaults and judged on 2,000 fresh rows; means over {seeds} seeds. Made by `make calibration`.

- **90% coverage** should lie between 0.87 and 0.93. It is the share of probability integral
  transforms between 0.05 and 0.95 (randomised where values have a probability of their own; from −π
  for angles).
- **NLPD** is the mean negative log predictive density; *truth* is that of the true distribution,
  and *excess*, what the fit loses against it, should be at most 0.03 nats.
- Lifetimes are fitted with 30% of the times right-censored and judged on full times. Poisson has an
  exposure, Binomial has 1 to 14 trials. "Limits" are fitted to values that stop there, "rounded" to
  whole numbers, and both are judged on full values.
- *Seconds* is the median time of a fit on the machine that made this table, several at once.

| likelihood | 90% coverage | NLPD | truth | excess | seconds | |
|---|---|---|---|---|---|---|
{rows}

\\* Categorical: the largest difference between a class's probability and its frequency, both over
all seeds and rows; it should be at most 0.02.

![A histogram of probability integral transforms for each likelihood, all near flat, and the
reliability curve of Categorical.](images/calibration.png)

*Histograms of the probability integral transforms: flat is calibrated. Last panel: how often
classes came out that were given each probability.*
"""


def table(results: list[dict], seeds: int) -> str:
    """The page."""
    rows = []
    for one in results:
        covered = f"{one['covered']:.3f}" if "covered" in one else f"off by {one['off']:.3f} \\*"
        rows.append(
            f"| {one['name']} | {covered} | {one['nlpd']:.3f} | {one['truth']:.3f} | "
            f"{one['excess']:+.3f} | {one['seconds']:.0f} | {'' if passes(one) else '**missed**'} |"
        )
    return PAGE.format(seeds=seeds, rows="\n".join(rows))


def draw(results: list[dict], path: Path) -> None:
    """A PIT histogram per likelihood and a reliability curve."""
    import matplotlib.pyplot as plt

    columns = 4
    rows = -(-len(results) // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(11, 1.7 * rows + 0.4), layout="constrained"
    )
    edges = np.linspace(0.0, 1.0, BINS + 1)
    histograms = [one for one in results if "histogram" in one]
    for axes, one in zip(panels.flat, histograms, strict=False):
        axes.stairs(one["histogram"], edges, fill=True, color="#5b8db8", alpha=0.8)
        axes.axhline(1.0, color="0.3", linewidth=0.8)
        axes.set_ylim(0, 1.6)
        axes.set_title(one["name"], fontsize=9)
        axes.tick_params(labelsize=7)
    spare = list(panels.flat)[len(histograms) :]
    for one in (one for one in results if "bins" in one):
        axes = spare.pop(0)
        predicted, happened, count = one["bins"].T
        seen = count > 30
        axes.plot([0, 1], [0, 1], color="0.3", linewidth=0.8)
        axes.plot(predicted[seen] / count[seen], happened[seen] / count[seen], "o-", markersize=3)
        axes.set_title(f"{one['name']}: reliability", fontsize=9)
        axes.set_xlabel("predicted probability", fontsize=8)
        axes.set_ylabel("frequency", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in spare:
        axes.remove()
    figure.supxlabel("probability integral transform", fontsize=9)
    figure.supylabel("density (1 = calibrated)", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    from families import FAMILIES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="likelihoods, separated by commas")
    parser.add_argument("--out", type=Path, default=None, help="a folder for the table and figure")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(FAMILIES)
    results = {}
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        jobs = [pool.submit(one_family, name, options.seeds, options.first) for name in names]
        for job in as_completed(jobs):
            one = job.result()
            results[one["name"]] = one
            about = f"{one['covered']:.3f}" if "covered" in one else f"off {one['off']:.3f}"
            print(
                f"{one['name']:<30} {about:>9}  nlpd {one['nlpd']:8.3f}  truth {one['truth']:8.3f}"
                f"  excess {one['excess']:+.3f}  {one['seconds']:5.1f} s"
                f"  converged {one['converged']:.0%}{'' if passes(one) else '  MISSED'}",
                flush=True,
            )
    ordered = [results[name] for name in names]
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        draw(ordered, options.out / "images" / "calibration.png")
        page = options.out / "calibration.md"
        beside = page.with_suffix(".md.part")
        beside.write_text(table(ordered, options.seeds))
        os.replace(beside, page)


if __name__ == "__main__":
    main()
