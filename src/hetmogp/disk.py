"""Tables on disk, larger than memory: read in part, shuffled, every row once an epoch.

A table is cut into *units* that can be read by themselves: the row groups of Parquet files, whole
files of other formats. An epoch reads the units in random order, some at a time into a buffer,
whose rows are shuffled and handed out. The order depends on (seed, epoch) alone, and where it is
taken up again is found by counting: units that were done with are not read.

Several processes share the table by *lanes*, stretches of as many rows each. A unit across a border
is read on both sides, each taking its rows; so lanes may even be more than units.
"""

import glob
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from . import distributed

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

T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """Rows that are read together, or some of them.

    Attributes:
        fragment: what reads them.
        rows: how many there are to read.
        number: the unit's, in the table.
        first: where it begins in its file.
        begin: the first that is wanted.
        end: after the last that is wanted.
    """

    fragment: Any
    rows: int
    number: int
    first: int
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def cut(self, begin: int, end: int) -> Self:
        """Those of its rows, counted from its beginning, that are between two numbers."""
        return replace(self, begin=max(begin, 0), end=min(end, self.rows))

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """The rows that are wanted, as a frame."""
        try:
            found = self.fragment.to_table(columns=list(columns))
        except (OSError, pa.ArrowInvalid) as error:
            raise OSError(f"{self.fragment.path} cannot be read any more: {error}") from error
        if found.num_rows != self.rows:
            raise OSError(
                f"{self.fragment.path} had {self.rows} rows here and now has {found.num_rows}: it "
                "was changed while it was being read"
            )
        return found.slice(self.begin, len(self)).to_pandas()

    def __str__(self) -> str:
        return f"{self.fragment.path}, from row {self.first + self.begin} on"


