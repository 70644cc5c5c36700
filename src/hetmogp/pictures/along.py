"""One output along an input: curves and their bands, draws, what was observed, forecasts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import curves
from ..curves import Curve, Seen
from ..inputs import restored
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..prediction import OutputPrediction
from ..tables import Dataset
from .marks import (
    INK,
    SERIES,
    Axis,
    Band,
    Bars,
    Dots,
    Line,
    Mark,
    Picture,
    Shade,
    Shape,
    Spans,
    axis_of,
    palette,
    short,
)

__all__ = [
    "Place",
    "along",
    "by_label",
    "fan",
    "observed_marks",
    "of_these_labels",
    "place_of",
    "where",
]

LEVELS = (0.5, 0.8, 0.95)  # of a fan
TURN = np.pi * np.arange(-2, 3) / 2
Predict = Callable[[np.ndarray], OutputPrediction]


class Place(NamedTuple):
    """A line along which to draw.

    Attributes:
        table: (n, p), the inputs on it.
        name: of its labels; empty where it is the only line.
        hidden: whether it is hidden until the reader asks for it.
        colour: of its curve.
    """

    table: np.ndarray
    name: str = ""
    hidden: bool = False
    colour: str = INK


def along(
    model: HetMOGP,
    output: str,
    places: Sequence[Place],
    j: int,
    data: Dataset | None,
    *,
    level: float,
    draws: int = 0,
    predict: Predict | None = None,
) -> Picture:
    """One output along input j, at one place or several.

    Args:
        model: a fitted model.
        output: its name.
        places: the lines to draw along. Classes without an order take one.
        j: the position of the input.
        data: what was observed, to be drawn as well.
        level: of the band.
        draws: how many draws of the expected value to add, along the first line.
        predict: gives the prediction at a table; by default the model does.
    """
    likelihood = curves.likelihood_of(model, output)
    predict = predict or (lambda table: model.fitted.predict_at(table, [output])[output])
    marks: list[Mark] = []
    whole = False
    for k, place in enumerate(places):
        x, prediction = curves.shown_as(model, place.table, j), predict(place.table)
        look: dict[str, Any] = {"group": place.name, "hidden": place.hidden}
        paths = curves.bundle_of(model, output, place.table, draws) if draws and k == 0 else ()
        if data is not None:
            seen, every = of_these_labels(model, place.table[0], output, data, besides=(j,))
            if len(places) == 1:
                marks += _gaps(model, place.table[0], j, seen, every)
            dots = observed_marks(likelihood, curves.shown_as(model, seen.inputs, j), seen)
            marks += [_of_place(mark, place) for mark in dots]
        if likelihood.outcome == "nominal":
            marks += _classes(likelihood, x, prediction.probabilities)
            continue
        curve = curves.curve_of(model, prediction, level)
        whole = whole or curve.steps
        marks += _curve(likelihood, x, curve, place, look)
        marks += _bundle(x, paths, place.colour if place.name else SERIES[5], look)
    y = _values_axis(output, likelihood, whole)
    at = where(model, places[0].table, [j]) if len(places) == 1 else ""
    return Picture(marks, axis_of(model.columns_[j]), y, title=at)


def _of_place(dots: Dots, place: Place) -> Dots:
    """What was observed at one of several places has its colour, and no entry in the legend."""
    if not place.name:
        return dots
    return replace(dots, name="", group=place.name, hidden=place.hidden, colour=place.colour)


def _curve(
    likelihood: Likelihood, x: np.ndarray, curve: Curve, place: Place, look: dict[str, Any]
) -> list[Mark]:
    """A line and its band; of directions, again a turn above and below."""
    marks: list[Mark] = []
    around = likelihood.outcome == "circular"
    several = bool(place.name)
    for turn, part in enumerate(curves.turns(curve) if around else [curve]):
        again = turn > 0
        words = _in_words(likelihood, part)
        name = "" if again else place.name or part.line
        marks += [
            Band(
                x=x,
                lower=part.lower,
                upper=part.upper,
                steps=part.steps,
                colour=place.colour,
                name="" if several or again else part.band,
                **look,
            ),
            Line(
                x=x,
                y=part.centre,
                steps=part.steps and part.line == "median",
                colour=place.colour,
                words=words,
                name=name,
                **look,
            ),
        ]
    return marks


def _in_words(likelihood: Likelihood, curve: Curve) -> list[str]:
    """The value and the ends of the band at each input."""
    ends = (_said(likelihood, part) for part in (curve.centre, curve.lower, curve.upper))
    return [f"{c} ({a} to {b})" for c, a, b in zip(*ends, strict=True)]


def _said(likelihood: Likelihood, values: np.ndarray) -> list[str]:
    """Values in words: classes in an order by their labels."""
    if likelihood.numeric:
        return list(map(short, values))
    return [str(likelihood.levels[int(value)]) for value in values]


def _bundle(x: np.ndarray, paths: Iterable[np.ndarray], colour: str, look: dict) -> list[Mark]:
    """Draws of a function, as thin lines."""
    thin: dict[str, Any] = {"width": 0.8, "opacity": 0.6, "colour": colour}
    own = {**look, "group": f"draws {look['group']}" if look.get("group") else "draws"}
    return [
        Line(x=x, y=path, name="" if k else "draws", **thin, **own) for k, path in enumerate(paths)
    ]


def _classes(likelihood: Likelihood, x: np.ndarray, probabilities: np.ndarray) -> list[Mark]:
    """The probabilities of the classes as areas that fill up one."""
    tops = probabilities.cumsum(axis=1)
    labels = list(map(str, likelihood.levels))
    return [
        Band(
            x=x,
            lower=tops[:, k] - probabilities[:, k],
            upper=tops[:, k],
            colour=colour,
            opacity=0.75,
            words=[f"{p:.3f}" for p in probabilities[:, k]],
            name=label,
            group=f"class {k}",
        )
        for k, (label, colour) in enumerate(zip(labels, palette(len(labels)), strict=True))
    ]


def _gaps(model: HetMOGP, row: np.ndarray, j: int, seen: Seen, every: np.ndarray) -> list[Mark]:
    """Long ranges in which the output was not observed although others were."""
    marks: list[Mark] = []
    for k, ends in enumerate(curves.gaps(seen.inputs[:, j], every[:, j])):
        two = np.tile(row, (2, 1))
        two[:, j] = ends
        begin, end = curves.shown_as(model, two, j)
        marks.append(Shade(begin=begin, end=end, name="" if k else "not observed", group="gaps"))
    return marks


def of_these_labels(
    model: HetMOGP, row: np.ndarray, output: str, data: Dataset, besides: Sequence[int] = ()
) -> tuple[Seen, np.ndarray]:
    """The observed values, and all inputs of the data, that have the labels of a row."""
    here = curves.seen_of(data, output)
    labels = [j for j, c in enumerate(model.columns_) if c.kind == "category" and j not in besides]
    every = np.concatenate(data.inputs)
    mine, all_mine = ((X[:, labels] == row[labels]).all(axis=1) for X in (here.inputs, every))
    return here.at(mine), every[all_mine]


def observed_marks(likelihood: Likelihood, x: np.ndarray, seen: Seen) -> list[Dots]:
    """What was observed: dots, or ticks where there are few values; triangles where censored.

    Classes without an order have a row of ticks each, above the areas of their probabilities.
    """
    values = likelihood.decode(seen.codes) if likelihood.labelled else seen.values
    said = [str(v) if likelihood.labelled else short(v) for v in values]
    if likelihood.outcome == "nominal":
        K = len(likelihood.levels)
        y = 1.0 + min(0.05, 0.4 / K) * (seen.values + 0.8)
        colours = [palette(K)[int(code)] for code in seen.codes]
        look: dict[str, Any] = {"shape": "tick", "size": 6.0, "opacity": 0.7, "words": said}
        return [Dots(x=x, y=y, colour=colours, name="observed", group="observed", **look)]
    few = likelihood.outcome == "ordered" or bool(np.isin(seen.values, (0.0, 1.0)).all())
    ticks = few and likelihood.unit_column is None
    kinds: tuple[tuple[np.ndarray, str, Shape, str], ...] = (
        (~(seen.larger | seen.smaller), "observed", "tick" if ticks else "dot", ""),
        (seen.larger, "censored: at least this", "up", "at least "),
        (seen.smaller, "censored: at most this", "down", "at most "),
    )
    marks = []
    for rows, name, shape, before in kinds:
        if rows.any() or shape in ("dot", "tick"):
            words = [before + text for text, mine in zip(said, rows, strict=True) if mine]
            size, opacity = {"dot": (3.0, 0.5), "tick": (8.0, 0.5)}.get(shape, (4.0, 0.7))
            marks.append(
                Dots(
                    x=x[rows],
                    y=seen.values[rows],
                    shape=shape,
                    size=size,
                    opacity=opacity,
                    words=words,
                    name=name,
                    group=name,
                )
            )
    return marks


def _values_axis(output: str, likelihood: Likelihood, whole: bool) -> Axis:
    """The axis of the values of an output."""
    title = curves.quantity(output, likelihood)
    if likelihood.outcome == "circular":
        return Axis(
            title,
            ticks=list(zip(TURN, ["−π", "−π/2", "0", "π/2", "π"], strict=True)),
            ends=(-np.pi, np.pi),
        )
    if likelihood.outcome == "nominal":
        return Axis(title, ticks=[(p, f"{p:.1f}") for p in np.linspace(0, 1, 6)])
    if likelihood.outcome == "ordered":
        labels = likelihood.levels
        at = labels if likelihood.numeric else range(len(labels))
        return Axis(title, ticks=[(float(a), str(v)) for a, v in zip(at, labels, strict=True)])
    return Axis(title, whole=whole)


def fan(
    model: HetMOGP,
    output: str,
    line: curves.Line,
    data: Dataset | None,
    *,
    levels: Sequence[float] = LEVELS,
    draws: int = 0,
    prediction: OutputPrediction | None = None,
) -> Picture:
    """One output where it is to be forecast: intervals inside each other, and possible futures.

    Args:
        model: a fitted model.
        output: its name.
        line: where to forecast.
        data: what was observed before, to be drawn as well.
        levels: of the intervals.
        draws: how many possible futures to add: joint draws of observations.
        prediction: along the line; by default the model gives it.
    """
    likelihood = curves.likelihood_of(model, output)
    table, j = line.table, line.j
    known = prediction or model.fitted.predict_at(table, [output])[output]
    x, ordered = curves.shown_as(model, table, j), sorted(levels, reverse=True)
    marks: list[Mark] = []
    for k, level in enumerate(ordered):
        ends = known.interval(level)
        lower, upper = (_as_numbers(likelihood, end) for end in ends)
        said = (_said(likelihood, end) for end in (lower, upper))
        words = [f"{a} to {b}" for a, b in zip(*said, strict=True)]
        depth = 0.15 + 0.35 * k / max(len(ordered) - 1, 1)
        name = f"{100 * level:g}%"
        marks.append(
            Band(
                x=x,
                lower=lower,
                upper=upper,
                colour=_mixed(depth),
                opacity=1.0,
                words=words,
                name=name,
                group=name,
            )
        )
    median = _as_numbers(likelihood, known.quantile(0.5))
    words = _said(likelihood, median)
    marks.append(Line(x=x, y=median, name="median", group="median", words=words))
    if draws:
        paths = curves.bundle_of(model, output, table, draws, "observations")
        marks += _bundle(x, paths, SERIES[5], {})
    if data is not None:
        seen, _ = of_these_labels(model, table[0], output, data, besides=(j,))
        marks += observed_marks(likelihood, curves.shown_as(model, seen.inputs, j), seen)
    y = _values_axis(output, likelihood, likelihood.discrete)
    unit = likelihood.unit_column
    y = y if unit is None else Axis(f"{output} ({unit} = 1)", whole=True)
    return Picture(marks, axis_of(model.columns_[j]), y, title=where(model, table, [j]))


def _as_numbers(likelihood: Likelihood, values: np.ndarray) -> np.ndarray:
    """Values as numbers; labels in an order as positions."""
    if likelihood.numeric:
        return np.asarray(values, float)
    return np.asarray(likelihood.observe(values)[1], float)


def _mixed(depth: float) -> str:
    """The ink, mixed with white."""
    parts = (int(INK[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 - depth * (255 - part)):02x}" for part in parts)


def by_label(
    output: str,
    likelihood: Likelihood,
    prediction: OutputPrediction,
    curve: Curve | None,
    labels: Sequence[str],
) -> Picture:
    """One output at every label, where there are no other inputs."""
    at = np.arange(len(labels), dtype=float)
    marks: list[Mark] = []
    whole = False
    if curve is None:
        p = prediction.probabilities
        tops = p.cumsum(axis=1)
        names = list(map(str, likelihood.levels))
        for k, (label, colour) in enumerate(zip(names, palette(len(names)), strict=True)):
            words = [f"{value:.3f}" for value in p[:, k]]
            below = tops[:, k] - p[:, k]
            look: dict[str, Any] = {"name": label, "group": f"class {k}", "words": words}
            marks.append(Bars(begin=below, end=tops[:, k], colour=colour, **look))
    else:
        name = f"{curve.line}, {curve.band}"
        marks.append(
            Spans(
                x=at,
                y=curve.centre,
                lower=curve.lower,
                upper=curve.upper,
                words=_in_words(likelihood, curve),
                name=name,
                group=name,
            )
        )
        whole = curve.steps
    x = Axis("", "names", list(zip(at, labels, strict=True)))
    return Picture(marks, x, _values_axis(output, likelihood, whole))


def place_of(line: curves.Line) -> Place:
    """A line that is the only one."""
    return Place(line.table)


def where(model: HetMOGP, table: np.ndarray, over: Sequence[int]) -> str:
    """The inputs that are not drawn over, and their values."""
    values = restored(table[:1], model.columns_).iloc[0]
    held = [
        f"{c.name} = {values[c.name]:.4g}" if c.kind == "number" else f"{c.name} = {values[c.name]}"
        for j, c in enumerate(model.columns_)
        if j not in over
    ]
    return f"at {', '.join(held)}" if held else ""
