"""Any distribution of numpyro as an output."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .base import Latent, Likelihood, Outcome
from .links import Link, exp, identity, logistic

__all__ = ["FromDistribution", "from_distribution"]

LINKS = {"identity": identity, "exp": exp, "log": exp, "logistic": logistic, "logit": logistic}


class FromDistribution(Likelihood):
    """A distribution of numpyro; see `from_distribution`."""

    distribution: type = eqx.field(static=True)
    named_links: tuple[tuple[str, Link], ...] = eqx.field(static=True)
    typical: tuple[tuple[str, float], ...] = eqx.field(static=True)  # parameters, each in mid-range
    outcome: Outcome = eqx.field(static=True)  # type: ignore[misc]
    ends: tuple[float, float] = eqx.field(static=True)  # type: ignore[misc]

    def __init__(
        self,
        distribution: type,
        named_links: tuple[tuple[str, Link], ...],
        *,
        weight: str | None = None,
        latent: Latent = None,
        **values: float | None,
    ):
        self.distribution, self.named_links = distribution, named_links
        super().__init__(weight=weight, latent=latent, **values)
        middle = {name: float(link(jnp.zeros(()))) for name, link in named_links}
        self.typical = tuple({**middle, **dict(self.fixed)}.items())
        support = self._typical().support
        self.outcome = "count" if support.is_discrete else "real"
        low, high = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
        self.ends = (
            -np.inf if low is None else float(low),
            np.inf if high is None else float(high),
        )

    @property
    def kind(self) -> str:
        """The name of the distribution."""
        return self.distribution.__name__

    def _default_latent(self) -> tuple[str, ...]:
        return tuple(name for name in self.links if name not in dict(self.fixed))

    @property
    def links(self) -> Mapping[str, Link]:  # type: ignore[override]
        """The parameters that were given a link."""
        return dict(self.named_links)

    def _at(self, f: Array) -> Any:
        values = dict(zip(self.links, self.parameters(f), strict=True))
        return self._made({name: jnp.asarray(value, f.dtype) for name, value in values.items()})

    def _typical(self) -> Any:
        """The distribution somewhere in the middle of its parameters."""
        return self._made(dict(self.typical))

    def _made(self, values: dict[str, Any]) -> Any:
        """The distribution with these parameters; fixed whole numbers stay such."""
        constraints: Any = getattr(self.distribution, "arg_constraints", {})
        for name, value in self.fixed:
            values[name] = int(value) if constraints[name].is_discrete else value
        return self.distribution(**values)

    @property
    def support(self) -> str:  # type: ignore[override]
        """What a value may be, in numpyro's words."""
        return f"a value in {self.distribution.__name__}'s support, {self._typical().support}"

    def log_prob(self, y: Array, f: Array) -> Array:
        """See `Likelihood.log_prob`."""
        return self._at(f).log_prob(y)

    def mean(self, f: Array) -> Array:
        """See `Likelihood.mean`."""
        return jnp.asarray(self._at(f).mean, f.dtype)

    def variance(self, f: Array) -> Array:
        """See `Likelihood.variance`."""
        return jnp.asarray(self._at(f).variance, f.dtype)

    @property
    def has_cdf(self) -> bool:
        """Whether numpyro offers a distribution function."""
        try:
            self._typical().cdf(0.5)
        except NotImplementedError:
            return False
        return True

    def cdf(self, y: Array, f: Array) -> Array:
        """See `Likelihood.cdf`."""
        return self._at(f).cdf(y)

    def sample(self, key: Array, f: Array) -> Array:
        """See `Likelihood.sample`."""
        return jnp.asarray(self._at(f).sample(key), f.dtype)

    def valid(self, y: np.ndarray) -> np.ndarray:
        """See `Likelihood.valid`."""
        return np.asarray(self._typical().support(y))

    @property
    def options(self) -> dict[str, Any]:
        """What to call `from_distribution` with; see `Likelihood.options`."""
        links = {name: link for name, link in self.named_links if name not in dict(self.fixed)}
        return {"distribution": self.distribution, "links": links} | super().options

    def plain_options(self) -> dict[str, Any]:
        """See `Likelihood.plain_options`: the distribution and its links by their names."""
        options = super().plain_options()
        distribution, links = options.pop("distribution"), options.pop("links")
        kind = distribution.__name__
        if _of_numpyro(kind) is not distribution or set(links.values()) - set(LINKS.values()):
            raise TypeError(
                "uses a distribution or link that is not numpyro's or this package's, which a file "
                "cannot name; write it as a subclass of Likelihood"
            )
        return {
            **options,
            "distribution": kind,
            "links": {name: link.name for name, link in links.items()},
        }

    @classmethod
    def from_plain_options(cls, **options: Any) -> "Likelihood":
        """See `Likelihood.from_plain_options`."""
        distribution, links = _of_numpyro(options.pop("distribution")), options.pop("links")
        if distribution is None:
            raise ValueError("its distribution is not one of numpyro's")
        return from_distribution(distribution, links, **options)

    def __repr__(self) -> str:
        distribution, links, *others = self.options.items()
        named = ", ".join(f"{name!r}: {link.name!r}" for name, link in links[1].items())
        shown = [f"{n}={v:g}" if isinstance(v, float) else f"{n}={v!r}" for n, v in others]
        return (
            ", ".join([f"from_distribution({distribution[1].__name__}", f"{{{named}}}", *shown])
            + ")"
        )


