"""Files that are never half written, and files of numbers that tell when they were altered."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

__all__ = ["UnreadableFileError", "beside", "read_numbers", "write_numbers"]

LARGEST_HEADER = 2**26  # bytes; names and labels need a small part of it


class UnreadableFileError(ValueError):
    """A file that is damaged, or of another kind, or of a later version."""


@contextmanager
def beside(path: str | os.PathLike) -> Iterator[Path]:
    """A file to write, which takes the place of another once all of it is there.

    It has the same ending, by which some libraries tell what to write. Should anything go wrong,
    what was there before is untouched and nothing is left behind. A link is followed; a device or
    a pipe is written to as it is.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    partial = target.with_name(f".{os.getpid()}.partial.{target.name}")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def write_numbers(
    path: str | os.PathLike,
    kind: str,
    version: int,
    facts: Mapping[str, Any],
    numbers: Mapping[str, np.ndarray],
) -> None:
    """Write a safetensors file with a JSON description and the SHA-256 of all that is in it.

    Args:
        path: where to; never half written.
        kind: of file, such as "model".
        version: of the format.
        facts: what JSON can hold.
        numbers: arrays by name.
    """
    tensors = {name: np.array(array, order="C") for name, array in numbers.items()}
    metadata = {
        "format": _format(kind),
        "version": str(version),
        kind: json.dumps(facts, allow_nan=False),
    }
    metadata["sha256"] = _digest(metadata, kind, tensors)
    with beside(path) as partial:
        partial.write_bytes(to_bytes(tensors, metadata))


def read_numbers(
    path: Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What was written, checked against its digest; nothing found in it is run.

    Args:
        path: the file.
        kind: of file expected.
        version: the latest that can be read.

    Raises:
        UnreadableFileError: where the file holds nothing of the kind, or not what was written.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {what}")
    with open(path, "rb") as file:
        begin = file.read(8)
    header = int.from_bytes(begin, "little")
    if len(begin) < 8 or header > min(path.stat().st_size - 8, LARGEST_HEADER):
        raise UnreadableFileError(f"{path} is not a hetmogp {kind}, or was cut short")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            found = metadata.get("version", "")
            if metadata.get("format") != _format(kind) or not found.isdecimal():
                raise UnreadableFileError(f"{path} is not a hetmogp {kind}")
            if int(found) > version:
                raise UnreadableFileError(
                    f"{path} has format {found}, of a later version; this one reads up to "
                    f"{version}: upgrade hetmogp to read it"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (
        *(SafetensorError, UnicodeDecodeError, TypeError, KeyError, OSError, MemoryError),
    ) as error:
        raise UnreadableFileError(
            f"{path} is not a hetmogp {kind}, or is damaged: {error}"
        ) from None
    if kind not in metadata or metadata.get("sha256") != _digest(metadata, kind, tensors):
        raise UnreadableFileError(f"{path} is damaged: its content does not match its checksum")
    try:
        return json.loads(metadata[kind]), tensors
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{path} describes no {kind}: {error}") from None


def _format(kind: str) -> str:
    return "hetmogp" if kind == "model" else f"hetmogp {kind}"  # models were there first


def _digest(metadata: Mapping[str, str], kind: str, tensors: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of everything in the file but itself."""
    total = hashlib.sha256()
    for key in ("format", "version", kind):
        total.update(f"{key}\n{metadata[key]}\n".encode())
    for name in sorted(tensors):
        total.update(f"{name}\n{tensors[name].dtype.str}\n{tensors[name].shape}\n".encode())
        total.update(np.ascontiguousarray(tensors[name]).data)
    return total.hexdigest()
