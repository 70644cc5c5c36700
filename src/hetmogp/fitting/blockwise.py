"""One step of learning a model with local latents: some blocks of places, with all their rows.

A step has everything that concerns its blocks: their rows, the conditionals that involve them, and
the means around them. So it can set their q to the best given the rest, without noise, by a
Gaussian site at each place (`Neighbourhood.updated`). The smooth latents and the hyperparameters
take stochastic steps, as in `svi`. The lengthscales of local latents climb the evidence of their
sites at some places (`variational/evidence.py`). The cost of a step does not depend on the number
of places.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..batch import Batch, Block
from ..bound import Bound, Rules, at_observations, evaluate
from ..kernels import Kernel
from ..linalg import compiled
from ..parameters import Parameters
from ..priors import Latents
from ..variational import Blocks, Moments, Natural, Neighbourhood, evidence
from ..variational.evidence import evidence_of_all
from ..variational.neighbours import LEAST_OWN, Conditional, Sites, Surroundings
from ..variational.semidefinite import positive_part
from .draws import STEPS, Drawn
from .svi import HALF, LEARNING_RATE, NATURAL_RATE, mini_batch

__all__ = [
    *("Numbers", "Relations", "Shape", "State", "Task"),
    *("chunk", "conditionals", "local_bound", "smooth_bounds"),
]

SHARE = 0.5  # of the sites that an update replaces
SETTLING = 2  # epochs in which local latents are found before anything else moves
ASKED = 128  # places from which a step finds the slope of the evidence
SHAPE_RATE = 0.03  # how far the logarithm of a lengthscale moves in a step, about
WIDTH = 1.5  # of the normal prior of that logarithm, as for other kernels


class Shape(NamedTuple):
    """What is learned of the covariances of local latents.

    Attributes:
        ranges: logarithms of their lengthscales.
        own: the logit of the share of their variance that every place has to itself.
    """

    ranges: Float[Array, "R p"]
    own: Float[Array, " R"]

    def applied(self, kernels: tuple[Kernel, ...]) -> tuple[tuple[Kernel, ...], Float[Array, " R"]]:
        """Kernels with these lengthscales, and the shares."""
        moved = tuple(
            eqx.tree_at(lambda kernel: kernel.lengthscale, kernel, jnp.exp(log))
            for kernel, log in zip(kernels, self.ranges, strict=True)
        )
        return moved, LEAST_OWN + (1.0 - LEAST_OWN) * jax.nn.sigmoid(self.own)


class State(NamedTuple):
    """What is carried from step to step; see `svi.State` for the first four.

    Attributes:
        near: q of the local latents.
        linear: of the site at each place.
        precision: of the same.
        log_det: log det S of each block.
        given: the conditionals of all places. A step recomputes those of its own blocks only:
            lengthscales move little in an epoch, and four times as many conditionals involve a
            block.
        shape: of the local latents.
        pushed: Adam's memory of that.
    """

    free: PyTree
    q: Natural
    optimiser: PyTree
    t: Int[Array, ""]
    near: Neighbourhood
    linear: Float[Array, "L R"]
    precision: Float[Array, "L R R"]
    log_det: Float[Array, " C"]
    given: Conditional
    shape: Shape
    pushed: PyTree


class Relations(NamedTuple):
    """Which places are near each other (see `Places`), and the place of each row of the data."""

    near: Int[Array, "L K"]
    members: Int[Array, "C n"]
    terms: Int[Array, "C T"]
    place: tuple[Int[Array, " N"], ...]


class Task(NamedTuple):
    """What steps work with and do not change.

    Attributes:
        relations: of the places.
        blocks: the data.
        shape: where the local latents started.
        limits: the logarithms of the shortest and the longest lengthscale of each input.
        several: one if places have several values, from which their own share can be learned; else
            zero.
    """

    relations: Relations
    blocks: list[Block]
    shape: Shape
    limits: Float[Array, "2 p"]
    several: Float[Array, ""]


class Numbers(NamedTuple):
    """See `svi.Numbers`; `batches` is the number of steps in an epoch."""

    n: Int[Array, ""]
    jitter: Float[Array, ""]
    pace: Float[Array, ""]
    batches: Float[Array, ""]


@compiled
def conditionals(
    near: Neighbourhood, shape: Shape, kernels: tuple[Kernel, ...], known: Relations
) -> Conditional:
    """The conditionals of all places."""
    moved, own = shape.applied(kernels)
    return eqx.tree_at(lambda n: n.own, near, own).prior(moved, known.near)


@partial(compiled, often=True, donate=("state",))
def chunk(
    state: State, start: Parameters, task: Task, drawn: Drawn, numbers: Numbers, rules: Rules
) -> tuple[State, Float[Array, " T"], Array]:
    """Some steps; their bounds, with zeros after them; and whether all of them went well.

    The state is used up: what there is for every place is changed where it is, not copied.
    """

    def body(i: Array, carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
        state, bounds, well = carry
        here = jax.tree.map(lambda a: a[i], drawn)
        state, bound, finite = _step(state, start, task, here, numbers, rules)
        return state, bounds.at[i].set(bound), well & finite

    begin = state, jnp.zeros(STEPS, state.linear.dtype), jnp.asarray(True)
    return jax.lax.fori_loop(0, numbers.n, body, begin)


def _step(
    state: State, start: Parameters, task: Task, drawn: Drawn, numbers: Numbers, rules: Rules
) -> tuple[State, Float[Array, ""], Array]:
    """One step, the bound before it, and whether it went well; if not, nothing has moved."""
    near, (jitter, pace, batches) = state.near, numbers[1:]
    around = _surroundings(drawn.block, task.relations)
    batch, place = _rows(task, drawn, batches)
    q, local = state.q.moments(), near.at_places(place)

    def fit(free: PyTree, q: Moments, local: Latents) -> tuple[Array, Bound]:
        bound = _bound(start.with_free(free), q, local, batch, jitter, rules)
        return bound.fit, bound

    value_and_slopes = jax.value_and_grad(fit, (0, 1, 2), has_aux=True)
    (value, here), (slope, slope_q, slope_local) = value_and_slopes(state.free, q, local)

    kernels, own = state.shape.applied(start.prior.nearby)
    near = eqx.tree_at(lambda n: n.own, near, own)
    known = _refreshed(state.given, near, kernels, around)
    given = known.of(around.terms.reshape(-1))
    kl = _divergence(state, given, around)
    prior = jax.grad(lambda free: start.with_free(free).log_density())(state.free)
    slope = jax.tree.map(jnp.add, slope, prior)

    # Until all blocks were used twice, slopes are unreliable: Adam does not remember them.
    settled = state.t >= SETTLING * batches
    slow = jnp.where(settled, pace / (1.0 + (state.t - SETTLING * batches) / HALF), 0.0)

    def adam(z: PyTree, slope: PyTree, memory: PyTree, rate: float) -> tuple[PyTree, PyTree]:
        updates, moved = optax.scale_by_adam().update(slope, memory, z)
        moved = jax.tree.map(lambda a, b: jnp.where(settled, a, b), moved, memory)
        return jax.tree.map(lambda v, u: v + slow * rate * u, z, updates), moved

    free, memory = adam(state.free, slope, state.optimiser, LEARNING_RATE["adam"])
    shape, pushed = adam(state.shape, _shape_slope(state, start, task), state.pushed, SHAPE_RATE)
    shape = shape._replace(ranges=jnp.clip(shape.ranges, *task.limits))
    new_q = state.q.step(q, slope_q, slow * NATURAL_RATE)

    slope_local = jax.tree.map(lambda a: a / batches, slope_local)
    sites = _sites(state, around, drawn, place, slope_local, SHARE * jnp.minimum(pace, 1.0))
    found, bound = near.updated(given, around, sites), value - here.kl - batches * kl
    leaves = jax.tree.leaves((bound, free, new_q, memory, shape, pushed, found, sites))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
    moved = state._replace(free=free, q=new_q, optimiser=memory, shape=shape, pushed=pushed)
    kept = jax.tree.map(
        lambda new, old: new if new is old else jnp.where(finite, new, old), moved, state
    )
    # Conditionals of lengthscales that are finite, whatever became of the step.
    kept = kept._replace(given=known)
    return _written(kept, around, found, sites, finite), bound, finite


@partial(compiled, often=True)
def smooth_bounds(
    parameters: Parameters,
    q: Blocks,
    near: Neighbourhood,
    task: Task,
    drawn: Drawn,
    numbers: Numbers,
    rules: Rules,
) -> Float[Array, " T"]:
    """E[log p(y | f)] less the KL of the smooth latents, for some steps; zeros after them."""
    moments = q.moments()

    def body(i: Array, bounds: Array) -> Array:
        batch, place = _rows(task, jax.tree.map(lambda a: a[i], drawn), numbers.batches)
        local = near.at_places(place)
        bound = _bound(parameters, moments, local, batch, numbers.jitter, rules)
        return bounds.at[i].set(bound.fit - bound.kl)

    return jax.lax.fori_loop(0, numbers.n, body, jnp.zeros(STEPS, near.mean.dtype))


@compiled
def local_bound(
    near: Neighbourhood, kernels: tuple[Kernel, ...], known: Relations, sites: Sites
) -> Float[Array, ""]:
    """Less the KL of the local latents: log Z − E[log sites], with q ∝ p(u) times the sites.

    log Z is taken place by place (`evidence`), and the expectation with the marginals of q.
    """
    u = near.at_places(jnp.arange(len(near.block)))
    second = u.cov + u.mean[:, :, None] * u.mean[:, None, :]
    expected = jnp.sum(sites.linear * u.mean) - 0.5 * jnp.sum(sites.precision * second)
    return evidence_of_all(kernels, near.own, near.at, known.near, sites) - expected


def _rows(task: Task, drawn: Drawn, batches: Float[Array, ""]) -> tuple[Batch, Int[Array, " N"]]:
    """The rows of a step, each standing for those of an epoch, and the place of each."""
    batch = mini_batch(task.blocks, drawn.rows)
    scales = [batches] * len(batch.outputs)
    batch = eqx.tree_at(lambda b: [one.scale for one in b.outputs], batch, scales)
    pairs = zip(drawn.rows, task.relations.place, strict=True)
    return batch, jnp.concatenate([jnp.where(rows >= 0, of[rows], 0) for rows, of in pairs])


def _bound(
    parameters: Parameters,
    q: Moments,
    local: Latents,
    batch: Batch,
    jitter: Float[Array, ""],
    rules: Rules,
) -> Bound:
    """The bound of a step, but for the KL of the local latents."""
    view = parameters.prior.matrices(batch.X, jitter)
    at = at_observations(parameters, q.latents(view).beside(local), batch, rules)
    return evaluate(parameters, q, view, batch, rules, at=at)


def _surroundings(block: Int[Array, " B"], known: Relations) -> Surroundings:
    """Some blocks and the conditionals that involve them."""
    there = (block >= 0)[:, None]
    members, terms = (jnp.where(there, a[block], -1) for a in (known.members, known.terms))
    near = jnp.where((terms >= 0)[..., None], known.near[terms], -1)
    return Surroundings(block, members, terms, near)


def _refreshed(
    known: Conditional, near: Neighbourhood, kernels: tuple[Kernel, ...], around: Surroundings
) -> Conditional:
    """The conditionals of all places, those of some blocks for the lengthscales of now."""
    own, n = around.members.reshape(-1), around.members.shape[1]
    fresh = near.given(kernels, near.at[own], around.near[:, :n].reshape(len(own), -1))
    return known.replaced(jnp.where(own >= 0, own, known.v.shape[1]), fresh)


def _divergence(state: State, given: Conditional, around: Surroundings) -> Float[Array, ""]:
    """The terms of the KL of some blocks. The first terms of a block are its members."""
    (B, n), T = around.members.shape, around.terms.shape[1]
    first = (jnp.arange(B)[:, None] * T + jnp.arange(n)).reshape(-1)
    own, near = around.members.reshape(-1), around.near[:, :n].reshape(B * n, -1)
    blocks = eqx.tree_at(lambda n: n.beyond, state.near, state.near.beyond[:0])
    kl = blocks.divergence(given.of(first), own, near)
    entropy = jnp.sum(jnp.where(around.block >= 0, state.log_det[around.block], 0.0))
    return kl - 0.5 * (entropy + jnp.sum(own >= 0) * state.near.mean.shape[1])


def _shape_slope(state: State, start: Parameters, task: Task) -> Shape:
    """The slope of the log evidence of the local latents' shape, estimated from some places."""
    near, L = state.near, len(state.linear)
    i = jax.random.randint(jax.random.fold_in(jax.random.key(0), state.t), (ASKED,), 0, L)
    before = task.relations.near[i]
    every = jnp.concatenate([before, i[:, None]], axis=1)
    sites = Sites(state.linear[every], state.precision[every])

    def told(shape: Shape) -> Array:
        terms = evidence(*shape.applied(start.prior.nearby), near.at, i, before, sites)
        moves = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), shape, task.shape)
        return L * jnp.mean(terms) - 0.5 * (moves.ranges + moves.own) / WIDTH**2

    slope = jax.grad(told)(state.shape)
    return slope._replace(own=task.several * slope.own)


