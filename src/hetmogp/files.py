"""Write files completely or not at all, and files of numbers with a checksum."""

import errno
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

__all__ = [
    "UnreadableFileError",
    "read_numbers",
    "refuse_folder",
    "temporary_file",
    "write_numbers",
]

LARGEST_HEADER = 2**26  # bytes; names and labels need far less
LONGEST_ENDING = 32  # bytes; with the rest of a temporary name far below a file system's 255
TEMPORARY = re.compile(r"\.hetmogp-([1-9]\d{0,6})-[0-9a-f]{16}\.partial(\..*)?")
VERSIONS = re.compile(r"[1-9][0-9]{0,8}")
ABANDONED = 3600.0  # seconds without a write, after which the file of a dead process is removed
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EPIPE)


class UnreadableFileError(ValueError):
    """A file that is damaged, of another kind, or of a later version."""


@contextmanager
def temporary_file(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary file in the same folder, which replaces the target when it is complete.

    It has the target's ending, from which some libraries infer the format, and a random name that
    no other writer uses. If anything goes wrong, the target is unchanged and the temporary file is
    removed. The target's permissions are kept. A link is followed; a device or a pipe is written to
    directly. An error of the disk names the target.
    """
    refuse_folder(path)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with _naming(path, target):
            yield target
        return
    known = target.stat().st_mode & 0o777 if target.exists() else None
    partial = target.with_name(f".hetmogp-{os.getpid()}-{secrets.token_hex(8)}.partial")
    if len(os.fsencode(target.suffix)) <= LONGEST_ENDING:
        partial = partial.with_name(partial.name + target.suffix)
    with _naming(path, partial):
        try:
            # Exclusive, so that an existing file or link of this name is never written to; and
            # never readable by more people than the file that it replaces.
            new = os.O_CREAT | os.O_EXCL | os.O_WRONLY
            os.close(os.open(partial, new, 0o666 if known is None else 0o600))
            _remove_abandoned(partial)
            yield partial
            if known is not None:
                os.chmod(partial, known)
            _flush(partial)
            os.replace(partial, target)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    with suppress(OSError):  # the file is in place; not every file system can flush folders
        _flush(target.parent)


def refuse_folder(path: str | os.PathLike) -> None:
    """Raise an error if a file that is to be written is a folder."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file in it")


@contextmanager
def _naming(path: str | os.PathLike, written: Path) -> Iterator[None]:
    """Make errors about the temporary file name the target instead."""
    try:
        yield
    except OSError as error:
        code, about = error.errno, f"{error.filename} {error.strerror}"
        if code is None or (str(written) not in about and code not in NO_ROOM):
            raise  # about another file, which may be read at the same time
        raise OSError(code, os.strerror(code), os.fspath(path)) from error


def _flush(path: Path) -> None:
    """Flush a file, or the list of files of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_abandoned(mine: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder.

    A process on another machine, or in another container, may share the folder and looks dead from
    here. Its files are kept as long as it writes to them from time to time. Both times that are
    compared come from the file system, whose clock may differ from this machine's.
    """
    with suppress(OSError):
        now = mine.stat().st_mtime
        for entry in os.scandir(mine.parent):
            if (match := TEMPORARY.fullmatch(entry.name)) is None:
                continue
            with suppress(OSError):
                still = now - entry.stat(follow_symlinks=False).st_mtime
                if still > ABANDONED and not _is_alive(int(match[1])):
                    os.unlink(entry.path)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # on Windows this call would end the process
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # a process of another user
    return True


def write_numbers(
    path: str | os.PathLike,
    kind: str,
    version: int,
    facts: Mapping[str, Any],
    numbers: Mapping[str, np.ndarray],
) -> None:
    """Write a safetensors file with a JSON description and a SHA-256 checksum of its content.

    Args:
        path: the file; it is written completely or not at all.
        kind: the kind of file, such as "model".
        version: the version of the format.
        facts: the description, as values that JSON can hold.
        numbers: arrays by name.
    """
    tensors = {name: np.array(array, order="C") for name, array in numbers.items()}
    metadata = {
        "format": _format(kind),
        "version": str(version),
        kind: json.dumps(facts, allow_nan=False),
    }
    metadata["sha256"] = _digest(metadata, kind, tensors)
    with temporary_file(path) as partial:
        partial.write_bytes(to_bytes(tensors, metadata))


def read_numbers(
    path: Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The content of a file, checked against its checksum; nothing in it is executed.

    Args:
        path: the file.
        kind: the expected kind of file.
        version: the latest version that can be read.

    Raises:
        UnreadableFileError: if the file is of another kind or damaged.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {what}")
    with open(path, "rb") as file:
        begin, size = file.read(8), os.fstat(file.fileno()).st_size
    header = int.from_bytes(begin, "little")
    if len(begin) < 8 or header > min(size - 8, LARGEST_HEADER):
        raise UnreadableFileError(f"{path} is not a hetmogp {kind}, or was cut short")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            written = metadata.get("version", "")
            if metadata.get("format") != _format(kind) or not VERSIONS.fullmatch(written):
                raise UnreadableFileError(f"{path} is not a hetmogp {kind}")
            if int(written) > version:
                raise UnreadableFileError(
                    f"{path} has format {written}, of a later version; this one reads up to "
                    f"{version}: upgrade hetmogp to read it"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (
        *(SafetensorError, UnicodeDecodeError, TypeError, KeyError, OSError, MemoryError),
        AttributeError,  # a type of number that NumPy lacks
    ) as error:
        raise UnreadableFileError(
            f"{path} is not a hetmogp {kind}, or is damaged: {error}"
        ) from None
    if kind not in metadata or metadata.get("sha256") != _digest(metadata, kind, tensors):
        raise UnreadableFileError(f"{path} is damaged: its content does not match its checksum")
    try:
        return json.loads(metadata[kind], parse_float=_finite, parse_constant=_finite), tensors
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{path} describes no {kind}: {error}") from None


def _finite(text: str) -> float:
    """A finite number of a description; Python's JSON reader would accept NaN and 1e999."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _format(kind: str) -> str:
    return "hetmogp" if kind == "model" else f"hetmogp {kind}"  # as in the first format


def _digest(metadata: Mapping[str, str], kind: str, tensors: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 checksum of everything else in the file."""
    total = hashlib.sha256()
    for key in ("format", "version", kind):
        total.update(f"{key}\n{metadata[key]}\n".encode())
    for name in sorted(tensors):
        total.update(f"{name}\n{tensors[name].dtype.str}\n{tensors[name].shape}\n".encode())
        total.update(np.ascontiguousarray(tensors[name]).data)
    return total.hexdigest()
