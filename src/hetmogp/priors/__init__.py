"""How latent functions become parameter functions."""

from .base import Matrices, Prior, Projection, copies
from .lmc import LMC

__all__ = ["LMC", "Matrices", "Prior", "Projection", "copies"]
