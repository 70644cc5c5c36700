"""Initial values, computed from the data so that the order of rows and outputs does not matter.

Constants come from a marginal fit of each output. Lengthscales come from the spread of the inputs
or, where there are many rows, from the spacing of the inducing inputs. Each parameter function
begins with a latent of its own and small weights on the others. These weights are random, from a
generator keyed by the names of output and parameter, so that the order of the outputs does not
matter.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from ..columns import Column
from ..data import Scaling
from ..kernels import Kernel, suited
from ..likelihoods import Likelihood
from ..likelihoods.starts import Start
from ..parameters import Anchor, Parameters
from ..priors import PRIORS, Hyperprior, Prior
from ..tables import Dataset

__all__ = [
    "Beginning",
    "apart",
    "function_keys",
    "initial_lengthscales",
    "initial_parameters",
    "latent_kernels",
    "normal",
    "observed_values",
    "priors_of_points",
    "typical",
]

FEW = 20  # an output with fewer values has a narrow prior on its constants
SIZE = 3.0  # the width of the prior of a parameter function's size, in units of its spread
NOISE = 3.0  # the width of the priors of a likelihood's constants, mostly logarithms
TYPICAL = 0.5  # the centre of the priors of lengthscales, in standardised units, for one input
SOME_ROWS = 10_000  # the most rows between which distances are computed


def latent_kernels(
    kernel: Any,
    latents: Any,
    rank: Any,
    *,
    J: int,
    columns: Sequence[Column],
    alone: bool = False,
    hidden: Sequence[int] = (),
) -> tuple[list[Kernel], list[int]]:
    """The kernel and rank of each latent.

    Args:
        kernel: one for all latents, or a list, as the user wrote it.
        latents: Q.
        rank: R_q; one for all latents, or a list.
        alone: whether each of the J parameter functions has exactly one latent, its own.
        J: the number of parameter functions.
        columns: the inputs; those that are labels need a kernel of their own.
        hidden: the inputs that are used only by kernels that name them.
    """
    Q = J if alone else int(latents)
    if not isinstance(kernel, Kernel | list | tuple | None):
        raise TypeError(f"kernel must be a kernel such as RBF(), or a list, not {kernel!r}")
    kernels = list(kernel) if isinstance(kernel, list | tuple) else [kernel] * Q
    if len(kernels) != Q:
        what = "parameter functions" if alone else "latents"
        raise ValueError(f"kernel is a list of {len(kernels)} for {Q} {what}")
    for k in kernels:
        if not isinstance(k, Kernel | None):
            raise TypeError(f"kernel holds {k!r}, which is not a kernel such as RBF()")
    rank = 1 if alone else rank
    ranks = list(rank) if isinstance(rank, list | tuple | np.ndarray) else [rank] * Q
    if len(ranks) != Q or not all(isinstance(r, int | np.integer) and r >= 1 for r in ranks):
        raise ValueError(f"rank must be a whole number >= 1, or {Q} of them, not {rank!r}")
    names = [column.name for column in columns]
    labels = [j for j, column in enumerate(columns) if column.kind == "category"]
    return [suited(k, names, labels, hidden) for k in kernels], [int(r) for r in ranks]


def initial_lengthscales(
    Q: int, X: Float[np.ndarray, "N p"], Z: Float[np.ndarray, "M p"] | None = None
) -> Float[np.ndarray, " Q"]:
    """A lengthscale for each latent, from short to long, in standardised units.

    For full batches they are fractions of the spread of the inputs, but no shorter than the
    distance between neighbouring rows. With many inputs the rows lie far apart, and a function
    that treats them as unrelated learns nothing. For mini-batches (where inducing inputs Z are
    given) they are multiples of the typical distance from a row to the nearest inducing input,
    which is the finest structure that can be represented. A lengthscale that starts too long takes
    thousands of steps to shrink. Inputs that are labels are ignored.
    """
    if X.shape[1] == 0:
        return np.ones(Q)
    if Z is not None:
        some = X[:: max(1, len(X) // SOME_ROWS)]
        nearest = float(np.median(cKDTree(Z).query(some)[0]))
        if nearest > 0:
            return nearest * (np.geomspace(2 / 3, 8 / 3, Q) if Q > 1 else np.array([4 / 3]))
    lengthscales = np.geomspace(0.15, 0.8, Q) if Q > 1 else np.array([0.35])
    return np.maximum(np.sqrt(X.shape[1]) * lengthscales, apart(X))


def apart(X: Float[np.ndarray, "N p"]) -> float:
    """The typical distance from a row to its nearest neighbour."""
    distinct = np.unique(X[:: max(1, len(X) // 1000)], axis=0)
    if len(distinct) < 2:
        return 0.0
    return float(np.median(cKDTree(distinct).query(distinct, k=2)[0][:, 1]))


class Beginning(NamedTuple):
    """The initial latents.

    Attributes:
        kernels: one per latent, as the user wrote them.
        ranks: R_q of each latent.
        inducing_inputs: one set per latent, or one for all, standardised.
        lengthscales: one per latent, for kernels without a given lengthscale.
        counts: the number of inducing inputs in use for each latent; empty if all are.
        owners: for the last latents, the parameter function that each belongs to, or None if all
            functions may use it.
    """

    kernels: Sequence[Kernel]
    ranks: Sequence[int]
    inducing_inputs: Float[np.ndarray, "Q M p"]
    lengthscales: Float[np.ndarray, " Q"]
    counts: tuple[int, ...] = ()
    owners: tuple[int | None, ...] = ()


def initial_parameters(
    data: Dataset,
    beginning: Beginning,
    scaling: Scaling,
    *,
    prior: str = "lmc",
    weight_scale: float | None = None,
    hyperpriors: bool = True,
    seed: int = 0,
    restart: int = 0,
) -> Parameters:
    """An initial model.

    Args:
        data: outputs and their values.
        beginning: the initial latents.
        scaling: how the inputs were standardised.
        prior: its name, as given in the options.
        weight_scale: the width of the prior of each parameter function's size; None for the
            default.
        hyperpriors: whether point estimates have priors.
        seed: the seed of the fit.
        restart: the number of this start; number 0 is the simplest.
    """
    values, starts = [], []
    for name, likelihood, y, given in observed_values(data):
        values.append(y)
        starts.append(_start(name, likelihood.at(given), y))
    kernels, ranks = beginning.kernels, beginning.ranks
    columns = [column.name for column in data.columns]
    change = np.exp(0.4 * restart * normal(seed, restart, "ℓ", len(kernels)))
    numbers = {
        "kernels": tuple(
            kernel.start(np.full(len(columns), ell), columns, scaling.scale)
            for kernel, ell in zip(kernels, beginning.lengthscales * change, strict=True)
        ),
        "inducing_inputs": beginning.inducing_inputs,
        **_mixing(
            PRIORS[prior],
            np.concatenate([start.constant for start in starts]),
            np.concatenate([start.spread for start in starts]),
            np.stack([normal(seed, restart, key, sum(ranks)) for key in function_keys(data)]),
            beginning.owners,
        ),
    }
    arrays = jax.tree.map(lambda a: jnp.asarray(a, dtype=float), numbers)
    likelihoods = tuple(
        eqx.tree_at(
            lambda of: of.free,
            likelihood,
            {k: jnp.asarray(v, dtype=float) for k, v in start.free.items()},
        )
        if start.free
        else likelihood
        for likelihood, start in zip(data.likelihoods, starts, strict=True)
    )
    begun = PRIORS[prior](**arrays, ranks=tuple(ranks), counts=beginning.counts)
    if not hyperpriors:
        return Parameters(begun, likelihoods)
    centres = jax.tree.map(
        lambda a: jnp.asarray(a, dtype=float),
        tuple(typical(kernel, columns, scaling) for kernel in kernels),
    )
    hyperprior, anchors = priors_of_points(likelihoods, values, weight_scale, centres)
    return Parameters(begun.with_hyperprior(hyperprior), likelihoods, anchors)


def _mixing(
    prior: type[Prior],
    centre: Float[np.ndarray, " J"],
    spread: Float[np.ndarray, " J"],
    noise: Float[np.ndarray, "J R"],
    owners: Sequence[int | None],
) -> dict[str, np.ndarray]:
    """The arrays of a prior to start from, the last latents of which belong to `owners`.

    Latents that all functions may use start as in `Prior.start`: each function has one of them, and
    small weights on the others.
    """
    J, R = noise.shape
    arrays = prior.start(centre, spread, noise[:, : R - len(owners)])
    if not owners:
        return arrays
    free = [owner is None for owner in owners]
    own = np.stack([np.arange(J) == owner for owner in owners], axis=1).astype(float)
    first = np.arange(sum(free)) == np.arange(J)[:, None] % max(sum(free), 1)
    weights = own.copy()
    weights[:, free] = first + 0.3 * noise[:, R - len(owners) :][:, free]
    own[:, free] = 1.0
    arrays["weights"] = np.hstack([arrays["weights"], weights])
    arrays["mask"] = np.hstack([arrays["mask"], own])
    return arrays


def typical(kernel: Kernel, columns: Sequence[str], scaling: Scaling) -> Kernel:
    """A kernel with plausible parameters, except where the user gave others.

    Distances between rows grow with the number of inputs, and so do lengthscales.
    """
    spread = np.full(len(columns), TYPICAL * np.sqrt(len(columns)))
    return kernel.start(spread, columns, scaling.scale)


def observed_values(
    data: Dataset,
) -> Iterator[tuple[str, Likelihood, np.ndarray, dict[str, np.ndarray]]]:
    """The name, likelihood, observed values and their arguments of each output."""
    for name, likelihood, y, given, seen in zip(
        *(data.names, data.likelihoods, data.values, data.given, data.observed()), strict=True
    ):
        own = {argument: column[seen] for argument, column in given.items()}
        yield name, likelihood, y if seen.all() else y[seen], own


def priors_of_points(
    likelihoods: Sequence[Likelihood],
    values: Sequence[np.ndarray],
    weight_scale: float | None,
    centres: tuple[Kernel, ...],
) -> tuple[Hyperprior, tuple[Anchor | None, ...]]:
    """The priors of point estimates: kernel parameters, weights and constants.

    They are weak and rule out implausible values: lengthscales far from the spread of the inputs,
    functions much larger than the data need, and vanishing noise. The likelihood of one value, or
    of one value repeated, grows without bound as the noise vanishes. So an output with fewer than
    `FEW` values has a normal prior of width one, in the units of its constants, centred on its
    marginal fit. For one value repeated n times this prior is applied n times, and to the size of
    the function too, because such values do not say how functions vary.
    """
    repeated = [bool(np.ptp(y) == 0) for y in values]
    strength = [
        float(y.size if same else y.size < FEW) for y, same in zip(values, repeated, strict=True)
    ]
    functions = [len(likelihood.latent) for likelihood in likelihoods]
    size = (weight_scale or SIZE) ** -2
    hyperprior = Hyperprior(
        jnp.asarray(np.repeat(strength, functions)),
        jnp.asarray(np.repeat(size + np.multiply(strength, repeated), functions)),
        centres,
    )
    anchors = tuple(
        Anchor(likelihood.free, jnp.asarray(max(one, NOISE**-2))) if likelihood.free else None
        for likelihood, one in zip(likelihoods, strength, strict=True)
    )
    return hyperprior, anchors


def _start(name: str, likelihood: Likelihood, y: Float[np.ndarray, " N"]) -> Start:
    """The start of one output; an error if its values are too large or too small."""
    with np.errstate(over="ignore", invalid="ignore"):
        start = likelihood.start(y)
    kind = jnp.zeros(()).dtype
    numbers = np.concatenate([start.constant, start.spread, list(start.free.values())])
    with np.errstate(over="ignore", under="ignore"):
        squares = np.square(start.spread.astype(kind))
    least = np.finfo(kind).tiny
    if not (np.isfinite([*numbers, *squares]).all() and (squares > least).all()):
        raise ValueError(
            f"output {name!r}: its values lie between {np.min(y):g} and {np.max(y):g}, and {kind} "
            "cannot represent their squares; give them in units that bring them closer to one"
        )
    return start


def function_keys(data: Dataset) -> list[str]:
    """The names of the parameter functions."""
    return [
        f"{name}.{f}"
        for name, likelihood in zip(data.names, data.likelihoods, strict=True)
        for f in likelihood.latent
    ]


def normal(seed: int, restart: int, key: str, size: int) -> Float[np.ndarray, " size"]:
    """Standard normal numbers that depend only on the seed, the restart and the key."""
    generator = np.random.default_rng([seed, restart, zlib.crc32(key.encode())])
    return generator.standard_normal(size)
