"""Checkpoints: save a fit in a folder while it runs, and resume one that was killed.

A resumed run ends with exactly the bits of an uninterrupted one. A checkpoint holds everything on
which the rest of the run depends, including the position in the order of the rows. It also names
the model and the data, so that it is not used for another fit. The last few are kept.
"""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import distributed
from ..files import UnreadableFileError, read_numbers, write_numbers
from ..kernels import Kernel
from ..tables import Dataset
from .options import Options

__all__ = ["CheckpointError", "Checkpoints", "identity"]

VERSION = 1
KEEP = 3  # the number of checkpoints that are kept
MAY_DIFFER = ("max_iter", "progress")
Tree = TypeVar("Tree")


class CheckpointError(ValueError):
    """The folder holds checkpoints from which this fit cannot continue."""


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints of one fit; only the first of several processes uses it.

    Attributes:
        folder: the folder.
        every: rounds or steps between two checkpoints; None for the default of the method.
        resume: whether to continue from the latest checkpoint.
        identity: descriptions of the model and the data, by name.
    """

    folder: Path
    every: int | None
    resume: bool
    identity: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        distributed.from_first(self._refuse_use)

    def _refuse_use(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise CheckpointError(f"checkpoint={str(self.folder)!r} is a file; give a folder")
        earlier = self._files()
        if earlier and not self.resume:
            last = int(earlier[-1].stem)
            raise CheckpointError(
                f"{self.folder} already holds checkpoints, up to iteration {last}; "
                "use resume=True to continue from them, or another folder for a new fit"
            )

    def within(self, name: str) -> "Checkpoints":
        """The checkpoints of a part of the fit, in a folder of their own."""
        return replace(self, folder=self.folder / name)

    def _files(self) -> list[Path]:
        """The checkpoints, oldest first."""
        files = self.folder.glob("*.checkpoint") if self.folder.is_dir() else ()
        return sorted(path for path in files if path.stem.isdecimal())

    def save(self, iterations: int, state: Any, notes: Mapping[str, Any]) -> None:
        """Write a checkpoint, and remove the oldest ones.

        A disk error gives a warning and does not end the fit: the previous checkpoint is kept.

        Args:
            iterations: the number of iterations so far.
            state: a tree of arrays.
            notes: everything else that must be saved, as values that JSON can represent.
        """
        if distributed.index() > 0:
            return
        path = self.folder / f"{iterations:09d}.checkpoint"
        leaves = jax.tree.leaves(state)
        numbers = {f"{k:04d}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_numbers(
                path, "checkpoint", VERSION, {"of": self.identity, "notes": notes}, numbers
            )
            for old in self._files()[:-KEEP]:
                old.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"no checkpoint was written at iteration {iterations}: {error}; the fit continues, "
                "and the previous checkpoint is kept",
                RuntimeWarning,
                stacklevel=2,
            )

    def latest(self, like: Tree) -> tuple[Tree, dict[str, Any]] | None:
        """The state and the notes of the latest readable checkpoint; None if there is none.

        Args:
            like: a state of the same structure.
        """
        earlier = distributed.from_first(lambda: self._latest(jax.tree.leaves(like)))
        if earlier is None:
            return None
        leaves, notes = earlier
        arrays = [
            jnp.asarray(leaf, dtype=jnp.asarray(then).dtype)
            for leaf, then in zip(leaves, jax.tree.leaves(like), strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(like), arrays), notes

    def _latest(self, like: list[Any]) -> tuple[list[np.ndarray], dict[str, Any]] | None:
        for path in reversed(self._files()):
            try:
                facts, numbers = read_numbers(path, "checkpoint", VERSION)
            except UnreadableFileError as error:
                warnings.warn(
                    f"{error}; using the previous checkpoint", RuntimeWarning, stacklevel=2
                )
                continue
            self._refuse_other(path, facts["of"])
            leaves = [numbers[name] for name in sorted(numbers)]
            if [np.shape(leaf) for leaf in like] != [leaf.shape for leaf in leaves]:
                raise CheckpointError(f"{path} is from a fit with arrays of other shapes")
            return leaves, facts["notes"]
        return None

    def _refuse_other(self, path: Path, then: Mapping[str, str]) -> None:
        differ = [
            name for name in {**then, **self.identity} if then.get(name) != self.identity.get(name)
        ]
        if differ:
            name = differ[0]
            was, now = then.get(name, "absent"), self.identity.get(name, "absent")
            others = f" (and {len(differ) - 1} more)" if len(differ) > 1 else ""
            raise CheckpointError(
                f"{path} is from another fit: {name} was {was}, and is now {now}{others}"
            )


def identity(data: Dataset, options: Options) -> dict[str, str]:
    """Descriptions of a model and its data, by name; arrays are given by their SHA-256."""
    words = {
        name: _in_words(value) for name, value in options.items().items() if name not in MAY_DIFFER
    }
    for name, likelihood, X, y, given, weight in zip(
        *(data.names, data.likelihoods, data.inputs, data.values, data.given, data.weights),
        strict=True,
    ):
        words |= {
            f"output {name!r}": repr(likelihood),
            f"the values of {name!r}": _in_words(y),
            f"the inputs of {name!r}": _in_words(X),
            f"the arguments of {name!r}": _in_words([*given.values(), weight]),
        }
    words["the columns of the inputs"] = repr([column.name for column in data.columns])
    return words


def _in_words(value: Any) -> str:
    """An option as text: arrays by shape and digest, the numbers of kernels with all digits."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_words, value))}]"
    if isinstance(value, Kernel):
        numbers = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(value)]
        return f"{value!r} with {numbers}" if numbers else repr(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        shape = " × ".join(map(str, value.shape))
        digest = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return f"{shape} numbers ({digest[:12]})"
    return repr(value)
