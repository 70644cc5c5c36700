"""Where learning starts: from the data, and the same for the same data however it is arranged.

Constants come from each output's marginal fit, inducing inputs from k-means, lengthscales from the
spread of the inputs or, where rows are many, from how finely the inducing inputs cover them. Each
parameter function begins with a latent of its own and a little of the others, by a generator keyed
by the names of output and parameter, so that the order of the outputs does not matter.
"""

import warnings
import zlib
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans

from ..bound import Parameters
from ..kernels import Kernel
from ..likelihoods import Likelihood
from ..priors import LMC

__all__ = ["choose_inducing", "initial_lengthscales", "initial_parameters"]

KMEANS_ROWS = 10_000  # k-means looks at no more rows than this


def choose_inducing(
    X: Float[np.ndarray, "N p"], number: int | None, seed: int
) -> Float[np.ndarray, "M p"]:
    """M inducing inputs among the rows: k-means centres, or the distinct rows if there are few."""
    if len(X) > KMEANS_ROWS:
        rows = np.random.default_rng(seed).choice(len(X), KMEANS_ROWS, replace=False)
        X = X[np.sort(rows)]
    distinct = np.unique(X, axis=0)
    M = min(100, len(distinct)) if number is None else number
    if len(distinct) < M:
        warnings.warn(
            f"inducing={M} is more than the {len(distinct)} distinct input rows; "
            f"using {len(distinct)}",
            UserWarning,
            stacklevel=2,
        )
        M = len(distinct)
    if len(distinct) == M:
        return distinct
    return KMeans(M, n_init=1, random_state=seed).fit(X).cluster_centers_


def initial_lengthscales(
    Q: int, X: Float[np.ndarray, "N p"], Z: Float[np.ndarray, "M p"] | None = None
) -> Float[np.ndarray, " Q"]:
    """One for each latent, from short to long, in standardised units.

    For full batches fractions of the inputs' spread. For mini-batches (with inducing inputs Z
    given) multiples of how far a row typically is from the nearest of them, the finest structure
    they can show: a lengthscale that starts too long takes thousands of steps to shrink.
    """
    if Z is not None:
        some = X[:: max(1, len(X) // KMEANS_ROWS)]
        nearest = float(np.median(cKDTree(Z).query(some)[0]))
        if nearest > 0:
            return nearest * (np.geomspace(2 / 3, 8 / 3, Q) if Q > 1 else np.array([4 / 3]))
    lengthscales = np.geomspace(0.15, 0.8, Q) if Q > 1 else np.array([0.35])
    return np.sqrt(X.shape[1]) * lengthscales


def initial_parameters(
    names: Sequence[str],
    likelihoods: Sequence[Likelihood],
    values: Sequence[Float[np.ndarray, " N"]],
    given: Sequence[Mapping[str, Float[np.ndarray, " N"]]],
    kernels: Sequence[Kernel],
    ranks: Sequence[int],
    inducing_inputs: Float[np.ndarray, "Q M p"],
    lengthscales: Float[np.ndarray, " Q"],
    columns: Sequence[str],
    scale: Float[np.ndarray, " p"],
    *,
    prior: str,
    seed: int,
    restart: int,
) -> Parameters:
    """A model to start from.

    Args:
        names: of the outputs.
        likelihoods: one per output.
        values: the observed values of each output.
        given: the arguments of those values, by name.
        kernels: one per latent, as the user wrote them.
        ranks: R_q of each latent.
        inducing_inputs: one per latent, or one for all, standardised.
        lengthscales: one per latent, for kernels that say nothing.
        columns: the names of the inputs.
        scale: what the inputs were divided by.
        prior: "lmc" or "independent".
        seed: of the whole fit.
        restart: which start this is; number 0 is the plainest.
    """
    starts = [of.at(g).start(y) for of, y, g in zip(likelihoods, values, given, strict=True)]
    Q, p = len(kernels), len(columns)
    spread = lengthscales * np.exp(0.4 * restart * _normal(seed, restart, "ℓ", Q))
    keys = [f"{name}.{f}" for name, of in zip(names, likelihoods, strict=True) for f in of.latent]
    J, R = len(keys), sum(ranks)
    own = np.arange(R) == np.arange(J)[:, None] % R  # each function begins with a latent of its own
    mixing = np.stack([_normal(seed, restart, key, R) for key in keys])
    alone = prior == "independent"
    numbers = {
        "kernels": tuple(
            kernel.start(np.full(p, ell), columns, scale)
            for kernel, ell in zip(kernels, spread, strict=True)
        ),
        "inducing_inputs": inducing_inputs,
        "weights": own + (0.0 if alone else 0.3) * mixing,
        "mask": own if alone else np.ones((J, R)),
        "constants": np.zeros(J),
        "centre": np.concatenate([start.constant for start in starts]),
        "spread": np.concatenate([start.spread for start in starts]),
    }
    arrays = jax.tree.map(lambda a: jnp.asarray(a, dtype=float), numbers)
    return Parameters(
        LMC(**arrays, ranks=tuple(ranks)),
        tuple(
            eqx.tree_at(lambda of: of.free, likelihood, jax.tree.map(jnp.asarray, start.free))
            if start.free
            else likelihood
            for likelihood, start in zip(likelihoods, starts, strict=True)
        ),
    )


def _normal(seed: int, restart: int, key: str, size: int) -> Float[np.ndarray, " size"]:
    generator = np.random.default_rng([seed, restart, zlib.crc32(key.encode())])
    return generator.standard_normal(size)
