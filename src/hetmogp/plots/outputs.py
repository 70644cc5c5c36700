"""Pictures of one output: along an input, or over a map of two."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from .. import curves
from ..curves import Curve, Seen
from ..inputs import grid as grid_over
from ..inputs import restored
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..prediction import OutputPrediction
from ..tables import Dataset, observe
from .canvas import DATA, GAP, bundle, canvas, legend_for, lines, name_axis, palette, plain

__all__ = ["observations", "posterior", "shade", "surface"]


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

    For a yes/no output the line is its probability and the band what is not known about that
    probability; likewise for the rate of one that has an exposure or a number of trials in a
    column. For any other the line is the mean (the median where there is no finite mean, or where
    classes in order are not numbers) and the band holds new values with probability `level`. For a
    Categorical output the probabilities of the classes are stacked.

    Args:
        model: a fitted model.
        output: the output's name.
        x: where to draw, in increasing order; by default 300 inputs over the range of the data, or
            of those that were fitted where none are given.
        along: the input to draw along, by name, where more than one is a number or a date.
        at: values of the other inputs, by name, such as `{"site": "north"}`; by default the median
            of numbers and the most frequent label. Of the data only rows with those labels are
            drawn.
        X: inputs of data to draw as well, in any form that `fit` takes.
        Y: their outputs. Long ranges in which this one was not observed are marked.
        level: of the band.
        draws: how many draws of the expected value to add, each a function of its own.
        legend: whether to add one.
        ax: where to draw.
    """
    likelihood = curves.likelihood_of(model, output)
    data = curves.read_data(model, X, Y)
    line = curves.line_through(model, "posterior", x, along=along, at=at, data=data)
    prediction, shown = _at(model, output, line.table), curves.shown_as(model, line.table, line.j)
    stacked = likelihood.outcome == "nominal"
    curve = None if stacked else curves.curve_of(model, prediction, level)
    paths: Any = curves.bundle_of(model, output, line.table, draws) if draws else []
    axes, own = canvas(ax)
    if data is not None:
        here, every = _of_these_labels(model, line.table[0], curves.seen_of(data, output), data)
        for k, ends in enumerate(curves.gaps(here.inputs[:, line.j], every[:, line.j])):
            two = np.tile(line.table[0], (2, 1))
            two[:, line.j] = ends
            shade(*curves.shown_as(model, two, line.j), ax=axes, label="_" if k else "not observed")
        _draw_seen(curves.shown_as(model, here.inputs, line.j), likelihood, here, axes)
    if curve is None:
        _draw_stack(likelihood, shown, prediction.probabilities, axes)
    else:
        _draw_curve(likelihood, shown, curve, axes)
    bundle(shown, paths, axes)
    name_axis(axes.xaxis, model.columns_[line.j])
    axes.set_ylabel(plain(curves.quantity(output, likelihood)))
    _say_where(model, line.table, [line.j], axes)
    axes.margins(x=0)
    if legend:
        legend_for(axes, own)
    return axes


def _at(model: HetMOGP, output: str, table: np.ndarray) -> OutputPrediction:
    """The prediction of one output at inputs that are numbers already."""
    return model.fitted.predict_at(table, [output])[output]


def observations(
    x: Any, y: Any, *, ax: Axes, label: str = "observed", ticks: bool | None = None
) -> Axes:
    """The data of one output: dots, or ticks where there are only two values (or as asked)."""
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


def _draw_curve(likelihood: Likelihood, x: np.ndarray, curve: Curve, ax: Axes) -> None:
    """A line and a band, with ticks that suit the values of the output."""
    if likelihood.outcome == "circular":
        _around(x, curve, ax)
        return
    lines(x, curve, ax)
    if likelihood.outcome == "ordered":
        labels = likelihood.levels
        ax.set_yticks(labels if likelihood.numeric else range(len(labels)), map(plain, labels))
    elif curve.steps:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def _around(x: np.ndarray, curve: Curve, ax: Axes) -> None:
    """A direction."""
    for k, turned in enumerate(curves.turns(curve)):
        lines(x, turned if k == 0 else turned._replace(line="_", band="_"), ax)
    ax.set_ylim(-np.pi, np.pi)
    ax.set_yticks(np.pi * np.arange(-2, 3) / 2, ["−π", "−π/2", "0", "π/2", "π"])


