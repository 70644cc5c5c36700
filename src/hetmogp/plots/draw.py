"""Descriptions of pictures (`pictures`), drawn with matplotlib."""

import textwrap
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Side
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import MaxNLocator, PercentFormatter

from .. import pictures
from ..pictures import Axis, Mark, Picture, Scale
from .canvas import plain

__all__ = ["draw", "name_axis"]

SHAPES = {"dot": ".", "tick": "|", "up": "^", "down": "v", "diamond": "D"}
DASHES = {"": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def draw(picture: Picture, ax: Axes) -> None:
    """Draw all marks, and name the axes. The legend is for the caller."""
    colours = None if picture.scale is None else _colours(picture.scale)
    for mark in picture.marks:
        DRAWN[type(mark)](mark, ax, colours or {})
    name_axis(ax.xaxis, picture.x)
    name_axis(ax.yaxis, picture.y)
    if picture.title:
        ax.set_title(plain(textwrap.fill(picture.title, 60)), fontsize="medium")
    if picture.scale is not None and colours is not None:
        title = plain(picture.scale.title)
        bar = ax.figure.colorbar(ScalarMappable(**colours), ax=ax, label=title, fraction=0.06)
        if picture.scale.ticks is not None:
            at, names = zip(*picture.scale.ticks, strict=True)
            bar.set_ticks(at, labels=[plain(name) for name in names])


def name_axis(side: Side, axis: Axis) -> None:
    """Name an axis, with ticks that suit what it shows."""
    side.set_label_text(plain(axis.title))
    if axis.kind == "time":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        side.set_major_locator(locator)
        side.set_major_formatter(ConciseDateFormatter(locator))
    elif axis.ticks is not None:
        side.set_ticks([at for at, _ in axis.ticks], [plain(name) for _, name in axis.ticks])
    elif axis.whole:
        side.set_major_locator(MaxNLocator(integer=True))
    elif axis.percent:
        side.set_major_formatter(PercentFormatter(1.0))
    if axis.ends is not None:
        ends = axis.ends[::-1] if axis.downwards else axis.ends
        (side.axes.set_xlim if side is side.axes.xaxis else side.axes.set_ylim)(*ends)


def _colours(scale: Scale) -> dict[str, Any]:
    """The colour map, and where numbers stand on it."""
    if scale.steps:
        K = len(scale.colours)
        return {
            "cmap": ListedColormap(list(scale.colours)),
            "norm": BoundaryNorm(np.arange(K + 1) - 0.5, K),
        }
    return {"cmap": scale.colours, "norm": Normalize(*scale.ends)}


def _label(mark: Mark) -> str:
    return plain(mark.name) if mark.name else "_"


def _shade(mark: pictures.Shade, ax: Axes, _: dict) -> None:
    ax.axvspan(mark.begin, mark.end, color=pictures.GAP, alpha=0.18, lw=0, label=_label(mark))


def _band(mark: pictures.Band, ax: Axes, _: dict) -> None:
    step: Literal["mid"] | None = "mid" if mark.steps else None
    look: dict[str, Any] = {"color": mark.colour, "alpha": mark.opacity, "lw": 0}
    ax.fill_between(mark.x, mark.lower, mark.upper, step=step, label=_label(mark), **look)


def _line(mark: pictures.Line, ax: Axes, _: dict) -> None:
    look: dict[str, Any] = {"color": mark.colour, "lw": mark.width, "alpha": mark.opacity}
    style = "steps-mid" if mark.steps else "default"
    dots, dash = "." if mark.dots else None, DASHES[mark.dash]
    ax.plot(mark.x, mark.y, drawstyle=style, ls=dash, marker=dots, label=_label(mark), **look)


def _dots(mark: pictures.Dots, ax: Axes, colours: dict) -> None:
    if mark.values is not None or (colours and mark.shape != "diamond"):
        look: dict[str, Any] = {"color": pictures.DATA}
        if mark.values is not None:
            look = {"c": mark.values, **colours}
        shape = {"dot": "o"}.get(mark.shape, SHAPES[mark.shape])
        rim: dict[str, Any] = {"s": mark.size**2, "linewidths": 0.5, "edgecolors": pictures.DATA}
        ax.scatter(mark.x, mark.y, marker=shape, label=_label(mark), **rim, **look)
        return
    look = {"ls": "", "marker": SHAPES[mark.shape], "ms": mark.size, "alpha": mark.opacity}
    if mark.shape in ("up", "down"):
        look["mfc"] = "none"
    if isinstance(mark.colour, str):
        ax.plot(mark.x, mark.y, color=mark.colour, label=_label(mark), **look)
        return
    each = np.array(mark.colour)
    for colour in dict.fromkeys(mark.colour):
        ax.plot(mark.x[each == colour], mark.y[each == colour], color=colour, **look)
    ax.plot([], [], color=pictures.DATA, label=_label(mark), **look)


def _spans(mark: pictures.Spans, ax: Axes, _: dict) -> None:
    reach = np.stack([mark.y - mark.lower, mark.upper - mark.y])
    look: dict[str, Any] = {"color": mark.colour, "ms": 4, "lw": 1, "capsize": 2}
    style = "o:" if mark.joined else "o"
    ax.errorbar(mark.x, mark.y, reach, fmt=style, label=_label(mark), **look)


def _heat(mark: pictures.Heat, ax: Axes, colours: dict) -> None:
    ax.set_facecolor("#e4e6ea")
    ax.pcolormesh(mark.x, mark.y, mark.z, **colours)
    for i, row in enumerate(mark.text):
        for j, text in enumerate(row):
            if text:
                dark = abs(colours["norm"](mark.z[i, j]) - 0.5) > 0.3
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
                ax.text(mark.x[j], mark.y[i], text, color="white" if dark else "black", **look)


def _rules(mark: pictures.Rules, ax: Axes, _: dict) -> None:
    for at in mark.at:
        ax.axhline(at, color="black", lw=1.2)
        ax.axvline(at, color="black", lw=1.2)


def _bars(mark: pictures.Bars, ax: Axes, _: dict) -> None:
    at, size = np.arange(len(mark.begin)), mark.end - mark.begin
    look: dict[str, Any] = {"color": mark.colour, "label": _label(mark)}
    if mark.sideways:
        ax.barh(at, size, left=mark.begin, **look)
    else:
        ax.bar(at, size, bottom=mark.begin, **look)


DRAWN: dict[type[Mark], Callable[[Any, Axes, dict], None]] = {
    pictures.Shade: _shade,
    pictures.Band: _band,
    pictures.Line: _line,
    pictures.Dots: _dots,
    pictures.Spans: _spans,
    pictures.Heat: _heat,
    pictures.Rules: _rules,
    pictures.Bars: _bars,
}
