"""Predictions as users hold them: for each output at each input, computed when asked for.

The mathematics of one output at one input is in `predictive`; here it meets whole columns, a chunk
of rows at a time, and the user's names and labels.
"""

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from .bound import Parameters
from .data import padded
from .inversion import quantiles
from .likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Classes,
    Count,
    Likelihood,
    VonMises,
    ZeroOneInflatedBeta,
)
from .linalg import compiled
from .marginals import by_projection, condensed, from_condensed
from .predictive import distribution_function, log_density, moments, nodes
from .priors import copies
from .session import session
from .tables import observe
from .variational import Factors, Moments

__all__ = ["OutputPrediction", "Prediction", "latents_at"]

CHUNK = 2048  # rows at a time: memory is bounded by this, not by the number of inputs
LARGEST_CROSS = 2e6  # entries of k(Z, X) at once, over all latents


def rowwise(f: Callable, *arrays: Any, chunk: int = CHUNK) -> Any:
    """Apply a compiled function of whole columns (or dicts of them), some rows at a time."""
    N = len(jax.tree.leaves(arrays)[0])
    if N == 0:  # one row of anything has the right shape; keep none of it
        one = jax.tree.map(lambda a: np.zeros((1, *np.shape(a)[1:])), arrays)
        return jax.tree.map(lambda a: a[:0], rowwise(f, *one))
    parts = []
    for begin in range(0, N, chunk):
        rows = jax.tree.map(lambda a, begin=begin: np.asarray(a[begin : begin + chunk]), arrays)
        n = len(jax.tree.leaves(rows)[0])
        out = f(*jax.tree.map(lambda row: jnp.asarray(padded(row)), rows))
        parts.append(jax.tree.map(lambda a, n=n: np.asarray(a)[:n], out))
    return jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)


@compiled
def _condensed(parameters: Parameters, q: Factors, jitter: Array) -> tuple[Array, Array]:
    prior, moments = parameters.prior, Moments.of(q)
    Kzz = prior.matrices(prior.Z[0, :1], jitter).inducing
    return condensed(Kzz, prior.ranks, moments.mean, moments.cov)[:2]


@partial(compiled, often=True)
def _from_condensed(
    parameters: Parameters, alpha: Array, omega: Array, X: Array
) -> tuple[Array, Array]:
    prior = parameters.prior
    _, K, variance = prior.matrices(X, 0.0)
    K, variance = copies(K, prior.ranks), copies(variance, prior.ranks)
    mean, spread, _ = from_condensed(alpha, omega, K, variance)
    return mean.T, spread.T


@compiled
def _projected(parameters: Parameters, q: Factors, jitter: Array, X: Array) -> tuple[Array, Array]:
    return by_projection(parameters.prior.project(X, jitter), q)


def latents_at(
    parameters: Parameters, q: Factors, jitter: float, X: Float[np.ndarray, "N p"]
) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N R"]]:
    """Posterior mean and variance of every latent function at standardised inputs."""
    R, M = q.mean.shape
    rows = int(np.clip(2 ** round(np.log2(LARGEST_CROSS / (R * M))), 256, 4 * CHUNK))
    if q.mean.dtype == jnp.float64:  # all that does not depend on X once, then one product
        alpha, omega = _condensed(parameters, q, jnp.asarray(jitter))
        return rowwise(lambda x: _from_condensed(parameters, alpha, omega, x), X, chunk=rows)
    return rowwise(lambda x: _projected(parameters, q, jnp.asarray(jitter), x), X, chunk=rows)