def _draw_stack(likelihood: Likelihood, x: np.ndarray, probabilities: np.ndarray, ax: Axes) -> None:
    """The probabilities of the classes as areas that fill up one."""
    labels = [plain(label) for label in likelihood.levels]
    ax.stackplot(x, probabilities.T, labels=labels, colors=palette(len(labels)), alpha=0.75, lw=0)
    ax.set_yticks(np.linspace(0, 1, 6))
    ax.set_ylim(0.0, max(1.0, ax.dataLim.y1 + 0.03 if ax.dataLim.y1 > 1.001 else 1.0))


def _of_these_labels(
    model: HetMOGP, row: np.ndarray, here: Seen, data: Dataset, besides: Sequence[int] = ()
) -> tuple[Seen, np.ndarray]:
    """The observed values, and all inputs of the data, that have the labels of a row."""
    held = [column.kind == "category" for column in model.columns_]
    labels = [j for j in np.flatnonzero(held) if j not in besides]
    every = np.concatenate(data.inputs)
    mine, all_mine = ((X[:, labels] == row[labels]).all(axis=1) for X in (here.inputs, every))
    return here.at(mine), every[all_mine]


def _draw_seen(x: np.ndarray, likelihood: Likelihood, here: Seen, ax: Axes) -> None:
    """The data of one output; of classes without order, a row of ticks each above the areas."""
    y, censored = here.values, here.censored
    if likelihood.outcome == "nominal":
        K = len(likelihood.levels)
        apart = min(0.05, 0.4 / K)
        for k, colour in enumerate(palette(K)):
            mine = y == k
            ax.plot(x[mine], 1.0 + apart * (y[mine] + 0.8), "|", ms=6, color=colour, alpha=0.7)
        ax.plot([], [], "|", ms=6, color=DATA, label="observed")
        return
    ticks = True if likelihood.outcome == "ordered" else None
    rates = likelihood.unit_column is not None
    observations(x[~censored], y[~censored], ax=ax, ticks=False if rates else ticks)
    if censored.any():
        look: dict[str, Any] = {"mfc": "none", "color": DATA, "alpha": 0.7, "label": "censored"}
        ax.plot(x[censored], y[censored], "^", ms=4, **look)


