"""Reading what users hand over: arrays, lists, dicts and frames, checked before any computation.

Every complaint names the output, the column and the row (counted from 0), says what was found and
what would be right. Nothing is broadcast, dropped or clipped in silence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .likelihoods import Categorical, Likelihood
from .likelihoods.base import InvalidValueError

__all__ = ["Dataset", "name_outputs", "observe", "read", "read_inputs"]

RESERVED = "global"


@dataclass(frozen=True)
class Dataset:
    """Every output's likelihood, inputs and values; NaN marks what was not observed.

    Attributes:
        names: the outputs, in the user's order.
        likelihoods: one per output, as the data made them (a Categorical knows its classes).
        inputs: one (N_d, p) array per output; outputs that share their inputs share the array.
        values: one (N_d,) array per output.
        columns: the names of the p inputs.
    """

    names: list[str]
    likelihoods: list[Likelihood]
    inputs: list[np.ndarray]
    values: list[np.ndarray]
    columns: list[str]

    def observed(self) -> list[np.ndarray]:
        """Which values of each output were observed."""
        return [~np.isnan(y) for y in self.values]


def name_outputs(likelihoods: Any, Y: Any = None) -> dict[str, Likelihood]:
    """The outputs by name: a dict's keys, else the columns or keys of Y, else y0, y1 and so on."""
    if isinstance(likelihoods, Likelihood):
        likelihoods = [likelihoods]
    if isinstance(likelihoods, Mapping):
        named = {str(name): likelihood for name, likelihood in likelihoods.items()}
    elif isinstance(likelihoods, type) and issubclass(likelihoods, Likelihood):
        raise TypeError(f"write [{likelihoods.__name__}()], with parentheses")
    elif isinstance(likelihoods, Sequence) and not isinstance(likelihoods, str):
        named = dict(zip(_names_from(Y, len(likelihoods)), likelihoods, strict=True))
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
            raise TypeError(f"output {name!r}: {likelihood!r} is not a likelihood")
        if name == RESERVED:
            raise ValueError(f"an output cannot be called {RESERVED!r}: nlpd uses that name")
    return named


def _names_from(Y: Any, D: int) -> list[str]:
    if isinstance(Y, pd.DataFrame | Mapping):
        keys = [str(key) for key in (Y.columns if isinstance(Y, pd.DataFrame) else Y)]
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
    likelihoods: Mapping[str, Likelihood], X: Any, Y: Any, columns: Sequence[str] | None = None
) -> Dataset:
    """Read and check inputs and outputs.

    Args:
        likelihoods: by output name.
        X: one table of inputs for all outputs, or a list or dict of one per output.
        Y: a (N, D) table, or a list or dict of one sequence per output.
        columns: the inputs' names from an earlier fit, to check against; without them this is a
            fit, and every output must have been observed somewhere.
    """
    names = list(likelihoods)
    raw = _split_outputs(names, Y)
    tables = _split_inputs(names, X, columns)

    found, values = [], []
    for name in names:
        likelihood, y = observe(name, likelihoods[name], raw[name])
        inputs = tables[name][0]
        if len(y) != len(inputs):
            raise ValueError(
                f"output {name!r} has {len(y)} values but its inputs have {len(inputs)} rows"
            )
        _same_index(name, _input_of(X, name, names), raw[name])
        if columns is None and np.isnan(y).all():
            raise ValueError(f"output {name!r} has no observed value")
        found.append(likelihood)
        values.append(y)
    first = tables[names[0]][1]
    for name in names:
        if tables[name][1] != first:
            raise ValueError(
                f"output {name!r} has inputs {tables[name][1]}, output {names[0]!r} has {first}: "
                "all outputs need the same inputs"
            )
    return Dataset(names, found, [tables[name][0] for name in names], values, first)


# -- outputs ---------------------------------------------------------------------------------------


def _split_outputs(names: list[str], Y: Any) -> dict[str, Any]:
    """One raw column per output."""
    D = len(names)
    if isinstance(Y, pd.DataFrame | Mapping):
        keys = {str(key): key for key in (Y.columns if isinstance(Y, pd.DataFrame) else Y)}
        if isinstance(Y, pd.DataFrame):
            _refuse_duplicates("Y", [str(key) for key in Y.columns], names)
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


