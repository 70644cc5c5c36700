"""Variational EM on the full batch: for small data.

E-step. Each observation keeps a Gaussian *site* on its own parameter functions (`sites`). q(u)
follows from the sites in closed form, and replacing the sites by those of the new q, a share ρ at a
time, is a natural-gradient step. ρ is halved whenever the bound would fall, so it never does.

M-step. L-BFGS climbs the *profile* of the bound, its value at the best q(u) for every trial of the
hyperparameters: each evaluation is an E-step, which starts from the best sites so far and so is
short. There the slope with respect to q vanishes, so the profile's gradient is that of the bound
with q held, which no factorisation has to be differentiated for. Rounds that alternate between the
two climb the same hill in a tenth of the speed: q and the hyperparameters hold each other back.
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
from ..variational import Family
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

__all__ = ["Interrupted", "Problem", "State", "Watch", "init", "settle", "step"]

E_STEPS = 200
SURE = 10.0  # a step that was promised must gain so many times less than one that was taken
PLAIN, CAREFUL, LAST = 0, 1, 2  # how an E-step goes on; once it was careful it ends plainly
FAR = 5.0  # how far a number may move in a round: further off, quadrature may promise anything
ITERATIONS = 50  # of L-BFGS in a round

Watch = Callable[[float], None]


class Problem(NamedTuple):
    """What a fit on the full batch works with, and does not change.

    Attributes:
        batch: all the data.
        rules: how the bound is evaluated.
        family: of q(u).
        tolerance: nats; an E-step ends when it gains less, a round when ten iterations gain less
            than ten times as much.
        learn_inducing: whether inducing inputs move.
        hint: what the latents may be at the rows: the first step is taken from there.
        reach: how far the hyperparameters may be expected to move together, see `lbfgs`.
    """

    batch: Batch
    rules: Rules
    family: type[Family]
    tolerance: float
    learn_inducing: bool = True
    hint: Latents | None = None
    reach: np.ndarray | None = None


class State(NamedTuple):
    """What is carried from round to round.

    `objective`, what a round raises, is the bound plus the log density of the hyperparameters;
    where they have no prior it is the bound. `still` says that the last round ended because there
    was nothing left to gain; `reach` is what it met of the inverse of the curvature.
    """

    parameters: Parameters
    sites: tuple[Sites | ClassSites, ...]
    q: Family
    bound: float
    objective: float
    still: bool = False
    reach: np.ndarray | None = None


class Interrupted(KeyboardInterrupt):
    """The user stopped a round; `state` is the best it had reached."""

    def __init__(self, state: State):
        super().__init__()
        self.state = state


class _Given(NamedTuple):
    """What evaluations have in common.

    Attributes:
        batch: all the data.
        rules: how the bound is evaluated.
        jitter: on the diagonals of k(Z, Z).
        tolerance: nats that an E-step may leave.
        hint: what the latents may be at the rows.
        hinted: whether the first step is taken from there.
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
        sites: that make it.
        q: the same.
        bound: there.
        at: what its expectations are taken over.
        slopes: of the bound there.
        target: the sites that a full step from there would set.
        promise: about what that step would gain.
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
    """Maximise the bound over q(u) with the hyperparameters held; the bound never falls.

    The first attempt is at the target, the better guess; if there is no such q, nearer to the
    sites. It ends where the next step promises little, or the last has gained little.

    Where another q is known to be good, what it says of the latents is a hint. If that is to be
    used (`hinted`) the first step is taken from there: from the prior, over which a rate may have
    any size, no step may be short enough.
    """
    batch, rules, tolerance = given.batch, given.rules, given.tolerance
    lowest = jnp.finfo(projection.A.dtype).min  # not the bound, but less than any

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
        # A short step gains little by itself: what counts is what a full one promises.
        gained = jnp.where(accept, (trial.bound - best.bound) / rho, jnp.inf)
        lost = (phase == PLAIN) & ~jnp.isfinite(trial.bound)  # there is no such q: with more care
        over = (phase == CAREFUL) & (gained <= tolerance)  # now as it should be
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
    """The profile at some hyperparameters: its value and gradient, and the best q there."""

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
    """The objective at its best q(u), as a function of the hyperparameters z."""
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
    """Evaluations of the profile from one state on, and the best of them."""

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
    given = _Given(
        problem.batch,
        problem.rules,
        jnp.asarray(jitter),
        jnp.asarray(problem.tolerance),
        problem.hint,
        jnp.asarray(hinted and problem.hint is not None),
    )
    return _profile(
        *(z, parameters, sites, target, given),
        family=problem.family,
        learn_inducing=problem.learn_inducing,
    )


def _reached(parameters: Parameters, found: _Evaluation) -> State:
    return State(parameters, found.sites, found.q, float(found.bound), float(found.objective))


def settle(
    parameters: Parameters,
    sites: tuple[Sites | ClassSites, ...],
    problem: Problem,
    jitter: float,
    hinted: bool = False,
) -> State:
    """The state of a model whose q(u) has been brought to its best by an E-step.

    By the program that climbs, which has the gradient to spare: one less to compile.
    """
    z = ravel_pytree(parameters.free(problem.learn_inducing))[0]
    return _reached(parameters, _evaluated(z, parameters, sites, sites, problem, jitter, hinted))


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
        jitter: on the diagonals of k(Z, Z).
        watch: is told the bound whenever it has risen.
        iterations: the most iterations; `ITERATIONS` if not said.
        tolerance: nats; it ends when ten iterations gain less, if not the problem's own.

    Raises:
        Interrupted: with the best state so far, where the user stops it.
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
