"""What pictures are made of: marks, axes, colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from ..columns import Column

__all__ = [
    "DATA",
    "GAP",
    "INK",
    "SERIES",
    "Axis",
    "Band",
    "Bars",
    "Dash",
    "Dots",
    "Heat",
    "Line",
    "Mark",
    "Picture",
    "Rules",
    "Scale",
    "Shade",
    "Shape",
    "Spans",
    "axis_of",
    "palette",
    "short",
]

# Okabe and Ito's colours, which the colour-blind can tell apart; the yellow is too pale for lines.
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
INK, DATA, GAP = SERIES[0], "#5b6470", "#f4b942"
Shape = Literal["dot", "tick", "up", "down", "diamond"]
Dash = Literal["", "dash", "dot", "dashdot"]


def palette(K: int) -> list[str]:
    """A colour for each of K classes."""
    if len(SERIES) >= K:
        return list(SERIES[:K])
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 1, K))]


def short(value: float) -> str:
    """A number with four digits and a real minus sign."""
    text = f"{value:.4g}"
    return ("0" if text == "-0" else text).replace("-", "−")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something drawn.

    Attributes:
        name: in the legend; none where it is empty.
        group: marks of one group are hidden and shown together.
        hidden: whether it is hidden until the reader asks for it; only pages can hide.
    """

    name: str = ""
    group: str = ""
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class Shade(Mark):
    """A range of the horizontal axis."""

    begin: Any
    end: Any


@dataclass(frozen=True, kw_only=True)
class Band(Mark):
    """The area between two curves; `words` are shown at each x when a pointer is there."""

    x: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    colour: str = INK
    opacity: float = 0.18
    steps: bool = False
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Line(Mark):
    """A curve."""

    x: np.ndarray
    y: np.ndarray
    colour: str = INK
    width: float = 2.0
    opacity: float = 1.0
    dash: Dash = ""
    steps: bool = False
    dots: bool = False
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Dots(Mark):
    """Points; `colour` is one for all or one each. With `values` the scale gives the colours."""

    x: np.ndarray
    y: np.ndarray
    colour: str | Sequence[str] = DATA
    values: np.ndarray | None = None
    shape: Shape = "dot"
    size: float = 3.0
    opacity: float = 0.5
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Spans(Mark):
    """Points with a bar from `lower` to `upper`; a dotted line joins them if `joined`."""

    x: np.ndarray
    y: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    colour: str = INK
    joined: bool = False
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Heat(Mark):
    """Cells around the points of a grid, in the colours of the scale.

    Attributes:
        x: of the columns.
        y: of the rows.
        z: a number for each cell; NaN for none.
        text: what is written into the cells, if they have room.
        what: what the number is called, next to a pointer.
        more: another number for each cell, and what it is called.
    """

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    text: Sequence[Sequence[str]] = ()
    what: str = ""
    more: tuple[str, np.ndarray] | None = None


@dataclass(frozen=True, kw_only=True)
class Rules(Mark):
    """Lines across the whole picture, both ways, between rows and columns of cells."""

    at: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Bars(Mark):
    """Bars at positions 0, 1, ... of an axis of names, each from `begin` to `end`."""

    begin: np.ndarray
    end: np.ndarray
    colour: str
    sideways: bool = False
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        title: beside it.
        kind: what its numbers are; "names" are at the positions 0, 1, ...
        ticks: positions and what is written there; by default chosen by whoever draws.
        ends: what it shows; by default all marks.
        whole: whether only whole numbers are marked.
        percent: whether numbers are written as percentages.
        downwards: whether it runs from top to bottom.
    """

    title: str = ""
    kind: Literal["number", "time", "names"] = "number"
    ticks: Sequence[tuple[float, str]] | None = None
    ends: tuple[float, float] | None = None
    whole: bool = False
    percent: bool = False
    downwards: bool = False


@dataclass(frozen=True)
class Scale:
    """What colours mean.

    Attributes:
        title: beside the bar.
        colours: a name of matplotlib's, or with `steps` a colour for each class.
        ends: the numbers at the ends of the bar.
        ticks: positions and what is written there.
        steps: whether numbers are the positions of classes.
    """

    title: str
    colours: str | Sequence[str]
    ends: tuple[float, float]
    ticks: Sequence[tuple[float, str]] | None = None
    steps: bool = False

    @property
    def stops(self) -> list[str]:
        """Colours at equal distances, from one end to the other."""
        if not isinstance(self.colours, str):
            return list(self.colours)
        return [to_hex(colour) for colour in colormaps[self.colours](np.linspace(0, 1, 17))]


@dataclass(frozen=True)
class Picture:
    """All of it.

    Attributes:
        marks: the last ones are on top.
        x: the horizontal axis.
        y: the vertical axis.
        scale: of colours, where cells or points have them.
        title: above.
        caption: what the picture shows, in words.
        height: on a page, in pixels.
    """

    marks: Sequence[Mark]
    x: Axis
    y: Axis
    scale: Scale | None = None
    title: str = ""
    caption: str = ""
    height: int = 340


def axis_of(column: Column) -> Axis:
    """The axis of an input."""
    if column.kind == "category":
        return Axis(column.name, "names", [(k, str(v)) for k, v in enumerate(column.levels)])
    days = " (days)" if column.kind == "duration" else ""
    return Axis(f"{column.name}{days}", "time" if column.kind == "time" else "number")
