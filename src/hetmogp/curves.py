"""Curves of a fitted model along one input: lines, bands, observed values and gaps.

Plots and reports draw these in different ways; this file holds what they have in common.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from .fitting import inputs_of
from .inputs import read_inputs
from .likelihoods import Likelihood
from .model import HetMOGP
from .prediction import OutputPrediction
from .sampling import Ask, Kind
from .session import session
from .tables import Dataset, read

__all__ = [
    "Curve",
    "Line",
    "Seen",
    "bundle_of",
    "curve_of",
    "gaps",
    "likelihood_of",
    "line_through",
    "middle",
    "quantity",
    "range_of",
    "reach_of",
    "read_data",
    "seen_of",
    "shown_as",
    "turns",
]

POINTS = 300  # points of a curve
DRAWS = 1000  # draws of functions, for a band that has no closed form
LONG = 0.05  # share of the whole range; shorter gaps are not marked


class Curve(NamedTuple):
    """The curve of an output over one input."""

    centre: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    line: str  # what the centre line shows
    band: str
    steps: bool = False  # whether the band takes whole numbers only


class Seen(NamedTuple):
    """The observed values of one output.

    Attributes:
        inputs: the inputs at which they were observed.
        codes: the values as numbers; classes as positions.
        values: the values on the scale of a plot: rates, numeric labels or positions.
        larger: which values are only known to be at least this large.
        smaller: which values are only known to be at most this large.
    """

    inputs: np.ndarray  # (n, p)
    codes: np.ndarray  # (n,)
    values: np.ndarray  # (n,)
    larger: np.ndarray  # (n,)
    smaller: np.ndarray  # (n,)

    def at(self, rows: np.ndarray) -> Self:
        """The values at some rows."""
        return self._replace(**{name: part[rows] for name, part in self._asdict().items()})


class Line(NamedTuple):
    """A straight line through the space of inputs, along one of them."""

    j: int  # the position of the input along which the line runs
    table: np.ndarray  # (n, p), the inputs on the line


# -- the model and the data ------------------------------------------------------------------------


def likelihood_of(model: HetMOGP, output: str) -> Likelihood:
    """The likelihood of an output; an error if there is no such output."""
    check_is_fitted(model, "elbo_")
    if output not in model.likelihoods_:
        raise ValueError(f"no output {output!r}; there are {', '.join(model.output_names_)}")
    return model.likelihoods_[output]


def read_data(model: HetMOGP, X: Any, Y: Any) -> Dataset | None:
    """The data to draw; None if none are given."""
    if (X is None) != (Y is None):
        raise ValueError("X and Y belong together: give both, or neither")
    return None if X is None else read(model.likelihoods_, X, Y, model.columns_)


def range_of(model: HetMOGP, data: Dataset | None) -> np.ndarray:
    """The smallest and largest inputs, (2, p), of the given data or else of the training data."""
    if data is None:
        return model.input_range_
    rows = np.concatenate(data.inputs)
    return np.stack([rows.min(axis=0), rows.max(axis=0)])


def middle(model: HetMOGP, data: Dataset | None) -> np.ndarray:
    """The median of each input of the data; for labels the most frequent one that was fitted."""
    middle = np.empty(len(model.columns_))
    for j, column in enumerate(model.columns_):
        tables = _placed(model, j) if data is None else data.inputs
        values = np.concatenate([X[:, j] for X in tables])
        if column.kind == "category":
            K = len(column.levels)
            middle[j] = np.bincount(np.rint(values).astype(int), minlength=K)[:K].argmax()
        else:  # a value itself, as a mean of two may be no level of a group
            middle[j] = np.quantile(values, 0.5, method="inverted_cdf")
    return middle


def _placed(model: HetMOGP, j: int) -> list[np.ndarray]:
    """The inducing inputs of the latents that see input j; those of others hold a filler there."""
    p = len(model.columns_)
    pairs = list(zip(model.kernels_, model.inducing_inputs_, strict=False))  # local ones are last
    return [Z for kernel, Z in pairs if j in inputs_of(kernel, p)] or model.inducing_inputs_


def shown_as(model: HetMOGP, table: np.ndarray, j: int) -> np.ndarray:
    """Input j of a table of numbers as matplotlib takes it: dates as dates, labels as positions."""
    column = model.columns_[j]
    if column.kind == "time":
        return np.asarray(column.decode(table[:, j]), "datetime64[us]")
    return table[:, j]


def seen_of(data: Dataset, output: str) -> Seen:
    """The observed values of one output."""
    d = data.names.index(output)
    likelihood, seen = data.likelihoods[d], data.observed()[d]
    codes = values = data.values[d][seen]
    given = {argument: column[seen] for argument, column in data.given[d].items()}
    if likelihood.unit_column is not None:
        n = given[likelihood.unit]
        values = np.where(n > 0, codes / np.where(n > 0, n, 1.0), np.nan)
    elif likelihood.outcome == "ordered" and likelihood.numeric:
        values = likelihood.decode(codes).astype(float)
    exact, a, b = likelihood.at(given).known(codes, np)
    larger = ~exact & np.isfinite(a) & np.isinf(b)
    lowest = np.isinf(a) | (a == likelihood.ends[0])
    smaller = ~exact & lowest & (b <= codes)  # not what was rounded to the end of its range
    larger = np.broadcast_to(likelihood.censored(given), codes.shape) | larger
    return Seen(data.inputs[d][seen], codes, values, larger, smaller & ~larger)


def gaps(seen: np.ndarray, every: np.ndarray) -> list[tuple[float, float]]:
    """Ranges in which one output was not observed although others were.

    A gap is longer than 5% of the whole range and than four times the 90% quantile of the distances
    between neighbours. Values missing at random rarely leave such a gap.
    """
    if not len(every):
        return []
    seen = np.unique(seen)
    lowest, highest = every.min(), every.max()
    if len(seen) == 0:
        return [(lowest, highest)] if highest > lowest else []
    usual = np.quantile(np.diff(seen), 0.9) if len(seen) > 1 else 0.0
    marks = np.concatenate([[lowest], seen, [highest]])
    long = np.diff(marks) > max(4.0 * usual, LONG * (highest - lowest))
    return [(float(marks[k]), float(marks[k + 1])) for k in np.flatnonzero(long)]


def line_through(
    model: HetMOGP,
    what: str,
    x: Any = None,
    *,
    along: str | None = None,
    at: Mapping[str, Any] | None = None,
    data: Dataset | None = None,
    points: int = POINTS,
) -> Line:
    """The line along which to draw: one input varies and the others are held fixed.

    Args:
        model: a fitted model.
        what: the name of the caller, for error messages.
        x: values of the input, or whole rows; by default `points` values over the data's range.
        along: the name of the input; needed if several inputs are not labels.
        at: values of the other inputs; by default their medians, or the most frequent label.
        data: the data that give ranges and medians; by default the training data.
        points: the number of points, if x is not given.
    """
    columns = model.columns_
    names = [column.name for column in columns]
    there = f"the model has {len(names)} ({', '.join(names)})"
    free = [c.name for c in columns if c.kind != "category"]
    if along is None:
        if not free:
            raise ValueError(f"{what} draws over a number or a date; {names[0]!r} holds labels")
        if len(free) > 1:
            raise ValueError(
                f"{what} draws over one input; {there}: choose one, such as along={free[0]!r}"
            )
        along = free[0]
    for name in (along, *(at or {})):
        if name not in names:
            raise ValueError(f"no input {name!r}; {there}")
    j = names.index(along)
    if along not in free:
        raise ValueError(f"{what} draws over a number or a date; {along!r} holds labels")
    if np.ndim(x) == 2 and np.shape(x)[1] == len(names):
        if at:
            raise ValueError("x has whole rows, which hold all inputs already: leave at out")
        return Line(j, read_inputs(x, columns, "x")[0])
    row = middle(model, data)
    for name, value in (at or {}).items():
        k = names.index(name)
        row[k] = columns[k].encode(pd.Series([value]), "at")[0]
        if not np.isfinite(row[k]):
            raise ValueError(f"at has {value!r} for {name!r}; inputs cannot be missing")
    if x is None:
        lowest, highest = range_of(model, data)[:, j]
        values = np.linspace(lowest, highest, points)
    else:
        values = columns[j].encode(pd.Series(np.ravel(np.asarray(x))), "x")
    table = np.tile(row, (len(values), 1))
    table[:, j] = values
    return Line(j, table)


# -- an output -------------------------------------------------------------------------------------


def quantity(output: str, likelihood: Likelihood) -> str:
    """The label of the quantity that is drawn for an output."""
    if likelihood.outcome in ("yes/no", "nominal"):
        return f"P({output} = {'1' if likelihood.outcome == 'yes/no' else 'class'})"
    unit = likelihood.unit_column
    return output if unit is None else f"{output} / {unit}"


def curve_of(model: HetMOGP, prediction: OutputPrediction, level: float) -> Curve:
    """The line and the band of an output, as `posterior` describes them."""
    likelihood = prediction.likelihood
    percent = f"{100 * level:g}%"
    if likelihood.outcome == "yes/no" or likelihood.unit_column is not None:
        name = likelihood.mean_name
        with session(model.dtype):
            ends = _band_of_mean(prediction, level)
        return Curve(prediction.mean, *ends, name, f"{percent} band of the {name}")
    lower, upper = prediction.interval(level)
    band = f"{percent} interval"
    if not likelihood.numeric:
        median = prediction.quantile(0.5)
        lower, centre, upper = (likelihood.observe(part)[1] for part in (lower, median, upper))
        return Curve(centre, lower, upper, "median", band, True)
    centre, line = prediction.mean, "mean"
    if not np.isfinite(centre).all():
        centre, line = prediction.quantile(0.5), "median"
    return Curve(centre, lower, upper, line, band, likelihood.discrete)


def bundle_of(
    model: HetMOGP, output: str, table: np.ndarray, n: int, of: Kind = "expected"
) -> np.ndarray:
    """Draws of an output, or of its expected value, along a line, (n, N): a function each."""
    likelihood = likelihood_of(model, output)
    if likelihood.outcome in ("nominal", "circular"):
        raise ValueError(
            f"output {output!r} is {likelihood.kind}: its draws cannot be drawn as lines"
        )
    ask = Ask(model.fitted, table, {}, [output], n, 0, of)
    lines = np.empty((n, len(table)))
    for rows, values in ask.chunks():
        lines[:, rows] = values[output].T
    return lines


def turns(curve: Curve) -> list[Curve]:
    """A curve of directions without jumps, repeated a turn above and below where visible."""
    turn = 2.0 * np.pi
    moved = np.unwrap(curve.centre) - curve.centre
    centre, lower, upper = (part + moved for part in (curve.centre, curve.lower, curve.upper))
    first, last = np.ceil((-np.pi - upper.max()) / turn), np.floor((np.pi - lower.min()) / turn)
    return [
        curve._replace(centre=centre + k * turn, lower=lower + k * turn, upper=upper + k * turn)
        for k in np.arange(first, last + 1)
    ]


def reach_of(level: float) -> float:
    """The half-width, in standard deviations, of a central normal interval of this level."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
    return float(norm.ppf(0.5 + level / 2))


def _band_of_mean(prediction: OutputPrediction, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of E[y | f] under the posterior of f."""
    reach, (mean, factor) = reach_of(level), prediction._f()
    if mean.shape[1] == 1:  # the mean is monotone in f: its quantiles are those of f
        std = np.linalg.norm(factor, axis=2)
        f, levels = np.stack([mean - reach * std, mean + reach * std]), [0.0, 1.0]
    else:
        f, levels = _draws(mean, factor), [0.5 - level / 2, 0.5 + level / 2]
    values = np.asarray(jax.vmap(jax.vmap(prediction.likelihood.mean))(jnp.asarray(f)))
    lower, upper = np.quantile(values, levels, axis=0)
    return lower, upper


def _draws(mean: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Draws of parameter functions, (draws, N, J), with the same noise at all inputs.

    Each input has its correct posterior, and the drawn curves are smooth.
    """
    noise = np.random.default_rng(0).standard_normal((DRAWS, factor.shape[2]))
    return mean + np.einsum("njr,kr->knj", factor, noise)
