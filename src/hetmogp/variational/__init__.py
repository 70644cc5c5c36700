"""Families of approximate posteriors q(u)."""

from .base import Family, LatentSites
from .blocks import Blocks, Moments, Natural
from .coupled import Coupled
from .deviations import deviations, means
from .evidence import evidence
from .factorised import Factorised, dominant
from .neighbours import Neighbourhood

__all__ = [
    "FAMILIES",
    "Blocks",
    "Coupled",
    "Factorised",
    "Family",
    "LatentSites",
    "Moments",
    "Natural",
    "Neighbourhood",
    "deviations",
    "dominant",
    "evidence",
    "means",
]

# By their names among the options.
FAMILIES: dict[str, type[Blocks]] = {"factorised": Factorised, "coupled": Coupled}
