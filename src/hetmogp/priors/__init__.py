"""How latent functions become parameter functions."""

from .base import Prior, Projection
from .independent import Independent
from .lmc import LMC

__all__ = ["LMC", "Independent", "Prior", "Projection"]
