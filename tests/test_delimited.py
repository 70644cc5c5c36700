"""Text tables: the same frame from a file and from its folder, or one clear error; never a hang."""

import bz2
import csv
import gzip
import io
import lzma
import math
import os
import threading
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hetmogp as hm
from hetmogp import delimited
from hetmogp.cells import MISSING
from hetmogp.files import UnreadableFileError

quick = settings(max_examples=50, deadline=None, database=None, derandomize=True)

# -- an oracle: what cells are, one by one, in plain Python ----------------------------------------

WORDS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


def is_missing(cell):
    return cell.strip() in MISSING


def plain(cell):
    """A cell that Python must not read in its own ways, such as 1_000."""
    if not cell.isascii() or "_" in cell:
        raise ValueError
    return cell


def as_whole(cell):
    number = int(plain(cell))
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def as_number(cell):
    found = float(plain(cell))
    if math.isnan(found):
        raise ValueError
    return found


def as_word(cell):
    if cell not in WORDS:
        raise ValueError
    return WORDS[cell]


def expected(cells):
    """The kind of a column, and its values, None where they are missing."""
    for kind, read in (("i", as_whole), ("f", as_number), ("b", as_word)):
        try:
            found = [None if is_missing(cell) else read(cell.strip()) for cell in cells]
        except ValueError:
            continue
        if kind != "i" or None not in found:
            return kind, found
    return "t", [None if is_missing(cell) else cell for cell in cells]


def kind_of(column):
    if column.dtype.kind in "bif":
        return column.dtype.kind
    return "b" if all(isinstance(value, bool) for value in column.dropna()) else "t"


def values_of(column):
    return [None if pd.isna(value) else value for value in column.tolist()]


numbers = st.one_of(
    st.integers(-(10**4), 10**4).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False).map(repr),
    st.sampled_from(["+1", "-.5", "5.", "1e5", "+1E-3", " 2 ", "007", "inf", "-Infinity", "1e999"]),
)
odd = st.sampled_from(
    ["0x1F", "1_000", "1,5", "NAN", "-nan", "+-1", "+", ".", "e", "١٢", "None", "- 1", "1 2"]
)
yes_or_no = st.sampled_from(list(WORDS))
missing = st.sampled_from([*MISSING, " ", " NA "])
labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
kinds = (
    numbers,
    st.one_of(numbers, missing),
    st.one_of(yes_or_no, missing),
    missing,
    st.one_of(labels, missing),
    st.one_of(numbers, odd, yes_or_no, labels, missing),
)
columns = st.one_of(*(st.lists(one, min_size=1, max_size=6) for one in kinds))


@st.composite
def tables(draw):
    found = draw(st.lists(columns, min_size=1, max_size=3))
    rows = max(map(len, found))
    return {f"c{k}": (cells * rows)[:rows] for k, cells in enumerate(found)}


def text_of(table, rows=slice(None), separator=",", crlf=False):
    out = io.StringIO()
    bare = crlf and len(table) > 1  # of one column the header does not tell the separator
    quoting: Any = csv.QUOTE_MINIMAL if bare else csv.QUOTE_ALL
    ending = "\r\n" if crlf else "\n"
    writer = csv.writer(out, delimiter=separator, lineterminator=ending, quoting=quoting)
    writer.writerow(table)
    writer.writerows(list(zip(*table.values(), strict=True))[rows])
    return out.getvalue().encode()


def frame_of(*contents, name=".csv", text=()):
    """The frame of a table that is cut into files."""
    with TemporaryDirectory() as folder:
        for k, content in enumerate(contents):
            (Path(folder) / f"{k}{name}").write_bytes(content)
        source = Path(folder) if len(contents) > 1 else Path(folder) / f"0{name}"
        table = hm.Table(source, inputs=[], text=text)
        found = table.whole()
        assert len(table) == len(found)
        pd.testing.assert_frame_equal(pd.concat(table.frames(table.columns)), found)
        return found


@quick
@given(tables(), st.integers(0, 6), st.sampled_from([",", ";", "\t"]), st.booleans())
@example({"c0": ["1"] * 3 + ["1.5"]}, 3, ",", False)
@example({"c0": ["a", "", "b", "NA"]}, 2, ",", True)
@example({"c0": ["True", "", "false"]}, 1, ",", True)
def test_a_table_is_the_same_however_it_is_cut_into_files(table, cut, separator, crlf):
    shape = {"separator": separator, "crlf": crlf}
    name = ".tsv" if separator == "\t" else ".csv"
    whole = frame_of(text_of(table, **shape), name=name)
    turned = dict(reversed(table.items()))
    parts = (text_of(table, slice(cut), **shape), text_of(turned, slice(cut, None), **shape))
    pd.testing.assert_frame_equal(frame_of(*parts, name=name), whole)
    for column, cells in table.items():
        if separator == ";" and "," in "".join(cells):
            continue  # a comma may be the decimal mark
        assert (kind_of(whole[column]), values_of(whole[column])) == expected(cells)
    as_text = frame_of(*parts, name=name, text=list(table))
    for column, cells in table.items():
        assert values_of(as_text[column]) == [None if is_missing(c) else c for c in cells]


