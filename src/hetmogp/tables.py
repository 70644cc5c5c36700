"""Reading outputs: arrays, lists, dicts and frames, checked before any computation.

Every error names the output, the column and the row (counted from 0), what was found and what would
be right. Nothing is silently broadcast, dropped or clipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

from . import likelihoods as families
from .columns import Column, is_missing
from .inputs import input_of, refuse_duplicates, split_inputs
from .likelihoods import Likelihood
from .likelihoods.limits import Argument, one_sided
from .likelihoods.reading import InvalidValueError, numbers_in

__all__ = [
    "Dataset",
    "argument_values",
    "name_outputs",
    "names_from",
    "observe",
    "read",
    "same_index",
    "split",
    "split_outputs",
]

RESERVED = "global"
FEW_CLASSES = 10  # so many may be rare without a warning
WEIGHT = Argument("a number >= 0", lambda w: w >= 0)


@dataclass(frozen=True)
class Dataset:
    """Every output's likelihood, inputs and values; NaN marks what was not observed.

    Attributes:
        names: the outputs, in the user's order.
        likelihoods: one per output, completed from the data (a Categorical has its classes).
        inputs: one (N_d, p) array per output; outputs that share their inputs share the array.
        values: one (N_d,) array per output.
        given: the arguments of each output's observations, by name, (N_d,) each.
        weights: one (N_d,) array per output: how many times each observation counts.
        columns: the p inputs.
    """

    names: list[str]
    likelihoods: list[Likelihood]
    inputs: list[np.ndarray]
    values: list[np.ndarray]
    given: list[dict[str, np.ndarray]]
    weights: list[np.ndarray]
    columns: list[Column]

    def observed(self) -> list[np.ndarray]:
        """Which values of each output were observed."""
        return [~np.isnan(y) for y in self.values]

    def doubts(self) -> Iterator[tuple[str, str]]:
        """The outputs with too little data to learn from, and why."""
        for name, likelihood, y, given, seen in zip(
            *(self.names, self.likelihoods, self.values, self.given, self.observed()), strict=True
        ):
            own = {argument: column[seen] for argument, column in given.items()}
            observed = likelihood.at(own)
            doubt = observed.doubt(y[seen]) or one_sided(observed, y[seen])
            if doubt is None and not given and not observed.limited:
                doubt = _too_alike_or_different(observed, y[seen])
            if doubt is not None:
                yield name, doubt

    def sampled(self, rows: int, seed: int) -> "Dataset":
        """A random sample of `rows` rows of each table; every output keeps some observed values."""
        generator = np.random.default_rng(seed)
        taken: dict[int, np.ndarray] = {}
        for X in self.inputs:
            if id(X) not in taken:
                n = min(rows, len(X))
                taken[id(X)] = np.sort(generator.choice(len(X), n, replace=False))
        for X, seen in zip(self.inputs, self.observed(), strict=True):
            if not seen[taken[id(X)]].any():
                some = np.flatnonzero(seen)[:rows]
                taken[id(X)] = np.unique(np.concatenate([taken[id(X)], some]))
        every = [taken[id(X)] for X in self.inputs]
        inputs = {id(X): X[taken[id(X)]] for X in self.inputs}
        return replace(
            self,
            inputs=[inputs[id(X)] for X in self.inputs],
            values=[y[at] for y, at in zip(self.values, every, strict=True)],
            given=[
                {name: column[at] for name, column in given.items()}
                for given, at in zip(self.given, every, strict=True)
            ],
            weights=[weight[at] for weight, at in zip(self.weights, every, strict=True)],
        )

    @property
    def labels(self) -> list[int]:
        """The positions of the inputs that are labels."""
        return [j for j, column in enumerate(self.columns) if column.kind == "category"]


def _too_alike_or_different(likelihood: Likelihood, y: np.ndarray) -> str | None:
    """A warning, in words, if all values are the same, or most classes have a value or two."""
    if len(likelihood.levels) > max(FEW_CLASSES, len(y) / 3):
        return (
            f"it has {len(likelihood.levels)} classes for {len(y)} values, so most are too rare to "
            "learn anything about; if it is text rather than classes, leave it out"
        )
    if (y != y[0]).any():
        return None
    value = likelihood.levels[int(y[0])] if likelihood.levels else f"{y[0]:g}"
    return f"it has one value only, {value}: there is nothing to learn"


def name_outputs(likelihoods: Any, Y: Any = None) -> dict[str, Likelihood]:
    """Likelihoods by name: a dict's keys, else the columns or keys of Y, else y0, y1 and so on."""
    if isinstance(likelihoods, Likelihood):
        likelihoods = [likelihoods]
    if isinstance(likelihoods, Mapping):
        named = {str(name): likelihood for name, likelihood in likelihoods.items()}
    elif isinstance(likelihoods, type) and issubclass(likelihoods, Likelihood):
        raise TypeError(f"write [{likelihoods.__name__}()], with parentheses")
    elif isinstance(likelihoods, Sequence) and not isinstance(likelihoods, str):
        named = dict(zip(names_from(Y, likelihoods), likelihoods, strict=True))
    else:
        raise TypeError(
            "likelihoods must be a list such as [Bernoulli(), Poisson()] or a dict from output "
            f"names to likelihoods, not {likelihoods!r}"
        )
    if not named:
        raise ValueError("likelihoods is empty: name at least one output")
    for name, likelihood in named.items():
        if isinstance(likelihood, type) and issubclass(likelihood, Likelihood):
            raise TypeError(f"output {name!r}: write {likelihood.__name__}(), with parentheses")
        if not isinstance(likelihood, Likelihood):
            advice = _meant(likelihood)
            raise TypeError(f"output {name!r}: {likelihood!r} is not a likelihood{advice}")
        if name == RESERVED:
            raise ValueError(f"an output cannot be called {RESERVED!r}: nlpd uses that name")
    return named


