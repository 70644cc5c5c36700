"""The missing gap over many draws: the joint model, the independent ones, and the truth.

With the paper's mixing weights the two functions share little, with the sharing ones much; see
`hetmogp.demo` for the problem.
"""

from pathlib import Path

import pandas as pd

from .. import demo
from .compare import Scores, collect, fit_and_score, save

__all__ = ["PAPER", "SETTINGS", "one", "run"]

WEIGHTS = {"the paper's weights": demo.PAPER, "sharing weights": demo.SHARING}
PAPER = {"the paper's weights": {"binary": ("32.5 ± 0.2", "40.51 ± 0.08")}}
SETTINGS = demo.SETTINGS


def one(case: str, seed: int) -> Scores:
    """Both models on one draw, and what the true function would score."""
    problem = demo.simulate(seed, WEIGHTS[case])
    rows, _ = fit_and_score(
        *(case, seed, demo.LIKELIHOODS),
        (problem.X, problem.Y),
        {"binary": (problem.x_test, problem.y_test)},
        **SETTINGS,
    )
    truth = {"case": case, "split": seed, "model": "truth", "output": "binary"}
    return [{**truth, "nlpd": problem.nlpd_of_truth}, *rows]


def run(out: Path, splits: int = 10, workers: int = 1) -> pd.DataFrame:
    """Both sets of weights over all draws; and the figure of each one's first draw."""
    tasks = [(case, seed) for case in WEIGHTS for seed in range(splits)]
    scores = collect(one, tasks, workers, out / "gap.csv")
    for weights, name in ((demo.PAPER, "paper"), (demo.SHARING, "sharing")):
        problem = demo.simulate(0, weights)
        save(demo.drawn(problem, *demo.fit_both(problem, progress=False)), out / f"gap_{name}.png")
    return scores