def surface(
    model: HetMOGP,
    output: str,
    *,
    X: Any = None,
    Y: Any = None,
    grid: int = 60,
    what: Literal["mean", "std"] = "mean",
    label: Any = None,
    above: float | None = None,
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
        grid: how many inputs each way, over the range of the data, or of those that were
            fitted.
        what: "mean" (for a yes/no output its probability), or "std", the standard deviation of new
            values.
        label: of an output with classes: the class whose probability to draw. For a Categorical
            output the most probable class is drawn without it.
        above: a limit: draw how probable it is that a new value exceeds it.
        inputs: the names of the two inputs to draw over, where there are more; the others are held
            at their medians.
        ax: where to draw.
    """
    likelihood = curves.likelihood_of(model, output)
    if what not in ("mean", "std"):
        raise ValueError(f'what must be "mean" or "std", not {what!r}')
    if above is not None and (label is not None or what != "mean"):
        raise ValueError("above asks for a probability: leave out what and label")
    if grid < 2:
        raise ValueError(f"grid must be at least 2, not {grid}")
    pair, data = _pair(model, inputs), curves.read_data(model, X, Y)
    table, shape = _mesh(model, pair, data, grid)
    prediction = _at(model, output, table)
    if above is None:
        values, title, ticks = _mapped(prediction, what, label)
    else:
        values, title, ticks = prediction.survival(above), f"P({output} > {above:g})", None
    values = np.where(np.isfinite(values), values, np.nan).reshape(shape)
    colours = _colours(likelihood, values, what, label)
    if above is not None:
        colours["norm"] = Normalize(0.0, 1.0)

    axes, _ = canvas(ax, (6.4, 4.8))
    across, up = (curves.shown_as(model, table, j).reshape(shape) for j in pair)
    axes.pcolormesh(across[0], up[:, 0], values, **colours)
    if data is not None:
        here, _ = _of_these_labels(
            model, table[0], curves.seen_of(data, output), data, besides=pair
        )
        x, y = (curves.shown_as(model, here.inputs, j) for j in pair)
        look: dict[str, Any] = {"color": DATA}
        if what == "mean":
            mine = here.values if label is None else likelihood.decode(here.codes) == label
            mine = mine if above is None else here.codes > above
            look = {"c": mine, **colours}
        axes.scatter(x, y, s=16, linewidths=0.5, edgecolors="white", label="observed", **look)
    bar = axes.figure.colorbar(ScalarMappable(**colours), ax=axes, label=plain(title))
    if ticks is not None:
        bar.set_ticks(range(len(ticks)), labels=[plain(tick) for tick in ticks])
    for j, axis in zip(pair, (axes.xaxis, axes.yaxis), strict=True):
        name_axis(axis, model.columns_[j])
    _say_where(model, table, pair, axes)
    return axes


def _say_where(model: HetMOGP, table: np.ndarray, over: Sequence[int], ax: Axes) -> None:
    """In the title: the inputs that are not drawn over, and their values."""
    values = restored(table[:1], model.columns_).iloc[0]
    held = [
        f"{c.name} = {values[c.name]:.4g}" if c.kind == "number" else f"{c.name} = {values[c.name]}"
        for j, c in enumerate(model.columns_)
        if j not in over
    ]
    if held:
        ax.set_title(plain(textwrap.fill(f"at {', '.join(held)}", 60)), fontsize="medium")


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


def _mesh(
    model: HetMOGP, pair: Sequence[int], data: Dataset | None, grid: int
) -> tuple[np.ndarray, tuple[int, int]]:
    """Inputs over a rectangle, row by row from below, and how many there are up and across."""
    up_first = [pair[1], pair[0]]
    columns = [model.columns_[j] for j in up_first]
    points = grid_over(columns, curves.range_of(model, data)[:, up_first], grid)
    table = np.tile(curves.middle(model, data), (len(points), 1))
    table[:, up_first] = points
    up, across = (len(column.levels) or grid for column in columns)
    return table, (up, across)


def _mapped(
    prediction: OutputPrediction, what: str, label: Any
) -> tuple[np.ndarray, str, list[str] | None]:
    """The numbers of a map, what they are, and the names of classes to mark on the colour bar."""
    output, likelihood = prediction.name, prediction.likelihood
    if label is not None:
        if not likelihood.labelled:
            raise ValueError(
                f"output {output!r} is {likelihood.kind}, which has no label {label!r}"
            )
        if what == "std":
            raise ValueError('what="std" is of an output itself: leave out label')
        k = int(observe(output, likelihood, [label])[1][0])
        return prediction.probabilities[:, k], f"P({output} = {label})", None
    if likelihood.outcome == "nominal":
        if what == "std":
            raise ValueError(
                f"output {output!r} is {likelihood.kind}: classes have no standard deviation"
            )
        ticks = list(map(str, likelihood.levels))
        return prediction.probabilities.argmax(axis=1), f"most probable {output}", ticks
    if what == "std":
        unit = likelihood.unit_column  # predictions are for one
        of_one = output if unit is None else f"{output} ({unit} = 1)"
        return prediction.std, f"standard deviation of {of_one}", None
    if likelihood.outcome == "yes/no":
        return prediction.mean, curves.quantity(output, likelihood), None
    named = None if likelihood.numeric else list(map(str, likelihood.levels))
    if not np.isfinite(prediction.mean).all():  # a lifetime's may not be
        return prediction.quantile(0.5), f"median of {curves.quantity(output, likelihood)}", named
    return prediction.mean, f"mean of {curves.quantity(output, likelihood)}", named


def _colours(likelihood: Likelihood, values: np.ndarray, what: str, label: Any) -> dict[str, Any]:
    """The colour map and the scale of a map."""
    colours, ends = "viridis", (np.nanmin(values), np.nanmax(values))
    if what == "std":
        colours = "cividis"
    elif label is not None:
        ends = 0.0, 1.0
    elif likelihood.outcome == "nominal":
        K = len(likelihood.levels)
        return {"cmap": ListedColormap(palette(K)), "norm": BoundaryNorm(np.arange(K + 1) - 0.5, K)}
    elif likelihood.outcome == "yes/no" or not likelihood.numeric:
        ends = likelihood.ends
    elif likelihood.outcome == "circular":
        colours, ends = "twilight", likelihood.ends
    return {"cmap": colours, "norm": Normalize(*ends)}
