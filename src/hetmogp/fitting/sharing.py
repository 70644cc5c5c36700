"""Decide whether outputs share latents, by what the bound gains.

Each output is first fitted alone (`alone`). The joint model starts from that solution, with small
weights across outputs and a spare latent, and also from a mixed start. The better start continues.
Latents that do not pay are removed. The joint model is kept if its bound exceeds that of the alone
models by the price of all its additional weights; otherwise the outputs stay alone. A price is
needed because a bound at point estimates of many weights is not evidence. On tables of 47 and 56
rows it rose by 17 and 68 nats (1.4 and 1.2 nats a weight), and predictions became worse.

All models in this file have the same latents. They differ only in their numbers and in which
weights are zero, so they share one compiled program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..batch import Batch
from ..kernels import Kernel
from ..parameters import Parameters
from ..posterior import Posterior
from ..priors import LMC, PRIORS, Independent, Latents
from ..tables import Dataset
from ..variational import Family
from .alone import PRICE, Alone, Candidates, of_output, only, without_idle_latents
from .apart import as_one, numbers_of
from .choice import Choice, in_use
from .fit import Fit, NotPositiveDefiniteError
from .inducing import by_need, padded
from .options import Options
from .progress import Progress
from .prune import merged
from .sites import flat_sites, information
from .start import function_keys, initial_parameters, normal
from .vem import Interrupted, Problem, State, init, settle, step

__all__ = ["Chooser", "hint", "weights", "without"]

SHORT = 15  # iterations of each joint start before the best one continues
CROSS = 0.001  # the size of weights across outputs where the joint model starts alone
ITERATIONS, CLOSE = 150, 0.05  # of the best start; it ends when ten gain this share of the price


@dataclass(frozen=True)
class Chooser:
    """Fits every output alone and all of them together, and chooses.

    Attributes:
        data: the outputs.
        problem: all their values as one batch, and how the bound is evaluated.
        candidates: the latents that each parameter function may have.
        options: the options of the fit.
        jitter: added to the diagonals of k(Z, Z).
        progress: where to report progress.
        budget: the most inducing inputs of all latents together.
        share: all values divided by those in the sample. The gain grows with the number of values,
            and the price of a weight does not.
        complete: whether the models of single outputs have all rows, with inducing inputs at each.
    """

    data: Dataset
    problem: Problem
    candidates: Candidates
    options: Options
    jitter: float
    progress: Progress
    budget: int
    share: float = 1.0
    complete: bool = False

    def choice(self) -> Choice:
        """Choose between the joint model and the outputs alone.

        Raises:
            NotPositiveDefiniteError: if more jitter is needed.
        """
        problem, share = self.problem, self.share
        states, stopped = self._each_alone()
        own = np.array([state.bound for state in states])
        single = len(states) == 1 or self.options.prior != "lmc"
        separate = _together([state.parameters for state in states], self.candidates)
        if single and self.complete and not stopped:
            return self._finished(states, separate, own)
        separate = self._plain(separate) if single else separate
        needy = not single and sum(separate.prior.widths) > self.budget
        start = self._placed_by_need(separate, states) if needy else separate
        apart = self._settled(start, _sites(states, start, problem))
        if not np.isfinite(apart.bound):
            raise NotPositiveDefiniteError
        known = share * _information(apart, problem)
        found = Choice(
            *(start, apart.q, start, apart.q, self.jitter, own, own, float(own.sum())),
            *(False, problem.batch.observed, known, known),
        )
        if single or stopped:
            return found._replace(interrupted=stopped)
        try:
            apart = self._climbed(apart, SHORT) if needy else apart
            joint, shared = self._joint_that_pays(apart)
            together = self._added(joint)
        except KeyboardInterrupt:
            return found._replace(interrupted=True)
        if self.complete and not shared:
            alone = self._finished(states, separate, own)
            return alone._replace(together=together, joint=joint.bound)
        chosen = joint if shared else apart
        return Choice(
            chosen.parameters,
            chosen.q,
            apart.parameters,
            apart.q,
            self.jitter,
            own,
            together,
            joint.bound,
            shared,
            problem.batch.observed,
            share * _information(chosen, problem),
            share * _information(apart, problem),
            _reach(chosen, share),
            _reach(apart, share),
        )

    def _finished(self, states: Sequence[State], separate: Parameters, own: np.ndarray) -> Choice:
        """The final choice of outputs that stay alone and already have all inducing inputs."""
        parts = [self._plain(state.parameters) for state in states]
        fits = [
            Fit(part, state.q, state.bound, self.jitter, [state.objective])
            for part, state in zip(parts, states, strict=True)
        ]
        fit = as_one(self._plain(separate), fits)
        known = np.zeros((len(self.problem.batch.X), 0))  # not used for a final choice
        return Choice(
            *(fit.parameters, fit.q, fit.parameters, fit.q, self.jitter, own, own),
            *(fit.bound, False, self.problem.batch.observed, known, known),
            final=True,
        )

    def _plain(self, parameters: Parameters) -> Parameters:
        """The model without unused latents, as the kind of prior that the options name."""
        used = in_use(parameters)
        return _one_each(used) if PRIORS[self.options.prior].one_each else used

    def _settled(self, parameters: Parameters, sites: tuple) -> State:
        return settle(parameters, sites, self.problem, self.jitter)

    def _climbed(self, state: State, iterations: int, tolerance: float | None = None) -> State:
        if not np.isfinite(state.bound):
            return state
        return step(state, self.problem, self.jitter, iterations=iterations, tolerance=tolerance)

    def _each_alone(self) -> tuple[list[State], bool]:
        """Fit each output alone; also say whether the user interrupted.

        Outputs that were not reached keep their initial hyperparameters.
        """
        states: list[State] = []
        stopped = False
        for d, name in enumerate(self.data.names):
            problem = self.problem._replace(batch=of_output(self.problem.batch, d))
            task = Alone(only(self.data, d), problem, self.candidates, self.options, self.jitter)
            try:
                self.progress.update(f"{name} alone", d / len(self.data.names))
                state = task.begun() if stopped else task.best()
            except KeyboardInterrupt as stop:
                stopped = True
                state = stop.state if isinstance(stop, Interrupted) else task.begun()
            states.append(state)
        return states, stopped

    def _placed_by_need(self, parameters: Parameters, parts: Sequence[State]) -> Parameters:
        """The alone models as one model, with inducing inputs by need up to the budget."""
        batch = self.problem.batch
        each = [
            _information(part, self.problem._replace(batch=of_output(batch, d)))
            for d, part in enumerate(parts)
        ]
        known = np.concatenate(each, axis=1)
        known = np.column_stack([known, known.mean(axis=1)])  # the spare latent needs some too
        prior = _lmc(parameters)
        placed = by_need(
            *(prior, batch.observed, known, self.budget, self.data.labels, self.options.seed)
        )
        return replace(parameters, prior=prior.with_inducing(*placed))

    def _joint_that_pays(self, apart: State) -> tuple[State, bool]:
        """The joint model without what does not pay, and whether it pays as a whole."""
        joint = self._joint(apart)
        if _pays(joint, apart, self.share):
            self.progress.update("joint, latents that pay", 0.8, joint.bound)
            return without_idle_latents(joint, self.problem, self.jitter, self.share), True
        # The pruned model may have so few latents that sharing adds no weights.
        less = merged(joint, self.problem, self.jitter, PRICE / self.share)
        less = step(less, self.problem, self.jitter)
        cheap = weights(less.parameters) <= weights(apart.parameters)
        return (less, True) if cheap and _pays(less, apart, self.share) else (joint, False)

    def _joint(self, apart: State) -> State:
        """The joint model, from the better of its starts.

        Raises:
            NotPositiveDefiniteError: if more jitter is needed.
        """
        data, seed, update = self.data, self.options.seed, self.progress.update
        update("joint, from alone", 0.0)
        start = _with_cross_weights(apart.parameters, data, seed)
        runs = [self._climbed(self._settled(start, apart.sites), SHORT)]
        for restart in range(self.options.restarts or 1):
            update(f"joint, mixed start {restart + 1}", 0.0)
            start = _mixed(apart.parameters, data, self.candidates, seed, restart)
            runs.append(self._climbed(init(start, self.problem, self.jitter), SHORT))
        runs = [run for run in runs if np.isfinite(run.objective)]
        if not runs:
            raise NotPositiveDefiniteError
        best = max(runs, key=attrgetter("objective"))
        update("joint", 0.5, best.bound)
        # Far enough to compare the gain with the price; the final fit continues from here.
        enough = CLOSE * PRICE * (weights(best.parameters) - weights(apart.parameters))
        return self._climbed(best, ITERATIONS, enough)

    def _added(self, state: State) -> np.ndarray:
        """The contribution of each output to the joint bound, with hyperparameters held fixed."""
        less = (
            settle(state.parameters, state.sites, without(d, self.problem), self.jitter).bound
            for d in range(len(self.data.names))
        )
        return state.bound - np.array(list(less))


def _information(state: State, problem: Problem) -> np.ndarray:
    """The precision with which the data determine each latent in use, at each row."""
    every = np.asarray(information(state.parameters, state.sites, problem.batch))
    prior = state.parameters.prior
    return every[:, np.asarray(prior.mask).any(axis=0)] if isinstance(prior, LMC) else every


def _reach(state: State, share: float) -> np.ndarray | None:
    """The curvature that the state has met, for the numbers in use."""
    if state.reach is None:
        return None
    places = numbers_of(state.parameters, in_use)
    return state.reach[np.ix_(places, places)] / share


def _pays(joint: State, apart: State, share: float) -> bool:
    """Whether the joint model gained at least the price of its additional weights."""
    extra = weights(joint.parameters) - weights(apart.parameters)
    return bool(share * (joint.objective - apart.objective) > PRICE * max(extra, 0))


def weights(parameters: Parameters) -> int:
    """The number of mixing weights of a model."""
    return int(np.sum(np.asarray(_lmc(parameters).mask)))


def _lmc(parameters: Parameters) -> LMC:
    prior = parameters.prior
    assert isinstance(prior, LMC)
    return prior


def _sites(parts: Sequence[State], parameters: Parameters, problem: Problem) -> tuple:
    """The sites of the alone models, as sites of a model of all outputs."""
    sites = flat_sites(parameters, problem.batch, problem.rules, problem.family)
    result = []
    for flat, part in zip(sites, parts, strict=True):
        own = jax.tree.map(lambda a, like: a[: len(like)], part.sites[0], flat)
        same = jax.tree.map(lambda a, like: a.shape == like.shape, own, flat)
        result.append(own if all(jax.tree.leaves(same)) else flat)
    return tuple(result)


def hint(parameters: Parameters, q: Family, jitter: float, X: np.ndarray) -> Latents:
    """The latents in use according to a model, at some rows."""
    mean, cov = Posterior(parameters.prior, q, jitter).latents(X)
    prior = parameters.prior
    if isinstance(prior, LMC):
        used = np.flatnonzero(np.asarray(prior.mask).any(axis=0))
        mean, cov = mean[:, used], cov[:, used] if cov.ndim == 2 else cov[:, used][:, :, used]
    return Latents(jnp.asarray(mean), jnp.asarray(cov))


def _one_each(parameters: Parameters) -> Parameters:
    """The model as an independent prior; each parameter function has exactly one latent."""
    prior = _lmc(parameters)
    arrays = {name: getattr(prior, name) for name in ("constants", "centre", "spread")}
    alone = Independent(
        prior.kernels,
        prior.inducing_inputs,
        prior.ranks,
        weights=jnp.diagonal(prior.weights)[:, None],
        hyperprior=prior.hyperprior,
        **arrays,
    )
    return replace(parameters, prior=alone)


def _together(parts: Sequence[Parameters], candidates: Candidates) -> Parameters:
    """All outputs in one model that shares nothing, with a spare latent that is not used yet."""
    prior = LMC.together([_lmc(part).in_use() for part in parts])
    column = np.zeros((len(prior.constants), 1))
    centres = prior.hyperprior.kernels if prior.hyperprior is not None else ()
    if len(prior.inducing_inputs) > 1 or prior.counts:
        Z, counts = candidates.placed
        spare = Z[0, : counts[0]] if counts else Z[0]
        prior = prior.with_inducing(*padded([*prior.tables, spare]))
    prior = prior.with_latents(
        [*prior.kernels, candidates.started(0.5)[0]],
        [*centres, candidates.typical()] if centres else [],
        np.hstack([prior.weights, column]),
        np.hstack([prior.mask, column]),
    )
    return Parameters(
        prior,
        tuple(part.likelihoods[0] for part in parts),
        tuple(part.anchors[0] if part.anchors else None for part in parts),
    )


def _moved(
    parameters: Parameters, weights: np.ndarray, kernels: Sequence[Kernel] | None = None
) -> Parameters:
    """The model with all weights free except held ones, starting from the given ones."""
    which = attrgetter("prior.weights", "prior.mask")
    prior = _lmc(parameters)
    mask = np.where(prior.held, np.asarray(prior.mask), 1.0)
    moved = eqx.tree_at(which, parameters, (jnp.asarray(weights), jnp.asarray(mask)))
    if kernels is None:
        return moved
    return eqx.tree_at(attrgetter("prior.kernels"), moved, tuple(kernels))


def _noise(data: Dataset, R: int, seed: int, restart: int) -> np.ndarray:
    """Standard normal numbers for each parameter function, keyed by its name."""
    return np.stack([normal(seed, restart, key, R) for key in function_keys(data)])


def _with_cross_weights(parameters: Parameters, data: Dataset, seed: int) -> Parameters:
    """The alone solution with small weights in place of zeros."""
    prior = _lmc(parameters)
    weights = np.asarray(prior.weights * prior.mask)
    return _moved(
        parameters, weights + CROSS * _noise(data, weights.shape[1], seed, 0) * (weights == 0)
    )


def _mixed(
    parameters: Parameters, data: Dataset, candidates: Candidates, seed: int, restart: int
) -> Parameters:
    """A mixed start: each parameter function has a latent of its own and small weights on all.

    Lengthscales go from short to long; latents with many inducing inputs start short.
    """
    prior = _lmc(parameters)
    J, R = prior.weights.shape
    free = np.flatnonzero(~prior.held)
    own = np.arange(R) == free[np.arange(J) % len(free)][:, None]
    change = np.exp(0.4 * restart * normal(seed, restart, "ℓ", R))
    factors = np.geomspace(0.15, 0.8, R)[np.argsort(np.argsort(prior.widths)[::-1])] * change
    kernels = [
        candidates.started(factor)[candidates.place(kernel)]
        for kernel, factor in zip(prior.kernels, factors, strict=True)
    ]
    plain = initial_parameters(data, candidates.beginning([0]), candidates.scaling)
    parameters = replace(parameters, likelihoods=plain.likelihoods)  # not those of the alone models
    parameters = eqx.tree_at(
        attrgetter("prior.constants"), parameters, jnp.zeros_like(prior.constants)
    )
    return _moved(parameters, own + 0.3 * _noise(data, R, seed, restart), kernels)


def without(d: int, problem: Problem) -> Problem:
    """The problem with the values of output d treated as missing."""
    outputs = list(problem.batch.outputs)
    outputs[d] = eqx.tree_at(lambda one: one.seen, outputs[d], jnp.zeros_like(outputs[d].seen))
    return problem._replace(batch=Batch(problem.batch.X, tuple(outputs)))
