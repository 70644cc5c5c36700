"""Numbers of a kernel that are fixed at the user's values, by name: `fixed=("period",)`.

Kernels work on standardised inputs. A number that was divided by their scale and multiplied by it
again may differ in its last digit, so a kernel on standardised inputs also keeps the user's number.
Each entry of `fixed` is a name if the kernel is in the user's units, and a name with the
user's numbers if it is on standardised inputs.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "Fixed",
    "as_given",
    "as_held",
    "given",
    "names",
    "refuse_unfit",
    "refuse_unheld",
    "remembered",
]

Fixed = tuple[str | tuple[str, tuple[float, ...]], ...]
AnyKernel = TypeVar("AnyKernel", bound=Any)


def as_held(fixed: str | Sequence[Any]) -> Fixed:
    """The value of `fixed` from a user or a file, in the form that kernels keep."""
    entries = (fixed,) if isinstance(fixed, str) else fixed
    if not (
        isinstance(entries, list | tuple)
        and all(isinstance(e, str | list | tuple) for e in entries)
    ):
        raise ValueError(f"fixed is a list of names such as ('lengthscale',), not {fixed!r}")
    each = (one if isinstance(one, str) else (one[0], tuple(one[1])) for one in entries)
    return tuple(dict.fromkeys(each))


def names(kernel: Any) -> tuple[str, ...]:
    """The names of the fixed numbers of a kernel; none if the kernel has no `fixed`."""
    return tuple(one if isinstance(one, str) else one[0] for one in getattr(kernel, "fixed", ()))


def given(kernel: Any) -> dict[str, tuple[float, ...]]:
    """The user's numbers that a kernel on standardised inputs keeps, by name."""
    return dict(one for one in kernel.fixed if not isinstance(one, str))


def refuse_unheld(kernel: Any, known: Sequence[str]) -> None:
    """Raise an error for a name that a kernel cannot fix.

    Args:
        kernel: the kernel with `fixed`.
        known: the names of its numbers.
    """
    kind = type(kernel).__name__
    for name in names(kernel):
        if name not in known:
            raise ValueError(f"fixed names {name!r}; a {kind} can only fix {', '.join(known)}")
        if getattr(kernel, name) is None:
            raise ValueError(
                f"fixed names {name!r}, which has no value: give one, "
                f"{kind}({name}=..., fixed={names(kernel)})"
            )


def refuse_unfit(kernel: Any, name: str, sizes: Sequence[int]) -> None:
    """Raise an error if a kernel keeps a wrong number of the user's numbers."""
    values = given(kernel).get(name)
    if values is not None and len(values) not in sizes:
        kind = type(kernel).__name__
        raise ValueError(f"a {kind} has {len(values)} fixed values of {name}, not {sizes[-1]}")


def remembered(kernel: Any) -> Fixed:
    """`fixed` with the user's numbers, for a kernel on standardised inputs."""
    return tuple((name, tuple(np.ravel(getattr(kernel, name)).tolist())) for name in names(kernel))


def as_given(kernel: AnyKernel) -> AnyKernel:
    """A kernel in the user's units, with its fixed numbers exactly as the user gave them."""
    exact = {
        name: np.full(np.shape(getattr(kernel, name)), values if len(values) > 1 else values[0])
        for name, values in given(kernel).items()
    }
    return dataclasses.replace(kernel, **exact, fixed=names(kernel)) if exact else kernel
