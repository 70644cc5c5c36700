"""Pictures of one output: along an input, or over a map of two."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from ..curves import (
    Curve,
    Seen,
    class_labels,
    curve_of,
    drawn_values,
    gaps,
    held_at,
    likelihood_of,
    line_through,
    middle,
    numbered,
    per_unit,
    position_of,
    quantity,
    range_of,
    read_data,
    seen_of,
    shown_as,
    turns,
)
from ..inputs import restored
from ..likelihoods import Bernoulli, Categorical, Classes, Likelihood, Ordinal, VonMises
from ..model import HetMOGP
from ..prediction import OutputPrediction
from ..tables import Dataset
from .canvas import DATA, GAP, canvas, legend_for, lines, name_axis, palette, plain

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
        Y: their outputs. Long stretches in which this one was not observed are marked.
        level: of the band.
        legend: whether to add one.
        ax: where to draw.
    """
    likelihood = likelihood_of(model, output)
    data = read_data(model, X, Y)
    line = line_through(model, "posterior", x, along=along, at=at, data=data)
    asked, shown = restored(line.table, model.columns_), shown_as(model, line.table, line.j)
    drawn: Curve | np.ndarray
    if isinstance(likelihood, Categorical):
        drawn = model.predict(asked, [output])[output].probabilities
    else:
        drawn = curve_of(model, output, asked, level)
    axes, own = canvas(ax)
    if data is not None:
        here, every = _of_these_labels(model, line.table[0], seen_of(data, output), data)
        for k, ends in enumerate(gaps(here.inputs[:, line.j], every[:, line.j])):
            stretch = np.tile(line.table[0], (2, 1))
            stretch[:, line.j] = ends
            shade(*shown_as(model, stretch, line.j), ax=axes, label="_" if k else "not observed")
        _draw_seen(shown_as(model, here.inputs, line.j), likelihood, here, axes)
    if isinstance(drawn, Curve):
        _draw_curve(likelihood, shown, drawn, axes)
    else:
        _draw_stack(likelihood, shown, drawn, axes)
    name_axis(axes.xaxis, model.columns_[line.j])
    axes.set_ylabel(plain(quantity(output, likelihood)))
    held = held_at(model, line.table[:1], [line.j])
    if held:
        axes.set_title(plain(textwrap.fill(f"at {held}", 60)), fontsize="medium")
    axes.margins(x=0)
    if legend:
        legend_for(axes, own)
    return axes


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
    """Mark a stretch of the input where an output was not observed."""
    ax.axvspan(begin, end, color=GAP, alpha=0.18, lw=0, label=label)
    return ax


def _draw_curve(likelihood: Likelihood, x: np.ndarray, curve: Curve, ax: Axes) -> None:
    """A line and a band, with ticks that suit the values of the output."""
    if isinstance(likelihood, VonMises):
        _around(x, curve, ax)
        return
    lines(x, curve, ax)
    if isinstance(likelihood, Ordinal):
        labels = class_labels(likelihood)
        ax.set_yticks(labels if numbered(likelihood) else range(len(labels)), map(plain, labels))
    elif curve.steps:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def _around(x: np.ndarray, curve: Curve, ax: Axes) -> None:
    """A direction."""
    for k, turned in enumerate(turns(curve)):
        lines(x, turned if k == 0 else turned._replace(line="_", band="_"), ax)
    ax.set_ylim(-np.pi, np.pi)
    ax.set_yticks(np.pi * np.arange(-2, 3) / 2, ["−π", "−π/2", "0", "π/2", "π"])


def _draw_stack(likelihood: Likelihood, x: np.ndarray, probabilities: np.ndarray, ax: Axes) -> None:
    """The probabilities of the classes as areas that fill up one."""
    labels = [plain(label) for label in class_labels(likelihood)]
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
    given = {argument: column[mine] for argument, column in here.given.items()}
    return Seen(here.inputs[mine], here.values[mine], given), every[all_mine]


def _draw_seen(x: np.ndarray, likelihood: Likelihood, here: Seen, ax: Axes) -> None:
    """The data of one output; of classes without order, a row of ticks each above the areas."""
    if isinstance(likelihood, Categorical):
        K = len(class_labels(likelihood))
        apart = min(0.05, 0.4 / K)
        for k, colour in enumerate(palette(K)):
            mine = here.values == k
            y = np.full(mine.sum(), 1.0 + apart * (k + 0.8))
            ax.plot(x[mine], y, "|", ms=6, color=colour, alpha=0.7)
        ax.plot([], [], "|", ms=6, color=DATA, label="observed")
        return
    y, ended = drawn_values(likelihood, here), here.given.get("event", np.ones(len(x))) > 0
    ticks = True if isinstance(likelihood, Ordinal) else None
    observations(x[ended], y[ended], ax=ax, ticks=ticks if per_unit(likelihood) is None else False)
    if not ended.all():
        ax.plot(
            x[~ended], y[~ended], "^", ms=4, mfc="none", color=DATA, alpha=0.7, label="censored"
        )


