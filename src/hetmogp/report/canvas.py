"""What the report's pictures have in common, and the one way for them, and for text, into HTML."""

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io

from ..text import printable

__all__ = ["COLOURS", "DATA", "GAP", "NAMES", "embedded", "faint", "finish", "safe"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8b5a2b")
DATA, GAP = "#5b6470", "#f4b942"
NAMES = {"type": "category"}  # an axis of names, even if all of them look like numbers or dates
CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d"],
    "showSendToCloud": False,  # the page stays where it is
    "typesetMath": False,  # a label may have dollar signs
}
# In these tags and %{...} have a meaning, so names and labels have no place in them.
TEMPLATES = ("hovertemplate", "texttemplate")


def finish(figure: go.Figure, x: dict, y: str | None, height: int = 360) -> None:
    """What all figures have in common: sizes that follow the page, names, a legend above."""
    figure.update_layout(
        template="simple_white",
        height=height,
        autosize=True,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"namelength": -1},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    figure.update_xaxes(automargin=True, **x)
    figure.update_yaxes(automargin=True, title=y)


def embedded(figure: go.Figure, key: str) -> str:
    """A figure as a piece of HTML, with every text in it shown as it is.

    Plotly takes tags for its own wherever it shows text: in names, ticks, titles and while
    hovering. So all texts of a figure are escaped here, and nowhere before.
    """
    return plotly.io.to_html(
        _escaped(figure.to_dict()),
        full_html=False,
        include_plotlyjs=False,
        div_id=key,
        config=CONFIG,
        validate=False,
    )


def _escaped(part: Any) -> Any:
    if isinstance(part, dict):
        return {k: value if k in TEMPLATES else _escaped(value) for k, value in part.items()}
    if isinstance(part, np.ndarray) and part.dtype.kind in "OUT":
        part = part.tolist()
    if isinstance(part, list | tuple):
        return [_escaped(value) for value in part]
    return safe(part) if isinstance(part, str) else part


def safe(text: Any) -> str:
    """Text that HTML shows as it is."""
    return escape(printable(str(text)), quote=False)


def faint(colour: str) -> str:
    """A colour to fill areas with."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
