"""Learning: where it starts, how it proceeds, when it stops."""

from .free import Anchor
from .progress import Progress
from .run import JITTER, Fit, NotPositiveDefiniteError, run_svi, run_vem
from .start import initial_lengthscales, initial_parameters, latent_kernels, place_inducing

__all__ = [
    "JITTER",
    "Anchor",
    "Fit",
    "NotPositiveDefiniteError",
    "Progress",
    "initial_lengthscales",
    "initial_parameters",
    "latent_kernels",
    "place_inducing",
    "run_svi",
    "run_vem",
]