@quick
@given(st.one_of(st.binary(max_size=60), st.text('a1.,;"\t\n\r\ufeff \0', max_size=60)))
@example(b'a,b\n1,"2\n3,4\n')
@example("a,b\n1,2\n".encode("utf-16"))
@example(b"a,b")
@example(b"\r")
@example(b'""\r"')
@example(b"a,b\n1,2\n\xff\n")
@pytest.mark.parametrize("name", [".csv", ".csv.gz", ".csv.zip", ".csv.xz", ".tsv", ".parquet"])
def test_any_bytes_are_a_table_or_one_clear_error(name, content):
    content = content.encode() if isinstance(content, str) else content
    found, said = None, ""
    try:
        found = frame_of(content, name=name)
    except ValueError as error:
        said = str(error)
    if found is None:
        assert "0" + name in said
        assert len(said.splitlines()) == 1
    else:
        assert len(found)
        assert len(set(found.columns)) == found.shape[1]


# -- what is decided where -------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """A header is looked for in a kilobyte, and four are read at a time."""
    monkeypatch.setattr(delimited, "HEAD", 2**10)
    monkeypatch.setattr(delimited, "BLOCK", 2**12)


def test_a_type_is_decided_by_all_rows(small):
    whole = b"x,y\n" + b"1234,a\n" * 5000
    assert kind_of(frame_of(whole)["x"]) == "i"
    found = frame_of(whole + b"1.5,a\n")
    assert kind_of(found["x"]) == "f"
    assert found["x"].tolist() == [1234.0] * 5000 + [1.5]
    assert frame_of(whole, b"y,x\na,n.d.\n")["x"].tolist() == ["1234"] * 5000 + ["n.d."]


def test_memory_is_that_of_a_few_blocks(small, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"x,y\n" + b"1234,some words\n" * 300_000)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for block in delimited.TextFile(tmp_path / "t.csv").blocks():
        most, rows = max(most, pa.total_allocated_bytes() - before), rows + len(block)
    assert rows == 300_000
    assert most < (tmp_path / "t.csv").stat().st_size / 8


def test_empty_cells_and_na_are_no_class_of_their_own(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "0,a\n1,\n2,b\n3,NA\n" * 5)
    for source in (tmp_path, tmp_path / "t.csv"):
        frame = hm.Table(source, inputs=["x"]).whole()
        assert sorted(frame["y"].dropna().unique()) == ["a", "b"]
        assert frame["y"].isna().sum() == 10


@pytest.mark.parametrize("mark", [",", "."])
def test_a_decimal_mark_is_decided_by_all_files(mark):
    parts = (b"x;y\n1;2\n", f"x;y\n1{mark}5;4\n".encode())
    assert frame_of(*parts).to_dict("list") == {"x": [1.0, 1.5], "y": [2, 4]}
    assert kind_of(frame_of(b"x;y\n1,5;1.5\n")["x"]) == "t"  # which of them is one?
    assert kind_of(frame_of(b'x,y\n"1,500",1\n')["x"]) == "t"  # a thousand, where commas separate


def test_a_separator_is_not_looked_for_inside_quotes():
    assert frame_of(b'"a;b",c\n1,2\n').to_dict("list") == {"a;b": [1], "c": [2]}
    assert frame_of(b"a\tb\n1\t2\n", name=".txt").to_dict("list") == {"a": [1], "b": [2]}


def test_names_are_trimmed_and_columns_without_one_are_called_by_their_place():
    found = frame_of(b"\xef\xbb\xbf\r\n , x ,\r\n7,1,\r\n8,2,\r\n")
    assert found.to_dict("list") == {"Unnamed: 0": [7, 8], "x": [1, 2]}


