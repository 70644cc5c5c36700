"""Pictures of a fitted model: each function draws on the Axes given, or new ones, returned."""

from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy.stats import norm

from .likelihoods import Bernoulli
from .linalg import session
from .model import HetMOGP

__all__ = ["observations", "posterior", "shade"]

INK, DATA, GAP = "#1f5fa8", "#5b6470", "#f4b942"


def posterior(
    model: HetMOGP, output: str, x: Any, *, level: float = 0.9, ax: Axes | None = None
) -> Axes:
    """One output over a single input: what is expected, and how far it may be off.

    For a yes/no output the line is its probability and the band what is not known about that
    probability; for any other the line is the mean and the band holds new values with probability
    `level`.

    Args:
        model: a fitted model with one input.
        output: the output's name.
        x: where to draw, in increasing order.
        level: of the band.
        ax: where to draw.
    """
    if model.n_features_in_ != 1:
        raise ValueError(f"posterior draws over one input; the model has {model.n_features_in_}")
    ax = ax or plt.subplots()[1]
    x = np.asarray(x, float).reshape(-1)
    prediction = model.predict(x, [output])[output]
    if isinstance(prediction.likelihood, Bernoulli):
        j = model.parameter_names_.index(f"{output}.{prediction.likelihood.latent[0]}")
        mean, cov = model.parameter_functions(x)
        reach = norm.ppf(0.5 + level / 2) * np.sqrt(cov[:, j, j])
        with session(model.dtype):
            lower, upper = (
                np.asarray(prediction.likelihood.mean(jnp.asarray(f)[None]))
                for f in (mean[:, j] - reach, mean[:, j] + reach)
            )
        line, band = "probability", f"{level:.0%} band of the probability"
    else:
        lower, upper = prediction.interval(level)
        line, band = "mean", f"{level:.0%} interval"
    ax.fill_between(x, lower, upper, color=INK, alpha=0.18, lw=0, label=band)
    ax.plot(x, prediction.mean, color=INK, lw=2, label=line)
    ax.set_ylabel(output)
    return ax


def observations(x: Any, y: Any, *, ax: Axes, label: str = "observed") -> Axes:
    """The data of one output: dots, or ticks where there are only two values."""
    x, y = np.asarray(x, float).reshape(-1), np.asarray(y, float)
    two = np.isin(y[~np.isnan(y)], (0.0, 1.0)).all()
    marker, size = ("|", 8.0) if two else (".", 3.0)
    ax.plot(x, y, ls="", marker=marker, ms=size, color=DATA, alpha=0.5, label=label)
    return ax


def shade(begin: float, end: float, *, ax: Axes, label: str = "not observed") -> Axes:
    """Mark a stretch of the input where an output was not observed."""
    ax.axvspan(begin, end, color=GAP, alpha=0.18, lw=0, label=label)
    return ax
