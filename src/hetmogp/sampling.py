"""Joint draws of a fitted model: of parameter functions, expected values and observations.

Up to some hundreds of rows draws are exact, from the covariance over all rows. Beyond that they are
functions (`pathwise`), evaluated a chunk of rows at a time.
"""

import operator
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from .fitted import Fitted
from .inputs import read_inputs
from .likelihoods import Likelihood
from .linalg import compiled
from .pathwise import Paths
from .rows import padded
from .session import session

__all__ = ["Ask", "FunctionDraws", "Kind", "sample_y", "whole"]

DENSE = 1000  # latents over all rows, up to which draws are exact
ROWS = 2048  # at a time, at most
LARGEST = 2.5e5  # draws of an output at a time: larger chunks take more memory and no less time

Kind = Literal["observations", "expected"]


class FunctionDraws:
    """Functions drawn from the posterior: call them at any inputs, as often as needed.

    Args:
        fitted: the model.
        n: the number of functions.
        seed: the seed of the draws.
    """

    def __init__(self, fitted: Fitted, n: int, seed: int):
        self._fitted, self.n, self.seed = fitted, whole(n, "n"), whole(seed, "seed", 0)
        self.names = fitted.parameter_names

    @cached_property
    def _paths(self) -> Paths:
        levels = {
            j: np.arange(len(column.levels), dtype=float)
            for j, column in enumerate(self._fitted.columns)
            if column.kind == "category" and not column.open
        }
        with session(self._fitted.dtype):
            return self._fitted.posterior.paths(self.n, self.seed, levels)

    def __call__(self, X: Any) -> Float[np.ndarray, "n N J"]:
        """The parameter functions at each row of X, (n, N, J), before their links.

        The functions are in the order of `names`. The same row has the same values in every call.
        """
        table, _ = read_inputs(X, self._fitted.columns)
        places = self._fitted.places
        result = np.empty((self.n, len(table), len(places)))
        size = _rows_at_once(self.n)
        for begin in range(0, len(table), size):
            rows = slice(begin, begin + size)
            result[:, rows] = np.swapaxes(self.at(table[rows]), 0, 1)[:, :, places]
        return result

    def at(self, table: Float[np.ndarray, "N p"]) -> Float[np.ndarray, "N n J"]:
        """The same at inputs that are numbers already, in the posterior's order."""
        paths = self._paths
        with session(self._fitted.dtype):
            return paths(self._fitted.scaling.apply(table))

    def order(self, table: Float[np.ndarray, "N p"]) -> Int[np.ndarray, " N"]:
        """The order in which rows are best asked for, some at a time."""
        with session(self._fitted.dtype):
            best = self._paths.order(self._fitted.scaling.apply(table))
        return np.arange(len(table)) if best is None else best

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"<{self.n} draws of {', '.join(self.names)}>"