class Table:
    """A table in one or more files, which need not fit into memory.

    Goes wherever X and Y go: `model.fit(table)`.

    Args:
        source: a file, a folder, a pattern such as "sales/*.parquet", or a list of files; Parquet,
            Arrow (Feather) or CSV by their endings.
        inputs: the columns that are inputs.
        lanes: into how many stretches the rows are cut, of each of which every mini-batch has as
            many rows; as many as there are processes by default. Processes each read their own. A
            fit by fewer processes with as many lanes is the same fit.
    """

    def __init__(
        self,
        source: str | os.PathLike | Sequence[str | os.PathLike],
        *,
        inputs: Sequence[str],
        lanes: int | None = None,
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
        if lanes is not None and (not isinstance(lanes, Integral) or lanes < 1):
            raise ValueError(f"lanes must be a whole number >= 1, not {lanes!r}")
        self._lanes = lanes
        self._units: list[Unit] = []
        for fragment in self._dataset.get_fragments():
            first = 0
            for part, rows in _readable(fragment):
                self._units.append(Unit(part, rows, len(self._units), first, 0, rows))
                first += rows
        if not len(self):
            raise ValueError(f"{self} has no rows")

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._dataset.schema.names

    @property
    def lanes(self) -> int:
        """Into how many stretches the rows are cut."""
        return int(self._lanes or distributed.count())

    @property
    def own(self) -> range:
        """The lanes of this process."""
        each, left = divmod(self.lanes, distributed.count())
        if left:
            raise ValueError(
                f"{self} is cut into {self.lanes} lanes, which {distributed.count()} processes "
                "cannot share evenly; leave lanes out, or make it a multiple"
            )
        return range(distributed.index() * each, (distributed.index() + 1) * each)

    @property
    def told(self) -> str:
        """What there is, in words."""
        return f"{len(self)} rows in {len(self.files)} files, in {self.lanes} lanes"

    def agree(self) -> None:
        """Refuse a table that other processes see otherwise."""
        rows = [unit.rows for unit in self._units]
        seen = ([path.name for path in self.files], rows, self.lanes)
        mine = (self.told, zlib.crc32(repr(seen).encode()))
        for k, other in enumerate(distributed.gathered(mine)):
            if other != mine:
                raise distributed.GroupError(
                    f"{self} has {self.told}, but for process {k} {other[0]}: all processes must "
                    "see the same files"
                )

    def __str__(self) -> str:
        return str(self.source) if isinstance(self.source, str | os.PathLike) else "the table"

    def __len__(self) -> int:
        return sum(map(len, self._units))

    def stretch(self, number: int, of: int) -> list[Unit]:
        """The rows of one of so many stretches of (nearly) the same length."""
        begin, end = (k * len(self) // of for k in (number, number + 1))
        found, first = [], 0
        for unit in self._units:
            if first < end and first + unit.rows > begin:
                found.append(unit.cut(begin - first, end - first))
            first += unit.rows
        return found

    def epoch(
        self, columns: Sequence[str], seed: int, epoch: int, skip: int = 0, lane: int = 0
    ) -> Iterator[pd.DataFrame]:
        """All rows of a lane once, in frames of some hundred thousand, in random order.

        Args:
            columns: those wanted.
            seed: of the order.
            epoch: which one.
            skip: rows at the beginning to leave out.
            lane: which one.
        """
        units = self.stretch(lane, self.lanes)
        order = np.random.default_rng([seed, epoch, lane]).permutation(len(units))
        for k, part in enumerate(_buffers([units[u] for u in order], BUFFER)):
            rows = sum(map(len, part))
            if skip >= rows:
                skip -= rows
                continue
            frame = pd.concat([unit.read(columns) for unit in part], ignore_index=True)
            shuffled = np.random.default_rng([seed, epoch, lane, k]).permutation(rows)
            yield frame.iloc[shuffled[skip:]]
            skip = 0

    def frames(
        self, columns: Sequence[str], number: int = 0, of: int = 1
    ) -> Iterator[pd.DataFrame]:
        """All rows, or those of one of so many stretches, in order, ten thousands at a time."""
        for part in _buffers(self.stretch(number, of), FRAME):
            yield pd.concat([unit.read(columns) for unit in part], ignore_index=True)

    def each(
        self, do: Callable[[pd.DataFrame], T], columns: Sequence[str], number: int, of: int
    ) -> Iterator[T]:
        """What is made of each of the frames of a stretch; a bad row is named by its place."""
        for frame in self.frames(columns, number, of):
            try:
                made = do(frame)
            except ValueError:
                self.blame(do, columns, number, of)
                raise
            yield made

    def blame(
        self, check: Callable[[pd.DataFrame], Any], columns: Sequence[str], number: int, of: int
    ) -> None:
        """Have rows of a stretch checked that one of them did not pass, to name its place.

        Args:
            check: raises a ValueError that counts rows.
            columns: those that it needs.
            number: of the stretch.
            of: so many.
        """
        for unit in self.stretch(number, of):
            frame = unit.read(columns)
            try:
                check(frame)
            except ValueError as error:
                raise ValueError(f"{unit}: {error}") from None

    def sample(
        self, columns: Sequence[str], seed: int, told: Callable[[float], Any] = lambda done: None
    ) -> "Sample":
        """Rows drawn in one pass over the table, and how many values each column has.

        Each process passes over a stretch. What is drawn does not depend on how many there are.

        Args:
            columns: those wanted.
            seed: of the draw.
            told: is called with the share of the pass that is done.
        """
        self.agree()
        share = SAMPLE / len(self)
        key = zlib.crc32(b"sample")  # not the user's own random numbers, by chance

        def own() -> tuple[pd.DataFrame, pd.Series]:
            chosen, values = [], pd.Series(0, index=list(columns))
            units = self.stretch(distributed.index(), distributed.count())
            for k, unit in enumerate(units):
                told(k / len(units))
                frame = unit.read(columns)
                values += frame.notna().sum()
                drawn = np.random.default_rng([seed, key, unit.number]).random(unit.rows) < share
                chosen.append(frame[drawn[unit.begin : unit.end]])
            return pd.concat(chosen) if chosen else pd.DataFrame(), values

        found = distributed.gathered(distributed.together(own))
        return Sample(
            pd.concat([rows for rows, _ in found], ignore_index=True),
            {name: sum(int(values[name]) for _, values in found) for name in columns},
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


def _readable(fragment: Any) -> list[tuple[Any, int]]:
    """The parts of a file that can be read by themselves, and how many rows each has."""
    if isinstance(fragment, ds.ParquetFileFragment):
        groups = fragment.split_by_row_group()
        return [(group, group.row_groups[0].num_rows) for group in groups]
    return [(fragment, fragment.count_rows())]


def _buffers(units: Sequence[Unit], rows: int) -> Iterator[list[Unit]]:
    """Units in a row, as many as hold so many rows or more."""
    part: list[Unit] = []
    for unit in units:
        part.append(unit)
        if sum(map(len, part)) >= rows:
            yield part
            part = []
    if part:
        yield part
