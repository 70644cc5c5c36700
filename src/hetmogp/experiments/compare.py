"""Joint and independent models on the same splits: scores, paired differences, tables.

Scores are mean negative log predictive densities per value. The claim is about *differences* on the
same split, so means and spreads are those of the differences.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..files import temporary_file
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
    "markdown_table",
    "paired",
    "renew",
    "save",
]

MODELS: dict[str, Callable[..., HetMOGP]] = {"joint": HetMOGP, "independent": independent}
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
        case: the name of the case.
        split: the number of the split.
        likelihoods: by output.
        train: X and Y, as for `fit`.
        test: for each output to score, inputs and values.
        models: by name, what makes each from likelihoods and options; joint and independent ones.
        **options: the options of the models.
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
        scores = {
            output: float(-np.mean(model.predict(X, [output])[output].log_prob(y)))
            for output, (X, y) in test.items()
        }
        if len(test) > 1:
            scores["global"] = sum(scores.values())
        rows += [
            {"case": case, "split": split, "model": name, "output": output, "nlpd": nlpd, **effort}
            for output, nlpd in scores.items()
        ]
    return rows, fitted


def collect(
    one: Callable[..., Scores], tasks: Sequence[tuple], workers: int, target: Path
) -> pd.DataFrame:
    """Run every task, several at a time, and report progress on standard error.

    The CSV file `target` always has the rows that are finished.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    rows: Scores = []
    began = time.perf_counter()

    def done(scores: Scores) -> None:
        rows.extend({**row, "workers": workers, "cores": os.cpu_count()} for row in scores)
        with temporary_file(target) as partial:
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
                for scores in pool.map(one, *zip(*tasks, strict=True)):
                    done(scores)
    finally:
        print(file=sys.stderr)
    return pd.DataFrame(rows)


def save(figure: Figure, target: Path) -> None:
    """Write a figure completely or not at all."""
    with temporary_file(target) as partial:
        figure.savefig(partial, dpi=120)


# -- tables ----------------------------------------------------------------------------------------


def paired(table: pd.DataFrame) -> pd.DataFrame:
    """For each case and output: means and spreads of all models and of their differences."""
    wide = table.pivot_table("nlpd", ["case", "output", "split"], "model", sort=False)
    wide["difference"] = wide["joint"] - wide["independent"]
    groups = wide.groupby(level=["case", "output"], sort=False)
    result = pd.DataFrame({"splits": groups.size()})
    result["better"] = groups["difference"].agg(lambda difference: (difference < 0).sum())
    for name in map(str, wide):
        result[f"{name} mean"], result[f"{name} sd"] = groups[name].mean(), groups[name].std(ddof=1)
    return result


def _sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """For each case: its name, its scores in words, and the time of its fits."""
    for case, part in paired(table).groupby(level="case", sort=False):
        part = part.droplevel("case")
        means = [str(name).removesuffix(" mean") for name in part if str(name).endswith(" mean")]
        compared = ["joint", "independent", "difference"]
        others = [n for n in means if n not in compared and part[f"{n} mean"].notna().any()]
        cells = pd.DataFrame({"output": list(part.index)})
        for name in others + compared:
            sign = "+" if name == "difference" else ""
            cells[name] = [
                f"{mean:{sign}.3f}" + ("" if np.isnan(sd) else f" ± {sd:.3f}")
                for mean, sd in zip(part[f"{name} mean"], part[f"{name} sd"], strict=True)
            ]
        counts = zip(part["better"], part["splits"], strict=True)
        cells["better"] = [f"{better:.0f} of {splits:.0f}" for better, splits in counts]
        yield str(case), cells, _effort(table[table["case"] == case])


def _effort(table: pd.DataFrame) -> str:
    fits = table[table["model"].isin(list(MODELS))].drop_duplicates(["split", "model"])
    seconds = fits.groupby("model")["seconds"].median()
    workers, cores = fits["workers"].iloc[0], fits["cores"].iloc[0]
    missed = int((~fits["converged"].astype(bool)).sum())
    return (
        f"Median seconds a fit: joint {seconds['joint']:.1f}, independent "
        f"{seconds['independent']:.1f} ({cores:.0f} cores, {workers:.0f} "
        f"{'process' if workers == 1 else 'processes'})"
        + (f"; {missed} of {len(fits)} fits ended before their convergence rule" if missed else "")
    )


def markdown(table: pd.DataFrame, paper: Paper, settings: str) -> str:
    """The tables in Markdown, with the paper's numbers in columns of their own."""
    lines = [f"Settings: `{settings}`." if settings else "Settings: the defaults.", ""]
    for case, cells, effort in _sections(table):
        if case in paper:
            theirs = [paper[case].get(output, ("", "")) for output in cells["output"]]
            cells[[f"paper: {model}, ×10⁻²" for model in MODELS]] = theirs
        lines += [f"**{case}**", "", markdown_table(cells), "", f"{effort}.", ""]
    return "\n".join(lines)


def markdown_table(cells: pd.DataFrame) -> str:
    """A table of text in Markdown, its columns aligned."""
    columns = [[str(head), "---", *cells[head]] for head in cells]
    aligned = [[text.ljust(max(map(len, column))) for text in column] for column in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in zip(*aligned, strict=True))


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
    with temporary_file(page) as partial:
        partial.write_text(f"{before}\n\n{text.strip()}\n\n{after}", encoding="utf-8")
