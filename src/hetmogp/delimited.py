"""Text tables with a header: one file or many, read by the same code.

All cells are read as text, block by block. A first pass counts the rows and finds the type of each
column over all rows of all files. A second pass reads the cells as these types. So it does not
matter how a table is divided into files.
"""

import lzma
import re
import zipfile
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from .cells import TYPES, Cells, Kind, typed
from .files import UnreadableFileError

__all__ = ["COMPRESSED", "TextFile", "TextPart", "refuse_other_columns", "scan", "unreadable"]

COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".zip")
ARROWS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # of them, what Arrow decompresses
HEAD = 2**20  # bytes in which the header must lie
BLOCK = 2**23  # bytes that are read at a time; no row may be longer
BLANK_LINES = re.compile(rb"(?:[ \t]*[\r\n])*")
UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)
OTHER_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
NUMBERS = ("number", "number with a comma")
NOT_TEXT = "it is not text in UTF-8{}; save it as CSV UTF-8"


@dataclass(frozen=True)
class TextPart:
    """One file of a table, whose columns have the types found over all files.

    Attributes:
        file: the text file.
        rows: the number of rows.
        kinds: the types of the table's columns, in order.
        first: the position of its first row in the file.
    """

    file: "TextFile"
    rows: int
    kinds: Mapping[str, Kind]
    first: int = 0

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.file.path

    def to_table(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        schema = pa.schema([(name, TYPES[self.kinds[name]]) for name in columns])
        batches = [
            pa.record_batch([typed(block[n], self.kinds[n]) for n in columns], schema=schema)
            for block in self.file.blocks(columns)
        ]
        return pa.Table.from_batches(batches, schema)


def scan(paths: Sequence[Path], text: Collection[str] = ()) -> tuple[list[str], list[TextPart]]:
    """The columns of a table, and its files, from one pass over them.

    Args:
        paths: the files.
        text: columns that are read as text, even if they look like numbers.
    """
    files = [TextFile(path) for path in paths]
    refuse_other_columns(paths, [file.named for file in files])
    # With another separator, 1,500 may mean one thousand five hundred.
    commas = all(file.separator == ";" for file in files)
    cells = {name: Cells(commas) for file in files for name in file.names}
    rows = [_look_at(file, cells) for file in files]
    # A column without a name and without values is dropped: spreadsheets often add one.
    columns = {n: column for n, column in cells.items() if column.known or n in files[0].named}
    if not columns:
        raise unreadable(paths[0], "its columns have neither names nor values")
    refuse_other_columns(paths, [[n for n in file.names if n in columns] for file in files])
    points, others = (sum(kind in c.possible for c in columns.values()) for kind in NUMBERS)
    numbers = NUMBERS[others > points]
    kinds = {n: "text" if n in text else column.kind(numbers) for n, column in columns.items()}
    return list(kinds), [TextPart(file, n, kinds) for file, n in zip(files, rows, strict=True)]


def refuse_other_columns(paths: Sequence[Path], columns: Sequence[Collection[str]]) -> None:
    """Raise an error if a file lacks a column that another has; their order does not matter."""
    files = list(zip(paths, columns, strict=True))
    for file in files:
        for (has, names), (lacks, others) in ((files[0], file), (file, files[0])):
            for name in names:
                if name not in others:
                    raise unreadable(lacks, f"it has no column {name!r}, which {has} has")


def unreadable(path: Path, why: str) -> UnreadableFileError:
    """The error that says why a file cannot be read as part of the table."""
    return UnreadableFileError(f"cannot read {path} as a table: {why}")


def _look_at(file: "TextFile", cells: Mapping[str, Cells]) -> int:
    """Add the cells of a file to those seen so far, and count its rows."""
    rows, last = 0, ""
    for block in file.blocks():
        for name, column in zip(file.names, block.columns, strict=True):
            cells[name].add(column)
        rows += len(block)
        last = block.columns[-1][-1].as_py() if len(block) else last
    if file.longer and cells[file.names[-1]].known:
        raise unreadable(
            file.path,
            "its rows have more fields than its header has names, so it is unclear which belongs "
            "to which; name the first one too if it holds row names",
        )
    if ("\n" in last or "\r" in last) and file.last_byte() != b'"':
        raise unreadable(file.path, "a quotation mark is not closed")
    return rows


class TextFile:
    """A text file whose header has been read.

    Attributes:
        path: the path of the file.
        separator: the separator of columns: a comma, a semicolon or a tab.
        names: the names of the columns; one without a name is "Unnamed: 3", by its position.
        named: the names that are in the file.
        longer: whether rows have one field more than the header, because they end in a comma.
    """

    def __init__(self, path: Path):
        self.path = path
        with self._one_clear_error():
            self._content = _whole(path)
            head = self._stream().read(HEAD)
        complete = len(head) < HEAD
        if head.startswith(UTF16):
            raise unreadable(path, "it is text in UTF-16; save it in UTF-8")
        with self._one_clear_error():
            getincrementaldecoder("utf-8")().decode(head, final=complete)
        if b"\0" in head:
            raise unreadable(path, NOT_TEXT.format(""))
        lines = head.removeprefix(BOM_UTF8)
        lines = lines[BLANK_LINES.match(lines).end() :]  # type: ignore[union-attr]
        if not lines.strip():
            raise unreadable(path, "it is empty")
        self._begin = len(head) - len(lines)
        if complete:
            lines += b"\n"
        elif b"\n" in lines:
            lines = lines[: lines.rindex(b"\n") + 1]
        self.separator = _separator(path, lines)
        others: list[int] = []  # rows with another number of cells than the header

        def noted(row: csv.InvalidRow) -> str:
            others.append(row.actual_columns)
            return "skip"

        with self._one_clear_error():
            reader = csv.open_csv(
                pa.BufferReader(lines),
                read_options=csv.ReadOptions(use_threads=False, block_size=2 * HEAD),
                parse_options=self._parsing(noted),
            )
            names = [name.strip() for name in reader.schema.names]
            rows = reader.read_all().num_rows
        self._no_rows = complete and not rows and not others
        self.longer = not rows and set(others) == {len(names) + 1}
        names += [""] * self.longer
        self.names = [name or f"Unnamed: {k}" for k, name in enumerate(names)]
        self.named = [name for name in names if name]
        name, times = Counter(self.names).most_common(1)[0]
        if times > 1:
            raise unreadable(path, f"it has {times} columns called {name!r}")

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The cells of all columns, or of some, as text."""
        if self._no_rows:
            return
        with self._one_clear_error():
            stream = self._stream()
            stream.read(self._begin)
            yield from csv.open_csv(
                stream,
                read_options=csv.ReadOptions(
                    use_threads=False,  # so that errors have row numbers
                    block_size=BLOCK,
                    column_names=self.names,
                    skip_rows_after_names=1,
                ),
                parse_options=self._parsing(),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    include_columns=columns,
                    strings_can_be_null=False,
                ),
            )

    def last_byte(self) -> bytes:
        """The last byte that is not part of a line end."""
        stream, last = self._stream(), b""
        with self._one_clear_error():
            while block := stream.read(BLOCK):
                last = block.rstrip(b"\r\n")[-1:] or last
        return last

    def _stream(self) -> Any:
        if self._content is not None:
            return pa.BufferReader(self._content)
        kind = ARROWS.get(self.path.suffix.lower(), "detect")
        return pa.input_stream(str(self.path), compression=kind)

    def _parsing(self, other: Callable[[csv.InvalidRow], str] | None = None) -> csv.ParseOptions:
        """How cells are separated, and what happens to rows with too many or too few."""
        return csv.ParseOptions(
            delimiter=self.separator, newlines_in_values=True, invalid_row_handler=other
        )

    @contextmanager
    def _one_clear_error(self) -> Iterator[None]:
        """A context for reading, whose errors name the file."""
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no file {self.path}") from None
        except (OSError, ValueError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise unreadable(self.path, self._why(error)) from error

    def _why(self, error: Exception) -> str:
        """What is wrong, in words, from an error message of Arrow."""
        said = str(error)
        if isinstance(error, UnicodeDecodeError):
            line = 1 + error.object.count(b"\n", 0, error.start)
            return NOT_TEXT.format(f" (line {line})")
        if "invalid UTF8" in said:
            return NOT_TEXT.format("")
        if "straddling" in said:
            return f"a row is longer than {BLOCK >> 20} MB, or a quotation mark is not closed"
        if match := OTHER_WIDTH.search(said):
            row, names, cells = map(int, match.groups())
            what = "1 cell" if cells == 1 else f"{cells} cells"
            quote = "; is a quotation mark not closed?" if "\n" in said else ""
            at, header = self._line(row), f"its header has {names - self.longer} names"
            where = "" if at is None else f" (line {at} of the file)"
            return f"row {row - 2}{where} has {what}, {header}{quote}"
        return said.splitlines()[0] if said else type(error).__name__

    def _line(self, row: int) -> int | None:
        """The line of the file on which a row is, from 1; None where cells have line breaks."""
        for at, text in enumerate(BufferedReader(self._stream()), 1):
            if text.count(b'"') % 2:
                return None
            row -= bool(text.strip(b"\r\n"))
            if row == 0:
                return at
        return None


def _whole(path: Path) -> bytes | None:
    """The whole content of a file that can be read only once, or not decompressed in parts."""
    if path.suffix.lower() == ".xz":
        return lzma.open(path).read()
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            if len(archive.namelist()) != 1:
                raise ValueError(f"it holds {len(archive.namelist())} files; it should hold one")
            return archive.read(archive.namelist()[0])
    return path.read_bytes() if path.exists() and not path.is_file() else None


def _separator(path: Path, lines: bytes) -> str:
    """The separator of columns, from the header."""
    if ".tsv" in (suffix.lower() for suffix in path.suffixes[-2:]):
        return "\t"
    header = re.sub(r'"[^"]*"', "", re.split(rb"[\r\n]", lines, maxsplit=1)[0].decode("latin-1"))
    if "\t" in header and "," not in header and ";" not in header:
        return "\t"
    return ";" if 0 < header.count(";") >= header.count(",") else ","
