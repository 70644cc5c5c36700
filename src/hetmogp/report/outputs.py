"""One output over the inputs, as pictures to hover over and to zoom."""

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ..columns import Column
from ..curves import (
    Curve,
    curve_of,
    gaps,
    line_through,
    quantity,
    range_of,
    seen_of,
    turns,
)
from ..inputs import restored
from ..likelihoods import Bernoulli, Categorical, Likelihood, Ordinal, VonMises
from ..model import HetMOGP
from ..tables import Dataset
from .canvas import COLOURS, DATA, GAP, NAMES, faint, finish

__all__ = ["LEVEL", "of_output"]

LEVEL = 0.9  # of bands and intervals
POINTS = 100  # of a curve
SIDE = 40  # of a map
MOST_CURVES = 8  # combinations of labels, each a curve
SHOWN = 3  # of them, until the reader asks for more
MOST_SLICES = 4  # inputs looked along, where there are more than two
MOST_DOTS = 2000  # observed values in one picture


def of_output(model: HetMOGP, name: str, data: Dataset | None) -> list[tuple[str, go.Figure]]:
    """One output over the inputs: along one, over a map of two, or along several in turn."""
    free = [column.name for column in model.columns_ if column.kind != "category"]
    if not free:
        return [_by_label(model, name)]
    if len(free) == 2:
        return [_map(model, name, free, data)]
    if isinstance(model.likelihoods_[name], Categorical):
        places = _combinations(model, most=MOST_SLICES)
        return [_classes(model, name, a, at, data) for a in free[:MOST_SLICES] for at in places]
    return [_along(model, name, along, data) for along in free[:MOST_SLICES]]


# -- along one input -------------------------------------------------------------------------------


def _along(model: HetMOGP, name: str, along: str, data: Dataset | None) -> tuple[str, go.Figure]:
    """Curves along an input, one per combination of labels, other inputs at their median."""
    figure = go.Figure()
    likelihood, combinations = model.likelihoods_[name], _combinations(model)
    for k, at in enumerate(combinations):
        line = line_through(model, "report", along=along, at=at, data=data, points=POINTS)
        asked, where = restored(line.table, model.columns_), ", ".join(map(str, at.values()))
        shown: Any = True if k < SHOWN else "legendonly"
        colour = COLOURS[k % len(COLOURS)]
        drawn = curve_of(model, model.predict(asked, [name])[name], LEVEL)
        around = isinstance(likelihood, VonMises)
        for turn, part in enumerate(turns(drawn) if around else [drawn]):
            _add_curve(figure, asked[along], part, where, colour, shown, first=turn == 0)
        if data is not None:
            _add_dots(figure, model, name, along, data, at, colour if where else DATA, shown)
    if data is not None and len(combinations) == 1:
        _shade_gaps(figure, model, name, line.j, data)
    finish(figure, _axis(_column(model, along)), quantity(name, likelihood))
    _name_values(figure, likelihood)
    what = f"{name} along {along}: {drawn.line} and {drawn.band}"
    return f"{what}{_beside(model, along, data)}{_of_how_many(model, len(combinations))}", figure


def _name_values(figure: go.Figure, likelihood: Likelihood) -> None:
    """Ticks that suit the values of an output: classes by name, directions in parts of a turn."""
    if isinstance(likelihood, Ordinal) and not likelihood.numeric:
        labels = likelihood.classes
        figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=list(map(str, labels)))
    elif isinstance(likelihood, VonMises):
        quarters = np.pi * np.arange(-2, 3) / 2
        said = ["−π", "−π/2", "0", "π/2", "π"]
        figure.update_yaxes(range=[-np.pi, np.pi], tickvals=quarters, ticktext=said)


def _of_how_many(model: HetMOGP, shown: int) -> str:
    """A sentence where there are more labels than can be shown."""
    every = int(np.prod([len(c.levels) for c in model.columns_ if c.kind == "category"] or [1]))
    return (
        f" Of {every} labels or combinations the first {shown} are shown." if every > shown else ""
    )


def _classes(
    model: HetMOGP, name: str, along: str, at: Mapping[str, Any], data: Dataset | None
) -> tuple[str, go.Figure]:
    """The probability of each class along an input, at some labels."""
    figure = go.Figure()
    likelihood = model.likelihoods_[name]
    line = line_through(model, "report", along=along, at=at, data=data, points=POINTS)
    asked = restored(line.table, model.columns_)
    probabilities = model.predict(asked, [name])[name].probabilities
    for c, label in enumerate(likelihood.classes):
        figure.add_scatter(
            x=asked[along],
            y=probabilities[:, c],
            mode="lines",
            name=str(label),
            line={"color": COLOURS[c % len(COLOURS)]},
            hovertemplate="%{y:.3f}",
        )
    if data is not None:
        _add_dots(figure, model, name, along, data, at, DATA, True)
    finish(figure, _axis(_column(model, along)), quantity(name, likelihood))
    where = f" at {', '.join(map(str, at.values()))}" if at else ""
    what = f"{name} along {along}{where}: the probability of each class"
    more = _of_how_many(model, MOST_SLICES)
    return f"{what}{_beside(model, along, data)}{more}", figure


