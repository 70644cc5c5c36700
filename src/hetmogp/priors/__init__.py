"""How latent functions become parameter functions."""

from .affine import Affine
from .base import Functions, Hyperprior, Latents, Matrices, Prior, Projection, copies
from .lmc import LMC, Independent

__all__ = [
    "LMC",
    "PRIORS",
    "Affine",
    "Functions",
    "Hyperprior",
    "Independent",
    "Latents",
    "Matrices",
    "Prior",
    "Projection",
    "copies",
]

# By their names among the options.
PRIORS: dict[str, type[Affine]] = {"lmc": LMC, "independent": Independent}