def _written(
    state: State,
    around: Surroundings,
    found: tuple[Array, Array, Array],
    sites: Sites,
    finite: Array,
) -> State:
    """The state after a step, with what was found of its blocks, if that is finite."""
    (mean, cov, log_det), near = found, state.near
    own, block = around.members.reshape(-1), around.block
    own = jnp.where(finite & (own >= 0), own, len(near.block))
    block = jnp.where(finite & (block >= 0), block, len(state.log_det))

    def kept(old: Array, at: Array, new: Array) -> Array:
        new = new.reshape(len(at), *old.shape[1:]).astype(old.dtype)
        return old.at[at].set(new, mode="drop")

    changed = kept(near.mean, own, mean), kept(near.cov, block, cov)
    return state._replace(
        t=state.t + 1,
        near=eqx.tree_at(lambda n: (n.mean, n.cov), near, changed),
        linear=kept(state.linear, own, sites.linear),
        precision=kept(state.precision, own, sites.precision),
        log_det=kept(state.log_det, block, log_det),
    )


def _sites(
    state: State,
    around: Surroundings,
    drawn: Drawn,
    place: Int[Array, " N"],
    slope: Latents,
    share: Float[Array, ""],
) -> Sites:
    """The sites at the places of some blocks, a share of them replaced by those of the slopes.

    Precisions are made positive semi-definite; where a step no longer moves the means this does not
    either.
    """
    (B, n), R = around.members.shape, slope.mean.shape[1]
    which = jnp.concatenate(drawn.which)
    at = jnp.where(which >= 0, which * n + state.near.slot[place], B * n)
    pull = jnp.zeros((B * n + 1, R), slope.mean.dtype).at[at].add(slope.mean)[:-1]
    curve = (
        jnp.zeros((B * n + 1, R, R), slope.mean.dtype)
        .at[at]
        .add(-(slope.cov + jnp.swapaxes(slope.cov, 1, 2)))[:-1]
    )
    curve, own = positive_part(curve), around.members.reshape(-1)
    there = own >= 0
    mean, linear = (
        jnp.where(there[:, None], old[own], 0.0) for old in (state.near.mean, state.linear)
    )
    precision = jnp.where(there[:, None, None], state.precision[own], 0.0)
    target = pull + jnp.einsum("nrs,ns->nr", curve, mean)
    return Sites(
        (linear + share * (target - linear)).reshape(B, n, R),
        (precision + share * (curve - precision)).reshape(B, n, R, R),
    )