def _meant(word: Any) -> str:
    """Advice on what a word in the place of a likelihood may stand for."""
    if not isinstance(word, str):
        return ""
    known = {"auto": '"auto"'}
    for name, one in vars(families).items():
        if isinstance(one, type) and issubclass(one, Likelihood) and one is not Likelihood:
            known[name.lower()] = f"hm.{name}()"
    near = get_close_matches(word.lower().strip("()"), known, 1)
    return f"; write {known[near[0]]}" if near else '; write hm.Gaussian(), say, or "auto"'


def names_from(Y: Any, likelihoods: Sequence[Any]) -> list[str]:
    """The names of the outputs that a list of likelihoods is for."""
    D = len(likelihoods)
    if isinstance(Y, pd.DataFrame | Mapping):
        extra = {c for one in likelihoods if isinstance(one, Likelihood) for c in one.extra_columns}
        keys = [str(key) for key in Y if str(key) not in extra]
        if len(keys) != D:
            raise ValueError(
                f"Y has {len(keys)} columns ({', '.join(keys)}) for {D} likelihoods; give a dict "
                "such as {'column': Bernoulli()} to choose among them"
            )
        return keys
    if isinstance(Y, pd.Series) and D == 1 and Y.name is not None:
        return [str(Y.name)]
    return [f"y{d}" for d in range(D)]


def read(
    likelihoods: Mapping[str, Likelihood],
    X: Any,
    Y: Any,
    columns: Sequence[Column] | None = None,
    *,
    some: bool = False,
) -> Dataset:
    """Read and check inputs and outputs.

    Args:
        likelihoods: by output name.
        X: one table of inputs for all outputs, or a list or dict of one per output.
        Y: a (N, D) table, or a list or dict of one sequence per output.
        columns: the inputs of an earlier fit, to check against. Without them the data are for a
            fit, and every output must have an observed value.
        some: whether these are rows of a fit, for which weights count.
    """
    names = list(likelihoods)
    raw, tables = split(names, X, Y, columns)
    outputs = []
    for name in names:
        column = _column(name, raw[name])
        given = _arguments(name, likelihoods[name], Y, column, weighted=some or columns is None)
        weight = given.pop("weight", np.broadcast_to(1.0, len(column)))
        likelihood, y = observe(name, likelihoods[name], column, given)
        unless = ""
        if not (weight > 0).all():
            if not np.isnan(y).all():
                unless = f": every value has the weight 0 in {likelihood.weight!r}"
            y = np.where(weight > 0, y, np.nan)  # a value of weight zero is not observed
        if columns is None and np.isnan(y).all():
            raise ValueError(f"output {name!r} has no observed value{unless}")
        outputs.append((likelihood, tables[name][0], y, given, weight))
    known, X_d, values, given_d, weights = map(list, zip(*outputs, strict=True))
    return Dataset(names, known, X_d, values, given_d, weights, tables[names[0]][1])


# -- outputs ---------------------------------------------------------------------------------------


def split(
    names: list[str], X: Any, Y: Any, columns: Sequence[Column] | None = None
) -> tuple[dict[str, Any], dict[str, tuple[np.ndarray, list[Column]]]]:
    """One raw column and one table of inputs per output, with matching rows."""
    raw, tables = split_outputs(names, Y), split_inputs(names, X, columns)
    for name in names:
        values, rows = len(raw[name]), len(tables[name][0])
        if values != rows:
            raise ValueError(f"output {name!r} has {values} values but its inputs have {rows} rows")
        same_index(name, input_of(X, name, names), raw[name])
    return raw, tables


