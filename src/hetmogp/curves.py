"""What is drawn of a fitted model along one of its inputs: lines, bands, observed values and gaps.

Pictures and reports draw the same things in different ways; here is what they have in common.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from .inputs import read_inputs, restored
from .likelihoods import Bernoulli, Binomial, Categorical, Classes, Likelihood, Ordinal
from .model import HetMOGP
from .session import session
from .tables import Dataset, observe, read

__all__ = [
    "Curve",
    "Line",
    "Seen",
    "class_labels",
    "curve_of",
    "drawn_values",
    "gaps",
    "held_at",
    "likelihood_of",
    "line_through",
    "middle",
    "numbered",
    "per_unit",
    "position_of",
    "quantity",
    "range_of",
    "reach_of",
    "read_data",
    "seen_of",
    "shown_as",
    "turns",
]

POINTS = 300  # of a curve
DRAWS = 1000  # of functions, for a band that has no closed form
LONG = 0.05  # of the whole range: what is not observed for less is not worth a mark


class Curve(NamedTuple):
    """What is drawn of an output over one input."""

    centre: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    line: str  # what the centre is
    band: str
    steps: bool = False  # whether the band goes in whole numbers


class Seen(NamedTuple):
    """The observed values of one output."""

    inputs: np.ndarray  # (n, p)
    values: np.ndarray  # (n,)
    given: dict[str, np.ndarray]


class Line(NamedTuple):
    """A straight line through the inputs, along one of them."""

    j: int  # the input it goes along
    table: np.ndarray  # (n, p), the inputs on it


# -- the model and the data ------------------------------------------------------------------------


def likelihood_of(model: HetMOGP, output: str) -> Likelihood:
    """The likelihood of an output that must be there."""
    check_is_fitted(model, "elbo_")
    if output not in model.likelihoods_:
        raise ValueError(f"no output {output!r}; there are {', '.join(model.output_names_)}")
    return model.likelihoods_[output]


def read_data(model: HetMOGP, X: Any, Y: Any) -> Dataset | None:
    """The data to draw, if any is given."""
    if (X is None) != (Y is None):
        raise ValueError("X and Y belong together: give both, or neither")
    return None if X is None else read(model.likelihoods_, X, Y, model.columns_)


def range_of(model: HetMOGP, data: Dataset | None) -> np.ndarray:
    """The smallest and largest inputs of the data given, or else of those fitted, (2, p)."""
    if data is None:
        return model.input_range_
    rows = np.concatenate(data.inputs)
    return np.stack([rows.min(axis=0), rows.max(axis=0)])


def middle(model: HetMOGP, rows: np.ndarray) -> np.ndarray:
    """The median of each input; of labels, the most frequent."""
    middle = np.median(rows, axis=0)
    for j, column in enumerate(model.columns_):
        if column.kind == "category":
            middle[j] = np.bincount(np.rint(rows[:, j]).astype(int)).argmax()
    return middle


def held_at(model: HetMOGP, row: np.ndarray, pair: Sequence[int]) -> str:
    """The inputs that a map does not go over, and their values."""
    values = restored(row, model.columns_).iloc[0]
    return ", ".join(
        f"{c.name} = {values[c.name]:.4g}" if c.kind == "number" else f"{c.name} = {values[c.name]}"
        for j, c in enumerate(model.columns_)
        if j not in pair
    )


def shown_as(model: HetMOGP, table: np.ndarray, j: int) -> np.ndarray:
    """Input j of a table of numbers as matplotlib takes it: dates as such, labels as positions."""
    column = model.columns_[j]
    if column.kind == "time":
        return np.asarray(column.decode(table[:, j]), "datetime64[us]")
    return table[:, j]


def seen_of(data: Dataset, output: str) -> Seen:
    """What was observed of one output."""
    d = data.names.index(output)
    seen = data.observed()[d]
    given = {argument: column[seen] for argument, column in data.given[d].items()}
    return Seen(data.inputs[d][seen], data.values[d][seen], given)


def gaps(seen: np.ndarray, every: np.ndarray) -> list[tuple[float, float]]:
    """Stretches where an output was not observed, though the data go on.

    A gap is longer than 5% of the whole range, and than four times what nine tenths of the
    distances between neighbours keep below: values at random rarely leave such a one.
    """
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
    """Where to draw: along one input, the others held.

    Args:
        model: a fitted model.
        what: who asks, for complaints.
        x: values of that input, or whole rows; by default `points` over the range of the data.
        along: the input, by name; needed where more than one is not a label.
        at: values of the other inputs; by default their medians, or the most frequent label.
        data: what ranges and medians are of; by default what was fitted.
        points: how many, where x is not given.
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
        return Line(j, read_inputs(x, columns, "x")[0])
    row = middle(model, np.concatenate(model.inducing_inputs_ if data is None else data.inputs))
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


def per_unit(likelihood: Likelihood) -> tuple[str, str] | None:
    """The argument and the column of an exposure or a number of trials, where there is one."""
    columns = dict(likelihood.columns)
    return next(((a, columns[a]) for a in ("exposure", "trials") if a in columns), None)


