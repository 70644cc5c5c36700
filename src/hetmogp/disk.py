"""Tables on disk, larger than memory: read in part, shuffled, every row once an epoch.

A table is cut into *units* that can be read by themselves: the row groups of Parquet files, whole
files of other formats. An epoch reads the units in random order, some at a time into a buffer,
whose rows are shuffled and handed out. The order depends on (seed, epoch) alone, and where it is
taken up again is found by counting: units that were done with are not read.
"""

import glob
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

__all__ = ["Sample", "Table"]

BUFFER = 200_000  # rows that are shuffled among each other
FRAME = 50_000  # rows that are read, predicted or scored together
SAMPLE = 20_000  # rows that learning starts from
ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".csv": "csv",
}


@dataclass(frozen=True)
class Unit:
    """Rows that are read together."""

    fragment: Any
    rows: int

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """The rows, as a frame."""
        try:
            found = self.fragment.to_table(columns=list(columns))
        except (OSError, pa.ArrowInvalid) as error:
            raise OSError(f"{self.fragment.path} cannot be read any more: {error}") from error
        if found.num_rows != self.rows:
            raise OSError(
                f"{self.fragment.path} had {self.rows} rows here and now has {found.num_rows}: it "
                "was changed while it was being read"
            )
        return found.to_pandas()


class Table:
    """A table in one or more files, which need not fit into memory.

    Goes wherever X and Y go: `model.fit(table)`.

    Args:
        source: a file, a folder, a pattern such as "sales/*.parquet", or a list of files; Parquet,
            Arrow (Feather) or CSV by their endings.
        inputs: the columns that are inputs.
    """

    def __init__(
        self, source: str | os.PathLike | Sequence[str | os.PathLike], *, inputs: Sequence[str]
    ):
        self.source = source
        self.files = _files(source)
        endings = {path.suffix.lower() for path in self.files}
        if len(endings) > 1 or not endings <= set(ENDINGS):
            raise ValueError(
                f"{self} has files ending in {', '.join(sorted(endings))}; wanted are files of "
                f"one kind, of {', '.join(ENDINGS)}"
            )
        self._dataset = ds.dataset(
            [str(path) for path in self.files], format=ENDINGS[endings.pop()]
        )
        self.inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        missing = [name for name in self.inputs if name not in self.columns]
        if missing:
            raise ValueError(f"{self} has no column {missing[0]!r}; it has {self.columns}")
        self._units = [
            unit for fragment in self._dataset.get_fragments() for unit in _units(fragment)
        ]
        if not len(self):
            raise ValueError(f"{self} has no rows")

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._dataset.schema.names

    def __str__(self) -> str:
        return str(self.source) if isinstance(self.source, str | os.PathLike) else "the table"

    def __len__(self) -> int:
        return sum(unit.rows for unit in self._units)

    def epoch(
        self, columns: Sequence[str], seed: int, epoch: int, skip: int = 0
    ) -> Iterator[pd.DataFrame]:
        """All rows once, in frames of some hundred thousand, in random order.

        Args:
            columns: those wanted.
            seed: of the order.
            epoch: which one.
            skip: rows at the beginning to leave out.
        """
        order = np.random.default_rng([seed, epoch]).permutation(len(self._units))
        for k, part in enumerate(_buffers([self._units[u] for u in order], BUFFER)):
            rows = sum(unit.rows for unit in part)
            if skip >= rows:
                skip -= rows
                continue
            frame = pd.concat([unit.read(columns) for unit in part], ignore_index=True)
            shuffled = np.random.default_rng([seed, epoch, k]).permutation(rows)
            yield frame.iloc[shuffled[skip:]]
            skip = 0

    def frames(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """All rows in their order, in frames of some ten thousand or more."""
        for part in _buffers(self._units, FRAME):
            yield pd.concat([unit.read(columns) for unit in part], ignore_index=True)

    def sample(self, columns: Sequence[str], seed: int) -> "Sample":
        """Rows drawn in one pass over the table, and how many values each column has."""
        rng = np.random.default_rng([seed, zlib.crc32(b"sample")])  # not the user's own, by chance
        share = SAMPLE / max(len(self), 1)
        chosen, values = [], pd.Series(0, index=list(columns))
        for frame in self.frames(columns):
            values += frame.notna().sum()
            chosen.append(frame if share >= 1 else frame[rng.random(len(frame)) < share])
        return Sample(
            pd.concat(chosen, ignore_index=True), {str(name): int(n) for name, n in values.items()}
        )


class Sample(NamedTuple):
    """Some rows of a table, and what one pass over all of them has counted."""

    rows: pd.DataFrame
    values: dict[str, int]


def _files(source: Any) -> list[Path]:
    """The files that a name, a pattern, a folder or a list stands for."""
    if not isinstance(source, str | os.PathLike):
        return [Path(one) for one in source]
    path = Path(source)
    if path.is_dir():
        files = (p for p in path.rglob("*") if p.suffix.lower() in ENDINGS)
        found = sorted(p for p in files if p.name[0] not in "._")  # others' unfinished business
    else:
        found = (
            [path] if path.is_file() else sorted(map(Path, glob.glob(str(source), recursive=True)))
        )
    if not found:
        raise FileNotFoundError(f"{str(source)!r} is no file, folder or pattern with data files")
    return found


def _units(fragment: Any) -> list[Unit]:
    if isinstance(fragment, ds.ParquetFileFragment):
        groups = fragment.split_by_row_group()
        return [Unit(group, group.row_groups[0].num_rows) for group in groups]
    return [Unit(fragment, fragment.count_rows())]


def _buffers(units: Sequence[Unit], rows: int) -> Iterator[list[Unit]]:
    """Units in a row, as many as hold so many rows or more."""
    part: list[Unit] = []
    for unit in units:
        part.append(unit)
        if sum(one.rows for one in part) >= rows:
            yield part
            part = []
    if part:
        yield part
