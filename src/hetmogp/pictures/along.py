"""One output along an input, or by labels: curves with their bands, draws, what was observed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .. import curves
from ..curves import Curve
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..prediction import OutputPrediction
from ..tables import Dataset
from .marks import INK, SERIES, Axis, Band, Bars, Dots, Line, Mark, Picture, Spans, axis_of, palette
from .seen import (
    bundle_marks,
    gap_marks,
    observed_marks,
    of_these_labels,
    said,
    values_axis,
    where,
)

__all__ = ["Place", "along", "by_label"]

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
                marks += gap_marks(model, place.table[0], j, seen, every)
            dots = observed_marks(likelihood, curves.shown_as(model, seen.inputs, j), seen)
            marks += [_of_place(mark, place) for mark in dots]
        if likelihood.outcome == "nominal":
            marks += _classes(likelihood, x, prediction.probabilities)
            continue
        curve = curves.curve_of(model, prediction, level)
        whole = whole or curve.steps
        marks += _curve(likelihood, x, curve, place, look)
        marks += bundle_marks(x, paths, place.colour if place.name else SERIES[5], look)
    y = values_axis(output, likelihood, whole)
    at = where(model, places[0].table, [j]) if len(places) == 1 else ""
    return Picture(marks, axis_of(model.columns_[j]), y, title=at)


def _of_place(dots: Dots, place: Place) -> Dots:
    """Observed values at one of several places have its colour, and no entry in the legend."""
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
    ends = (said(likelihood, part) for part in (curve.centre, curve.lower, curve.upper))
    return [f"{c} ({a} to {b})" for c, a, b in zip(*ends, strict=True)]


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
    return Picture(marks, x, values_axis(output, likelihood, whole))
