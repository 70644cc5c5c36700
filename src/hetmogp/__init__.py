"""Heterogeneous multi-output Gaussian processes.

The public names are resolved when first used, so that `hetmogp --help` need not import JAX.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "hetmogp.model": ("HetMOGP", "independent", "load"),
    "hetmogp.discovery": ("discover",),
    "hetmogp.storage": ("ModelFileError",),
    "hetmogp.scikit": ("scorer",),
    "hetmogp.fitting": ("CheckpointError",),
    "hetmogp.disk": ("Table",),
    "hetmogp.likelihoods": (
        "Argument",
        "Bernoulli",
        "Beta",
        "Binomial",
        "Categorical",
        "Exponential",
        "Gamma",
        "Gaussian",
        "HetGaussian",
        "HetStudentT",
        "Hurdle",
        "Likelihood",
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
    ),
    "hetmogp.kernels": (
        "RBF",
        "Category",
        "Kernel",
        "Linear",
        "Matern12",
        "Matern32",
        "Matern52",
        "Periodic",
        "Product",
        "RationalQuadratic",
        "Sum",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_MODULES = ("distributed", "plots", "ray", "report")  # such as `hetmogp.report.write(...)`

__all__ = sorted([*_HOME_OF, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"hetmogp.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hetmogp' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
