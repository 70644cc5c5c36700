"""Sex and age from 255 measurements of the heart: many inputs, few rows.

Sex (Bernoulli) and log(1 + age) (Gaussian) of 452 people, divided into training, validation and
test sets. Kernels have a lengthscale for each input (ARD) or one for all. A penalised logistic
regression and a ridge regression are fitted for comparison.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..kernels import RBF
from ..likelihoods import Bernoulli, Gaussian
from .compare import Scores, collect, fit_and_score, save
from .data import find

__all__ = ["PAPER", "SETTINGS", "fetch", "run"]

FILE = "arrhythmia_p255.npz"
LIKELIHOODS = {"sex": Bernoulli(), "log_age": Gaussian()}
SETTINGS: dict[str, Any] = {}
CASES: dict[str, dict[str, Any]] = {
    "one lengthscale": {"kernel": RBF(ard=False)},
    "ARD": {"kernel": RBF(ard=True)},
    "ARD, weight_scale=1": {"kernel": RBF(ard=True), "weight_scale": 1.0},
}
SHARES = (0.6, 0.2)  # for training and validation; the rest is the test set
PAPER: dict[str, Any] = {}  # the paper's one number could not be checked
CHOSEN = "case chosen on the validation set"
Outputs = dict[str, np.ndarray]


def load(path: Path) -> tuple[np.ndarray, Outputs]:
    """Inputs and both outputs."""
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(float), {
            "sex": file["sex"].astype(float),
            "log_age": np.log1p(file["age"].astype(float)),
        }


def fetch() -> tuple[np.ndarray, Outputs]:
    """The same from OpenML, through scikit-learn."""
    from sklearn.datasets import fetch_openml

    try:
        table = fetch_openml("arrhythmia", version=1, as_frame=True, parser="auto").frame
    except OSError as error:
        raise OSError(
            f"the arrhythmia data could not be fetched from OpenML ({error}); without a network "
            f"name a folder that has {FILE} with --data"
        ) from None
    return tidy(table)


def tidy(table: pd.DataFrame) -> tuple[np.ndarray, Outputs]:
    """OpenML's table without class, age, sex, constant columns and those with missing values."""
    numbers = table.apply(pd.to_numeric, errors="coerce")
    outputs = {
        "sex": numbers["sex"].to_numpy(float),
        "log_age": np.log1p(numbers["age"].to_numpy(float)),
    }
    X = numbers.drop(columns=["sex", "age", "class"]).dropna(axis=1)
    return X.loc[:, X.max() > X.min()].to_numpy(float), outputs


def divide(N: int, split: int) -> list[np.ndarray]:
    """Rows for training, validation and test."""
    rows = np.random.default_rng(split).permutation(N)
    return np.split(rows, np.cumsum([int(share * N) for share in SHARES]))


def one(X: np.ndarray, Y: Outputs, case: str, split: int) -> Scores:
    """Both models in a case, and the regressions, on one split."""
    train, validation, test = divide(len(X), split)
    rows, models = fit_and_score(
        case,
        split,
        LIKELIHOODS,
        (X[train], {name: y[train] for name, y in Y.items()}),
        {name: (X[test], y[test]) for name, y in Y.items()},
        **CASES[case],
        **SETTINGS,
    )
    for row in rows:
        values = models[row["model"]].nlpd(X[validation], {n: y[validation] for n, y in Y.items()})
        row["validation"] = values[row["output"]]
    return rows + [
        {"case": case, "split": split, "model": "regressions", "output": name, "nlpd": nlpd}
        for name, nlpd in regressions(X, Y, split).items()
    ]


def regressions(X: np.ndarray, Y: Outputs, split: int) -> dict[str, float]:
    """The NLPD of penalised regressions, fitted to the training and validation sets."""
    train, validation, test = divide(len(X), split)
    seen = np.concatenate([train, validation])
    logistic = LogisticRegressionCV(Cs=10, cv=5, max_iter=5000, scoring="neg_log_loss")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about attributes that are not used here
        sex = make_pipeline(StandardScaler(), logistic).fit(X[seen], Y["sex"][seen])
    hit = sex.predict_proba(X[test])[np.arange(len(test)), Y["sex"][test].astype(int)]
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.geomspace(1, 1e5, 21)))
    y = Y["log_age"]
    noise = np.std(y[seen] - cross_val_predict(ridge, X[seen], y[seen], cv=10))
    mean = ridge.fit(X[seen], y[seen]).predict(X[test])
    scores = {
        "sex": float(-np.mean(np.log(hit))),
        "log_age": float(-np.mean(norm(mean, noise).logpdf(y[test]))),
    }
    return {**scores, "global": sum(scores.values())}


def chosen(table: pd.DataFrame) -> pd.DataFrame:
    """A further case: for each split and model, the case with the best validation score."""
    whole = table[table["output"] == "global"].fillna({"validation": 0.0})
    best = whole.loc[whole.groupby(["split", "model"])["validation"].idxmin()]
    picked = table.merge(best[["case", "split", "model"]], on=["case", "split", "model"])
    return picked.assign(case=CHOSEN)


def run(
    out: Path,
    splits: int = 10,
    data: Path | None = None,
    workers: int = 1,
    from_openml: bool = False,
) -> pd.DataFrame:
    """All cases and the regressions on all splits; and a figure of the scores."""
    X, Y = fetch() if from_openml else load(find(FILE, data))
    tasks = [(X, Y, case, split) for case in CASES for split in range(splits)]
    scores = collect(one, tasks, workers, out / "arrhythmia.csv")
    whole = pd.concat([scores, chosen(scores)], ignore_index=True)
    save(drawn(whole), out / "arrhythmia.png")
    return whole


def drawn(table: pd.DataFrame) -> Figure:
    """A dot for each split, kernel and model."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    short = dict(zip(CASES, ("one ℓ", "ARD", "ARD+prior"), strict=True))
    columns = {
        f"{shown}\n{short[case]}": (case, model)
        for case in CASES
        for shown, model in (("joint", "joint"), ("alone", "independent"))
    }
    columns["penalised\nlinear"] = (next(iter(CASES)), "regressions")
    for ax, output in zip(figure.subplots(1, 2), LIKELIHOODS, strict=True):
        mine = table[table["output"] == output].set_index(["case", "model"])["nlpd"]
        for at, column in enumerate(columns.values()):
            values = np.atleast_1d(mine.loc[column])
            ax.plot(np.full(len(values), at), values, "o", color="C0", alpha=0.5, ms=5)
            ax.plot([at - 0.25, at + 0.25], [np.mean(values)] * 2, color="black", lw=2)
        ax.set_xticks(range(len(columns)), columns, fontsize=8)
        ax.set(title=output, ylabel="NLPD per value (lower is better)")
    figure.suptitle("Arrhythmia: a dot per split, lines are means", fontsize=11)
    return figure
