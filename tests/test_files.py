"""Files that are never half written: two writers, planted links, permissions, full disks."""

import errno
import os
import stat
import threading
import time

import numpy as np
import pandas as pd
import pytest

from hetmogp import files
from hetmogp.disk import Table
from hetmogp.files import UnreadableFileError, read_numbers, temporary_file, write_numbers

DEAD = 4_194_305  # one more than the largest number that Linux gives a process


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_two_writers_of_one_file_never_mix(tmp_path):
    """Files of different sizes, so that any mixture is damaged."""
    path, done = tmp_path / "m.numbers", threading.Event()
    write_numbers(path, "test", 1, {"writer": 0}, {"a": np.zeros(10)})

    def write(k):
        for _ in range(40):
            write_numbers(path, "test", 1, {"writer": k}, {"a": np.full(2000 * (k + 1), k)})

    found = []

    def read():
        while not done.is_set():
            try:
                facts, numbers = read_numbers(path, "test", 1)
                found.append((numbers["a"] == facts["writer"]).all())
            except UnreadableFileError as error:
                found.append(error)

    writers = [threading.Thread(target=write, args=(k,)) for k in (1, 2)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert len(found) > 5
    assert set(found) == {True}
    assert os.listdir(tmp_path) == ["m.numbers"]


def test_a_planted_link_is_not_written_through(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "ab" * n)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with temporary_file(tmp_path / "m.csv") as partial:
        name = partial.name
    (tmp_path / "m.csv").unlink()
    (tmp_path / name).symlink_to(victim)
    with (
        pytest.raises(FileExistsError, match=r"m\.csv"),
        temporary_file(tmp_path / "m.csv") as partial,
    ):
        partial.write_text("theirs")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "m.csv").exists()


@pytest.mark.parametrize("old", [0o600, 0o640, 0o444, 0o666])
def test_permissions_are_kept(tmp_path, umask, old):
    path = tmp_path / "m"
    path.write_text("old")
    path.chmod(old)
    with temporary_file(path) as partial:
        assert mode(partial) == 0o600  # nobody else reads it meanwhile
        partial.write_text("new")
    assert path.read_text() == "new"
    assert mode(path) == old


def test_a_new_file_has_the_permissions_that_the_umask_gives(tmp_path, umask):
    with temporary_file(tmp_path / "m") as partial:
        partial.write_text("new")
    assert mode(tmp_path / "m") == 0o666 & ~umask


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with temporary_file(tmp_path / "link") as partial:
        partial.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("ending", [".hetmogp", ".parquet", "." + "é" * 100, ""])
def test_a_name_of_255_bytes_can_be_written(tmp_path, ending):
    path = tmp_path / ("a" * (255 - len(os.fsencode(ending))) + ending)
    with temporary_file(path) as partial:
        assert partial.suffix in (ending, ".partial")
        partial.write_text("all")
    assert path.read_text() == "all"
    assert len(os.listdir(tmp_path)) == 1


def test_temporary_files_are_no_part_of_a_table(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    with temporary_file(tmp_path / "b.csv") as partial:
        partial.write_text("x,y\n1,")
        assert partial.suffix == ".csv"  # by which libraries know what to write
        assert len(Table(tmp_path, inputs=["x"])) == 2


# -- what killed processes have left ---------------------------------------------------------------


OLD = 2 * files.ABANDONED


@pytest.mark.parametrize(
    ("name", "age", "stays"),
    [
        ("{dead}-0123456789abcdef.partial.csv", OLD, False),
        ("{dead}-0123456789abcdef.partial", OLD, False),
        ("{dead}-0123456789abcdef.partial", 60, True),  # maybe of another machine
        ("{alive}-0123456789abcdef.partial", OLD, True),
        ("{dead}-notes.partial", OLD, True),
        ("{dead}-0123456789abcdef.csv", OLD, True),
    ],
)
def test_abandoned_temporary_files_are_removed(tmp_path, name, age, stays):
    left = tmp_path / f".hetmogp-{name.format(dead=DEAD, alive=os.getpid())}"
    left.write_text("half")
    os.utime(left, (time.time() - age,) * 2)
    with temporary_file(tmp_path / "m") as partial:
        partial.write_text("all")
    assert left.exists() == stays


def test_an_abandoned_link_is_removed_and_not_what_it_leads_to(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    left = tmp_path / f".hetmogp-{DEAD}-0123456789abcdef.partial"
    left.symlink_to(victim)
    os.utime(left, (0, 0), follow_symlinks=False)
    with temporary_file(tmp_path / "m") as partial:
        partial.write_text("all")
    assert not left.is_symlink()
    assert victim.read_text() == "precious"


# -- disks that do not do what is asked ------------------------------------------------------------


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyError("x")])
def test_after_an_error_everything_is_as_before(tmp_path, fault):
    path = tmp_path / "m"
    path.write_text("old")

    def write():
        with temporary_file(path) as partial:
            partial.write_text("half")
            raise fault

    with pytest.raises(type(fault)):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["m"]


def test_a_full_disk_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "m.csv"
    with pytest.raises(OSError, match="No space left") as caught, temporary_file(path):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")  # as pyarrow says it
    assert caught.value.filename == str(path)
    with (
        pytest.raises(OSError, match="No space left") as caught,
        temporary_file("/dev/full") as device,
    ):
        pd.DataFrame({"x": range(10)}).to_csv(device)
    assert caught.value.filename == "/dev/full"


def test_a_folder_that_is_not_there_is_told_by_the_file(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"'[^']*/none/m\.csv'$"),
        temporary_file(tmp_path / "none" / "m.csv"),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable_is_told_by_the_file(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match=r"/m\.csv'$"), temporary_file(tmp_path / "m.csv"):
        pass


def test_an_error_about_another_file_is_left_as_it_is(tmp_path):
    with pytest.raises(FileNotFoundError, match="other") as caught, temporary_file(tmp_path / "m"):
        (tmp_path / "other").read_text()
    assert caught.value.filename == str(tmp_path / "other")
    missing = OSError(errno.ENOENT, "Failed to open local file 'part.parquet'")  # pyarrow's
    with pytest.raises(FileNotFoundError, match=r"part\.parquet"), temporary_file(tmp_path / "m"):
        raise missing


def test_file_and_folder_are_flushed(tmp_path, monkeypatch):
    flushed = []
    flush = os.fsync

    def watch(descriptor):
        flushed.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    with temporary_file(tmp_path / "m") as partial:
        partial.write_text("all")
    assert flushed == [False, True]


# -- descriptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["9" * 5000, "٣", "-1", "1.0", "01", ""])
def test_a_version_is_a_short_number(tmp_path, version):
    path = tmp_path / "m"
    write_numbers(path, "test", version, {}, {"a": np.zeros(1)})
    with pytest.raises(UnreadableFileError, match=r"is not a hetmogp test$"):
        read_numbers(path, "test", 1)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_description_holds_finite_numbers(tmp_path, number, monkeypatch):
    path = tmp_path / "m"
    monkeypatch.setattr(files.json, "dumps", lambda *_, **__: f'{{"a": {number}}}')
    write_numbers(path, "test", 1, {}, {"a": np.zeros(1)})
    with pytest.raises(UnreadableFileError, match="not a finite number"):
        read_numbers(path, "test", 1)


def test_a_folder_is_not_written_to(tmp_path):
    with (
        pytest.raises(IsADirectoryError, match="it is a folder; name a file in it"),
        temporary_file(tmp_path),
    ):
        pass
