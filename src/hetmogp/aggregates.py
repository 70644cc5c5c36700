"""Answers that span rows, from joint draws: totals over groups, differences, where a peak lies.

Draws are taken a chunk of rows at a time, and of each group only what its aggregate needs is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from .likelihoods import Likelihood
from .sampling import Ask

__all__ = ["Groups", "How", "aggregate", "difference", "draws_of_groups", "grouped", "peak"]

How = Literal["mean", "sum", "max", "min"] | Callable[[np.ndarray], np.ndarray]
MOST = 1e8  # draws times rows of a group, at most, for a user's function


class Groups(NamedTuple):
    """Which rows belong together.

    Attributes:
        labels: of the groups, in order.
        of_row: the position of each row's group.
        weights: of each row.
    """

    labels: pd.Index
    of_row: Int[np.ndarray, " N"]
    weights: Float[np.ndarray, " N"]

    @property
    def sizes(self) -> Int[np.ndarray, " G"]:
        """How many rows each has."""
        return np.bincount(self.of_row, minlength=len(self.labels))


def aggregate(
    ask: Ask,
    groups: Groups,
    how: How,
    level: float,
    above: float | Mapping[str, float] | None,
) -> pd.DataFrame:
    """A row per group; see `HetMOGP.aggregate`."""
    _check(level, X=len(ask.table))
    limits = _limits(ask.outputs, above)
    frame = pd.DataFrame({"rows": groups.sizes}, index=groups.labels)
    for name, values in draws_of_groups(ask, groups, how).items():
        for what, column in _described(values, level).items():
            frame[f"{name}_{what}"] = column
        if name in limits:
            frame[f"{name}_above"] = np.mean(values > limits[name], axis=0)
    return frame


def difference(ask: Ask, first: int, how: How, level: float) -> pd.DataFrame:
    """The first rows against the others; see `HetMOGP.difference`."""
    N = len(ask.table)
    _check(level, X_a=first, X_b=N - first)
    groups = Groups(pd.Index(["a", "b"]), (np.arange(N) >= first).astype(int), np.ones(N))
    rows = {}
    for name, values in draws_of_groups(ask, groups, how).items():
        gap = values[:, :1] - values[:, 1:]
        told = {what: column[0] for what, column in _described(gap, level).items()}
        more = np.mean(gap > 0) + 0.5 * np.mean(gap == 0)
        rows[name] = {**told, "positive": float(more)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("output")


def peak(ask: Ask, level: float, lowest: bool) -> pd.DataFrame:
    """Where each output is largest; see `HetMOGP.peak`."""
    _check(level, X=len(ask.table))
    sign = -1.0 if lowest else 1.0
    best = {name: np.full(ask.n, -np.inf) for name in ask.outputs}
    where = {name: np.zeros(ask.n, int) for name in ask.outputs}
    for name in ask.outputs:
        _refuse_unordered(name, ask.fitted.likelihoods[name])
    for rows, values in ask.chunks():
        for name, own in values.items():
            here = sign * _numbers(ask, name, own)
            at = np.argmax(here, axis=0)
            top = here[at, np.arange(ask.n)]
            better = top > best[name]
            best[name] = np.where(better, top, best[name])
            where[name] = np.where(better, rows[at], where[name])
    tables = {
        name: _located(ask, where[name], sign * best[name], level, "lowest" if lowest else "peak")
        for name in ask.outputs
    }
    return pd.concat(tables.values(), keys=tables).droplevel(1).rename_axis("output")


def _check(level: float, **rows: int) -> None:
    """Raise an error for a level that is none, and for tables without rows, before any draw."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
    for name, count in rows.items():
        if not count:
            raise ValueError(f"{name} has no rows")


