"""Scores of values left out one at a time, without refits, by their cavities.

At the best q(u), the value y_n of an output acts on its parameter functions as a Gaussian site,
with the precision −2G and the slope r there, r and G being the gradients of E[log p(y_n | f)] with
respect to the mean μ and the covariance V of f(x_n). To leave the value out is to divide by the
site:

    V₋ = V (I + 2 G V)⁻¹,    μ₋ = μ − V₋ r,
    log p(y_n | the others) ≈ log ∫ p(y_n | f) N(f; μ₋, V₋) df

Here V is the covariance that inducing variables explain; what they do not explain is added
afterwards. The hyperparameters are those of all values. Given these, the result is exact for
Gaussian likelihoods.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from .baselines import alone_of, clusters, tabulate
from .bound import Rules
from .data import full_batch
from .fitted import Fitted
from .linalg import compiled
from .marginal import left_out as constants_left_out
from .predictive import log_density
from .priors import Latents
from .quadrature import root
from .session import session
from .tables import Dataset, read

__all__ = ["leave_one_out", "refuse_others"]

LEAST = 1e-6  # share of a function's precision that is left, at least, without a value


def leave_one_out(fitted: Fitted, X: Any, Y: Any, rules: Rules) -> pd.DataFrame:
    """The model beside its baselines, each value left out; see `HetMOGP.leave_one_out`."""
    data = read(fitted.likelihoods, X, Y, fitted.columns, some=True)  # with their weights
    refuse_others(fitted, data, "leave_one_out is")
    densities = {"joint": _by_cavities(fitted, data, rules)}
    alone = alone_of(fitted)
    if alone is not None:
        same = alone is fitted
        densities["alone"] = densities["joint"] if same else _by_cavities(alone, data, rules)
    if fitted.record.marginal is not None:
        densities["constant"] = _by_constants(fitted, data)
    rows = {n: np.flatnonzero(s) for n, s in zip(data.names, data.observed(), strict=True)}
    tables = {name: id(X) for name, X in zip(data.names, data.inputs, strict=True)}
    return tabulate(list(fitted.likelihoods), densities, clusters(rows, tables))


def refuse_others(fitted: Fitted, data: Dataset, what: str) -> None:
    """Raise an error for a fit without sites, or for data other than those that were fitted.

    Args:
        fitted: the model.
        data: the data that are said to be those of the fit.
        what: what was asked for, followed by "is" or "are".
    """
    if fitted.posterior.near is not None:
        raise ValueError(
            f"{what} not available for a model with local latents; a fit on full batches without "
            "them has them: local=0, method='vem'"
        )
    if fitted.record.method != "vem":
        raise ValueError(
            f"{what} not available for a fit on mini-batches, whose q(u) is only nearly the best "
            "for each value; fit on full batches (method='vem')"
        )
    for name, seen in zip(data.names, data.observed(), strict=True):
        if seen.sum() != fitted.record.observed[name]:
            marked = fitted.record.held_out is not None
            fitted_rows = (
                "; pass the rows that were fitted: X[~model.held_out(X)]" if marked else ""
            )
            raise ValueError(
                f"{what} about the data that were fitted: there output {name!r} had "
                f"{fitted.record.observed[name]} values, here it has {seen.sum()}{fitted_rows}"
            )
    rows = np.concatenate([X[s] for X, s in zip(data.inputs, data.observed(), strict=True)])
    here = np.stack([rows.min(axis=0), rows.max(axis=0)])
    other = np.flatnonzero(~np.isclose(here, fitted.record.input_range).all(axis=0))
    if other.size:
        raise ValueError(
            f"{what} about the data that were fitted: the smallest or the largest value of input "
            f"{fitted.columns[int(other[0])].name!r} is another one here"
        )


def _by_cavities(fitted: Fitted, data: Dataset, rules: Rules) -> dict[str, np.ndarray]:
    """The log density of each value, left out of q(u)."""
    result = {}
    with session(fitted.dtype):
        prior, q = jax.tree.map(jnp.asarray, (fitted.posterior.prior, fitted.posterior.q))
        batch, _ = full_batch(data, fitted.scaling)
        latents = _latents(prior, q, jnp.asarray(fitted.posterior.jitter), batch.X)
        for name, seen in zip(data.names, batch.outputs, strict=True):
            likelihood = jax.tree.map(jnp.asarray, fitted.likelihoods[name])
            part = fitted.outputs[name].part
            bounds = part.start, part.stop
            found = _slopes(likelihood, prior, latents, seen, part=bounds, rules=rules)
            mean, cov = _cavity(*(np.asarray(one, float) for one in found))
            given = seen.y, jnp.asarray(mean), jnp.asarray(cov), seen.given
            result[name] = np.asarray(_densities(likelihood, *given))[np.asarray(seen.seen)]
    return result


@compiled
def _latents(prior, q, jitter, X):
    """The latents at the rows, and the variance of each that inducing variables do not explain."""
    projection = prior.matrices(X, jitter).project()
    return q.latents(projection), projection.residual.T


@partial(compiled, static=("part", "rules"))
def _slopes(likelihood, prior, latents, seen, part, rules):
    """For each value: μ, V, the covariance left over, and r and G times its weight."""
    (mean, cov), residual = latents
    which = slice(*part)
    at = prior.functions(which, Latents(mean[seen.row], cov[seen.row]))
    rest = prior.functions(which, Latents(mean[seen.row], residual[seen.row])).cov

    def expected(mean, cov, y, given):
        cov = cov if rules.joint else cov * jnp.eye(len(mean), dtype=cov.dtype)
        return likelihood.at(given).expectation(y, mean, cov, rules.expectation)

    r, G = jax.vmap(jax.grad(expected, argnums=(0, 1)))(at.mean, at.cov, seen.y, seen.given)
    weight = seen.weight[:, None]
    G = 0.5 * weight[:, :, None] * (G + jnp.swapaxes(G, 1, 2))
    return at.mean, at.cov - rest, rest, weight * r, G


def _cavity(
    mean: np.ndarray, V: np.ndarray, rest: np.ndarray, r: np.ndarray, G: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance without each value; by NumPy, as JAX must not batch LAPACK on a CPU.

    With V = L Lᵀ and −2 Lᵀ G L = U diag(d) Uᵀ, V₋ = L U diag(1 / (1 − d)) Uᵀ Lᵀ.
    """
    sizes, axes = np.linalg.eigh(0.5 * (V + np.swapaxes(V, 1, 2)))
    L = axes * np.sqrt(np.maximum(sizes, 0.0))[:, None, :]
    d, U = np.linalg.eigh(-2.0 * np.swapaxes(L, 1, 2) @ G @ L)
    half = (L @ U) / np.sqrt(np.maximum(1.0 - d, LEAST))[:, None, :]
    without = half @ np.swapaxes(half, 1, 2)
    return mean - np.einsum("nij,nj->ni", without, r), without + rest


@compiled
def _densities(likelihood, y, mean, cov, given):
    """The log predictive density of each value."""

    def one(y, mean, cov, given):
        return log_density(likelihood.at(given), y, mean, root(cov))

    return jax.vmap(one)(y, mean, cov, given)


def _by_constants(fitted: Fitted, data: Dataset) -> dict[str, np.ndarray]:
    """The log density of each value by the constants of the others."""
    marginal, result = fitted.record.marginal, {}
    assert marginal is not None
    with session(fitted.dtype):
        for name, y, weight, given, seen in zip(
            *(data.names, data.values, data.weights, data.given, data.observed()), strict=True
        ):
            own = {argument: column[seen] for argument, column in given.items()}
            theta = np.asarray(marginal[name])
            result[name] = constants_left_out(
                fitted.likelihoods[name], theta, y[seen], weight[seen], own
            )
    return result
