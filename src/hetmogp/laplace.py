"""How well lengthscales and correlations are determined: Laplace's approximation.

At the hyperparameters z that learning found, with ℓ(z) = max_q L(z, q) + log p(z) the profile of
the bound that it climbed,

    p(z | y) ≈ N(ẑ, H⁻¹),    H = −∂²ℓ/∂z².

H comes from central differences of the gradient of ℓ, two E-steps for each hyperparameter. For
Gaussian outputs with inducing inputs at all rows ℓ is the evidence itself. Inducing inputs are
held. Numbers of kernels have intervals on the scale of their logarithms, correlations ρ on that of
artanh ρ; both follow from H by the delta method.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .bound import Rules
from .data import full_batch
from .fitted import Fitted
from .fitting import vem
from .fitting.start import observed_values, priors_of_points
from .left_out import refuse_others
from .linalg import compiled
from .parameters import Parameters
from .record import Widths
from .session import session
from .tables import read

__all__ = ["widths"]

STEP = 0.02  # of a hyperparameter, all being of order one
TOLERANCE = 1e-8  # nats that an E-step may leave
LEAST = 1e-2  # the curvature of a direction that the data say nothing about: ten units either way
CLOSE = 1e-9  # to one: a correlation that is fixed


def widths(
    fitted: Fitted,
    X: Any,
    Y: Any,
    rules: Rules,
    weight_scale: float | None,
    priors: bool,
    watch: Callable[[float], None] | None = None,
) -> Widths:
    """The widths of a fitted model; see `HetMOGP.intervals`.

    Args:
        fitted: the model.
        X: the inputs that were fitted.
        Y: the outputs that were fitted.
        rules: how the bound is evaluated.
        weight_scale: as given to `HetMOGP`.
        priors: whether hyperparameters have priors.
        watch: called with the completed share, from 0 to 1.
    """
    by_name = {name: fitted.likelihoods[name] for name in sorted(fitted.likelihoods)}
    data = read(by_name, X, Y, fitted.columns, some=True)
    refuse_others(fitted, data, "intervals are")
    with session("float64"):
        likelihoods = jax.tree.map(_numbers, tuple(by_name.values()))
        prior = jax.tree.map(_numbers, fitted.posterior.prior)
        parameters = Parameters(prior, likelihoods)
        if priors:  # only their curvature counts, so they may as well be centred here
            values = [y for _, _, y, _ in observed_values(data)]
            hyperprior, anchors = priors_of_points(likelihoods, values, weight_scale, prior.kernels)
            parameters = Parameters(prior.with_hyperprior(hyperprior), likelihoods, anchors)
        batch, _ = full_batch(data, fitted.scaling)
        problem = vem.Problem(batch, rules, type(fitted.posterior.q), TOLERANCE, False)
        state = vem.init(parameters, problem, fitted.posterior.jitter)
        cov, active = _covariance(state, problem, fitted.posterior.jitter, watch)
        return _of_numbers(parameters, cov, active, fitted.places)


def _numbers(leaf: Any) -> Array:
    return jnp.asarray(np.asarray(leaf, float))


def _covariance(
    state: vem.State,
    problem: vem.Problem,
    jitter: float,
    watch: Callable[[float], None] | None,
) -> tuple[Float[np.ndarray, "n n"], np.ndarray]:
    """H⁻¹ over the hyperparameters that were learned, and which of them these are."""
    z = np.asarray(ravel_pytree(state.parameters.free(False))[0], float)
    active = np.flatnonzero(np.asarray(ravel_pytree(_learned(state.parameters))[0]))
    H = np.empty((len(active), len(active)))
    for k, i in enumerate(active):
        step = STEP * (np.arange(len(z)) == i)
        ends = (vem.slope(z + sign * step, state, problem, jitter) for sign in (1.0, -1.0))
        up, down = (np.asarray(end, float)[active] for end in ends)
        H[k] = (down - up) / (2.0 * STEP)
        if watch is not None:
            watch((k + 1) / len(active))
    if not np.isfinite(H).all():
        raise ArithmeticError("the bound is not finite near the hyperparameters that were learned")
    sizes, axes = np.linalg.eigh(0.5 * (H + H.T))
    half = axes / np.sqrt(np.maximum(sizes, LEAST))
    return half @ half.T, active


def _learned(parameters: Parameters) -> Any:
    """One for each number that was learned, zero for those that have no effect."""
    free = jax.tree.map(jnp.ones_like, parameters.free(False))
    prior = parameters.prior
    mask = getattr(prior, "mask", None)
    if mask is not None:
        free["weights"] = jnp.where(getattr(prior, "held", False), 0.0, jnp.asarray(mask))
    return free


def _of_numbers(
    parameters: Parameters, cov: np.ndarray, active: np.ndarray, places: np.ndarray
) -> Widths:
    """What H⁻¹ says of kernels and correlations, by the delta method."""
    free = parameters.free(False)
    marks = jax.tree.map(jnp.zeros_like, free)
    marks["kernels"] = jax.tree.map(jnp.ones_like, free["kernels"])
    of_kernels = np.asarray(ravel_pytree(marks)[0], bool)
    every = np.zeros(len(of_kernels))
    every[active] = np.sqrt(np.diag(cov))
    slopes = np.asarray(_slopes(parameters))[:, :, active][places[:, None], places]
    variance = np.einsum("ijk,kl,ijl->ij", slopes, cov, slopes)
    return Widths(every[of_kernels].tolist(), np.sqrt(np.maximum(variance, 0.0)).tolist())


@compiled
def _slopes(parameters: Parameters) -> Float[Array, "J J n"]:
    """The gradient of artanh of each correlation with respect to all hyperparameters."""
    z, unravel = ravel_pytree(parameters.free(False))

    def transformed(z: Array) -> Array:
        moved = parameters.with_free(unravel(z))
        rho = correlation(moved)
        inside = jnp.abs(rho) < 1.0 - CLOSE
        return jnp.where(inside, jnp.arctanh(jnp.where(inside, rho, 0.0)), 0.0)

    return jax.jacfwd(transformed)(z)


def correlation(parameters: Parameters) -> Float[Array, "J J"]:
    """The correlation of the parameter functions at one input, without slopes and groups."""
    prior: Any = parameters.prior
    counts = prior.counts or (prior.inducing_inputs.shape[1],) * len(prior.smooth)
    each = zip(prior.smooth, prior.Z, counts, strict=True)
    sizes = [jnp.mean(kernel.diag(Z[:M])) for kernel, Z, M in each]
    free = [0.0 if kernel.own_scale else 1.0 for kernel in prior.kernels]
    weights = jnp.stack([s * f for s, f in zip(sizes, free, strict=True)])
    W = prior.W * jnp.sqrt(jnp.repeat(weights, np.asarray(prior.ranks)))
    cov = W @ W.T
    variance = jnp.diagonal(cov)
    unit = jnp.where(variance > 0.0, jnp.sqrt(jnp.where(variance > 0.0, variance, 1.0)), jnp.inf)
    return cov / jnp.outer(unit, unit)
