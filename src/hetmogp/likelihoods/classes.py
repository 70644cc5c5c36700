"""Outputs that are one of several classes: Bernoulli and Categorical."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, log_ndtr, ndtr
from jaxtyping import Array
from scipy.special import ndtri

from ..quadrature import constant
from .base import InvalidValueError, Likelihood, Start, logistic

__all__ = ["Bernoulli", "Categorical"]

# The logistic function as a mixture of normal distribution functions, σ(f) = Σ p Φ(s f) to 2e-9
# (Monahan and Stefanski, 1992): expectations under a Gaussian are then closed forms, good for any
# variance, where a 20-node quadrature loses its digits beyond a variance of about ten.
_SHARE = np.array(
    [
        [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818],
        [0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354],
    ]
).ravel()
_SLOPE = np.array(
    [
        [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391],
        [0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306],
    ]
).ravel()


def expected_softplus(mean: Array, variance: Array) -> Array:
    """E[log(1 + e^f)], f ~ N(mean, variance): the integral of Σ p Φ(s μ / √(1 + s² v)) over μ."""
    share, slope = constant(_SHARE), constant(_SLOPE)
    width = jnp.sqrt(1.0 + slope**2 * variance)
    t = mean * slope / width
    density = jnp.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)
    below = 0.5 * (1.0 + erf(t / np.sqrt(2.0)))  # Φ(t), to an absolute error of 1e-16
    return jnp.sum(share * width / slope * (t * below + density))


class Bernoulli(Likelihood):
    """A yes/no output: y ~ Bernoulli(probability(x)). Values are 0 and 1, or False and True.

    Args:
        link: "logit" or "probit".
    """

    links = {"probability": logistic}
    support = "0 or 1"
    discrete = True

    link: str = eqx.field(static=True)

    def __init__(self, link: Literal["logit", "probit"] = "logit"):
        if link not in ("logit", "probit"):
            raise ValueError(f'Bernoulli: link must be "logit" or "probit", not {link!r}')
        super().__init__()
        self.link = link

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        signed = (2.0 * y - 1.0) * f[0]
        return jax.nn.log_sigmoid(signed) if self.link == "logit" else log_ndtr(signed)

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array | None:
        """Y μ − E[log(1 + e^f)] for the logit."""
        if self.link == "probit":
            return None
        return y * mean[0] - expected_softplus(mean[0], cov[0, 0])

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jax.nn.sigmoid(f[0]) if self.link == "logit" else ndtr(f[0])

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        p = self.mean(f)
        return p * (1.0 - p)

    def predictive_moments(self, mean: Array, cov: Array) -> tuple[Array, Array]:
        """E[Φ(s f)] = Φ(s μ / √(1 + s² v)), for the probit and for each term of the logistic."""
        mixture = (_SHARE, _SLOPE) if self.link == "logit" else (np.ones(1), np.ones(1))
        share, slope = map(constant, mixture)
        t = mean[0] * slope / jnp.sqrt(1.0 + slope**2 * cov[0, 0])
        yes, no = jnp.sum(share * ndtr(t)), jnp.sum(share * ndtr(-t))
        return yes / (yes + no), yes * no

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return jnp.where(y < 0, 0.0, jnp.where(y < 1, 1.0 - self.mean(f), 1.0))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return jax.random.bernoulli(key, self.mean(f)).astype(f.dtype)

    def probabilities(self, f: Array) -> Array:
        """P(y = 0) and P(y = 1)."""
        p = self.mean(f)
        return jnp.stack([1.0 - p, p])

    @property
    def classes(self) -> tuple[int, int]:
        """The labels, in the order of `probabilities`."""
        return (0, 1)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y == 0) | (y == 1)

    def start(self, y: np.ndarray) -> Start:
        """The link of the share of ones, kept off the ends."""
        p = (np.sum(y) + 0.5) / (y.size + 1.0)
        constant = np.log(p / (1.0 - p)) if self.link == "logit" else ndtri(p)
        return Start(np.array([constant]), np.ones(1), {})

    def __repr__(self) -> str:
        return "Bernoulli()" if self.link == "logit" else 'Bernoulli(link="probit")'


class Categorical(Likelihood):
    """One of K classes: y ~ softmax(0, f₁(x), …, f_{K−1}(x)). Labels may be anything sortable.

    Args:
        classes: the labels, the first being the reference class. Read from the data when not given
            (in sorted order, or in the order of a pandas categorical); give them where a fold or a
            sample may lack one.
    """

    support = "one of the classes"
    discrete = True

    classes: tuple[Any, ...] | None = eqx.field(static=True)

    def __init__(self, classes: Sequence[Any] | None = None):
        self.classes = None if classes is None else tuple(classes)
        if self.classes is not None:
            if len(set(self.classes)) != len(self.classes):
                raise ValueError(f"Categorical: classes has duplicates: {list(self.classes)}")
            if len(self.classes) < 2:
                raise ValueError("Categorical: classes needs at least two labels")
        self.latent = () if self.classes is None else tuple(str(c) for c in self.classes[1:])
        self.fixed = ()
        self.free = {}

    def _logits(self, f: Array) -> Array:
        return jnp.concatenate([jnp.zeros(1, f.dtype), f])

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`. y is the position of the class."""
        return jax.nn.log_softmax(self._logits(f))[y.astype(int)]

    def probabilities(self, f: Array) -> Array:
        """P(y = class) in the order of `classes`."""
        return jax.nn.softmax(self._logits(f))

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

    def observe(self, column: np.ndarray) -> tuple[Self, np.ndarray]:
        """Read labels; learn the set of classes unless it was given."""
        values = np.asarray(column, dtype=object)
        missing = np.array([value is None or value != value for value in values], bool)
        classes = self.classes
        if classes is None:
            found = {_plain(value) for value in values[~missing]}
            try:
                classes = tuple(sorted(found))
            except TypeError:
                classes = tuple(sorted(found, key=lambda label: (type(label).__name__, str(label))))
            if len(classes) < 2:
                raise ValueError(
                    f"holds {len(classes)} class{'es' * (len(classes) != 1)}"
                    f"{f' ({classes[0]!r})' if classes else ''}; give Categorical(classes=[...]) "
                    "if there are more"
                )
        position = {label: float(k) for k, label in enumerate(classes)}
        codes = np.full(len(values), np.nan)
        for row in np.flatnonzero(~missing):
            label = _plain(values[row])
            if label not in position:
                raise InvalidValueError(int(row), label)
            codes[row] = position[label]
        return (self if classes == self.classes else type(self)(classes)), codes

    def start(self, y: np.ndarray) -> Start:
        """The log of the class shares, against the first class."""
        assert self.classes is not None
        share = np.bincount(y.astype(int), minlength=len(self.classes)) + 0.5
        return Start(np.log(share[1:] / share[0]), np.ones(len(self.latent)), {})

    def decode(self, y: np.ndarray) -> np.ndarray:
        """Positions back to labels."""
        assert self.classes is not None
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
    def is_default(self) -> bool:
        """Every class but the first is always latent."""
        return True

    def __repr__(self) -> str:
        return f"Categorical({'' if self.classes is None else f'classes={list(self.classes)}'})"


def _plain(label: Any) -> Any:
    """NumPy scalars as Python's own, so that labels compare, hash and print plainly."""
    return label.item() if isinstance(label, np.generic) else label
