"""Variational EM on the full batch: for small data.

E-step. Each observation keeps a Gaussian *site* on its own parameter functions (`sites`). q(u)
follows from the sites in closed form, and replacing the sites by those of the new q, a share ρ at a
time, is a natural-gradient step. ρ is halved whenever the bound would fall, so it never does.

M-step. L-BFGS on the hyperparameters with the *sites* held, not q: as kernels and weights move, q
follows, which keeps the bound tight and makes rounds few. For Gaussian outputs one E-step
gives the best q, and the M-step optimises the collapsed bound.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..batch import Batch
from ..bound import Rules, evaluate
from ..linalg import compiled
from ..parameters import Parameters
from ..variational import Family
from .lbfgs import maximise
from .sites import ClassSites, Sites, bound_and_sites, flat_sites, q_from_sites

__all__ = ["Problem", "State", "e_step", "init", "settle", "step"]

E_STEPS = 200
M_ITERATIONS = 25


class Problem(NamedTuple):
    """What a fit on the full batch works with, and does not change.

    Attributes:
        batch: all the data.
        rules: how the bound is evaluated.
        family: of q(u).
        tolerance: nats; an E-step ends when it gains less.
        learn_inducing: whether inducing inputs move.
    """

    batch: Batch
    rules: Rules
    family: type[Family]
    tolerance: float
    learn_inducing: bool = True


class State(NamedTuple):
    """What is carried from round to round.

    `objective`, what a round raises, is the bound plus the log density of the hyperparameters;
    where they have no prior it is the bound.
    """

    parameters: Parameters
    sites: tuple[Sites | ClassSites, ...]
    q: Family
    bound: float
    objective: float


@partial(compiled, static=("family",))
def e_step(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    batch: Batch,
    jitter: Array,
    rules: Rules,
    tolerance: Array,
    family: type[Family],
) -> tuple[tuple[Sites | ClassSites, ...], Family, Float[Array, ""]]:
    """Maximise the bound over q(u) with the hyperparameters held; the bound never falls."""
    projection = parameters.prior.matrices(batch.X, jitter).project()

    def evaluated(sites):
        q = q_from_sites(family, parameters, sites, projection, batch)
        return q, *bound_and_sites(parameters, q, projection, batch, rules)

    def unfinished(carry):
        _, _, _, _, rho, gain, n = carry
        return (n < E_STEPS) & (rho > 1e-4) & (gain > tolerance)

    def attempt(carry):
        sites, q, value, target, rho, _, n = carry
        trial = jax.tree.map(lambda old, new: (1.0 - rho) * old + rho * new, sites, target)
        trial_q, trial_value, trial_target = evaluated(trial)
        accept = trial_value >= value  # false for NaN
        new = (trial, trial_q, trial_value, trial_target)
        kept = jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, (sites, q, value, target))
        # A short step gains little by itself: what counts is what a full one promises.
        gained = jnp.where(accept, (trial_value - value) / rho, jnp.inf)
        rho = jnp.where(accept, jnp.minimum(1.0, 2.0 * rho), 0.5 * rho)
        return (*kept, rho, gained, n + 1)

    # The first attempt only evaluates: its target is the sites themselves.
    nothing = family.at_prior(*parameters.prior.sizes)
    infinity = jnp.full((), jnp.inf)
    carry = (sites, nothing, -infinity, sites, jnp.ones(()), infinity, 0)
    sites, q, value, *_ = jax.lax.while_loop(unfinished, attempt, carry)
    return sites, q, value


@partial(compiled, static=("family",))
def _objective(
    values: PyTree,
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    batch: Batch,
    jitter: Array,
    rules: Rules,
    family: type[Family],
) -> tuple[Float[Array, ""], PyTree]:
    """The objective and its gradient with respect to the hyperparameters, sites held."""

    def objective(values: PyTree) -> Array:
        moved = parameters.with_free(values)
        projection = moved.prior.matrices(batch.X, jitter).project()
        q = q_from_sites(family, moved, sites, projection, batch)
        return evaluate(moved, q, projection, batch, rules).log_joint

    return jax.value_and_grad(objective)(values)


def m_step(state: State, problem: Problem, jitter: float) -> Parameters:
    """Raise the objective over the hyperparameters by L-BFGS, with the sites held."""
    fixed = (state.parameters, state.sites, problem.batch, jnp.asarray(jitter), problem.rules)
    values, _ = maximise(
        lambda values: _objective(values, *fixed, family=problem.family),
        state.parameters.free(problem.learn_inducing),
        M_ITERATIONS,
    )
    return state.parameters.with_free(values)


def settle(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    problem: Problem,
    jitter: float,
) -> State:
    """The state of a model whose q(u) has been brought to its best by an E-step."""
    sites, q, bound = e_step(
        *(parameters, sites, problem.batch, jnp.asarray(jitter), problem.rules),
        jnp.asarray(problem.tolerance),
        family=problem.family,
    )
    objective = float(bound + parameters.log_density())
    return State(parameters, sites, q, float(bound), objective)


def init(parameters: Parameters, problem: Problem, jitter: float) -> State:
    """The first E-step."""
    sites = flat_sites(parameters, problem.batch, problem.rules, problem.family)
    return settle(parameters, sites, problem, jitter)


def step(state: State, problem: Problem, jitter: float) -> State:
    """One round: an M-step and the E-step after it."""
    new = settle(m_step(state, problem, jitter), state.sites, problem, jitter)
    return new if new.objective >= state.objective else state  # rounding may end a climb