@dataclass(frozen=True)
class Ask:
    """What is to be drawn, checked.

    Attributes:
        fitted: the model.
        table: the inputs as numbers.
        given: the arguments of each output at each row.
        outputs: the outputs.
        n: how many draws.
        seed: of the draws.
        kind: observations, or what is expected of them given the functions.
        index: of the rows, where the user has one.
    """

    fitted: Fitted
    table: Float[np.ndarray, "N p"]
    given: Mapping[str, Mapping[str, np.ndarray]]
    outputs: list[str]
    n: int
    seed: int
    kind: Kind = "observations"
    index: pd.Index | None = None

    @classmethod
    def of(
        cls,
        fitted: Fitted,
        X: Any,
        outputs: str | Sequence[str] | None,
        given: Any,
        n: int,
        seed: int,
        kind: Kind = "observations",
    ) -> "Ask":
        """Read and check what a user asks for."""
        if kind not in ("observations", "expected"):
            raise ValueError(f'of must be "observations" or "expected", not {kind!r}')
        table, _ = read_inputs(X, fitted.columns)
        chosen, arguments = fitted.asked(X, len(table), outputs, given)
        index = X.index if isinstance(X, pd.DataFrame | pd.Series) else None
        n, seed = whole(n, "n_samples"), whole(seed, "random_state", 0)
        return cls(fitted, table, arguments, chosen, n, seed, kind, index)

    def followed_by(self, other: "Ask") -> "Ask":
        """The rows of both, the other's last, drawn together."""
        for name, columns in self.given.items():
            if set(columns) != set(other.given[name]):
                raise ValueError(
                    f"given has {_listed(columns)} of output {name!r} for the first rows and "
                    f"{_listed(other.given[name])} for the others; give the same for both"
                )
        given = {
            name: {
                argument: np.concatenate([column, other.given[name][argument]])
                for argument, column in columns.items()
            }
            for name, columns in self.given.items()
        }
        table = np.concatenate([self.table, other.table])
        return replace(self, table=table, given=given, index=None)

    @property
    def dense(self) -> bool:
        """Whether the draws are exact; those of local latents always come from functions."""
        posterior = self.fitted.posterior
        return posterior.near is None and len(self.table) * sum(posterior.prior.ranks) <= DENSE

    @property
    def observed(self) -> bool:
        """Whether observations are drawn."""
        return self.kind == "observations"

    def chunks(self, order: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, dict]]:
        """Rows, and draws (rows, n) of each output there: numbers, classes as positions.

        Args:
            order: some rows, in the order in which they are visited; all of them by default.
        """
        if order is None:
            order = np.arange(len(self.table)) if self.dense else self._functions.order(self.table)
        size = _rows_at_once(self.n)
        for begin in range(0, len(order), size):
            rows = order[begin : begin + size]
            f = self._exact[rows] if self.dense else self._functions.at(self.table[rows])
            yield rows, self.given_functions(f, rows)

    @cached_property
    def _functions(self) -> FunctionDraws:
        return FunctionDraws(self.fitted, self.n, self.seed)

    @cached_property
    def _exact(self) -> Float[np.ndarray, "N n J"]:
        with session(self.fitted.dtype):
            posterior, table = self.fitted.posterior, self.fitted.scaling.apply(self.table)
            return posterior.draws(table, self.n, self.seed)

    def given_functions(
        self, f: Float[np.ndarray, "N n J"], rows: np.ndarray
    ) -> dict[str, Float[np.ndarray, "N n"]]:
        """Observations, or their expected values, where the functions have these values."""
        result = {}
        with session(self.fitted.dtype):
            for name in self.outputs:
                likelihood, part = self.fitted.outputs[name]
                given = {
                    argument: column[rows] for argument, column in self.given.get(name, {}).items()
                }
                seed = (self.seed, int(rows[0]), zlib.crc32(name.encode()))
                own = f[:, :, part]
                result[name] = _drawn(likelihood, given, own, seed if self.observed else None)
        return result


def _drawn(
    likelihood: Likelihood,
    given: Mapping[str, np.ndarray],
    f: Float[np.ndarray, "N n J"],
    seed: tuple[int, ...] | None,
) -> Float[np.ndarray, "N n"]:
    """Observations of one output given its functions; without a seed, their expected values."""
    N = len(f)
    if seed is not None:
        columns = {name: column[:, None] for name, column in given.items()}
        many = likelihood.at(columns).sample_many(np.random.default_rng(seed), np.moveaxis(f, 2, 0))
        if many is not None:
            return many
    rows = jax.tree.map(lambda a: jnp.asarray(padded(a)), (dict(given), f))
    if seed is None:
        return np.asarray(_expected(likelihood, *rows))[:N]
    key = jax.random.key(seed[0])
    for part in seed[1:]:
        key = jax.random.fold_in(key, part)
    return np.asarray(_observed(likelihood, key, *rows))[:N]


def sample_y(ask: Ask) -> dict[str, np.ndarray]:
    """Draws of each output, (n, N), in the user's values; see `HetMOGP.sample_y`."""
    N = len(ask.table)
    draws: dict[str, np.ndarray] = {name: np.empty((ask.n, N)) for name in ask.outputs}
    for rows, values in ask.chunks():
        for name, own in values.items():
            draws[name][:, rows] = own.T
    return {name: ask.fitted.likelihoods[name].decode(own) for name, own in draws.items()}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _rows_at_once(n: int) -> int:
    """How many rows a chunk of n draws has."""
    return min(max(int(LARGEST // n), 64), ROWS)


def whole(value: Any, name: str, least: int = 1) -> int:
    """A whole number that a user gave, checked."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    return number


@compiled
def _observed(
    likelihood: Likelihood, key: Array, given: dict, f: Float[Array, "N n J"]
) -> Float[Array, "N n"]:
    keys = jax.random.split(key, f.shape[:2])

    def at_row(given: dict, keys: Array, f: Float[Array, "n J"]) -> Array:
        here = likelihood.at(given)
        return jax.vmap(here.sample)(keys, f)

    return jax.vmap(at_row)(given, keys, f)


@compiled
def _expected(likelihood: Likelihood, given: dict, f: Float[Array, "N n J"]) -> Float[Array, "N n"]:
    return jax.vmap(lambda g, f: jax.vmap(likelihood.at(g).mean)(f))(given, f)
