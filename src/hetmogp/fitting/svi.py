"""Stochastic variational inference on mini-batches: for large data.

One pass over a mini-batch gives the gradients of the expected log-likelihood with respect to the
hyperparameters and with respect to the mean and covariance of q(u). A natural-gradient step needs
nothing else. The loop runs on the device in chunks, and the host only draws rows between them. With
several devices, each takes its share of the rows of every batch, and only the bound and the
gradients are summed over the devices.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import distributed
from ..batch import Batch, Block, Observations
from ..bound import Bound, Rules, evaluate
from ..data import row_draws
from ..linalg import compiled
from ..parameters import Parameters
from ..variational import Blocks, Moments, Natural
from .mesh import ROWS, everywhere, rounded, spread

__all__ = ["Feed", "Numbers", "Optimiser", "State", "chunk", "init", "mini_batch", "result"]

Optimiser = Literal["adam", "adadelta"]

LEARNING_RATE = {"adam": 0.02, "adadelta": 1.0}
NATURAL_RATE = 0.05
WARM_UP = 20  # steps over which the natural step grows to its full size
HALF = 100  # steps after which both rates are half their initial value; they fall as 1/t
PAPERS_RATE = {"adam": 0.01, "adadelta": 1.0}  # constant, as in the paper: no natural gradients
LONGEST = 500  # the most steps of a chunk
RESIDENT = 0.5  # of the device's memory; larger data are streamed
SENT = 2**26  # the most bytes sent to the device for a chunk


class State(NamedTuple):
    """The state between two steps of SVI."""

    free: PyTree
    q: Natural | Blocks
    optimiser: PyTree
    t: Int[Array, ""]


class Numbers(NamedTuple):
    """The numbers that a chunk of steps takes as arguments.

    Attributes:
        first: the position in the tables of rows where the chunk begins.
        n: the number of steps.
        jitter: added to the diagonals of k(Z, Z).
        pace: multiplies the step sizes of the optimiser and of the natural gradient.
        seed: the seed of the quasi-Monte Carlo points.
    """

    first: Int[Array, ""]
    n: Int[Array, ""]
    jitter: Float[Array, ""]
    pace: Float[Array, ""]
    seed: Int[Array, ""]


def mini_batch(
    blocks: Sequence[Block], rows: Sequence[Int[Array, " B"]], devices: int = 1
) -> Batch:
    """The rows drawn from each block as one batch; row −1 is padding.

    With several devices this is one device's share of the batch.
    """
    inputs, outputs, offset = [], {}, 0
    for block, drawn in zip(blocks, rows, strict=True):
        size = drawn.shape[0]
        scale = jnp.ceil(block.size / (size * devices))  # batches in an epoch
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


class Feed:
    """Draws the rows of the next steps and puts the data where the device can reach them.

    Data that fit on the device stay there, and rows are drawn by index. Larger data stay on the
    host, which sends the rows of one chunk of steps at a time.
    """

    def __init__(self, blocks: Sequence[Block], batch_size: int, seed: int, skip: int = 0):
        self.sizes = [rounded(min(batch_size, len(block.X))) for block in blocks]
        self.epoch = max(-(-len(b.X) // n) for b, n in zip(blocks, self.sizes, strict=True))
        self._draws = [
            row_draws(len(block.X), size, seed, k, skip)
            for k, (block, size) in enumerate(zip(blocks, self.sizes, strict=True))
        ]
        self.taken = skip
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(blocks))
        self.resident = all(distributed.gathered(size <= RESIDENT * _memory()))
        self.blocks = everywhere(blocks) if self.resident else blocks
        step = 4.0 * sum(self.sizes)  # bytes: the row indices and, if streamed, the rows
        if not self.resident:
            step += size / sum(len(block.X) for block in blocks) * sum(self.sizes)
        self.longest = int(np.clip(SENT / step, 1, LONGEST))

    def close(self) -> None:
        """Do nothing: only a feed from disk has threads to stop."""

    def take(self, n: int) -> tuple[list[Block], tuple[Int[Array, "T B"], ...], int]:
        """Blocks and rows for n ≤ longest steps, from step 0; shapes are always the same."""
        self.taken += n
        rows = []
        for draws, size in zip(self._draws, self.sizes, strict=True):
            table = np.full((self.longest, size), -1, np.int32)
            table[:n] = list(itertools.islice(draws, n))
            rows.append(np.split(table, distributed.count(), axis=1)[distributed.index()])
        if self.resident:
            return list(self.blocks), tuple(map(spread, rows)), 0
        sent = [_sent(block, table) for block, table in zip(self.blocks, rows, strict=True)]
        return sent, tuple(spread(positions(table >= 0)) for table in rows), 0


def _sent(block: Block, rows: Int[np.ndarray, "T B"]) -> Block:
    """The rows of some steps as a separate block, which keeps the total number of rows."""
    return jax.tree.map(lambda leaf: spread(leaf[rows]) if leaf.ndim else everywhere(leaf), block)


def positions(there: Bool[np.ndarray, "T B"]) -> Int[np.ndarray, "T B"]:
    """The positions of a step's rows in the part sent to their device; −1 is padding."""
    share = there.shape[1] * distributed.count() // len(distributed.devices())
    at = np.arange(there.shape[1], dtype=np.int32) % share
    return np.where(there, at, np.int32(-1))


