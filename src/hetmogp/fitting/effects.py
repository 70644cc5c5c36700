"""Effects that a user asks for by name: straight lines of inputs, and intercepts of groups.

f_j(x) = b_j + Σ_l β_jl (x_l − c_l) + Σ_g γ_{j, g(x)} + Σ_q a_jq u_q(the other inputs)

Each effect is a latent with its own kernel, so no other module needs to know about effects. The
inputs named here act in no other way: a smooth function of the same input could take over the line,
and the slope would mean nothing. A kernel that names such an input still uses it.

Slopes β have normal priors of a fixed width (`Slopes`): as an input moves by its standard
deviation, a function is expected to move by about its typical spread. Intercepts γ of a group are
independent between its levels (`Category.unrelated`), and their size is learned, which shrinks
them.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np

from ..columns import Column
from ..data import Scaling
from ..kernels import Category, Kernel, Slopes
from ..tables import Dataset
from .inducing import AUTO_INDUCING, LEVELS, is_auto
from .options import Options

__all__ = ["Effects", "grouped", "within_budget"]

FEWEST = 50  # inducing inputs of each latent that is not of a group


class Effects(NamedTuple):
    """The inputs that have effects.

    Attributes:
        linear: the positions of those with a straight line.
        groups: the positions of those with an intercept for each value.
    """

    linear: tuple[int, ...]
    groups: tuple[int, ...]

    @classmethod
    def of(cls, options: Options, columns: Sequence[Column]) -> "Effects":
        """What the options ask for, checked against the inputs.

        Raises:
            ValueError: if an input cannot have such an effect.
        """
        linear = tuple(_positions("linear", options.linear, columns))
        groups = tuple(_positions("groups", options.groups, columns))
        for at in linear:
            if columns[at].kind == "category":
                raise ValueError(
                    f"linear names {columns[at].name!r}, which holds labels, and labels have no "
                    "slope: give numbers, such as 0 and 1, or name it in groups"
                )
            if at in groups:
                raise ValueError(f"{columns[at].name!r} is named in linear and in groups")
        return cls(linear, groups)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The positions of all of them."""
        return (*self.linear, *self.groups)

    def slopes(self, scaling: Scaling) -> list[Kernel]:
        """The kernel of straight lines, if there are any."""
        if not self.linear:
            return []
        lengthscale = scaling.scale[list(self.linear)]
        return [Slopes(lengthscale, self.linear, fixed=("lengthscale",))]

    def intercepts(self) -> list[Kernel]:
        """The kernel of each group."""
        return [Category.unrelated(group) for group in self.groups]

    def latents(
        self, scaling: Scaling, J: int, shared: int | None
    ) -> list[tuple[Kernel, int | None]]:
        """The kernel of each latent, and the parameter function that it belongs to.

        Args:
            scaling: how the inputs were standardised.
            J: the number of parameter functions.
            shared: the number of latents of a group that all functions mix; None if each function
                has one of its own.
        """
        result: list[tuple[Kernel, int | None]] = [
            (kernel, j) for kernel in self.slopes(scaling) for j in range(J)
        ]
        owners: Sequence[int | None] = range(J) if shared is None else [None] * min(shared, J)
        return [*result, *((kernel, j) for kernel in self.intercepts() for j in owners)]


def grouped(data: Dataset, options: Options) -> Dataset:
    """The data, with columns of groups that accept new labels later.

    Raises:
        ValueError: if the numbers of a group are not whole, or the options do not suit the inputs.
    """
    columns = list(data.columns)
    for at in Effects.of(options, columns).groups:
        column = columns[at]
        values = np.unique(np.concatenate([X[:, at] for X in data.inputs]))
        fractions = values[values != np.round(values)]
        if column.kind in ("time", "duration") or fractions.size:
            some = "dates" if column.kind != "number" else f"numbers such as {fractions[0]:g}"
            raise ValueError(
                f"groups names {column.name!r}, which holds {some}; a group needs labels or whole "
                "numbers. Convert them to text if each different value is a group"
            )
        if len(values) > LEVELS:
            warnings.warn(
                f"groups names {column.name!r}, which has {len(values):,} levels; only {LEVELS} of "
                "them get an intercept, and the others are predicted as new ones",
                UserWarning,
                stacklevel=4,
            )
        if column.kind == "category":
            columns[at] = replace(column, open=True)
    return replace(data, columns=columns)


def within_budget(data: Dataset, options: Options, method: Literal["vem", "svi"]) -> Options:
    """The options, with a number of latents where groups have too many levels to choose it.

    In each latent of a group, a level needs an inducing input of its own, because other levels say
    nothing about it. To choose what outputs share, each output has such a latent; an output of
    classes has one for each function. If that takes more inducing inputs than a fit may have,
    nothing is chosen: all outputs mix as many latents as there is room for.

    Args:
        data: the outputs and their inputs.
        options: how to fit.
        method: the method that suits the size of the data.
    """
    groups = Effects.of(options, data.columns).groups
    levels = sum(min(_levels(data, at), LEVELS) for at in groups)
    budget = AUTO_INDUCING[method]
    owners = sum(len(one.latent) if one.softmax else 1 for one in data.likelihoods)
    if not options.chooses or levels * owners <= budget:
        return options
    latents = max(budget // levels, 1)
    room = max((budget - latents * levels) // latents, FEWEST)
    inducing = room if is_auto(options.inducing) else options.inducing
    return replace(options, latents=latents, inducing=inducing, method=method)


def _levels(data: Dataset, at: int) -> int:
    return len(np.unique(np.concatenate([X[:, at] for X in data.inputs])))


def _positions(option: str, named: Any, columns: Sequence[Column]) -> list[int]:
    """The positions of the inputs that an option names."""
    names = [column.name for column in columns]
    result: list[int] = []
    for one in named_inputs(named):
        if isinstance(one, str) and one not in names:
            raise ValueError(f"{option} names {one!r}; the inputs are {names}")
        at = names.index(one) if isinstance(one, str) else int(one)
        if not -len(names) <= at < len(names):
            raise ValueError(f"{option} names input {at}, but there are {len(names)} inputs")
        if at % len(names) in result:
            raise ValueError(f"{option} names {names[at]!r} twice")
        result.append(at % len(names))
    return result


def named_inputs(named: Any) -> list[str | int]:
    """The names or numbers that an option lists; a single one needs no list."""
    if named is None:
        return []
    if isinstance(named, str):
        return [named]
    return [int(named)] if isinstance(named, Integral) else list(named)
