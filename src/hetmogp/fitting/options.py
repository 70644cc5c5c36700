"""The options of a fit: a frozen object, checked in one place."""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from ..bound import Rules
from ..priors import PRIORS
from ..quadrature import Expectation
from ..variational import FAMILIES, Blocks, Coupled, Factorised

__all__ = ["Method", "Options"]

Method = Literal["vem", "svi"]

WORDS = {
    "prior": tuple(PRIORS),
    "method": ("auto", "vem", "svi"),
    "bound": ("joint", "factorised"),
    "q": ("auto", *FAMILIES),
    "expectation": ("auto", "quadrature", "montecarlo"),
    "optimizer": ("adam", "adadelta"),
    "dtype": ("float64", "float32"),
}
WHOLE = {"batch_size": 1, "seed": 0, "max_iter": 0, "restarts": 1}  # whole numbers and their minima
DEFAULTS = {"vem": (100, 5e-4), "svi": (5000, 5e-4)}  # max_iter, tol
JITTER = {"float64": 1e-6, "float32": 1e-4}
LARGEST_COUPLED = 1000  # entries of v that a mini-batch step can couple; it costs their cube


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `HetMOGP` except the likelihoods; they are documented there.

    Raises:
        ValueError: if an option has an invalid value.
    """

    kernel: Any = None
    latents: int | Literal["auto"] = "auto"
    local: int | Literal["auto"] = "auto"
    rank: Any = 1
    linear: Any = None
    groups: Any = None
    inducing: Any = "auto"
    prior: str = "lmc"
    method: Literal["auto", "vem", "svi"] = "auto"
    bound: Literal["joint", "factorised"] = "joint"
    q: str = "auto"
    expectation: Expectation = "auto"
    batch_size: int = 500
    optimizer: Literal["adam", "adadelta"] = "adam"
    natural_gradients: bool = True
    learn_inducing: bool = True
    prune: bool = True
    weight_scale: float | None = None
    hyperpriors: Literal["auto"] | None = "auto"
    max_iter: int | None = None
    tol: float | None = None
    restarts: int | None = None
    dtype: Literal["float64", "float32"] = "float64"
    seed: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        for option, allowed in WORDS.items():
            value = getattr(self, option)
            if value not in allowed:
                raise ValueError(f"{option} must be one of {list(allowed)}, not {value!r}")
        for option, least in WHOLE.items():
            value = getattr(self, option)
            if value is None and option in ("max_iter", "restarts"):
                continue
            if not _is_whole(value, least):
                raise ValueError(f"{option} must be a whole number >= {least}, not {value!r}")
        listed = isinstance(self.kernel, list | tuple)
        if self.latents != "auto" and not _is_whole(self.latents, 1):
            raise ValueError(
                f'latents must be a whole number >= 1, or "auto", not {self.latents!r}'
            )
        if self.local != "auto" and not _is_whole(self.local, 0):
            raise ValueError(f'local must be a whole number >= 0, or "auto", not {self.local!r}')
        if self.local not in ("auto", 0):
            self._refuse_local()
        if self.latents == "auto" and not listed and (np.ndim(self.rank) > 0 or self.rank != 1):
            raise ValueError(f"rank={self.rank!r} needs a number of latents; give latents= too")
        for option in ("linear", "groups"):
            self._refuse_unnamed(option)
        if self.hyperpriors not in ("auto", None):
            raise ValueError(f'hyperpriors must be "auto" or None, not {self.hyperpriors!r}')
        for option in ("tol", "weight_scale"):
            value = getattr(self, option)
            real = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not (real and 0 < value < np.inf):
                raise ValueError(f"{option} must be a positive number, not {value!r}")

    def _refuse_unnamed(self, option: str) -> None:
        """Raise an error if an option names no inputs, or cannot be combined with others."""
        value = getattr(self, option)
        if value is None:
            return
        each = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
        for one in each:
            if not isinstance(one, str | Integral) or isinstance(one, bool):
                raise ValueError(
                    f'{option} must be names or numbers of inputs, such as ["age"], not {value!r}'
                )
        needed = {"prior": ("lmc",), "local": ("auto", 0)}
        for other, allowed in needed.items():
            if each and getattr(self, other) not in allowed:
                raise ValueError(f"{option}={value!r} needs {other}={allowed[-1]!r}")

    def _refuse_local(self) -> None:
        """Raise an error for options that cannot be combined with local latents."""
        needed = {"prior": "lmc", "natural_gradients": True, "optimizer": "adam"}
        for option, value in needed.items():
            if getattr(self, option) != value:
                raise ValueError(f"local={self.local} needs {option}={value!r}")
        if self.method == "vem" or self.q == "coupled":
            raise ValueError(
                f"local={self.local} is learned on mini-batches, with a factorised q: leave method "
                'and q at "auto"'
            )

    def items(self) -> dict[str, Any]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def rules(self) -> Rules:
        """How the bound is evaluated."""
        return Rules(joint=self.bound == "joint", expectation=self.expectation)

    @property
    def jitter(self) -> float:
        """The jitter initially added to the diagonals of k(Z, Z)."""
        return JITTER[self.dtype]

    @property
    def chooses(self) -> bool:
        """Whether the fit chooses what the outputs share, and the number of latents."""
        listed = isinstance(self.kernel, list | tuple)  # a list of kernels fixes the number
        return self.latents == "auto" and not listed and self.max_iter != 0

    @property
    def has_effects(self) -> bool:
        """Whether some inputs have straight lines or intercepts of groups."""
        return any(value is not None and np.size(value) for value in (self.linear, self.groups))

    @property
    def prunes(self) -> bool:
        """Whether weights that do not pay for themselves are dropped after a fit."""
        return (
            self.prune and self.latents != "auto" and self.prior == "lmc" and self.natural_gradients
        )

    def limits(self, method: Method, observed: int) -> tuple[int, float]:
        """The most iterations, and the gain in nats below which a fit has converged."""
        max_iter, tol = DEFAULTS[method]
        max_iter = max_iter if self.max_iter is None else self.max_iter
        return max_iter, (tol if self.tol is None else self.tol) * observed

    def family(self, method: Method, R: int, M: int) -> type[Blocks]:
        """The family of q(u), for R copies of latents with M inducing inputs each.

        Raises:
            ValueError: if mini-batches would couple too many inducing variables.
        """
        if self.q == "auto":
            return Coupled if method == "vem" and self.natural_gradients else Factorised
        if self.q == "coupled" and method == "svi" and R * M > LARGEST_COUPLED:
            raise ValueError(
                f'q="coupled" on mini-batches would factorise a matrix of {R * M:,} rows in every '
                f"step ({R} latents with {M} inducing inputs each); the limit is "
                f'{LARGEST_COUPLED:,}: use fewer inducing inputs, or q="factorised"'
            )
        return FAMILIES[self.q]
