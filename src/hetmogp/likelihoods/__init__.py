"""The kinds of output a model can hold, one family per file."""

from .angles import VonMises
from .base import Likelihood
from .binary import Bernoulli, Binomial
from .bounded import Beta, LogitNormal, ZeroOneInflatedBeta
from .classes import Categorical, Classes, Ordinal
from .counts import (
    Count,
    NegativeBinomial,
    Poisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from .distribution import FromDistribution, from_distribution
from .hurdle import Hurdle
from .lifetimes import Exponential, LogLogistic, LogNormal, Weibull
from .limits import Argument, Limits
from .links import Link, exp, identity, logistic
from .positive import Gamma
from .real import Gaussian, HetGaussian, HetStudentT, StudentT

__all__ = [
    "Argument",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Classes",
    "Count",
    "Exponential",
    "FromDistribution",
    "Gamma",
    "Gaussian",
    "HetGaussian",
    "HetStudentT",
    "Hurdle",
    "Likelihood",
    "Limits",
    "Link",
    "LogLogistic",
    "LogNormal",
    "LogitNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "VonMises",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "ZeroOneInflatedBeta",
    "exp",
    "from_distribution",
    "identity",
    "logistic",
]