def _refuse_duplicates(what: str, found: list[str], needed: Sequence[str]) -> None:
    for name in needed:
        if found.count(name) > 1:
            raise ValueError(f"{what} has more than one column called {name!r}")


def _is_sequence(item: Any) -> bool:
    return isinstance(item, list | tuple | np.ndarray | pd.Series | pd.Index)


def _column(name: str, y: Any) -> pd.Series | np.ndarray:
    if isinstance(y, pd.Series):
        return y
    array = np.asarray(y)
    if array.dtype.kind in "US" and not isinstance(y, np.ndarray):
        array = np.asarray(y, dtype=object)  # a list such as ["a", None]
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"output {name!r} has shape {array.shape}; it should be one-dimensional")
    return array


def observe(name: str, likelihood: Likelihood, y: Any) -> tuple[Likelihood, np.ndarray]:
    """The numbers behind a column of values, checked against the likelihood's support."""
    y = _column(name, y)
    if isinstance(y, pd.Series):
        if (
            isinstance(likelihood, Categorical)
            and likelihood.classes is None
            and isinstance(y.dtype, pd.CategoricalDtype)
        ):
            likelihood = Categorical(classes=list(y.cat.categories))
        numeric = pd.api.types.is_numeric_dtype(y) and not isinstance(y.dtype, pd.CategoricalDtype)
        if numeric and not isinstance(likelihood, Categorical):
            y = y.to_numpy(dtype=float, na_value=np.nan)
        else:
            y = y.astype(object).where(y.notna(), None).to_numpy(dtype=object)
    elif y.dtype == object:
        y = np.array([None if _missing(value) else value for value in y], dtype=object)
    try:
        if y.dtype.kind in "OUS" and not isinstance(likelihood, Categorical):
            _refuse_text(y)
        if y.dtype.kind in "mMc":  # times and complex numbers
            raise InvalidValueError(0, y[0])
        likelihood, numbers = likelihood.observe(y)
    except InvalidValueError as error:
        raise ValueError(_unsupported(name, likelihood, error.row, error.value)) from None
    except ValueError as error:
        raise ValueError(f"output {name!r} {error}") from None
    observed = ~np.isnan(numbers)
    bad = observed & ~np.isfinite(numbers)
    bad[observed & ~bad] = ~likelihood.valid(numbers[observed & ~bad])
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(_unsupported(name, likelihood, row, numbers[row], int(bad.sum()) - 1))
    return likelihood, numbers


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value != value


def _refuse_text(y: np.ndarray) -> None:
    for row, value in enumerate(y):
        if isinstance(value, str):
            raise InvalidValueError(row, value)


def _unsupported(name: str, likelihood: Likelihood, row: int, value: Any, others: int = 0) -> str:
    support = likelihood.support
    if isinstance(likelihood, Categorical) and likelihood.classes is not None:
        support = f"one of {list(likelihood.classes)}"
    shown = f"{value:g}" if isinstance(value, float) else repr(value)
    more = f" (and {others} more rows)" if others else ""
    return (
        f"output {name!r}, row {row}: {shown} is not a {type(likelihood).__name__} value, which is "
        f"{support}{more}"
    )


# -- inputs ----------------------------------------------------------------------------------------


def _split_inputs(
    names: list[str], X: Any, columns: Sequence[str] | None
) -> dict[str, tuple[np.ndarray, list[str]]]:
    """One input table per output, with its column names; the same object where shared."""
    if isinstance(X, Mapping):
        for name in names:
            if name not in X:
                raise ValueError(
                    f"X is a dict of one table per output, but has none for {name!r}; "
                    f"it has {', '.join(map(str, X))}"
                )
        return {name: read_inputs(X[name], columns, f"inputs of {name!r}") for name in names}
    if _one_table_per_output(X):
        if len(X) != len(names):
            raise ValueError(
                f"X is a list of {len(X)} tables, but there are {len(names)} outputs "
                f"({', '.join(names)})"
            )
        return {
            name: read_inputs(table, columns, f"inputs of {name!r}")
            for name, table in zip(names, X, strict=True)
        }
    shared = read_inputs(X, columns)
    return dict.fromkeys(names, shared)


