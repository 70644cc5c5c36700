"""Predictions as users hold them: for each output at each input, computed when asked for.

The mathematics of one output at one input is in `predictive`; here it meets whole columns, a chunk
of rows at a time, and the user's names and labels.
"""

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from .inversion import quantiles
from .likelihoods import Likelihood
from .likelihoods.limits import Known
from .linalg import compiled
from .predictive import distribution_function, log_density, moments, nodes
from .priors import Latents, Prior
from .rows import CHUNK, SIZES, padded, pieces, rowwise
from .session import session
from .tables import observe

__all__ = ["Observed", "Output", "OutputPrediction", "Prediction"]


class Output(NamedTuple):
    """One output of a model: its likelihood, and its part of the parameter functions."""

    likelihood: Likelihood
    part: slice


@partial(compiled, static=("begin", "end"))
def _factor(
    prior: Prior, begin: int, end: int, mean: Array, cov: Array
) -> tuple[Float[Array, "n J"], Float[Array, "n J K"]]:
    """Mean of some parameter functions at each row, and a factor of their covariance."""
    return prior.factor(slice(begin, end), Latents(mean, cov))


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
        output: Output,
        given: dict[str, np.ndarray],
        whole: "Prediction",
    ):
        self.name, self.likelihood, self.given = name, output.likelihood, given
        self._part, self._whole = output.part, whole

    def __len__(self) -> int:
        return len(self._whole.latents.mean)

    def __repr__(self) -> str:
        return f"<prediction of {self.name!r} ({self.likelihood!r}) at {len(self)} inputs>"

    def _rowwise(self, f: Callable, *arrays: np.ndarray, at: Any = slice(None)) -> Any:
        """f(likelihood, arguments, mean and factor of f, arrays), a chunk of rows at a time."""
        rows = jax.tree.map(lambda a: a[at], (self.given, *self._whole.latents))
        many = max(1, len(self.likelihood.latent) // 2)
        part = (self._part.start, self._part.stop)

        def at_rows(given: Any, mean: Array, cov: Array, *rest: Array) -> Any:
            functions = _factor(self._whole.prior, *part, mean, cov)
            return f(self.likelihood, given, *functions, *rest)

        with self._whole.session():
            return rowwise(at_rows, *rows, *arrays, chunk=max(CHUNK // many, 32))

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
        if not self.likelihood.levels:
            raise AttributeError(
                f"output {self.name!r} is {type(self.likelihood).__name__}, which has no classes"
            )
        if self.likelihood.outcome == "yes/no":  # whose mean has a closed form
            return np.stack([1.0 - self.mean, self.mean], axis=1)
        return self._rowwise(lambda of, given, *f: _probabilities(of, *f))

    @cached_property
    def prob_zero(self) -> np.ndarray:
        """P(y = 0) at each input, for counts and for proportions that reach 0."""
        if not self.likelihood.has_zero:
            raise AttributeError(
                f"output {self.name!r} is {type(self.likelihood).__name__}, for which P(y = 0) "
                "has no meaning"
            )
        return np.exp(self.log_prob(np.zeros(len(self))))

    def quantile(self, q: float | Sequence[float]) -> np.ndarray:
        """The q-quantile at each input: shape (N,), or (k, N) for k levels.

        For counts, classes in order and other whole numbers it is the smallest y with P(Y ≤ y) ≥ q.
        For a likelihood without a distribution function it is the quantile of 4,000 samples.
        """
        self._need_order("quantiles")
        levels = np.atleast_1d(np.asarray(q, float))
        if not levels.size or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"quantile levels must lie strictly between 0 and 1, not {q}")
        if not self.likelihood.has_cdf:
            values = np.quantile(self.sample(4000), levels, axis=0, method="inverted_cdf")
        else:
            values = self._invert(levels, self.likelihood, *self._f())
        if not self.likelihood.labelled:
            self._warned("quantile", values)
        values = self.likelihood.decode(values)
        return values[0] if np.ndim(q) == 0 else values

    def _invert(
        self, levels: np.ndarray, likelihood: Likelihood, mean: np.ndarray, factor: np.ndarray
    ) -> np.ndarray:
        """Quantiles from the mixed distribution function."""
        centre, variance = self._moments
        most = max(8 * CHUNK // len(likelihood.latent) ** 2, 1)
        few = len(self) <= SIZES[0]

        def distribution(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
            parts = []  # all are under way before the first is waited for
            for piece, size in pieces(len(rows), most, few=few):
                own, here = padded(rows[piece], size), padded(y[piece], size)
                at = jax.tree.map(lambda a, own=own: a[own], (self.given, mean, factor))
                parts.append(_distribution(likelihood, *at, here)[: piece.stop - piece.start])
            return np.concatenate(parts)

        precision = 1e-7 if self._whole.dtype == "float64" else 1e-5
        with self._whole.session():
            return quantiles(likelihood, distribution, levels, centre, np.sqrt(variance), precision)

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central interval that holds y with this probability.

        For an angle, the ends of the arc around the mean direction.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
        tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        if self.likelihood.outcome == "circular":  # turned so that the mean direction is zero
            turned = self.likelihood.turned(self.mean, *self._f())
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
        if not np.size(t):
            raise ValueError(f"t must be a number or label, or a sequence of them, not {t!r}")
        if self.likelihood.labelled:
            labels = [t] if np.ndim(t) == 0 else list(t)
            times = observe(self.name, self.likelihood, labels)[1]
        else:
            times = np.atleast_1d(np.asarray(t, float))
        if times.ndim != 1 or not np.isfinite(times).all():
            raise ValueError(f"t must be a finite number or a sequence of them, not {t!r}")
        longer = [1.0 - self._rowwise(_distribution, np.full(len(self), s)) for s in times]
        return longer[0] if np.ndim(t) == 0 else np.stack(longer)

    def log_prob(self, y: Any) -> np.ndarray:
        """The log predictive density (or probability) of a value at each input; NaN if missing."""
        return self._at(y, _log_density)

    def _at(self, y: Any, f: Callable) -> np.ndarray:
        if np.ndim(y) == 0 or len(y) != len(self):
            many = "one value" if np.ndim(y) == 0 else f"{len(y)} values"
            raise ValueError(f"output {self.name!r}: {many} for {len(self)} predicted inputs")
        limited = f is _log_density  # a distribution function is of the value itself
        numbers = observe(self.name, self.likelihood, y, self.given, limited=limited)[1]
        return self._at_numbers(numbers, f)

    def _at_numbers(self, numbers: np.ndarray, f: Callable) -> np.ndarray:
        seen = ~np.isnan(numbers)
        result = np.full(len(numbers), np.nan)
        result[seen] = self._rowwise(f, numbers[seen], at=seen)
        what = "log density of a value" if f is _log_density else "distribution function"
        self._warned(what, np.where(seen, result, 0.0))
        return result

    def sample(self, n: int = 1, seed: int = 0) -> np.ndarray:
        """Draw n values at each input, (n, N), as `Prediction.sample` does with the same seed."""
        return self._whole.sample(n, seed, outputs=[self.name])[self.name]

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
        """Raise an error if the likelihood has no order, or no cdf, and so cannot answer."""
        if what.endswith("function") and not self.likelihood.has_cdf:
            raise AttributeError(
                f"output {self.name!r}: {self.likelihood.kind} has no cdf(y, f), so it has no "
                f"{what.removeprefix('a ')}; quantiles come from samples"
            )
        if self.likelihood.outcome == "nominal":
            kind = self.likelihood.kind
            raise AttributeError(
                f"output {self.name!r} is {kind}: classes have no {what}; use .probabilities"
            )


@dataclass(frozen=True)
class Observed:
    """Observed values of one output, with its prediction at their inputs.

    Attributes:
        prediction: at each of the values' inputs.
        numbers: the values as the likelihood has them; of labels, their positions.
        rows: where the values stand in their table.
    """

    prediction: OutputPrediction
    numbers: np.ndarray
    rows: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """The values as the user has them."""
        return self.prediction.likelihood.decode(self.numbers)

    @cached_property
    def known(self) -> Known:
        """Which values are exact, and the intervals that the others lie in."""
        prediction = self.prediction
        return prediction.likelihood.at(prediction.given).known(self.numbers, np)

    @cached_property
    def exact(self) -> np.ndarray:
        """Which values are known exactly or bounded on both sides, as rounded ones are."""
        larger = self.prediction.likelihood.censored(self.prediction.given)
        stated, a, b = self.known
        return (stated | (np.isfinite(a) & np.isfinite(b))) & ~np.asarray(larger)

    @cached_property
    def log_prob(self) -> np.ndarray:
        """The log predictive density of each value."""
        return self.prediction._at_numbers(self.numbers, _log_density)

    @cached_property
    def cdf(self) -> np.ndarray:
        """P(Y ≤ y) of each value."""
        return self._upto(self.numbers)

    @cached_property
    def between(self) -> tuple[np.ndarray, np.ndarray]:
        """P(Y ≤ a) and P(Y ≤ b) of the interval that each value lies in."""
        _, a, b = self.known
        ends = (self._upto(np.where(np.isfinite(end), end, self.numbers)) for end in (a, b))
        low, high = ends
        return np.where(np.isfinite(a), low, 0.0), np.where(np.isfinite(b), high, 1.0)

    def _upto(self, y: np.ndarray) -> np.ndarray:
        return self.prediction._at_numbers(y, _distribution)


class Prediction(Mapping[str, OutputPrediction]):
    """Predictive distributions of several outputs at the same inputs, by output name."""

    def __init__(
        self,
        prior: Prior,
        outputs: Mapping[str, Output],
        latents: Latents,
        given: Mapping[str, Mapping[str, np.ndarray]],
        index: pd.Index | None,
        dtype: str,
    ):
        self.latents, self._index, self.dtype = latents, index, dtype
        with self.session():
            self.prior: Prior = jax.tree.map(jnp.asarray, prior)
        self._parts = {name: output.part for name, output in outputs.items()}
        self._outputs = {
            name: OutputPrediction(name, output, dict(given.get(name, {})), self)
            for name, output in outputs.items()
        }

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
        return f"<predictions of {', '.join(self)} at {len(self.latents.mean)} inputs>"

    def sample(
        self, n: int = 1, seed: int = 0, outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Joint draws of the outputs at each input, {name: (n, N)}; rows are independent."""
        chosen = list(self) if outputs is None else list(outputs)
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        with self.session():
            key, latents = jax.random.key(seed), jax.tree.map(jnp.asarray, self.latents)
            shape = (n, *latents.mean.shape)
            u = latents.draws(jax.random.normal(jax.random.fold_in(key, 0), shape, float))
            draws = {}
            for name in chosen:
                likelihood, given = self[name].likelihood, self[name].given
                f = self.prior.values(self._parts[name], u)
                own = jax.random.fold_in(key, zlib.crc32(name.encode()))
                y = _draw(likelihood, jax.tree.map(jnp.asarray, given), own, f)
                draws[name] = likelihood.decode(np.asarray(y))
        return draws

    def means(self) -> pd.DataFrame:
        """One row per input and one column per output: its mean, or its most probable class."""
        columns = {
            name: one.likelihood.decode(one.probabilities.argmax(axis=1))
            if one.likelihood.labelled
            else one.mean
            for name, one in self.items()
        }
        return pd.DataFrame(columns, index=self._index)

    def to_frame(self, interval: float = 0.9) -> pd.DataFrame:
        """One row per input: mean, standard deviation and interval of each output.

        An output with classes has its most probable class and the probability of each instead. One
        that takes an exposure or a number of trials has a column that says which was assumed.
        """
        columns: dict[str, Any] = {}
        for name, output in self.items():
            for column, values in _as_columns(name, output, interval):
                if column in columns:
                    raise ValueError(
                        f"output {name!r} would make a second column {column!r}; rename an output "
                        "or a class"
                    )
                columns[column] = values
        return pd.DataFrame(columns, index=self._index)


def _as_columns(
    name: str, output: OutputPrediction, interval: float
) -> Iterator[tuple[str, np.ndarray]]:
    """The columns of `Prediction.to_frame` about one output."""
    likelihood = output.likelihood
    for argument, _ in likelihood.columns:
        if not likelihood.rules[argument].partly:  # a prediction is of the value itself
            assumed = output.given.get(argument, 1.0)
            yield f"{name}_{argument}", np.broadcast_to(assumed, len(output))
    if likelihood.labelled:
        yield name, likelihood.decode(output.probabilities.argmax(axis=1))
        for label, p in zip(likelihood.levels, output.probabilities.T, strict=True):
            yield f"{name}_{label}", p
    else:
        yield f"{name}_mean", output.mean
        yield f"{name}_std", output.std
        lower, upper = output.interval(interval)
        yield f"{name}_lower", lower
        yield f"{name}_upper", upper