def surface(
    model: HetMOGP,
    output: str,
    *,
    X: Any = None,
    Y: Any = None,
    grid: int = 60,
    what: Literal["mean", "std"] = "mean",
    label: Any = None,
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
        inputs: the names of the two inputs to draw over, where there are more; the others are held
            at their medians.
        ax: where to draw.
    """
    likelihood = likelihood_of(model, output)
    if what not in ("mean", "std"):
        raise ValueError(f'what must be "mean" or "std", not {what!r}')
    if grid < 2:
        raise ValueError(f"grid must be at least 2, not {grid}")
    pair, data = _pair(model, inputs), read_data(model, X, Y)
    table, shape = _mesh(model, pair, data, grid)
    prediction = model.predict(restored(table, model.columns_), [output])[output]
    values, title, ticks = _mapped(prediction, what, label)
    values = np.where(np.isfinite(values), values, np.nan).reshape(shape)
    colours = _colours(likelihood, values, what, label)

    axes, _ = canvas(ax, (6.4, 4.8))
    across, up = (shown_as(model, table, j).reshape(shape) for j in pair)
    axes.pcolormesh(across[0], up[:, 0], values, **colours)
    if data is not None:
        here, _ = _of_these_labels(model, table[0], seen_of(data, output), data, besides=pair)
        x, y = (shown_as(model, here.inputs, j) for j in pair)
        look: dict[str, Any] = {"color": DATA}
        if what == "mean":
            look = {"c": drawn_values(likelihood, here, label), **colours}
        axes.scatter(x, y, s=16, linewidths=0.5, edgecolors="white", label="observed", **look)
    bar = axes.figure.colorbar(ScalarMappable(**colours), ax=axes, label=plain(title))
    if ticks is not None:
        bar.set_ticks(range(len(ticks)), labels=[plain(tick) for tick in ticks])
    for j, axis in zip(pair, (axes.xaxis, axes.yaxis), strict=True):
        name_axis(axis, model.columns_[j])
    held = held_at(model, table[:1], pair)
    if held:
        axes.set_title(plain(textwrap.fill(f"at {held}", 60)), fontsize="medium")
    return axes


def _pair(model: HetMOGP, inputs: Sequence[str] | None) -> list[int]:
    """The positions of the two inputs to draw over."""
    names = [column.name for column in model.columns_]
    found = f"the model has {len(names)} ({', '.join(names)})"
    if inputs is None:
        if len(names) != 2:
            choose = ": choose two, such as inputs=" + repr(tuple(names[:2]))
            raise ValueError(
                f"surface draws over two inputs; {found}{choose if len(names) > 2 else ''}"
            )
        return [0, 1]
    chosen = [str(name) for name in inputs] if not isinstance(inputs, str) else [inputs]
    if len(chosen) != 2 or chosen[0] == chosen[1]:
        raise ValueError(f"inputs must name two inputs, not {inputs!r}; {found}")
    for name in chosen:
        if name not in names:
            raise ValueError(f"no input {name!r}; {found}")
    return [names.index(name) for name in chosen]


def _mesh(
    model: HetMOGP, pair: Sequence[int], data: Dataset | None, grid: int
) -> tuple[np.ndarray, tuple[int, int]]:
    """Inputs over a rectangle, row by row from below, and how many there are up and across."""
    rows = np.concatenate(model.inducing_inputs_ if data is None else data.inputs)
    lowest, highest = range_of(model, data)
    sides = [
        np.arange(float(len(model.columns_[j].levels)))
        if model.columns_[j].kind == "category"
        else np.linspace(lowest[j], highest[j], grid)
        for j in pair
    ]
    shape = len(sides[1]), len(sides[0])
    table = np.tile(middle(model, rows), (shape[0] * shape[1], 1))
    table[:, pair] = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    return table, shape


def _mapped(
    prediction: OutputPrediction, what: str, label: Any
) -> tuple[np.ndarray, str, list[str] | None]:
    """The numbers of a map, what they are, and the names of classes to mark on the colour bar."""
    output, likelihood = prediction.name, prediction.likelihood
    if label is not None:
        if not isinstance(likelihood, Classes):
            raise ValueError(
                f"output {output!r} is {likelihood.kind}, which has no label {label!r}"
            )
        if what == "std":
            raise ValueError('what="std" is of an output itself: leave out label')
        k = int(position_of(output, likelihood, label))
        return prediction.probabilities[:, k], f"P({output} = {label})", None
    if isinstance(likelihood, Categorical):
        if what == "std":
            raise ValueError(
                f"output {output!r} is Categorical: classes have no standard deviation"
            )
        ticks = [str(c) for c in class_labels(likelihood)]
        return prediction.probabilities.argmax(axis=1), f"most probable {output}", ticks
    if what == "std":
        return prediction.std, f"standard deviation of {_of_one(output, likelihood)}", None
    if isinstance(likelihood, Bernoulli):
        return prediction.mean, quantity(output, likelihood), None
    named = None if numbered(likelihood) else [str(c) for c in class_labels(likelihood)]
    if not np.isfinite(prediction.mean).all():  # a lifetime's may not be
        return prediction.quantile(0.5), f"median of {quantity(output, likelihood)}", named
    return prediction.mean, f"mean of {quantity(output, likelihood)}", named


def _of_one(output: str, likelihood: Likelihood) -> str:
    """An output as predictions have it: for an exposure, or a number of trials, of one."""
    per = per_unit(likelihood)
    return output if per is None else f"{output} ({per[1]} = 1)"


def _colours(likelihood: Likelihood, values: np.ndarray, what: str, label: Any) -> dict[str, Any]:
    """The colour map and the scale of a map."""
    K = len(class_labels(likelihood))
    ends = np.nanmin(values), np.nanmax(values)
    if what == "std":
        return {"cmap": "cividis", "norm": Normalize(*ends)}
    if label is not None or isinstance(likelihood, Bernoulli):
        return {"cmap": "viridis", "norm": Normalize(0.0, 1.0)}
    if isinstance(likelihood, Categorical):
        return {
            "cmap": ListedColormap(palette(K)),
            "norm": BoundaryNorm(np.arange(K + 1) - 0.5, K),
        }
    if isinstance(likelihood, VonMises):
        return {"cmap": "twilight", "norm": Normalize(-np.pi, np.pi)}
    if not numbered(likelihood):
        ends = 0.0, K - 1.0
    return {"cmap": "viridis", "norm": Normalize(*ends)}
