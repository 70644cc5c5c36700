"""Outputs that are zero or not, and if not, so much: rain, catches, spending, days absent."""

from collections.abc import Mapping
from copy import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..quadrature import expect, root
from .base import Latent, Likelihood, Outcome
from .limits import Argument, Known
from .links import Link, logistic
from .special import expected_logistic, expected_softplus
from .starts import Start

__all__ = ["Hurdle"]

SAFE = 0.5  # replaces a zero where the density of the part is computed but not used


class Hurdle(Likelihood):
    """Zero or not, and how much if not: y = 0 with probability zero(x), else y ~ part given y > 0.

    Each question has functions of its own: `zero`, and those of the part. If the part is a count,
    it is truncated, because it would sometimes be zero itself. This is the difference from a
    zero-inflated count, where both may give a zero.

    Args:
        part: the likelihood of what is above zero, such as `Gamma()`, `LogNormal()` or
            `NegativeBinomial()`; its options (an exposure, limits) are written there.
        zero: a fixed probability of zero, where it is not latent.
        weight: the column that says how many times each observation counts.
        latent: the part's functions, with or without "zero"; with it by default. Without it the
            probability of zero is a learned constant.

    Example:
        >>> from hetmogp import Gamma
        >>> Hurdle(Gamma())
        Hurdle(Gamma())
        >>> Hurdle(Gamma()).latent
        ('shape', 'rate', 'zero')
    """

    part: Likelihood = eqx.field(static=True)
    tied: tuple[Array, Array, Array] | None  # zero(x) given the part's functions; see `collapsed`

    def __init__(
        self,
        part: Likelihood,
        zero: float | None = None,
        *,
        weight: str | None = None,
        latent: Latent = None,
    ):
        _check(part)
        self.part, self.tied = _amount_of(part), None
        given = {**{n: v for n, v in part.given.items() if v != 1.0}, **dict(part.columns)}
        super().__init__(
            latent=latent if latent is not None or zero is None else part.latent,
            weight=part.weight if weight is None else weight,
            **{**dict(part.fixed), "zero": zero, **given},
        )
        if self.latent[: len(part.latent)] != part.latent:
            raise ValueError(
                f"Hurdle: latent={latent} must name {part.latent}, with or without 'zero'; choose "
                f"the functions of the part there, in {part.kind}(latent=...)"
            )

    def _default_latent(self) -> tuple[str, ...]:
        return (*self.part.latent, "zero")

    # -- what it is, mostly as its part -------------------------------------------------------

    @property
    def links(self) -> Mapping[str, Link]:  # type: ignore[override]
        """The parameters of the part, and the probability of zero."""
        return {**self.part.links, "zero": logistic}

    @property
    def arguments(self) -> Mapping[str, Argument]:  # type: ignore[override]
        """Those of the part."""
        return self.part.arguments

    @property
    def support(self) -> str:  # type: ignore[override]
        """Zero, or what the part may be."""
        return f"0 or {self.part.support}"

    @property
    def outcome(self) -> Outcome:  # type: ignore[override]
        """That of the part."""
        return self.part.outcome

    @property
    def unit(self) -> str:  # type: ignore[override]
        """None: the mean is not proportional to an exposure, as zeros do not depend on it."""
        return ""

    @property
    def censoring(self) -> str:  # type: ignore[override]
        """That of the part."""
        return self.part.censoring

    @property
    def ends(self) -> tuple[float, float]:  # type: ignore[override]
        """Those of the part."""
        return self.part.ends

    @property
    def atoms(self) -> tuple[float, ...]:  # type: ignore[override]
        """Zero, among real numbers."""
        return () if self.discrete else (0.0,)

    @property
    def limited(self) -> bool:
        """No: values known in part are above zero, and the part takes care of them."""
        return False

    def known(self, y: Any, xp: Any = jnp) -> Known:
        """See `Likelihood.known`; a zero is exact, and even a small amount is above zero."""
        exact, a, b = self._amount().known(xp.where(y > 0, y, xp.nan), xp)
        a = xp.where(y > 0, xp.maximum(a, 0.0), y)
        return Known(exact | (y == 0), a, xp.where(y > 0, b, y))

    @property
    def is_default(self) -> bool:
        """Always: what is closed here holds for any latent parameters."""
        return True

    @property
    def has_cdf(self) -> bool:
        """Whether the part has one."""
        return self.part.has_cdf

    # -- one observation ----------------------------------------------------------------------

    def _amount(self) -> Likelihood:
        """The part, with its learned constants and the arguments of the observation."""
        part = self.part.at({name: self.given[name] for name in self.part.given})
        if not part.free:
            return part
        return eqx.tree_at(lambda of: of.free, part, {name: self.free[name] for name in part.free})

    def _split(self, f: Array) -> tuple[Likelihood, Array, Array, Array]:
        """The part, its parameter functions, and the log probabilities of zero and of more."""
        part, own = self._amount(), f[: len(self.part.latent)]
        if self.tied is None:
            odds = self._odds(f)
            return part, own, -jax.nn.softplus(-odds), -jax.nn.softplus(odds)
        centre, slope, variance = self.tied
        zero, more = expected_logistic(centre + slope @ own, variance)
        return part, own, jnp.log(zero), jnp.log(more)

    def _odds(self, f: Array) -> Array:
        """Log of P(y = 0)/P(y > 0)."""
        return jnp.asarray(self.unlinked(f)[-1], f.dtype)

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log of zero, or of 1 − zero and p(y | y > 0) of the part."""
        part, own, log_zero, log_more = self._split(f)
        amount = part.log_observed(jnp.where(y > 0, y, SAFE), own) - part.log_positive(own)
        return jnp.where(y > 0, log_more + amount, log_zero)

    def expected_log_prob(self, y: Array, mean: Array, cov: Array) -> Array:
        """The log densities of the two questions add up, so each is integrated by itself."""
        part, J, odds = self._amount(), len(self.part.latent), self._odds(mean)
        own = mean[:J], cov[:J, :J]
        amount = part.expectation(jnp.where(y > 0, y, SAFE), *own)
        if self.discrete:
            amount -= expect(part.log_positive, *own)
        away = jnp.where(y > 0, odds, -odds)
        if "zero" in self.latent:
            question = expected_softplus(away, cov[J, J])
        else:
            question = jax.nn.softplus(away)
        return jnp.where(y > 0, amount, 0.0) - question

    def collapsed(self, mean: Array, cov: Array) -> tuple[Likelihood, int] | None:
        """Given the part's functions, log odds of zero are normal, and E[σ] of a normal is closed.

        So predictions integrate over the functions of the part alone.
        """
        J = len(self.part.latent)
        if "zero" not in self.latent:
            return None
        slope = _regression(cov[:J, :J], cov[:J, J])
        rest = jnp.maximum(cov[J, J] - slope @ cov[:J, J], 0.0)
        tied = (mean[J] - slope @ mean[:J], slope, rest)
        made = eqx.tree_at(lambda of: of.tied, self, tied, is_leaf=lambda leaf: leaf is None)
        return made, J

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        part, own, _, log_more = self._split(f)
        return jnp.exp(log_more - part.log_positive(own)) * part.mean(own)

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        part, own, _, log_more = self._split(f)
        square = part.variance(own) + jnp.square(part.mean(own))
        return jnp.exp(log_more - part.log_positive(own)) * square - jnp.square(self.mean(f))

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        part, own, log_zero, log_more = self._split(f)
        none = -jnp.expm1(part.log_positive(own))  # what the truncation takes away
        inside = jnp.maximum(part.cdf(jnp.maximum(y, 0.0), own) - none, 0.0)
        more = jnp.exp(log_more - part.log_positive(own)) * inside
        return jnp.where(y < 0, 0.0, jnp.minimum(jnp.exp(log_zero) + more, 1.0))

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        part, own, log_zero, _ = self._split(f)
        first, second = jax.random.split(key)
        none = jax.random.bernoulli(first, jnp.exp(log_zero))
        return jnp.where(none, 0.0, part.sample_positive(second, own))

    def log_positive(self, f: Array) -> Array:
        """See `Likelihood.log_positive`."""
        return self._split(f)[3]

    # -- columns ------------------------------------------------------------------------------

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return (y == 0) | ((y > 0) & self._observed_part(slice(None), y).possible(y))

    def rounded(self, step: float) -> Likelihood:
        """See `Likelihood.rounded`: values above zero are rounded, and zeros are exact."""
        own = {name: value for name, value in self.options.items() if name != "part"}
        return Hurdle(self.part.rounded(step), **own)

    def noted(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.noted`."""
        return np.where(y == 0, y, self._observed_part(slice(None), y).noted(y))

    def _observed_part(self, rows: Any, y: np.ndarray) -> Likelihood:
        """The part with the arguments of some of the values."""
        given = {name: np.broadcast_to(self.given[name], y.shape)[rows] for name in self.part.given}
        return self.part.at(given)

    def start(self, y: np.ndarray) -> Start:
        """The share of zeros, and where the part starts from what is above."""
        above = y > 0
        if above.any():
            begun = self._observed_part(above, y).start(y[above])
        else:
            begun = self.part.start(np.ones(1))
        zero = (np.sum(~above) + 0.5) / (y.size + 1.0)
        odds = float(np.log(zero) - np.log1p(-zero))
        if "zero" in self.latent:
            constant, spread = np.append(begun.constant, odds), np.append(begun.spread, 1.0)
            return Start(constant, spread, begun.free)
        own = {"zero": odds} if "zero" in self.free else {}
        return Start(begun.constant, begun.spread, {**begun.free, **own})

    def doubt(self, y: np.ndarray) -> str | None:
        """See `Likelihood.doubt`."""
        if not np.any(y > 0):
            return "all of its values are zero, so how large others would be is a guess"
        return self._observed_part(y > 0, y).doubt(y[y > 0])

    # -- saved models -------------------------------------------------------------------------

    @property
    def options(self) -> dict[str, Any]:
        """See `Likelihood.options`."""
        fixed = dict(self.fixed)
        options: dict[str, Any] = {"part": self.part}
        if "zero" in fixed:
            options["zero"] = fixed["zero"]
        elif "zero" not in self.latent:
            options["latent"] = self.latent
        if self.weight not in (None, self.part.weight):
            options["weight"] = self.weight
        return options

    def plain_options(self) -> dict[str, Any]:
        """See `Likelihood.plain_options`: the part by its name and options."""
        kind = type(self.part)
        if _kinds().get(kind.__name__) is not kind:
            raise TypeError("has a part that is not this package's, which a file cannot name")
        part = {"likelihood": kind.__name__, "options": self.part.plain_options()}
        return {**self.options, "part": part}

    @classmethod
    def from_plain_options(cls, **options: Any) -> "Likelihood":
        """See `Likelihood.from_plain_options`."""
        part = options.pop("part")
        kind, own = _kinds().get(part["likelihood"]), dict(part["options"])
        if kind is None:
            raise ValueError(f"there is no likelihood {part['likelihood']!r} for its part")
        if isinstance(own.get("latent"), list):
            own["latent"] = tuple(own["latent"])
        return cls(kind.from_plain_options(**own), **options)

    def __repr__(self) -> str:
        part, *others = self.options.items()
        shown = [f"{n}={v:g}" if isinstance(v, float) else f"{n}={v!r}" for n, v in others]
        return f"Hurdle({', '.join([repr(part[1]), *shown])})"


