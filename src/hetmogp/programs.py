"""A cache of compiled programs, so that a second process need not compile them again.

The cache is the folder `hetmogp/xla` of the user's cache. Programs are added only while this
package computes. `HETMOGP_CACHE=off` turns it off, and a cache that the user has set in JAX is used
instead.

A program from the cache must be the one that would be compiled. JAX names each by a digest of the
program, the versions of jaxlib and XLA, the compiler's options and the kind of device. It does not
promise different names for different CPUs, and a home folder may be shared between machines. So
each kind of CPU has its own folder. Whoever can write to it can run code here, so a folder that
belongs to another user, or that others may write to, is not used.
"""

import hashlib
import os
import platform
import re
import stat
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from . import jax_private
from .files import temporary_file

__all__ = ["SHORTEST", "Programs", "begin", "end"]

SHORTEST = 0.02  # programs that took at least this many seconds to compile are kept
MOST_BYTES = 2**28  # of all programs together; the least recently used are removed first
SWEEP_BYTES = 2**24  # written before the size of the cache is checked again
QUIET = (0, 10, 2)  # earlier jaxlibs warn of every program that they read, on many CPUs
OF_A_CPU = {"vendor_id", "cpu family", "model", "flags"} | {
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features")
}


class Programs:
    """A folder of compiled programs, with the interface that JAX needs.

    An error of the disk does not matter: the program is compiled instead.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder
        self._unseen = SWEEP_BYTES  # bytes written since the last check; the first is due

    def get(self, key: str) -> bytes | None:
        """The program of that name, if it is in the cache."""
        try:
            content = (self._path / key).read_bytes()
            os.utime(self._path / key)  # mark it as used
        except OSError:
            return None
        return content

    def put(self, key: str, value: bytes) -> None:
        """Add a program to the cache."""
        with suppress(OSError):
            with temporary_file(self._path / key) as partial:
                partial.write_bytes(value)
            self._unseen += len(value)
            if self._unseen > SWEEP_BYTES:
                self._unseen = 0
                _let_go(self._path.parent)


def _let_go(folder: Path) -> None:
    """Remove the least recently used programs, including those of other CPUs and versions."""
    found = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may have removed the file
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode):
                found.append((facts.st_mtime, facts.st_size, path))
    room = MOST_BYTES
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            path.unlink(missing_ok=True)


def begin() -> Programs | None:
    """Cache the programs that are compiled from now on, unless the user has turned it off."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    unwanted = os.environ.get("HETMOGP_CACHE") == "off" or not os.path.isabs(home)
    if unwanted or jax_private.has_cache():
        return None
    programs = _in_folder(Path(home) / "hetmogp" / "xla")
    if programs is not None:
        jax_private.set_cache(programs)
    return programs


def end(programs: Programs) -> None:
    """Stop caching programs."""
    if jax_private.cache() is programs:
        jax_private.set_cache(None)


@cache
def _in_folder(folder: Path) -> Programs | None:
    """The cache for this CPU, or None if there can be none."""
    if tuple(map(int, re.findall(r"\d+", version("jaxlib"))[:3])) < QUIET:
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
    """The model and the features of this CPU, as text."""
    words = [platform.machine(), platform.processor()]
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                break  # all others are of the same kind
            name, _, value = line.partition(":")
            words += [value.strip()] if name.strip() in OF_A_CPU else []
    return "\n".join(words)
