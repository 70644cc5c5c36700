"""The missing gap over many draws: the joint model, the independent ones, and the truth.

With the paper's mixing weights the two functions share little, with the sharing ones much; see
`hetmogp.demo` for the problem.
"""

from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from .. import demo

__all__ = ["compare", "run", "show", "summary"]

WEIGHTS = {"the paper's": demo.PAPER, "sharing": demo.SHARING}


def compare(weights: tuple, seeds: range) -> tuple[pd.DataFrame, demo.MissingGap, tuple]:
    """One row per seed; and the first draw with its two models, to draw."""
    rows, first = [], None
    for seed in seeds:
        problem = demo.simulate(seed, weights)
        joint, alone = models = demo.fit_both(problem)
        first = first or (problem, models)
        rows.append(
            {
                "seed": seed,
                "truth": problem.nlpd_of_truth,
                "joint": demo.nlpd_in_gap(joint, problem),
                "independent": demo.nlpd_in_gap(alone, problem),
                "joint bound": joint.elbo_,
                "independent bound": alone.elbo_,
                "joint s": joint.fit_seconds_,
                "independent s": alone.fit_seconds_,
            }
        )
    assert first is not None
    table = pd.DataFrame(rows).set_index("seed")
    table["difference"] = table["joint"] - table["independent"]
    return table, *first


def run(out: Path, seeds: int) -> dict[str, pd.DataFrame]:
    """Fit every draw, print a table for each set of weights, and write the paper's figure."""
    out.mkdir(parents=True, exist_ok=True)
    found = {}
    console = Console(stderr=True)
    for name, weights in WEIGHTS.items():
        table, problem, models = compare(weights, range(seeds))
        found[name] = table
        figure = out / f"gap_{'paper' if weights is demo.PAPER else 'sharing'}.png"
        demo.draw(problem, models[0], models[1], figure)
        console.print(f"figure: {figure}", highlight=False, soft_wrap=True)
    return found


def show(found: dict[str, pd.DataFrame]) -> None:
    """The tables, and the paired differences that the claim is about."""
    console = Console()
    for name, table in found.items():
        shown = Table(title=f"NLPD per value in the gap, {name} weights", title_justify="left")
        for column in ("seed", "truth", "joint", "independent", "joint − independent"):
            shown.add_column(column, justify="right")
        for seed, row in table.iterrows():
            numbers = (row[c] for c in ("truth", "joint", "independent", "difference"))
            shown.add_row(str(seed), *(f"{n:.3f}" for n in numbers))
        console.print(shown)
        console.print(summary(table), highlight=False)


def summary(table: pd.DataFrame) -> str:
    """One line: means, and on how many seeds the joint model was better."""
    mean, better = table.mean(), int((table["difference"] < 0).sum())
    spread = f" ± {table['difference'].std():.4f}" if len(table) > 1 else ""
    return (
        f"mean: truth {mean['truth']:.3f}, joint {mean['joint']:.3f}, independent "
        f"{mean['independent']:.3f}; joint − independent {mean['difference']:+.4f}{spread}, "
        f"better on {better} of {len(table)}; {mean['joint s']:.1f} and "
        f"{mean['independent s']:.1f} s a fit"
    )
