"""Outputs that are one of several classes: Categorical, or Ordinal where they have an order."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .base import Likelihood
from .links import Link, exp, identity
from .reading import InvalidValueError
from .special import expected_softplus
from .starts import Start

__all__ = ["Categorical", "Classes", "Ordinal"]


class Classes(Likelihood):
    """One of K labels. Inside the package y is the position of the label, from 0 to K − 1.

    A subclass writes `_links`: its parameters, once the classes are known.
    """

    support = "one of the classes"

    classes: tuple[Any, ...] = eqx.field(static=True)

    def __init__(self, classes: Sequence[Any] | None = None, *, weight: str | None = None):
        kind = type(self).__name__
        self.classes = () if classes is None else tuple(_plain(label) for label in classes)
        if classes is None:  # to be read from the data
            self.latent = self.fixed = self.columns = self.limits = ()
            self.free, self.given, self.weight, self.amount = {}, {}, weight, False
            return
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"{kind}: classes has duplicates: {list(self.classes)}")
        if len({str(label) for label in self.classes}) != len(self.classes):
            raise ValueError(f"{kind}: two classes read the same: {list(self.classes)}")
        if len(self.classes) < 2:
            raise ValueError(f"{kind}: classes needs at least two labels")
        super().__init__(weight=weight)

    @abstractmethod
    def _links(self) -> Mapping[str, Link]:
        """The parameters of so many classes."""

    @property
    def levels(self) -> tuple[Any, ...]:  # type: ignore[override]
        """See `Likelihood.levels`."""
        return self.classes

    @property
    def links(self) -> Mapping[str, Link]:  # type: ignore[override]
        """The parameters, which depend on the classes."""
        return self._links() if self.classes else {}

    @property
    def ends(self) -> tuple[float, float]:  # type: ignore[override]
        """The first and the last position."""
        return (0.0, len(self.classes) - 1.0)

    def _in_order(self, labels: set[Any]) -> tuple[Any, ...]:
        """The classes seen in the data, in their order."""
        try:
            return tuple(sorted(labels))
        except TypeError:
            return tuple(sorted(labels, key=lambda label: (type(label).__name__, str(label))))

    def support_for(self, given: Mapping[str, float]) -> str:
        """See `Likelihood.support_for`."""
        return f"one of {list(self.classes)}" if self.classes else self.support

    def with_classes(self, labels: Sequence[Any]) -> Self:
        """See `Likelihood.with_classes`."""
        return self if self.classes else type(self)(labels, weight=self.weight)

    def observe(self, column: np.ndarray) -> tuple[Self, np.ndarray]:
        """Read labels; learn the set of classes unless it was given."""
        values = np.asarray(column, dtype=object)
        missing = np.array([value is None or value != value for value in values], bool)
        likelihood = self
        if not self.classes:
            classes = self._in_order({_plain(value) for value in values[~missing]})
            if len(classes) < 2:
                raise ValueError(
                    f"holds {len(classes)} class{'es' * (len(classes) != 1)}"
                    f"{f' ({classes[0]!r})' if classes else ''}; give "
                    f"{type(self).__name__}(classes=[...]) if there are more"
                )
            likelihood = self.with_classes(classes)
        position = {label: float(k) for k, label in enumerate(likelihood.classes)}
        codes = np.full(len(values), np.nan)
        for row in np.flatnonzero(~missing):
            label = _plain(values[row])
            if label not in position:
                raise InvalidValueError(int(row), label)
            codes[row] = position[label]
        return likelihood, codes

    def decode(self, y: np.ndarray) -> np.ndarray:
        """Positions back to labels."""
        labels = np.empty(len(self.classes), dtype=object)
        labels[:] = self.classes
        try:
            plain = np.array(self.classes)  # numbers and text get a type of their own
        except ValueError:
            plain = labels
        kept = plain.ndim == 1 and all(
            a == b for a, b in zip(plain.tolist(), self.classes, strict=True)
        )
        return (plain if kept else labels)[np.asarray(y).astype(int)]

    @property
    def options(self) -> dict[str, Any]:
        """See `Likelihood.options`."""
        classes = {"classes": list(self.classes)} if self.classes else {}
        return classes | ({} if self.weight is None else {"weight": self.weight})


class Categorical(Classes):
    """One of K classes: y ~ softmax(0, f₁(x), …, f_{K−1}(x)). Labels may be anything sortable.

    Args:
        classes: the labels, the first being the reference class. Read from the data when not given
            (in sorted order, or in the order of a pandas categorical); give them where a fold or a
            sample may lack one.
        weight: the column that says how many times each observation counts.
    """

    outcome = "nominal"
    softmax = True

    def __init__(self, classes: Sequence[Any] | None = None, *, weight: str | None = None):
        super().__init__(classes, weight=weight)

    def _links(self) -> Mapping[str, Link]:
        return {str(label): identity for label in self.classes[1:]}

    def _logits(self, f: Array) -> Array:
        return jnp.concatenate([jnp.zeros(1, f.dtype), f])

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`. y is the position of the class."""
        mine = jnp.sum(jnp.where(jnp.arange(1, len(f) + 1) == y, f, 0.0))
        top = jax.lax.stop_gradient(jnp.maximum(jnp.max(f), 0.0))
        return mine - top - jnp.log(jnp.exp(-top) + jnp.sum(jnp.exp(f - top)))

    def mean(self, f: Array) -> Array:
        """A class has no mean; see `probabilities`."""
        return jnp.full((), jnp.nan, f.dtype)

    def variance(self, f: Array) -> Array:
        """A class has no variance; see `probabilities`."""
        return jnp.full((), jnp.nan, f.dtype)

    def cdf(self, y: Array, f: Array) -> Array:
        """Classes have no order, so no distribution function."""
        raise AttributeError("Categorical classes have no order: use .probabilities")

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return jax.random.categorical(key, self._logits(f)).astype(f.dtype)

    def start(self, y: np.ndarray) -> Start:
        """The log of the class shares, against the first class."""
        share = np.bincount(y.astype(int), minlength=len(self.classes)) + 0.5
        return Start(np.log(share[1:] / share[0]), np.ones(len(self.latent)), {})


