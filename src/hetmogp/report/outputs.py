"""One output over the inputs, as pictures to hover over and to zoom."""

from collections.abc import Iterable, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ..curves import (
    Curve,
    Seen,
    bundle_of,
    curve_of,
    gaps,
    line_through,
    quantity,
    range_of,
    seen_of,
    turns,
)
from ..kernels import FeaturesMissingError
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..prediction import OutputPrediction, Prediction
from ..tables import Dataset
from .canvas import COLOURS, DATA, GAP, NAMES, faint, finish

__all__ = ["LEVEL", "Pictures"]

LEVEL = 0.9  # of bands and intervals
POINTS = 100  # of a curve
SIDE = 40  # of a map
MOST_CURVES = 8  # combinations of labels, each a curve
SHOWN = 3  # of them, until the reader asks for more
MOST_SLICES = 4  # inputs looked along, where there are more than two
MOST_BARS = 50  # combinations of labels, where there are no other inputs
DRAWS = 8  # of a function, beside its band
MOST_DOTS = 2000  # observed values in one picture
Picture = tuple[str, go.Figure]  # with its caption
Place = dict[int, int]  # of inputs that are labels, by position: which label


class Pictures:
    """The pictures of all outputs: they are drawn at the same inputs, predicted there once.

    Args:
        model: a fitted model.
        data: what was observed, to be drawn as well.
    """

    def __init__(self, model: HetMOGP, data: Dataset | None):
        self._model, self._data, self._columns = model, data, model.columns_
        self._labels = [j for j, c in enumerate(self._columns) if c.kind == "category"]
        self._free = [j for j in range(len(self._columns)) if j not in self._labels]
        self._predictions: dict[bytes, Prediction] = {}

    def of_output(self, name: str) -> list[Picture]:
        """One output over the inputs: along one, over a map of two, or along several in turn."""
        if not self._free:
            return [self._by_label(name)]
        if len(self._free) == 2:
            return [self._map(name)]
        if self._model.likelihoods_[name].outcome == "nominal":
            places = self._places(MOST_SLICES)
            return [self._classes(name, j, p) for j in self._free[:MOST_SLICES] for p in places]
        return [self._along(name, j) for j in self._free[:MOST_SLICES]]

    # -- along one input ---------------------------------------------------------------------------

    def _along(self, name: str, j: int) -> Picture:
        """Curves along an input, one per combination of labels, other inputs at their median."""
        figure, likelihood = go.Figure(), self._model.likelihoods_[name]
        places = self._places(MOST_CURVES)
        for k, place in enumerate(places):
            where, colour = self._in_words(place), COLOURS[k % len(COLOURS)]
            look = {
                "legendgroup": where or "all",
                "visible": True if k < SHOWN else "legendonly",
            }
            table = self._line(j, place)
            curve = curve_of(self._model, self._predicted(table)[name], LEVEL)
            around = likelihood.outcome == "circular"
            for turn, part in enumerate(turns(curve) if around else [curve]):
                shown = {"name": where or f"{curve.line}, {curve.band}", "showlegend": turn == 0}
                _add_curve(figure, self._shown(table, j), part, colour, look, shown)
            if k == 0:
                self._add_bundle(figure, name, j, table, {**look, "name": "draws"})
            if self._data is not None:
                seen, words = self._observed(self._data, name, place)
                marker = {"color": colour if where else DATA, "size": 5, "opacity": 0.55}
                x = self._shown(seen.inputs, j)
                _add_dots(figure, x, seen.values, seen, words, marker, showlegend=not where, **look)
        if self._data is not None and len(places) == 1:
            every = np.concatenate(self._data.inputs)
            for ends in gaps(seen_of(self._data, name).inputs[:, j], every[:, j]):
                begin, end = np.asarray(self._columns[j].decode(np.array(ends)))
                band = {"fillcolor": GAP, "opacity": 0.18, "line_width": 0, "layer": "below"}
                figure.add_vrect(x0=begin, x1=end, **band)
        finish(figure, self._axis(j), quantity(name, likelihood))
        _name_values(figure, likelihood)
        what = f"{name} along {self._columns[j].name}: {curve.line} and {curve.band}"
        what += "" if likelihood.outcome == "circular" else "; the legend has some draws as well"
        return what + self._rest_of_caption(j, len(places)), figure

    def _add_bundle(
        self, figure: go.Figure, name: str, j: int, table: np.ndarray, look: dict[str, Any]
    ) -> None:
        """Some draws of the expected value, each a function of its own, for who asks for them."""
        if self._model.likelihoods_[name].outcome == "circular":
            return
        try:
            draws = bundle_of(self._model, name, table, DRAWS)
        except FeaturesMissingError:
            return  # a kernel of the user's own, of which functions cannot be drawn
        look = {**look, "legendgroup": "draws", "visible": "legendonly", "hoverinfo": "skip"}
        line = {"color": COLOURS[0], "width": 0.8}
        for k, one in enumerate(draws):
            x = self._shown(table, j)
            figure.add_scatter(x=x, y=one, mode="lines", line=line, showlegend=k == 0, **look)

    def _classes(self, name: str, j: int, place: Place) -> Picture:
        """The probability of each class along an input, at some labels."""
        figure, likelihood = go.Figure(), self._model.likelihoods_[name]
        table = self._line(j, place)
        probabilities = self._predicted(table)[name].probabilities
        colours = _class_colours(range(len(likelihood.levels)))
        for label, p, colour in zip(likelihood.levels, probabilities.T, colours, strict=True):
            line = {"name": str(label), "line": {"color": colour}, "hovertemplate": "%{y:.3f}"}
            figure.add_scatter(x=self._shown(table, j), y=p, mode="lines", **line)
        if self._data is not None:  # a row for each class, above the probabilities
            seen, words = self._observed(self._data, name, place)
            marker = {"color": _class_colours(seen.codes), "size": 5, "opacity": 0.55}
            above = 1.04 + 0.04 * seen.codes
            _add_dots(figure, self._shown(seen.inputs, j), above, seen, words, marker)
        finish(figure, self._axis(j), quantity(name, likelihood))
        at = f" at {self._in_words(place)}" if place else ""
        what = f"{name} along {self._columns[j].name}{at}: the probability of each class"
        return what + self._rest_of_caption(j, MOST_SLICES), figure

    def _line(self, j: int, place: Place) -> np.ndarray:
        """Inputs over the range of one of them, at some labels."""
        along = self._columns[j].name
        line = line_through(self._model, "report", along=along, data=self._data, points=POINTS)
        line.table[:, list(place)] = list(place.values())
        return line.table

    def _rest_of_caption(self, j: int, shown: int) -> str:
        """What dots are, where other inputs are held, and whether all labels are shown."""
        others = [self._columns[k].name for k in self._free if k != j]
        held = f" Other inputs ({', '.join(others)}) are held at their median." if others else ""
        return f"{self._about_dots()}.{held}{self._of_how_many(shown)}"

    # -- by labels alone, and over two inputs ------------------------------------------------------

    def _by_label(self, name: str) -> Picture:
        """Means and intervals at every combination of labels, where there are no other inputs."""
        figure, likelihood = go.Figure(), self._model.likelihoods_[name]
        places = self._places(MOST_BARS)
        x = [self._in_words(place) for place in places]
        prediction = self._predicted(np.array([list(p.values()) for p in places], float))[name]
        if likelihood.outcome == "nominal":
            for label, p in zip(likelihood.levels, prediction.probabilities.T, strict=True):
                figure.add_bar(x=x, y=p, name=str(label))
            figure.update_layout(barmode="stack")
        else:
            curve = curve_of(self._model, prediction, LEVEL)
            above, below = curve.upper - curve.centre, curve.centre - curve.lower
            figure.add_scatter(
                x=x,
                y=curve.centre,
                mode="markers",
                marker={"color": COLOURS[0], "size": 9},
                error_y={"type": "data", "symmetric": False, "array": above, "arrayminus": below},
                name=f"{curve.line}, {curve.band}",
            )
        names = ", ".join(column.name for column in self._columns)
        finish(figure, {"title": names, **NAMES}, quantity(name, likelihood))
        return f"{name} by {names}.", figure

    def _map(self, name: str) -> Picture:
        """A map of the mean, or of the most probable class, at the first labels."""
        figure, likelihood = go.Figure(), self._model.likelihoods_[name]
        (place,), (across, up) = self._places(1), self._free
        table = np.zeros((SIDE * SIDE, len(self._columns)))  # the first label is number 0
        low, high = range_of(self._model, self._data)
        table[:, across] = np.tile(np.linspace(low[across], high[across], SIDE), SIDE)
        table[:, up] = np.repeat(np.linspace(low[up], high[up], SIDE), SIDE)
        z, what, look = _heat(self._predicted(table)[name])
        x, y = self._shown(table[:SIDE], across), self._shown(table[::SIDE], up)
        figure.add_heatmap(x=x, y=y, z=z.reshape(SIDE, SIDE), **look)
        if self._data is not None:
            seen, words = self._observed(self._data, name, place)
            scale = {"colorscale": "Viridis", "cmin": float(np.min(z)), "cmax": float(np.max(z))}
            if likelihood.outcome == "nominal":
                colours: dict[str, Any] = {"color": _class_colours(seen.codes)}
            else:
                colours = {"color": seen.values, **scale}
            marker = {"size": 5, "line": {"color": "white", "width": 0.6}, **colours}
            x, y = (self._shown(seen.inputs, j) for j in self._free)
            _add_dots(figure, x, y, seen, words, marker)
        finish(figure, self._axis(across), None, height=440)
        figure.update_yaxes(**self._axis(up))
        at = f" at {self._in_words(place)}" if place else ""
        over = f"{self._columns[across].name} and {self._columns[up].name}"
        caption = f"{name} over {over}{at}: {what}{self._about_dots()}."
        return caption + self._of_how_many(1), figure

    # -- what they have in common ------------------------------------------------------------------

    def _places(self, most: int) -> list[Place]:
        """The labels of every input that has them, in all combinations, as many as can be shown."""
        every = product(*(range(len(self._columns[j].levels)) for j in self._labels))
        return [dict(zip(self._labels, codes, strict=True)) for codes in islice(every, most)]

    def _in_words(self, place: Place) -> str:
        return ", ".join(str(self._columns[j].levels[code]) for j, code in place.items())

    def _of_how_many(self, shown: int) -> str:
        """A sentence where there are more labels than can be shown."""
        every = int(np.prod([len(self._columns[j].levels) for j in self._labels], dtype=int))
        if every <= shown:
            return ""
        return f" Of {every} labels or combinations the first {shown} are shown."

    def _about_dots(self) -> str:
        return "" if self._data is None else "; dots are observed values"

    def _predicted(self, table: np.ndarray) -> Prediction:
        """All outputs at inputs that are numbers already."""
        key = table.tobytes()
        if key not in self._predictions:
            self._predictions[key] = self._model.fitted.predict_at(table)
        return self._predictions[key]

    def _observed(self, data: Dataset, name: str, place: Place) -> tuple[Seen, list[str]]:
        """What was observed with some labels, not too much of it, and each value in words."""
        seen, likelihood = seen_of(data, name), self._model.likelihoods_[name]
        if len(seen.codes) > MOST_DOTS:
            some = np.random.default_rng(0).choice(len(seen.codes), MOST_DOTS, replace=False)
            seen = seen.at(np.sort(some))
        seen = seen.at((seen.inputs[:, list(place)] == list(place.values())).all(axis=1))
        values = likelihood.decode(seen.codes) if likelihood.labelled else seen.values
        at = f" · {self._in_words(place)}" if place else ""
        return seen, [
            f"{'at least ' if more else ''}{v if likelihood.labelled else f'{v:.4g}'}{at}"
            for v, more in zip(values, seen.censored, strict=True)
        ]

    def _shown(self, table: np.ndarray, j: int) -> pd.Series:
        """Input j of a table of numbers, with dates and labels."""
        return pd.Series(self._columns[j].decode(table[:, j]))

    def _axis(self, j: int) -> dict[str, str]:
        days = " (days)" if self._columns[j].kind == "duration" else ""
        return {"title": f"{self._columns[j].name}{days}"}


