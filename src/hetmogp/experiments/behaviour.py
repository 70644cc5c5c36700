"""A person's week: at home or not, how far they moved, phone in use or not.

The paper's data are private, so a week of three people of the ExtraSensory data is used instead.
At home (Bernoulli), the log diameter of a minute's locations (HetGaussian) and the phone in hand or
in use (Bernoulli), over a week mapped to [0, 1], from 750 minutes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import plots
from ..kernels import RBF, Periodic
from ..likelihoods import Bernoulli, HetGaussian
from ..model import HetMOGP
from .compare import Scores, collect, fit_and_score, save
from .data import find

__all__ = ["PAPER", "SETTINGS", "run"]

FILE = "extrasensory_3users.parquet"
LIKELIHOODS = {"home": Bernoulli(), "movement": HetGaussian(), "phone": Bernoulli()}
SETTINGS: dict[str, Any] = {
    "latents": 6,
    "inducing": 100,
    "learn_inducing": False,
    "weight_scale": 1.0,
    "method": "vem",
    "tol": 1e-4,
}
PEOPLE = 3
DAY = 1 / 7
TRAIN, TEST = 750, 1000
BLOCKS, HOURS = 2, 6  # hours of each output that are hidden while the others are seen
WIDTH = HOURS / (7 * 24)
KERNELS = {"RBF": None, "RBF + daily": RBF() + Periodic(period=DAY)}


def week(table: pd.DataFrame, user: str) -> pd.DataFrame:
    """One person's first seven days, their time mapped to [0, 1]."""
    mine = table[(table["user"] == user) & (table["t_days"] < 7)]
    in_hand, calling = mine["phone_in_hand"], mine["on_the_phone"]
    phone = np.where((in_hand == 1) | (calling == 1), 1.0, in_hand)  # NaN if not reported
    return pd.DataFrame(
        {
            "t": mine["t_days"] / 7,
            "home": mine["at_home"],
            "movement": mine["loc_log_diameter"],
            "phone": phone,
        }
    ).reset_index(drop=True)


def at_random(minutes: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, dict]:
    """750 minutes to learn from and 1,000 others to predict."""
    rows = rng.permutation(len(minutes))
    train, test = minutes.iloc[rows[:TRAIN]], minutes.iloc[rows[TRAIN : TRAIN + TEST]]
    return train, {name: test[["t", name]].dropna() for name in LIKELIHOODS}


def in_blocks(minutes: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, dict]:
    """750 minutes to learn from; each output is hidden twice for six hours, one at a time."""
    train = minutes.iloc[rng.permutation(len(minutes))[:TRAIN]].copy()
    taken: list[float] = []
    test: dict[str, pd.DataFrame] = {}
    for name in LIKELIHOODS:
        hidden = np.zeros(len(minutes), bool)
        for _ in range(BLOCKS):
            begin, seen = _some_hours(minutes, name, taken, rng)
            taken.append(begin)
            hidden |= seen
            train.loc[train["t"].between(begin, begin + WIDTH), name] = np.nan
        rows = rng.permutation(np.flatnonzero(hidden))[:TEST]
        test[name] = minutes.iloc[rows][["t", name]]
    return train, test


def _some_hours(
    minutes: pd.DataFrame, name: str, taken: list[float], rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """The start and the rows of some hours in which an output was seen and none is hidden."""
    times = minutes["t"].to_numpy()
    for _ in range(1000):
        begin = float(rng.choice(times)) - WIDTH / 2
        seen = (minutes["t"].between(begin, begin + WIDTH) & minutes[name].notna()).to_numpy()
        if seen.sum() >= 60 and all(abs(begin - other) >= WIDTH for other in taken):
            return begin, seen
    raise ValueError(f"no {HOURS} hours are left in which {name!r} was seen, to hide them")


WAYS = {"minutes at random": at_random, "hours hidden": in_blocks}
CASES = [("minutes at random", "RBF"), ("hours hidden", "RBF"), ("hours hidden", "RBF + daily")]
PAPER = {  # for the paper's own, private data
    f"person {person + 1}, minutes at random": {
        "home": ("2.24 ± 0.21", "2.43 ± 0.30"),
        "movement": ("6.09 ± 0.21", "7.29 ± 0.12"),
        "phone": ("5.41 ± 0.05", "5.19 ± 0.81"),
        "global": ("13.74 ± 0.41", "14.91 ± 1.05"),
    }
    for person in range(PEOPLE)
}


def divide(path: Path, person: int, way: str, split: int) -> tuple[pd.DataFrame, dict]:
    """What to learn from, and each output's minutes to predict."""
    table = pd.read_parquet(path)
    user = sorted(table["user"].unique())[person]
    rng = np.random.default_rng([person, list(WAYS).index(way), split])
    return WAYS[way](week(table, user), rng)


def one(path: Path, person: int, way: str, kernel: str, split: int) -> Scores:
    """Both models on one split of one person's week."""
    train, test = divide(path, person, way, split)
    return fit_and_score(
        f"person {person + 1}, {way}{'' if kernel == 'RBF' else ', day-periodic kernel'}",
        split,
        LIKELIHOODS,
        (train[["t"]], train[list(LIKELIHOODS)]),
        {name: (part[["t"]], part[name]) for name, part in test.items()},
        kernel=KERNELS[kernel],
        **SETTINGS,
    )[0]


def run(out: Path, splits: int = 5, data: Path | None = None, workers: int = 1) -> pd.DataFrame:
    """All people, ways of missing and kernels; and the last person's week with a daily cycle."""
    path = find(FILE, data)
    tasks = [
        (path, person, way, kernel, split)
        for way, kernel in CASES
        for person in range(PEOPLE)
        for split in range(splits)
    ]
    scores = collect(one, tasks, workers, out / "behaviour.csv")
    train, test = divide(path, PEOPLE - 1, "hours hidden", 0)
    model = HetMOGP(LIKELIHOODS, kernel=KERNELS["RBF + daily"], progress=False, **SETTINGS)
    model.fit(train[["t"]], train[list(LIKELIHOODS)])
    save(drawn(model, train, test), out / "behaviour.png")
    return scores


def drawn(model: HetMOGP, train: pd.DataFrame, test: dict) -> Figure:
    """The three outputs over the week, with the hours that were hidden."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    for ax, name in zip(axes, LIKELIHOODS, strict=True):
        for begin, end in hidden_hours(test[name]["t"]):
            plots.shade(begin, end, ax=ax)
        plots.observations(train["t"], train[name], ax=ax)
        plots.posterior(model, name, model.grid(600), legend=False, ax=ax)
        for day in range(8):
            ax.axvline(day * DAY, color="black", lw=0.4, alpha=0.4)
        ax.set_xlabel("")
    axes[-1].set(xlabel="time of the week (lines are days)", xlim=(0, 1))
    axes[0].set_title("One week: mean and 90% band of the joint model; shaded hours were hidden")
    return figure


def hidden_hours(times: pd.Series) -> list[tuple[float, float]]:
    """The ends of runs of times that are separated by at least half a hidden block."""
    t = np.sort(times.to_numpy())
    cuts = np.flatnonzero(np.diff(t) > WIDTH / 2) + 1
    return [(float(part[0]), float(part[-1])) for part in np.split(t, cuts)]
