"""scipy's L-BFGS on a tree of arrays."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy.optimize import minimize

__all__ = ["maximise"]

LARGE = 1e10  # stands for what is not finite: scipy would otherwise end at NaN in silence


def maximise(
    value_and_gradient: Callable[[PyTree], tuple[Array, PyTree]], start: PyTree, iterations: int
) -> tuple[PyTree, float]:
    """Raise a function by so many iterations of L-BFGS.

    Args:
        value_and_gradient: of a tree like `start`.
        start: where to begin.
        iterations: the most iterations; stopping is the caller's affair.

    Returns:
        The best tree found and its value.
    """
    leaves, structure = jax.tree.flatten(start)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def unravel(z: np.ndarray) -> PyTree:
        parts = zip(np.split(z, ends), leaves, strict=True)
        arrays = [jnp.asarray(part.reshape(leaf.shape), leaf.dtype) for part, leaf in parts]
        return jax.tree.unflatten(structure, arrays)

    def ravel(tree: PyTree) -> np.ndarray:
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(float)

    def negative(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(unravel(z))
        flat = ravel(gradient)
        if not (np.isfinite(value) and np.isfinite(flat).all()):
            return LARGE, np.zeros_like(z)
        return -float(value), -flat

    best = minimize(
        negative,
        ravel(start),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "ftol": 0.0, "gtol": 1e-6, "maxcor": 20},
    )
    return unravel(best.x), -float(best.fun)
