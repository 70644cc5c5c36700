"""Tables from files and to files, and models from files."""

import os
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .application import fail, print_data, print_json, tell

if TYPE_CHECKING:
    import pandas as pd

    from ..columns import Column
    from ..disk import Table
    from ..model import HetMOGP

__all__ = [
    "argument_columns",
    "check_inputs",
    "columns_of",
    "inputs_at",
    "is_many",
    "learned",
    "read_for",
    "read_table",
    "refuse_many",
    "show_table",
    "split_names",
    "table_for",
    "will_write",
    "will_write_table",
    "with_inputs",
    "with_labels",
    "write_table",
]

PARQUET = (".parquet", ".pq")
TABLES = ("latents", "shares", "correlation")  # of a summary, that are printed as JSON
WRITTEN = (".csv", ".tsv", ".txt", "", *PARQUET)  # endings of tables that can be written


def is_many(path: Path | None) -> bool:
    """Whether a name stands for a folder of files, or is a pattern."""
    if path is None or path.is_file():  # whose name may have brackets
        return False
    return path.is_dir() or any(mark in str(path) for mark in "*?[")


def refuse_many(path: Path, drop: bool) -> None:
    """Refuse --drop-missing-inputs for many files, which are not read whole."""
    if drop:
        fail(f"--drop-missing-inputs is for a single file, not for {path}")


def read_table(path: Path, text: Sequence[str] = ()) -> "pd.DataFrame":
    """A table from a file, or one line that says why not.

    Args:
        path: the file; its ending tells what it is. A pipe is read as text.
        text: the columns that are to be read as text, even if they look like numbers.
    """
    if path.is_dir():
        fail(f"{path} is a folder; name a CSV or Parquet file here")
    if not path.exists():
        fail(f"there is no file {path}")
    from ..disk import Table

    return Table(path, inputs=(), text=text).whole()


def split_names(names: str, columns: Collection[str] = ()) -> list[str]:
    """A comma-separated list; a column whose name has a comma may stand alone."""
    if names in columns:
        return [names]
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        fail("no column was named")
    return chosen


def columns_of(table: "pd.DataFrame", names: Sequence[str], path: Path) -> "pd.DataFrame":
    """Some columns of a table, all of which must be there, with one value a cell."""
    import numpy as np

    for name in names:
        if name not in table.columns:
            fail(f"{path} has no column {name!r}; it has {', '.join(map(repr, table.columns))}")
        for value in table[name] if table[name].dtype == object else ():
            if isinstance(value, list | tuple | dict | np.ndarray):
                fail(
                    f"{path}, column {name!r} holds several values in a cell, such as {value!r}; "
                    "there should be one. Name the columns to use with --inputs and --output"
                )
    return table[list(names)]


def with_inputs(
    table: "pd.DataFrame", inputs: Sequence[str], path: Path, drop: bool
) -> "pd.DataFrame":
    """The rows of a table in which no input is missing.

    Args:
        table: all of its columns.
        inputs: the names of the inputs.
        path: of the table, for error messages.
        drop: whether rows may be left out; if not, the first such row is an error.
    """
    lacking = columns_of(table, inputs, path).isna()
    rows = lacking.any(axis=1).to_numpy()
    if not rows.any():
        return table
    row, many = int(rows.argmax()), f"{rows.sum():,} of {len(rows):,} rows"
    name = lacking.columns[int(lacking.iloc[row].to_numpy().argmax())]
    if not drop:
        fail(
            f"{path}, row {row}, column {name!r}: an input is missing, as in {many}. "
            "--drop-missing-inputs leaves these rows out"
        )
    if rows.all():
        fail(f"{path}: every row lacks an input, the first one {name!r}; nothing is left")
    warnings.warn(f"{path}: {many} lack an input and are left out", stacklevel=2)
    return table[~rows].reset_index(drop=True)


def check_inputs(X: "pd.DataFrame", path: Path, columns: "Sequence[Column] | None" = None) -> None:
    """Raise an error that names the file if its inputs cannot be read."""
    from ..inputs import read_inputs

    read_inputs(X, columns, str(path))


def with_labels(X: "pd.DataFrame", names: str | None, path: Path) -> "pd.DataFrame":
    """Inputs of which some are labels, even if they look like numbers."""
    import pandas as pd

    if names is None:
        return X
    chosen = columns_of(X, split_names(names, X.columns), path)
    return X.assign(**{str(name): pd.Categorical(column) for name, column in chosen.items()})