def _amount_of(part: Likelihood) -> Likelihood:
    """The same likelihood, marked as the part of a `Hurdle`."""
    made = copy(part)
    object.__setattr__(made, "amount", True)
    return made


def _check(part: Any) -> None:
    """Raise an error for anything that cannot be the part above zero."""
    if not isinstance(part, Likelihood):
        raise TypeError(f"Hurdle: part must be a likelihood such as Gamma(), not {part!r}")
    numbers = part.outcome == "real" or (part.outcome == "count" and part.has_positive)
    if not numbers or part.ends[0] != 0 or part.atoms or "zero" in part.links:
        raise ValueError(
            f"Hurdle: the part above zero cannot be {part!r}; it may be a positive number, such as "
            "Gamma(), LogNormal() or Weibull(), or a count, Poisson() or NegativeBinomial()"
        )


def _regression(cov: Array, with_other: Array) -> Array:
    """The coefficients cov⁻¹ c, without LAPACK; the part has one or two functions as a rule."""
    C, J = root(cov), len(with_other)
    x = with_other
    for j in range(J):  # forwards, C z = c
        x = x.at[j].set((x[j] - C[j, :j] @ x[:j]) / C[j, j])
    for j in reversed(range(J)):  # and backwards, Cᵀ x = z
        x = x.at[j].set((x[j] - C[j + 1 :, j] @ x[j + 1 :]) / C[j, j])
    return x


def _kinds(of: type[Likelihood] = Likelihood) -> dict[str, type[Likelihood]]:
    """The likelihoods of this package by name."""
    found: dict[str, type[Likelihood]] = {}
    for kind in of.__subclasses__():
        found |= _kinds(kind)
        if kind.__module__.startswith(__package__ or ""):
            found[kind.__name__] = kind
    return found
