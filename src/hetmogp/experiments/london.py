"""House sales in London: flat or not (Bernoulli) and log price (HetGaussian), by place.

As in the paper, every sale has both outputs, so one can add little to the other. Therefore prices,
and then types, are also hidden in a third of the map's cells and predicted there. The register of
four years is the case with many rows.
"""

import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import plots
from ..likelihoods import Bernoulli, HetGaussian, StudentT
from ..model import HetMOGP, independent
from .compare import MODELS, Scores, Tests, collect, fit_and_score, markdown_table, save
from .data import find

__all__ = ["PAPER", "SETTINGS", "as_markdown", "register", "run"]

FILE, REGISTER = "london2017.csv", "london_ppd_2015_2018.parquet"
PAPER = {
    "whole sales left out": {
        "flat": ("6.38 ± 0.46", "6.75 ± 0.25"),
        "log_price": ("10.05 ± 0.64", "10.56 ± 1.03"),
        "global": ("16.44 ± 0.01", "17.31 ± 1.06"),
    }
}
PLACE = ["longitude", "latitude"]
SETTINGS: dict[str, Any] = {"latents": 6, "inducing": 100, "batch_size": 500, "method": "svi"}
LIKELIHOODS = {"flat": Bernoulli(), "log_price": HetGaussian()}
HIDDEN = ("", *LIKELIHOODS)  # whole sales only, or also one output in a third of the cells
PRICES = (HetGaussian(), StudentT())  # for the register
CELLS = 12  # along each side of the map
TEST = 1000


def load(path: Path) -> pd.DataFrame:
    """Places, whether a flat, and the standardised log price."""
    table = pd.read_csv(path)
    return table[PLACE].assign(
        flat=table["type"].astype(float), log_price=_standard(np.log(table["price"]))
    )


def _standard(values: pd.Series) -> pd.Series:
    return (values - values.mean()) / values.std(ddof=0)


def cells(places: pd.DataFrame) -> np.ndarray:
    """The cell of the map that each place is in."""
    unit = (places - places.min()) / (places.max() - places.min())
    across, up = np.minimum(unit.to_numpy() * CELLS, CELLS - 1).astype(int).T
    return CELLS * up + across


def divide(sales: pd.DataFrame, hidden: str, split: int) -> tuple[str, pd.DataFrame, Tests]:
    """A case's name, what to learn from, and what to score each output on.

    Args:
        sales: all sales.
        hidden: the output to hide in a third of the cells, or empty for whole sales left out.
        split: which of the splits.
    """
    if not hidden:
        train, test = _apart(sales, split)
        return "whole sales left out", train, {n: (test[PLACE], test[n]) for n in LIKELIHOODS}
    rng = np.random.default_rng(split)
    where = cells(sales[PLACE])
    there = rng.permutation(np.unique(where))
    away = np.isin(where, there[: len(there) // 3])
    train = sales.assign(**{hidden: sales[hidden].where(~away)})
    test = sales.iloc[rng.permutation(np.flatnonzero(away))[: 3 * TEST]]
    case = f"{hidden} hidden in a third of the cells"
    return case, train, {hidden: (test[PLACE], test[hidden])}


def _apart(table: pd.DataFrame, split: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table without some of its rows, and these rows."""
    rows = np.random.RandomState(split).permutation(len(table))
    return table.iloc[rows[TEST:]], table.iloc[rows[:TEST]]


def _twice(likelihoods: Any, **options: Any) -> HetMOGP:
    """Independent models with twice the inducing inputs: in all as many as the joint model."""
    return independent(likelihoods, **{**options, "inducing": 2 * options["inducing"]})


def one(path: Path, hidden: str, split: int) -> Scores:
    """All models on one split."""
    case, train, scored = divide(load(path), hidden, split)
    data = (train[PLACE], train[list(LIKELIHOODS)])
    models = {**MODELS, "alone, 2M": _twice}
    return fit_and_score(case, split, LIKELIHOODS, data, scored, models, **SETTINGS)[0]


def run(out: Path, splits: int = 5, data: Path | None = None, workers: int = 1) -> pd.DataFrame:
    """All cases on all splits; and the maps of both outputs."""
    path = find(FILE, data)
    tasks = [(path, hidden, split) for hidden in HIDDEN for split in range(splits)]
    scores = collect(one, tasks, workers, out / "london.csv")
    _, train, _ = divide(load(path), "", 0)
    model = HetMOGP(LIKELIHOODS, progress=False, **SETTINGS)
    save(drawn(model.fit(train[PLACE], train[list(LIKELIHOODS)]), train), out / "london.png")
    return scores


def drawn(model: HetMOGP, train: pd.DataFrame) -> Figure:
    """For both outputs: a tenth of the sales above, and predictions below."""
    some = train.sample(frac=0.1, random_state=0)
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    titles = {"flat": "flat or not", "log_price": "log price, standardised"}
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for (above, below), (name, title) in zip(axes.T, titles.items(), strict=True):
        low, high = (0, 1) if name == "flat" else np.quantile(some[name], [0.02, 0.98])
        places = (some[column] for column in PLACE)
        dots = above.scatter(*places, c=some[name], s=2, cmap="viridis", vmin=low, vmax=high)
        figure.colorbar(dots, ax=above)
        above.set(title=f"{title}: a tenth of the sales", ylabel="latitude")
        plots.surface(model, name, ax=below, grid=80)
        below.set_title("predicted")
    return figure


# -- the register of four years --------------------------------------------------------------------


def register(data: Path | None = None) -> pd.DataFrame:
    """One pass over each file by compiled steps: time and memory a row, and scores."""
    flats = load(find(FILE, data))
    four_years = pd.read_parquet(find(REGISTER, data))
    new_builds = four_years[PLACE].assign(
        new_build=four_years["new_build"].astype(float),
        log_price=_standard(np.log(four_years["price"])),
    )
    del four_years
    binary = {"2017": (flats, "flat"), "2015 to 2018": (new_builds, "new_build")}
    rows = []
    for name, (table, first) in binary.items():
        for price in PRICES:
            likelihoods = {first: Bernoulli(), "log_price": price}
            rows.append({"file": name, **_one_pass(likelihoods, *_apart(table, 0))})
    return pd.DataFrame(rows)


def _one_pass(
    likelihoods: Mapping[str, Any], train: pd.DataFrame, test: pd.DataFrame
) -> dict[str, Any]:
    X, Y = train[PLACE], train[list(likelihoods)]
    steps = -(-len(train) // SETTINGS["batch_size"])

    def fit() -> HetMOGP:
        return HetMOGP(likelihoods, max_iter=steps, progress=False, **SETTINGS).fit(X, Y)

    fit()  # to compile
    tracemalloc.start()
    fit()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    began = time.perf_counter()
    model = fit()
    seconds = time.perf_counter() - began
    scores = model.nlpd(test[PLACE], test[list(likelihoods)])
    return {
        "price": type(likelihoods["log_price"]).__name__,
        "rows": len(train),
        "steps": steps,
        "seconds": seconds,
        "µs a row": 1e6 * seconds / len(train),
        "table, MB": (X.to_numpy().nbytes + Y.to_numpy().nbytes) / 1e6,
        "most memory taken, MB": peak / 1e6,
        "NLPD, binary": scores[next(iter(likelihoods))],
        "NLPD, log price": scores["log_price"],
    }


def as_markdown(table: pd.DataFrame) -> str:
    """The passes, for a page."""

    def cell(value: Any) -> str:
        kind = ",.3g" if isinstance(value, float) else "," if isinstance(value, int) else ""
        return format(value, kind)

    return markdown_table(table.map(cell))
