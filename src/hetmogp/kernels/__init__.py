"""Covariance functions k(x, z) of the latent functions, with unit variance.

The scale of a latent lives in the mixing weights, so k(x, x) = 1 for every stationary kernel, and a
sum carries *relative* weights. All matrices come from matrix products on centred inputs: no
N × M × p array is ever formed. Every learned number of a kernel is positive (it is optimised by its
logarithm) and `None` means "start from the data".
"""

from .base import Kernel, Product, Sum
from .category import Category, suited
from .features import Features, FeaturesMissingError, features
from .leaf import Leaf
from .linear import Linear
from .periodic import Periodic
from .slopes import Slopes
from .stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
    squared_distance,
)

__all__ = [
    "RBF",
    "Category",
    "Features",
    "FeaturesMissingError",
    "Kernel",
    "Leaf",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Slopes",
    "Stationary",
    "Sum",
    "features",
    "squared_distance",
    "suited",
]
