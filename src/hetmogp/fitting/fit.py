"""The result of a fit, also while it is running."""

import warnings
from dataclasses import dataclass, field

import numpy as np

from ..parameters import Parameters
from ..posterior import Posterior
from ..variational import Family, Neighbourhood

__all__ = ["LARGEST_JITTER", "Fit", "NotPositiveDefiniteError", "towards"]

LARGEST_JITTER = 1e-2


class NotPositiveDefiniteError(ArithmeticError):
    """The bound could not be evaluated at the start, even with the largest jitter."""


@dataclass
class Fit:
    """The result of a fit so far.

    Attributes:
        parameters: the model.
        q: q(u).
        bound: the evidence lower bound.
        history: the objective after each round (VEM), or the mean bound of each window (SVI).
        converged: whether the convergence rule was met.
        interrupted: whether the user interrupted the fit.
        jitter: added to the diagonals of k(Z, Z).
        iterations: the number of rounds (VEM) or steps (SVI).
        each: the bound of each output, if the outputs share nothing and were fitted one by one.
        near: q of the local latents, if there are any.
    """

    parameters: Parameters
    q: Family
    bound: float
    jitter: float
    history: list[float] = field(default_factory=list)
    converged: bool = False
    interrupted: bool = False
    iterations: int = 0
    each: tuple[float, ...] = ()
    near: Neighbourhood | None = None

    @property
    def posterior(self) -> Posterior:
        """The prior with q(u)."""
        prior = self.parameters.prior.with_hyperprior(None)
        return Posterior(prior, self.q, self.jitter, self.near)

    def interrupt(self) -> "Fit":
        """Mark the fit as interrupted and warn the user."""
        self.interrupted = True
        warnings.warn(
            f"interrupted after {self.iterations} iterations; the model is usable as it stands",
            RuntimeWarning,
            stacklevel=3,
        )
        return self


def towards(gain: float, first: float, tolerance: float) -> float:
    """Progress from 0 to 1: how far gains have fallen to the tolerance, on a log scale."""
    if gain <= tolerance or first <= tolerance:
        return 1.0
    return float(np.log(first / gain) / np.log(first / tolerance))