def split_outputs(names: list[str], Y: Any) -> dict[str, Any]:
    """One raw column per output."""
    D = len(names)
    if isinstance(Y, pd.DataFrame | Mapping):
        keys = {str(key): key for key in Y}
        refuse_duplicates("Y", list(map(str, Y)), names)
        for name in names:
            if name not in keys:
                raise ValueError(f"Y has no column {name!r}; it has {', '.join(keys)}")
        return {name: Y[keys[name]] for name in names}
    if isinstance(Y, pd.Series):
        Y = [Y]
    elif isinstance(Y, list | tuple):
        if D == 1 and not any(_is_sequence(item) for item in Y):
            Y = [Y]
        if len(Y) != D or not all(_is_sequence(item) for item in Y):
            kind = "sequences" if all(_is_sequence(item) for item in Y) else "items"
            raise ValueError(
                f"Y is a list of {len(Y)} {kind}, but there are {D} outputs ({', '.join(names)}): "
                "a list holds one sequence per output; for a table of rows pass an array or a frame"
            )
    else:
        Y = np.asarray(Y)
        if Y.ndim == 1:
            Y = Y[:, None]
        if Y.ndim != 2 or Y.shape[1] != D:
            raise ValueError(
                f"Y has shape {Y.shape}, but there are {D} outputs ({', '.join(names)}): "
                f"it should be (N, {D})"
            )
        Y = list(Y.T)
    return dict(zip(names, Y, strict=True))


def _is_sequence(item: Any) -> bool:
    return isinstance(item, list | tuple | np.ndarray | pd.Series | pd.Index | pd.Categorical)


def _column(name: str, y: Any, column: str | None = None) -> pd.Series | np.ndarray:
    """One column of values: of an output, or of an argument that comes with it."""
    if isinstance(y, pd.Series):
        return y
    if isinstance(y, pd.Categorical):
        return pd.Series(y)
    array = np.asarray(y)
    if array.dtype.kind in "US" and not isinstance(y, np.ndarray):
        array = np.asarray(y, dtype=object)  # a list such as ["a", None]
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        what = "" if column is None else f": column {column!r}"
        raise ValueError(
            f"output {name!r}{what} has shape {array.shape}; it should be one-dimensional"
        )
    return array


def _arguments(
    name: str, likelihood: Likelihood, Y: Any, y: pd.Series | np.ndarray, weighted: bool
) -> dict[str, np.ndarray]:
    """The numbers that come with each value of an output, from their columns of Y.

    They may be missing where the value itself is missing.

    Args:
        name: the output.
        likelihood: says which columns it needs.
        Y: the outputs, as the user gave them.
        y: the output's own column.
        weighted: whether the weight is needed too; only fits use it.
    """
    needed = {name: (column, likelihood.rules[name]) for name, column in likelihood.columns}
    if weighted and likelihood.weight is not None:
        needed["weight"] = (likelihood.weight, WEIGHT)
    if not needed:
        return {}
    if not isinstance(Y, pd.DataFrame | Mapping):
        columns = ", ".join(repr(column) for column, _ in needed.values())
        raise ValueError(
            f"output {name!r} needs the column {columns}, which an array or list cannot carry: "
            "give Y as a frame or a dict"
        )
    keys = {str(key): key for key in Y}
    missing = np.asarray(pd.isna(y))
    refuse_duplicates("Y", list(map(str, Y)), [column for column, _ in needed.values()])
    result = {}
    for argument, (column, rule) in needed.items():
        if column not in keys:
            raise ValueError(
                f"output {name!r}: {argument}={column!r}, but Y has no column {column!r}; it has "
                f"{', '.join(keys)}"
            )
        values = Y[keys[column]]
        same_index(name, y, values, f"of {column!r}")
        result[argument] = argument_values(name, argument, column, rule, values, len(y), missing)
    _refuse_crossed(name, likelihood, result)
    return result


def _refuse_crossed(name: str, likelihood: Likelihood, given: Mapping[str, np.ndarray]) -> None:
    """Raise an error for a lower limit above the upper one."""
    if "lower" not in given or "upper" not in given:
        return
    crossed = np.flatnonzero(given["lower"] > given["upper"])
    if crossed.size:
        row, columns = int(crossed[0]), dict(likelihood.columns)
        raise ValueError(
            f"output {name!r}, row {row}: {columns['lower']!r} is {given['lower'][row]:g}, which "
            f"is above {columns['upper']!r}, {given['upper'][row]:g}; a value lies between the two"
        )


