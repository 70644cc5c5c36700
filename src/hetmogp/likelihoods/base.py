"""What an output is: named parameters, links, a density, moments.

A subclass writes the mathematics of *one* observation y given the values f of its latent parameter
functions; the package does the rest (vectorising, quadrature, prediction, checks). The smallest
likelihood is a dictionary of links, a support and three formulas:

>>> import jax.numpy as jnp
>>> from hetmogp import exp
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
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..quadrature import Expectation, expect
from . import limits
from .limits import LIMITS, Argument, Known
from .links import Link, identity
from .reading import numbers_in
from .starts import Start, likely

__all__ = ["Latent", "Likelihood", "Outcome", "Warp"]

# Which parameters are functions of the input, if not the usual ones.
Latent = tuple[str, ...] | None
# What a value is. Lifetimes and proportions are real; successes among trials are a count.
Outcome = Literal["real", "count", "yes/no", "nominal", "ordered", "circular"]


class Warp(NamedTuple):
    """An increasing map of y to a scale on which its predictive is a mixture of normals."""

    forward: Callable[[Any], Array]
    log_slope: Callable[[Array], Array]  # of `forward`
    back: Callable[[Array], Array]


class Likelihood(eqx.Module):
    """The distribution of one output given its latent parameter functions.

    Every parameter in `links` is either *latent* (a function of the inputs), *fixed* (a number the
    user gave by name) or *free* (a learned constant). Some families also take *arguments*, numbers
    that come with each observation, such as an exposure, or whether the end was seen.

    Attributes:
        links: every parameter by name, in order, with its link.
        default_latent: the parameters that are latent unless asked otherwise (`None`: all).
        arguments: what may come with each observation, by name.
        support: in words, which values are possible, for error messages.
        outcome: what a value is.
        common: the options that all likelihoods of numbers share, for code that lists options.
        levels: the possible values, if they are few and known; y is a position among them.
        softmax: whether the parameter functions are log odds of the classes against the first.
        unit: the argument that the mean is proportional to; "" if there is none.
        censoring: the argument that is 0 where a value is only known to be larger, if there is one.
        mean_name: what the mean of one unit is called in pictures.
        ends: the smallest and the largest possible value.
        atoms: the values of a continuous output that have a probability of their own.
        warp: a function of y whose predictive is a mixture of normals, if there is one.
        limits: the limits that are numbers, as (name, number) pairs.
        columns: the columns that hold the arguments, as (argument, column) pairs.
        weight: the column that says how many times each observation counts.
        given: the arguments of the observation at hand (`at`); before that, their defaults.
        amount: whether this is the part of a `Hurdle`, so that zeros do not belong to it.
    """

    links: ClassVar[Mapping[str, Link]] = {}
    default_latent: ClassVar[tuple[str, ...] | None] = None
    arguments: ClassVar[Mapping[str, Argument]] = {}
    support: ClassVar[str] = "a finite number"
    outcome: ClassVar[Outcome] = "real"
    common: ClassVar[tuple[str, ...]] = tuple(limits.Limits.__annotations__)
    levels: ClassVar[tuple[Any, ...]] = ()
    softmax: ClassVar[bool] = False
    unit: ClassVar[str] = ""
    censoring: ClassVar[str] = ""
    mean_name: ClassVar[str] = "mean"
    ends: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    atoms: ClassVar[tuple[float, ...]] = ()
    warp: ClassVar[Warp | None] = None

    latent: tuple[str, ...] = eqx.field(static=True)
    fixed: tuple[tuple[str, float], ...] = eqx.field(static=True)
    limits: tuple[tuple[str, float], ...] = eqx.field(static=True)
    columns: tuple[tuple[str, str], ...] = eqx.field(static=True)
    weight: str | None = eqx.field(static=True)
    free: dict[str, Any]
    given: dict[str, Any]
    amount: bool = eqx.field(static=True)

    def __init__(
        self, *, latent: Latent = None, weight: str | None = None, **values: float | str | None
    ):
        kind, links = type(self).__name__, self.links  # which some classes make anew each time
        names = list(links)
        chosen = self._default_latent() if latent is None else latent
        numbers = limits.read(self, values)
        if isinstance(chosen, str):
            raise ValueError(f"{kind}: latent must be a tuple of names, such as ({chosen!r},)")
        for name in (*chosen, *values):
            if name not in links and (name in chosen or name not in self.rules):
                others = f" and takes {list(self.arguments)}" if self.arguments else ""
                raise ValueError(f"{kind} has no parameter {name!r}; it has {names}{others}")
        self.limits, self.amount = numbers, False
        latents = set(chosen)
        self.latent = tuple(name for name in names if name in latents)
        if not self.latent:
            raise ValueError(f"{kind} needs at least one latent parameter of {names}")
        if weight is not None and not isinstance(weight, str):
            raise ValueError(f"{kind}: weight must be the name of a column, not {weight!r}")
        self.weight = weight
        given = {name: value for name, value in values.items() if value is not None}
        self.fixed = tuple(
            (name, self._fixed(name, value)) for name, value in given.items() if name in links
        )
        self.free = {n: None for n in names if n not in latents and n not in given}
        arguments = {n: given[n] for n in (*self.arguments, *LIMITS) if n in given}
        self.columns = tuple((n, value) for n, value in arguments.items() if isinstance(value, str))
        self.given = {n: rule.default for n, rule in self.arguments.items()}
        self.given |= {n: rule.default for n, rule in LIMITS.items() if n in arguments}
        for name, value in arguments.items():
            if not isinstance(value, str):
                self.given[name] = self._constant(name, value)

    @property
    def rules(self) -> Mapping[str, Argument]:
        """What each argument may be, limits among them."""
        return {**LIMITS, **self.arguments}

    def _constant(self, name: str, value: Any) -> float:
        kind, rule = type(self).__name__, self.arguments[name]
        number = isinstance(value, Real) and bool(np.isfinite(float(value)))
        if not (rule.constant and number and rule.valid(np.asarray(value))):
            other = f", or {rule.support}" if rule.constant else ""
            raise ValueError(f"{kind}: {name} must be the name of a column{other}, not {value!r}")
        return float(value)

    def _fixed(self, name: str, value: Any) -> float:
        kind = type(self).__name__
        if name in self.latent:
            raise ValueError(f"{kind}: {name} cannot be latent and fixed at {value}")
        try:
            with np.errstate(all="ignore"):
                unconstrained = self.links[name].inverse(float(value))
        except (TypeError, ValueError):
            raise ValueError(f"{kind}: {name} must be a number, not {value!r}") from None
        if not np.isfinite(unconstrained):
            raise ValueError(
                f"{kind}: {name}={value} is outside the range of its link, {self.links[name].name}"
            )
        return float(value)

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
        """P(Y ≤ y | f). Without it quantiles and intervals come from samples."""
        raise AttributeError(
            f"{type(self).__name__} has no cdf(y, f), so it has no distribution function"
        )

    def sample(self, key: Array, f: Float[Array, " J"]) -> Float[Array, ""]:
        """One draw of y given f. Needed for samples only."""
        raise AttributeError(
            f"{type(self).__name__} has no sample(key, f), so it has no samples (nor quantiles, "
            "unless it has a cdf(y, f))"
        )

    def sample_many(
        self, generator: np.random.Generator, f: Float[np.ndarray, "J *n"]
    ) -> Float[np.ndarray, "*n"] | None:
        """Draws of y for many values of f, where that is much faster than `sample`; else None.

        JAX draws counts by rejection, and repeats that for the whole array until the last one is
        accepted.
        """
        return None

    def log_density(self, y: Float[Array, ""], f: Float[Array, " J"]) -> Float[Array, ""]:
        """Log p(y | f) of a value that was seen exactly, whatever arguments came with it."""
        return self.log_prob(y, f)

    def log_cdf(self, y: Float[Array, ""], f: Float[Array, " J"]) -> Float[Array, ""]:
        """Log P(Y ≤ y | f), finite far out; by default from `cdf` and the density."""
        return limits.log_lower(self, y, f)

    def log_survival(self, y: Float[Array, ""], f: Float[Array, " J"]) -> Float[Array, ""]:
        """Log P(Y > y | f), as `log_cdf`."""
        return limits.log_upper(self, y, f)

    def log_interval(
        self, a: Float[Array, ""], b: Float[Array, ""], f: Float[Array, " J"]
    ) -> Float[Array, ""]:
        """Log P(a < Y ≤ b | f), as `log_cdf`."""
        return limits.log_interval(self, a, b, f)

    def log_cell(
        self, a: Float[Array, ""], b: Float[Array, ""], f: Float[Array, " J"]
    ) -> Float[Array, ""]:
        """Log P(a < Y ≤ b | f) of the interval, usually narrow, that a rounded value stands for.

        An infinite end is the end of the range.
        """
        return limits.log_cell(self, a, b, f)

    def log_positive(self, f: Float[Array, " J"]) -> Float[Array, ""]:
        """Log P(y > 0 | f), for `Hurdle`: zero for a positive number, and less for a count."""
        return jnp.zeros((), f.dtype)

    def sample_positive(self, key: Array, f: Float[Array, " J"]) -> Float[Array, ""]:
        """One draw of y given f and y > 0, for `Hurdle`; counts write it."""
        return self.sample(key, f)

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
        is poor where y varies much less given f than f itself does.
        """
        return None

    def collapsed(
        self, mean: Float[Array, " J"], cov: Float[Array, "J J"]
    ) -> tuple["Likelihood", int] | None:
        """This likelihood with its last functions integrated out in closed form, given the first.

        The number says how many functions are left to integrate over, the first ones. `None` where
        there is no such form.
        """
        return None

    def valid(self, y: np.ndarray) -> np.ndarray:
        """Which of the (finite) values lie in the support."""
        return np.ones(y.shape, bool)

    def initial(self, y: np.ndarray) -> Mapping[str, float]:
        """A good constant value of each parameter by name; others start at the most likely value.

        Here, and in `valid`, the arguments in `given` are those of all the values.
        """
        return {}

    def support_for(self, given: Mapping[str, float]) -> str:
        """What a value that comes with these arguments may be, in words."""
        return self.support

    def censored(self, given: Mapping[str, Any]) -> Any:
        """Whether values that come with these arguments are only known to be larger."""
        return given.get(self.censoring, 1.0) == 0

    @property
    def limited(self) -> bool:
        """Whether some values may be known in part only; see `limits`."""
        return bool(self.limits) or any(name in LIMITS for name, _ in self.columns)

    def known(self, y: Any, xp: Any = jnp) -> Known:
        """Which values are exact, and the intervals that the others lie in."""
        return limits.known(self, y, xp)

    def log_observed(self, y: Float[Array, ""], f: Float[Array, " J"]) -> Float[Array, ""]:
        """Log of the density of an exact value, or of the probability of an interval."""
        return limits.log_observed(self, y, f) if self.limited else self.log_prob(y, f)

    def noted(self, y: np.ndarray) -> np.ndarray:
        """Values as a fit uses them: one beyond a limit becomes that limit."""
        return limits.noted(self, y) if self.limited else y

    def rounded(self, step: float) -> "Likelihood":
        """This likelihood for rounded values; itself for counts, classes, angles and atoms."""
        if self.discrete or self.outcome == "circular" or self.atoms:
            return self
        return type(self).from_plain_options(**{**self.plain_options(), "step": step})

    def possible(self, y: np.ndarray) -> np.ndarray:
        """Which values may have been observed: rounded ones may lie at an end of the range."""
        return self.valid(limits.typical(self, y))

    def difference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How far a is from b."""
        return a - b

    def within(self, y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Which values lie in their interval."""
        return (lower <= y) & (y <= upper)

    def turned(
        self,
        angle: Float[np.ndarray, " N"],
        mean: Float[np.ndarray, "N J"],
        factor: Float[np.ndarray, "N J R"],
    ) -> tuple[Float[np.ndarray, "N J"], Float[np.ndarray, "N J R"]]:
        """Mean and factor of f if directions are measured from `angle`; for circular outputs."""
        raise AttributeError(f"{type(self).__name__} is not circular")

    def doubt(self, y: np.ndarray) -> str | None:
        """Why the observed values are too little to learn from, in words; None if they are not."""
        return None

    # -- what follows from it ------------------------------------------------------------------

    def unlinked(self, f: Float[Array, " J"]) -> tuple[Any, ...]:
        """All parameters in the order of `links`, on the scale of their links."""
        latent = dict(zip(self.latent, f, strict=True))
        fixed = {name: self.links[name].inverse(value) for name, value in self.fixed}
        known = {**self.free, **fixed, **latent}
        return tuple(known[name] for name in self.links)

    def parameters(self, f: Float[Array, " J"]) -> tuple[Any, ...]:
        """All parameters in the order of `links`: latent ones from f, the others constant."""
        fixed = dict(self.fixed)
        return tuple(
            fixed[name] if name in fixed else link(value)
            for (name, link), value in zip(self.links.items(), self.unlinked(f), strict=True)
        )

    def probabilities(self, f: Float[Array, " J"]) -> Float[Array, " K"]:
        """P(y = class | f) in the order of `levels`."""
        positions = jnp.arange(len(self.levels), dtype=f.dtype)
        return jnp.exp(jax.vmap(lambda y: self.log_prob(y, f))(positions))

    @property
    def discrete(self) -> bool:
        """Whether values are whole numbers."""
        return self.outcome in ("count", "yes/no") or self.labelled

    @property
    def labelled(self) -> bool:
        """Whether values are labels, of which y is the position among the classes."""
        return self.outcome in ("nominal", "ordered")

    @property
    def numeric(self) -> bool:
        """Whether the user's values are numbers."""
        return all(isinstance(label, Real) for label in self.levels)

    @property
    def has_zero(self) -> bool:
        """Whether P(y = 0) is a probability worth asking for."""
        return self.outcome in ("count", "yes/no") or 0.0 in self.atoms

    @property
    def unit_column(self) -> str | None:
        """The column that holds the `unit` of each observation, if there is one."""
        return dict(self.columns).get(self.unit)

    def warped(self, y: Any) -> tuple[Any, Any]:
        """y on the scale of `warp`, where there is one, and the log of that scale's slope."""
        return (y, 0.0) if self.warp is None else (self.warp.forward(y), self.warp.log_slope(y))

    @property
    def constants(self) -> dict[str, float]:
        """The parameters that are not latent, fixed or learned, by name."""
        links = self.links
        with jax.enable_x64(True):
            learned = {n: float(links[n](v)) for n, v in self.free.items() if v is not None}
        return {**dict(self.fixed), **learned}

    def expectation(
        self,
        y: Float[Array, ""],
        mean: Float[Array, " J"],
        cov: Float[Array, "J J"],
        method: Expectation = "auto",
        key: Array | None = None,
    ) -> Float[Array, ""]:
        """E[log p(y | f)], f ~ N(mean, cov): closed form, quadrature or quasi-Monte Carlo.

        Intervals are always by quadrature; exact values keep their closed form.
        """

        def exact() -> Array:
            closed = None
            if method == "auto" and self.is_default:
                closed = self.expected_log_prob(y, mean, cov)
            if closed is not None:
                return closed
            return expect(lambda f: self.log_prob(y, f), mean, cov, method, key)

        if not self.limited:
            return exact()
        seen = self.known(y)
        partly = expect(lambda f: limits.log_between(self, seen, f), mean, cov, method, key, True)
        return partly if "step" in dict(self.limits) else jnp.where(seen.exact, exact(), partly)

    def _default_latent(self) -> tuple[str, ...]:
        return type(self).default_latent or tuple(self.links)

    @property
    def kind(self) -> str:
        """What to call this likelihood in messages."""
        return type(self).__name__

    @property
    def has_cdf(self) -> bool:
        """Whether there is a distribution function; quantiles come from samples otherwise."""
        return type(self).cdf is not Likelihood.cdf

    @property
    def has_positive(self) -> bool:
        """Whether a count can draw values above zero, as `Hurdle` needs."""
        return type(self).sample_positive is not Likelihood.sample_positive

    @property
    def is_default(self) -> bool:
        """Whether the default parameters are latent; closed forms are written for those."""
        return self.latent == self._default_latent()

    def at(self, given: Mapping[str, Any]) -> Self:
        """The likelihood of an observation that comes with these arguments."""
        if not given:
            return self
        return eqx.tree_at(lambda one: [one.given[n] for n in given], self, list(given.values()))

    def observe(self, column: np.ndarray) -> tuple[Self, np.ndarray]:
        """Read a column of values (missing ones are NaN or None): this likelihood, and numbers."""
        return self, numbers_in(column)

    def with_classes(self, labels: Sequence[Any]) -> Self:
        """This likelihood with these classes, if it takes classes and has none yet."""
        return self

    def start(self, y: np.ndarray) -> Start:
        """Where learning starts, from the observed values y."""
        seen, y = y, limits.typical(self, y)
        known = {
            name: float(self.links[name].inverse(value)) for name, value in self.initial(y).items()
        }
        constants = known if set(known) >= {*self.latent, *self.free} else likely(self, seen, known)
        with np.errstate(all="ignore"):
            scale = float(np.std(self.warped(y)[0])) or 1.0
        return Start(
            constant=np.array([constants[name] for name in self.latent]),
            spread=np.array([scale if self.links[n] is identity else 1.0 for n in self.latent]),
            free={name: constants[name] for name in self.free},
        )

    def decode(self, y: np.ndarray) -> np.ndarray:
        """Numbers back to the user's values."""
        return y

    @property
    def extra_columns(self) -> list[str]:
        """The columns that an output needs besides its own."""
        weight = [] if self.weight is None else [self.weight]
        return [*dict(self.columns).values(), *weight]

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that make this likelihood again, unfitted; for saved models.

        A subclass whose constructor takes anything else adds it here.
        """
        columns, options = dict(self.columns), dict[str, Any]((*self.fixed, *self.limits))
        for name, value in self.given.items():
            if name in columns:
                options[name] = columns[name]
            elif np.ndim(value) == 0 and value != 1.0:
                options[name] = float(value)
        if self.weight is not None:
            options["weight"] = self.weight
        if not self.is_default:
            options["latent"] = self.latent
        return options

    def plain_options(self) -> dict[str, Any]:
        """The `options` as JSON can hold them.

        Raises:
            TypeError: if something cannot be written; the message follows the likelihood's name.
        """
        return dict(self.options)

    @classmethod
    def from_plain_options(cls, **options: Any) -> "Likelihood":
        """A likelihood from what `plain_options` gave."""
        return cls(**options)

    def __repr__(self) -> str:
        shown = (
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in self.options.items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"
