"""Reading inputs: one table for all outputs or one per output, as finite numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .columns import Column, describe

__all__ = ["grid", "input_of", "read_inputs", "refuse_duplicates", "restored", "split_inputs"]


LARGEST_GRID = 5_000_000


def split_inputs(
    names: list[str], X: Any, columns: Sequence[Column] | None
) -> dict[str, tuple[np.ndarray, list[Column]]]:
    """One input table per output, the same object where outputs share it, and the columns."""
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # a sparse matrix may be a dict
        X = _by_text(X)
        for name in names:
            if name not in X:
                raise ValueError(
                    f"X is a dict of one table per output, but has none for {name!r}; "
                    f"it has {', '.join(X)}"
                )
        tables = {name: X[name] for name in names}
    elif _one_table_per_output(X):
        if len(X) != len(names):
            raise ValueError(
                f"X is a list of {len(X)} tables, but there are {len(names)} outputs "
                f"({', '.join(names)})"
            )
        tables = dict(zip(names, X, strict=True))
    else:
        return dict.fromkeys(names, read_inputs(X, columns))
    called = {name: f"inputs of {name!r}" for name in names}
    if columns is None:
        columns = _agreed({name: _as_frame(tables[name], called[name]) for name in names})
    return {name: read_inputs(tables[name], columns, called[name]) for name in names}


def _agreed(frames: Mapping[str, pd.DataFrame]) -> list[Column]:
    """The common columns of the tables of different outputs, with the labels of all."""
    (first, frame), *others = frames.items()
    columns = _described(frame, f"inputs of {first!r}")
    for name, other in others:
        if set(other.columns) == set(frame.columns):
            other = other[frame.columns]  # the order may differ
        theirs = _described(other, f"inputs of {name!r}")
        if list(other.columns) != list(frame.columns):
            raise ValueError(
                f"output {name!r} has inputs {list(other.columns)}, output {first!r} has "
                f"{list(frame.columns)}: all outputs need the same inputs"
            )
        for j, (a, b) in enumerate(zip(columns, theirs, strict=True)):
            if (a.kind, a.aware) != (b.kind, b.aware):
                raise ValueError(
                    f"input {a.name!r} is a {a.kind} for output {first!r} and a {b.kind} for "
                    f"output {name!r}"
                    + (": one has a time zone, the other none" if a.kind == b.kind else "")
                )
            levels = (*a.levels, *(level for level in b.levels if level not in a.levels))
            columns[j] = Column(a.name, a.kind, levels, a.aware)
    return columns


def _one_table_per_output(X: Any) -> bool:
    """Whether X is a list of tables; a list of rows of numbers is one table."""
    if not isinstance(X, list | tuple) or not X:
        return False
    if all(isinstance(table, np.ndarray | pd.DataFrame | pd.Series) for table in X):
        return not all(np.ndim(table) == 0 for table in X)
    return all(
        isinstance(table, list | tuple) and table and isinstance(table[0], list | tuple)
        for table in X
    )


def _by_text(X: Mapping[Any, Any]) -> dict[str, Any]:
    """Tables of inputs by the names of outputs, which are text."""
    return {str(name): table for name, table in X.items()}


def input_of(X: Any, name: str, names: list[str]) -> Any:
    """The inputs of one output, as the user gave them."""
    if isinstance(X, Mapping):
        return _by_text(X)[name]
    return X[names.index(name)] if _one_table_per_output(X) else X


def read_inputs(
    X: Any, columns: Sequence[Column] | None = None, what: str = "X"
) -> tuple[np.ndarray, list[Column]]:
    """A table of inputs as a (N, p) array of finite numbers, and its columns.

    Args:
        X: an array, frame, series, or list of values or of rows; one dimension is one input.
        columns: those of an earlier fit; a frame is put into that order.
        what: the name of the table in errors.
    """
    frame = _as_frame(X, what)
    columns = _described(frame, what) if columns is None else list(columns)
    expected = [column.name for column in columns]
    if isinstance(X, pd.DataFrame | pd.Series):
        missing = [name for name in expected if name not in frame.columns]
        if missing:
            raise ValueError(
                f"{what} has no column {missing[0]!r}; the model was fitted on "
                f"{expected} and {what} has {list(frame.columns)}"
            )
        frame = frame[expected]
    elif frame.shape[1] != len(expected):
        row = ". Reshape your data: a single row is x.reshape(1, -1)" if np.ndim(X) == 1 else ""
        raise ValueError(  # in scikit-learn's words
            f"{what} has {frame.shape[1]} features, but HetMOGP is expecting {len(expected)} "
            f"features as input: {expected}{row}"
        )
    arrays = [column.encode(frame.iloc[:, j], what) for j, column in enumerate(columns)]
    table = np.ascontiguousarray(np.stack(arrays, axis=1))
    if not np.isfinite(table).all():
        raise ValueError(_not_finite(table, columns, what))
    return table, columns


def _not_finite(table: np.ndarray, columns: Sequence[Column], what: str) -> str:
    """The error for inputs that are not finite: the first one, and the number of rows."""
    wrong = ~np.isfinite(table)
    row, j = (int(k) for k in np.argwhere(wrong)[0])
    value = "NaN" if np.isnan(table[row, j]) else f"{table[row, j]}"
    number = columns[j].kind == "number"
    found = f"{value} is not a finite number" if number else "the value is missing"
    rows = int(wrong.any(axis=1).sum())
    have = "1 row has" if rows == 1 else f"{rows:,} rows have"
    return (
        f"{what}, row {row}, column {columns[j].name!r}: {found}; {have} "
        f"such inputs, of {len(table):,}. Inputs cannot be missing, only outputs can"
    )


def _as_frame(X: Any, what: str) -> pd.DataFrame:
    """Any table as a frame whose column names are text."""
    if hasattr(X, "toarray"):
        raise ValueError(f"{what} is a sparse matrix; pass {what}.toarray()")
    if isinstance(X, Mapping):
        raise ValueError(f"{what} is a dict; give one table with all inputs")
    if isinstance(X, pd.Index):
        X = pd.Series(X, name=X.name)
    if isinstance(X, pd.Series):
        X = X.to_frame("x0" if X.name is None else X.name)
    if isinstance(X, pd.DataFrame):
        names = [str(column) for column in X.columns]
        refuse_duplicates(what, names, names)
        frame = X.set_axis(names, axis=1)
    else:
        try:
            raw = np.asarray(X)
        except ValueError:
            raise ValueError(f"{what} could not be read as a table: its rows differ") from None
        if raw.dtype.kind in "cUS" and not isinstance(X, np.ndarray):
            raw = np.asarray(X, dtype=object)  # a list of rows of numbers and labels
        if raw.ndim == 0 and X is not None:
            raise ValueError(f"{what} is a single value, {X}; give a list or table of rows")
        if raw.ndim == 1:
            raw = raw[:, None]
        if raw.ndim != 2:
            raise ValueError(f"{what} has shape {raw.shape}; it should be (N, p)")
        frame = pd.DataFrame(raw, columns=[f"x{j}" for j in range(raw.shape[1])])
    if frame.shape[1] == 0:
        raise ValueError(
            f"{what} has 0 feature(s) (shape={frame.shape}) while a minimum of 1 is required."
        )
    return frame


def _described(frame: pd.DataFrame, what: str) -> list[Column]:
    return [describe(frame[name], what, name) for name in frame.columns]


def restored(table: np.ndarray, columns: Sequence[Column]) -> pd.DataFrame:
    """A table of numbers as a frame with the user's dates and labels."""
    return pd.DataFrame({c.name: c.decode(table[:, j]) for j, c in enumerate(columns)})


def grid(columns: Sequence[Column], ends: np.ndarray, n: int) -> np.ndarray:
    """Every combination of n values per input, within its range, and of every label."""
    sides = [
        np.arange(len(c.levels), dtype=float)
        if c.kind == "category"
        else np.linspace(end[0], end[1], n)
        for c, end in zip(columns, ends.T, strict=True)
    ]
    rows = int(np.prod([len(side) for side in sides], dtype=float))
    if rows > LARGEST_GRID:
        raise ValueError(
            f"a grid of {n} points per input has {rows:,} rows for {len(columns)} inputs, more "
            f"than {LARGEST_GRID:,}; take fewer points, or predict at a table of your own"
        )
    return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(rows, len(columns))


def refuse_duplicates(what: str, columns: list[str], needed: Sequence[str]) -> None:
    """Raise an error if a needed column occurs twice."""
    for name in needed:
        if columns.count(name) > 1:
            raise ValueError(f"{what} has more than one column called {name!r}")
