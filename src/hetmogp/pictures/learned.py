"""What was learned: what the parameter functions share, and how the bound rose."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..model import HetMOGP
from .marks import (
    DATA,
    SERIES,
    Axis,
    Bars,
    Dots,
    Heat,
    Line,
    Mark,
    Picture,
    Rules,
    Scale,
    palette,
    short,
)

__all__ = ["bound", "correlation", "shares"]

MOST_WRITTEN = 16  # functions: with more, numbers in the cells could not be read


def correlation(table: pd.DataFrame, sizes: Sequence[int]) -> Picture:
    """The correlation of the parameter functions.

    Args:
        table: of all functions; NaN where one is constant.
        sizes: how many functions each output has, in order.
    """
    values = table.to_numpy(float)
    J = len(table)
    text = [[_signed(r) for r in row] for row in values] if J <= MOST_WRITTEN else ()
    at = np.arange(J, dtype=float)
    heat = Heat(x=at, y=at, z=values, text=text, what="correlation")
    rules = Rules(at=np.cumsum(sizes)[:-1] - 0.5)
    names = [(float(k), str(name)) for k, name in enumerate(table.index)]
    ends = (-0.5, J - 0.5)
    axes = Axis("", "names", names, ends), Axis("", "names", names, ends, downwards=True)
    return Picture(
        [heat, rules], *axes, Scale("correlation", "RdBu_r", (-1.0, 1.0)), height=34 * J + 170
    )


def _signed(r: float) -> str:
    """A correlation in two digits, with a real minus sign and no minus before zero."""
    if not np.isfinite(r):
        return ""
    return f"{r:.2f}".replace("-0.00", "0.00").replace("-", "−")


def shares(table: pd.DataFrame) -> Picture:
    """How much of each parameter function's variance comes from each latent."""
    values = table.to_numpy(float)
    ends = values.cumsum(axis=1)
    marks = [
        Bars(
            begin=ends[:, q] - values[:, q],
            end=ends[:, q],
            sideways=True,
            colour=colour,
            name=str(latent),
            group=f"latent {q}",
            words=[f"{share:.1%} from {latent}" for share in values[:, q]],
        )
        for q, (latent, colour) in enumerate(
            zip(table.columns, palette(len(table.columns)), strict=True)
        )
    ]
    names = [(float(k), str(name)) for k, name in enumerate(table.index)]
    y = Axis("", "names", names, (-0.5, len(table) - 0.5), downwards=True)
    x = Axis("share of variance", ends=(0.0, 1.0), percent=True)
    return Picture(marks, x, y, height=34 * len(table) + 110)


def bound(model: HetMOGP) -> Picture:
    """The bound after each round, or its mean over each window of steps."""
    history = np.asarray(model.history_, float)
    full = model.method_ == "vem"
    at = np.arange(len(history), dtype=float) + (0 if full else 1)  # rounds start from a first q(u)
    each = "round" if full else "window of steps"
    label = "bound after each round" if full else "mean bound of each window"
    last = at[-1] if len(at) else 0.0
    ended = "converged" if model.converged_ else "not converged"
    taken = f"{model.n_iter_} {'round' if full else 'step'}{'s' * (model.n_iter_ != 1)}"
    final = f"final bound {model.elbo_:.1f}".replace("-", "−")
    words = [f"{each} {k:.0f}: {short(value)}" for k, value in zip(at, history, strict=True)]
    ends = (last - 1, last + 1) if len(at) < 2 else (float(at[0]), float(last))
    marks: list[Mark] = [
        Line(x=at, y=history, name=label, group=label, dots=len(at) <= 60, words=words),
        Line(
            x=np.array(ends),
            y=np.full(2, model.elbo_),
            colour=DATA,
            width=1.0,
            dash="dash",
            group="final",
        ),
        Dots(
            x=np.array([last]),
            y=np.array([model.elbo_]),
            colour=SERIES[5],
            shape="diamond",
            size=6.0,
            opacity=1.0,
            words=[final],
            name=final,
            group="final",
        ),
    ]
    x = Axis(each, whole=True, ends=ends if len(at) < 2 else None)
    y = Axis("evidence lower bound (nats)")
    return Picture(marks, x, y, title=f"{ended} in {taken}", height=280)
