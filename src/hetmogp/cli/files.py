"""Tables from files and to files, and models from files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .application import fail

if TYPE_CHECKING:
    import pandas as pd

    from ..model import HetMOGP

__all__ = [
    "columns_of",
    "load_model",
    "read_for",
    "read_table",
    "split_names",
    "will_write",
    "write_table",
]

PARQUET = (".parquet", ".pq")


def read_table(path: Path) -> "pd.DataFrame":
    """A table from a CSV or Parquet file, or one line that says why not."""
    import pandas as pd

    if path.is_dir():
        fail(f"{path} is a folder; name a CSV or Parquet file")
    try:
        if path.suffix.lower() in PARQUET:
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, sep="\t" if path.suffix.lower() == ".tsv" else ",")
    except FileNotFoundError:
        fail(f"there is no file {path}")
    except (OSError, ValueError, UnicodeDecodeError) as error:
        fail(f"cannot read {path} as a table: {str(error).splitlines()[0]}")
    table.columns = [str(column) for column in table.columns]
    if not len(table):
        fail(f"{path} has no rows")
    return table


def split_names(names: str) -> list[str]:
    """A comma-separated list."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        fail("no column was named")
    return chosen


def columns_of(table: "pd.DataFrame", names: Sequence[str], path: Path) -> "pd.DataFrame":
    """Some columns of a table, all of which must be there."""
    for name in names:
        if name not in table.columns:
            fail(f"{path} has no column {name!r}; it has {', '.join(table.columns)}")
    return table[list(names)]


def load_model(path: Path) -> "HetMOGP":
    """A saved model; complaints are the reader's own."""
    from ..storage import load

    return load(path)


def read_for(model: "HetMOGP", path: Path) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Inputs and outputs of a fitted model from a file that must have them all."""
    table = read_table(path)
    beside = [column for of in model.likelihoods_.values() for _, column in of.columns]
    inputs = [column.name for column in model.columns_]
    for name in (*inputs, *model.output_names_, *beside):
        if name not in table.columns:
            needs = ", ".join(dict.fromkeys((*inputs, *model.output_names_, *beside)))
            fail(f"{path} has no column {name!r}; the model needs {needs}")
    return table[inputs], table.drop(columns=inputs)


def will_write(path: Path) -> None:
    """Complain before long work of a file that cannot be written after it."""
    folder = path.parent
    if not folder.is_dir():
        fail(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir():
        fail(f"cannot write {path}: it is a folder")
    if not os.access(folder, os.W_OK):
        fail(f"cannot write {path}: the folder {folder} is not writable")


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """A table to a CSV or Parquet file, written beside it and renamed."""
    from ..files import beside

    with beside(path) as partial:
        if path.suffix.lower() in PARQUET:
            table.to_parquet(partial, index=False)
        else:
            table.to_csv(partial, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")
