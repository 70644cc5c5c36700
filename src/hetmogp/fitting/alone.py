"""Fit each output alone: the baseline for the joint model, and its starting point.

Every parameter function has a latent of its own over all inputs. The first parameter function,
usually a mean, may also have a latent over each group of inputs, where there are groups
(`supports`). Several starts compete: short, medium and long lengthscales, with and without these
latents. Each start gets a few iterations and the better ones get more. A latent is kept if it gains
more than the price of the numbers that it adds.

All outputs have the same rows and are padded to one length, so outputs with the same likelihood
share a compiled program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..batch import Batch, Observations
from ..columns import Column
from ..data import Scaling
from ..kernels import Kernel
from ..parameters import Parameters
from ..priors import LMC
from ..tables import Dataset
from .fit import NotPositiveDefiniteError
from .inducing import Placed, inputs_of
from .options import Options
from .race import LENGTHSCALES, best_of, variants
from .start import Beginning, apart, initial_parameters, typical
from .vem import Problem, State, init, settle, step

__all__ = ["PRICE", "Alone", "Candidates", "converged", "of_output", "only", "without_idle_latents"]

PRICE = 2.5  # nats that a learned number must gain; docs/inference.md says how it was chosen
WITH_GROUPS, GROUPS_ONLY = LENGTHSCALES[1:3]  # where latents over groups of inputs start
LARGE = 0.3  # a latent with more than this share of a function's variance is always kept
WEIGHTS = attrgetter("prior.weights", "prior.mask")


@dataclass(frozen=True)
class Candidates:
    """The latents that each parameter function may have.

    Attributes:
        kernels: one for each support, the first of which uses all inputs; then those of effects.
        placed: the inducing inputs of each kernel.
        scaling: how the inputs were standardised.
        columns: the inputs.
        X: the standardised inputs.
        slopes: how many kernels of straight lines there are, of which each function has all.
        intercepts: how many kernels of groups there are, the last ones, of which the first function
            has all, or every function of an output with classes.
    """

    kernels: Sequence[Kernel]
    placed: Placed
    scaling: Scaling
    columns: Sequence[Column]
    X: np.ndarray
    slopes: int = 0
    intercepts: int = 0

    @property
    def supports(self) -> int:
        """How many of the kernels are not of effects."""
        return len(self.kernels) - self.slopes - self.intercepts

    @cached_property
    def names(self) -> list[str]:
        """The names of the inputs."""
        return [column.name for column in self.columns]

    @cached_property
    def _sizes(self) -> list[tuple[float, float]]:
        """For each kernel, how lengthscales grow with its inputs, and the shortest useful one."""
        sizes = []
        counts = self.placed.counts or [self.placed.inputs.shape[1]] * len(self.kernels)
        for kernel, Z, count in zip(self.kernels, self.placed.inputs, counts, strict=True):
            every = inputs_of(kernel, len(self.columns))
            seen = [j for j in every if self.columns[j].kind != "category"]
            least = 0.0
            if seen:
                least = max(apart(self.X[:, seen]), 0.5 * apart(Z[:count, seen]))
            sizes.append((float(np.sqrt(max(len(seen), 1))), least))
        return sizes

    def started(self, factor: float, kernels: Sequence[Kernel] | None = None) -> list[Kernel]:
        """The kernels with lengthscales at a multiple of a typical one, if it can be resolved.

        `kernels` may replace the candidates' own kernels, with other initial values.
        """
        return [
            _as_arrays(
                kernel.start(
                    np.full(len(self.names), max(factor * size, least)),
                    self.names,
                    self.scaling.scale,
                )
            )
            for kernel, (size, least) in zip(kernels or self.kernels, self._sizes, strict=True)
        ]

    def typical(self) -> Kernel:
        """The centre of the priors of the first kernel's numbers."""
        return _as_arrays(typical(self.kernels[0], self.names, self.scaling))

    def beginning(self, places: Sequence[int]) -> Beginning:
        """The initial latents, with the kernels at these places."""
        Z, counts = self.placed
        return Beginning(
            [self.kernels[k] for k in places],
            [1] * len(places),
            Z if len(Z) == 1 else Z[list(places)],
            np.ones(len(places)),
            tuple(counts[k] for k in places) if counts else (),
        )

    def place(self, kernel: Kernel) -> int:
        """The place of a kernel among the candidates, whatever its parameters."""
        alike = [jax.tree.structure(one) for one in self.started(1.0)]
        return alike.index(jax.tree.structure(kernel))


def _as_arrays(kernel: Kernel) -> Kernel:
    return jax.tree.map(lambda a: jnp.asarray(a, dtype=float), kernel)


