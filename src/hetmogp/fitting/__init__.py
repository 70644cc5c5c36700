"""Learning: where it starts, how it proceeds, when it stops."""

from .free import Anchor
from .progress import Progress
from .run import JITTER, Fit, NotPositiveDefiniteError, run_svi, run_vem
from .start import choose_inducing, initial_lengthscales, initial_parameters

__all__ = [
    "JITTER",
    "Anchor",
    "Fit",
    "NotPositiveDefiniteError",
    "Progress",
    "choose_inducing",
    "initial_lengthscales",
    "initial_parameters",
    "run_svi",
    "run_vem",
]