def _class_colours(codes: Iterable[float]) -> list[str]:
    return [COLOURS[int(code) % len(COLOURS)] for code in codes]


def _add_curve(
    figure: go.Figure, x: pd.Series, curve: Curve, colour: str, look: dict, shown: dict
) -> None:
    """A line with its band."""
    edge = {"width": 0, "shape": "hv" if curve.steps else "linear"}
    fill: dict[str, Any] = {"fillcolor": faint(colour), "showlegend": False, "hoverinfo": "skip"}
    for y, area in ((curve.upper, None), (curve.lower, "tonexty")):
        figure.add_scatter(x=x, y=y, mode="lines", line=edge, fill=area, **fill, **look)
    figure.add_scatter(
        x=x,
        y=curve.centre,
        mode="lines",
        line={"color": colour, "width": 2},
        customdata=np.stack([curve.lower, curve.upper], axis=1),
        hovertemplate="%{y:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g})",
        **shown,
        **look,
    )


def _add_dots(
    figure: go.Figure,
    x: pd.Series,
    y: Any,
    seen: Seen,
    words: Sequence[str],
    marker: dict,
    **look: Any,
) -> None:
    """What was observed; open triangles are values that are only known to be larger."""
    symbols = np.where(seen.censored, "triangle-up-open", "circle")
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker={"symbol": symbols, **marker},
        name="observed",
        text=words,
        hovertemplate="observed %{text}<extra></extra>",
        **look,
    )


