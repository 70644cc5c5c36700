"""From data and options to a fit: prepare the data, choose where to start, run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import distributed
from ..batch import Batch, Block
from ..columns import Column
from ..data import Scaling, blocks, full_batch
from ..disk import Table
from ..inputs import restored
from ..kernels import Kernel
from ..parameters import Parameters
from ..priors import PRIORS
from ..tables import Dataset
from ..variational import Family
from . import svi
from .alone import PRICE, Candidates
from .apart import run_apart, share_nothing
from .checkpoint import Checkpoints, identity
from .fit import LARGEST_JITTER, Fit, NotPositiveDefiniteError
from .full_batch import run_vem
from .inducing import (
    AUTO_INDUCING,
    Placed,
    by_need,
    for_supports,
    how_many_inducing,
    is_auto,
    place_inducing,
)
from .mesh import rounded
from .mini_batches import Feed, run_svi
from .options import Method, Options
from .progress import Progress
from .race import LENGTHSCALES, variants
from .sharing import Choice, choose, hint, in_use, weights, without
from .start import (
    Beginning,
    initial_lengthscales,
    initial_parameters,
    latent_kernels,
    observed_values,
)
from .stream import StreamFeed, rows_of_a_batch
from .supports import groups, over
from .vem import Problem, init

__all__ = ["Learned", "Source", "learn"]

# Full batches cost about N (RM)² operations a pass; beyond this mini-batches are a better bargain.
LARGEST_VEM_COST = 1e9
LARGEST_VEM_ROWS = 20_000
LARGEST_CHOICE = 3_000  # rows of a fit on full batches where latents are chosen
SAMPLE = 1_000  # rows that are looked at to choose them, at most
ALONE = 128  # inducing inputs of each latent of an output's own model meanwhile
COARSE = 450  # those of all latents together
ENOUGH_FOR_GROUPS = 200  # rows; with fewer, no latent over a group of inputs can pay
LARGEST_VEM_CLASSES = 30_000  # values times classes, each at hundreds of points in every pass


class Source(NamedTuple):
    """All rows of a fit that starts from a sample, and how many values each output has there."""

    table: Table
    observed: dict[str, int]


class Learned(NamedTuple):
    """A fit, its outputs in order of their names; how inputs were scaled; the method.

    `choice` says what was chosen, where latents were.
    """

    fit: Fit
    scaling: Scaling
    method: Method
    choice: Choice | None = None


def learn(
    data: Dataset,
    options: Options,
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    source: Source | None = None,
) -> Learned:
    """Prepare the data, choose where to start, and run.

    Args:
        data: what was read.
        options: how to fit.
        progress: where to report.
        checkpoints: where to keep the fit on its way.
        source: where all rows are, should `data` be a sample of them.
    """
    data = _by_name(data)
    if checkpoints is not None:
        checkpoints = replace(checkpoints, identity=_identity(data, options, source))
    ready = _prepared(data, options, source)
    choice, starts = None, []
    try:
        choice = _chosen(data, options, ready, progress) if options.chooses else None
        starts = _starts(data, options, ready, choice)
        if ready.method == "vem":
            rough = None
            if choice is not None:
                rough = choice.chosen, choice.q, choice.jitter, choice.reach
            fit = _full_batch(options, ready, starts, progress, checkpoints, rough)
            if choice is not None:
                fit, choice = _rechecked(data, options, ready, choice, fit, progress)
        else:
            feeds = _feeds(data, options, ready, source)
            fit = _mini_batches(options, ready, starts, feeds, progress, checkpoints)
    except NotPositiveDefiniteError:
        start = (starts or _starts(data, options, ready, None))[0]
        why = _impossible(start, data) or _crowded(start, ready.scaling, data.columns)
        raise ArithmeticError(why) from None
    return Learned(fit, ready.scaling, ready.method, choice)


@dataclass
class _Ready:
    """Data, ready to be learned from.

    Attributes:
        method: full batches or mini-batches.
        data: the full batch, or blocks to draw mini-batches from.
        X: the standardised inputs.
        scaling: of the inputs.
        limits: the most iterations, and the gain in nats that counts as none.
    """

    method: Method
    data: Batch | list[Block]
    X: np.ndarray
    scaling: Scaling
    limits: tuple[int, float]

    @property
    def distinct(self) -> int:
        """How many different input rows there are."""
        return len(self.X if self.method == "vem" else np.unique(self.X, axis=0))


def _prepared(data: Dataset, options: Options, source: Source | None) -> _Ready:
    """Choose the method, and bring the data into the shape it needs."""
    method = _method(data, options, source)
    ready: Batch | list[Block]
    if method == "vem":
        ready, scaling = full_batch(data)
        X = ready.observed
    else:
        ready, scaling = blocks(data)
        rows = [np.asarray(group.X, float) for group in ready]
        X = rows[0] if len(rows) == 1 else np.concatenate(rows)
    counts = [int(seen.sum()) for seen in data.observed()]
    observed = sum(counts if source is None else source.observed.values())
    return _Ready(method, ready, X, scaling, options.limits(method, observed))


def _functions(data: Dataset) -> int:
    """J, the number of parameter functions."""
    return sum(len(likelihood.latent) for likelihood in data.likelihoods)


def _chosen(data: Dataset, options: Options, ready: _Ready, progress: Progress) -> Choice:
    """What the outputs share, found on full batches: of all rows, or of a sample of them."""
    some, batch = data, ready.data
    if not isinstance(batch, Batch) or ready.distinct > SAMPLE:
        some = data.sampled(SAMPLE, options.seed)
        batch, _ = full_batch(some, ready.scaling)
    J, X = _functions(data), batch.observed
    kernels = latent_kernels(options.kernel, 1, 1, J=1, columns=data.columns)[0]
    several = len(X) >= ENOUGH_FOR_GROUPS
    if options.kernel is None and options.prior == "lmc" and several:
        kernels += [over(group, data.columns) for group in groups(data.columns)]
    if np.ndim(options.inducing) == 0:
        M = min(how_many_inducing(options.inducing, len(X), 1), ALONE)
        placed = for_supports(kernels, X, M, options.seed, data.labels)
    else:
        Z = place_inducing(
            *(options.inducing, X, ready.scaling, data.columns, 1), shared=True, seed=options.seed
        )
        placed = Placed(np.repeat(Z, len(kernels), axis=0))
    candidates = Candidates(kernels, placed, ready.scaling, data.columns, X)
    whole, observed = (sum(int(seen.sum()) for seen in d.observed()) for d in (data, some))
    share = whole / observed
    family = options.family("vem", J + 1, placed.inputs.shape[1])
    tolerance = 0.1 * options.limits("vem", observed)[1]
    problem = Problem(batch, options.rules, family, tolerance, learn_inducing=False)

    def by_first() -> Choice:
        jitter = options.jitter
        while True:
            try:
                choice = choose(
                    *(some, problem, candidates, options, jitter, progress), COARSE, share
                )
                break
            except NotPositiveDefiniteError:
                jitter *= 10.0
                if jitter > LARGEST_JITTER:
                    raise
        return choice

    packed = distributed.from_first(lambda: by_first().packed(candidates))
    return Choice.unpacked(packed, some, candidates, options, family)


def _method(data: Dataset, options: Options, source: Source | None) -> Method:
    """Full batches where the user wants them, or where a pass over the data costs little."""
    if source is not None:
        if options.method == "vem":
            raise ValueError('method="vem" needs all rows at once; a Table is fitted by "svi"')
        return "svi"
    if options.method != "auto":
        return options.method
    every = {id(X): X for X in data.inputs}.values()
    if sum(map(len, every)) > 10 * LARGEST_VEM_ROWS:
        return "svi"
    seen = [X[ok] for X, ok in zip(data.inputs, data.observed(), strict=True)]
    distinct = len(np.unique(np.concatenate(seen), axis=0))
    classes = sum(
        len(y) * len(likelihood.latent)
        for _, likelihood, y, _ in observed_values(data)
        if likelihood.softmax
    )
    if classes > LARGEST_VEM_CLASSES:
        return "svi"
    if options.chooses:
        return "vem" if distinct <= LARGEST_CHOICE else "svi"
    R = sum(_kernels(data, options)[1])
    cost = distinct * (R * how_many_inducing(options.inducing, distinct, R)) ** 2
    return "vem" if distinct <= LARGEST_VEM_ROWS and cost <= LARGEST_VEM_COST else "svi"


def _kernels(data: Dataset, options: Options) -> tuple[list[Kernel], list[int]]:
    """The kernel and rank of each latent, where the user says how many there are."""
    J, Q = _functions(data), options.latents
    if Q == "auto":
        Q = len(options.kernel) if isinstance(options.kernel, list | tuple) else J + 1
    return latent_kernels(
        *(options.kernel, Q, options.rank),
        J=J,
        columns=data.columns,
        alone=PRIORS[options.prior].one_each,
    )


def _starts(
    data: Dataset, options: Options, ready: _Ready, choice: Choice | None
) -> list[Parameters]:
    """The models to start from."""
    if choice is not None:
        known = choice.rows, choice.information
        start = _with_inducing(choice.parameters, known, data, options, ready)
        return distributed.numbers_of_first([start])
    kernels, ranks = _kernels(data, options)
    Z = _placed(data, options, ready, ranks)
    numbers = [j for j in range(len(data.columns)) if j not in data.labels]
    among = None if ready.method == "vem" else Z[0][:, numbers]
    lengthscales = initial_lengthscales(len(kernels), ready.X[:, numbers], among)

    def begun(kernels: Sequence[Kernel], lengthscales: np.ndarray, restart: int = 0) -> Parameters:
        return initial_parameters(
            *(data, Beginning(kernels, ranks, Z, lengthscales), ready.scaling),
            prior=options.prior,
            weight_scale=options.weight_scale,
            hyperpriors=options.hyperpriors is not None,
            seed=options.seed,
            restart=restart,
        )

    starts = [begun(kernels, lengthscales, restart) for restart in range(options.restarts or 1)]
    if ready.method == "vem" and options.natural_gradients and options.restarts is None:
        size = np.sqrt(max(len(numbers), 1))
        for some, factor in product(variants(kernels), LENGTHSCALES):
            starts.append(begun(some, np.full(len(kernels), size * factor)))
    return distributed.numbers_of_first(starts)  # machines differ by rounding


def _placed(data: Dataset, options: Options, ready: _Ready, ranks: Sequence[int]) -> np.ndarray:
    """The inducing inputs to start from: one set for all latents where they stay in place."""
    inducing = options.inducing
    if np.ndim(inducing) == 0:
        few = how_many_inducing(inducing, ready.distinct, sum(ranks), ready.method)
        inducing = few if is_auto(inducing) else inducing
    return place_inducing(
        *(inducing, ready.X, ready.scaling, data.columns, len(ranks)),
        shared=not _moves(options, ready, inducing),
        seed=options.seed,
    )


def _with_inducing(
    parameters: Parameters,
    known: tuple[np.ndarray, np.ndarray],
    data: Dataset,
    options: Options,
    ready: _Ready,
) -> Parameters:
    """A model that was chosen, with the inducing inputs to learn it with.

    Where the user leaves them to the fit they are all rows, or those that its latents need most.
    """
    prior, budget = parameters.prior, AUTO_INDUCING["vem"]
    few = ready.distinct * sum(prior.ranks) <= budget
    if ready.method != "vem" or not is_auto(options.inducing) or few:
        placed = Placed(_placed(data, options, ready, prior.ranks))
    else:
        placed = distributed.from_first(
            lambda: by_need(prior, *known, budget, data.labels, options.seed)
        )
    return replace(parameters, prior=prior.with_inducing(*placed))


def _moves(options: Options, ready: _Ready, M: Any) -> bool:
    """Whether inducing inputs are learned.

    Those at all rows are where they should be. Those of full batches that were not asked for are
    many, and gain less by moving than it costs.
    """
    if ready.method == "vem" and np.ndim(options.inducing) == 0:
        given = not is_auto(options.inducing)
        return options.learn_inducing and given and ready.distinct > int(M)
    return options.learn_inducing


def _full_batch(
    options: Options,
    ready: _Ready,
    starts: list[Parameters],
    progress: Progress,
    checkpoints: Checkpoints | None = None,
    rough: tuple[Parameters, Family, float, np.ndarray | None] | None = None,
) -> Fit:
    """Run VEM, in the first process alone: the others are given what it found.

    `rough` is a model, its q and its jitter, which say where to look for q first.
    """
    assert isinstance(ready.data, Batch)
    prior = starts[0].prior
    family = options.family("vem", *prior.sizes)
    moves = _moves(options, ready, prior.sizes[1])
    known = None if rough is None else hint(*rough[:3], np.asarray(ready.data.X))
    reach = None if rough is None or moves else rough[3]
    problem = Problem(ready.data, options.rules, family, 0.1 * ready.limits[1], moves, known, reach)

    def by_first() -> tuple[list[np.ndarray], dict[str, Any]]:
        rest = options, ready.limits, progress, checkpoints
        if len(starts) == 1 and share_nothing(starts[0], problem):
            fit = run_apart(starts[0], problem, *rest)
        else:
            fit = run_vem(starts, problem, *rest)
        facts = {k: v for k, v in vars(fit).items() if k not in ("parameters", "q")}
        return [np.asarray(n) for n in jax.tree.leaves((fit.parameters, fit.q))], facts

    numbers, rest = distributed.from_first(by_first)
    q = family.at_prior(prior.widths)
    return Fit(*jax.tree.unflatten(jax.tree.structure((starts[0], q)), numbers), **rest)


def _rechecked(
    data: Dataset,
    options: Options,
    ready: _Ready,
    choice: Choice,
    fit: Fit,
    progress: Progress,
) -> tuple[Fit, Choice]:
    """The joint fit, or that of the outputs alone where sharing does not pay after all.

    What is shared was chosen with few inducing inputs, and perhaps on some of the rows. Now the
    alone model is given as many as the joint one, and the price is asked for once more.
    """
    exact = min(fit.parameters.prior.widths) >= ready.distinct
    if fit.interrupted or (exact and ready.distinct <= SAMPLE):
        return fit, choice
    own, joint = fit, None
    if choice.shared:
        joint = fit
        known = choice.rows, choice.alone_information
        start = _with_inducing(in_use(choice.alone), known, data, options, ready)
        once = replace(ready, limits=(1, ready.limits[1]))
        rough = choice.alone, choice.alone_q, choice.jitter, choice.alone_reach
        own = _full_batch(options, once, [start], progress, None, rough)
        if own.interrupted:
            return fit, choice
        extra = weights(fit.parameters) - weights(own.parameters)
        if fit.history[-1] - own.history[-1] <= PRICE * max(extra, 0):
            rough = own.parameters, own.q, own.jitter, None
            if not own.converged:
                own = _full_batch(options, ready, [own.parameters], progress, None, rough)
            fit, choice = own, choice._replace(shared=False)
    if ready.distinct > SAMPLE:
        try:
            gains = distributed.from_first(lambda: _on_all_rows(choice, own, joint, options, ready))
        except KeyboardInterrupt:
            return fit.interrupt(), choice
        choice = choice._replace(**gains)
    return fit, choice._replace(alone=own.parameters, alone_q=own.q, jitter=own.jitter)


def _on_all_rows(
    choice: Choice, own: Fit, joint: Fit | None, options: Options, ready: _Ready
) -> dict[str, Any]:
    """What each output has alone and adds to the others, where that was found on some rows.

    Where no joint model was fitted to all rows, what was gained on some is extended to all.
    """
    batch = ready.data
    assert isinstance(batch, Batch)

    def each(fit: Fit) -> np.ndarray:
        family, X = type(fit.q), np.asarray(batch.X)
        known = hint(fit.parameters, fit.q, fit.jitter, X)
        moves = _moves(options, ready, fit.parameters.prior.sizes[1])
        problem = Problem(batch, options.rules, family, 0.1 * ready.limits[1], moves, known)
        return np.array(
            [
                fit.bound - init(fit.parameters, without(d, problem), fit.jitter).bound
                for d in range(len(batch.outputs))
            ]
        )

    alone = np.array(own.each) if own.each else each(own)
    if joint is not None:
        return {"own": alone, "together": each(joint), "joint": joint.bound}
    gains, gain = choice.together - choice.own, choice.joint - float(choice.own.sum())
    share = len(ready.X) / len(choice.rows)
    return {"own": alone, "together": alone + share * gains, "joint": own.bound + share * gain}


def _mini_batches(
    options: Options,
    ready: _Ready,
    starts: list[Parameters],
    feeds: Callable[[int], Feed],
    progress: Progress,
    checkpoints: Checkpoints | None,
) -> Fit:
    """Run SVI from every start, and take the best."""
    family = options.family("svi", *starts[0].prior.sizes)
    fits: list[Fit] = []
    for number, start in enumerate(starts):
        kept = checkpoints and checkpoints.within(f"start{number}")
        fits.append(run_svi(start, family, feeds, options, ready.limits, progress, kept))
        if fits[-1].interrupted:
            break
    return max(fits, key=lambda fit: fit.bound)


def _feeds(
    data: Dataset, options: Options, ready: _Ready, source: Source | None
) -> Callable[[int], Feed]:
    """What makes mini-batches, less so many at the beginning."""
    groups, size, seed = ready.data, options.batch_size, options.seed
    assert isinstance(groups, list)

    def from_memory(skip: int) -> Feed:
        feed = svi.Feed(groups, size, seed, skip)
        groups[:] = feed.blocks  # where the devices can reach them, for the next one too
        return feed

    if source is None:
        return from_memory
    table = source.table
    return lambda skip: StreamFeed(table, data, groups[0], ready.scaling, size, seed, skip)


def _identity(data: Dataset, options: Options, source: Source | None) -> dict[str, str]:
    """What is fitted to what, for checkpoints."""
    words, size = identity(data, options), rounded(options.batch_size)
    if source is not None:
        words["the table"] = source.table.in_words
        size = rows_of_a_batch(source.table, options.batch_size)
    return {**words, "the number of rows in a batch": str(size)}


def _by_name(data: Dataset) -> Dataset:
    """The outputs sorted by name, so that the user's order changes nothing, to the last bit."""
    places = np.argsort(data.names)
    lists = ("names", "likelihoods", "inputs", "values", "given", "weights")
    return replace(data, **{name: [getattr(data, name)[d] for d in places] for name in lists})