def _beside(model: HetMOGP, along: str, data: Dataset | None) -> str:
    """The rest of a caption."""
    others = [c.name for c in model.columns_ if c.kind != "category" and c.name != along]
    held = f" Other inputs ({', '.join(others)}) are held at their median." if others else ""
    seen = "" if data is None else "; dots are observed values"
    return f"{seen}.{held}"


def _shade_gaps(figure: go.Figure, model: HetMOGP, name: str, j: int, data: Dataset) -> None:
    """Mark where this output was not observed, though the data go on."""
    seen, every = seen_of(data, name).inputs[:, j], np.concatenate(data.inputs)[:, j]
    for ends in gaps(seen, every):
        begin, end = np.asarray(model.columns_[j].decode(np.array(ends)))
        figure.add_vrect(x0=begin, x1=end, fillcolor=GAP, opacity=0.18, line_width=0, layer="below")


def _add_curve(
    figure: go.Figure,
    x: pd.Series,
    drawn: Curve,
    where: str,
    colour: str,
    visible: Any,
    first: bool = True,
) -> None:
    group = where or "all"
    shape = "hv" if drawn.steps else "linear"
    edge = {"width": 0, "shape": shape}
    for y, fill in ((drawn.upper, None), (drawn.lower, "tonexty")):
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines",
            line=edge,
            fill=fill,
            fillcolor=faint(colour),
            legendgroup=group,
            showlegend=False,
            visible=visible,
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=x,
        y=drawn.centre,
        mode="lines",
        line={"color": colour, "width": 2},
        name=where or f"{drawn.line}, {drawn.band}",
        showlegend=first,
        legendgroup=group,
        visible=visible,
        customdata=np.stack([drawn.lower, drawn.upper], axis=1),
        hovertemplate="%{y:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g})",
    )


def _add_dots(
    figure: go.Figure,
    model: HetMOGP,
    name: str,
    along: str,
    data: Dataset,
    at: Mapping[str, Any],
    colour: str,
    visible: Any,
) -> None:
    """What was observed with these labels."""
    shown, values, ended = _observed(model, name, data)
    likelihood, where = model.likelihoods_[name], ", ".join(map(str, at.values()))
    mine = np.ones(len(values), bool)
    for column, level in at.items():
        mine &= (shown[column] == level).to_numpy()
    place = f" · {where}" if where else ""
    said = [
        f"{'' if end else 'at least '}{_in_words(likelihood, v)}{place}"
        for v, end in zip(values[mine], ended[mine], strict=True)
    ]
    colours: Any = colour
    if isinstance(likelihood, Categorical):  # a row for each class, above the probabilities
        colours = [COLOURS[int(v) % len(COLOURS)] for v in values[mine]]
        values = 1.04 + 0.04 * values
    figure.add_scatter(
        x=shown[along][mine],
        y=values[mine],
        mode="markers",
        marker={
            "color": colours,
            "size": 5,
            "opacity": 0.55,
            "symbol": ["circle" if end else "triangle-up-open" for end in ended[mine]],
        },
        name="observed",
        legendgroup=where or "observed",
        showlegend=colour == DATA,
        visible=visible,
        text=said,
        hovertemplate="observed %{text}<extra></extra>",
    )


def _in_words(likelihood: Likelihood, value: float) -> str:
    """An observed value to hover over."""
    if isinstance(likelihood, Categorical) or not likelihood.numeric:
        return str(likelihood.classes[int(value)])
    return f"{value:.4g}"


def _by_label(model: HetMOGP, name: str) -> tuple[str, go.Figure]:
    """Means and intervals at every combination of labels, where there are no other inputs."""
    figure = go.Figure()
    at = pd.DataFrame(_combinations(model, most=50))
    x = at.astype(str).agg(", ".join, axis=1)
    likelihood = model.likelihoods_[name]
    if isinstance(likelihood, Categorical):
        probabilities = model.predict(at, [name])[name].probabilities
        for c, label in enumerate(likelihood.classes):
            figure.add_bar(x=x, y=probabilities[:, c], name=str(label))
        figure.update_layout(barmode="stack")
    else:
        drawn = curve_of(model, model.predict(at, [name])[name], LEVEL)
        figure.add_scatter(
            x=x,
            y=drawn.centre,
            mode="markers",
            marker={"color": COLOURS[0], "size": 9},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": drawn.upper - drawn.centre,
                "arrayminus": drawn.centre - drawn.lower,
            },
            name=f"{drawn.line}, {drawn.band}",
        )
    finish(figure, {"title": ", ".join(at.columns), **NAMES}, quantity(name, likelihood))
    return f"{name} by {', '.join(at.columns)}.", figure


# -- over two inputs -------------------------------------------------------------------------------


