"""Reading inputs: one table for all outputs, or one per output, as finite numbers with names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["input_of", "is_missing", "read_inputs", "refuse_duplicates", "split_inputs"]


def split_inputs(
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


def input_of(X: Any, name: str, names: list[str]) -> Any:
    """The inputs of one output, as the user gave them."""
    if isinstance(X, Mapping):
        return X[name]
    return X[names.index(name)] if _one_table_per_output(X) else X


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
        refuse_duplicates(what, found, found)
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
            return np.array([np.nan if is_missing(v) else float(v) for v in series])
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"{what}, column {column!r} holds {series.dtype} values such as {series.iloc[0]!r}; "
        "inputs must be numbers"
    )


def is_missing(value: Any) -> bool:
    """Whether a value stands for "not observed"."""
    return value is None or value is pd.NA or value is pd.NaT or value != value


def refuse_duplicates(what: str, found: list[str], needed: Sequence[str]) -> None:
    """Complain of a needed column that is there twice."""
    for name in needed:
        if found.count(name) > 1:
            raise ValueError(f"{what} has more than one column called {name!r}")