def from_distribution(
    distribution: type,
    links: Mapping[str, str | Link] | None = None,
    *,
    latent: Latent = None,
    weight: str | None = None,
    **values: float,
) -> FromDistribution:
    """An output that follows a distribution of numpyro.

    Quantiles come from its distribution function where numpyro has one, from samples otherwise.

    Args:
        distribution: a class of `numpyro.distributions` whose values are single numbers.
        links: the link of each parameter that is to be learned: "identity" for any real number,
            "exp" for a positive one, "logistic" for one between 0 and 1, or a `Link` of your own.
            By default each parameter has the link that suits its constraint.
        latent: the parameters that are functions of the input; by default all that have a link. The
            others are learned constants.
        weight: the column that says how many times each observation counts.
        **values: the remaining parameters, as fixed numbers.

    Example:
        >>> import numpyro.distributions as dist
        >>> from_distribution(dist.Gumbel, {"loc": "identity", "scale": "exp"}, latent=("loc",))
        from_distribution(Gumbel, {'loc': 'identity', 'scale': 'exp'}, latent=('loc',))
    """
    constraints = getattr(distribution, "arg_constraints", None)
    if not isinstance(distribution, type) or constraints is None:
        raise TypeError(
            f"{distribution!r} is not a class of numpyro.distributions (some of its names are "
            "functions: take BinomialLogits for Binomial, and so on)"
        )
    kind = distribution.__name__
    if links is None:
        links = {n: _suited(kind, n, c) for n, c in constraints.items() if n not in values}
    for name in (*links, *values):
        if name not in constraints:
            raise ValueError(f"{kind} has no parameter {name!r}; it has {list(constraints)}")
    chosen = {}
    for name, link in links.items():
        if name in values:
            raise ValueError(f"{kind}: {name} cannot have a link and be fixed at {values[name]}")
        if not isinstance(link, Link) and link not in LINKS:
            raise ValueError(f"{kind}: the link of {name} is {link!r}; it may be {list(LINKS)}")
        chosen[name] = link if isinstance(link, Link) else LINKS[link]
    everything = {**chosen, **dict.fromkeys(values, identity)}
    for name in constraints:
        if name not in everything:
            raise ValueError(f"{kind}: {name} has neither a link nor a value")
    for name, value in values.items():
        if not np.all(constraints[name](value)):
            raise ValueError(f"{kind}: {name}={value} is not {constraints[name]}")
    latent = tuple(chosen) if latent is None else latent
    options: dict[str, Any] = {"weight": weight, "latent": latent, **values}
    try:
        likelihood = FromDistribution(distribution, tuple(everything.items()), **options)
    except TypeError as error:
        raise ValueError(f"{kind} cannot be made from {list(everything)}: {error}") from None
    typical = likelihood._typical()
    if typical.batch_shape or typical.event_shape:
        raise ValueError(f"{kind}: an output must be a single number, not {typical.event_shape}")
    return likelihood


def _suited(kind: str, name: str, constraint: Any) -> Link:
    """The link whose range is a parameter's constraint."""
    from numpyro.distributions import constraints  # slow to import

    suited = {
        identity: (constraints.real, constraints.circular),
        exp: (constraints.positive, constraints.nonnegative),
        logistic: (constraints.unit_interval,),
    }
    for link, known in suited.items():
        if any(constraint is one for one in known):
            return link
    raise ValueError(
        f"{kind}: the parameter {name} is {constraint}, for which there is no usual link; give "
        f"links={{...}}, or fix it with {name}=..."
    )


def _of_numpyro(name: str) -> type | None:
    """A distribution of numpyro by its public name."""
    import numpyro.distributions as dist

    kind = getattr(dist, name) if name in dist.__all__ else None
    return kind if isinstance(kind, type) and issubclass(kind, dist.Distribution) else None
