"""Files that are never half written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["beside"]


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