@compiled
def _functions(W: Array, b: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean of f = b + W u at each row, and a factor W diag(√v) of its covariance."""
    return b + mean @ W.T, W * jnp.sqrt(variance)[:, None, :]


# Each of these takes the arguments of the observations, `given`, row by row with the rest.


@compiled
def _moments(likelihood: Likelihood, given: dict, mean: Array, factor: Array) -> Any:
    return jax.vmap(lambda g, *f: moments(likelihood.at(g), *f))(given, mean, factor)


@compiled
def _log_density(likelihood: Likelihood, given: dict, mean: Array, factor: Array, y: Array) -> Any:
    return jax.vmap(lambda g, m, F, y: log_density(likelihood.at(g), y, m, F))(
        given, mean, factor, y
    )


@partial(compiled, often=True)  # quantiles ask for it again and again
def _distribution(likelihood: Likelihood, given: dict, mean: Array, factor: Array, y: Array) -> Any:
    return jax.vmap(lambda g, m, F, y: distribution_function(likelihood.at(g), y, m, F))(
        given, mean, factor, y
    )


@compiled
def _probabilities(likelihood: Any, mean: Array, factor: Array) -> Array:
    def one(mean: Array, factor: Array) -> Array:
        f, weights = nodes(mean, factor)
        return weights @ jax.vmap(likelihood.probabilities)(f)

    return jax.vmap(one)(mean, factor)


@compiled
def _draw(
    likelihood: Likelihood, given: dict, key: Array, f: Float[Array, "n N J"]
) -> Float[Array, "n N"]:
    n, N, _ = f.shape
    keys = jax.random.split(key, (n, N))
    one = jax.vmap(lambda g, key, f: likelihood.at(g).sample(key, f))
    return jax.vmap(one, (None, 0, 0))(given, keys, f)


# -- what users hold -------------------------------------------------------------------------------


class OutputPrediction:
    """The predictive distribution of one output, one entry per input row."""

    def __init__(
        self,
        name: str,
        likelihood: Likelihood,
        given: dict[str, np.ndarray],
        mixing: tuple[Array, Array],
        of: "Prediction",
    ):
        self.name, self.likelihood, self.given = name, likelihood, given
        self._mixing, self._of = mixing, of  # the weights W_d and constants b_d of f

    def __len__(self) -> int:
        return len(self._of.latents[0])

    def __repr__(self) -> str:
        return f"<prediction of {self.name!r} ({self.likelihood!r}) at {len(self)} inputs>"

    def _rowwise(self, f: Callable, *arrays: np.ndarray, at: Any = slice(None)) -> Any:
        """f(likelihood, arguments, mean and factor of f, arrays), a chunk of rows at a time."""
        rows = jax.tree.map(lambda a: a[at], (self.given, *self._of.latents))
        many = max(1, len(self.likelihood.latent) // 2)
        with self._of.session():
            return rowwise(
                lambda given, mean, variance, *rest: f(
                    self.likelihood, given, *_functions(*self._mixing, mean, variance), *rest
                ),
                *rows,
                *arrays,
                chunk=max(CHUNK // many, 32),
            )

    def _f(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and factor of the parameter functions at every input."""
        return self._rowwise(lambda of, given, *f: f)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        self._need_order("mean or variance")
        return self._rowwise(_moments)

    @cached_property
    def mean(self) -> np.ndarray:
        """E[y] at each input; for a yes/no output, the probability of yes."""
        return self._warned("mean", self._moments[0])

    @cached_property
    def variance(self) -> np.ndarray:
        """var[y] at each input: the noise and the uncertainty about the parameter functions."""
        return self._warned("variance", self._moments[1])

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of y at each input."""
        return np.sqrt(self.variance)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P(y = class) at each input, (N, K), in the order of the likelihood's `classes`."""
        if not isinstance(self.likelihood, Bernoulli | Classes):
            raise AttributeError(
                f"output {self.name!r} is {type(self.likelihood).__name__}, which has no classes"
            )
        if isinstance(self.likelihood, Bernoulli):
            return np.stack([1.0 - self.mean, self.mean], axis=1)
        return self._rowwise(lambda of, given, *f: _probabilities(of, *f))

    @cached_property
    def prob_zero(self) -> np.ndarray:
        """P(y = 0) at each input, for counts and for proportions that reach 0."""
        if not (isinstance(self.likelihood, Count | Binomial | Bernoulli | ZeroOneInflatedBeta)):
            raise AttributeError(
                f"output {self.name!r} is {type(self.likelihood).__name__}, for which P(y = 0) "
                "has no meaning"
            )
        return np.exp(self.log_prob(np.zeros(len(self))))

    def quantile(self, q: float | Sequence[float]) -> np.ndarray:
        """The q-quantile at each input: shape (N,), or (k, N) for k levels.

        For counts, classes in order and other whole numbers, the smallest value whose probability
        of not being exceeded reaches q. For a likelihood without a distribution function, the
        quantile of 4,000 samples.
        """
        self._need_order("quantiles")
        levels = np.atleast_1d(np.asarray(q, float))
        if not levels.size or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"quantile levels must lie strictly between 0 and 1, not {q}")
        if not self.likelihood.has_cdf:
            found = np.quantile(self.sample(4000), levels, axis=0, method="inverted_cdf")
        else:
            found = self._invert(levels, self.likelihood, *self._f())
        if not isinstance(self.likelihood, Classes):
            self._warned("quantile", found)
        found = self.likelihood.decode(found)
        return found[0] if np.ndim(q) == 0 else found

    def _invert(
        self, levels: np.ndarray, likelihood: Likelihood, mean: np.ndarray, factor: np.ndarray
    ) -> np.ndarray:
        """Quantiles from the mixed distribution function."""
        centre, variance = self._moments
        most = min(len(self), 8 * CHUNK // len(likelihood.latent) ** 2)
        few = max(most // 8, 1)  # a second shape, for the rows that take longest

        def distribution(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
            size = most if len(rows) > few else few
            parts = []  # all are under way before the first is waited for
            for begin in range(0, len(rows), size):
                own = np.resize(rows[begin : begin + size], size)
                at = jax.tree.map(lambda a, own=own: a[own], (self.given, mean, factor))
                here = np.resize(y[begin : begin + size], size)
                parts.append(_distribution(likelihood, *at, here))
            return np.concatenate(parts)[: len(rows)]

        precision = 1e-7 if self._of.dtype == "float64" else 1e-5
        with self._of.session():
            return quantiles(likelihood, distribution, levels, centre, np.sqrt(variance), precision)

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central interval that holds y with this probability.

        For an angle, the ends of the arc around the mean direction.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
        tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        if isinstance(self.likelihood, VonMises):  # turned so that the mean direction is zero
            c, s = np.cos(self.mean), np.sin(self.mean)
            turn = np.stack([np.stack([c, s], axis=1), np.stack([-s, c], axis=1)], axis=1)
            mean, factor = self._f()
            turned = np.einsum("nij,nj->ni", turn, mean), turn @ factor
            lower, upper = self.mean + self._invert(tails, self.likelihood, *turned)
        else:
            lower, upper = self.quantile(tails.tolist())
        return lower, upper

    def cdf(self, y: Any) -> np.ndarray:
        """P(Y ≤ y) at each input; NaN where y is missing."""
        self._need_order("a distribution function")
        return self._at(y, _distribution)

    def survival(self, t: Any) -> np.ndarray:
        """S(t) = P(Y > t) at each input: shape (N,), or (k, N) for k times (or labels in order)."""
        self._need_order("a survival function")
        if isinstance(self.likelihood, Classes):
            labels = [t] if np.ndim(t) == 0 else list(t)
            times = observe(self.name, self.likelihood, labels)[1]
        else:
            times = np.atleast_1d(np.asarray(t, float))
        if times.ndim != 1 or not np.isfinite(times).all():
            raise ValueError(f"t must be a finite number or a sequence of them, not {t!r}")
        found = np.stack([1.0 - self._rowwise(_distribution, np.full(len(self), s)) for s in times])
        return found[0] if np.ndim(t) == 0 else found

    def log_prob(self, y: Any) -> np.ndarray:
        """The log predictive density (or probability) of a value at each input; NaN if missing."""
        return self._at(y, _log_density)

    def _at(self, y: Any, f: Callable) -> np.ndarray:
        if np.ndim(y) == 0 or len(y) != len(self):
            many = "one value" if np.ndim(y) == 0 else f"{len(y)} values"
            raise ValueError(f"output {self.name!r}: {many} for {len(self)} predicted inputs")
        numbers = observe(self.name, self.likelihood, y, self.given)[1]
        seen = ~np.isnan(numbers)
        result = np.full(len(numbers), np.nan)
        result[seen] = self._rowwise(f, numbers[seen], at=seen)
        what = "log density of a value" if f is _log_density else "distribution function"
        self._warned(what, np.where(seen, result, 0.0))
        return result

    def sample(self, n: int = 1, seed: int = 0) -> np.ndarray:
        """N draws at each input, (n, N). The same seed gives the draws of `Prediction.sample`."""
        return self._of.sample(n, seed, outputs=[self.name])[self.name]

    def _warned(self, what: str, values: np.ndarray) -> np.ndarray:
        """The values themselves, and a warning if some are not finite."""
        bad = ~np.isfinite(values)
        if bad.any():
            at = int(np.argwhere(bad)[0][-1])
            warnings.warn(
                f"output {self.name!r} ({self.likelihood!r}): its {what} is not finite at "
                f"{int(bad.sum())} of {bad.size} predictions, such as {values[..., at].flat[0]} at "
                f"row {at}",
                RuntimeWarning,
                stacklevel=4,
            )
        return values

    def _need_order(self, what: str) -> None:
        """Complain of what a likelihood without order, or without a cdf, cannot tell."""
        if what.endswith("function") and not self.likelihood.has_cdf:
            raise AttributeError(
                f"output {self.name!r}: {self.likelihood.kind} has no cdf(y, f), so it has no "
                f"{what.removeprefix('a ')}; quantiles come from samples"
            )
        if isinstance(self.likelihood, Categorical):
            raise AttributeError(
                f"output {self.name!r} is Categorical: classes have no {what}; use .probabilities"
            )


class Prediction(Mapping[str, OutputPrediction]):
    """Predictive distributions of several outputs at the same inputs, by output name."""

    def __init__(
        self,
        parameters: Parameters,
        names: Sequence[str],
        order: Sequence[str],
        latents: tuple[np.ndarray, np.ndarray],
        given: Mapping[str, Mapping[str, np.ndarray]],
        index: pd.Index | None,
        dtype: str,
    ):
        self._parameters, self._names = parameters, list(names)
        self.latents, self._index, self.dtype = latents, index, dtype
        self._outputs = {}
        with self.session():
            W, b = parameters.prior.W, parameters.prior.b
            for name in order:
                d = self._names.index(name)
                part = parameters.slices[d]
                likelihood, beside = parameters.likelihoods[d], dict(given.get(name, {}))
                mixing = W[part], b[part]
                self._outputs[name] = OutputPrediction(name, likelihood, beside, mixing, self)

    def session(self) -> Any:
        """The numerical context of the model this came from."""
        return session(self.dtype)

    def __getitem__(self, name: str) -> OutputPrediction:
        if name not in self._outputs:
            raise KeyError(f"no output {name!r}; there are {', '.join(self._outputs)}")
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        return f"<predictions of {', '.join(self)} at {len(self.latents[0])} inputs>"

    def sample(
        self, n: int = 1, seed: int = 0, outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """N joint draws of the outputs at each input, {name: (n, N)}; inputs are independent."""
        chosen = list(self) if outputs is None else list(outputs)
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        mean, variance = self.latents
        with self.session():
            key = jax.random.key(seed)
            noise = jax.random.normal(jax.random.fold_in(key, 0), (n, *mean.shape), float)
            u = jnp.asarray(mean) + jnp.sqrt(jnp.asarray(variance)) * noise
            prior, draws = self._parameters.prior, {}
            for name in chosen:
                d = self._names.index(name)
                part, likelihood = self._parameters.slices[d], self._parameters.likelihoods[d]
                f = prior.b[part] + u @ prior.W[part].T
                own = jax.random.fold_in(key, zlib.crc32(name.encode()))
                beside = jax.tree.map(jnp.asarray, self[name].given)
                draws[name] = likelihood.decode(np.asarray(_draw(likelihood, beside, own, f)))
        return draws

    def to_frame(self, interval: float = 0.9) -> pd.DataFrame:
        """One row per input: mean, standard deviation and interval of each output.

        An output with classes has its most probable class and the probability of each instead. One
        that takes an exposure or a number of trials has a column that says which was assumed.
        """
        columns: dict[str, Any] = {}
        for name, output in self.items():
            likelihood = output.likelihood
            for argument, _ in likelihood.columns:
                if argument != "event":  # a prediction is of the time itself
                    assumed = output.given.get(argument, 1.0)
                    columns[f"{name}_{argument}"] = np.broadcast_to(assumed, len(output))
            if isinstance(likelihood, Classes):
                best = output.probabilities.argmax(axis=1)
                columns[name] = likelihood.decode(best)
                for label, p in zip(likelihood.classes or (), output.probabilities.T, strict=True):
                    columns[f"{name}_{label}"] = p
            else:
                columns[f"{name}_mean"] = output.mean
                columns[f"{name}_std"] = output.std
                columns[f"{name}_lower"], columns[f"{name}_upper"] = output.interval(interval)
        return pd.DataFrame(columns, index=self._index)
