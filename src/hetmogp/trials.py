"""A likelihood tried on one output in a fraction of a second, for `discovery`.

Each parameter function is a constant plus a weighted sum of features of the inputs. The features
are bumps (a radial basis over all inputs, and one along each); three widths of them are tried. The
weights have a normal prior, and L-BFGS finds the most probable ones. The score is the log density
of held-out rows. This is a Gaussian process without its uncertainty.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize

from .columns import Column
from .likelihoods import Likelihood
from .linalg import compiled
from .rows import rowwise

__all__ = ["cross_fitted", "features", "held_out"]

BUMPS = 30  # over all inputs
ALONG = 8  # along each of them
MOST_ALONG = 6  # inputs
WIDTHS = (0.1, 0.35, 1.2)  # in standard deviations of the inputs
TURNS = 60  # of L-BFGS
FITS = 4  # to different rows


def features(
    X: Float[np.ndarray, "N p"], columns: list[Column], seed: int
) -> list[Float[np.ndarray, "N K"]]:
    """The features of every row, one table for each width."""
    parts = []
    for j, column in enumerate(columns):
        if column.kind == "category":
            codes = np.unique(X[:, j], return_inverse=True)[1]
            most = np.argsort(-np.bincount(codes))[:ALONG]
            parts.append((codes[:, None] == most).astype(float))
        else:
            parts.append(((X[:, j] - X[:, j].mean()) / (X[:, j].std() or 1.0))[:, None])
    every = np.concatenate(parts, axis=1)
    generator = np.random.default_rng(seed)
    views = [(every, BUMPS)] + [(part, ALONG) for part in parts[:MOST_ALONG] if len(parts) > 1]
    return [np.concatenate([_bumps(view, n, w, generator) for view, n in views], 1) for w in WIDTHS]


def _bumps(
    Z: Float[np.ndarray, "N p"], n: int, width: float, generator: np.random.Generator
) -> Float[np.ndarray, "N n"]:
    """Radial functions around some of the rows, scaled so that a row's squares add up to one."""
    distinct = np.unique(Z, axis=0)
    some = generator.choice(len(distinct), min(500, len(distinct)), replace=False)
    spread = np.sqrt(np.mean(np.var(distinct[some], axis=0).sum())) or 1.0
    order = some[np.argsort(distinct[some, 0])]
    centres = distinct[order[np.linspace(0, len(order) - 1, min(n, len(order))).astype(int)]]
    square = ((Z[:, None] - centres) ** 2).sum(axis=2)
    bumps = np.exp(-0.5 * square / (width * spread) ** 2)
    padded = np.pad(bumps, ((0, 0), (0, n - bumps.shape[1])))
    return padded / np.sqrt(np.maximum((padded**2).sum(axis=1, keepdims=True), 1e-3))


# Compiled once for all columns of a kind: numbers are arguments, and none is part of the program.


def _functions(
    z: Array, phi: Array, likelihood: Likelihood, spread: Array
) -> tuple[Likelihood, Array, Array]:
    """The likelihood with its learned numbers, the parameter functions, and the weights."""
    J, names = len(likelihood.latent), sorted(likelihood.free)
    constants, free, weights = jnp.split(z, [J, J + len(names)])
    if names:
        named = dict(zip(names, free, strict=True))
        likelihood = eqx.tree_at(lambda one: one.free, likelihood, named)
    return likelihood, constants + phi @ (weights.reshape(-1, J) * spread), weights


@compiled
def _densities(z, phi, y, likelihood, spread):
    """The log density of each value."""
    of, f, _ = _functions(z, phi, likelihood, spread)
    return jax.vmap(of.log_observed)(y, f)


@compiled
def _cost(z, phi, y, likelihood, spread):
    """The negative log density of all values and of the weights, and its slope."""

    def total(z: Array) -> Array:
        of, f, weights = _functions(z, phi, likelihood, spread)
        return 0.5 * jnp.sum(weights**2) - jnp.sum(jax.vmap(of.log_observed)(y, f))

    return jax.value_and_grad(total)(z)


def held_out(
    likelihood: Likelihood,
    tables: list[Float[np.ndarray, "N K"]],
    y: Float[np.ndarray, " N"],
    train: np.ndarray,
    test: np.ndarray,
) -> Float[np.ndarray, " n"] | None:
    """Learn from some rows and return the log density of others; None if one is not finite.

    Each half of the others uses the width that scores best on the other half.
    """
    start = likelihood.start(y[train])
    J, K = len(start.constant), tables[0].shape[1]
    spread = jnp.asarray(start.spread)

    def best(phi: np.ndarray, begin: np.ndarray) -> np.ndarray:
        given = jnp.asarray(phi[train]), jnp.asarray(y[train]), likelihood, spread

        def finite(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = map(np.asarray, _cost(jnp.asarray(z), *given))
            fine = np.isfinite(value) and np.isfinite(slope).all()
            return (float(value), slope) if fine else (1e10, np.zeros_like(z))

        return minimize(finite, begin, jac=True, method="L-BFGS-B", options={"maxiter": TURNS}).x

    def scored(phi: np.ndarray, z: np.ndarray) -> np.ndarray:
        at = jnp.asarray(z)
        return rowwise(
            lambda phi, y: _densities(at, phi, y, likelihood, spread), phi[test], y[test]
        )

    # The constants are learned first, without features.
    free = [start.free[name] for name in sorted(start.free)]
    begin = np.concatenate([start.constant, free, np.zeros(K * J)])
    constant = best(np.zeros_like(tables[0]), begin)
    each = np.stack([scored(phi, best(phi, constant)) for phi in tables])
    even = np.arange(len(test)) % 2 == 0
    first, second = each[:, ~even].mean(axis=1).argmax(), each[:, even].mean(axis=1).argmax()
    density = np.where(even, each[first], each[second])
    return density if np.isfinite(density).all() else None


def cross_fitted(
    likelihood: Likelihood,
    tables: list[Float[np.ndarray, "N K"]],
    y: Float[np.ndarray, " N"],
    most: int,
    seed: int,
) -> Float[np.ndarray, " N"] | None:
    """The log density of each value, as a mean over fits to others; None if a fit fails.

    Every fit takes 60% of the rows, but no more than `most`. Several fits are made because the
    choice of rows can decide between likelihoods that are nearly as good. They need no further
    compiling, and cost little.
    """
    N = len(y)
    many = min(most, max(1, int(0.6 * N)))
    total, times = np.zeros(N), np.zeros(N)
    for k in range(FITS):
        order = np.roll(np.random.default_rng(seed).permutation(N), k * N // FITS)
        density = held_out(likelihood, tables, y, order[:many], order[many:])
        if density is None:
            return None
        total[order[many:]] += density
        times[order[many:]] += 1
    return total[times > 0] / times[times > 0]