@dataclass(frozen=True)
class Alone:
    """The model of a single output.

    Attributes:
        data: the output.
        problem: its values as one batch, and how the bound is evaluated.
        candidates: the latents that each parameter function may have.
        options: the options of the fit.
        jitter: added to the diagonals of k(Z, Z).
    """

    data: Dataset
    problem: Problem
    candidates: Candidates
    options: Options
    jitter: float

    def best(self) -> State:
        """The best model.

        Raises:
            NotPositiveDefiniteError: if more jitter is needed.
        """
        states = [init(one, self.problem, self.jitter) for one in self._starts()]
        states = [state for state in states if np.isfinite(state.bound)]
        if not states:
            raise NotPositiveDefiniteError

        def climb(state: State, iterations: int) -> State:
            return step(state, self.problem, self.jitter, iterations=iterations)

        best = converged(best_of(states, climb, _worth), self.problem, self.jitter)
        less = without_idle_latents(best, self.problem, self.jitter)
        return best if less is best else converged(less, self.problem, self.jitter)

    def begun(self) -> State:
        """The start with the longest lengthscales, for an output that was not fitted."""
        *_, last = self._starts()
        return init(last, self.problem, self.jitter)

    def _starts(self) -> Iterator[Parameters]:
        """Distinct initial models, with different supports and lengthscales."""
        data, candidates, options = self.data, self.candidates, self.options
        S, J = candidates.supports, len(data.likelihoods[0].latent)
        lines = [(S + k, j) for j in range(J) for k in range(candidates.slopes)]
        grouped = range(J if data.likelihoods[0].softmax else 1)
        last = range(S + candidates.slopes, len(candidates.kernels))
        effects = [*lines, *((k, j) for j in grouped for k in last)]
        places = [*range(S), *[0] * (J - 1), *(k for k, _ in effects)]
        owners = [*[0] * S, *range(1, J), *(j for _, j in effects)]
        start = initial_parameters(
            *(data, candidates.beginning(places), candidates.scaling),
            weight_scale=options.weight_scale,
            hyperpriors=options.hyperpriors is not None,
            seed=options.seed,
        )
        own = (np.arange(J)[:, None] == owners).astype(float)
        seen: list[list[np.ndarray]] = []
        sets = [candidates.kernels, *variants(candidates.kernels)]
        for factor, some_kernels in product(LENGTHSCALES, sets):
            kernels = candidates.started(factor, some_kernels)
            numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(kernels)]
            if any(all(map(np.array_equal, numbers, then)) for then in seen):
                continue  # the lengthscale is given, or clipped to one that was tried already
            seen.append(numbers)
            every = tuple(kernels[k] for k in places)
            which = [np.arange(S) == 0]  # one latent over all inputs, one for each group, or both
            if S > 1 and factor == WITH_GROUPS:
                which.append(np.ones(S))
            if S > 1 and factor == GROUPS_ONLY:
                which.append(np.arange(S) > 0)
            for some in which:
                used = own * np.concatenate([some, np.ones(len(places) - S)])
                weights = used / np.sqrt(used.sum(axis=1, keepdims=True))
                arrays = jnp.asarray(weights), jnp.asarray(used)
                moved = eqx.tree_at(WEIGHTS, start, arrays)
                yield eqx.tree_at(attrgetter("prior.kernels"), moved, every)


def _numbers(prior: LMC) -> int:
    """The count of learned numbers of a prior: weights, and parameters of the kernels in use."""
    mask = np.asarray(prior.mask) > 0
    used = [prior.kernels[r] for r in np.flatnonzero(mask.any(axis=0))]
    each = [np.size(leaf) for k in used for leaf in jax.tree.leaves(k.learned())]
    return int(mask.sum()) + sum(each)


def _worth(state: State, share: float = 1.0) -> float:
    """The objective minus the price of the learned numbers."""
    prior = state.parameters.prior
    assert isinstance(prior, LMC)
    return share * state.objective - PRICE * _numbers(prior)


def converged(state: State, problem: Problem, jitter: float, rounds: int = 10) -> State:
    """Take rounds until one gains nothing."""
    for _ in range(0 if state.still else rounds):
        before, state = state.objective, step(state, problem, jitter)
        if state.still or state.objective - before < 10.0 * problem.tolerance:
            break
    return state


def without_idle_latents(
    state: State, problem: Problem, jitter: float, share: float = 1.0
) -> State:
    """Remove the latents that are not worth their price; each parameter function keeps one.

    Args:
        state: the current state.
        problem: the data and how the bound is evaluated.
        jitter: added to the diagonals of k(Z, Z).
        share: all values divided by those in the sample.
    """
    weights, mask = map(np.asarray, WEIGHTS(state.parameters))
    held = attrgetter("prior.held")(state.parameters)
    squares = np.where(held, 0.0, weights * mask) ** 2
    shares = np.max(squares / np.maximum(squares.sum(axis=1, keepdims=True), 1e-300), axis=0)
    for r in np.argsort(shares):
        if held[r]:
            continue
        if shares[r] > LARGE:
            break
        fewer = np.array(WEIGHTS(state.parameters)[1])
        if not fewer[:, r].any():
            continue
        fewer[:, r] = 0.0
        if not fewer.any(axis=1).all():
            continue
        moved = eqx.tree_at(attrgetter("prior.mask"), state.parameters, jnp.asarray(fewer))
        trial = settle(moved, state.sites, problem, jitter)
        if _worth(trial, share) > _worth(state, share):
            state = trial._replace(reach=state.reach)
    return state


def only(data: Dataset, d: int) -> Dataset:
    """One output of the data."""
    lists = ("names", "likelihoods", "inputs", "values", "given", "weights")
    return replace(data, **{name: [getattr(data, name)[d]] for name in lists})


def of_output(batch: Batch, d: int) -> Batch:
    """One output of a batch, padded to the length of the longest."""
    longest = max(len(one.y) for one in batch.outputs)

    def longer(values: jax.Array) -> jax.Array:
        room = longest - len(values)
        return jnp.asarray(np.pad(np.asarray(values), (0, room), "edge"))

    one = batch.outputs[d]
    outputs = Observations(
        longer(one.row),
        longer(one.y),
        jnp.asarray(np.pad(np.asarray(one.seen), (0, longest - len(one.y)))),
        longer(one.weight),
        {name: longer(column) for name, column in one.given.items()},
        one.scale,
    )
    return Batch(batch.X, (outputs,))