def _memory() -> float:
    """The device's memory in bytes; unlimited on a CPU, where the data are in memory already."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return float(stats.get("bytes_limit", np.inf))


def _optimiser(name: Optimiser) -> optax.GradientTransformation:
    return optax.scale_by_adam() if name == "adam" else optax.scale_by_adadelta()


def init(
    parameters: Parameters,
    family: type[Blocks],
    learn_inducing: bool,
    optimiser: Optimiser,
    natural_gradients: bool,
) -> State:
    """q(u) at the prior."""
    values = parameters.free(learn_inducing)
    widths = parameters.prior.widths
    if natural_gradients:
        q: Natural | Blocks = Natural.at_prior(family, widths)
        return State(values, q, _optimiser(optimiser).init(values), jnp.asarray(0))
    q = family.at_prior(widths)
    return State(values, q, _optimiser(optimiser).init((values, q)), jnp.asarray(0))


@compiled
def result(parameters: Parameters, state: State) -> tuple[Parameters, Blocks]:
    """The model and q(u) of a state."""
    q = state.q.factors() if isinstance(state.q, Natural) else state.q.lower()
    return parameters.with_free(state.free), q


def _step(
    state: State,
    batch: Batch,
    parameters: Parameters,
    numbers: Numbers,
    rules: Rules,
    optimiser: Optimiser,
) -> tuple[State, Float[Array, ""]]:
    """Take one step on this device's share of a batch; also return the bound before it."""
    key = jax.random.fold_in(jax.random.key(numbers.seed), state.t)

    def bound(values: PyTree, q: Moments) -> tuple[Array, Bound]:
        moved = parameters.with_free(values)
        view = moved.prior.matrices(batch.X, numbers.jitter)
        bound = evaluate(moved, q, view, batch, rules, key)
        return bound.fit, bound

    def log_density(values: PyTree) -> Array:
        return parameters.with_free(values).log_density()

    def total(tree: PyTree) -> PyTree:
        return jax.lax.psum(tree, ROWS)

    if isinstance(state.q, Natural):
        slow = numbers.pace / (1.0 + state.t / HALF)
        rate = slow * LEARNING_RATE[optimiser]
        rho = slow * NATURAL_RATE * jnp.minimum(1.0, (state.t + 1.0) / WARM_UP)
        q = state.q.moments()
        (fit, here), slopes = jax.value_and_grad(bound, (0, 1), has_aux=True)(state.free, q)
        fit, (slope, slope_q) = total((fit, slopes))
        slope = jax.tree.map(jnp.add, slope, jax.grad(log_density)(state.free))
        new_q: Natural | Blocks = state.q.step(q, slope_q, rho)
        updates, memory = _optimiser(optimiser).update(slope, state.optimiser, state.free)
        values = jax.tree.map(lambda v, u: v + rate * u, state.free, updates)
        return State(values, new_q, memory, state.t + 1), fit - here.kl

    # The paper's method: the same optimiser learns m, the root of S and the rest.
    def shared(learned: PyTree) -> tuple[Array, Bound]:
        return bound(learned[0], learned[1].lower().moments())

    def alone(learned: PyTree) -> Array:
        return log_density(learned[0]) - learned[1].lower().kl()

    learned = (state.free, state.q)
    (fit, here), slope = jax.value_and_grad(shared, has_aux=True)(learned)
    fit, slope = total((fit, slope))
    slope = jax.tree.map(jnp.add, slope, jax.grad(alone)(learned))
    updates, memory = _optimiser(optimiser).update(slope, state.optimiser, learned)
    rate = numbers.pace * PAPERS_RATE[optimiser]
    values, new_q = jax.tree.map(lambda v, u: v + rate * u, learned, updates)
    return State(values, new_q, memory, state.t + 1), fit - here.kl


@partial(compiled, static=("optimiser", "devices"), often=True)
def chunk(
    state: State,
    parameters: Parameters,
    blocks: list[Block],
    rows: tuple[Int[Array, "T B"], ...],
    numbers: Numbers,
    rules: Rules,
    optimiser: Optimiser,
    devices: Mesh,
) -> tuple[State, Float[Array, " T"], Bool[Array, ""]]:
    """Take n of T steps; also return their bounds and whether all numbers are finite.

    The bounds have length T, and those of steps that were not taken are zero. A block holds either
    all rows, (N, ...), on every device, or the rows of each step, (T, B, ...), spread over the
    devices.
    """

    def on_a_device(
        state: State,
        blocks: list[Block],
        rows: tuple[Int[Array, "T b"], ...],
        parameters: Parameters,
        numbers: Numbers,
    ) -> tuple[State, Array]:
        def body(i: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            drawn = tuple(table[i] for table in rows)
            batch = mini_batch([_at(block, i) for block in blocks], drawn, devices.size)
            state, bound = _step(carry[0], batch, parameters, numbers, rules, optimiser)
            return state, carry[1].at[i].set(bound)

        bounds = jnp.zeros(rows[0].shape[0])
        return jax.lax.fori_loop(numbers.first, numbers.first + numbers.n, body, (state, bounds))

    same = PartitionSpec()
    state, bounds = jax.shard_map(
        on_a_device,
        mesh=devices,
        in_specs=(same, [_held(b) for b in blocks], PartitionSpec(None, ROWS), same, same),
        out_specs=same,
        check_vma=False,  # gradients are those of the device's own rows until they are summed
    )(state, blocks, rows, parameters, numbers)
    leaves = jax.tree.leaves((state.free, state.q, bounds))
    return state, bounds, jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _at(block: Block, i: Array) -> Block:
    """The rows from which step i draws."""
    if block.X.ndim == 2:
        return block
    return jax.tree.map(lambda leaf: leaf[i] if leaf.ndim else leaf, block)


def _held(block: Block) -> PyTree:
    """How a block is laid out over the devices."""
    by_step = PartitionSpec(None, ROWS) if block.X.ndim == 3 else PartitionSpec()
    return jax.tree.map(lambda leaf: by_step if leaf.ndim else PartitionSpec(), block)