def _name_values(figure: go.Figure, likelihood: Likelihood) -> None:
    """Ticks that suit the values of an output: classes by name, directions in parts of a turn."""
    if likelihood.outcome == "circular":
        quarters, words = np.pi * np.arange(-2, 3) / 2, ["−π", "−π/2", "0", "π/2", "π"]
        figure.update_yaxes(range=[-np.pi, np.pi], tickvals=quarters, ticktext=words)
    elif not likelihood.numeric:
        labels = list(map(str, likelihood.levels))
        figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=labels)


def _heat(prediction: OutputPrediction) -> tuple[np.ndarray, str, dict[str, Any]]:
    """The numbers of a map, what they are, and how they look."""
    likelihood = prediction.likelihood
    look: dict[str, Any] = {"colorscale": "Viridis", "colorbar": {"thickness": 12}}
    if likelihood.outcome == "nominal":
        probabilities, K = prediction.probabilities, len(likelihood.levels)
        z, what = probabilities.argmax(axis=1).astype(float), "the most probable class"
        steps = [(end / K, c) for k, c in enumerate(_class_colours(range(K))) for end in (k, k + 1)]
        ticks = {"tickvals": list(range(K)), "ticktext": list(map(str, likelihood.levels))}
        look |= {"colorscale": steps, "zmin": -0.5, "zmax": K - 0.5, "opacity": 0.6}
        look["colorbar"] |= ticks
        more = probabilities.max(axis=1)
        hover = "probability %{customdata:.2f}<extra></extra>"
    else:
        z, what = prediction.mean, "probability" if likelihood.outcome == "yes/no" else "mean"
        if not np.isfinite(z).all():  # a lifetime's mean may not be
            z, what = prediction.quantile(0.5), "median"
        more = prediction.std
        hover = f"{what} %{{z:.4g}}, standard deviation %{{customdata:.2g}}<extra></extra>"
    return z, what, {**look, "customdata": more.reshape(SIDE, SIDE), "hovertemplate": hover}
