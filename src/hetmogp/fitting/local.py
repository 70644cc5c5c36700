"""Local latents, learned with the smooth ones on mini-batches of blocks of places.

When they are tried, where they start, how a fit goes on with them (`blockwise` has its steps), when
it is given up, and whether they pay. There are a few of them, whose lengthscales start at some
multiples of the distance between neighbouring places, from short to long.
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

__all__ = ["FEW", "how_many_local", "kernel_of_range", "pays", "with_local"]

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
LEAST, MOST = 500, 2_000_000  # places (rows, of a table on disk) for which they are tried unasked
HOPE = 3.0  # a fit is given up if this many times its latest gain would not reach its goal
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
    if options.has_effects or not (few and plain):
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
    goal: float = -np.inf,
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
        goal: the bound that is to be reached; a fit that will not reach it is given up.
    """

    def by_first() -> tuple[list[np.ndarray], int, dict[str, Any]]:
        every = ready
        if source is not None:
            block = in_memory(source.table, data, ready.scaling)
            every = replace(ready, data=[block], X=np.asarray(block.X))
        rest = every, options, progress, checkpoints, goal
        fit = run_local(smooth, number, data.labels, *rest)
        assert fit.near is not None
        facts = {k: v for k, v in vars(fit).items() if k not in ("parameters", "q", "near")}
        found = jax.tree.leaves((fit.parameters, fit.q, fit.near))
        return [np.asarray(leaf) for leaf in found], fit.near.neighbours, facts

    numbers, neighbours, facts = distributed.from_first(by_first)
    p = ready.X.shape[1]
    learned = [replace(kernel_of_range(1.0, p, ()), fixed=())] * number
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
    goal: float = -np.inf,
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
        goal: see `with_local`.
    """
    run = _prepared(smooth, number, labels, ready, options, goal)
    if checkpoints is not None:
        run.resume(checkpoints)
    relations, fit = run.task.relations, run.fit
    feed = run.feed(run.taken)
    steps, tolerance = ready.limits
    if options.max_iter is None:
        steps = max(steps, EPOCHS * feed.epoch)
    climb(run, feed, (steps, tolerance), progress, checkpoints)
    if run.bounds:
        fit.history.append(float(np.mean(run.bounds)))
    if not run.hopeless:
        # One more pass over all blocks, with everything else held: they follow the last
        # lengthscales.
        last = conditionals(run.state.near, run.state.shape, run.start.prior.nearby, relations)
        run.state = run.state._replace(given=last)
        run.final_bound(run.feed(), feed.epoch)
    keys = jax.random.split(jax.random.key(options.seed % 2**31), DRAWS // TOGETHER)
    drawn = [_deviated(run.state, run.start, relations, key) for key in keys]
    fit.parameters, fit.q, fit.near = run.reached(jnp.concatenate(drawn))
    fit.bound = run.whole_bound(fit.parameters, fit.q, fit.near)
    fit.iterations += smooth.iterations
    return fit


def _prepared(
    smooth: Fit,
    number: int,
    labels: Sequence[int],
    ready: Ready,
    options: Options,
    goal: float,
) -> "_Local":
    """The fit before its first step; the arguments are those of `run_local`."""
    blocks = jax.tree.map(np.asarray, ready.data)
    distinct = np.unique(ready.X, axis=0)
    K = ALONG_A_LINE if distinct.shape[1] == 1 else NEIGHBOURS
    places = Places.of(distinct, K, SIZE, options.seed)
    tree, p = cKDTree(places.at), distinct.shape[1]
    apart = float(np.median(tree.query(places.at, k=2)[0][:, 1]))
    ranges = np.geomspace(*RANGES, number) if number > 1 else [np.sqrt(np.prod(RANGES))]
    kernels = [kernel_of_range(apart * one, p, labels) for one in ranges]
    limits = [np.log(kernel_of_range(apart * one, p, labels).lengthscale) for one in LIMITS]
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
    in_blocks = [places.block[rows] for rows in of_row]
    run = _Local(start, options, fit, state, task=task, in_blocks=in_blocks, goal=goal)
    run.earlier = len(smooth.history)
    return run


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
        in_blocks: the block of places in which each row lies, for each table of inputs.
        earlier: the number of windows of the fit without local latents.
        goal: the bound that is to be reached.
        hopeless: whether the fit was given up because it will not reach the goal.
        checked: the bound when that was asked last.
    """

    task: Task
    in_blocks: list[Int[np.ndarray, " N"]]
    earlier: int = 0
    goal: float = -np.inf
    hopeless: bool = False
    checked: float = -np.inf

    def feed(self, skip: int = 0) -> Feed:
        """The blocks and rows of steps."""
        return Feed(self.in_blocks, len(self.state.log_det), self.options, skip)

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
        weights of far-reaching latents grow too large. It also asks whether the goal is in reach.
        """
        super().end_window(tolerance)
        self.state = _together(self.state, self.start, self.task.relations)
        windows = len(self.fit.history) - self.earlier
        if not self.fit.converged and windows & (windows - 1) == 0:
            key = jax.random.key((self.options.seed + windows) % 2**31)
            drawn = _deviated(self.state, self.start, self.task.relations, key)
            self.state = self.state._replace(near=replace(self.state.near, beyond=drawn))
            self.small = -1  # the next window may lie lower
            if np.isfinite(self.goal):
                self._give_up_if_hopeless()

    def _give_up_if_hopeless(self) -> None:
        """End the fit if gains like the latest will not lead to the goal.

        Gains fall about as one over the number of steps, so all that follow are about as large
        together as the one since the last time that this was asked, or up to `HOPE` times that.
        """
        last, self.checked = self.checked, self.whole_bound(*self.reached(self.state.near.beyond))
        left = HOPE * max(self.checked - last, 0.0)
        self.hopeless = np.isfinite(last) and self.checked + left < self.goal
        self.fit.converged |= self.hopeless

    def reached(self, beyond: Float[Array, "S L R"]) -> tuple[Parameters, Blocks, Neighbourhood]:
        """The model so far, its q, and that of the local latents with these draws across blocks."""
        parameters, state = self.start.with_free(self.state.free), self.state
        prior = parameters.prior
        kernels, own = state.shape.applied(prior.nearby)
        learned = [replace(kernel, fixed=()) for kernel in cast(tuple[Matern32, ...], kernels)]
        prior = replace(prior, kernels=(*prior.smooth, *learned))
        near = replace(state.near, own=own, beyond=beyond)
        return replace(parameters, prior=prior), state.q.factors(), near

    def whole_bound(self, parameters: Parameters, q: Blocks, near: Neighbourhood) -> float:
        """The bound of the q that predictions use, which reaches across blocks."""
        feed, sum_of_bounds = self.feed(), 0.0
        for first in range(0, feed.epoch, feed.longest):
            n = min(feed.longest, feed.epoch - first)
            numbers = Numbers(*map(jnp.asarray, (n, self.fit.jitter, 0.0, float(feed.epoch))))
            bounds = smooth_bounds(
                parameters, q, near, self.task, feed.take(n), numbers, self.options.rules
            )
            sum_of_bounds += float(np.sum(bounds))
        sites = Sites(self.state.linear, self.state.precision)
        local = local_bound(near, parameters.prior.nearby, self.task.relations, sites)
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


def kernel_of_range(one: float, p: int, labels: Sequence[int]) -> Matern32:
    """The kernel of a local latent, on standardised inputs; labels have a range of their own."""
    lengthscale = np.full(p, one)
    lengthscale[list(labels)] = UNLIKE
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