def argument_values(
    name: str,
    argument: str,
    column: str,
    rule: Argument,
    values: Any,
    N: int,
    missing: np.ndarray | None = None,
) -> np.ndarray:
    """One argument of an output as N checked numbers, with its default for missing values."""
    cells = _cells(_column(name, values, column), as_numbers=True)
    if len(cells) != N:
        raise ValueError(
            f"output {name!r}: column {column!r} has {len(cells)} rows, the output has {N}"
        )
    where, wanted = f"output {name!r}, column {column!r}", (f"a valid {argument}", rule.support)
    try:
        numbers = numbers_in(cells)
    except InvalidValueError as error:
        bad_one = error.row, error.value, *wanted, error.others
        raise ValueError(_unsupported(where, *bad_one)) from None
    needed = np.ones(N, bool) if missing is None else ~missing
    with np.errstate(invalid="ignore"):
        fine = np.isfinite(numbers) & rule.valid(numbers)
    optional = np.isnan(rule.default)
    bad = needed & ~(fine | (optional & np.isnan(numbers)))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(_unsupported(where, row, numbers[row], *wanted, int(bad.sum()) - 1))
    return np.where(needed | (optional & fine), numbers, rule.default)


def observe(
    name: str,
    likelihood: Likelihood,
    y: Any,
    given: Mapping[str, np.ndarray] | None = None,
    *,
    limited: bool = True,
) -> tuple[Likelihood, np.ndarray]:
    """The numbers behind a column of values, checked against the likelihood's support.

    Args:
        name: the output.
        likelihood: that of the output.
        y: the column.
        given: the arguments that come with each value.
        limited: whether values beyond a limit count as partly known.
    """
    y, where, given = _column(name, y), f"output {name!r}", given or {}
    if np.iscomplexobj(y):
        raise ValueError(f"{where} holds complex numbers; an output must be real")
    categories = y.dtype if isinstance(y.dtype, pd.CategoricalDtype) else None
    if categories is not None and (categories.ordered or likelihood.outcome != "ordered"):
        try:
            likelihood = likelihood.with_classes(list(categories.categories))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    what = f"{'an' if likelihood.kind[0] in 'AEIOU' else 'a'} {likelihood.kind} value"
    try:
        likelihood, numbers = likelihood.observe(_cells(y, as_numbers=not likelihood.labelled))
    except InvalidValueError as error:
        support = likelihood.support_for({})
        bad_one = error.row, error.value, what, support, error.others
        raise ValueError(_unsupported(where, *bad_one)) from None
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None
    if limited:
        numbers = likelihood.at(given).noted(numbers)
    bad = np.isinf(numbers)
    fine = ~np.isnan(numbers) & ~bad
    here = {argument: column[fine] for argument, column in given.items()}
    bad[fine] = ~likelihood.at(here).possible(numbers[fine])
    if bad.any():
        row, others = int(np.flatnonzero(bad)[0]), int(bad.sum()) - 1
        support = likelihood.support_for({key: column[row] for key, column in given.items()})
        raise ValueError(_unsupported(where, row, numbers[row], what, support, others))
    return likelihood, numbers


def _cells(y: pd.Series | np.ndarray, *, as_numbers: bool) -> np.ndarray:
    """A column as an array of numbers, or of objects with None for missing values."""
    if isinstance(y, pd.Series):
        if as_numbers and pd.api.types.is_numeric_dtype(y):
            return y.to_numpy(dtype=float, na_value=np.nan)
        return y.astype(object).where(y.notna(), None).to_numpy(dtype=object)
    if y.dtype == object:
        return np.array([None if is_missing(value) else value for value in y], dtype=object)
    return y


def _unsupported(where: str, row: int, value: Any, what: str, support: str, others: int = 0) -> str:
    """A sentence that says what is wrong with a value."""
    shown = (
        repr(value)
        if not isinstance(value, float)
        else "a missing value"
        if value != value
        else f"{value:g}"
    )
    more = f" (and {others} more row{'s' * (others > 1)})" if others else ""
    return f"{where}, row {row}: {shown} is not {what}, which is {support}{more}"


def same_index(name: str, X: Any, y: Any, whose: str = "of Y") -> None:
    """Raise an error if two indexes differ: rows may be in another order."""
    indexed = isinstance(X, pd.DataFrame | pd.Series) and isinstance(y, pd.Series | pd.DataFrame)
    if indexed and not X.index.equals(y.index):
        first = "of X" if whose == "of Y" or whose.endswith("in given") else "of its values"
        raise ValueError(
            f"output {name!r}: the index {first} and {whose} differ, so rows may not belong "
            "together; align them, or call reset_index(drop=True) on both if the order is right"
        )