def _located(
    ask: Ask, where: np.ndarray, value: np.ndarray, level: float, what: str
) -> pd.DataFrame:
    """One row: the inputs of the peak, and its height."""
    columns: dict[str, Any] = {}
    tails = [0.5 - level / 2, 0.5, 0.5 + level / 2]
    for j, column in enumerate(ask.fitted.columns):
        at = ask.table[where, j]
        if column.kind == "category":
            columns[column.name] = [np.bincount(at.astype(int)).argmax()]
        else:
            ends = np.quantile(at, tails, method="inverted_cdf")
            for name, end in zip(("_lower", "", "_upper"), ends, strict=True):
                columns[f"{column.name}{name}"] = [end]
    known = {column.name: column for column in ask.fitted.columns}
    shown = {
        name: (known.get(name) or known[name.rsplit("_", 1)[0]]).decode(np.asarray(values))
        for name, values in columns.items()
    }
    counts = np.bincount(where, minlength=len(ask.table))
    row = int(counts.argmax())
    label = row if ask.index is None else ask.index[row]
    heights = {f"{what}_{name}": end for name, end in _described(value[:, None], level).items()}
    return pd.DataFrame(
        {**shown, "row": [label], "row_probability": [counts[row] / ask.n], **heights}
    )


# -- groups ----------------------------------------------------------------------------------------


def grouped(X: Any, N: int, by: Any, weights: Any) -> Groups:
    """The groups that a user asks for.

    Args:
        X: the inputs as they were given.
        N: how many rows they have.
        by: the name of a column of X, a list of names, or a label for each row; None for one group.
        weights: the name of a column of X, or a number for each row; None for one each.
    """
    if by is None:
        labels, of_row = pd.Index(["all"]), np.zeros(N, int)
    else:
        of_row, labels = _factorized(X, N, by)
    return Groups(labels, of_row, _weights(X, N, weights))


def _factorized(X: Any, N: int, by: Any) -> tuple[np.ndarray, pd.Index]:
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, list | tuple) else []
    named = bool(names) and all(isinstance(name, str) for name in names)
    if named and len(names) == N and not isinstance(by, str):  # may be a label for each row
        named = isinstance(X, pd.DataFrame) and set(names) <= set(X.columns)
    if named:
        for name in names:
            _need_column(X, name, "by")
        if len(names) > 1:
            rows = pd.MultiIndex.from_frame(X[names])
            codes, found = pd.factorize(rows, sort=True)
            codes[X[names].isna().any(axis=1)] = -1
            return _no_gap(codes, "by"), pd.MultiIndex.from_tuples(list(found), names=names)
        codes, found = pd.factorize(X[names[0]], sort=True)
        return _no_gap(codes, "by"), pd.Index(found, name=names[0])
    values = pd.Series(by).reset_index(drop=True)
    if len(values) != N:
        raise ValueError(f"by has {len(values)} labels for {N} rows")
    codes, found = pd.factorize(values, sort=True)
    return _no_gap(codes, "by"), pd.Index(found, name=values.name or "group")


def _no_gap(codes: np.ndarray, what: str) -> np.ndarray:
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(f"{what} has no label at row {row}; every row needs a group")
    return codes


def _need_column(X: Any, name: str, what: str) -> None:
    if not isinstance(X, pd.DataFrame):
        raise ValueError(f"{what}={name!r} names a column, but X is no frame: give one per row")
    if name not in X.columns:
        there = ", ".join(map(str, X.columns))
        raise ValueError(f"{what}={name!r}: X has no such column; it has {there}")


def _weights(X: Any, N: int, weights: Any) -> np.ndarray:
    if weights is None:
        return np.ones(N)
    if isinstance(weights, str):
        _need_column(X, weights, "weights")
        weights = X[weights]
    values = np.asarray(weights, float)
    if values.shape != (N,):
        raise ValueError(f"weights have shape {values.shape} for {N} rows")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"weights, row {row}: {values[row]} is not a finite number >= 0")
    return values


# -- draws of groups -------------------------------------------------------------------------------


