"""Parquet and Arrow files: parts that can be read separately, all with the same columns."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from .delimited import refuse_other_columns, unreadable

__all__ = ["ArrowPart", "scan"]

FORMATS = {"parquet": ds.ParquetFileFormat(), "ipc": ds.IpcFileFormat()}
FILES = {"parquet": "a Parquet file", "ipc": "an Arrow file"}
NO_NAME = "__index_level_"  # how pandas stores an index without a name


@dataclass(frozen=True)
class ArrowPart:
    """A row group of a Parquet file, or an Arrow file.

    Attributes:
        path: the path of the file.
        rows: the number of rows.
        fragment: the Arrow object that reads them.
        schema: the columns of the table, with the types that suit all files.
        first: the position of its first row in the file.
        counted: the pandas index, if it has a name and only counts the rows. Such an index is not
            stored as a column.
    """

    path: Path
    rows: int
    fragment: Any
    schema: pa.Schema
    first: int
    counted: dict[str, Any] | None

    def to_table(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        counted = self.counted["name"] if self.counted else None
        stored = [name for name in columns if name != counted]
        table = self.fragment.to_table(schema=self.schema, columns=stored)
        if self.counted and counted in columns:
            place = np.arange(self.first, self.first + self.rows)
            values = pa.array(self.counted["start"] + self.counted["step"] * place)
            table = table.append_column(counted, values.cast(self.schema.field(counted).type))
        return table.select(list(columns))


def scan(paths: Sequence[Path], kind: str) -> tuple[list[str], list[ArrowPart]]:
    """The columns of a table, and the parts of its files.

    Args:
        paths: the files.
        kind: "parquet", or "ipc" for Arrow.
    """
    fragments, schemas = [], []
    for path in paths:
        try:
            fragment = FORMATS[kind].make_fragment(str(path), LocalFileSystem())
            schemas.append(fragment.physical_schema)
            fragments.append(_split(fragment))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no file {path}") from None
        except (OSError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise unreadable(path, f"it is damaged, or not {FILES[kind]} ({said})") from error
    columns = [_columns(path, schema) for path, schema in zip(paths, schemas, strict=True)]
    refuse_other_columns(paths, [schema.names for schema in columns])
    common = columns[0]
    for path, own in zip(paths, columns, strict=True):
        try:
            common = pa.unify_schemas([common, own], promote_options="permissive")
        except pa.ArrowTypeError as error:
            raise unreadable(path, f"its values are not those of {paths[0]} ({error})") from error
    parts = []
    for path, schema, groups in zip(paths, schemas, fragments, strict=True):
        first, counted = 0, _counted(schema)
        for part, rows in groups:
            parts.append(ArrowPart(path, rows, part, common, first, counted))
            first += rows
    return common.names, parts


def _split(fragment: Any) -> list[tuple[Any, int]]:
    """The parts of a file that can be read separately, and the number of rows of each."""
    if isinstance(fragment, ds.ParquetFileFragment):
        groups = fragment.split_by_row_group()
        return [(group, group.row_groups[0].num_rows) for group in groups]
    return [(fragment, fragment.count_rows())]


def _columns(path: Path, schema: pa.Schema) -> pa.Schema:
    """The columns of a file; a pandas index that has a name is the first of them."""
    name, times = Counter(schema.names).most_common(1)[0] if schema.names else ("", 0)
    if times > 1:
        raise unreadable(path, f"it has {times} columns called {name!r}")
    index = [one for one in _index(schema) if isinstance(one, str)]
    counted = _counted(schema)
    fields = [pa.field(counted["name"], pa.int64())] if counted else []
    fields += [field for field in schema if field.name in index and NO_NAME not in field.name]
    fields += [field for field in schema if field.name not in index]
    return pa.schema(fields)


def _counted(schema: pa.Schema) -> dict[str, Any] | None:
    """The start, step and name of a pandas index that counts the rows, if it has a name."""
    for one in _index(schema):
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            whole = all(isinstance(one.get(key), int) for key in ("start", "step"))
            return one if whole and one["name"] not in schema.names else None
    return None


def _index(schema: pa.Schema) -> list[Any]:
    """What pandas has stored about an index; invalid entries are ignored."""
    try:
        noted = (schema.pandas_metadata or {})["index_columns"]
    except (ValueError, KeyError, TypeError):
        return []
    return noted if isinstance(noted, list) else []
