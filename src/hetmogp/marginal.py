"""The best constants of one output: its likelihood when nothing depends on the inputs.

    θ̂ = argmax_θ Σ_n w_n log p(y_n | θ)

θ holds the parameter functions of the output, as constants before their links, and then the numbers
that its likelihood learns besides. This is the baseline that any use of the inputs has to beat.
"""

from collections.abc import Mapping
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from .likelihoods import Likelihood
from .linalg import compiled
from .rows import padded, rowwise

__all__ = ["left_out", "log_densities", "most_likely"]

MOST_ROWS = 20_000  # enough to know a handful of constants to three digits
RIDGE = 1e-4  # the precision of a prior around the start, for values that are all the same
TURNS = 200  # of L-BFGS, at most

Given = Mapping[str, np.ndarray]


def _moved(likelihood: Likelihood, theta: Float[Array, " P"]) -> tuple[Likelihood, Array]:
    """The likelihood with its learned numbers, and its parameter functions, from θ."""
    J, names = len(likelihood.latent), sorted(likelihood.free)
    if not names:
        return likelihood, theta
    free = dict(zip(names, theta[J:], strict=True))
    return eqx.tree_at(lambda one: one.free, likelihood, free), theta[:J]


def _each(likelihood: Likelihood, theta: Array, y: Array, given: dict[str, Array]) -> Array:
    moved, f = _moved(likelihood, theta)
    return jax.vmap(lambda y, given: moved.at(given).log_observed(y, f))(y, given)


@compiled
def _densities(likelihood, theta, y, given):
    return _each(likelihood, theta, y, given)


@compiled
def _cost(t, start, unit, likelihood, y, weight, given):
    """The mean negative log density at θ = start + unit · t, and its slope."""

    def cost(t: Array) -> Array:
        each = _each(likelihood, start + unit * t, y, given)
        fit = jnp.sum(jnp.where(weight > 0, weight * each, 0.0))
        return (0.5 * RIDGE * jnp.sum(t * t) - fit) / jnp.sum(weight)

    return jax.value_and_grad(cost)(t)


@compiled
def _slopes_and_curvature(likelihood, theta, y, weight, given):
    """The slope of each value's log density, and the weighted sum of their curvatures."""

    def one(theta, y, given):
        moved, f = _moved(likelihood, theta)
        return moved.at(given).log_observed(y, f)

    def total(theta):
        each = _each(likelihood, theta, y, given)
        return jnp.sum(jnp.where(weight > 0, weight * each, 0.0))

    slopes = jax.vmap(jax.grad(one), in_axes=(None, 0, 0))(theta, y, given)
    return slopes, -jax.hessian(total)(theta)


def most_likely(
    likelihood: Likelihood, y: np.ndarray, weight: np.ndarray, given: Given
) -> Float[np.ndarray, " P"]:
    """The most likely constants, from at most `MOST_ROWS` rows; call it within a session.

    Args:
        likelihood: of the output.
        y: its observed values.
        weight: how many times each counts.
        given: the arguments that come with each.
    """
    if len(y) > MOST_ROWS:
        some = np.linspace(0, len(y) - 1, MOST_ROWS).astype(int)
        y, weight = y[some], weight[some]
        given = {name: column[some] for name, column in given.items()}
    start, unit = _begin(likelihood, y, given)
    if not np.any(weight > 0):
        return start
    many = padded(weight) * (np.arange(len(padded(y))) < len(y))
    arguments = {name: jnp.asarray(padded(column)) for name, column in given.items()}
    held = (*map(jnp.asarray, (start, unit)), likelihood, *map(jnp.asarray, (padded(y), many)))
    cost = partial(_finite, held=held, given=arguments)
    found_t = minimize(cost, np.zeros(len(start)), jac=True, options={"maxiter": TURNS})
    return start + unit * found_t.x


def _begin(
    likelihood: Likelihood, y: np.ndarray, given: Given
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
    """Where the search for the constants begins, and the unit of each."""
    found = likelihood.at(given).start(y)
    start = np.concatenate([found.constant, [found.free[name] for name in sorted(found.free)]])
    return start, np.concatenate([found.spread, np.ones(len(found.free))])


def _finite(t: np.ndarray, held: tuple, given: dict[str, Array]) -> tuple[float, np.ndarray]:
    """The cost and its slope; large and flat where they are not finite."""
    value, slope = (np.asarray(part, float) for part in _cost(jnp.asarray(t), *held, given))
    fine = np.isfinite(value) and np.isfinite(slope).all()
    return (float(value), slope) if fine else (1e10, np.zeros_like(slope))


def log_densities(
    likelihood: Likelihood, theta: np.ndarray, y: np.ndarray, given: Given
) -> Float[np.ndarray, " n"]:
    """The log density of each value, given the constants; call it within a session."""
    numbers = jax.tree.map(jnp.asarray, likelihood)
    at = jnp.asarray(theta)
    return rowwise(lambda y, given: _densities(numbers, at, y, given), y, dict(given))


def left_out(
    likelihood: Likelihood, theta: np.ndarray, y: np.ndarray, weight: np.ndarray, given: Given
) -> Float[np.ndarray, " n"]:
    """The log density of each value by the constants that the other values give.

    To first order, log p(y_n | θ₋ₙ) = log p(y_n | θ̂) − w_n gₙᵀ H⁻¹ gₙ, with gₙ the slope of the log
    density of y_n and H the curvature of their sum: no refits.
    """
    numbers = jax.tree.map(jnp.asarray, likelihood)
    arrays = {name: jnp.asarray(column) for name, column in given.items()}
    given_y = jnp.asarray(y), jnp.asarray(weight), arrays
    slopes, H = map(np.asarray, _slopes_and_curvature(numbers, jnp.asarray(theta), *given_y))
    _, unit = _begin(likelihood, y, given)
    H = 0.5 * (H + H.T) + RIDGE * np.diag(unit**-2.0)  # the prior of the search
    cost = weight * np.einsum("ni,in->n", slopes, np.linalg.solve(H, slopes.T))
    return log_densities(likelihood, theta, y, given) - cost
