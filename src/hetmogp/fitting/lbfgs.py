"""scipy's L-BFGS, with a rule of its own to stop."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import OptimizeResult, minimize

__all__ = ["maximise"]

LARGE = 1e10  # stands for what is not finite: scipy would otherwise end at NaN in silence
WINDOW = 10  # iterations over which a gain is taken: single ones may gain little on the way


def maximise(
    value_and_gradient: Callable[[np.ndarray], tuple[Array, Array]],
    start: Float[np.ndarray, " n"],
    iterations: int,
    tolerance: float = 0.0,
) -> tuple[Float[np.ndarray, " n"], bool]:
    """Raise a function by L-BFGS; also whether it ended because there was nothing to gain.

    Args:
        value_and_gradient: of a vector like `start`.
        start: where to begin.
        iterations: the most iterations.
        tolerance: it stops when some iterations together gain less than this.
    """
    reached: list[float] = []

    def negative(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = (np.asarray(a, float) for a in value_and_gradient(z))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return LARGE, np.zeros_like(z)
        return -float(value), -slope

    def watch(intermediate_result: OptimizeResult) -> None:
        reached.append(-intermediate_result.fun)
        if len(reached) > WINDOW and reached[-1] - reached[-1 - WINDOW] < tolerance:
            raise StopIteration

    best = minimize(
        negative,
        np.asarray(start, float),
        jac=True,
        method="L-BFGS-B",
        callback=watch,
        options={"maxiter": iterations, "ftol": 0.0, "gtol": 1e-6, "maxcor": 20},
    )
    return best.x, best.status in (0, 99)  # a flat gradient, or the rule above