def _map(
    model: HetMOGP, name: str, pair: Sequence[str], data: Dataset | None
) -> tuple[str, go.Figure]:
    """A map of the mean, or of the most probable class, at the first labels."""
    across, up = pair
    at = _combinations(model, most=1)[0]
    low, high = (restored(end[None], model.columns_) for end in range_of(model, data))
    sides = [_between(model, column, low, high) for column in pair]
    grid = {across: np.tile(sides[0], SIDE), up: np.repeat(sides[1], SIDE)}
    asked = pd.DataFrame({c.name: grid.get(c.name, at.get(c.name)) for c in model.columns_})
    prediction = model.predict(asked, [name])[name]
    likelihood = prediction.likelihood
    look: dict[str, Any] = {"colorscale": "Viridis", "colorbar": {"thickness": 12}}
    if isinstance(likelihood, Categorical):
        labels, probabilities = likelihood.classes, prediction.probabilities
        z, extra = probabilities.argmax(axis=1).astype(float), probabilities.max(axis=1)
        what, K = "the most probable class", len(labels)
        colours = [COLOURS[c % len(COLOURS)] for c in range(K)]
        steps = [(end / K, colour) for c, colour in enumerate(colours) for end in (c, c + 1)]
        ticks = {"tickvals": list(range(K)), "ticktext": list(map(str, labels))}
        look = {"colorscale": steps, "zmin": -0.5, "zmax": K - 0.5, "opacity": 0.6}
        look["colorbar"] = {"thickness": 12, **ticks}
        hover = "probability %{customdata:.2f}<extra></extra>"
    else:
        z, extra = prediction.mean, prediction.std
        what = "probability" if isinstance(likelihood, Bernoulli) else "mean"
        if not np.isfinite(z).all():  # a lifetime's mean may not be
            z, what = prediction.quantile(0.5), "median"
        hover = f"{what} %{{z:.4g}}, standard deviation %{{customdata:.2g}}<extra></extra>"
    figure = go.Figure()
    figure.add_heatmap(
        x=sides[0],
        y=sides[1],
        z=z.reshape(SIDE, SIDE),
        customdata=extra.reshape(SIDE, SIDE),
        hovertemplate=hover,
        **look,
    )
    if data is not None:
        shown, values, _ = _observed(model, name, data)
        mine = np.ones(len(values), bool)
        for column, level in at.items():
            mine &= (shown[column] == level).to_numpy()
        shown, values = shown[mine], values[mine]
        marker: dict[str, Any] = {"size": 5, "line": {"color": "white", "width": 0.6}}
        if isinstance(likelihood, Categorical):
            marker["color"] = [COLOURS[int(v) % len(COLOURS)] for v in values]
        else:
            scale = {"colorscale": "Viridis", "cmin": float(np.min(z)), "cmax": float(np.max(z))}
            marker |= {"color": values, **scale}
        figure.add_scatter(
            x=shown[across],
            y=shown[up],
            mode="markers",
            name="observed",
            marker=marker,
            text=[_in_words(likelihood, v) for v in values],
            hovertemplate="observed %{text}<extra></extra>",
        )
    finish(figure, _axis(_column(model, across)), None, height=440)
    figure.update_yaxes(**_axis(_column(model, up)))
    where = f" at {', '.join(map(str, at.values()))}" if at else ""
    dots = "" if data is None else "; dots are observed values"
    said = f"{name} over {across} and {up}{where}: {what}{dots}."
    return f"{said}{_of_how_many(model, 1)}", figure


def _between(model: HetMOGP, name: str, low: pd.DataFrame, high: pd.DataFrame) -> np.ndarray:
    """Values of an input over its range."""
    column = _column(model, name)
    ends = [float(column.encode(end[name], "X")[0]) for end in (low, high)]
    return np.asarray(column.decode(np.linspace(ends[0], ends[1], SIDE)))


# -- what they have in common ----------------------------------------------------------------------


def _axis(column: Column) -> dict[str, str]:
    return {"title": f"{column.name} (days)" if column.kind == "duration" else column.name}


def _column(model: HetMOGP, name: str) -> Column:
    return next(column for column in model.columns_ if column.name == name)


def _combinations(model: HetMOGP, most: int = MOST_CURVES) -> list[dict[str, Any]]:
    """Labels of every input that has them, in all combinations, as many as can be shown."""
    labels = [column for column in model.columns_ if column.kind == "category"]
    every = product(*(column.levels for column in labels))
    names = [column.name for column in labels]
    return [dict(zip(names, levels, strict=True)) for levels in islice(every, most)]


def _observed(
    model: HetMOGP, name: str, data: Dataset
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Inputs and values that were observed, not too many, as numbers to draw; which are exact."""
    seen = seen_of(data, name)
    rows = np.arange(len(seen.values))
    if len(rows) > MOST_DOTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_DOTS, replace=False))
    some = seen.at(rows)
    return restored(some.inputs, model.columns_), some.values, ~some.censored
