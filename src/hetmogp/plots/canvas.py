"""Axes, panels, names, legends: what the pictures have in common."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from ..text import printable

__all__ = ["canvas", "legend_for", "panels_for", "plain"]

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


def legend_for(ax: Axes, own: bool) -> None:
    """Put the legend above new axes, and inside those of the user, which may have a title."""
    handles, labels = ax.get_legend_handles_labels()
    if own:
        wide = [0.55 + 0.072 * len(label) for label in labels]  # inches, about
        columns = len(labels) if sum(wide) < SIZE[0] else max(1, int(SIZE[0] / max(wide)))
        ax.figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    else:
        # Looking for the best place takes long with many points.
        many = sum(np.size(line.get_xdata()) for line in ax.get_lines()) > 5000
        ax.legend(handles, labels, loc="upper right" if many else "best", fontsize="small")
