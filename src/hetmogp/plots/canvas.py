"""Axes, panels, names, legends: what the pictures have in common."""

from collections.abc import Iterable
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from ..columns import Column
from ..curves import Curve
from ..text import printable

__all__ = [
    "band",
    "bundle",
    "canvas",
    "finish",
    "legend_for",
    "lines",
    "name_axis",
    "palette",
    "panels_for",
    "plain",
]

INK, DATA, GAP = "#1f5fa8", "#5b6470", "#f4b942"
# Okabe and Ito's colours, which the colour-blind can tell apart; the yellow is too pale for lines.
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
SIZE = (7.0, 4.0)  # of a figure, in inches


def plain(text: Any) -> str:
    """Text as it is: no formulas between dollar signs, no labels hidden for their underscore."""
    shown = "\n".join(map(printable, str(text).split("\n"))).replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def canvas(ax: Axes | None, size: tuple[float, float] = SIZE) -> tuple[Axes, bool]:
    """The Axes to draw on, and whether they are new."""
    if ax is not None:
        return ax, False
    ax = plt.subplots(figsize=size, layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax, True


def name_axis(axis: Axis, column: Column) -> None:
    """Name an axis after an input, with ticks that suit dates and labels."""
    axis.set_label_text(
        plain(f"{column.name} (days)" if column.kind == "duration" else column.name)
    )
    if column.kind == "time":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
    if column.kind == "category":
        axis.set_ticks(range(len(column.levels)), [plain(level) for level in column.levels])


def panels_for(n: int, axes: Any, height: float = 2.4) -> np.ndarray:
    """Axes for n panels in rows of three, or those given."""
    if axes is not None:
        panels = np.asarray(axes, dtype=object).reshape(-1)
        if len(panels) != n:
            raise ValueError(f"axes has {len(panels)} Axes for {n} panels")
        return panels
    columns = min(n, 3)
    rows = -(-n // columns)
    figure, grid = plt.subplots(
        *(rows, columns),
        figsize=(max(3.6 * columns, 5.0), height * rows + 0.7),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    panels, spare = np.split(grid.reshape(-1), [n])
    for ax in spare:
        figure.delaxes(ax)
    for k, ax in enumerate(panels):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelbottom=k + columns >= n)  # also above a place left empty
    return panels


def finish(panels: np.ndarray, column: Column, ylabel: str, own: bool) -> None:
    """Name the axes at the edges of a grid of panels, and add one legend for all."""
    for k, ax in enumerate(panels):
        ax.margins(x=0)
        name_axis(ax.xaxis, column)
        if own and k + 3 < len(panels):
            ax.set_xlabel("")
        if not own or k % 3 == 0:
            ax.set_ylabel(ylabel)
    if own:
        handles, labels = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
        )


def band(x: np.ndarray, mean: np.ndarray, reach: np.ndarray, level: float, ax: Axes) -> None:
    """A mean and so much each way."""
    lines(x, Curve(mean, mean - reach, mean + reach, "mean", f"{100 * level:g}% band"), ax)


def lines(x: np.ndarray, curve: Curve, ax: Axes) -> None:
    """A line and its band."""
    step: Literal["mid"] | None = "mid" if curve.steps else None
    ax.fill_between(
        x, curve.lower, curve.upper, step=step, color=INK, alpha=0.18, lw=0, label=curve.band
    )
    style = "steps-mid" if curve.line == "median" and curve.steps else "default"
    ax.plot(x, curve.centre, color=INK, lw=2, drawstyle=style, label=curve.line)


def bundle(x: np.ndarray, draws: Iterable[np.ndarray], ax: Axes, colour: str = INK) -> None:
    """Draws of a function, as thin lines."""
    for k, one in enumerate(draws):
        ax.plot(x, one, color=colour, lw=0.7, alpha=0.5, label="_" if k else "draws")


def palette(K: int) -> list[Any]:
    """A colour for each of K classes."""
    if len(SERIES) >= K:
        return list(SERIES[:K])
    return list(plt.get_cmap("viridis")(np.linspace(0, 1, K)))


def legend_for(ax: Axes, own: bool) -> None:
    """Above new axes, which have room for it; inside those of the user, which may have a title."""
    handles, labels = ax.get_legend_handles_labels()
    if own:
        wide = [0.55 + 0.072 * len(label) for label in labels]  # inches, about
        columns = len(labels) if sum(wide) < SIZE[0] else max(1, int(SIZE[0] / max(wide)))
        ax.figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    else:
        # Looking for the best place takes long with many points.
        many = sum(np.size(line.get_xdata()) for line in ax.get_lines()) > 5000
        ax.legend(handles, labels, loc="upper right" if many else "best", fontsize="small")
