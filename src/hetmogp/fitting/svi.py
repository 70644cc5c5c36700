"""Stochastic variational inference on mini-batches: for large data.

One pass over a mini-batch gives both gradients: of the expected log-likelihood with respect to the
hyperparameters, and with respect to the mean and covariance of q(u), which is all that a
natural-gradient step needs. The loop runs on the device in chunks; the host only draws rows in
between.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..bound import Parameters, Rules, at_observations, expected_log_likelihood
from ..data import Batch, Block, Observations, row_draws
from ..linalg import compiled
from ..marginals import marginals
from ..variational import Factors, Moments, Natural, kl, natural_step
from .free import Anchor, free, with_free

__all__ = ["Optimiser", "State", "chunk", "chunk_length", "draws", "init", "result"]

Optimiser = Literal["adam", "adadelta"]

LEARNING_RATE = {"adam": 0.02, "adadelta": 1.0}
NATURAL_RATE = 0.05
WARM_UP = 20  # steps over which the natural step grows to its full size
HALF = 100  # steps after which both rates are half of what they were at first; they fall as 1/t


class State(NamedTuple):
    """What SVI carries from step to step."""

    free: PyTree
    q: Natural | Factors
    optimiser: PyTree
    t: Int[Array, ""]


def mini_batch(blocks: Sequence[Block], rows: Sequence[Int[Array, " B"]]) -> Batch:
    """The rows drawn from each block as one batch; row −1 is padding."""
    inputs, outputs, offset = [], {}, 0
    for block, drawn in zip(blocks, rows, strict=True):
        size = drawn.shape[0]
        scale = jnp.asarray(float(-(-block.X.shape[0] // size)))  # batches in an epoch
        inputs.append(block.X[drawn])
        y, seen = block.y[drawn], block.seen[drawn] & (drawn >= 0)[:, None]
        weight = block.weight[drawn]
        for column, d in enumerate(block.members):
            outputs[d] = Observations(
                offset + jnp.arange(size),
                *(y[:, column], seen[:, column], weight[:, column]),
                {name: values[drawn] for name, values in block.given[column].items()},
                scale,
            )
        offset += size
    return Batch(jnp.concatenate(inputs), tuple(outputs[d] for d in sorted(outputs)))


def draws(
    blocks: Sequence[Block], batch_size: int, seed: int
) -> Iterator[tuple[Int[np.ndarray, " B"], ...]]:
    """The rows of each step, one array per block."""
    rows = [len(block.X) for block in blocks]
    return zip(
        *(row_draws(N, min(batch_size, N), seed, k) for k, N in enumerate(rows)), strict=True
    )


def chunk_length(Q: int, M: int, B: int) -> int:
    """Steps between two looks of the host: about a third of a second on two cores."""
    operations = Q * (12 * M**2 * B + 30 * M**3) + 2e7
    return int(np.clip(1e10 / operations, 1, 50))


def _optimiser(name: Optimiser) -> optax.GradientTransformation:
    return optax.scale_by_adam() if name == "adam" else optax.scale_by_adadelta()


def init(
    parameters: Parameters, learn_inducing: bool, optimiser: Optimiser, natural_gradients: bool
) -> State:
    """q(u) at the prior."""
    values = free(parameters, learn_inducing)
    R, M = sum(parameters.prior.ranks), parameters.prior.inducing_inputs.shape[1]
    eye = jnp.broadcast_to(jnp.eye(M), (R, M, M))
    q = (Natural if natural_gradients else Factors)(jnp.zeros((R, M)), eye)
    learned = values if natural_gradients else (values, q)
    return State(values, q, _optimiser(optimiser).init(learned), jnp.zeros((), int))


def result(parameters: Parameters, state: State) -> tuple[Parameters, Factors]:
    """The model and q(u) of a state."""
    q = state.q.factors() if isinstance(state.q, Natural) else _lower(state.q)
    return with_free(parameters, state.free), q


def _lower(q: Factors) -> Factors:
    return Factors(q.mean, jnp.tril(q.root))


@partial(compiled, static=("optimiser",), often=True)
def chunk(
    state: State,
    parameters: Parameters,
    blocks: list[Block],
    rows: tuple[Int[Array, "T B"], ...],
    jitter: Array,
    rules: Rules,
    optimiser: Optimiser,
    pace: Array,
    anchor: Anchor,
    key: Array,
) -> tuple[State, Float[Array, " T"]]:
    """T steps; returns the mini-batch bounds as well.

    `pace` multiplies the step sizes of the optimiser and of the natural gradient, both of which
    fall as one over the number of steps.
    """

    def step(state: State, rows: tuple[Int[Array, " B"], ...]) -> tuple[State, Array]:
        batch = mini_batch(blocks, rows)
        here = jax.random.fold_in(key, state.t)
        slow = pace / (1.0 + state.t / HALF)
        rate = slow * LEARNING_RATE[optimiser]
        rho = slow * NATURAL_RATE * jnp.minimum(1.0, (state.t + 1.0) / WARM_UP)

        def objective(values: PyTree, q: Moments) -> tuple[Array, Array]:
            moved = with_free(parameters, values)
            prior = moved.prior
            mean, variance = marginals(prior.matrices(batch.X, jitter), prior.ranks, q)
            at = at_observations(moved, mean, variance, batch, rules)
            ell = expected_log_likelihood(moved, at, batch, rules, here)
            return ell + anchor.log_prior(values, moved.slices), ell

        if isinstance(state.q, Natural):
            q = state.q.moments()
            (_, ell), (slope, slope_q) = jax.value_and_grad(objective, (0, 1), has_aux=True)(
                state.free, q
            )
            new_q = natural_step(state.q, q, slope_q.mean, slope_q.cov, rho)
            updates, moments = _optimiser(optimiser).update(slope, state.optimiser, state.free)
            values = jax.tree.map(lambda v, u: v + rate * u, state.free, updates)
            bound = ell - kl(q)
        else:  # the paper's way: m and the root of S by the same optimiser as the rest

            def whole(learned: PyTree) -> tuple[Array, Array]:
                values, q = learned[0], _lower(learned[1])
                value, ell = objective(values, Moments.of(q))
                return value - kl(q), ell - kl(q)

            learned = (state.free, state.q)
            (_, bound), slope = jax.value_and_grad(whole, has_aux=True)(learned)
            updates, moments = _optimiser(optimiser).update(slope, state.optimiser, learned)
            values, new_q = jax.tree.map(lambda v, u: v + rate * u, learned, updates)
        return State(values, new_q, moments, state.t + 1), bound

    return jax.lax.scan(step, state, rows)
