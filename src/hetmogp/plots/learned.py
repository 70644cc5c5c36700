"""Pictures of what was learned: parameter functions, latents, what they share, the bound."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from sklearn.utils.validation import check_is_fitted

from ..curves import line_through, reach_of, shown_as
from ..model import HetMOGP
from .canvas import DATA, INK, SERIES, band, canvas, finish, panels_for, plain

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
        band(shown, mean[:, j], reach * std[:, j], level, ax)
        ax.set_title(plain(name), fontsize="medium")
    finish(panels, model.columns_[line.j], "before its link", axes is None)
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
        band(shown, mean[:, k], reach * std[:, k], level, ax)
        if q < len(model.inducing_inputs_):  # a local latent has none
            Z = shown_as(model, model.inducing_inputs_[q], line.j)
            look: dict[str, Any] = {"color": DATA, "label": "inducing inputs"}
            ax.plot(Z, np.full(len(Z), 0.03), "|", transform=ax.get_xaxis_transform(), **look)
        copy = f", copy {r}" if ranks[q] > 1 else ""
        unused = "" if model.weights_[:, k].any() else " (no weight)"
        kernel = textwrap.fill(model.kernels_[q].in_words(units), 44)
        ax.set_title(plain(f"latent {q}{copy}{unused}\n{kernel}"), fontsize="medium")
    finish(panels, model.columns_[line.j], "u", axes is None)
    return panels


def coregionalisation(model: HetMOGP, *, ax: Axes | None = None) -> Axes:
    """How the parameter functions go together: their correlations, from Σ_q B_q.

    Lines separate the outputs. A function without any weight, which is constant, is left grey.

    Args:
        model: a fitted model.
        ax: where to draw.
    """
    check_is_fitted(model, "elbo_")
    names = model.parameter_names_
    J = len(names)
    summary = model.summary()
    varies = summary.functions["std"].to_numpy() > 0
    correlation = np.where(varies & varies[:, None], summary.correlation, np.nan)
    side = 2.2 + 0.55 * min(J, 16)
    axes, _ = canvas(ax, (side + 1.2, side))
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor("#e4e6ea")
    image = axes.imshow(correlation, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto")
    axes.figure.colorbar(image, ax=axes, label="correlation", fraction=0.045)
    if J <= 16:  # more would not be read
        for i, j in np.argwhere(np.isfinite(correlation)):
            r = correlation[i, j]
            colour = "white" if abs(r) > 0.6 else "black"
            text = f"{r:.2f}".replace("-0.00", "0.00").replace("-", "−")
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize="small")
    said = [plain(name) for name in names]
    axes.set_xticks(range(J), said, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(J), said)
    axes.tick_params(length=0)
    for end in np.cumsum([len(one.latent) for one in model.likelihoods_.values()])[:-1]:
        axes.axhline(end - 0.5, color="black", lw=1.2)
        axes.axvline(end - 0.5, color="black", lw=1.2)
    return axes


def bound(model: HetMOGP, *, ax: Axes | None = None) -> Axes:
    """The bound as it was learned: after each round, or its mean over each window of steps.

    Args:
        model: a fitted model.
        ax: where to draw.
    """
    check_is_fitted(model, "elbo_")
    history = np.asarray(model.history_, float)
    axes, own = canvas(ax)
    full = model.method_ == "vem"
    at = np.arange(len(history)) + (0 if full else 1)  # rounds start from a first q(u)
    each = "round" if full else "window of steps"
    label = "bound after each round" if full else "mean bound of each window"
    axes.plot(at, history, color=INK, lw=1.8, marker="." if len(at) <= 60 else None, label=label)
    axes.axhline(model.elbo_, color=DATA, lw=1, ls="--", zorder=1)
    last = at[-1] if len(at) else 0
    final = f"final bound {model.elbo_:.1f}".replace("-", "−")
    axes.plot([last], [model.elbo_], "D", color=SERIES[5], ms=6, label=final)
    if len(at) < 2:  # a single window has no range of its own
        axes.set_xlim(last - 1, last + 1)
    ended = "converged" if model.converged_ else "not converged"
    taken = f"{model.n_iter_} {'round' if full else 'step'}{'s' * (model.n_iter_ != 1)}"
    axes.set(xlabel=each, ylabel="evidence lower bound (nats)", title=f"{ended} in {taken}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right", frameon=False)
    if own:
        axes.margins(y=0.08)
    return axes
