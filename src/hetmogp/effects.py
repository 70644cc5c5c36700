"""The effects of a fitted model in the user's units: slopes of inputs, and intercepts of groups.

A slope is what a latent of straight lines gains by one step along its input. The intercept of a
level is the sum of the latents of its group there. Both are normal under q(u), so their means and
standard deviations are exact.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from .fitted import Fitted
from .fitting import inputs_of
from .kernels import Kernel
from .lengthscales import NORMAL
from .session import session

__all__ = ["intercepts", "sizes", "slopes", "unseen"]


def slopes(fitted: Fitted) -> pd.DataFrame:
    """The slope of each parameter function along each linear input; see `HetMOGP.effects_`."""
    rows: list[tuple[Any, ...]] = []
    for r, kernel in _latents(fitted):
        if not kernel.own_scale:
            continue
        p = len(fitted.columns)
        for at in inputs_of(kernel, p):
            step = np.eye(p)[at]
            # The variance of a + b x at x = ±1 is var a ± 2 cov(a, b) + var b.
            mean, variance = _functions(fitted, np.stack([-step, 0 * step, step]), [r])
            m, v = 0.5 * (mean[2] - mean[0]), 0.5 * (variance[2] + variance[0]) - variance[1]
            scale, name = fitted.scaling.scale[at], fitted.columns[at].name
            rows += _rows(fitted, [r], m / scale, np.sqrt(v) / scale, name)
    order = [column.name for column in fitted.columns]
    frame = _frame(rows, ["input"])
    functions = [f"{a}.{b}" for a, b in zip(frame["output"], frame["parameter"], strict=True)]
    places = [
        (fitted.parameter_names.index(f), order.index(x))
        for f, x in zip(functions, frame["input"], strict=True)
    ]
    return frame.iloc[sorted(range(len(frame)), key=places.__getitem__)].reset_index(drop=True)


def intercepts(fitted: Fitted) -> pd.DataFrame:
    """The intercept of each level of each group; see `HetMOGP.intercepts_`."""
    rows: list[tuple[Any, ...]] = []
    for at, latents in _groups(fitted).items():
        tables = [_table(fitted, r)[:, at] for r in latents]
        codes = np.unique(np.concatenate(tables))
        X = np.zeros((len(codes), len(fitted.columns)))
        X[:, at] = codes
        mean, variance = _functions(fitted, X, latents)
        column = fitted.columns[at]
        values = column.decode(fitted.scaling.undo(X)[:, at])
        for value, m, v in zip(np.asarray(values).tolist(), mean, variance, strict=True):
            rows += _rows(fitted, latents, m, np.sqrt(v), column.name, value)
    return _frame(rows, ["input", "level"])


def sizes(fitted: Fitted) -> pd.DataFrame:
    """The standard deviation between the levels of each group, a column per group."""
    W = _weights(fitted)
    each = {
        fitted.columns[at].name: np.sqrt(np.sum(W[:, latents] ** 2, axis=1))
        for at, latents in _groups(fitted).items()
    }
    return pd.DataFrame(each, index=pd.Index(fitted.parameter_names, name="parameter function"))


def unseen(fitted: Fitted) -> list[str]:
    """The inputs that no latent sees: theirs did not pay and were dropped."""
    p = len(fitted.columns)
    seen = {at for _, kernel in _latents(fitted) for at in inputs_of(kernel, p)}
    return [column.name for at, column in enumerate(fitted.columns) if at not in seen]


def _latents(fitted: Fitted) -> Iterator[tuple[int, Kernel]]:
    """The kernel of each copy of a latent."""
    prior = fitted.posterior.prior
    kernels = (k for k, R in zip(prior.kernels, prior.ranks, strict=True) for _ in range(R))
    return enumerate(kernels)


def _groups(fitted: Fitted) -> dict[int, list[int]]:
    """The inputs whose levels have intercepts, and the latents of each."""
    result: dict[int, list[int]] = {}
    for r, kernel in _latents(fitted):
        if kernel.by_level and kernel.spanning(np.zeros((1, len(fitted.columns)))) is not None:
            at = inputs_of(kernel, len(fitted.columns))[0]
            result.setdefault(at, []).append(r)
    return dict(sorted(result.items()))


def _table(fitted: Fitted, r: int) -> Float[np.ndarray, "M p"]:
    """The inducing inputs of a copy of a latent."""
    prior = fitted.posterior.prior
    with session(fitted.dtype):
        return np.asarray(prior.tables[int(np.repeat(np.arange(len(prior.ranks)), prior.ranks)[r])])


def _weights(fitted: Fitted) -> Float[np.ndarray, "J R"]:
    return np.asarray(fitted.attributes()["weights_"])


def _functions(
    fitted: Fitted, X: Float[np.ndarray, "N p"], latents: list[int]
) -> tuple[Float[np.ndarray, "N J"], Float[np.ndarray, "N J"]]:
    """Mean and variance of the part of each parameter function that some latents make."""
    W = _weights(fitted)[:, latents]
    with session(fitted.dtype):
        found = fitted.posterior.latents(X)
    mean, cov = np.asarray(found.mean)[:, latents] @ W.T, np.asarray(found.cov)
    if cov.ndim == 2:
        return mean, cov[:, latents] @ W.T**2
    return mean, np.einsum("jr,nrs,js->nj", W, cov[:, latents][:, :, latents], W)


def _rows(
    fitted: Fitted, latents: list[int], mean: np.ndarray, sd: np.ndarray, *names: Any
) -> list[tuple[Any, ...]]:
    """A row for each parameter function that has the latents."""
    has = np.any(_weights(fitted)[:, latents] != 0, axis=1)
    return [
        (*name.rsplit(".", 1), *names, m, s, m - NORMAL * s, m + NORMAL * s)
        for name, own, m, s in zip(fitted.parameter_names, has, mean, sd, strict=True)
        if own
    ]


def _frame(rows: list[tuple[Any, ...]], names: list[str]) -> pd.DataFrame:
    numbers = ["mean", "sd", "lower", "upper"]
    frame = pd.DataFrame(rows, columns=["output", "parameter", *names, *numbers])
    return frame.astype(dict.fromkeys(numbers, float))
