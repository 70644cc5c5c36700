"""The page itself: a template, tables, and plotly's code inside it, so that nothing is fetched."""

import os
from importlib.resources import files
from string import Template
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from sklearn.utils.validation import check_is_fitted

from .. import __version__, baselines
from ..curves import read_data
from ..files import temporary_file
from ..model import HetMOGP
from ..scoring import pit
from ..summary import shown
from . import learned
from .canvas import embedded, safe
from .notes import notes
from .outputs import LEVEL, Pictures
from .quality import Part, parts

__all__ = ["write"]


def write(
    model: HetMOGP,
    path: str | os.PathLike,
    X: Any = None,
    Y: Any = None,
    *,
    title: str = "A heterogeneous multi-output model",
) -> list[str]:
    """Write a report about a fitted model: one HTML file that needs nothing else.

    Args:
        model: a fitted model.
        path: the file to write, never half written.
        X: inputs of data to show and to score the model on, as for `fit`.
        Y: its outputs.
        title: of the page.

    Returns:
        The warnings it contains.
    """
    check_is_fitted(model, "elbo_")
    data = read_data(model, X, Y)
    scored = [] if data is None else parts(model, data, (X, Y), LEVEL)
    warnings = notes(model, scored[0].scores if scored else None, LEVEL)
    warnings += baselines.doubts(scored[0].baselines) if scored else ()
    pictures = Pictures(model, data)
    content = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    page = content.substitute(
        title=safe(title),
        plotly=get_plotlyjs(),
        lead=_lead(model),
        facts=_facts(model),
        warnings=_warnings(warnings),
        fit=_quality(model, scored),
        sharing=_sharing(model),
        outputs="".join(_output(model, name, pictures) for name in model.output_names_),
        learning=_learning(model),
        version=__version__,
    )
    with temporary_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return warnings


def _lead(model: HetMOGP) -> str:
    """What was modelled, in a sentence."""
    outputs = ", ".join(
        f"<b>{safe(name)}</b> ({safe(one.kind)})" for name, one in model.likelihoods_.items()
    )
    inputs = ", ".join(
        f"<b>{safe(c.name)}</b>"
        + {"time": " (dates)", "duration": " (durations)", "category": " (labels)"}.get(c.kind, "")
        for c in model.columns_
    )
    if len(model.likelihoods_) == 1:
        return f"{outputs}: modelled as a function of {inputs}."
    shared = "each by itself" if model.prior == "independent" else "together"
    return f"{outputs}: modelled {shared}, as functions of {inputs}."


def _inducing(model: HetMOGP) -> str:
    """How many inducing inputs each latent has."""
    counts = [len(Z) for Z in model.inducing_inputs_]
    least, most = min(counts), max(counts)
    return f"{most} a latent" if least == most else f"{least} to {most} a latent"


