"""Pictures of one output: along an input, past the end of the data, or over a map of two."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from .. import curves, pictures
from ..model import HetMOGP
from ..pictures import DATA, GAP
from ..pictures.maps import mesh
from .canvas import canvas, legend_for
from .draw import draw

__all__ = ["fan", "observations", "posterior", "shade", "surface"]


def posterior(
    model: HetMOGP,
    output: str,
    x: Any = None,
    *,
    along: str | None = None,
    at: Mapping[str, Any] | None = None,
    X: Any = None,
    Y: Any = None,
    level: float = 0.9,
    draws: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One output along an input: what is expected, and how far it may be off.

    For a yes/no output the line is its probability, and the band shows how uncertain that
    probability is. The same is drawn for the rate of an output with a column of exposures or of
    numbers of trials. For any other output the line is the mean (the median if there is no finite
    mean, or if classes in order are not numbers), and the band holds new values with probability
    `level`. For a Categorical output the probabilities of the classes are stacked.

    Args:
        model: a fitted model.
        output: the output's name.
        x: where to draw, in increasing order; by default 300 inputs over the range of the data
            given, or of the data that were fitted.
        along: the input to draw along, by name, where more than one is a number or a date.
        at: values of the other inputs, by name, such as `{"site": "north"}`; by default the median
            of numbers and the most frequent label. Only data with those labels are drawn.
        X: inputs of data to draw as well, in any form that `fit` takes.
        Y: their outputs. Long ranges in which this one was not observed are marked.
        level: of the band.
        draws: how many draws of the expected value to add, each a function of its own.
        legend: whether to add one.
        ax: where to draw.
    """
    curves.likelihood_of(model, output)
    data = curves.read_data(model, X, Y)
    line = curves.line_through(model, "posterior", x, along=along, at=at, data=data)
    place = pictures.Place(line.table)
    picture = pictures.along(model, output, [place], line.j, data, level=level, draws=draws)
    axes, own = canvas(ax)
    draw(picture, axes)
    axes.margins(x=0)
    if legend:
        legend_for(axes, own)
    return axes


def observations(
    x: Any, y: Any, *, ax: Axes, label: str = "observed", ticks: bool | None = None
) -> Axes:
    """The data of one output: dots, or ticks if all are 0 or 1; `ticks` overrides this."""
    x, y = np.asarray(x).reshape(-1), np.asarray(y, float)
    if ticks is None:
        ticks = bool(np.isin(y[~np.isnan(y)], (0.0, 1.0)).all())
    marker, size = ("|", 8.0) if ticks else (".", 3.0)
    ax.plot(x, y, ls="", marker=marker, ms=size, color=DATA, alpha=0.5, label=label)
    return ax


def shade(begin: Any, end: Any, *, ax: Axes, label: str = "not observed") -> Axes:
    """Mark a range of the input where an output was not observed."""
    ax.axvspan(begin, end, color=GAP, alpha=0.18, lw=0, label=label)
    return ax


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
    curves.likelihood_of(model, output)
    data = curves.read_data(model, X, Y)
    line = curves.line_through(model, "fan", x, along=along, at=at, data=data)
    picture = pictures.fan(model, output, line, data, levels=levels, draws=draws)
    axes, own = canvas(ax)
    draw(picture, axes)
    axes.margins(x=0)
    legend_for(axes, own)
    return axes


def surface(
    model: HetMOGP,
    output: str,
    *,
    X: Any = None,
    Y: Any = None,
    grid: int = 60,
    what: Literal["mean", "std"] = "mean",
    label: Any = None,
    above: Any = None,
    inputs: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One output as a map over two inputs.

    Observed points have the colour of their own value on the scale of the map.

    Args:
        model: a fitted model with at least two inputs.
        output: the output's name.
        X: inputs of data to draw as well, in any form that `fit` takes.
        Y: their outputs.
        grid: how many inputs each way, over the range of the data given, or of the data that were
            fitted.
        what: "mean" (for a yes/no output its probability), or "std", the standard deviation of new
            values.
        label: for an output with classes, the class whose probability to draw. Without it, a
            Categorical output is drawn by its most probable class.
        above: a limit, of classes in order a label; then the map shows how probable it is that a
            new value exceeds it.
        inputs: the names of the two inputs to draw over, where there are more; the others are held
            at their medians.
        ax: where to draw.
    """
    curves.likelihood_of(model, output)
    ask = pictures.Map(what, label, above)
    ask.check()
    if grid < 2:
        raise ValueError(f"grid must be at least 2, not {grid}")
    pair, data = _pair(model, inputs), curves.read_data(model, X, Y)
    table, shape = mesh(model, pair, data, grid)
    prediction = model.fitted.predict_at(table, [output])[output]
    picture = pictures.over_map(model, prediction, table, shape, pair, data, ask)
    axes, _ = canvas(ax, (6.4, 4.8))
    draw(picture, axes)
    return axes


def _pair(model: HetMOGP, inputs: Sequence[str] | None) -> list[int]:
    """The positions of the two inputs to draw over."""
    names = [column.name for column in model.columns_]
    there = f"the model has {len(names)} ({', '.join(names)})"
    if inputs is None and len(names) != 2:
        choose = f": choose two, such as inputs={tuple(names[:2])!r}" if len(names) > 2 else ""
        raise ValueError(f"surface draws over two inputs; {there}{choose}")
    chosen = names if inputs is None else [inputs] if isinstance(inputs, str) else [*inputs]
    if len(chosen) != 2 or chosen[0] == chosen[1]:
        raise ValueError(f"inputs must name two inputs, not {inputs!r}; {there}")
    for name in chosen:
        if name not in names:
            raise ValueError(f"no input {name!r}; {there}")
    return [names.index(name) for name in chosen]
