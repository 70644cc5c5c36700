"""What the report's pictures have in common."""

from html import escape
from typing import Any

import plotly.graph_objects as go

__all__ = ["COLOURS", "DATA", "GAP", "faint", "finish", "safe"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b5a2b")
DATA, GAP = "#5b6470", "#f4b942"


def finish(figure: go.Figure, x: dict, y: str | None, height: int = 360) -> None:
    """What all figures have in common: sizes that follow the page, names, a legend above."""
    figure.update_layout(
        template="simple_white",
        height=height,
        autosize=True,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
        font={"family": "system-ui, sans-serif", "size": 13},
        dragmode="zoom",
    )
    figure.update_xaxes(automargin=True, **x)
    figure.update_yaxes(automargin=True, title=None if y is None else safe(y))


def safe(text: Any) -> str:
    """Text that plotly shows as it is; it would take tags for its own."""
    return escape(str(text), quote=False)


def faint(colour: str) -> str:
    """A colour to fill areas with."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