def _impossible(parameters: Parameters, data: Dataset) -> str | None:
    """Which value has no density where learning starts, in words, if any has none."""
    prior = parameters.prior
    for part, likelihood, (name, _, y, given) in zip(
        parameters.slices, parameters.likelihoods, observed_values(data), strict=True
    ):
        f = prior.values(part, jnp.zeros(sum(prior.ranks)))
        log_p = jax.vmap(lambda y, own, of=likelihood, f=f: of.at(own).log_prob(y, f))(y, given)
        bad = np.flatnonzero(~np.isfinite(log_p))
        if bad.size:
            return (
                f"output {name!r}: the value {y[bad[0]]:g} cannot be explained by {likelihood!r} "
                f"where learning starts ({bad.size} such values); leave it out, give the values in "
                "other units, or take another likelihood"
            )
    return None


def _crowded(parameters: Parameters, scaling: Scaling, columns: Sequence[Column]) -> str:
    """Why k(Z, Z) has no Cholesky factor, in words."""
    worst: tuple[float, str] = (np.inf, "")
    for q, (kernel, Z) in enumerate(
        zip(parameters.prior.kernels, parameters.prior.tables, strict=True)
    ):
        Z = scaling.undo(np.asarray(Z))
        apart = np.linalg.norm((Z[:, None] - Z[None]) / scaling.scale, axis=-1)
        apart[np.diag_indices(len(Z))] = np.inf
        i, j = np.unravel_index(np.argmin(apart), apart.shape)
        if apart[i, j] < worst[0]:
            shown = kernel.rescaled(scaling.scale, scaling.centre)
            worst = (
                apart[i, j],
                f"latent {q} ({shown}): inducing inputs {i} and {j} are closest, at "
                f"{restored(Z[[i]], columns).to_dict('records')[0]} and "
                f"{restored(Z[[j]], columns).to_dict('records')[0]}",
            )
    return (
        "the covariance of the inducing inputs is not positive definite even with jitter 1e-2; "
        f"{worst[1]}. Use fewer inducing inputs or a shorter lengthscale"
    )
