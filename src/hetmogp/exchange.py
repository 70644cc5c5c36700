"""A fitted model for ArviZ: draws, what they predict, and how probable they make the data."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .fitted import Fitted
from .likelihoods import Likelihood
from .linalg import compiled
from .rows import rowwise
from .sampling import Ask, FunctionDraws
from .session import session

__all__ = ["groups_of", "to_arviz"]

Groups = dict[str, dict[str, np.ndarray]]


def to_arviz(
    fitted: Fitted,
    X: Any,
    n: int,
    Y: Any,
    seed: int,
    outputs: str | Sequence[str] | None = None,
    given: Any = None,
) -> Any:
    """Draws as ArviZ holds them; see `HetMOGP.to_arviz`."""
    try:
        import arviz
    except ImportError:
        raise ImportError('to_arviz needs ArviZ: pip install "hetmogp[arviz]"') from None
    groups, rows = groups_of(fitted, X, n, Y, seed, outputs, given)
    dims = {"f": ["row", "function"], **{name: [f"{name}_row"] for name in rows}}
    places = {f"{name}_row": at for name, at in rows.items()}
    named: dict[str, Any] = {"coords": {"function": fitted.parameter_names, **places}, "dims": dims}
    if int(arviz.__version__.split(".")[0]) >= 1:  # which has DataTree in place of InferenceData
        return arviz.from_dict(groups, **named)
    return arviz.from_dict(**groups, **named)


def groups_of(
    fitted: Fitted,
    X: Any,
    n: int,
    Y: Any,
    seed: int,
    outputs: str | Sequence[str] | None = None,
    given: Any = None,
) -> tuple[Groups, dict[str, np.ndarray]]:
    """The arrays of each group of ArviZ, and the rows that each output has there.

    All groups are of the same draws of the parameter functions. Outputs without a value in Y are
    left out. What is drawn has the axes chain
    (of which there is one), draw and row; classes are positions.
    """
    if Y is not None and given is not None:
        raise ValueError("given is for inputs without Y; with Y its columns are taken from there")
    ask = Ask.of(fitted, X, outputs, given, n, seed)
    every = np.arange(len(ask.table))
    rows, seen, columns = dict.fromkeys(ask.outputs, every), {}, dict(ask.given)
    if Y is not None:
        data = fitted.read(X, Y)
        for name, y, arguments in zip(data.names, data.values, data.given, strict=True):
            if name in rows:
                rows[name] = np.flatnonzero(~np.isnan(y))
                seen[name], columns[name] = y[rows[name]], arguments
    chosen = [name for name in ask.outputs if rows[name].size]
    if not chosen:
        raise ValueError("X has no rows" if Y is None else "Y has no observed value")
    rows = {name: rows[name] for name in chosen}
    f = FunctionDraws(fitted, ask.n, ask.seed).at(ask.table)
    groups: Groups = {
        "posterior": {"f": np.moveaxis(f[:, :, fitted.places], 1, 0)[None]},
        "posterior_predictive": {},
    }
    if Y is not None:
        groups |= {"log_likelihood": {}, "observed_data": {name: seen[name] for name in chosen}}
    for name, at in rows.items():
        one = Ask(fitted, ask.table, columns, [name], ask.n, ask.seed)
        drawn = one.given_functions(f[at], at)[name]
        groups["posterior_predictive"][name] = drawn.T[None]
        if Y is not None:
            likelihood, part = fitted.outputs[name]
            arguments = {argument: column[at] for argument, column in columns[name].items()}
            with session(fitted.dtype):
                density = rowwise(
                    lambda g, y, f, likelihood=likelihood: _log_prob(likelihood, g, y, f),
                    *(arguments, seen[name], f[at][:, :, part]),
                )
            groups["log_likelihood"][name] = density.T[None]
    return groups, rows


@compiled
def _log_prob(
    likelihood: Likelihood, given: dict, y: Float[Array, " N"], f: Float[Array, "N n J"]
) -> Float[Array, "N n"]:
    """The log density of each value under each draw."""

    def at_row(given: dict, y: Array, f: Float[Array, "n J"]) -> Array:
        return jax.vmap(lambda one: likelihood.at(given).log_prob(jnp.asarray(y), one))(f)

    return jax.vmap(at_row)(given, y, f)
