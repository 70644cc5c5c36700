"""The kinds of output a model can hold, one family per file."""

from .base import Likelihood, Link, exp, identity, logistic
from .bounded import Beta
from .classes import Bernoulli, Categorical
from .counts import Poisson
from .positive import Exponential, Gamma
from .real import Gaussian, HetGaussian, StudentT

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Exponential",
    "Gamma",
    "Gaussian",
    "HetGaussian",
    "Likelihood",
    "Link",
    "Poisson",
    "StudentT",
    "exp",
    "identity",
    "logistic",
]
