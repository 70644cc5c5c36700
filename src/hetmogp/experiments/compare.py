"""Joint and independent models on the same splits: scores, paired differences, tables.

Scores are negative log predictive densities, per-value means. The claim is about *differences* on
the same split, so these are what is averaged and what a spread is given of.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..files import beside
from ..model import HetMOGP, independent

__all__ = [
    "MODELS",
    "Paper",
    "Scores",
    "Tests",
    "around_marks",
    "collect",
    "fit_and_score",
    "markdown",
    "paired",
    "renew",
    "rows_of",
    "show",
]

MODELS: dict[str, Callable[..., HetMOGP]] = {"joint": HetMOGP, "independent": independent}
PLAIN: dict[str, Any] = {
    "box": SIMPLE_HEAD,
    "padding": (0, 1),
    "collapse_padding": True,
    "pad_edge": False,
}
WIDE = 120  # characters, in which the paper's numbers fit beside ours
Scores = list[dict[str, Any]]  # one row per output: case, split, model, output, nlpd and more
Tests = Mapping[str, tuple[Any, Any]]  # inputs and values, by output
Paper = Mapping[str, Mapping[str, tuple[str, str]]]  # joint and independent, by case and output


def fit_and_score(
    case: str,
    split: int,
    likelihoods: Mapping[str, Any],
    train: tuple[Any, Any],
    test: Tests,
    models: Mapping[str, Callable[..., HetMOGP]] = MODELS,
    **options: Any,
) -> tuple[Scores, dict[str, HetMOGP]]:
    """Fit the models to the same data and score each output on its own test data.

    Args:
        case: what is being tried.
        split: its number.
        likelihoods: by output.
        train: X and Y, as for `fit`.
        test: for each output to score, inputs and values.
        models: by name, each made from likelihoods and options; the joint and independent ones.
        **options: of the models.
    """
    rows, fitted = [], {}
    for name, make in models.items():
        began = time.perf_counter()
        model = fitted[name] = make(likelihoods, progress=False, **options).fit(*train)
        effort = {
            "bound": model.elbo_,
            "seconds": time.perf_counter() - began,
            "iterations": model.n_iter_,
            "converged": model.converged_,
        }
        found = {}
        for output, (X, y) in test.items():
            prediction = model.predict(X, [output])[output]
            found[output] = float(-np.mean(prediction.log_prob(y)))
        if len(test) > 1:
            found["global"] = sum(found.values())
        rows += [
            {"case": case, "split": split, "model": name, "output": output, "nlpd": nlpd, **effort}
            for output, nlpd in found.items()
        ]
    return rows, fitted


def collect(
    one: Callable[..., Scores], tasks: Sequence[tuple], workers: int, target: Path
) -> pd.DataFrame:
    """Run every task, some at a time, saying on standard error how far it is.

    The rows found so far are always in the CSV file `target`, whatever becomes of the rest.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    rows: Scores = []
    began = time.perf_counter()

    def done(found: Scores) -> None:
        rows.extend({**row, "workers": workers, "cores": os.cpu_count()} for row in found)
        with beside(target) as partial:
            pd.DataFrame(rows).to_csv(partial, index=False)
        finished = len({(row["case"], row["split"]) for row in rows})
        taken = time.perf_counter() - began
        print(f"\r{finished} of {len(tasks)} splits, {taken:.0f} s", end="", file=sys.stderr)

    try:
        if workers == 1:
            for task in tasks:
                done(one(*task))
        else:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                for found in pool.map(one, *zip(*tasks, strict=True)):
                    done(found)
    finally:
        print(file=sys.stderr)
    return pd.DataFrame(rows)


# -- tables ----------------------------------------------------------------------------------------


def paired(table: pd.DataFrame) -> pd.DataFrame:
    """Per case and output: means and spreads of all models, and of the differences by split."""
    wide = table.pivot_table("nlpd", ["case", "output", "split"], "model", sort=False)
    wide["difference"] = wide["joint"] - wide["independent"]
    groups = wide.groupby(level=["case", "output"], sort=False)
    found = pd.DataFrame({"splits": groups.size()})
    found["better"] = groups["difference"].agg(lambda difference: (difference < 0).sum())
    for name in map(str, wide):
        found[f"{name} mean"], found[f"{name} sd"] = groups[name].mean(), groups[name].std(ddof=1)
    return found