def _facts(model: HetMOGP) -> str:
    summary = model.summary()
    facts = {
        "observed values": f"{sum(model.n_observed_.values()):,}",
        "outputs": len(summary.outputs),
        "parameter functions": len(summary.functions),
        "latents": len(summary.latents),
        "inducing inputs": _inducing(model),
        "bound (nats)": f"{model.elbo_:,.1f}",
        "state": "converged" if model.converged_ else "not converged",
        "effort": summary.effort,
    }
    cells = (f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{"".join(cells)}</dl>'


def _warnings(warnings: list[str]) -> str:
    if not warnings:
        return '<p class="fine">Nothing to warn of.</p>'
    return "".join(f'<p class="warning">{safe(text)}</p>' for text in warnings)


def _quality(model: HetMOGP, scored: list[Part]) -> str:
    if not scored:
        return (
            "<p>No data was given with the model, so it was not scored. "
            "Write the report with <code>--data</code> to see how well it predicts.</p>"
        )
    text = (
        "<p>NLPD is the mean negative log predictive density of a value, lower being better; the "
        "last row is the sum. Gains are in nats a value, with their standard errors: over the same "
        "outputs modelled alone, and over the best constant of each.</p>"
    )
    first, *others = scored
    rest = (f"<h3>{safe(part.title)}</h3>{_scored(part)}" for part in others)
    title = f"<h3>{safe(first.title)}</h3>" if others else ""
    return text + title + _scored(first) + _beside(model, first) + "".join(rest)


def _scored(part: Part) -> str:
    """The scores of some rows."""
    return f"<p>{safe(part.words)}</p>{_table(_scores(part))}"


def _beside(model: HetMOGP, part: Part) -> str:
    """What is said of the rows that tell most: baselines and calibration."""
    text = _table(baselines.shown(part.baselines).drop(columns="values"))
    text += "".join(f"<p>{safe(words)}.</p>" for words in baselines.missing(model.fitted))
    transforms = pit(part.observed)
    if transforms:
        caption = (
            "Calibration: how many values lie in intervals of each size. Below the dotted line "
            "intervals are too narrow, above it too wide."
        )
        text += _figure("calibration", caption, learned.calibration(transforms))
    return text


def _scores(part: Part) -> pd.DataFrame:
    """The scores as text."""
    table = part.scores.rename(columns={"nlpd": "NLPD", "coverage": f"in {LEVEL:.0%} interval"})
    for column in table.columns:
        if column != "values":
            form = "{:.0%}" if "interval" in column or column == "accuracy" else "{:.3f}"
            table[column] = [("" if v != v else form.format(v)) for v in table[column]]
    return table


def _sharing(model: HetMOGP) -> str:
    summary = model.summary()
    parts = []
    if summary.sentences:
        heading, sentences = summary.said()
        items = "".join(f"<li>{safe(words)}.</li>" for words in sentences)
        parts.append(f"<p>{safe(heading)}:</p><ul>{items}</ul>")
    if summary.correlated:
        parts.append(
            _figure(
                "correlation",
                "Correlation of the parameter functions, before their links, in the prior that was "
                "learned. Far from zero between two outputs: what one shows informs the other.",
                learned.correlation(summary.correlation),
            )
        )
    if len(summary.functions) > 1:
        parts += [f"<p>{safe(line)}.</p>" for line in summary.about_correlation]
        caption = "Share of each parameter function's variance that comes from each latent."
        parts.append(_figure("shares", caption, learned.shares(summary.shares)))
    if summary.decision is not None and summary.gains is not None:
        parts.append(f"<p>{safe(summary.decision[0].upper() + summary.decision[1:])}.</p>")
        parts.append(_table(summary.gains.map("{:,.1f}".format)))
    functions = summary.functions.drop(columns="flat")
    return (
        "".join(parts)
        + _table(summary.latents)
        + _table(functions.map(lambda v: f"{v:.3f}" if isinstance(v, float) else v))
    )


def _output(model: HetMOGP, name: str, pictures: Pictures) -> str:
    likelihood = model.likelihoods_[name]
    constants = (f"{key} {value:.4g}" for key, value in likelihood.constants.items())
    figures = (
        _figure(f"output-{model.output_names_.index(name)}-{k}", caption, figure)
        for k, (caption, figure) in enumerate(pictures.of_output(name))
    )
    facts = "; ".join([f"{model.n_observed_[name]:,} observed values", *constants])
    return (
        f"<h3>{safe(name)}</h3><p><code>{safe(repr(likelihood))}</code>, {safe(facts)}</p>"
        f"{''.join(figures)}"
    )


def _learning(model: HetMOGP) -> str:
    caption = "The evidence lower bound as learning went on."
    options = {k: repr(v) for k, v in model.get_params(deep=False).items() if k != "likelihoods"}
    table = pd.DataFrame({"value": options}).rename_axis("option")
    return (
        _figure("history", caption, learned.history(model))
        + f"<details><summary>Options of the model</summary>{_table(table)}</details>"
    )


def _figure(key: str, caption: str, figure: go.Figure) -> str:
    return f"<figure>{embedded(figure, key)}<figcaption>{safe(caption)}</figcaption></figure>"


def _table(table: pd.DataFrame) -> str:
    text = shown(table).to_html(border=0, justify="left", na_rep="", escape=True)
    return f'<div class="wide">{text}</div>'
