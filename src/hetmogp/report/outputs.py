"""Which pictures of the outputs a report has, and their captions."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice, product

import numpy as np

from .. import pictures
from ..curves import Line, curve_of, line_through, middle, range_of
from ..kernels import FeaturesMissingError
from ..model import HetMOGP
from ..pictures import Dots, Picture, Place
from ..pictures.maps import mesh
from ..prediction import OutputPrediction, Prediction
from ..tables import Dataset

__all__ = ["LEVEL", "Pictures"]

LEVEL = 0.9  # of bands and intervals
POINTS = 100  # of a curve
SIDE = 40  # of a map
MOST_CURVES = 7  # combinations of labels, each a curve of its own colour
SHOWN = 3  # of them, until the reader asks for more
MOST_SLICES = 4  # inputs looked along, where there are more than two
MOST_BARS = 50  # combinations of labels, where there are no other inputs
DRAWS, FUTURES = 8, 3  # of a function beside its band, and in a forecast
MOST_DOTS = 2000  # observed values of an output
AHEAD = 0.1  # of the range of the data: how far forecasts reach
STEPS = 60  # of a forecast, at most
QUARTER = 0.75  # of the observed values: the limit of a map where none is given
SEEN = (
    ("dot", "dots", "observed values"),
    ("tick", "ticks", "observed values"),
    ("up", "triangles that point up", "values known to be at least this large"),
    ("down", "triangles that point down", "values known to be at most this large"),
)
UNORDERED = ("circular", "nominal", "yes/no")  # of which there are no fans
Labels = dict[int, int]  # of inputs that are labels, by position: which label


class Pictures:
    """The pictures of all outputs: they are drawn at the same inputs, predicted there once.

    Args:
        model: a fitted model.
        data: what was observed, to be drawn as well.
        above: limits by output, for maps of how probable it is that they are exceeded.
    """

    def __init__(
        self, model: HetMOGP, data: Dataset | None, above: Mapping[str, float] | None = None
    ):
        self._model, self._columns = model, model.columns_
        self._data = None if data is None else _thinned(data)
        self._above = dict(above or {})
        self._labels = [j for j, c in enumerate(self._columns) if c.kind == "category"]
        self._free = [j for j in range(len(self._columns)) if j not in self._labels]
        self._predictions: dict[bytes, Prediction] = {}

    def of_output(self, name: str) -> list[Picture]:
        """One output over the inputs: along one, over a map of two, or along several in turn."""
        if not self._free:
            return [self._by_label(name)]
        if len(self._free) == 2:
            return [*self._maps(name), *self._fan(name)]
        slices = self._free[:MOST_SLICES]
        if self._model.likelihoods_[name].outcome == "nominal":
            every = self._combinations(MOST_SLICES)
            return [self._classes(name, j, labels) for j in slices for labels in every]
        return [*(self._along(name, j) for j in slices), *self._fan(name)]

    # -- along one input ---------------------------------------------------------------------------

    def _along(self, name: str, j: int) -> Picture:
        """Curves along an input, one per combination of labels, other inputs at their median."""
        every = self._combinations(MOST_CURVES)
        places = [
            Place(
                self._line(j, labels),
                self._in_words(labels) if len(every) > 1 else "",
                k >= SHOWN,
                pictures.SERIES[k],
            )
            for k, labels in enumerate(every)
        ]
        wanted = 0 if self._model.likelihoods_[name].outcome == "circular" else DRAWS
        picture, draws = _with_draws(
            wanted,
            lambda draws: pictures.along(
                self._model,
                name,
                places,
                j,
                self._data,
                level=LEVEL,
                draws=draws,
                predict=lambda at: self._predicted(at)[name],
            ),
        )
        curve = curve_of(self._model, self._predicted(places[0].table)[name], LEVEL)
        what = f"{name} along {self._columns[j].name}: {curve.line} and {curve.band}"
        of_first = f" at {places[0].name}" if len(places) > 1 else ""
        thin = f"; thin lines are draws of the expected value{of_first}" if draws else ""
        others = [self._columns[k].name for k in self._free if k != j]
        held = f" Other inputs ({', '.join(others)}) are held at their median." if others else ""
        caption = f"{what}{thin}{self._about_seen(picture)}.{held}{self._how_many(len(places))}"
        return replace(picture, caption=caption, title="")

    def _classes(self, name: str, j: int, labels: Labels) -> Picture:
        """The probability of each class along an input, at some labels."""
        place = Place(self._line(j, labels))
        picture = pictures.along(
            self._model,
            name,
            [place],
            j,
            self._data,
            level=LEVEL,
            predict=lambda at: self._predicted(at)[name],
        )
        at = f" at {self._in_words(labels)}" if labels else ""
        what = f"{name} along {self._columns[j].name}{at}: the probability of each class"
        others = [self._columns[k].name for k in self._free if k != j]
        held = f" Other inputs ({', '.join(others)}) are held at their median." if others else ""
        return replace(picture, caption=f"{what}{self._about_seen(picture)}.{held}", title="")

    def _line(self, j: int, labels: Labels) -> np.ndarray:
        """Inputs over the range of one of them, at some labels."""
        along = self._columns[j].name
        line = line_through(self._model, "report", along=along, data=self._data, points=POINTS)
        line.table[:, list(labels)] = list(labels.values())
        return line.table

    # -- past the end ------------------------------------------------------------------------------

    def _fan(self, name: str) -> list[Picture]:
        """A forecast, where an input is a date and values can be ordered."""
        times = [j for j in self._free if self._columns[j].kind == "time"]
        likelihood = self._model.likelihoods_[name]
        if not times or likelihood.outcome in UNORDERED or likelihood.levels:
            return []
        if not np.ptp(range_of(self._model, self._data)[:, times[0]]):
            return []  # from a single date nothing says how far to forecast
        line, begin = self._ahead(times[0])
        recent = None if self._data is None else _since(self._data, line.j, begin)
        known = self._predicted(line.table)[name]
        picture, draws = _with_draws(
            FUTURES,
            lambda draws: pictures.fan(
                self._model, name, line, recent, draws=draws, prediction=known
            ),
        )
        thin = f", and {draws} possible futures, each drawn as a whole" if draws else ""
        seen = self._about_seen(picture)
        caption = (
            f"{name} past the end of the data: the median, intervals that hold a new value with "
            f"50%, 80% and 95% probability{thin}{seen}. What continues depends on the "
            "kernel: without a trend or a season a forecast returns to the mean."
        )
        return [replace(picture, caption=caption)]

    def _ahead(self, j: int) -> tuple[Line, float]:
        """Dates past the end, spaced as those of the data, and where to begin showing the data."""
        first, last = range_of(self._model, self._data)[:, j]
        reach = AHEAD * (last - first)
        apart = reach / STEPS
        if self._data is not None:
            seen = np.unique(np.concatenate([X[:, j] for X in self._data.inputs]))
            if len(seen) > 1:
                apart = max(apart, float(np.median(np.diff(seen))))
        steps = max(round(reach / apart), 3)
        table = np.tile(middle(self._model, self._data), (steps + 1, 1))
        table[:, j] = last + apart * np.arange(steps + 1)
        return Line(j, table), last - 3.0 * reach

    # -- by labels alone, and over two inputs ------------------------------------------------------

    def _by_label(self, name: str) -> Picture:
        """Means and intervals at every combination of labels, where there are no other inputs."""
        likelihood, every = self._model.likelihoods_[name], self._combinations(MOST_BARS)
        table = np.array([list(labels.values()) for labels in every], float)
        prediction = self._predicted(table)[name]
        curve = None
        if likelihood.outcome != "nominal":
            curve = curve_of(self._model, prediction, LEVEL)
        words = [self._in_words(labels) for labels in every]
        picture = pictures.by_label(name, likelihood, prediction, curve, words)
        names = ", ".join(column.name for column in self._columns)
        what = "the probability of each class" if curve is None else f"{curve.line}, {curve.band}"
        caption = f"{name} by {names}: {what}.{self._how_many(len(every))}"
        return replace(picture, x=replace(picture.x, title=names), caption=caption)

    def _maps(self, name: str) -> list[Picture]:
        """A map of the mean or of the most probable class, and one of a limit being exceeded."""
        table, shape = mesh(self._model, self._free, self._data, SIDE)
        prediction = self._predicted(table)[name]
        found = []
        for ask in (pictures.Map(), *self._limits(prediction)):
            place = (table, shape, self._free)
            picture = pictures.over_map(self._model, prediction, *place, self._data, ask)
            across, up = (self._columns[j].name for j in self._free)
            assert picture.scale is not None
            what = f"{picture.scale.title} over {across} and {up}"
            limit = ""
            if ask.above is not None and name not in self._above:
                limit = " The limit is the upper quartile of the observed values."
            which = self._which_label(table[0])
            caption = f"{what}{self._about_seen(picture)}.{limit}{which}"
            found.append(replace(picture, caption=caption))
        return found

    def _limits(self, prediction: OutputPrediction) -> list[pictures.Map]:
        """What to map of a limit, if there is one: how probable it is that it is exceeded."""
        name, likelihood = prediction.name, prediction.likelihood
        if name in self._above:
            return [pictures.Map(above=self._above[name])]
        plain = likelihood.outcome in ("real", "count") and likelihood.unit_column is None
        if self._data is None or not plain:
            return []
        y = self._data.values[self._data.names.index(name)]
        seen = y[~np.isnan(y)]
        if not len(seen):
            return []
        limit = float(f"{np.quantile(seen, QUARTER):.2g}")
        return [pictures.Map(above=limit)]

    def _which_label(self, row: np.ndarray) -> str:
        """A sentence about the labels at which a map is drawn, where there are any."""
        if not self._labels:
            return ""
        held = {j: int(row[j]) for j in self._labels}
        others = self._count_labels() - 1
        rest = "the other one is" if others == 1 else f"the other {others} are"
        more = f", the most frequent; {rest} not shown" if others else ""
        named = ", ".join(
            f"{self._columns[j].name} = {self._columns[j].levels[code]}" for j, code in held.items()
        )
        return f" The map is drawn at {named}{more}."

    # -- what they have in common ------------------------------------------------------------------

    def _combinations(self, most: int) -> list[Labels]:
        """The labels of every input that has them, in all combinations, as many as can be shown."""
        every = product(*(range(len(self._columns[j].levels)) for j in self._labels))
        return [dict(zip(self._labels, codes, strict=True)) for codes in islice(every, most)]

    def _in_words(self, labels: Labels) -> str:
        return ", ".join(str(self._columns[j].levels[code]) for j, code in labels.items())

    def _count_labels(self) -> int:
        return int(np.prod([len(self._columns[j].levels) for j in self._labels], dtype=int))

    def _how_many(self, shown: int) -> str:
        """A sentence where there are more labels than can be shown, or more than are shown."""
        every, words = self._count_labels(), ""
        if every > shown:
            what = "labels" if len(self._labels) == 1 else "combinations of labels"
            words = f" Of {every} {what} the first {shown} are drawn."
        if shown > SHOWN and self._free:
            words += f" Click on the legend to show more than the first {SHOWN}."
        return words

    def _about_seen(self, picture: Picture) -> str:
        """What the marks of observed values are."""
        shapes = {mark.shape for mark in picture.marks if isinstance(mark, Dots)}
        words = [f"{what} are {values}" for shape, what, values in SEEN if shape in shapes]
        return f"; {', '.join(words)}" if words else ""

    def _predicted(self, table: np.ndarray) -> Prediction:
        """All outputs at inputs that are numbers already."""
        key = table.tobytes()
        if key not in self._predictions:
            self._predictions[key] = self._model.fitted.predict_at(table)
        return self._predictions[key]


def _with_draws(wanted: int, make: Callable[[int], Picture]) -> tuple[Picture, int]:
    """A picture with draws, and how many: none if functions of its kernel cannot be drawn."""
    try:
        return make(wanted), wanted
    except FeaturesMissingError:
        return make(0), 0


def _thinned(data: Dataset) -> Dataset:
    """The data with at most `MOST_DOTS` values of each output, chosen at random."""
    values = []
    for y in data.values:
        seen = np.flatnonzero(~np.isnan(y))
        if len(seen) > MOST_DOTS:
            some = np.random.default_rng(0).choice(seen, MOST_DOTS, replace=False)
            kept = np.full_like(y, np.nan)
            kept[some] = y[some]
            y = kept
        values.append(y)
    return replace(data, values=values)


def _since(data: Dataset, j: int, begin: float) -> Dataset:
    """The data with values from a date on."""
    pairs = zip(data.inputs, data.values, strict=True)
    return replace(data, values=[np.where(X[:, j] >= begin, y, np.nan) for X, y in pairs])
