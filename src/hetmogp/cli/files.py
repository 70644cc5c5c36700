"""Tables from files and to files, and models from files."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .application import fail

if TYPE_CHECKING:
    import pandas as pd

    from ..model import HetMOGP

__all__ = [
    "columns_of",
    "is_many",
    "load_model",
    "read_for",
    "read_table",
    "split_names",
    "text_of",
    "will_write",
    "with_labels",
    "write_table",
]

PARQUET = (".parquet", ".pq")
WRITTEN = (".csv", ".tsv", ".txt", "", *PARQUET)  # endings of tables that can be written
MISSING = ["", "NA", "N/A", "NaN", "nan"]  # what stands for "not observed"; None may be a label


def is_many(path: Path | None) -> bool:
    """Whether a name stands for a folder of files, or is a pattern."""
    if path is None or path.is_file():  # whose name may have brackets
        return False
    return path.is_dir() or any(mark in str(path) for mark in "*?[")


def read_table(path: Path, text: Sequence[str] = ()) -> "pd.DataFrame":
    """A table from a CSV or Parquet file, or one line that says why not.

    Args:
        path: the file; its ending tells what it is.
        text: the columns that are to be read as text, even if they look like numbers.
    """
    import pandas as pd

    if path.is_dir():
        fail(f"{path} is a folder; name a CSV or Parquet file here")
    try:
        if path.suffix.lower() in PARQUET:
            table = pd.read_parquet(path)
            if any(name is not None for name in table.index.names):
                table = table.reset_index()  # an index with a name is a column like others
        else:
            table = _read_text(path, text)
    except FileNotFoundError:
        fail(f"there is no file {path}")
    except (OSError, ValueError, UnicodeDecodeError) as error:
        fail(f"cannot read {path} as a table: {str(error).splitlines()[0]}")
    table.columns = [str(column) for column in table.columns]
    if not len(table):
        fail(f"{path} has no rows")
    for name in text:
        if name in table.columns:
            table[name] = table[name].map(_as_text, na_action="ignore")
    return table


def _read_text(path: Path, text: Sequence[str]) -> "pd.DataFrame":
    """A text file whose columns are separated by commas, semicolons or tabs."""
    import pandas as pd

    header = str(pd.read_csv(path, sep="\x01", nrows=0).columns[0])
    separator = ";" if 0 < header.count(";") >= header.count(",") else ","
    options: dict[str, Any] = {
        "sep": "\t" if path.suffix.lower() == ".tsv" else separator,
        "index_col": False,  # rows that end in a comma must not shift their columns
        "keep_default_na": False,
        "na_values": MISSING,
        "dtype": dict.fromkeys(text, str),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            table = pd.read_csv(path, **options)
            if separator == ";":  # where decimal commas are usual, but not the rule
                commas = pd.read_csv(path, decimal=",", **options)
                numbers = [t.select_dtypes("number").shape[1] for t in (table, commas)]
                table = commas if numbers[1] > numbers[0] else table
        except pd.errors.ParserWarning:
            fail(
                f"cannot read {path} as a table: its rows have more fields than its header has "
                "names, so that columns cannot be told; name the first one too if it holds row "
                "names"
            )
    return table


def _as_text(value: Any) -> str:
    """A label as text; a whole number that came as a float is written as a whole number."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def split_names(names: str, table: "pd.DataFrame | None" = None) -> list[str]:
    """A comma-separated list; a column whose name has a comma may stand alone."""
    if table is not None and names in table.columns:
        return [names]
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


def with_labels(X: "pd.DataFrame", names: str | None, path: Path) -> "pd.DataFrame":
    """Inputs of which some are labels, even if they look like numbers."""
    import pandas as pd

    if names is None:
        return X
    chosen = columns_of(X, split_names(names, X), path)
    return X.assign(**{str(name): pd.Categorical(column) for name, column in chosen.items()})


def load_model(path: Path) -> "HetMOGP":
    """A saved model; complaints are the reader's own."""
    from ..storage import load

    return load(path)


def read_for(model: "HetMOGP", path: Path) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Inputs and outputs of a fitted model from a file that must have them all."""
    table = read_table(path, text_of(model))
    beside = [column for of in model.likelihoods_.values() for _, column in of.columns]
    inputs = [column.name for column in model.columns_]
    for name in (*inputs, *model.output_names_, *beside):
        if name not in table.columns:
            needs = ", ".join(dict.fromkeys((*inputs, *model.output_names_, *beside)))
            fail(f"{path} has no column {name!r}; the model needs {needs}")
    return table[inputs], table


def text_of(model: "HetMOGP") -> list[str]:
    """The columns whose labels are text, though those of a file may look like numbers."""
    levels = {column.name: column.levels for column in model.columns_ if column.levels}
    for name, likelihood in model.likelihoods_.items():
        levels[name] = getattr(likelihood, "classes", None) or ()
    return [name for name, of in levels.items() if of and all(isinstance(v, str) for v in of)]


def will_write(path: Path, *read: Path | None) -> None:
    """Complain before long work of a file that cannot, or should not, be written after it."""
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


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """A table to a CSV or Parquet file."""
    from ..files import beside

    with beside(path) as partial:
        if path.suffix.lower() in PARQUET:
            table.to_parquet(partial, index=False)
        else:
            table.to_csv(partial, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")
