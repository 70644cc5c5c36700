"""Pictures of how good a model is: calibration, and what sharing gained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from .. import pictures
from ..curves import likelihood_of
from ..model import HetMOGP
from ..pictures import DATA, INK, SERIES
from .canvas import canvas, plain
from .draw import draw

__all__ = ["calibration", "comparison"]


def calibration(
    model: HetMOGP, X: Any, Y: Any, *, outputs: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Are predictions as sure as they should be? On the diagonal they are.

    A line for each output shows which share of its values lies in the central interval of each
    nominal coverage, by probability integral transforms. (These are spread at random, from a fixed
    seed, over what has a probability of its own and over what a censored time may have been.) A
    calibrated output leaves the grey band somewhere in one picture of twenty.

    Central intervals say nothing about a yes/no or Categorical output. For these, dots are groups
    of predictions: the predicted probability across, the observed share up, and bars for what
    chance allows 95 times in 100.

    Args:
        model: a fitted model.
        X: inputs, best those of values that were not fitted.
        Y: their outputs.
        outputs: which to draw; all that were observed by default.
        ax: where to draw.
    """
    data = model.fitted.read(X, Y)
    outputs = [outputs] if isinstance(outputs, str) else outputs
    chosen = list(model.output_names_ if outputs is None else outputs)
    for name in chosen:
        likelihood_of(model, name)
    seen = {name: one for name, one in model.fitted.observe(data).items() if name in chosen}
    if not seen:
        raise ValueError(f"Y has no observed value of {', '.join(map(str, chosen))}")
    axes, own = canvas(ax, (7.4, 5.0))
    draw(pictures.calibration(seen), axes)
    if own:
        axes.figure.legend(loc="outside right upper", frameon=False)
    else:
        axes.legend(loc="upper left", frameon=False, fontsize="small")
    return axes


def comparison(joint: HetMOGP, alone: HetMOGP, X: Any, Y: Any, *, ax: Axes | None = None) -> Axes:
    """What sharing gained: the NLPD of a joint model less that of another, for each output.

    The bars are standard errors of the mean difference over the same values; left of zero the
    joint model predicted better. The NLPDs themselves stand to the right.

    Args:
        joint: a fitted model.
        alone: another with the same outputs, such as `independent` ones.
        X: inputs, best those of values that were not fitted.
        Y: their outputs.
        ax: where to draw.
    """
    check_is_fitted(joint, "elbo_")
    check_is_fitted(alone, "elbo_")
    if set(joint.output_names_) != set(alone.output_names_):
        raise ValueError(
            f"the models have different outputs: {', '.join(joint.output_names_)} and "
            f"{', '.join(alone.output_names_)}"
        )
    ours, theirs = joint.fitted.log_densities(X, Y), alone.fitted.log_densities(X, Y)
    names = [name for name in joint.output_names_ if ours[name].size]
    if not names:
        raise ValueError("Y has no observed value to score")
    axes, _ = canvas(ax, (7.5, 1.6 + 0.5 * len(names)))
    axes.axvline(0.0, color="black", lw=1, ls="--", zorder=1)
    columns = ((34, "joint", ours), (104, "independent", theirs))  # points right of the axes
    right_of_axes: dict[str, Any] = {
        "textcoords": "offset points",
        "ha": "center",
        "annotation_clip": False,
    }
    for k, name in enumerate(names):
        difference = theirs[name] - ours[name]
        error = _standard_error(difference)
        colour = INK if difference.mean() <= 0 else SERIES[5]
        axes.errorbar(difference.mean(), k, xerr=error, fmt="o", color=colour, capsize=3)
        for right, _, densities in columns:
            text, at = f"{-densities[name].mean():.3f}".replace("-", "−"), (right, 0)
            place = ("axes fraction", "data")
            axes.annotate(text, (1, k), at, xycoords=place, va="center", **right_of_axes)
    for right, head, _ in columns:
        axes.annotate(
            head, (1, 1), (right, 4), xycoords="axes fraction", color=DATA, **right_of_axes
        )
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.set_xlabel(
        "NLPD, joint − independent (nats per value, ± standard error)\n← joint is better"
    )
    return axes


def _standard_error(values: np.ndarray) -> float:
    """Of the mean; zero where there is one value only."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
