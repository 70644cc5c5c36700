"""What an output is: named parameters, links, a density, moments.

A subclass writes the mathematics of *one* observation y given the values f of its latent parameter
functions; the package does the rest (vectorising, quadrature, prediction, checks). The smallest
likelihood is a dictionary of links, a support and three formulas:

>>> import jax.numpy as jnp
>>> class Rayleigh(Likelihood):
...     links = {"scale": exp}
...     support = "a number > 0"
...
...     def valid(self, y):
...         return y > 0
...
...     def log_prob(self, y, f):
...         (scale,) = self.parameters(f)
...         return jnp.log(y) - 2 * jnp.log(scale) - 0.5 * (y / scale) ** 2
...
...     def mean(self, f):
...         return jnp.sqrt(jnp.pi / 2) * self.parameters(f)[0]
...
...     def variance(self, f):
...         return (2 - jnp.pi / 2) * self.parameters(f)[0] ** 2
>>> Rayleigh()
Rayleigh()
>>> Rayleigh().latent
('scale',)
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..quadrature import Expectation, expect

__all__ = ["Likelihood", "Link", "Start", "exp", "identity", "logistic"]


class Link(NamedTuple):
    """A map from a parameter function's value to the parameter's domain, and back."""

    name: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Any], Any]  # for numbers, in NumPy

    def __call__(self, f: Array) -> Array:
        """The parameter at f."""
        return self.forward(f)


identity = Link("identity", lambda f: f, lambda value: value)
exp = Link("exp", jnp.exp, np.log)
logistic = Link("logistic", jax.nn.sigmoid, lambda p: np.log(p) - np.log1p(-p))


class Start(NamedTuple):
    """Where learning starts for one output, found from its values alone.

    Attributes:
        constant: the parameter functions of the best constant model.
        spread: how far each parameter function may be expected to move.
        free: the learned constants, on the scale of their links.
    """

    constant: np.ndarray  # (J_d,)
    spread: np.ndarray  # (J_d,)
    free: dict[str, float]


class Likelihood(eqx.Module):
    """The distribution of one output given its latent parameter functions.

    Every parameter in `links` is either *latent* (a function of the inputs), *fixed* (a number the
    user gave by name) or *free* (a learned constant).

    Attributes:
        links: every parameter by name, in order, with its link.
        default_latent: the parameters that are latent unless asked otherwise (`None`: all).
        support: what a value of this output may be, in words, for error messages.
        discrete: whether values are whole numbers.
    """

    links: ClassVar[Mapping[str, Link]] = {}
    default_latent: ClassVar[tuple[str, ...] | None] = None
    support: ClassVar[str] = "a finite number"
    discrete: ClassVar[bool] = False

    latent: tuple[str, ...] = eqx.field(static=True)
    fixed: tuple[tuple[str, float], ...] = eqx.field(static=True)
    free: dict[str, Any]

    def __init__(self, *, latent: tuple[str, ...] | None = None, **values: float | None):
        kind, names = type(self), list(self.links)
        chosen = kind.default_latent or tuple(names) if latent is None else latent
        for name in (*chosen, *values):
            if name not in self.links:
                raise ValueError(f"{kind.__name__} has no parameter {name!r}; it has {names}")
        self.latent = tuple(name for name in names if name in chosen)
        if not self.latent:
            raise ValueError(f"{kind.__name__} needs at least one latent parameter of {names}")
        given = {name: value for name, value in values.items() if value is not None}
        for name, value in given.items():
            if name in self.latent:
                raise ValueError(f"{kind.__name__}: {name} cannot be latent and fixed at {value}")
            with np.errstate(all="ignore"):
                unconstrained = self.links[name].inverse(float(value))
            if not np.isfinite(unconstrained):
                raise ValueError(
                    f"{kind.__name__}: {name}={value} is outside the range of its link, "
                    f"{self.links[name].name}"
                )
        self.fixed = tuple((name, float(value)) for name, value in given.items())
        self.free = {n: None for n in names if n not in self.latent and n not in given}

    # -- one observation: what a subclass writes ---------------------------------------------

    @abstractmethod
    def log_prob(self, y: Float[Array, ""], f: Float[Array, " J"]) -> Float[Array, ""]:
        """Log p(y | f)."""

    @abstractmethod
    def mean(self, f: Float[Array, " J"]) -> Float[Array, ""]:
        """E[y | f]."""

    @abstractmethod
    def variance(self, f: Float[Array, " J"]) -> Float[Array, ""]:
        """var[y | f]."""

    def cdf(self, y: Float[Array, ""], f: Float[Array, " J"]) -> Float[Array, ""]:
        """P(Y ≤ y | f). Needed for quantiles and intervals only."""
        raise AttributeError(
            f"{type(self).__name__} has no cdf(y, f), so it has no quantiles or intervals"
        )

    def sample(self, key: Array, f: Float[Array, " J"]) -> Float[Array, ""]:
        """One draw of y given f. Needed for samples only."""
        raise AttributeError(f"{type(self).__name__} has no sample(key, f), so it cannot be drawn")

    def expected_log_prob(
        self, y: Float[Array, ""], mean: Float[Array, " J"], cov: Float[Array, "J J"]
    ) -> Float[Array, ""] | None:
        """E[log p(y | f)], f ~ N(mean, cov), in closed form for the default latent parameters.

        `None` where there is no closed form: quadrature is used then.
        """
        return None

    def predictive_moments(
        self, mean: Float[Array, " J"], cov: Float[Array, "J J"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]] | None:
        """Mean and variance of y under f ~ N(mean, cov) in closed form, for the default latents.

        `None` where there is none: quadrature over `mean` and `variance` is used then.
        """
        return None

    def mixture(
        self, mean: Float[Array, " J"], cov: Float[Array, "J J"]
    ) -> tuple[Float[Array, " K"], Float[Array, " K"], Float[Array, " K"]] | None:
        """The predictive of y as K normals: weights, means and variances.

        `None` where it is not one: densities and quantiles then come from quadrature over f, which
        is poor where y is known far better given f than f itself is.
        """
        return None

    def valid(self, y: np.ndarray) -> np.ndarray:
        """Which of the (finite) values lie in the support."""
        return np.ones(y.shape, bool)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """A good constant value of each parameter by name; those left out start at f = 0."""
        return {}

    # -- what follows from it ------------------------------------------------------------------

    def parameters(self, f: Float[Array, " J"]) -> tuple[Any, ...]:
        """All parameters in the order of `links`: latent ones from f, the others constant."""
        latent = dict(zip(self.latent, f, strict=True))
        fixed = dict(self.fixed)
        return tuple(
            fixed[name]
            if name in fixed
            else link(latent[name] if name in latent else self.free[name])
            for name, link in self.links.items()
        )

    @property
    def constants(self) -> dict[str, float]:
        """The parameters that are not latent, fixed or learned, by name."""
        learned = {n: float(self.links[n](v)) for n, v in self.free.items() if v is not None}
        return {**dict(self.fixed), **learned}

    def expectation(
        self,
        y: Float[Array, ""],
        mean: Float[Array, " J"],
        cov: Float[Array, "J J"],
        method: Expectation = "auto",
        key: Array | None = None,
    ) -> Float[Array, ""]:
        """E[log p(y | f)], f ~ N(mean, cov): closed form, quadrature or quasi-Monte Carlo."""
        if method == "auto" and self.is_default:
            closed = self.expected_log_prob(y, mean, cov)
            if closed is not None:
                return closed
        return expect(lambda f: self.log_prob(y, f), mean, cov, method, key)

    @property
    def is_default(self) -> bool:
        """Whether the default parameters are latent; closed forms are written for those."""
        return self.latent == (type(self).default_latent or tuple(self.links))

    def observe(self, column: np.ndarray) -> tuple[Self, np.ndarray]:
        """Read a column of values (missing ones are NaN or None): this likelihood, and numbers."""
        try:
            return self, np.asarray(column, dtype=float)
        except (TypeError, ValueError):
            for row, value in enumerate(column):
                try:
                    float(value if value is not None else "nan")
                except (TypeError, ValueError):
                    raise InvalidValueError(row, value) from None
            raise

    def start(self, y: np.ndarray) -> Start:
        """Where learning starts, from the observed values y."""
        values = self.initial(y)
        constants = {
            name: float(self.links[name].inverse(values[name])) if name in values else 0.0
            for name in self.links
        }
        scale = float(np.std(y)) or 1.0
        return Start(
            constant=np.array([constants[name] for name in self.latent]),
            spread=np.array([scale if self.links[n] is identity else 1.0 for n in self.latent]),
            free={name: constants[name] for name in self.free},
        )

    def decode(self, y: np.ndarray) -> np.ndarray:
        """Numbers back to the user's values."""
        return y

    def __repr__(self) -> str:
        shown = [f"{name}={value:g}" for name, value in self.fixed]
        if not self.is_default:
            shown.append(f"latent={self.latent}")
        return f"{type(self).__name__}({', '.join(shown)})"


class InvalidValueError(ValueError):
    """A value a likelihood cannot read, with its row; the caller adds the output's name."""

    def __init__(self, row: int, value: Any):
        super().__init__(f"row {row}: {value!r}")
        self.row, self.value = row, value
