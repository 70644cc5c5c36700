"""Tables on disk that may be larger than memory; each epoch reads every row once, shuffled.

A table is divided into *units* that can be read separately: the row groups of Parquet files, and
whole files of other formats. An epoch reads the units in random order into a buffer, several at a
time, and shuffles the rows of the buffer. The order depends only on (seed, epoch). A resumed fit
finds its position by counting rows, so it does not read units that were already used.

Several processes share the table by *lanes*, which are sections of equally many rows. A unit that
crosses a border is read for both lanes, and each keeps its own rows, so there may be more lanes
than units.
"""

import glob
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from . import columnar, delimited, distributed
from .columnar import ArrowPart
from .delimited import COMPRESSED, TextPart

__all__ = ["Sample", "Table"]

BUFFER = 200_000  # rows that are shuffled together
FRAME = 50_000  # rows that are read, predicted or scored together
SAMPLE = 20_000  # rows that learning starts from
ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".csv": "text",
    ".tsv": "text",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """Rows that are read together, or a part of them.

    Attributes:
        part: the reader.
        number: the number of the unit in the table.
        begin: the first row that is wanted.
        end: the row after the last that is wanted.
    """

    part: ArrowPart | TextPart
    number: int
    begin: int
    end: int

    @property
    def rows(self) -> int:
        """The number of rows to read."""
        return self.part.rows

    def __len__(self) -> int:
        return self.end - self.begin

    def cut(self, begin: int, end: int) -> Self:
        """The rows between two positions, counted from the beginning of the unit."""
        return replace(self, begin=max(begin, 0), end=min(end, self.rows))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The rows that are wanted."""
        try:
            table = self.part.to_table(columns)
        except (OSError, ValueError) as error:
            raise OSError(f"{self.part.path} can no longer be read: {error}") from error
        if table.num_rows != self.rows:
            raise OSError(
                f"{self.part.path} had {self.rows} rows here and now has {table.num_rows}: it "
                "has changed since it was opened"
            )
        return table.slice(self.begin, len(self))

    def __str__(self) -> str:
        return f"{self.part.path}, from row {self.part.first + self.begin} on"


class Table:
    """A table in one or more files, which need not fit into memory.

    It is accepted wherever X and Y are: `model.fit(table)`.

    Args:
        source: a file, a folder, a pattern such as "sales/*.parquet", or a list of files. Parquet
            and Arrow (Feather) files are recognised by their endings. All other files are read as
            text (CSV); in a folder these are the .csv and .tsv files, compressed or not. All files
            have the same columns, in any order.
        inputs: the columns that are inputs.
        lanes: the number of sections into which the rows are divided. Every mini-batch has equally
            many rows of each. By default there are as many lanes as processes, and each process
            reads its own. Fewer processes with the same number of lanes make the same fit.
        text: columns to read as text, even if they look like numbers; inputs among them are
            labels. Names of columns that the table does not have are ignored.
    """

    def __init__(
        self,
        source: str | os.PathLike | Sequence[str | os.PathLike],
        *,
        inputs: Sequence[str],
        lanes: int | None = None,
        text: Sequence[str] = (),
    ):
        self.source = source
        self.files = _files(source)
        kinds = {_kind(path) for path in self.files}
        if len(kinds) > 1:
            endings = sorted({path.suffix.lower() for path in self.files})
            raise ValueError(
                f"{self} has files ending in {', '.join(endings)}; give files of one kind, "
                f"out of {', '.join(ENDINGS)}"
            )
        if lanes is not None and (not isinstance(lanes, Integral) or lanes < 1):
            raise ValueError(f"lanes must be a whole number >= 1, not {lanes!r}")
        self._lanes = lanes
        self.text = [text] if isinstance(text, str) else list(text)
        (kind,) = kinds
        scanned: tuple[list[str], Sequence[ArrowPart | TextPart]] = (
            delimited.scan(self.files, self.text)
            if kind == "text"
            else columnar.scan(self.files, kind)
        )
        self.columns, parts = scanned
        self.inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        self._units = [Unit(part, k, 0, part.rows) for k, part in enumerate(parts)]
        if not len(self):
            raise ValueError(f"{self} has no rows")

    @property
    def inputs(self) -> list[str]:
        """The columns that are inputs."""
        return self._inputs

    @inputs.setter
    def inputs(self, names: Sequence[str]) -> None:
        self._must_have(names)
        self._inputs = list(names)

    def _must_have(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.columns:
                raise ValueError(f"{self} has no column {name!r}; it has {self.columns}")

    @property
    def lanes(self) -> int:
        """The number of sections into which the rows are divided."""
        return int(self._lanes or distributed.count())

    @property
    def own(self) -> range:
        """The lanes of this process."""
        each, left = divmod(self.lanes, distributed.count())
        if left:
            raise ValueError(
                f"{self} is divided into {self.lanes} lanes, which {distributed.count()} processes "
                "cannot share evenly; omit lanes, or make it a multiple of the processes"
            )
        return range(distributed.index() * each, (distributed.index() + 1) * each)

    @property
    def in_words(self) -> str:
        """The size of the table, in words."""
        return f"{len(self)} rows in {len(self.files)} files, in {self.lanes} lanes"

    def agree(self) -> None:
        """Raise an error if another process sees a different table."""
        rows = [unit.rows for unit in self._units]
        seen = ([path.name for path in self.files], rows, self.lanes)
        mine = [self.in_words, zlib.crc32(repr(seen).encode())]
        for k, other in enumerate(distributed.gathered(mine)):
            if other != mine:
                raise distributed.GroupError(
                    f"{self} has {self.in_words} here, but {other[0]} in process {k}: all "
                    "processes must see the same files"
                )

    def __str__(self) -> str:
        return str(self.source) if isinstance(self.source, str | os.PathLike) else "the table"

    def __len__(self) -> int:
        return sum(map(len, self._units))

    def section(self, number: int, count: int) -> list[Unit]:
        """The rows of one of `count` sections of (nearly) the same length."""
        begin, end = (k * len(self) // count for k in (number, number + 1))
        units, first = [], 0
        for unit in self._units:
            if first < end and first + unit.rows > begin:
                units.append(unit.cut(begin - first, end - first))
            first += unit.rows
        return units

    def own_section(self) -> list[Unit]:
        """The rows of this process in a pass that several processes make together."""
        return self.section(distributed.index(), distributed.count())

    def epoch(
        self,
        columns: Sequence[str],
        seed: int,
        epoch: int,
        skip: int = 0,
        lane: int = 0,
        do: Callable[[pd.DataFrame], Any] = lambda frame: frame,
    ) -> Iterator[Any]:
        """All rows of a lane once, in random order, in frames of about `BUFFER` rows.

        Args:
            columns: the columns to read.
            seed: the seed of the order.
            epoch: the number of the epoch.
            skip: the number of rows to skip at the beginning.
            lane: the number of the lane.
            do: the function to apply to each frame.
        """
        units = self.section(lane, self.lanes)
        shuffled = np.random.default_rng([seed, epoch, lane]).permutation(len(units))
        for k, part in enumerate(_buffers([units[u] for u in shuffled], BUFFER)):
            rows = np.random.default_rng([seed, epoch, lane, k]).permutation(sum(map(len, part)))
            if skip < len(rows):
                yield self._made(part, columns, do, rows[skip:])
            skip = max(skip - len(rows), 0)

    def each(self, do: Callable[[pd.DataFrame], T], columns: Sequence[str]) -> Iterator[T]:
        """Apply a function to this process's rows, in order, `FRAME` rows at a time."""
        for part in _buffers(self.own_section(), FRAME):
            yield self._made(part, columns, do)

    def frames(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """All rows in order, `FRAME` rows at a time."""
        return (self._frame(part, columns) for part in _buffers(self._units, FRAME))

    def whole(self) -> pd.DataFrame:
        """All rows at once."""
        return self._frame(self._units, self.columns)

    def _frame(self, units: Sequence[Unit], columns: Sequence[str]) -> pd.DataFrame:
        """The rows of some units; labels that were read as numbers become text."""
        self._must_have(columns)
        table = pa.concat_tables([unit.read(columns) for unit in units]).unify_dictionaries()
        frame = table.to_pandas(ignore_metadata=True)
        for name in self.text:
            if name in frame and not pa.types.is_string(table.schema.field(name).type):
                frame[name] = frame[name].map(_as_text, na_action="ignore")
        return frame

    def _made(
        self,
        units: Sequence[Unit],
        columns: Sequence[str],
        do: Callable[[pd.DataFrame], T],
        rows: np.ndarray | slice = slice(None),
    ) -> T:
        """Apply a function to the rows of some units; an error about a row names its file."""
        try:
            return do(self._frame(units, columns).iloc[rows])
        except ValueError:
            for unit in units:
                try:
                    do(self._frame([unit], columns))
                except ValueError as error:
                    raise ValueError(f"{unit}: {error}") from None
            raise

    def sample(
        self, columns: Sequence[str], seed: int, report: Callable[[float], Any] = lambda done: None
    ) -> "Sample":
        """Draw rows in one pass over the table, and count the values of each column.

        Each process reads a section. The sample does not depend on the number of processes.

        Args:
            columns: the columns to read.
            seed: the seed of the draw.
            report: called with the completed share of the pass.
        """
        self.agree()
        share = SAMPLE / len(self)
        key = zlib.crc32(b"sample")  # so that these are not the numbers of the user's generator

        def own() -> tuple[pd.DataFrame, dict[str, int]]:
            chosen, values = [pd.DataFrame()], dict.fromkeys(columns, 0)
            units = self.own_section()
            for k, unit in enumerate(units):
                report(k / len(units))
                frame = self._frame([unit], columns)
                for name, there in frame.notna().sum().items():
                    values[str(name)] += int(there)
                drawn = np.random.default_rng([seed, key, unit.number]).random(unit.rows) < share
                chosen.append(frame[drawn[unit.begin : unit.end]])
            return _joined(chosen), values

        samples, counts = zip(*distributed.gathered(distributed.together(own)), strict=True)
        rows = _joined(samples)
        for name in set(self.text) & set(self.inputs):
            rows[name] = pd.Categorical(rows[name])  # so that they are not read as numbers
        return Sample(rows, {name: sum(int(values[name]) for values in counts) for name in columns})


class Sample(NamedTuple):
    """Some rows of a table, and the counts from one pass over all of them."""

    rows: pd.DataFrame
    values: dict[str, int]


def _files(source: Any) -> list[Path]:
    """The files of a name, a pattern, a folder or a list."""
    if not isinstance(source, str | os.PathLike):
        paths = [Path(one) for one in source]
        path, times = Counter(map(os.path.realpath, paths)).most_common(1)[0] if paths else ("", 0)
        if times > 1:
            raise ValueError(f"{path} is listed {times} times; its rows would count as many times")
    elif Path(source).is_dir():
        files = (p for p in Path(source).rglob("*") if _ending(p) in ENDINGS and p.is_file())
        paths = sorted(p for p in files if not _is_hidden(p.relative_to(source)))
    elif Path(source).exists():  # its name may look like a pattern
        paths = [Path(source)]
    else:
        paths = sorted(map(Path, glob.glob(str(source), recursive=True)))
    if not paths:
        named = repr(str(source)) if isinstance(source, str | os.PathLike) else "an empty list"
        raise FileNotFoundError(f"{named} is not a file, folder or pattern with data files")
    return paths


def _is_hidden(path: Path) -> bool:
    """Whether a file in a folder, or a folder that it is in, is temporary or hidden by its name."""
    return any(part[0] in "._" for part in path.parts)


def _kind(path: Path) -> str:
    """The kind of a file by its ending; by default text, whose reader rejects other files."""
    return ENDINGS.get(_ending(path), "text")


def _ending(path: Path) -> str:
    stem = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return stem.suffix.lower()


def _as_text(value: Any) -> str:
    """A label as text; a float that is a whole number is written without decimals."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the frames that have rows; empty ones may lack columns or types."""
    return pd.concat([one for one in frames if len(one)] or frames[:1], ignore_index=True)


def _buffers(units: Sequence[Unit], rows: int) -> Iterator[list[Unit]]:
    """Consecutive units, in groups that hold at least the given number of rows."""
    part: list[Unit] = []
    for unit in units:
        part.append(unit)
        if sum(map(len, part)) >= rows:
            yield part
            part = []
    if part:
        yield part