def draws_of_groups(ask: Ask, groups: Groups, how: How) -> dict[str, Float[np.ndarray, "n G"]]:
    """The aggregate of each group in each draw, by output."""
    if callable(how):
        return _by_function(ask, groups, how)
    if how not in ("mean", "sum", "max", "min"):
        raise ValueError(f'how must be "mean", "sum", "max", "min" or a function, not {how!r}')
    for name in ask.outputs:
        _refuse_unordered(name, ask.fitted.likelihoods[name])
    ends = how in ("max", "min")
    if ends and np.ptp(groups.weights) > 0:
        raise ValueError(f"weights have no meaning for how={how!r}")
    begin = {"max": -np.inf, "min": np.inf}.get(how, 0.0)
    G = len(groups.labels)
    totals = {name: np.full((ask.n, G), begin) for name in ask.outputs}
    fold = {"max": np.maximum, "min": np.minimum}.get(how, np.add)
    for rows, values in ask.chunks():
        order = np.argsort(groups.of_row[rows], kind="stable")
        codes = groups.of_row[rows][order]
        first = np.flatnonzero(np.diff(codes, prepend=-1))
        for name, own in values.items():
            numbers = _numbers(ask, name, own)[order]
            if not ends:
                numbers = numbers * groups.weights[rows][order, None]
            parts = fold.reduceat(numbers, first, axis=0)
            here = codes[first]
            totals[name][:, here] = fold(totals[name][:, here], parts.T)
    if how == "mean":
        total = np.bincount(groups.of_row, groups.weights, minlength=G)
        if not (total > 0).all():
            empty = groups.labels[int(np.flatnonzero(total <= 0)[0])]
            raise ValueError(f"the weights of group {empty!r} are all zero: it has no mean")
        totals = {name: values / total for name, values in totals.items()}
    return totals


def _by_function(ask: Ask, groups: Groups, how: Callable) -> dict[str, np.ndarray]:
    """The results of the user's function of the draws (n, rows) of each group."""
    if np.ptp(groups.weights) > 0:
        raise ValueError("weights have no meaning if how is a function, which can weight rows")
    largest = int(groups.sizes.max())
    if ask.n * largest > MOST:
        raise ValueError(
            f"group {groups.labels[int(groups.sizes.argmax())]!r} has {largest:,} rows: for a "
            f"function take at most {int(MOST // largest):,} draws (n_samples)"
        )
    results = {name: np.empty((ask.n, len(groups.labels))) for name in ask.outputs}
    for g in range(len(groups.labels)):
        parts = [values for _, values in ask.chunks(np.flatnonzero(groups.of_row == g))]
        for name in ask.outputs:
            whole = np.concatenate([values[name] for values in parts]).T
            mine = ask.fitted.likelihoods[name].decode(whole) if ask.observed else whole
            results[name][:, g] = _one_each(how(mine), ask.n, name)
    return results


def _one_each(values: Any, n: int, name: str) -> np.ndarray:
    result = np.asarray(values, float)
    if result.shape != (n,):
        raise ValueError(
            f"output {name!r}: the function of how= is handed draws of shape ({n}, rows) and must "
            f"return ({n},), one number a draw; it returned {result.shape}"
        )
    return result


def _numbers(ask: Ask, name: str, values: np.ndarray) -> np.ndarray:
    """Draws as numbers to calculate with: classes that are numbers stand for themselves."""
    likelihood = ask.fitted.likelihoods[name]
    labels = likelihood.labelled and ask.observed
    return np.asarray(likelihood.decode(values), float) if labels else values


def _refuse_unordered(name: str, likelihood: Likelihood) -> None:
    """Raise an error for an output whose values cannot be added or ordered."""
    if likelihood.outcome in ("nominal", "circular") or not likelihood.numeric:
        what = {"circular": "directions", "nominal": "classes"}.get(likelihood.outcome, "labels")
        raise ValueError(
            f"output {name!r} is {likelihood.kind}: {what} cannot be added or ordered as numbers; "
            "choose other outputs=, or give a function of the draws as how="
        )


def _limits(outputs: Sequence[str], above: float | Mapping[str, float] | None) -> dict[str, float]:
    if above is None:
        return {}
    if not isinstance(above, Mapping):
        return dict.fromkeys(outputs, float(above))
    for name in above:
        if name not in outputs:
            raise ValueError(f"above names {name!r}; the outputs are {', '.join(outputs)}")
    return {name: float(limit) for name, limit in above.items()}


def _described(values: Float[np.ndarray, "n G"], level: float) -> dict[str, np.ndarray]:
    """Mean, standard deviation and central interval of the draws of each group."""
    lower, upper = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return {"mean": values.mean(axis=0), "std": spread, "lower": lower, "upper": upper}
