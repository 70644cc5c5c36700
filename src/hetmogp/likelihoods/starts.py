"""Where learning starts for one output, from its values alone."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

from ..linalg import compiled

__all__ = ["Start", "likely"]


class Start(NamedTuple):
    """Where learning starts for one output, found from its values alone.

    Attributes:
        constant: the parameter functions of the best constant model.
        spread: how far each parameter function may be expected to move.
        free: the learned constants, on the scale of their links.
    """

    constant: np.ndarray  # (J_d,)
    spread: np.ndarray  # (J_d,)
    free: dict[str, float]


def likely(likelihood: Any, y: np.ndarray, known: Mapping[str, float]) -> dict[str, float]:
    """The most likely constants, on the scale of their links; those known are kept."""
    names = tuple(name for name in (*likelihood.latent, *likelihood.free) if name not in known)
    some = np.unique(np.linspace(0, len(y) - 1, 1000).astype(int))  # enough to start from
    given = {
        n: jnp.asarray(np.broadcast_to(value, y.shape)[some])
        for n, value in likelihood.given.items()
    }
    held = likelihood, {n: jnp.asarray(v) for n, v in known.items()}, jnp.asarray(y[some]), given

    def finite(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = map(np.asarray, _cost(jnp.asarray(z), *held, names=names))
        fine = np.isfinite(value) and np.isfinite(slope).all()
        return (float(value), np.asarray(slope, float)) if fine else (1e10, np.zeros_like(z))

    # Locations start at the centre of the data, positive parameters at its spread or at one.
    middle, spread = float(np.median(y)), np.log(float(np.std(y)) or 1.0)
    kinds = [likelihood.links[name].name for name in names]
    begins = [
        np.array([{"identity": at, "exp": size}.get(kind, 0.0) for kind in kinds])
        for at, size in ((middle, spread), (middle, 0.0), (0.0, 0.0))
    ]
    ends = [minimize(finite, begin, jac=True, method="L-BFGS-B") for begin in begins]
    best = min(ends, key=lambda end: end.fun)
    return {**known, **dict(zip(names, best.x.tolist(), strict=True))}


@partial(compiled, static=("names",))
def _cost(z, likelihood, known, values, given, *, names):
    """The mean negative log density of the values, and its slope along the numbers named."""

    def cost(z: Array) -> Array:
        every = {**known, **dict(zip(names, z, strict=True))}
        free = {name: every[name] for name in likelihood.free}
        fitted = eqx.tree_at(lambda one: one.free, likelihood, free) if free else likelihood
        f = jnp.stack([jnp.asarray(every[name], float) for name in likelihood.latent])
        return -jnp.mean(jax.vmap(lambda y, g: fitted.at(g).log_observed(y, f))(values, given))

    return jax.value_and_grad(cost)(z)
