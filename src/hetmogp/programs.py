"""Compiled programs, kept in the user's cache: a second process need not compile them again.

They are kept while this package computes and at no other time, in the folder `hetmogp/xla` of the
user's cache. `HETMOGP_CACHE=off` turns that off, and a cache that JAX was told of takes its place.

A program that is read must be the one that would be compiled. JAX names each by a digest of the
program, the versions of jaxlib and XLA, the compiler's options and the kind of device. It does not
promise that two kinds of CPU differ in that, and a home folder may be shared between machines. So
each kind of CPU has a folder of its own. Whoever can write there can run code here: a folder that
belongs to another user, or that others may write to, is not used.
"""

import hashlib
import os
import platform
import stat
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from . import jax_private
from .files import temporary_file

__all__ = ["SHORTEST", "Programs", "begin", "end"]

SHORTEST = 0.02  # seconds of compiling that are worth a file
MOST_BYTES = 2**28  # of all programs together; those that were not used for longest go first
SWEEP_BYTES = 2**24  # written between two looks at the size of all: a look takes milliseconds
QUIET = (0, 10, 2)  # jaxlib before this complains of every program that it reads, on many CPUs
OF_A_CPU = {"vendor_id", "cpu family", "model", "flags"} | {
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features")
}


class Programs:
    """A folder of compiled programs, as JAX asks for them.

    Trouble with the disk is no error: the program is compiled.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder
        self._unseen = SWEEP_BYTES  # bytes written since the last look, which is due

    def get(self, key: str) -> bytes | None:
        """The program of that name, if it was kept."""
        try:
            content = (self._path / key).read_bytes()
            os.utime(self._path / key)  # it was used
        except OSError:
            return None
        return content

    def put(self, key: str, value: bytes) -> None:
        """Keep a program."""
        with suppress(OSError):
            with temporary_file(self._path / key) as partial:
                partial.write_bytes(value)
            self._unseen += len(value)
            if self._unseen > SWEEP_BYTES:
                self._unseen = 0
                _let_go(self._path.parent)


def _let_go(folder: Path) -> None:
    """Remove the programs that were not used for longest, of other CPUs and versions too."""
    found = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may have removed it
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode):
                found.append((facts.st_mtime, facts.st_size, path))
    room = MOST_BYTES
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            path.unlink(missing_ok=True)


def begin() -> Programs | None:
    """Keep what is compiled from now on, unless the user wants it otherwise."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    unwanted = os.environ.get("HETMOGP_CACHE") == "off" or not os.path.isabs(home)
    if unwanted or jax_private.has_cache():
        return None
    programs = _in_folder(Path(home) / "hetmogp" / "xla")
    if programs is not None:
        jax_private.set_cache(programs)
    return programs


def end(programs: Programs) -> None:
    """Keep nothing more."""
    if jax_private.cache() is programs:
        jax_private.set_cache(None)


@cache
def _in_folder(folder: Path) -> Programs | None:
    """The programs for this CPU, or None where they cannot be kept."""
    if tuple(map(int, version("jaxlib").split(".")[:3])) < QUIET:
        return None
    mine = folder / hashlib.sha256(_cpu().encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mine.mkdir(mode=0o700, exist_ok=True)
        facts = mine.stat()
    except OSError:
        return None
    if os.name == "posix" and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
        return None
    return Programs(mine) if os.access(mine, os.R_OK | os.W_OK | os.X_OK) else None


def _cpu() -> str:
    """What this CPU is and can do, in words."""
    words = [platform.machine(), platform.processor()]
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                break  # the next one is of the same kind
            name, _, value = line.partition(":")
            words += [value.strip()] if name.strip() in OF_A_CPU else []
    return "\n".join(words)
