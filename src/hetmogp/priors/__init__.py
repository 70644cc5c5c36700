"""How latent functions become parameter functions."""

from .base import Prior, Projection
from .lmc import LMC

__all__ = ["LMC", "Prior", "Projection"]
