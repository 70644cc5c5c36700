"""Local latents, learned with the smooth ones on mini-batches of blocks of places.

A step takes some blocks with all rows that lie in them. Of these blocks everything is at hand:
their rows, the conditionals that speak of them, the means around them. So their q is brought to its
best given the rest, without noise (`Neighbourhood.updated`), by a Gaussian site at each place. The
smooth latents and the hyperparameters take stochastic steps, as in `svi`. What a step costs does
not depend on the number of places.

The lengthscales of local latents are held: a few multiples of the distance between neighbouring
places, from short to long, of which the weights choose. A q of blocks prefers short ones whatever
the truth, since it loses less by them; learned by its bound they went on shrinking, on London's
sales by four times in 700 steps, while held-out scores got worse. Held, the conditionals are
computed once. For the same reason weights grow for long, by gains of the bound that held-out scores
do not see (1.271 after 300 steps, 1.294 after 600), so the fit ends sooner than others.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree
from scipy.spatial import cKDTree

from .. import distributed
from ..batch import Block
from ..bound import Bound, Rules, at_observations, evaluate
from ..kernels import Kernel, Matern32
from ..linalg import compiled
from ..parameters import Parameters
from ..places import Places
from ..priors import LMC, Latents
from ..tables import Dataset
from ..variational import Blocks, Moments, Natural, Neighbourhood, dominant
from ..variational.neighbours import Conditional, Sites, Surroundings
from .alone import PRICE
from .checkpoint import Checkpoints
from .draws import STEPS, Drawn, Feed
from .fit import Fit
from .mini_batches import LAST_LOOK, Run, climb
from .options import Options
from .progress import Progress
from .ready import Ready, Source
from .svi import HALF, LEARNING_RATE, NATURAL_RATE, mini_batch

__all__ = ["FEW", "how_many_local", "pays", "run_local"]

NEIGHBOURS, ALONG_A_LINE = 10, 6  # near places of each; along a line few say all
SIZE = 40  # places of a block
SHARE = 0.5  # of the sites that an update replaces
ENOUGH = 10.0  # times the usual tolerance: what is gained later is larger weights, see above
SETTLING = 2  # epochs in which local latents are found before anything else moves
WEIGHT = 0.3  # of a local latent in the functions it starts with, in units of their spread
RANGES = (1.5, 10.0)  # the shortest and the longest lengthscale, in distances of neighbours
LATENTS = 3  # how many are tried unasked: short, middling and long
FEW = 100  # inducing inputs of each smooth latent where local ones carry what is near
INPUTS = 4  # with more of them nobody is near
LEAST, MOST = 1_000, 200_000  # places for which local latents are tried unasked


class State(NamedTuple):
    """What is carried from step to step; see `svi.State` for the first four.

    Attributes:
        near: q of the local latents.
        linear: of the site at each place.
        precision: of the same.
        log_det: log det S of each block.
    """

    free: PyTree
    q: Natural
    optimiser: PyTree
    t: Int[Array, ""]
    near: Neighbourhood
    linear: Float[Array, "L R"]
    precision: Float[Array, "L R R"]
    log_det: Float[Array, " C"]


class _Map(NamedTuple):
    """Who is near whom, and at which place each row of each block of data lies."""

    near: Int[Array | np.ndarray, "L K"]
    members: Int[Array | np.ndarray, "C n"]
    terms: Int[Array | np.ndarray, "C T"]
    place: tuple[Int[Array | np.ndarray, " N"], ...]


class _Numbers(NamedTuple):
    """What a chunk of steps is told: see `svi.Numbers`; `batches` are the steps of an epoch."""

    n: Int[Array, ""]
    jitter: Float[Array, ""]
    pace: Float[Array, ""]
    batches: Float[Array, ""]


def how_many_local(data: Dataset, options: Options, ready: Ready, source: Source | None) -> int:
    """How many local latents to try."""
    if options.local != "auto":
        return int(options.local)
    few = len(data.columns) <= INPUTS and not data.labels
    plain = options.natural_gradients and options.optimizer == "adam" and options.q == "auto"
    here = source is None and distributed.count() == 1
    if not (options.chooses and options.method == "auto" and options.prior == "lmc"):
        return 0
    if ready.method != "svi" or not (few and plain and here):
        return 0
    return LATENTS if LEAST <= ready.distinct <= MOST else 0


def pays(local: Fit, smooth: Fit) -> bool:
    """Whether local latents have gained the price of the numbers that came with them."""
    prior = local.parameters.prior
    assert isinstance(prior, LMC)
    return local.bound - smooth.bound > PRICE * prior.local * len(prior.constants)


def run_local(
    smooth: Fit,
    number: int,
    ready: Ready,
    options: Options,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """A model with local latents, learned from one that has none.

    Args:
        smooth: that model.
        number: of local latents.
        ready: the data.
        options: of the fit.
        progress: where to report.
        checkpoints: where to keep the fit on its way.
    """
    blocks = ready.data
    assert isinstance(blocks, list)
    distinct = np.unique(ready.X, axis=0)
    K = ALONG_A_LINE if distinct.shape[1] == 1 else NEIGHBOURS
    places = Places.of(distinct, K, SIZE, options.seed)
    start = _started(smooth.parameters, places, number, options.seed)
    tree = cKDTree(places.at)
    of_row = [tree.query(np.asarray(b.X, float))[1].astype(np.int32) for b in blocks]
    state = _init(start, smooth, places, K)
    known: _Map = jax.tree.map(
        jnp.asarray, _Map(places.near, places.members, places.terms, tuple(of_row))
    )
    given = _given(start.prior.nearby, state.near, known.near)
    task = _Task(known, given, [jax.tree.map(jnp.asarray, block) for block in blocks])
    q = state.q.factors()
    fit = Fit(start, q, -np.inf, smooth.jitter, list(smooth.history), near=state.near)
    run = _Local(start, options, fit, state, task=task)
    if checkpoints is not None:
        run.resume(checkpoints)
    in_blocks = [places.block[rows] for rows in of_row]
    feed = Feed(in_blocks, len(places.members), options, run.taken)
    most, tolerance = ready.limits
    climb(run, feed, (most, ENOUGH * tolerance), progress, checkpoints)
    if run.bounds:
        fit.history.append(float(np.mean(run.bounds)))
    fresh = Feed(in_blocks, len(places.members), options)
    fit.bound = run.final_bound(fresh, min(feed.epoch, LAST_LOOK))
    fit.parameters = start.with_free(run.state.free)
    fit.q, fit.near = run.state.q.factors(), run.state.near
    fit.iterations += smooth.iterations
    return fit


@compiled
def _given(kernels: tuple[Kernel, ...], q: Neighbourhood, near: Int[Array, "L K"]) -> Conditional:
    return q.given(kernels, q.at, near)


class _Task(NamedTuple):
    """What steps work with and do not change.

    Attributes:
        map: of the places.
        given: the conditional of each place on those near to it.
        blocks: the data.
    """

    map: _Map
    given: Conditional
    blocks: list[Block]


@dataclass(kw_only=True)
class _Local(Run):
    """A fit with local latents on its way."""

    task: _Task

    def _steps(self, feed: Feed, n: int, pace: float) -> tuple[State, list[float], bool]:
        """See `Run._steps`."""
        numbers = _Numbers(*map(jnp.asarray, (n, self.fit.jitter, pace, float(feed.epoch))))
        state, bounds, finite = _chunk(
            *(self.state, self.start, self.task, feed.take(n), numbers, self.options.rules)
        )
        return state, np.asarray(bounds)[:n].tolist(), bool(finite)


def _started(parameters: Parameters, places: Places, number: int, seed: int) -> Parameters:
    """The model with local latents added, with ranges from short to long."""
    prior = parameters.prior
    assert isinstance(prior, LMC)  # options see to it
    apart = float(np.median(cKDTree(places.at).query(places.at, k=2)[0][:, 1]))
    ranges = np.geomspace(*RANGES, number) if number > 1 else np.array([np.sqrt(np.prod(RANGES))])
    p = places.at.shape[1]
    kernels = [_kernel(np.full(p, apart * one)) for one in ranges]
    J = len(prior.constants)
    own = np.arange(number) == np.arange(J)[:, None] % number
    noise = np.random.default_rng(seed).standard_normal((J, number))
    return eqx.tree_at(
        lambda p: p.prior, parameters, prior.with_local(kernels, WEIGHT * (own + 0.3 * noise))
    )


def _kernel(lengthscale: Float[np.ndarray, " p"]) -> Kernel:
    """The kernel of a local latent, on standardised inputs."""
    p = len(lengthscale)
    kernel = Matern32(lengthscale, fixed=("lengthscale",)).start(np.ones(p), [""] * p, np.ones(p))
    return jax.tree.map(lambda a: jnp.asarray(a, dtype=float), kernel)


def _init(start: Parameters, smooth: Fit, places: Places, K: int) -> State:
    """The local latents at their prior, the others as they are."""
    (L, _), (C, n), R = places.at.shape, places.members.shape, start.prior.local
    near = Neighbourhood(
        jnp.asarray(places.at, dtype=float),
        jnp.asarray(places.block),
        jnp.asarray(places.slot),
        jnp.zeros((L, R)),
        jnp.tile(jnp.eye(R * n), (C, 1, 1)),
        neighbours=K,
    )
    assert isinstance(smooth.q, Blocks)
    free = start.free(False)
    memory, zero = optax.scale_by_adam().init(free), jnp.asarray(0)
    sites = (jnp.zeros((L, R)), jnp.zeros((L, R, R)))
    return State(free, Natural.of(smooth.q), memory, zero, near, *sites, jnp.zeros(C))


@partial(compiled, often=True)
def _chunk(
    state: State, start: Parameters, task: _Task, drawn: Drawn, numbers: _Numbers, rules: Rules
) -> tuple[State, Float[Array, " T"], Array]:
    """Some steps; also their bounds, the others zero, and whether all is finite."""

    def body(i: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
        here = jax.tree.map(lambda a: a[i], drawn)
        state, bound = _step(carry[0], start, task, here, numbers, rules)
        return state, carry[1].at[i].set(bound)

    state, bounds = jax.lax.fori_loop(0, numbers.n, body, (state, jnp.zeros(STEPS)))
    leaves = jax.tree.leaves((state.free, state.q, state.near.mean, bounds))
    return state, bounds, jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _step(
    state: State, start: Parameters, task: _Task, drawn: Drawn, numbers: _Numbers, rules: Rules
) -> tuple[State, Float[Array, ""]]:
    """One step, and the bound before it."""
    near, (jitter, pace, batches) = state.near, numbers[1:]
    around = _surroundings(drawn.block, task.map)
    batch = mini_batch(task.blocks, drawn.rows)
    scales = [batches] * len(batch.outputs)
    batch = eqx.tree_at(lambda b: [one.scale for one in b.outputs], batch, scales)
    pairs = zip(drawn.rows, task.map.place, strict=True)
    place = jnp.concatenate([jnp.where(rows >= 0, of[rows], 0) for rows, of in pairs])
    q, local = state.q.moments(), near.at_places(place)

    def fit(free: PyTree, q: Moments, local: Latents) -> tuple[Array, Bound]:
        moved = start.with_free(free)
        view = moved.prior.matrices(batch.X, jitter)
        at = at_observations(moved, q.latents(view).beside(local), batch, rules)
        bound = evaluate(moved, q, view, batch, rules, at=at)
        return bound.fit, bound

    value_and_slopes = jax.value_and_grad(fit, (0, 1, 2), has_aux=True)
    (value, here), (slope, slope_q, slope_local) = value_and_slopes(state.free, q, local)

    own = around.members.reshape(-1)
    own_near = jnp.where((own >= 0)[:, None], task.map.near[own], -1)
    kl = near.divergence(task.given.of(own), own, own_near)
    entropy = jnp.sum(jnp.where(drawn.block >= 0, state.log_det[drawn.block], 0.0))
    kl -= 0.5 * (entropy + jnp.sum(own >= 0) * near.mean.shape[1])
    prior = jax.grad(lambda free: start.with_free(free).log_density())(state.free)
    slope = jax.tree.map(jnp.add, slope, prior)

    # Until all blocks were met twice, slopes are no guide and not to be remembered.
    settled = state.t >= SETTLING * batches
    slow = jnp.where(settled, pace / (1.0 + (state.t - SETTLING * batches) / HALF), 0.0)
    updates, memory = optax.scale_by_adam().update(slope, state.optimiser, state.free)
    memory = jax.tree.map(lambda a, b: jnp.where(settled, a, b), memory, state.optimiser)
    free = jax.tree.map(lambda v, u: v + slow * LEARNING_RATE["adam"] * u, state.free, updates)
    new_q = state.q.step(q, slope_q, slow * NATURAL_RATE)

    slope_local = jax.tree.map(lambda a: a / batches, slope_local)
    sites = _sites(state, around, drawn, place, slope_local, SHARE * jnp.minimum(pace, 1.0))
    given = task.given.of(around.terms.reshape(-1))
    mean, cov, log_det = near.updated(given, around, sites)

    L, C = len(near.block), len(state.log_det)
    to, block = jnp.where(own >= 0, own, L), jnp.where(drawn.block >= 0, drawn.block, C)

    def kept(old: Array, at: Array, new: Array) -> Array:
        return old.at[at].set(new.reshape(len(at), *old.shape[1:]), mode="drop")

    near = eqx.tree_at(
        lambda n: (n.mean, n.cov), near, (kept(near.mean, to, mean), kept(near.cov, block, cov))
    )
    linear, precision = (
        kept(old, to, new)
        for old, new in ((state.linear, sites.linear), (state.precision, sites.precision))
    )
    log_det = kept(state.log_det, block, log_det)
    after = State(free, new_q, memory, state.t + 1, near, linear, precision, log_det)
    return after, value - here.kl - batches * kl


def _surroundings(block: Int[Array, " B"], known: _Map) -> Surroundings:
    """Some blocks and who speaks of them."""
    there = (block >= 0)[:, None]
    members, terms = (jnp.where(there, a[block], -1) for a in (known.members, known.terms))
    near = jnp.where((terms >= 0)[..., None], known.near[terms], -1)
    return Surroundings(block, members, terms, near)


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
    curve, own = dominant(curve), around.members.reshape(-1)
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
