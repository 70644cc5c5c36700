"""Predictions as users hold them: for each output at each input, computed when asked for.

The mathematics of one output at one input is in `predictive`; here it meets whole columns, a chunk
of rows at a time, and the user's names and labels.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from .bound import Parameters, parameter_functions
from .data import padded
from .likelihoods import Bernoulli, Categorical, Likelihood
from .linalg import compiled, session
from .predictive import distribution_function, log_density, moments, nodes, quantile
from .tables import observe
from .variational import Factors, marginals

__all__ = ["OutputPrediction", "Prediction", "latents_at"]

CHUNK = 2048  # rows at a time: memory is bounded by this, not by the number of inputs


def rowwise(f: Callable, *arrays: np.ndarray) -> Any:
    """Apply a compiled function of whole columns to `CHUNK` rows at a time."""
    N = len(arrays[0])
    if N == 0:  # one row of anything has the right shape; keep none of it
        one = rowwise(f, *(np.zeros((1, *np.shape(a)[1:])) for a in arrays))
        return jax.tree.map(lambda a: a[:0], one)
    parts = []
    for begin in range(0, N, CHUNK):
        rows = [np.asarray(a[begin : begin + CHUNK]) for a in arrays]
        n = len(rows[0])
        out = f(*(jnp.asarray(padded(row)) for row in rows))
        parts.append(jax.tree.map(lambda a, n=n: np.asarray(a)[:n], out))
    return jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)


@compiled
def _latents(parameters: Parameters, q: Factors, jitter: Array, X: Array) -> tuple[Array, Array]:
    return marginals(parameters.prior.project(X, jitter), q)


def latents_at(
    parameters: Parameters, q: Factors, jitter: float, X: Float[np.ndarray, "N p"]
) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N R"]]:
    """Posterior mean and variance of every latent function at standardised inputs."""
    return rowwise(lambda rows: _latents(parameters, q, jnp.asarray(jitter), rows), X)


@compiled
def _moments(likelihood: Likelihood, mean: Array, cov: Array) -> tuple[Array, Array]:
    return jax.vmap(lambda m, C: moments(likelihood, m, C))(mean, cov)


@compiled
def _log_density(likelihood: Likelihood, y: Array, mean: Array, cov: Array) -> Array:
    return jax.vmap(lambda y, m, C: log_density(likelihood, y, m, C))(y, mean, cov)


@compiled
def _distribution(likelihood: Likelihood, y: Array, mean: Array, cov: Array) -> Array:
    return jax.vmap(lambda y, m, C: distribution_function(likelihood, y, m, C))(y, mean, cov)


@compiled
def _quantile(likelihood, level, mean, cov, guess, width) -> Array:
    return jax.vmap(lambda m, C, g, w: quantile(likelihood, level, m, C, g, w))(
        mean, cov, guess, width
    )


@compiled
def _probabilities(likelihood: Any, mean: Array, cov: Array) -> Array:
    def one(mean: Array, cov: Array) -> Array:
        f, weights = nodes(likelihood, mean, cov)
        return weights @ jax.vmap(likelihood.probabilities)(f)

    return jax.vmap(one)(mean, cov)


@compiled
def _draw(likelihood: Likelihood, key: Array, f: Float[Array, "n N J"]) -> Float[Array, "n N"]:
    n, N, _ = f.shape
    keys = jax.random.split(key, (n, N))
    return jax.vmap(jax.vmap(likelihood.sample))(keys, f)


# -- what users hold -------------------------------------------------------------------------------


class OutputPrediction:
    """The predictive distribution of one output, one entry per input row."""

    def __init__(self, name: str, likelihood: Likelihood, f: tuple, of: "Prediction"):
        self.name, self.likelihood = name, likelihood
        self._mean, self._cov = f
        self._of = of

    def __len__(self) -> int:
        return len(self._mean)

    def __repr__(self) -> str:
        return f"<prediction of {self.name!r} ({self.likelihood!r}) at {len(self)} inputs>"

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        self._need_order("mean or variance")
        with self._of.session():
            return rowwise(lambda m, C: _moments(self.likelihood, m, C), self._mean, self._cov)

    @property
    def mean(self) -> np.ndarray:
        """E[y] at each input; for a yes/no output, the probability of yes."""
        return self._moments[0]

    @property
    def variance(self) -> np.ndarray:
        """var[y] at each input: the noise and the uncertainty about the parameter functions."""
        return self._moments[1]

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of y at each input."""
        return np.sqrt(self.variance)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """P(y = class) at each input, (N, K), in the order of the likelihood's `classes`."""
        if not isinstance(self.likelihood, Bernoulli | Categorical):
            raise AttributeError(
                f"output {self.name!r} is {type(self.likelihood).__name__}, which has no classes"
            )
        if isinstance(self.likelihood, Bernoulli):
            return np.stack([1.0 - self.mean, self.mean], axis=1)
        with self._of.session():
            return rowwise(
                lambda m, C: _probabilities(self.likelihood, m, C), self._mean, self._cov
            )

    def quantile(self, q: float | Sequence[float]) -> np.ndarray:
        """The q-quantile at each input: shape (N,), or (k, N) for k levels.

        For counts and other whole numbers, the smallest value whose probability of not being
        exceeded reaches q.
        """
        self._need_order("quantiles")
        levels = np.atleast_1d(np.asarray(q, float))
        if not levels.size or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"quantile levels must lie strictly between 0 and 1, not {q}")
        guess = np.where(np.isfinite(self.mean), self.mean, 0.0)
        width = np.where(np.isfinite(self.std) & (self.std > 0), self.std, np.abs(guess) + 1.0)
        with self._of.session():
            found = [
                rowwise(
                    lambda *rows, level=level: _quantile(
                        self.likelihood, jnp.asarray(level), *rows
                    ),
                    *(self._mean, self._cov, guess, width),
                )
                for level in levels
            ]
        return found[0] if np.ndim(q) == 0 else np.stack(found)

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central interval that holds y with this probability."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
        lower, upper = self.quantile([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        return lower, upper

    def cdf(self, y: Any) -> np.ndarray:
        """P(Y ≤ y) at each input; NaN where y is missing."""
        self._need_order("a distribution function")
        return self._at(y, _distribution)

    def log_prob(self, y: Any) -> np.ndarray:
        """The log predictive density (or probability) of a value at each input; NaN if missing."""
        return self._at(y, _log_density)

    def _at(self, y: Any, f: Callable) -> np.ndarray:
        numbers = observe(self.name, self.likelihood, y)[1]
        if len(numbers) != len(self):
            raise ValueError(
                f"output {self.name!r}: {len(numbers)} values for {len(self)} predicted inputs"
            )
        seen = ~np.isnan(numbers)
        result = np.full(len(numbers), np.nan)
        with self._of.session():
            result[seen] = rowwise(
                lambda *rows: f(self.likelihood, *rows),
                *(numbers[seen], self._mean[seen], self._cov[seen]),
            )
        return result

    def sample(self, n: int = 1, seed: int = 0) -> np.ndarray:
        """N draws at each input, (n, N). The same seed gives the draws of `Prediction.sample`."""
        return self._of.sample(n, seed, outputs=[self.name])[self.name]

    def _need_order(self, what: str) -> None:
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
        index: pd.Index | None,
        dtype: str,
    ):
        self._parameters, self._names = parameters, list(names)
        self._latents, self._index, self._dtype = latents, index, dtype
        self._outputs = {}
        with self.session():
            W, b = parameters.prior.W, parameters.prior.b
            for name in order:
                d = self._names.index(name)
                part = parameters.slices[d]
                f = rowwise(
                    lambda m, v, part=part: parameter_functions(W[part], b[part], m, v), *latents
                )
                self._outputs[name] = OutputPrediction(name, parameters.likelihoods[d], f, self)

    def session(self) -> Any:
        """The numerical context of the model this came from."""
        return session(self._dtype)

    def __getitem__(self, name: str) -> OutputPrediction:
        if name not in self._outputs:
            raise KeyError(f"no output {name!r}; there are {', '.join(self._outputs)}")
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        return f"<predictions of {', '.join(self)} at {len(self._latents[0])} inputs>"

    def sample(
        self, n: int = 1, seed: int = 0, outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """N joint draws of the outputs at each input, {name: (n, N)}; inputs are independent."""
        chosen = list(self) if outputs is None else list(outputs)
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        mean, variance = self._latents
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
                draws[name] = likelihood.decode(np.asarray(_draw(likelihood, own, f)))
        return draws

    def to_frame(self, interval: float = 0.9) -> pd.DataFrame:
        """One row per input: mean, standard deviation and interval of each output.

        A categorical output has its most probable class and the probability of each class instead.
        """
        columns: dict[str, np.ndarray] = {}
        for name, output in self.items():
            likelihood = output.likelihood
            if isinstance(likelihood, Categorical):
                assert likelihood.classes is not None
                best = output.probabilities.argmax(axis=1)
                columns[name] = likelihood.decode(best)
                for label, p in zip(likelihood.classes, output.probabilities.T, strict=True):
                    columns[f"{name}_{label}"] = p
            else:
                columns[f"{name}_mean"] = output.mean
                columns[f"{name}_std"] = output.std
                columns[f"{name}_lower"], columns[f"{name}_upper"] = output.interval(interval)
        return pd.DataFrame(columns, index=self._index)
