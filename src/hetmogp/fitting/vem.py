"""Variational EM on the full batch: for small data.

E-step. Each observation has a Gaussian *site* on its parameter functions (`sites`). q(u) follows
from the sites in closed form. Moving the sites by a share ρ towards those of the new q is a
natural-gradient step. ρ is halved whenever the bound would fall, so the bound never falls.

M-step. L-BFGS maximises the *profile* of the bound: its value at the best q(u) for the given
hyperparameters. Each evaluation is an E-step, which is short because it starts from the best sites
so far. At the best q(u) the gradient with respect to q vanishes, so the gradient of the profile is
that of the bound with q held fixed, and no factorisation needs to be differentiated. Alternating
between the two steps reaches the same maximum, but took 5 to 13 times as long (docs/inference.md),
because q and the hyperparameters depend on each other.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..batch import Batch
from ..bound import Rules, Wide
from ..linalg import compiled
from ..parameters import Parameters
from ..priors import Functions, Latents, Projection
from ..variational import Coupled, Family
from .lbfgs import maximise
from .sites import (
    ClassSites,
    Sites,
    Slopes,
    along,
    bound_and_slopes,
    cautious,
    flat_sites,
    promise,
    q_from_sites,
    sites_of_slopes,
)

__all__ = ["Interrupted", "Problem", "State", "Watch", "init", "settle", "slope", "step"]

E_STEPS = 200
SURE = 10.0  # a predicted gain is trusted if it is this many times smaller than an actual one
PLAIN, CAREFUL, LAST = 0, 1, 2  # phases of an E-step; a careful phase is followed by plain steps
FAR = 5.0  # how far a number may move in a round; beyond it quadrature is not reliable
ITERATIONS = 50  # of L-BFGS in a round
CALM = 0.01  # the variance that latents of straight lines are taken to have at first

Watch = Callable[[float], None]


class Problem(NamedTuple):
    """What stays the same throughout a fit on the full batch.

    Attributes:
        batch: all the data.
        rules: how the bound is evaluated.
        family: the family of q(u).
        tolerance: in nats; an E-step ends when it gains less, and a round ends when ten iterations
            gain less than ten times as much.
        learn_inducing: whether inducing inputs are learned.
        hint: a guess of the latents at the rows, from which the first step is taken.
        reach: an estimate of the inverse curvature of the hyperparameters; see `lbfgs`.
    """

    batch: Batch
    rules: Rules
    family: type[Family]
    tolerance: float
    learn_inducing: bool = True
    hint: Latents | None = None
    reach: np.ndarray | None = None


class State(NamedTuple):
    """The state between two rounds.

    `objective` is what a round maximises: the bound plus the log density of the hyperparameters,
    or just the bound where they have no prior. `still` says that the last round ended because
    nothing was left to gain. `reach` is the inverse curvature as far as that round has met it.
    """

    parameters: Parameters
    sites: tuple[Sites | ClassSites, ...]
    q: Family
    bound: float
    objective: float
    still: bool = False
    reach: np.ndarray | None = None


class Interrupted(KeyboardInterrupt):
    """The user interrupted a round; `state` is the best state so far."""

    def __init__(self, state: State):
        super().__init__()
        self.state = state


class _Given(NamedTuple):
    """What all evaluations have in common.

    Attributes:
        batch: all the data.
        rules: how the bound is evaluated.
        jitter: added to the diagonals of k(Z, Z).
        tolerance: the gain, in nats, below which an E-step ends.
        hint: a guess of the latents at the rows.
        hinted: whether the first step is taken from the guess.
    """

    batch: Batch
    rules: Rules
    jitter: Array
    tolerance: Array
    hint: Latents | None
    hinted: Array


class _Best(NamedTuple):
    """The best q(u) that an E-step found.

    Attributes:
        sites: the sites.
        q: the q(u) that follows from the sites.
        bound: the bound at q.
        at: the marginals over which expectations are taken.
        slopes: the gradient of the bound at q.
        target: the sites after a full step from q.
        promise: the approximate gain of that step.
    """

    sites: tuple[Sites | ClassSites, ...]
    q: Family
    bound: Float[Array, ""]
    at: tuple[Functions | Wide, ...]
    slopes: Slopes
    target: tuple[Sites | ClassSites, ...]
    promise: Float[Array, ""]


def _best_q(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    target: tuple[Sites | ClassSites, ...],
    projection: Projection,
    given: _Given,
    family: type[Family],
) -> _Best:
    """Maximise the bound over q(u) with fixed hyperparameters; the bound never falls.

    The first attempt is a full step to the target. If no q follows from these sites, shorter steps
    are tried. The iteration ends when the next step is predicted to gain little or the last step
    gained little.

    If a good q is known from another model, its latents serve as a hint. With `hinted` the first
    step is taken from there. Under the prior a rate may have any size, and then even a short step
    from the prior may fail.
    """
    batch, rules, tolerance = given.batch, given.rules, given.tolerance
    lowest = jnp.finfo(projection.A.dtype).min  # lower than any bound

    def evaluated(sites, first):
        q = q_from_sites(family, parameters, sites, projection, batch)
        latents = q.latents(projection)
        if given.hint is not None:
            latents = jax.tree.map(lambda a, b: jnp.where(first, a, b), given.hint, latents)
        bound, at, slopes = bound_and_slopes(parameters, q, projection, batch, rules, latents)
        target = sites_of_slopes(parameters, q, at, slopes, batch)
        bound = jnp.where(first & jnp.isfinite(bound), lowest, bound)
        left = promise(parameters, q, sites, target, latents, projection, batch)
        left = jnp.where(first, jnp.inf, left)
        return _Best(sites, q, bound, at, slopes, target, left)

    def unfinished(carry):
        _, rho, gain, n, _ = carry
        return (n < E_STEPS) & (rho > 1e-4) & (gain > tolerance)

    def attempt(carry):
        best, rho, _, n, phase = carry
        careful = cautious(best.target, best.q, best.at)
        mixed = jax.tree.map(
            lambda old, new, safe: (1.0 - rho) * old + rho * jnp.where(phase == CAREFUL, safe, new),
            *(best.sites, best.target, careful),
        )
        trial = evaluated(mixed, given.hinted & (n == 0))
        accept = trial.bound >= best.bound  # false for NaN
        kept = jax.tree.map(lambda a, b: jnp.where(accept, a, b), trial, best)
        # A short step gains little by itself, so the predicted gain of a full step decides.
        gained = jnp.where(accept, (trial.bound - best.bound) / rho, jnp.inf)
        lost = (phase == PLAIN) & ~jnp.isfinite(trial.bound)  # no such q: switch to careful steps
        over = (phase == CAREFUL) & (gained <= tolerance)  # switch back to plain steps
        rho = jnp.where(accept, jnp.minimum(1.0, 2.0 * rho), jnp.where(lost, rho, 0.5 * rho))
        phase = jnp.where(lost, CAREFUL, jnp.where(over, LAST, phase))
        gained = jnp.where(over, jnp.inf, gained)
        sure = SURE * jnp.where(accept, trial.promise, jnp.inf)
        return kept, rho, jnp.minimum(gained, sure), n + 1, phase

    shapes = jax.eval_shape(evaluated, sites, given.hinted)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    infinity = jnp.full((), jnp.inf)
    best = nothing._replace(sites=sites, bound=-infinity, target=target)
    start = best, jnp.ones(()), infinity, 0, jnp.asarray(PLAIN)
    best = jax.lax.while_loop(unfinished, attempt, start)[0]
    return best._replace(bound=jnp.where(best.bound > lowest, best.bound, jnp.nan))


class _Evaluation(NamedTuple):
    """The profile at given hyperparameters: its value and gradient, and the best q."""

    objective: Float[Array, ""]
    gradient: Float[Array, " n"]
    bound: Float[Array, ""]
    sites: tuple[Sites | ClassSites, ...]
    target: tuple[Sites | ClassSites, ...]
    q: Family


@partial(compiled, static=("family", "learn_inducing"))
def _profile(
    z: Float[Array, " n"],
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    target: tuple[Sites | ClassSites, ...],
    given: _Given,
    family: type[Family],
    learn_inducing: bool,
) -> _Evaluation:
    """The objective at the best q(u), as a function of the hyperparameters z."""
    unravel = ravel_pytree(parameters.free(learn_inducing))[1]

    def model(z: Array) -> tuple[Parameters, Projection]:
        moved = parameters.with_free(unravel(z))
        return moved, moved.prior.matrices(given.batch.X, given.jitter).project()

    moved, projection = model(z)
    best = _best_q(moved, sites, target, projection, given, family)

    def slope(z: Array) -> Array:
        moved, projection = model(z)
        value = along(best.slopes, moved, best.q, projection, given.batch, given.rules)
        return value + moved.log_density()

    objective = best.bound + moved.log_density()
    gradient = jax.grad(slope)(z)
    return _Evaluation(objective, gradient, best.bound, best.sites, best.target, best.q)


class _Climb:
    """Evaluates the profile, starting from one state, and keeps the best evaluation."""

    def __init__(self, state: State, problem: Problem, jitter: float, watch: Watch | None):
        self.begin, self.problem, self.watch = state, problem, watch
        self.jitter = jitter
        vector, self.unravel = ravel_pytree(state.parameters.free(problem.learn_inducing))
        self.z, self.dtype = np.asarray(vector, float), vector.dtype
        self.objective = state.objective
        self.best: _Evaluation | None = None

    def evaluate(self, z: np.ndarray) -> tuple[Array, Array]:
        sites, target = self.begin.sites, self.begin.sites
        if self.best is not None:
            sites, target = self.best.sites, self.best.target
        found = _evaluated(
            *(jnp.asarray(z, self.dtype), self.begin.parameters, sites, target),
            *(self.problem, self.jitter),
        )
        if float(found.objective) > self.objective:
            self.z, self.best, self.objective = z.copy(), found, float(found.objective)
            if self.watch is not None:
                self.watch(float(found.bound))
        return found.objective, found.gradient

    def reached(self) -> State:
        """The best state so far."""
        if self.best is None:
            return self.begin
        moved = self.begin.parameters.with_free(self.unravel(jnp.asarray(self.z, self.dtype)))
        return _reached(moved, self.best)


def _evaluated(
    z: Array,
    parameters: Parameters,
    sites: tuple,
    target: tuple,
    problem: Problem,
    jitter: float,
    hinted: bool = False,
) -> _Evaluation:
    hint = _calm(parameters, problem) if problem.hint is None else problem.hint
    given = _Given(
        problem.batch,
        problem.rules,
        jnp.asarray(jitter),
        jnp.asarray(problem.tolerance),
        hint,
        jnp.asarray(hinted and hint is not None),
    )
    return _profile(
        *(z, parameters, sites, target, given),
        family=problem.family,
        learn_inducing=problem.learn_inducing,
    )


def _calm(parameters: Parameters, problem: Problem) -> Latents | None:
    """Latents near zero, if there are slopes: under their wide priors a rate may have any size."""
    held = getattr(parameters.prior, "held", np.zeros(0, bool))
    if not held.any():
        return None
    variance = jnp.where(held, CALM, 1.0)
    N, R = len(problem.batch.X), len(held)
    cov = jnp.diag(variance) if problem.family is Coupled else variance
    return Latents(jnp.zeros((N, R)), jnp.broadcast_to(cov, (N, *cov.shape)))


def _reached(parameters: Parameters, found: _Evaluation) -> State:
    return State(parameters, found.sites, found.q, float(found.bound), float(found.objective))


def settle(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    problem: Problem,
    jitter: float,
    hinted: bool = False,
) -> State:
    """The state of a model after an E-step.

    It uses the compiled program of the M-step, although the gradient is not needed, because that
    saves compiling another.
    """
    z = ravel_pytree(parameters.free(problem.learn_inducing))[0]
    return _reached(parameters, _evaluated(z, parameters, sites, sites, problem, jitter, hinted))


def slope(z: np.ndarray, state: State, problem: Problem, jitter: float) -> Array:
    """The gradient of the profile at hyperparameters z near those of a state."""
    at = jnp.asarray(z)
    begin = state.parameters, state.sites, state.sites
    return _evaluated(at, *begin, problem, jitter).gradient


def init(parameters: Parameters, problem: Problem, jitter: float) -> State:
    """The first E-step."""
    sites = flat_sites(parameters, problem.batch, problem.rules, problem.family)
    return settle(parameters, sites, problem, jitter, hinted=True)._replace(reach=problem.reach)


def step(
    state: State,
    problem: Problem,
    jitter: float,
    watch: Watch | None = None,
    iterations: int | None = None,
    tolerance: float | None = None,
) -> State:
    """One round of L-BFGS on the profile of the bound.

    Args:
        state: where to begin.
        problem: the data and how the bound is evaluated.
        jitter: added to the diagonals of k(Z, Z).
        watch: called with the bound whenever it has risen.
        iterations: the most iterations; `ITERATIONS` by default.
        tolerance: in nats; the round ends when ten iterations gain less. The default comes from
            the problem.

    Raises:
        Interrupted: if the user interrupts, with the best state so far.
    """
    climb = _Climb(state, problem, jitter, watch)
    try:
        gain = 10.0 * problem.tolerance if tolerance is None else tolerance
        _, still, reach = maximise(
            climb.evaluate, climb.z, iterations or ITERATIONS, gain, state.reach, FAR
        )
    except KeyboardInterrupt:
        raise Interrupted(climb.reached()) from None
    return climb.reached()._replace(still=still, reach=reach)
