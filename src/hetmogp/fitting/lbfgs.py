"""scipy's L-BFGS on a tree of arrays."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree
from scipy.optimize import minimize

__all__ = ["maximise"]

LARGE = 1e10  # stands for what is not finite: scipy would otherwise end at NaN in silence


def maximise(
    value_and_gradient: Callable[[Array, PyTree], tuple[Array, Array]],
    start: PyTree,
    iterations: int,
) -> tuple[PyTree, float]:
    """Raise a function by so many iterations of L-BFGS.

    Args:
        value_and_gradient: of the flattened tree; the tree itself is passed to unflatten it by.
        start: where to begin.
        iterations: the most iterations; stopping is the caller's affair.

    Returns:
        The best tree found and its value.
    """
    flat, unravel = ravel_pytree(start)

    def negative(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(jnp.asarray(z, flat.dtype), start)
        gradient = np.asarray(gradient, float)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return LARGE, np.zeros_like(z)
        return -float(value), -gradient

    found = minimize(
        negative,
        np.asarray(flat, float),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "ftol": 0.0, "gtol": 1e-6, "maxcor": 20},
    )
    return unravel(jnp.asarray(found.x, flat.dtype)), -float(found.fun)