def test_rows_that_end_in_a_comma_belong_to_files_that_do_not():
    assert frame_of(b"x,y\n1,2,\n", b"x,y\n3,4\n", b"x,y\n").to_dict("list") == {
        "x": [1, 3],
        "y": [2, 4],
    }


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([b"a,b\n1,2\n", b"b,c\n1,2\n"], r"1\.csv as a .* no column 'a', which .*0\.csv has"),
        ([b"b\n1\n", b"a,b\n1,2\n"], r"0\.csv as a .* no column 'a', which .*1\.csv has"),
        ([b"a,b, a\n1,2,3\n"], "it has 2 columns called 'a'"),
        (
            [b"a,b\n1,2\n3,4,\n"],
            r"row 1 \(line 3 of the file\) has 3 cells, its header has 2 names$",
        ),
        (
            [b"a,b\n1,2,\n3,4\n"],
            r"row 0 \(line 2 of the file\) has 3 cells, its header has 2 names$",
        ),
        (
            [b"a,b\n\n1,2\n\n3\n"],
            r"row 1 \(line 5 of the file\) has 1 cell, its header has 2 names$",
        ),
        ([b'a,b,c\n1,2,"3\n4,5,6\n'], "a quotation mark is not closed"),
        ([b'a,b,c\n1,"2,3\n4,5,6\n'], r"row 0 has 2 cells.*is a quotation mark not closed\?"),
        ([b"r,a\n1,2,3\n4,5,6\n"], "more fields than its header has names"),
        ([b""], "it is empty"),
        ([b"\r\n \n"], "it is empty"),
        ([b",\n,\n"], "neither names nor values"),
        (["a,b\n1,2\n".encode("utf-16")], "it is text in UTF-16; save it in UTF-8"),
        (
            ["a,\u00e9\n1,2\n".encode("latin-1")],
            r"it is not text in UTF-8 \(line 1\); save it as CSV",
        ),
        (["a\n\u00e9\n1\n".encode("latin-1")], r"UTF-8 \(line 2\)"),
        ([b"a,b\n" + b"1,2\n" * 900 + b"1,\xe9\n"], "it is not text in UTF-8"),
        (
            [b"a,b\n" + b"1,2\n" * 900 + b"1,\xe9,3\n"],
            r"row 900 \(line 902 of the file\) has 3 cells",
        ),
        ([b"\0\1\2\3"], "it is not text in UTF-8"),
        ([b"a\n" + b"1" * 20_000 + b"\n"], "a row is longer than .* MB, or a quotation mark"),
    ],
)
def test_what_is_no_table_is_told(small, parts, message):
    with pytest.raises(UnreadableFileError, match=message):
        frame_of(*parts)


def test_a_header_without_rows_is_no_table():
    for content in (b"a,b", b"a,b\n"):
        with pytest.raises(ValueError, match="has no rows"):
            frame_of(content)


# -- where text comes from -------------------------------------------------------------------------


def zipped(content, files=1):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for k in range(files):
            archive.writestr(f"{k}.csv", content)
    return out.getvalue()


COMPRESS: dict[str, Any] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
    ".xz": lzma.compress,
    ".zip": zipped,
}


@pytest.mark.parametrize("ending", delimited.COMPRESSED)
def test_compressed_files_are_read_and_those_cut_short_are_told(ending):
    table = {"x": list(map(str, range(500))), "y": ["a", "b"] * 250}
    content = text_of(table)
    whole = COMPRESS[ending](content)
    for name in (".csv" + ending, (".csv" + ending).upper()):
        pd.testing.assert_frame_equal(frame_of(whole, name=name), frame_of(content))
    pd.testing.assert_frame_equal(
        frame_of(whole, COMPRESS[ending](text_of(table, slice(0))), name=".csv" + ending),
        frame_of(content),
    )
    for broken in (whole[: len(whole) // 2], whole[:-3], content):
        with pytest.raises(UnreadableFileError, match=rf"0\.csv\{ending} as a table"):
            frame_of(broken, name=".csv" + ending)


def test_a_zip_holds_one_file():
    with pytest.raises(UnreadableFileError, match="it holds 2 files; it should hold one"):
        frame_of(zipped(b"a\n1\n", 2), name=".zip")


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[b"a,b\n1,x\n"])
    writer.start()
    found = hm.Table(tmp_path / "pipe", inputs=[]).whole()
    writer.join(timeout=30)
    assert found.to_dict("list") == {"a": [1], "b": ["x"]}


def test_a_file_that_changes_after_it_was_looked_at_is_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    table = hm.Table(path, inputs=[])
    path.write_text("a\nx\n")
    with pytest.raises(OSError, match=r"t\.csv can no longer be read"):
        table.whole()
    path.write_text("a\n1\n2\n")
    with pytest.raises(OSError, match=r"t\.csv had 1 rows here and now has 2"):
        table.whole()
    path.unlink()
    with pytest.raises(OSError, match="there is no file"):
        table.whole()
