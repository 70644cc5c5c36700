"""One output over two inputs, as a map."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import curves
from ..inputs import grid as grid_over
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..prediction import OutputPrediction
from ..tables import Dataset, observe
from .marks import Heat, Mark, Picture, Scale, axis_of, palette, short
from .seen import observed_marks, of_these_labels, where

__all__ = ["Map", "mesh", "over_map"]


class Map(NamedTuple):
    """What a map shows.

    Attributes:
        what: "mean" (for a yes/no output its probability), or "std", the standard deviation of new
            values.
        label: for an output with classes, the class whose probability is shown.
        above: a limit, of classes in order a label; then the map shows how probable it is that a
            new value exceeds it.
    """

    what: Literal["mean", "std"] = "mean"
    label: Any = None
    above: Any = None

    def check(self) -> None:
        """Raise an error for what does not go together."""
        if self.what not in ("mean", "std"):
            raise ValueError(f'what must be "mean" or "std", not {self.what!r}')
        if self.above is not None and (self.label is not None or self.what != "mean"):
            raise ValueError("above asks for a probability: leave out what and label")


class _Numbers(NamedTuple):
    """The numbers of a map, what they are, and the names of classes to mark on its scale."""

    z: np.ndarray
    title: str
    names: Sequence[str] | None = None


def mesh(
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


def over_map(
    model: HetMOGP,
    prediction: OutputPrediction,
    table: np.ndarray,
    shape: tuple[int, int],
    pair: Sequence[int],
    data: Dataset | None,
    ask: Map,
) -> Picture:
    """One output over two inputs; observed points have the colour of their own value.

    Args:
        model: a fitted model.
        prediction: of the output, at the table.
        table: the inputs, from `mesh`.
        shape: how many of them there are up and across.
        pair: the positions of the two inputs.
        data: what was observed, to be drawn as well.
        ask: what the map shows.
    """
    output, likelihood = prediction.name, prediction.likelihood
    shown = _mapped(prediction, ask)
    z = np.where(np.isfinite(shown.z), shown.z, np.nan).reshape(shape)
    scale = _scale(likelihood, z, shown, ask)
    across, up = (curves.shown_as(model, table, j).reshape(shape) for j in pair)
    heat = Heat(x=across[0], y=up[:, 0], z=z, what=shown.title, more=_more(prediction, ask, shape))
    marks: list[Mark] = [heat]
    if data is not None:
        seen, _ = of_these_labels(model, table[0], output, data, besides=pair)
        x, y = (curves.shown_as(model, seen.inputs, j) for j in pair)
        marks += _points(output, likelihood, x, y, seen, ask)
    x_axis, y_axis = (axis_of(model.columns_[j]) for j in pair)
    return Picture(marks, x_axis, y_axis, scale, where(model, table, pair), height=430)


def _points(
    output: str, likelihood: Likelihood, x: np.ndarray, y: np.ndarray, seen: curves.Seen, ask: Map
) -> list[Mark]:
    """The observed values as points in the colours of the scale; triangles where censored."""
    marks: list[Mark] = []
    for dots in observed_marks(likelihood, np.arange(len(x), dtype=float), seen):
        rows = np.asarray(dots.x, int)
        values = seen.values[rows]
        if ask.label is not None:
            values = (likelihood.decode(seen.codes[rows]) == ask.label).astype(float)
        elif ask.above is not None:
            limit = _position(output, likelihood, ask.above) if likelihood.labelled else ask.above
            values = (seen.codes[rows] > limit).astype(float)
        marks.append(
            replace(
                dots,
                x=x[rows],
                y=y[rows],
                values=values if ask.what == "mean" else None,
                shape=dots.shape if dots.shape in ("up", "down") else "dot",
                size=4.0,
                opacity=1.0,
            )
        )
    return marks


def _mapped(prediction: OutputPrediction, ask: Map) -> _Numbers:
    output, likelihood = prediction.name, prediction.likelihood
    if ask.above is not None:
        limit = str(ask.above) if likelihood.labelled else short(ask.above)
        return _Numbers(prediction.survival(ask.above), f"P({output} > {limit})")
    if ask.label is not None:
        if not likelihood.labelled:
            raise ValueError(
                f"output {output!r} is {likelihood.kind}, which has no label {ask.label!r}"
            )
        if ask.what == "std":
            raise ValueError('what="std" is of an output itself: leave out label')
        k = _position(output, likelihood, ask.label)
        return _Numbers(prediction.probabilities[:, k], f"P({output} = {ask.label})")
    if likelihood.outcome == "nominal":
        if ask.what == "std":
            raise ValueError(
                f"output {output!r} is {likelihood.kind}: classes have no standard deviation"
            )
        likely = prediction.probabilities.argmax(axis=1).astype(float)
        return _Numbers(likely, f"most probable {output}", list(map(str, likelihood.levels)))
    if ask.what == "std":
        unit = likelihood.unit_column  # predictions are for one
        of_one = output if unit is None else f"{output} ({unit} = 1)"
        return _Numbers(prediction.std, f"standard deviation of {of_one}")
    quantity = curves.quantity(output, likelihood)
    if likelihood.outcome == "yes/no":
        return _Numbers(prediction.mean, quantity)
    names = None if likelihood.numeric else list(map(str, likelihood.levels))
    if not np.isfinite(prediction.mean).all():  # a lifetime's may not be
        return _Numbers(prediction.quantile(0.5), f"median of {quantity}", names)
    return _Numbers(prediction.mean, f"mean of {quantity}", names)


def _position(output: str, likelihood: Likelihood, label: Any) -> int:
    """Where a label stands among the classes."""
    return int(observe(output, likelihood, [label])[1][0])


def _more(
    prediction: OutputPrediction, ask: Map, shape: tuple[int, int]
) -> tuple[str, np.ndarray] | None:
    """What else there is to say of each cell: how sure the prediction is."""
    if ask != Map() or prediction.likelihood.outcome == "yes/no":
        return None
    if prediction.likelihood.outcome == "nominal":
        return "probability", prediction.probabilities.max(axis=1).reshape(shape)
    return "standard deviation", np.asarray(prediction.std, float).reshape(shape)


def _scale(likelihood: Likelihood, z: np.ndarray, shown: _Numbers, ask: Map) -> Scale:
    """What the colours mean."""
    colours, ends = "viridis", (float(np.nanmin(z)), float(np.nanmax(z)))
    ticks = None if shown.names is None else list(enumerate(shown.names))
    if ask.what == "std":
        colours = "cividis"
    elif ask.label is not None or ask.above is not None:
        ends = 0.0, 1.0
    elif likelihood.outcome == "nominal":
        K = len(likelihood.levels)
        return Scale(shown.title, palette(K), (-0.5, K - 0.5), ticks, steps=True)
    elif likelihood.outcome == "yes/no" or not likelihood.numeric:
        ends = likelihood.ends
    elif likelihood.outcome == "circular":
        colours, ends = "twilight", likelihood.ends
    return Scale(shown.title, colours, ends, ticks)
