"""What was learned and how good it is, as pictures to hover over."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ..model import HetMOGP
from .canvas import COLOURS, DATA, NAMES, finish

__all__ = ["calibration", "correlation", "history", "shares"]


def correlation(table: pd.DataFrame) -> go.Figure:
    """The correlation of the parameter functions, as a heat map."""
    figure = go.Figure(
        go.Heatmap(
            x=list(table.columns),
            y=list(table.index),
            z=table.to_numpy(),
            zmin=-1,
            zmax=1,
            colorscale="RdBu",
            reversescale=True,
            text=table.map(lambda r: "" if r != r else f"{r:+.2f}").to_numpy(),
            texttemplate="%{text}" if len(table) <= 12 else None,
            hovertemplate="%{y} and %{x}: %{z:+.3f}<extra></extra>",
            colorbar={"thickness": 12},
        )
    )
    finish(figure, {"tickangle": -45, **NAMES}, None, height=max(320, 34 * len(table) + 140))
    figure.update_yaxes(autorange="reversed", **NAMES)
    return figure


def shares(table: pd.DataFrame) -> go.Figure:
    """How much of each parameter function comes from each latent."""
    figure = go.Figure()
    for q, latent in enumerate(table.columns):
        figure.add_bar(
            y=list(table.index),
            x=table[latent],
            orientation="h",
            name=latent,
            marker_color=COLOURS[q % len(COLOURS)],
            hovertemplate="%{y}: %{x:.1%} from %{fullData.name}<extra></extra>",
        )
    figure.update_layout(barmode="stack")
    finish(figure, {"title": "share of variance", "tickformat": ".0%"}, None, 34 * len(table) + 140)
    figure.update_yaxes(autorange="reversed", **NAMES)
    return figure


def calibration(transforms: dict[str, np.ndarray]) -> go.Figure:
    """Coverage that was observed against coverage that was promised."""
    levels = np.linspace(0.0, 1.0, 51)
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="as promised", line={"color": DATA, "dash": "dot"}
    )
    for k, (name, u) in enumerate(transforms.items()):
        inside = np.abs(2 * u[:, None] - 1) <= levels
        figure.add_scatter(
            x=levels,
            y=inside.mean(axis=0),
            mode="lines",
            name=name,
            line={"color": COLOURS[k % len(COLOURS)], "width": 2},
            hovertemplate="%{x:.0%} intervals hold %{y:.0%}",
        )
    finish(figure, {"title": "promised coverage", "tickformat": ".0%"}, "observed coverage")
    figure.update_yaxes(tickformat=".0%")
    return figure


def history(model: HetMOGP) -> go.Figure:
    """The bound as learning went on."""
    what = "round" if model.method_ == "vem" else "window of steps"
    figure = go.Figure(
        go.Scatter(
            x=np.arange(len(model.history_)),
            y=model.history_,
            mode="lines+markers",
            line={"color": COLOURS[0]},
            hovertemplate=what + " %{x}: %{y:,.2f}<extra></extra>",
        )
    )
    finish(figure, {"title": what}, "bound (nats)", height=280)
    return figure