class Ordinal(Classes):
    """One of K classes in order: P(y ≤ k) = σ(c_{k+1} − location(x)), the cutpoints c learned.

    The first cutpoint is zero, as the location has a constant of its own; the others follow at
    learned distances (`cutpoints`). The mean and variance are those of the labels where they are
    numbers, of the positions 0 … K − 1 otherwise; quantiles are labels.

    Args:
        classes: the labels in order. Read from the data when not given, if they are numbers or an
            ordered pandas categorical.
        weight: the column that says how many times each observation counts.
    """

    outcome = "ordered"
    default_latent = ("location",)

    def __init__(self, classes: Sequence[Any] | None = None, *, weight: str | None = None):
        super().__init__(classes, weight=weight)

    def _links(self) -> Mapping[str, Link]:
        gaps = range(1, len(self.classes) - 1)
        return {"location": identity, **{f"gap{k}": exp for k in gaps}}

    def _in_order(self, labels: set[Any]) -> tuple[Any, ...]:
        """Numbers in their order; other labels have none."""
        if not all(isinstance(label, Real) for label in labels):
            some = sorted(map(repr, labels))[:3]
            raise ValueError(
                f"holds labels without an order of their own, such as {', '.join(some)}; give "
                "Ordinal(classes=[...]) in order, or an ordered pandas categorical"
            )
        return tuple(sorted(labels))

    def _cuts(self, f: Array) -> Array:
        gaps = self.parameters(f)[1:]
        steps = [jnp.zeros((), f.dtype), *(jnp.asarray(gap, f.dtype) for gap in gaps)]
        return jnp.cumsum(jnp.stack(steps))

    @property
    def cutpoints(self) -> np.ndarray:
        """The learned cutpoints, of which the first is zero."""
        return np.cumsum([0.0, *self.constants.values()])

    def _between(self, y: Array, f: Array) -> tuple[Array, Array, Array, Array]:
        """The cutpoints above and below the class, and whether there is none above or below."""
        cuts, k = self._cuts(f), y.astype(int)
        top = len(self.classes) - 1
        above, below = cuts[jnp.minimum(k, top - 1)], cuts[jnp.maximum(k - 1, 0)]
        return above, below, k >= top, k <= 0

    def log_prob(self, y: Array, f: Array) -> Array:
        """With a and b the cutpoints, σ(a − f) − σ(b − f) = σ(a − f) σ(f − b) (1 − e^{b − a})."""
        above, below, last, first = self._between(y, f)
        return (
            _log_width(above, below, first | last)
            - jnp.where(last, 0.0, jax.nn.softplus(f[0] - above))
            - jnp.where(first, 0.0, jax.nn.softplus(below - f[0]))
        )

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """The same, by E[log(1 + e^f)]."""
        above, below, last, first = self._between(y, mean)
        return (
            _log_width(above, below, first | last)
            - jnp.where(last, 0.0, expected_softplus(mean[0] - above, cov[0, 0]))
            - jnp.where(first, 0.0, expected_softplus(below - mean[0], cov[0, 0]))
        )

    def _scores(self, f: Array) -> Array:
        scores = self.classes if self.numeric else range(len(self.classes))
        return jnp.asarray(np.array(scores, float), f.dtype)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return self.probabilities(f) @ self._scores(f)

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return self.probabilities(f) @ (self._scores(f) - self.mean(f)) ** 2

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`. y is the position of the class."""
        above, _, last, _ = self._between(jnp.floor(y), f)
        return jnp.where(y < 0, 0.0, jnp.where(last, 1.0, jax.nn.sigmoid(above - f[0])))

    def sample(self, key: Array, f: Array) -> Array:
        """The class in which the location plus logistic noise falls."""
        value = f[0] + jax.random.logistic(key, dtype=f.dtype)
        return jnp.sum(value > self._cuts(f)).astype(f.dtype)

    def start(self, y: np.ndarray) -> Start:
        """From the shares of the classes."""
        share = np.bincount(y.astype(int), minlength=len(self.classes)) + 0.5
        below = np.cumsum(share)[:-1] / np.sum(share)
        cuts = np.log(below) - np.log1p(-below)
        gaps = {f"gap{k}": float(gap) for k, gap in enumerate(np.log(np.diff(cuts)), start=1)}
        return Start(-cuts[:1], np.ones(1), gaps)


def _log_width(above: Array, below: Array, outer: Array) -> Array:
    """log(1 − e^{below − above}) for a class between two cutpoints, 0 for an outer one."""
    gap = jnp.where(outer, 1.0, above - below)
    return jnp.where(outer, 0.0, jnp.log(-jnp.expm1(-gap)))


def _plain(label: Any) -> Any:
    """NumPy scalars as Python's own, so that labels compare, hash and print plainly."""
    return label.item() if isinstance(label, np.generic) else label