def read_for(
    model: "HetMOGP", path: Path, drop: bool, outputs: bool = True
) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """The inputs of a fitted model from a file that has them, and the whole table.

    Args:
        model: a fitted model.
        path: the file.
        drop: whether rows in which an input is missing are left out.
        outputs: whether it must have the outputs too, and the columns that come with them.
    """
    table = read_table(path, text_of(model))
    needed = inputs = input_names(model)
    if outputs:
        needed = list(dict.fromkeys((*inputs, *model.output_names_, *argument_columns(model))))
    for name in needed:
        if name not in table.columns:
            fail(f"{path} has no column {name!r}; the model was fitted on {needed}")
    columns_of(table, needed, path)
    table = with_inputs(table, inputs, path, drop)
    check_inputs(table[inputs], path, model.columns_)
    return table[inputs], table


def inputs_at(model: "HetMOGP", at: Path, drop: bool) -> tuple["pd.DataFrame", Any, "pd.DataFrame"]:
    """The inputs, the columns that likelihoods take beside their outputs, and the whole table."""
    X, table = read_for(model, at, drop, outputs=False)
    return X, table[[name for name in argument_columns(model) if name in table]], table


def table_for(model: "HetMOGP", path: Path) -> "Table":
    """A table in many files that has the inputs of a fitted model."""
    from ..disk import Table

    return Table(path, inputs=input_names(model), text=text_of(model))


def input_names(model: "HetMOGP") -> list[str]:
    """The inputs of a fitted model."""
    return [column.name for column in model.columns_]


def argument_columns(model: "HetMOGP") -> list[str]:
    """The columns that come with each value of the outputs, such as an exposure."""
    return [column for one in model.likelihoods_.values() for _, column in one.columns]


def text_of(model: "HetMOGP") -> list[str]:
    """The columns whose labels are text, though those of a file may look like numbers."""
    labels = {column.name: column.levels for column in model.columns_}
    labels |= {name: likelihood.levels for name, likelihood in model.likelihoods_.items()}
    return [name for name, some in labels.items() if some and all(isinstance(v, str) for v in some)]


def learned(model: "HetMOGP", path: Path) -> dict[str, Any]:
    """What a model in a file has learned, to be printed as JSON."""
    summary, facts = model.summary(), model.fitted.record.facts()
    for name in ("held_out", "widths", "scored"):  # shown below; the model file has them
        facts.pop(name)
    if facts["sharing"] is not None:
        facts["sharing"] = {name or "global": pair for name, pair in facts["sharing"].items()}
    return {
        "model": str(path),
        "bound": facts.pop("elbo"),
        "iterations": facts.pop("n_iter"),
        **facts,
        "outputs": {
            name: {"likelihood": repr(one), "observed": model.n_observed_[name], **one.constants}
            for name, one in model.likelihoods_.items()
        },
        **{key: getattr(summary, key).to_dict("index") for key in TABLES},
        "sentences": summary.sentences,
        "scored": summary.scored,
        "effects": model.effects_.to_dict("records"),
        "lengthscales": summary.lengthscales.to_dict("records"),
    }


def will_write(path: Path, *read: Path | None) -> None:
    """Refuse, before long work, a file that cannot or should not be written after it."""
    for other in read:
        if other is not None and path.exists() and other.exists() and path.samefile(other):
            fail(f"cannot write {path}: it is a file to read from")
    folder = path.parent
    if not folder.is_dir():
        fail(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir():
        fail(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        return  # a device or a pipe
    if not os.access(folder, os.W_OK):
        fail(f"cannot write {path}: the folder {folder} is not writable")


def will_write_table(path: Path | None, *read: Path | None) -> None:
    """The same for a table, if one is to be written."""
    if path is None:
        return
    will_write(path, *read)
    if path.suffix.lower() not in WRITTEN:
        fail(f"cannot write {path}: tables are written as .csv, .tsv or .parquet")


def show_table(table: "pd.DataFrame", out: Path | None, as_json: bool) -> None:
    """Write a table to a file, or print it."""
    if out is not None:
        write_table(table, out)
        content = {"out": str(out), "rows": len(table), "columns": list(table.columns)}
        tell(as_json, content, f"{len(table)} rows: {out}")
    elif as_json:
        print_json(table.to_dict("records"))
    else:
        print_data(table.to_csv(index=False))


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """A table to a CSV or Parquet file."""
    from ..files import temporary_file

    with temporary_file(path) as partial:
        if path.suffix.lower() in PARQUET:
            table.to_parquet(partial, index=False)
        else:
            table.to_csv(partial, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")