def _one_table_per_output(X: Any) -> bool:
    """A list of arrays or frames, or of lists of lists; a list of rows of numbers is one table."""
    if not isinstance(X, list | tuple) or not X:
        return False
    if all(isinstance(table, np.ndarray | pd.DataFrame | pd.Series) for table in X):
        return not all(np.ndim(table) == 0 for table in X)
    return all(
        isinstance(table, list | tuple) and table and isinstance(table[0], list | tuple)
        for table in X
    )


def _input_of(X: Any, name: str, names: list[str]) -> Any:
    if isinstance(X, Mapping):
        return X[name]
    return X[names.index(name)] if _one_table_per_output(X) else X


def _same_index(name: str, X: Any, y: Any) -> None:
    indexed = isinstance(X, pd.DataFrame | pd.Series) and isinstance(y, pd.Series)
    if indexed and not X.index.equals(y.index):
        raise ValueError(
            f"output {name!r}: the index of X and of Y differ, so rows may not belong together; "
            "align them, or call reset_index(drop=True) on both if the order is right"
        )


def read_inputs(
    X: Any, columns: Sequence[str] | None = None, what: str = "X"
) -> tuple[np.ndarray, list[str]]:
    """A table of inputs as a (N, p) array of finite numbers, and its column names.

    Args:
        X: an array, frame, series, or list of numbers or of rows; one dimension is one input.
        columns: the names from an earlier fit; a frame is put in that order.
        what: what to call the table in complaints.
    """
    if isinstance(X, pd.Series):
        X = X.to_frame(X.name if X.name is not None else "x0")
    if isinstance(X, pd.DataFrame):
        found = [str(column) for column in X.columns]
        _refuse_duplicates(what, found, found)
        if columns is not None:
            missing = [column for column in columns if column not in found]
            if missing:
                raise ValueError(
                    f"{what} has no column {missing[0]!r}; the model was fitted on "
                    f"{list(columns)} and {what} has {found}"
                )
            X = X.iloc[:, [found.index(column) for column in columns]]
            found = list(columns)
        arrays = [_numbers(X.iloc[:, j], what, column) for j, column in enumerate(found)]
        table = np.stack(arrays, axis=1) if arrays else np.empty((len(X), 0))
    else:
        try:
            raw = np.asarray(X)
            if raw.dtype.kind in "mMcUS":
                raise TypeError
            table = np.asarray(raw, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{what} could not be read as a table of numbers") from None
        if table.ndim == 1:
            table = table[:, None]
        if table.ndim != 2:
            raise ValueError(f"{what} has shape {table.shape}; it should be (N, p)")
        found = list(columns) if columns is not None else [f"x{j}" for j in range(table.shape[1])]
    if table.shape[1] == 0:
        raise ValueError(f"{what} has no columns")
    if columns is not None and table.shape[1] != len(columns):
        raise ValueError(
            f"{what} has {table.shape[1]} columns, but the model was fitted on {len(columns)}: "
            f"{list(columns)}"
        )
    if not np.isfinite(table).all():
        row, j = (int(k) for k in np.argwhere(~np.isfinite(table))[0])
        raise ValueError(
            f"{what}, row {row}, column {found[j]!r}: {table[row, j]} is not a finite number; "
            "inputs cannot be missing, only outputs can"
        )
    return np.ascontiguousarray(table), found


def _numbers(series: pd.Series, what: str, column: str) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(series):
        return series.to_numpy(dtype=float, na_value=np.nan)
    try:
        if pd.api.types.is_object_dtype(series):
            return np.array([np.nan if _missing(v) else float(v) for v in series])
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"{what}, column {column!r} holds {series.dtype} values such as {series.iloc[0]!r}; "
        "inputs must be numbers"
    )
