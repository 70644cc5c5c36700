"""Local latents, learned with the smooth ones on mini-batches of blocks of places.

When they are tried, where they start, how a fit goes on with them (`blockwise` has its steps), and
whether they pay. There are a few of them, whose lengthscales start at some multiples of the
distance between neighbouring places, from short to long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from scipy.spatial import cKDTree

from .. import distributed
from ..batch import Block
from ..kernels import Matern32
from ..parameters import Parameters
from ..places import Places
from ..priors import LMC
from ..tables import Dataset
from ..variational import Blocks, Natural, Neighbourhood, deviations, means
from ..variational.deviations import TOGETHER
from ..variational.neighbours import LEAST_OWN, Sites
from .alone import PRICE
from .blockwise import (
    Numbers,
    Relations,
    Shape,
    State,
    Task,
    chunk,
    conditionals,
    local_bound,
    smooth_bounds,
)
from .checkpoint import Checkpoints
from .draws import Feed
from .fit import Fit
from .mini_batches import Run, climb
from .options import Options
from .progress import Progress
from .ready import Ready, Source, functions
from .stream import in_memory

__all__ = ["FEW", "how_many_local", "pays", "with_local"]

NEIGHBOURS, ALONG_A_LINE = 10, 6  # near places of each; along a line few say all
SIZE = 40  # places of a block
EPOCHS = 30  # allowed at least: where places are many, a block is used less often
DRAWS = 32  # of what reaches across blocks
WEIGHT = 0.3  # of a local latent in the functions it starts with, in units of their spread
# The share of its variance that every place has to itself, to begin with. Where each place has one
# value, that share and noise cannot be told apart: it is held at next to nothing.
OWN, LITTLE_OWN = 0.1, 0.001
SEVERAL = 1.1  # values of a place that tell of one latent, in the mean: more than one
GAPS = 0.05  # the share of values that are missing, above which outputs share local latents
RANGES = (1.5, 10.0)  # lengthscales to begin with, in distances of neighbours
LIMITS = (0.5, 20.0)  # of the same: what reaches further is for smooth latents
LATENTS = 3  # how many are tried unasked: short, middling and long
FEW = 100  # inducing inputs of each smooth latent where local ones carry what is near
INPUTS = 4  # numbers and dates; with more inputs no place has near neighbours
LEAST, MOST = 1_000, 2_000_000  # places (rows, of a table on disk) for which they are tried unasked
UNLIKE = 1e-3  # the lengthscale of labels, whose codes are whole numbers: no two are alike


def how_many_local(data: Dataset, options: Options, ready: Ready, source: Source | None) -> int:
    """How many local latents to try."""
    if options.local != "auto":
        return int(options.local)
    few = len(data.columns) - len(data.labels) <= INPUTS
    plain = options.natural_gradients and options.optimizer == "adam" and options.q == "auto"
    rows = ready.distinct if source is None else len(source.table)
    if not (options.chooses and options.method == "auto" and options.prior == "lmc"):
        return 0
    if ready.method != "svi" or not (few and plain):
        return 0
    number = min(LATENTS, functions(data))  # one function has no use for several
    return number if ready.distinct >= LEAST and rows <= MOST else 0


def pays(local: Fit, smooth: Fit) -> bool:
    """Whether local latents have gained the price of the numbers that came with them."""
    prior = local.parameters.prior
    assert isinstance(prior, LMC)
    return local.bound - smooth.bound > PRICE * prior.local * len(prior.constants)


def with_local(
    smooth: Fit,
    number: int,
    data: Dataset,
    ready: Ready,
    options: Options,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    source: Source | None = None,
) -> Fit:
    """A model with local latents, learned from one that has none, by the first process.

    Args:
        smooth: the model without local latents.
        number: the number of local latents.
        data: the outputs and their inputs.
        ready: the same, prepared for fitting.
        options: the options of the fit.
        progress: where to report progress.
        checkpoints: where to save the fit while it runs.
        source: where all rows are, if `data` is only a sample of them. They are read into memory:
            what a fit knows of each place takes far more room than its rows.
    """

    def by_first() -> tuple[list[np.ndarray], int, dict[str, Any]]:
        every = ready
        if source is not None:
            block = in_memory(source.table, data, ready.scaling)
            every = replace(ready, data=[block], X=np.asarray(block.X))
        fit = run_local(smooth, number, data.labels, every, options, progress, checkpoints)
        assert fit.near is not None
        facts = {k: v for k, v in vars(fit).items() if k not in ("parameters", "q", "near")}
        found = jax.tree.leaves((fit.parameters, fit.q, fit.near))
        return [np.asarray(leaf) for leaf in found], fit.near.neighbours, facts

    numbers, neighbours, facts = distributed.from_first(by_first)
    p = ready.X.shape[1]
    learned = [replace(_kernel(np.ones(p)), fixed=())] * number
    near = Neighbourhood(0, 0, 0, 0, 0, 0, 0, neighbours)  # type: ignore[arg-type]
    like = (_started(smooth.parameters, learned, True, options.seed), smooth.q, near)
    parameters, q, near = jax.tree.unflatten(jax.tree.structure(like), numbers)
    return Fit(parameters, q, **facts, near=near)


def run_local(
    smooth: Fit,
    number: int,
    labels: Sequence[int],
    ready: Ready,
    options: Options,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
) -> Fit:
    """The same in this process, with all rows in memory.

    Args:
        smooth: the model without local latents.
        number: the number of local latents.
        labels: the positions of the inputs that are labels. What is local to one label tells
            nothing of another; the smooth latents share what labels have in common.
        ready: the data.
        options: the options of the fit.
        progress: where to report progress.
        checkpoints: where to save the fit while it runs.
    """
    run, in_blocks = _prepared(smooth, number, labels, ready, options)
    if checkpoints is not None:
        run.resume(checkpoints)
    C, relations, fit = len(run.state.log_det), run.task.relations, run.fit
    feed = Feed(in_blocks, C, options, run.taken)
    steps, tolerance = ready.limits
    if options.max_iter is None:
        steps = max(steps, EPOCHS * feed.epoch)
    climb(run, feed, (steps, tolerance), progress, checkpoints)
    if run.bounds:
        fit.history.append(float(np.mean(run.bounds)))
    # One more pass over all blocks, with everything else held: they follow the last lengthscales.
    last = conditionals(run.state.near, run.state.shape, run.start.prior.nearby, relations)
    run.state = run.state._replace(given=last)
    run.final_bound(Feed(in_blocks, C, options), feed.epoch)
    fit.parameters, fit.near = _whole(run.start, run.state, relations, options.seed)
    fit.q = run.state.q.factors()
    fit.bound = run.whole_bound(Feed(in_blocks, C, options))
    fit.iterations += smooth.iterations
    return fit


def _prepared(
    smooth: Fit, number: int, labels: Sequence[int], ready: Ready, options: Options
) -> tuple["_Local", list[Int[np.ndarray, " N"]]]:
    """The fit before its first step, and the block of places in which each row lies.

    The arguments are those of `run_local`.
    """
    blocks = jax.tree.map(np.asarray, ready.data)
    distinct = np.unique(ready.X, axis=0)
    K = ALONG_A_LINE if distinct.shape[1] == 1 else NEIGHBOURS
    places = Places.of(distinct, K, SIZE, options.seed)
    tree, p = cKDTree(places.at), distinct.shape[1]
    apart = float(np.median(tree.query(places.at, k=2)[0][:, 1]))
    limits = [np.log(_lengthscale(apart * one, p, labels)) for one in LIMITS]
    ranges = np.geomspace(*RANGES, number) if number > 1 else [np.sqrt(np.prod(RANGES))]
    kernels = [_kernel(_lengthscale(apart * one, p, labels)) for one in ranges]
    shared = _shared(blocks, number)
    start = _started(smooth.parameters, kernels, shared, options.seed)
    of_row = [tree.query(np.asarray(b.X, float))[1].astype(np.int32) for b in blocks]
    values = sum(int(np.sum(block.seen)) for block in blocks)
    several = values > SEVERAL * len(distinct) * (1 if shared else blocks[0].y.shape[1])
    near, members, terms = map(jnp.asarray, (places.near, places.members, places.terms))
    relations = Relations(near, members, terms, tuple(map(jnp.asarray, of_row)))
    state = _init(start, smooth, places, relations, OWN if several else LITTLE_OWN)
    task = Task(
        relations,
        jax.tree.map(jnp.asarray, blocks),
        jax.tree.map(jnp.array, state.shape),
        jnp.asarray(limits),
        jnp.asarray(float(several)),
    )
    fit = Fit(start, smooth.q, -np.inf, smooth.jitter, list(smooth.history), near=state.near)
    run = _Local(start, options, fit, state, task=task, earlier=len(smooth.history))
    return run, [places.block[rows] for rows in of_row]


def _whole(
    start: Parameters, state: State, relations: Relations, seed: int
) -> tuple[Parameters, Neighbourhood]:
    """What was learned: the model, and q with what reaches across its blocks.

    Args:
        start: the model that the state started from.
        state: what was found.
        relations: of the places.
        seed: of the draws.
    """
    parameters = start.with_free(state.free)
    prior = parameters.prior
    kernels, own = state.shape.applied(prior.nearby)
    near = replace(state.near, own=own)
    keys = jax.random.split(jax.random.key(seed % 2**31), DRAWS // TOGETHER)
    drawn = [_deviated(state, start, relations, key) for key in keys]
    learned = [replace(kernel, fixed=()) for kernel in cast(tuple[Matern32, ...], kernels)]
    prior = replace(prior, kernels=(*prior.smooth, *learned))
    return replace(parameters, prior=prior), replace(near, beyond=jnp.concatenate(drawn))


def _together(state: State, start: Parameters, relations: Relations) -> State:
    """The state with the means of all places solved for at once, given the sites."""
    kernels, own = state.shape.applied(start.prior.nearby)
    near = replace(state.near, own=own)
    sites = Sites(state.linear, state.precision)
    mean = means(near, kernels, relations.near, relations.members, sites)
    return state._replace(near=replace(state.near, mean=mean))


def _deviated(
    state: State, start: Parameters, relations: Relations, key: Array
) -> Float[Array, "S L R"]:
    """Draws of what reaches across the blocks, for the lengthscales and sites of a state."""
    kernels, own = state.shape.applied(start.prior.nearby)
    near = replace(state.near, own=own)
    return deviations(near, kernels, relations.near, relations.members, state.precision, key)


@dataclass(kw_only=True)
class _Local(Run):
    """A fit with local latents on its way.

    Attributes:
        task: what steps work with and do not change.
        earlier: the number of windows of the fit without local latents.
    """

    task: Task
    earlier: int

    def _steps(self, feed: Feed, n: int, pace: float) -> tuple[State, list[float], bool]:
        """See `Run._steps`. Steps that failed have moved nothing; the state before is used up."""
        numbers = Numbers(*map(jnp.asarray, (n, self.fit.jitter, pace, float(feed.epoch))))
        self.state, bounds, finite = chunk(
            *(self.state, self.start, self.task, feed.take(n), numbers, self.options.rules)
        )
        return self.state, np.asarray(bounds)[:n].tolist(), bool(finite)

    def end_window(self, tolerance: float) -> None:
        """See `Run.end_window`. It also finds the means of all places together.

        After windows 1, 2, 4, ... it renews `Neighbourhood.beyond`. The variances that the
        likelihoods see then include what reaches across blocks. Without it they are too small, and
        weights of far-reaching latents grow too large.
        """
        super().end_window(tolerance)
        self.state = _together(self.state, self.start, self.task.relations)
        windows = len(self.fit.history) - self.earlier
        if not self.fit.converged and windows & (windows - 1) == 0:
            key = jax.random.key((self.options.seed + windows) % 2**31)
            drawn = _deviated(self.state, self.start, self.task.relations, key)
            self.state = self.state._replace(near=replace(self.state.near, beyond=drawn))
            self.small = -1  # the next window may lie lower

    def whole_bound(self, feed: Feed) -> float:
        """The bound of the q that predictions use, which reaches across blocks."""
        fit, state, sum_of_bounds = self.fit, self.state, 0.0
        assert isinstance(fit.q, Blocks)
        assert fit.near is not None
        for first in range(0, feed.epoch, feed.longest):
            n = min(feed.longest, feed.epoch - first)
            numbers = Numbers(*map(jnp.asarray, (n, fit.jitter, 0.0, float(feed.epoch))))
            bounds = smooth_bounds(
                *(fit.parameters, fit.q, fit.near, self.task, feed.take(n), numbers),
                self.options.rules,
            )
            sum_of_bounds += float(np.sum(bounds))
        sites = Sites(state.linear, state.precision)
        nearby = fit.parameters.prior.nearby
        local = local_bound(fit.near, nearby, self.task.relations, sites)
        return sum_of_bounds / feed.epoch + float(local)


def _started(
    parameters: Parameters, kernels: Sequence[Matern32], shared: bool, seed: int
) -> Parameters:
    """The model with local latents added.

    Each belongs to a parameter function; the first functions of all outputs come first.

    Args:
        parameters: the model.
        kernels: of the local latents.
        shared: whether outputs share them; otherwise only functions of the same output do.
        seed: of their weights.
    """
    prior = parameters.prior
    assert isinstance(prior, LMC)  # options see to it
    J, number = len(prior.constants), len(kernels)
    output, place = np.array(
        [(d, j) for d, part in enumerate(parameters.slices) for j in range(part.stop - part.start)]
    ).T
    turn = np.argsort(np.lexsort((output, place)))  # of each function
    own = np.arange(number) == turn[:, None] % number
    owner = output[np.argsort(turn)[:number]]
    mask = np.ones((J, number)) if shared else (output[:, None] == owner).astype(float)
    noise = np.random.default_rng(seed).standard_normal((J, number))
    weights = WEIGHT * (own + 0.3 * noise) * mask
    return eqx.tree_at(lambda p: p.prior, parameters, prior.with_local(kernels, weights, mask))


def _shared(blocks: Sequence[Block], number: int) -> bool:
    """Whether outputs share local latents: where some are seen at places where others are not.

    Where every row has every output, sharing gains nothing: an output that was seen at all the old
    places has little to learn from another (in geostatistics, cokriging comes close to kriging).
    What is alike in the values of one row would even pass for a property of its place.
    """
    outputs = blocks[0].y.shape[1]
    missing = 1.0 - float(np.mean(blocks[0].seen))
    return len(blocks) > 1 or missing > GAPS or not 1 < outputs <= number


def _lengthscale(one: float, p: int, labels: Sequence[int]) -> Float[np.ndarray, " p"]:
    """The same for every input, except for labels."""
    result = np.full(p, one)
    result[list(labels)] = UNLIKE
    return result


def _kernel(lengthscale: Float[np.ndarray, " p"]) -> Matern32:
    """The kernel of a local latent, on standardised inputs."""
    p = len(lengthscale)
    kernel = Matern32(lengthscale).start(np.ones(p), [""] * p, np.ones(p))
    kernel = replace(kernel, fixed=("lengthscale",))  # not for the bound to learn
    return jax.tree.map(lambda a: jnp.asarray(a, dtype=float), kernel)


def _init(
    start: Parameters, smooth: Fit, places: Places, relations: Relations, share: float
) -> State:
    """The local latents at their prior, with a share of their own for each place, and the rest."""
    (L, _), (C, n), R = places.at.shape, places.members.shape, start.prior.local
    K = places.near.shape[1]
    near = Neighbourhood(
        jnp.asarray(places.at, dtype=float),
        jnp.asarray(places.block),
        jnp.asarray(places.slot),
        jnp.zeros((L, R)),
        jnp.tile(jnp.eye(R * n, dtype=jnp.float32), (C, 1, 1)),
        jnp.zeros((TOGETHER, L, R), jnp.float32),
        jnp.full(R, LEAST_OWN),
        neighbours=K,
    )
    assert isinstance(smooth.q, Blocks)
    free = start.free(False)
    ranges = jnp.log(jnp.stack([jax.tree.leaves(kernel)[0] for kernel in start.prior.nearby]))
    shape = Shape(ranges, jnp.full(R, np.log(share / (1.0 - share))))
    memory, pushed = (optax.scale_by_adam().init(z) for z in (free, shape))
    sites = (jnp.zeros((L, R)), jnp.zeros((L, R, R)))
    q, zero = Natural.of(smooth.q), jnp.asarray(0)
    given = conditionals(near, shape, start.prior.nearby, relations)
    state = State(free, q, memory, zero, near, *sites, jnp.zeros(C), given, shape, pushed)
    return jax.tree.map(jnp.array, state)  # steps use up their state, and it must be theirs alone
