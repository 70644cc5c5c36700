"""Forecasts: one output past the end of the data."""

from collections.abc import Sequence

import numpy as np

from .. import curves
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..prediction import OutputPrediction
from ..tables import Dataset
from .marks import INK, SERIES, Axis, Band, Line, Mark, Picture, axis_of
from .seen import bundle_marks, observed_marks, of_these_labels, said, values_axis, where

__all__ = ["fan"]

LEVELS = (0.5, 0.8, 0.95)  # of the intervals


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
        texts = (said(likelihood, end) for end in (lower, upper))
        words = [f"{a} to {b}" for a, b in zip(*texts, strict=True)]
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
    words = said(likelihood, median)
    marks.append(Line(x=x, y=median, name="median", group="median", words=words))
    if draws:
        paths = curves.bundle_of(model, output, table, draws, "observations")
        marks += bundle_marks(x, paths, SERIES[5], {})
    if data is not None:
        seen, _ = of_these_labels(model, table[0], output, data, besides=(j,))
        marks += observed_marks(likelihood, curves.shown_as(model, seen.inputs, j), seen)
    y = values_axis(output, likelihood, likelihood.discrete)
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