def _columns(part: pd.DataFrame, paper: Mapping[str, tuple[str, str]]) -> dict[str, list[str]]:
    """The cells of one case's table, by their heads."""

    def spread(name: str, sign: str = "") -> list[str]:
        return [
            f"{mean:{sign}.3f}" + ("" if np.isnan(sd) else f" ± {sd:.3f}")
            for mean, sd in zip(part[f"{name} mean"], part[f"{name} sd"], strict=True)
        ]

    compared = {"joint", "independent", "difference"}
    means = [str(name)[:-5] for name in part if str(name).endswith(" mean")]
    others = [name for name in means if name not in compared]
    cells = {
        "output": [str(output) for output in part.index],
        **{name: spread(name) for name in others if part[f"{name} mean"].notna().any()},
        "joint": spread("joint"),
        "independent": spread("independent"),
        "difference": spread("difference", "+"),
        "better": [
            f"{better:.0f} of {splits:.0f}"
            for better, splits in zip(part["better"], part["splits"], strict=True)
        ],
    }
    if paper:
        theirs = [paper.get(output, ("", "")) for output in cells["output"]]
        cells["paper: joint, ×10⁻²"] = [joint for joint, _ in theirs]
        cells["paper: independent, ×10⁻²"] = [alone for _, alone in theirs]
    return cells


def _effort(table: pd.DataFrame, case: str) -> str:
    fits = table[(table["case"] == case) & table["model"].isin(list(MODELS))]
    fits = fits.drop_duplicates(["split", "model"])
    seconds = fits.groupby("model")["seconds"].median()
    workers, cores = fits["workers"].iloc[0], fits["cores"].iloc[0]
    missed = int((~fits["converged"].astype(bool)).sum())
    return (
        f"Median seconds a fit: joint {seconds['joint']:.1f}, independent "
        f"{seconds['independent']:.1f} ({cores:.0f} cores, {workers:.0f} "
        f"{'process' if workers == 1 else 'processes'})"
        + (f"; {missed} of {len(fits)} fits ended before their convergence rule" if missed else "")
    )


def show(table: pd.DataFrame, paper: Paper, settings: str) -> None:
    """The tables, for a terminal."""
    console = Console()
    console.print(f"settings: {settings}", highlight=False, markup=False)
    for case, part in paired(table).groupby(level="case", sort=False):
        theirs = paper.get(str(case), {})
        wide = console.width >= WIDE
        console.print(f"\nNLPD per value: {case}", style="bold", highlight=False)
        shown = Table(**PLAIN)
        cells = _columns(part.droplevel("case"), theirs if wide else {})
        for k, head in enumerate(cells):
            shown.add_column(head, justify="right" if k else "left")
        for row in zip(*cells.values(), strict=True):
            shown.add_row(*row)
        console.print(shown)
        if theirs and not wide:
            told = (f"{name} {joint} and {alone}" for name, (joint, alone) in theirs.items())
            console.print(f"paper, joint and independent, ×10⁻²: {'; '.join(told)}")
        console.print(_effort(table, str(case)), highlight=False)


def markdown(table: pd.DataFrame, paper: Paper, settings: str) -> str:
    """The tables, for a page."""
    lines = [f"Settings: {settings}.", ""]
    for case, part in paired(table).groupby(level="case", sort=False):
        cells = _columns(part.droplevel("case"), paper.get(str(case), {}))
        lines += [f"**{case}**", "", *rows_of(cells, zip(*cells.values(), strict=True)), ""]
        lines += [f"{_effort(table, str(case))}.", ""]
    return "\n".join(lines)


def rows_of(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, line by line."""
    heads = list(heads)
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def around_marks(page: Path, name: str) -> tuple[str, str]:
    """A page up to its first mark for an experiment, and from the second one on."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, first, rest = page.read_text(encoding="utf-8").partition(begin)
    _, second, after = rest.partition(end)
    if not first or not second:
        raise ValueError(f"{page} has no marks {begin} and {end}")
    return before + begin, end + after


def renew(page: Path, name: str, text: str) -> None:
    """Put text between a page's marks for an experiment, in place of what is there."""
    before, after = around_marks(page, name)
    with beside(page) as partial:
        partial.write_text(f"{before}\n\n{text.strip()}\n\n{after}", encoding="utf-8")
