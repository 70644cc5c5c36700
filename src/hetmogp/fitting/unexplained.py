"""What a fit leaves unexplained between neighbouring places.

The score of a parameter function at a place is the slope of the expected log-likelihood there, in
units of its standard deviation,

    s = Σ r / √(−2G) / √n,

with r and G the gradients with respect to the mean and the variance of f at the n values of the
place. Where a model fits, neighbouring scores are not alike: for Gaussian outputs they are those of
K⁻¹y, whose correlations between neighbours are negative. Where inducing inputs are too few for the
detail of a function, neighbours deviate in the same direction. The evidence for that is

    log N(s; 0, (1 − ρ) I + ρ K) − log N(s; 0, I),

with K a Matern 3/2 of short range, place by place (Vecchia). It takes a fraction of a second, where
a fit with local latents takes many.
"""

from collections.abc import Sequence
from itertools import product

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.spatial import cKDTree

from ..batch import Batch, Observations
from ..bound import Rules, Wide
from ..linalg import compiled
from ..parameters import Parameters
from ..places import Places
from ..priors import Functions
from ..rows import padded
from ..variational import Family
from ..variational.neighbours import Conditional, conditional
from .local import kernel_of_range
from .sites import bound_and_slopes

__all__ = ["short_range"]

RANGES = (1.5, 4.0, 10.0)  # lengthscales that are tried, in distances of neighbouring places
SHARES = (0.1, 0.3, 0.6)  # of the variance of the scores
NEIGHBOURS = 6
FLOOR = 0.1  # the least curvature that a value is taken to have, as a share of the mean


def short_range(
    parameters: Parameters,
    q: Family,
    jitter: float,
    batch: Batch,
    rules: Rules,
    labels: Sequence[int] = (),
) -> float:
    """The evidence for detail of short range, in nats, of the parameter function with the most.

    Args:
        parameters: the model.
        q: its q(u).
        jitter: added to the diagonals of k(Z, Z).
        batch: all values.
        rules: how the bound is evaluated.
        labels: the positions of the inputs that are labels.
    """
    X, gains = batch.observed, []
    each = _scores(parameters, q, jnp.asarray(jitter), batch, rules)
    for seen, scores in zip(batch.outputs, each, strict=True):
        there = np.asarray(seen.seen)
        rows, scores = np.asarray(seen.row)[there], np.asarray(scores)[there]
        gains += _gains(X, rows, scores, labels)
    return max(gains)


@compiled
def _scores(
    parameters: Parameters, q: Family, jitter: Float[Array, ""], batch: Batch, rules: Rules
) -> list[Float[Array, "n J"]]:
    """The scores of the values of each output, for each of its functions."""
    projection = parameters.prior.matrices(batch.X, jitter).project()
    _, _, slopes = bound_and_slopes(parameters, q, projection, batch, rules)
    return [_scaled(at, seen) for at, seen in zip(slopes.at, batch.outputs, strict=True)]


def _scaled(slope: Functions | Wide, seen: Observations) -> Float[Array, "n J"]:
    """r / √(−2G), or r itself for classes over which G is not known."""
    if isinstance(slope, Wide):
        return slope.shift
    curve = -2.0 * jnp.diagonal(slope.cov, axis1=1, axis2=2)
    there = seen.seen[:, None]
    mean = jnp.sum(jnp.where(there, jnp.abs(curve), 0.0), axis=0) / jnp.sum(there)
    least = FLOOR * mean + jnp.finfo(curve.dtype).tiny
    return slope.mean / jnp.sqrt(jnp.maximum(curve, least))


def _gains(
    X: Float[np.ndarray, "N p"],
    rows: Int[np.ndarray, " n"],
    scores: Float[np.ndarray, "n J"],
    labels: Sequence[int],
) -> list[float]:
    """What the best range and share gain for each function of an output, in nats.

    Args:
        X: the distinct inputs.
        rows: the input of each value.
        scores: of each value.
        labels: the positions of the inputs that are labels.
    """
    some, place, count = np.unique(rows, return_inverse=True, return_counts=True)
    if len(some) <= NEIGHBOURS:
        return [-np.inf]
    places = Places.of(X[some], NEIGHBOURS, len(some), seed=0)
    tree, p = cKDTree(X[some]), X.shape[1]
    apart = float(np.median(tree.query(X[some], k=2)[0][:, 1]))
    ranges, shares = zip(*product(RANGES, SHARES), strict=True)
    kernels = tuple(kernel_of_range(apart * one, p, labels) for one in ranges)
    at, near = (jnp.asarray(padded(one)) for one in (places.at, places.near))
    given = _conditionals(kernels, 1.0 - jnp.asarray(shares), at, near)
    a, v = np.asarray(given.a)[:, : len(some)], np.asarray(given.v)[:, : len(some)]
    order = tree.query(places.at)[1]
    result = []
    for one in scores.T:
        s = (np.bincount(place, one) / np.sqrt(count))[order]
        s /= np.sqrt(np.mean(s**2)) or 1.0
        off = s - np.einsum("klj,lj->kl", a, np.where(places.near >= 0, s[places.near], 0.0))
        gains = 0.5 * np.sum(s**2 - off**2 / v - np.log(v), axis=1)
        result.append(float(gains.max()))
    return result


@compiled
def _conditionals(
    kernels: tuple, own: Float[Array, " k"], at: Float[Array, "L p"], near: Int[Array, "L K"]
) -> Conditional:
    """Each place given the near ones before it, for each of the kernels."""
    return conditional(kernels, own, at, at[near], near >= 0)
