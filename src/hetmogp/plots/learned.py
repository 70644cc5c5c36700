"""Pictures of what was learned: parameter functions, latents, what they share, the bound."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from .. import pictures
from ..columns import Column
from ..curves import line_through, reach_of, shown_as
from ..model import HetMOGP
from ..pictures import DATA, INK
from ..pictures.marks import axis_of
from .canvas import canvas, panels_for, plain
from .draw import draw, name_axis

__all__ = ["bound", "coregionalisation", "latents", "parameter_functions"]


def parameter_functions(
    model: HetMOGP,
    x: Any = None,
    *,
    along: str | None = None,
    at: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    axes: Any = None,
) -> np.ndarray:
    """Every parameter function along an input, before its link: a panel each.

    Args:
        model: a fitted model.
        x: where to draw, in increasing order; by default over the range that was fitted.
        along: the input to draw along, by name, where the model has several.
        at: values of the others, by name; see `posterior`.
        names: which of `model.parameter_names_` to draw; all by default.
        level: of the band.
        axes: as many Axes as there are functions.
    """
    every = model.fitted.parameter_names
    chosen = every if names is None else [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in every:
            raise ValueError(f"no parameter function {name!r}; there are {', '.join(every)}")
    line = line_through(model, "parameter_functions", x, along=along, at=at)
    shown, reach = shown_as(model, line.table, line.j), reach_of(level)
    of_outputs = [one._f() for one in model.fitted.predict_at(line.table).values()]
    mean = np.concatenate([mean for mean, _ in of_outputs], axis=1)
    std = np.concatenate([np.linalg.norm(factor, axis=2) for _, factor in of_outputs], axis=1)
    panels = panels_for(len(chosen), axes)
    for ax, name in zip(panels, chosen, strict=True):
        j = every.index(name)
        _band(shown, mean[:, j], reach * std[:, j], level, ax)
        ax.set_title(plain(name), fontsize="medium")
    _finish(panels, model.columns_[line.j], "before its link", axes is None)
    return panels


def latents(
    model: HetMOGP,
    x: Any = None,
    *,
    along: str | None = None,
    at: Mapping[str, Any] | None = None,
    level: float = 0.9,
    axes: Any = None,
) -> np.ndarray:
    """Every latent function u along an input, a panel each; ticks mark inducing inputs.

    Args:
        model: a fitted model.
        x: where to draw, in increasing order; by default over the range that was fitted.
        along: the input to draw along, by name, where the model has several.
        at: values of the others, by name; see `posterior`.
        level: of the band.
        axes: as many Axes as there are latents, copies (`rank`) counted.
    """
    fitted, line = model.fitted, line_through(model, "latents", x, along=along, at=at)
    shown, reach = shown_as(model, line.table, line.j), reach_of(level)
    u = fitted.predict_at(line.table).latents
    mean, std = np.asarray(u.mean), np.sqrt(np.asarray(u.variance))
    units = {column.name: column.unit for column in model.columns_}
    ranks = fitted.posterior.prior.ranks
    copies = [(q, r) for q, rank in enumerate(ranks) for r in range(rank)]
    panels = panels_for(len(copies), axes, height=2.6)
    for k, (ax, (q, r)) in enumerate(zip(panels, copies, strict=True)):
        _band(shown, mean[:, k], reach * std[:, k], level, ax)
        if q < len(model.inducing_inputs_):  # a local latent has none
            Z = shown_as(model, model.inducing_inputs_[q], line.j)
            look: dict[str, Any] = {"color": DATA, "label": "inducing inputs"}
            ax.plot(Z, np.full(len(Z), 0.03), "|", transform=ax.get_xaxis_transform(), **look)
        copy = f", copy {r}" if ranks[q] > 1 else ""
        unused = "" if model.weights_[:, k].any() else " (no weight)"
        kernel = textwrap.fill(model.kernels_[q].in_words(units), 44)
        ax.set_title(plain(f"u{q}{copy}{unused}\n{kernel}"), fontsize="medium")
    _finish(panels, model.columns_[line.j], "u", axes is None)
    return panels


def coregionalisation(model: HetMOGP, *, ax: Axes | None = None) -> Axes:
    """How the parameter functions go together: their correlations, from Σ_q B_q.

    Lines separate the outputs. A pair is grey if it has no correlation to show: a function is flat,
    or both have one latent in common and no other.

    Args:
        model: a fitted model.
        ax: where to draw.
    """
    check_is_fitted(model, "elbo_")
    summary = model.summary()
    table = summary.correlation
    sizes = [len(one.latent) for one in model.likelihoods_.values()]
    side = 2.2 + 0.55 * min(len(table), 16)
    axes, _ = canvas(ax, (side + 1.2, side))
    draw(pictures.correlation(table, sizes), axes)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", rotation=40)
    for text in axes.get_xticklabels():
        text.set(ha="right", rotation_mode="anchor")
    return axes


def bound(model: HetMOGP, *, ax: Axes | None = None) -> Axes:
    """The bound as it was learned: after each round, or its mean over each window of steps.

    Args:
        model: a fitted model.
        ax: where to draw.
    """
    check_is_fitted(model, "elbo_")
    axes, own = canvas(ax)
    draw(pictures.bound(model), axes)
    axes.legend(loc="lower right", frameon=False)
    if own:
        axes.margins(y=0.08)
    return axes


def _band(x: np.ndarray, mean: np.ndarray, reach: np.ndarray, level: float, ax: Axes) -> None:
    """A mean, and a band that reaches equally far on either side."""
    name = f"{100 * level:g}% band"
    ax.fill_between(x, mean - reach, mean + reach, color=INK, alpha=0.18, lw=0, label=name)
    ax.plot(x, mean, color=INK, lw=2, label="mean")


def _finish(panels: np.ndarray, column: Column, ylabel: str, own: bool) -> None:
    """Name the axes at the edges of a grid of panels, and add one legend for all."""
    for k, ax in enumerate(panels):
        ax.margins(x=0)
        name_axis(ax.xaxis, axis_of(column))
        if own and k + 3 < len(panels):
            ax.set_xlabel("")
        if not own or k % 3 == 0:
            ax.set_ylabel(ylabel)
    if own:
        handles, labels = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
        )
