"""Variational EM on the full batch: for small data.

E-step. Each observation keeps a Gaussian *site* on its own parameter functions, from the gradients
r, G of its expected log-likelihood with respect to the mean and covariance of f: precision −2G and
linear term r − 2Gμ. q(u) follows from the sites in closed form (`variational.posterior`), and
replacing the sites by those of the new q, a share ρ at a time, is a natural-gradient step. ρ is
halved whenever the bound would fall, so it never does.

M-step. L-BFGS on the hyperparameters with the *sites* held, not q: as kernels and weights move, q
follows, which keeps the bound tight and makes rounds few. For Gaussian outputs one E-step
gives the best q, and the M-step optimises the collapsed bound.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..bound import (
    Functions,
    Latents,
    Parameters,
    Rules,
    at_observations,
    expected_log_likelihood,
    is_wide,
)
from ..data import Batch, Observations
from ..linalg import compiled
from ..marginals import by_projection
from ..priors import Projection
from ..variational import Factors, kl, posterior
from .free import Anchor, free, with_free
from .lbfgs import maximise

__all__ = ["ClassSites", "Sites", "State", "e_step", "flat_sites", "init", "settle", "step"]

E_STEPS = 200
M_ITERATIONS = 25


class Sites(eqx.Module):
    """exp(linearᵀf − ½ fᵀ precision f) for every observation of one output.

    `metric` is `precision` made positive semi-definite (`_dominant`). It sets the pace of the means
    and leaves their fixed point alone; `precision` itself gives the covariances.
    """

    linear: Float[Array, "n J"]
    metric: Float[Array, "n J J"]
    precision: Float[Array, "n J J"]


class ClassSites(eqx.Module):
    """The same for a Categorical with more classes than latents, at a cost linear in the classes.

    With p the expected class probabilities, diag(p) − p pᵀ dominates the precision −2G of f and
    serves as metric. The variances of the latents need the precision itself, but only along each
    latent: `ratio` is how much of the metric that is.
    """

    linear: Float[Array, "n J"]
    share: Float[Array, "n J"]  # p, times the weight of the observation
    ratio: Float[Array, "n R"]


class State(NamedTuple):
    """What VEM carries from round to round.

    `objective`, what a round raises, is the bound plus the prior on constants of outputs with few
    values; where there is no such output it is the bound.
    """

    parameters: Parameters
    sites: tuple[Sites | ClassSites, ...]
    q: Factors
    bound: float
    objective: float
    anchor: Anchor


def flat_sites(
    parameters: Parameters, batch: Batch, rules: Rules
) -> tuple[Sites | ClassSites, ...]:
    """Sites that say nothing: q(u) is the prior."""
    R = parameters.prior.weights.shape[1]
    result: list[Sites | ClassSites] = []
    for likelihood, seen in zip(parameters.likelihoods, batch.outputs, strict=True):
        n, J = seen.y.shape[0], len(likelihood.latent)
        nothing = jnp.asarray(np.zeros((n, J)))  # made by NumPy: nothing to compile
        if is_wide(likelihood, R, rules):
            result.append(ClassSites(nothing, nothing, jnp.asarray(np.ones((n, R)))))
        else:
            square = jnp.asarray(np.zeros((n, J, J)))
            result.append(Sites(nothing, square, square))
    return tuple(result)


def _seen_by_latents(
    site: Sites, W: Float[Array, "J R"], b: Float[Array, " J"]
) -> tuple[Float[Array, "n R"], Float[Array, "n R R"], Float[Array, "n R"]]:
    """The linear term, the metric and the precision of a site, for u instead of f = b + W u."""
    n, J = site.linear.shape
    R = W.shape[1]
    pairs = (W[:, None, :, None] * W[None, :, None, :]).reshape(J * J, R * R)
    squares = (W[:, None, :] * W[None, :, :]).reshape(J * J, R)
    linear = (site.linear - site.metric @ b) @ W
    metric = site.metric.reshape(n, J * J) @ pairs
    return linear, metric.reshape(n, R, R), site.precision.reshape(n, J * J) @ squares


def _classes_seen_by_latents(
    site: ClassSites, W: Float[Array, "J R"], b: Float[Array, " J"], weight: Float[Array, " n"]
) -> tuple[Float[Array, "n R"], Float[Array, "n R R"], Float[Array, "n R"]]:
    """The same, the metric being diag(share) − share shareᵀ/weight."""
    J, R = W.shape
    inverse = jnp.where(weight > 0, 1.0 / jnp.where(weight > 0, weight, 1.0), 0.0)[:, None]
    pairs = (W[:, :, None] * W[:, None, :]).reshape(J, R * R)
    mean = site.share @ W
    metric = (site.share @ pairs).reshape(-1, R, R)
    metric = metric - mean[:, :, None] * mean[:, None, :] * inverse[:, :, None]
    moved = site.share * b - site.share * (site.share @ b)[:, None] * inverse  # metric of f times b
    precision = site.ratio * jnp.diagonal(metric, axis1=1, axis2=2)
    return (site.linear - moved) @ W, metric, precision


def _weights(seen: Observations) -> Float[Array, " n"]:
    return jnp.where(seen.seen, seen.weight, 0.0) * seen.scale


def q_from_sites(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    projection: Projection,
    batch: Batch,
) -> Factors:
    """q(u) given the sites: their sum at each input row, as seen by the latents."""
    W, b = parameters.prior.W, parameters.prior.b
    N, R = batch.X.shape[0], W.shape[1]
    total = jnp.zeros((N, R + R * R + R))
    for d, site, seen in zip(parameters.slices, sites, batch.outputs, strict=True):
        if isinstance(site, Sites):
            parts = _seen_by_latents(site, W[d], b[d])
        else:
            parts = _classes_seen_by_latents(site, W[d], b[d], _weights(seen))
        flat = [part.reshape(len(part), -1) for part in parts]
        total = total.at[seen.row].add(jnp.concatenate(flat, axis=1))
    linear, metric, precision = jnp.split(total, [R, R + R * R], axis=1)
    return posterior(projection.A, linear, metric.reshape(N, R, R), precision)


def value_and_sites(
    parameters: Parameters,
    q: Factors,
    projection: Projection,
    batch: Batch,
    rules: Rules,
) -> tuple[Float[Array, ""], tuple[Sites | ClassSites, ...]]:
    """The bound at q, and the sites that a full natural-gradient step from there would set."""
    at = at_observations(parameters, *by_projection(projection, q), batch, rules)
    value, gradients = jax.value_and_grad(
        lambda at: expected_log_likelihood(parameters, at, batch, rules)
    )(at)
    W, b = parameters.prior.W, parameters.prior.b
    sites: list[Sites | ClassSites] = []
    for d, here, slope, seen in zip(parameters.slices, at, gradients, batch.outputs, strict=True):
        if isinstance(here, Functions):
            r, G = slope
            precision = -(G + jnp.swapaxes(G, 1, 2))
            metric = _dominant(precision)
            linear = r + jnp.einsum("njk,nk->nj", metric, here.mean)
            sites.append(Sites(linear, metric, precision))
        else:
            sites.append(_class_sites(W[d], b[d], here, slope, seen))
    return value - kl(q), tuple(sites)


def _class_sites(
    W: Float[Array, "J R"],
    b: Float[Array, " J"],
    here: Latents,
    slope: Latents,
    seen: Observations,
) -> ClassSites:
    """From the gradients: weight · (1[class] − p) for f, half the curvature along each latent."""
    weight = _weights(seen)[:, None]
    r, g = slope.shift, slope.variance
    share = jnp.maximum(weight * (seen.y[:, None] == jnp.arange(1, len(b) + 1)) - r, 0.0)
    f = b + here.mean @ W.T
    inverse = jnp.where(weight > 0, 1.0 / jnp.where(weight > 0, weight, 1.0), 0.0)
    linear = r + share * f - share * jnp.sum(share * f, axis=1, keepdims=True) * inverse
    along = share @ W**2 - (share @ W) ** 2 * inverse
    ratio = jnp.where(along > 1e-12, -2.0 * g / jnp.maximum(along, 1e-12), 1.0)
    return ClassSites(linear, share, jnp.clip(ratio, 0.0, 10.0))


def _dominant(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
    """Made positive semi-definite by raising diagonals until they dominate their rows.

    Rows are compared in units of their own diagonals, so that the scale of y makes no difference.
    """
    diagonal = jnp.diagonal(precision, axis1=1, axis2=2)
    unit = jnp.sqrt(jnp.abs(diagonal) + jnp.finfo(diagonal.dtype).tiny)
    relative = precision / (unit[:, :, None] * unit[:, None, :])
    own = diagonal / unit**2
    others = jnp.sum(jnp.abs(relative), axis=2) - jnp.abs(own)
    lift = jnp.maximum(others - own, 0.0) * unit**2
    return precision + lift[:, :, None] * jnp.eye(lift.shape[1], dtype=lift.dtype)


@compiled
def e_step(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    batch: Batch,
    jitter: Array,
    rules: Rules,
    tolerance: Array,
) -> tuple[tuple[Sites | ClassSites, ...], Factors, Float[Array, ""]]:
    """Maximise the bound over q(u) with the hyperparameters held; the bound never falls."""
    projection = parameters.prior.project(batch.X, jitter)

    def evaluate(sites):
        q = q_from_sites(parameters, sites, projection, batch)
        return q, *value_and_sites(parameters, q, projection, batch, rules)

    def unfinished(carry):
        _, _, _, _, rho, gain, n = carry
        return (n < E_STEPS) & (rho > 1e-4) & (gain > tolerance)

    def attempt(carry):
        sites, q, value, target, rho, _, n = carry
        trial = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, sites, target)
        trial_q, trial_value, trial_target = evaluate(trial)
        accept = trial_value >= value  # false for NaN
        new = (trial, trial_q, trial_value, trial_target)
        kept = jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, (sites, q, value, target))
        # A short step gains little by itself: what counts is what a full one promises.
        gained = jnp.where(accept, (trial_value - value) / rho, jnp.inf)
        rho = jnp.where(accept, jnp.minimum(1.0, 2.0 * rho), 0.5 * rho)
        return (*kept, rho, gained, n + 1)

    # The first attempt only evaluates: its target is the sites themselves.
    R, M, _ = projection.A.shape
    nothing = Factors(jnp.zeros((R, M)), jnp.zeros((R, M, M)))
    infinity = jnp.full((), jnp.inf)
    carry = (sites, nothing, -infinity, sites, jnp.ones(()), infinity, 0)
    sites, q, value, *_ = jax.lax.while_loop(unfinished, attempt, carry)
    return sites, q, value


@compiled
def _objective(
    values: PyTree,
    anchor: Anchor,
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    batch: Batch,
    jitter: Array,
    rules: Rules,
) -> tuple[Float[Array, ""], PyTree]:
    """The objective and its gradient with respect to the hyperparameters, sites held."""

    def objective(values: PyTree) -> Array:
        moved = with_free(parameters, values)
        projection = moved.prior.project(batch.X, jitter)
        q = q_from_sites(moved, sites, projection, batch)
        at = at_observations(moved, *by_projection(projection, q), batch, rules)
        bound = expected_log_likelihood(moved, at, batch, rules) - kl(q)
        return bound + anchor.log_prior(values, moved.slices)

    return jax.value_and_grad(objective)(values)


def m_step(
    state: State, batch: Batch, jitter: Array, rules: Rules, learn_inducing: bool
) -> Parameters:
    """Raise the objective over the hyperparameters by L-BFGS, with the sites held."""
    parameters, sites, anchor = state.parameters, state.sites, state.anchor
    values, _ = maximise(
        lambda values: _objective(values, anchor, parameters, sites, batch, jitter, rules),
        free(parameters, learn_inducing),
        M_ITERATIONS,
    )
    return with_free(parameters, values)


def settle(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    anchor: Anchor,
    batch: Batch,
    jitter: float,
    rules: Rules,
    tolerance: float,
) -> State:
    """The state of a model whose q(u) has been brought to its best by an E-step."""
    sites, q, bound = e_step(
        parameters, sites, batch, jnp.asarray(jitter), rules, jnp.asarray(tolerance)
    )
    objective = float(bound + anchor.log_prior(free(parameters), parameters.slices))
    return State(parameters, sites, q, float(bound), objective, anchor)


def init(
    parameters: Parameters,
    anchor: Anchor,
    batch: Batch,
    jitter: float,
    rules: Rules,
    tolerance: float,
) -> State:
    """The first E-step."""
    sites = flat_sites(parameters, batch, rules)
    return settle(parameters, sites, anchor, batch, jitter, rules, tolerance)


def step(
    state: State,
    batch: Batch,
    jitter: float,
    rules: Rules,
    tolerance: float,
    learn_inducing: bool,
) -> State:
    """One round: an M-step and the E-step after it."""
    moved = m_step(state, batch, jnp.asarray(jitter), rules, learn_inducing)
    new = settle(moved, state.sites, state.anchor, batch, jitter, rules, tolerance)
    return new if new.objective >= state.objective else state  # rounding may end a climb
