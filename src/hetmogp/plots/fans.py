"""Forecasts: one output past the end of the data, as a fan of intervals and possible futures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from .. import curves
from ..model import HetMOGP
from .canvas import INK, SERIES, bundle, canvas, legend_for, name_axis, plain
from .outputs import observations

__all__ = ["fan"]


def fan(
    model: HetMOGP,
    output: str,
    x: Any,
    *,
    along: str | None = None,
    at: Mapping[str, Any] | None = None,
    X: Any = None,
    Y: Any = None,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    draws: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """One output where it is to be forecast: intervals inside each other, and possible futures.

    The intervals hold a new value at each input with the probability they are named after.

    Args:
        model: a fitted model.
        output: the output's name; it must have an order.
        x: where to forecast, in increasing order, such as dates past the end.
        along: the input to draw along, by name, where more than one is a number or a date.
        at: values of the other inputs, by name; see `posterior`.
        X: inputs of data to draw as well, in any form that `fit` takes.
        Y: their outputs.
        levels: of the intervals.
        draws: how many possible futures to add: joint draws of observations along x.
        ax: where to draw.
    """
    likelihood = curves.likelihood_of(model, output)
    data = curves.read_data(model, X, Y)
    line = curves.line_through(model, "fan", x, along=along, at=at, data=data)
    prediction = model.fitted.predict_at(line.table, [output])[output]
    shown = curves.shown_as(model, line.table, line.j)
    intervals = {level: prediction.interval(level) for level in sorted(levels, reverse=True)}
    futures: Any = []
    if draws:
        futures = curves.bundle_of(model, output, line.table, draws, "observations")
    axes, own = canvas(ax)
    ink = np.array(to_rgb(INK))
    for k, (level, (lower, upper)) in enumerate(intervals.items()):
        depth = 0.15 + 0.35 * k / max(len(intervals) - 1, 1)
        colour = tuple(1.0 - depth * (1.0 - ink))  # a mixture with white
        axes.fill_between(shown, lower, upper, label=f"{100 * level:g}%", color=colour, lw=0)
    axes.plot(shown, prediction.quantile(0.5), color=INK, lw=2, label="median")
    bundle(shown, futures, axes, SERIES[5])
    if data is not None:
        seen = curves.seen_of(data, output)
        observations(curves.shown_as(model, seen.inputs, line.j), seen.codes, ax=axes)
    name_axis(axes.xaxis, model.columns_[line.j])
    axes.set_ylabel(plain(output if likelihood.numeric else f"{output} (class)"))
    axes.margins(x=0)
    legend_for(axes, own)
    return axes