def class_labels(likelihood: Likelihood) -> tuple[Any, ...]:
    """The classes of an output that has them."""
    return (likelihood.classes or ()) if isinstance(likelihood, Classes) else ()


def numbered(likelihood: Likelihood) -> bool:
    """Whether the classes are numbers."""
    return all(isinstance(label, Real) for label in class_labels(likelihood))


def position_of(output: str, likelihood: Likelihood, labels: Any) -> Any:
    """Classes as their positions."""
    one = np.ndim(labels) == 0
    found = observe(output, likelihood, [labels] if one else list(labels))[1]
    return found[0] if one else found


def quantity(output: str, likelihood: Likelihood) -> str:
    """What is drawn of an output, in words."""
    if isinstance(likelihood, Bernoulli):
        return f"P({output} = 1)"
    if isinstance(likelihood, Categorical):
        return f"P({output} = class)"
    per = per_unit(likelihood)
    return output if per is None else f"{output} / {per[1]}"


def drawn_values(likelihood: Likelihood, here: Seen, label: Any = None) -> np.ndarray:
    """Observed values on the scale of the picture: rates, labels that are numbers, positions.

    With a label, one where it was observed and zero elsewhere.
    """
    if label is not None:
        return (likelihood.decode(here.values) == label).astype(float)
    per = per_unit(likelihood)
    if per is not None:
        n = here.given[per[0]]
        return np.where(n > 0, here.values / np.where(n > 0, n, 1.0), np.nan)
    if isinstance(likelihood, Ordinal) and numbered(likelihood):
        return likelihood.decode(here.values).astype(float)
    return here.values


def curve_of(model: HetMOGP, output: str, asked: Any, level: float) -> Curve:
    """The line and the band of an output, as `posterior` describes them."""
    prediction = model.predict(asked, [output])[output]
    likelihood = prediction.likelihood
    percent = f"{100 * level:g}%"
    if isinstance(likelihood, Bernoulli) or per_unit(likelihood) is not None:
        line = "probability" if isinstance(likelihood, Bernoulli | Binomial) else "rate"
        ends = _band_of_mean(model, output, asked, level)
        return Curve(prediction.mean, *ends, line, f"{percent} band of the {line}")
    lower, upper = prediction.interval(level)
    band = f"{percent} interval"
    if isinstance(likelihood, Ordinal) and not numbered(likelihood):
        lower, centre, upper = (
            position_of(output, likelihood, labels)
            for labels in (lower, prediction.quantile(0.5), upper)
        )
        return Curve(centre, lower, upper, "median", band, True)
    centre, line = prediction.mean, "mean"
    if not np.isfinite(centre).all():
        centre, line = prediction.quantile(0.5), "median"
    return Curve(centre, lower, upper, line, band, likelihood.discrete)


def turns(curve: Curve) -> list[Curve]:
    """A curve of directions unbroken, and again a turn above and below where it shows."""
    turn = 2.0 * np.pi
    moved = np.unwrap(curve.centre) - curve.centre
    centre, lower, upper = (part + moved for part in (curve.centre, curve.lower, curve.upper))
    first, last = np.ceil((-np.pi - upper.max()) / turn), np.floor((np.pi - lower.min()) / turn)
    return [
        curve._replace(centre=centre + k * turn, lower=lower + k * turn, upper=upper + k * turn)
        for k in np.arange(first, last + 1)
    ]


def reach_of(level: float) -> float:
    """How many standard deviations each way hold a normal variable with this probability."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
    return float(norm.ppf(0.5 + level / 2))


def _band_of_mean(
    model: HetMOGP, output: str, asked: Any, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """The central interval of E[y | f] under the posterior of f."""
    reach, likelihood = reach_of(level), model.likelihoods_[output]
    of = [model.parameter_names_.index(f"{output}.{name}") for name in likelihood.latent]
    single = len(of) == 1
    if single:  # the mean is monotone in f: its quantiles are those of f
        mean, cov = model.parameter_functions(asked)
        std = np.sqrt(cov[:, of, of])
        f = np.stack([mean[:, of] - reach * std, mean[:, of] + reach * std])
    else:
        f = _draws(model, of, asked)
    with session(model.dtype):
        values = np.asarray(jax.vmap(jax.vmap(likelihood.mean))(jnp.asarray(f)))
    levels = [0.0, 1.0] if single else [0.5 - level / 2, 0.5 + level / 2]
    lower, upper = np.quantile(values, levels, axis=0)
    return lower, upper


def _draws(model: HetMOGP, of: Sequence[int], asked: Any) -> np.ndarray:
    """Draws of some parameter functions, (draws, N, functions): the same noise at all inputs.

    Each input has its own posterior then, and what is drawn of it is smooth.
    """
    mean, variance = model.latent_functions(asked)
    noise = np.random.default_rng(0).standard_normal((DRAWS, 1, mean.shape[1]))
    u = mean + np.sqrt(variance) * noise
    return model.constants_[list(of)] + u @ model.weights_[list(of)].T
