"""Expectations under a small Gaussian: E[h(f)], f ~ N(mean, cov).

One variable: Gauss–Hermite. Two or three: a product of Gauss–Hermite rules, rotated to the
covariance. More: quasi-Monte Carlo with Sobol points and their mirror images, whose number does not
grow with the number of variables.
"""

from collections.abc import Callable
from functools import cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float
from scipy.stats import qmc

__all__ = ["Expectation", "constant", "expect", "gauss_hermite", "place", "standard_nodes"]

Expectation = Literal["auto", "quadrature", "montecarlo"]

SOBOL_POINTS = 128  # a power of two; there are as many mirror images
FIXED_SOBOL_POINTS = 1024  # for fixed points, whose errors do not average out
LARGEST_GRID = 3  # the most variables of a product grid
GRID_NODES = {1: 20, 2: 12, 3: 10}  # nodes per variable
FEW_NODES = {1: 12, 2: 4, 3: 4}  # for `expect(..., few=True)`
COARSE_GRID_NODES = {**GRID_NODES, 3: 7}  # nodes per variable where the method is "auto"


def constant(values: np.ndarray) -> Array:
    """A cached array in the current precision; JAX would keep that of its first use."""
    return jnp.asarray(np.array(values, dtype=jnp.result_type(float)))


@cache
def gauss_hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights with Σ w h(x) = E[h(x)], x ~ N(0, 1), exact to degree 2n − 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


@cache
def _grid(dimension: int, n: int, least: float) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = gauss_hermite(n)
    points = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij"), axis=-1)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * dimension, indexing="ij"), axis=-1), axis=-1)
    points, mass = points.reshape(-1, dimension), mass.reshape(-1)
    heavy = mass > least * mass.max()  # the corners of a product grid have negligible weight
    return points[heavy], mass[heavy] / mass[heavy].sum()


@cache
def _sobol(dimension: int, n: int) -> np.ndarray:
    """n scrambled Sobol points in the unit cube, the same in every call."""
    return qmc.Sobol(dimension, scramble=True, rng=0).random(n)


def is_grid(dimension: int, method: Expectation) -> bool:
    """Whether the nodes form a grid; otherwise they are quasi-Monte Carlo points."""
    return method == "quadrature" or (method == "auto" and dimension <= LARGEST_GRID)


def standard_nodes(
    dimension: int, method: Expectation = "auto", key: Array | None = None, n: int | None = None
) -> tuple[Float[Array, "K J"], Float[Array, " K"]]:
    """Nodes and weights for a standard normal in `dimension` variables.

    Args:
        dimension: the number of parameter functions that one observation depends on.
        method: "auto" uses a grid for up to three variables and quasi-Monte Carlo beyond.
        key: shifts the quasi-Monte Carlo points at random, which makes them unbiased. Without it
            they are fixed, and an objective is a deterministic function.
        n: the number of nodes per variable of a grid, or of mirrored pairs of points.
    """
    if method == "quadrature" and dimension > LARGEST_GRID:
        raise ValueError(
            f'expectation="quadrature" needs n^{dimension} nodes for an output with {dimension} '
            'parameter functions; use expectation="auto" or "montecarlo"'
        )
    if is_grid(dimension, method):
        if method == "quadrature":
            grid, mass = _grid(dimension, n or GRID_NODES[dimension], 1e-12)
        else:
            least = 1e-12 if dimension < 3 else 1e-5
            grid, mass = _grid(dimension, n or COARSE_GRID_NODES[dimension], least)
        return constant(grid), constant(mass)
    uniform = constant(_sobol(dimension, n or SOBOL_POINTS))
    if key is not None:
        uniform = jnp.mod(uniform + jax.random.uniform(key, (dimension,), uniform.dtype), 1.0)
    half = ndtri(jnp.clip(uniform, 1e-6, 1.0 - 1e-6))
    half = half / jnp.sqrt(jnp.mean(half**2, axis=0))  # unit variance; mirror images give mean 0
    points = jnp.concatenate([half, -half])
    return points, jnp.full(points.shape[0], 1.0 / points.shape[0])


def root(cov: Float[Array, "J J"]) -> Float[Array, "J J"]:
    """The lower triangle C with C Cᵀ = cov, column by column and without LAPACK (J is small).

    A pivot is at least 1e-9 of its variance, so the root of a singular covariance and its gradient
    are finite.
    """
    J = cov.shape[0]
    C = jnp.zeros_like(cov)
    for j in range(J):
        variance = jnp.maximum(cov[j, j], 1e-30)
        pivot = jnp.maximum(cov[j, j] - C[j, :j] @ C[j, :j], 0.0) + 1e-9 * variance
        diagonal = jnp.sqrt(pivot)
        below = (cov[j + 1 :, j] - C[j + 1 :, :j] @ C[j, :j]) / diagonal
        C = C.at[j, j].set(diagonal).at[j + 1 :, j].set(below)
    return C


def place(
    points: Float[Array, "K J"], mean: Float[Array, " J"], cov: Float[Array, "J J"]
) -> Float[Array, "K J"]:
    """Nodes of a standard normal transformed to N(mean, cov)."""
    return mean + points @ root(cov).T


def expect(
    h: Callable[[Float[Array, " J"]], Float[Array, ""]],
    mean: Float[Array, " J"],
    cov: Float[Array, "J J"],
    method: Expectation = "auto",
    key: Array | None = None,
    few: bool = False,
) -> Float[Array, ""]:
    """E[h(f)], f ~ N(mean, cov), with gradients that are right even if cov is singular.

    `few` uses fewer nodes of a grid, for a function that is smooth and expensive.

    A grid is symmetric in each variable, and its sum is differentiated directly. Monte Carlo points
    are not symmetric, and differentiating through their spread would divide their errors by small
    standard deviations. There the gradients are those of the expectation itself, E[∇h] with respect
    to the mean and ½ E[∇²h] with respect to the covariance, at the same points or some of them.
    """
    J = mean.shape[0]
    if is_grid(J, method):
        points, weights = standard_nodes(J, method, n=FEW_NODES[J] if few else None)
        return weights @ jax.vmap(h)(place(points, mean, cov))
    n = FIXED_SOBOL_POINTS if key is None else SOBOL_POINTS
    points, weights = standard_nodes(J, method, key, n)
    fixed = jax.lax.stop_gradient
    f = fixed(place(points, mean, cov))
    slope = fixed(weights @ jax.vmap(jax.grad(h))(f))
    some = jnp.concatenate([f[:SOBOL_POINTS], f[n : n + SOBOL_POINTS]])  # each costs J times more
    curvature = fixed(jnp.mean(jax.vmap(jax.hessian(h))(some), axis=0))
    move, spread = mean - fixed(mean), cov - fixed(cov)  # both are zero, but not their gradients
    return weights @ jax.vmap(h)(f) + slope @ move + 0.5 * jnp.sum(curvature * spread)
