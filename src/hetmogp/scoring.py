"""How well a model predicts values: densities, coverage, errors, and where values fall."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .likelihoods import Likelihood
from .model import HetMOGP
from .prediction import Observed

__all__ = ["evaluate", "has_transforms", "pit", "reliability", "scores", "transforms"]

BINS = 10  # of a reliability curve


def evaluate(model: HetMOGP, X: Any, Y: Any, level: float = 0.9) -> pd.DataFrame:
    """A table of scores, one row per output and one for all ("global").

    Args:
        model: a fitted model.
        X: inputs, as for `fit`.
        Y: outputs, as for `fit`.
        level: of the intervals whose coverage is measured.

    Returns:
        values: how many were observed.
        nlpd: the mean negative log predictive density of a value; "global" is the sum.
        coverage: the share of values inside their central interval. For whole numbers it may well
            be more than `level`, as intervals end at whole numbers too.
        rmse: the root mean squared error of the predictive mean, for numbers.
        accuracy: the share of values that were the most probable, for classes and yes or no.

    A value that is only known to be beyond a limit counts in `nlpd`, with the probability of that,
    but not in coverage and error.
    """
    fitted = model.fitted
    return scores(model.output_names_, fitted.observe(fitted.read(X, Y)), level)


def scores(
    names: Sequence[str], observed: Mapping[str, Observed], level: float = 0.9
) -> pd.DataFrame:
    """The table of `evaluate`, from the predictions of some outputs at their observed values."""
    rows: dict[str, dict[str, float]] = {name: {"values": 0} for name in (*names, "global")}
    for name, one in observed.items():
        prediction, y = one.prediction, one.numbers
        likelihood = prediction.likelihood
        row = rows[name]
        row |= {"values": len(y), "nlpd": float(-np.mean(one.log_prob))}
        exact = one.exact
        if likelihood.levels:
            row["accuracy"] = float(np.mean(prediction.probabilities.argmax(axis=1) == y))
        elif exact.any():
            miss = likelihood.difference(y, prediction.mean)
            row["rmse"] = float(np.sqrt(np.mean(miss[exact] ** 2)))
            inside = likelihood.within(y, *prediction.interval(level))
            row["coverage"] = float(np.mean(inside[exact]))
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(
        columns=["values", "nlpd", "coverage", "rmse", "accuracy"]
    )
    table.loc["global", "nlpd"] = table["nlpd"][list(names)].sum(skipna=False)
    table.loc["global", "values"] = table["values"].sum()
    return table.astype({"values": int}).rename_axis("output")


def pit(observed: Mapping[str, Observed]) -> dict[str, np.ndarray]:
    """The `transforms` of every output that has any."""
    return {
        name: transforms(one)
        for name, one in observed.items()
        if has_transforms(one.prediction.likelihood)
    }


def has_transforms(likelihood: Likelihood) -> bool:
    """Whether `transforms` say anything: not for yes or no, or for classes without an order."""
    return likelihood.outcome not in ("nominal", "yes/no")


def transforms(observed: Observed) -> np.ndarray:
    """Where each value falls in its predictive distribution: uniform if predictions are right.

    This is the probability integral transform P(Y ≤ y). Where a value has a probability of its own,
    or was censored, it is spread at random (from a fixed seed) over the range that is possible. For
    a likelihood without a distribution function it is the rank among samples.
    """
    prediction, y = observed.prediction, observed.numbers
    likelihood = prediction.likelihood
    # Not a seed that the values themselves may have come from, and another for each output.
    seed = [1933, zlib.crc32(prediction.name.encode())]
    chance = np.random.default_rng(seed).uniform(size=len(y))
    if not likelihood.has_cdf:  # at random where samples tie
        draws = prediction.sample(200)
        below, same = (draws < y).sum(axis=0), (draws == y).sum(axis=0)
        u = (below + chance * (same + 1)) / (len(draws) + 1)
    else:
        u = observed.cdf
        # What has a probability of its own: a whole number, or an atom among real ones.
        heavy = np.full(len(u), True) if likelihood.discrete else np.isin(y, likelihood.atoms)
        if heavy.any():
            u = u - np.where(heavy, chance * np.exp(observed.log_prob), 0.0)
        if not observed.known.exact.all():
            low, high = observed.between
            u = np.where(observed.known.exact, u, low + chance * (high - low))
        u = np.clip(u, 0.0, 1.0)
    longer = (
        likelihood.censored(prediction.given) & observed.known.exact
    )  # others are spread already
    return np.where(longer, u + chance * (1.0 - u), u)


def reliability(observed: Observed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For groups of equal size: probability, observed share, and the reach of chance (95%)."""
    p = observed.prediction.probabilities
    hit = observed.numbers[:, None] == np.arange(p.shape[1])
    if observed.prediction.likelihood.outcome == "yes/no":
        p, hit = p[:, 1:], hit[:, 1:]  # the other class says the same
    groups = np.array_split(np.argsort(p, axis=None), max(1, min(BINS, p.size // 10)))
    p, hit = p.reshape(-1), hit.reshape(-1)
    rows = [
        (p[g].mean(), hit[g].mean(), 1.96 * np.sqrt(np.sum(p[g] * (1.0 - p[g]))) / len(g))
        for g in groups
    ]
    return tuple(np.array(rows).T)
