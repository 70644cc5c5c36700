"""The page itself: a template, tables, pictures and the code that draws them."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from .. import __version__, baselines, pictures
from ..curves import read_data
from ..files import refuse_folder, temporary_file
from ..model import HetMOGP
from ..pictures import Picture
from ..summary import shown
from ..tables import Dataset
from ..text import printable
from .encode import as_json
from .notes import notes
from .outputs import LEVEL, Pictures
from .quality import Part, parts

__all__ = ["write"]

MINUS_ZERO = re.compile(r">-(0\.0+)<")  # what rounds to zero has no sign


def write(
    model: HetMOGP,
    path: str | os.PathLike,
    X: Any = None,
    Y: Any = None,
    *,
    title: str = "A heterogeneous multi-output model",
    above: float | Mapping[str, float] | None = None,
) -> list[str]:
    """Write a report about a fitted model: one HTML file that needs nothing else.

    Args:
        model: a fitted model.
        path: the file to write; it is replaced only once the page is complete.
        X: inputs of data to show and to score the model on, as for `fit`.
        Y: its outputs.
        title: of the page.
        above: a limit, or one by output: maps show how probable it is that it is exceeded. By
            default the limit is the upper quartile of the observed values.

    Returns:
        The warnings it contains.
    """
    check_is_fitted(model, "elbo_")
    refuse_folder(path)
    data = read_data(model, X, Y)
    scored = [] if data is None else parts(model, data, (X, Y), LEVEL)
    warnings = notes(model, scored[0].scores if scored else None, LEVEL)
    warnings += baselines.doubts(scored[0].baselines) if scored else ()
    with temporary_file(path) as partial:
        page = _Page(model, data, scored, _limits(model, above))
        partial.write_text(page.text(title, warnings), encoding="utf-8")
    return warnings


def safe(text: Any) -> str:
    """Text that HTML shows as it is."""
    return escape(printable(str(text)), quote=False)


def _limits(model: HetMOGP, above: float | Mapping[str, float] | None) -> dict[str, float]:
    """The limits, for outputs whose values are numbers."""
    numbers = [name for name, one in model.likelihoods_.items() if one.outcome in ("real", "count")]
    if above is None or not isinstance(above, Mapping):
        return {} if above is None else dict.fromkeys(numbers, float(above))
    for name in above:
        if name not in numbers:
            there = ", ".join(numbers) or "none"
            raise ValueError(f"above names {name!r}; outputs that are numbers: {there}")
    return {name: float(limit) for name, limit in above.items()}


class _Page:
    """The parts of a page, and the pictures that they have places for."""

    def __init__(
        self,
        model: HetMOGP,
        data: Dataset | None,
        scored: list[Part],
        above: Mapping[str, float],
    ):
        self._model, self._scored = model, scored
        self._of_outputs = Pictures(model, data, above)
        self._pictures: dict[str, Picture] = {}

    def text(self, title: str, warnings: list[str]) -> str:
        """All of it."""
        folder = files(__package__)
        content = Template(folder.joinpath("page.html").read_text(encoding="utf-8"))
        model = self._model
        parts = {
            "title": safe(title),
            "lead": _lead(model),
            "facts": _facts(model),
            "warnings": _warnings(warnings),
            "fit": self._quality(),
            "sharing": self._sharing(),
            "outputs": "".join(map(self._output, model.output_names_)),
            "learning": self._learning(),
            "version": __version__,
        }
        drawing = "".join(
            folder.joinpath(name).read_text(encoding="utf-8")
            for name in ("ticks.js", "draw.js", "pointer.js")
        )
        return content.substitute(parts, pictures=as_json(self._pictures), drawing=drawing)

    def _figure(self, key: str, picture: Picture) -> str:
        """A place for a picture, and its caption."""
        self._pictures[key] = picture
        size = f"min-height: {picture.height}px"
        return (
            f'<figure><div class="picture" id="{key}" style="{size}"></div>'
            f"<figcaption>{safe(picture.caption)}</figcaption></figure>"
        )

    def _quality(self) -> str:
        if not self._scored:
            return (
                "<p>No data was given with the model, so it was not scored. "
                "Write the report with <code>--data</code> to see how well it predicts.</p>"
            )
        text = (
            "<p>NLPD is the mean negative log predictive density of a value, lower being better; "
            "the last row is the sum. Gains are in nats a value, with their standard errors: over "
            "the same outputs modelled alone, and over the best constant of each.</p>"
        )
        first, *others = self._scored
        rest = (f"<h3>{safe(part.title)}</h3>{_scored(part)}" for part in others)
        title = f"<h3>{safe(first.title)}</h3>" if others else ""
        return text + title + _scored(first) + self._beside(first) + "".join(rest)

    def _beside(self, part: Part) -> str:
        """The rows that say most, beside baselines, and their calibration."""
        text = _table(baselines.shown(part.baselines).drop(columns="values"))
        for words in baselines.missing(self._model.fitted):
            text += f"<p>{safe(words[0].upper() + words[1:])}.</p>"
        if part.observed:
            picture = pictures.calibration(part.observed)
            kinds = {type(mark) for mark in picture.marks}
            caption = "Calibration."
            if pictures.Band in kinds:
                caption += (
                    " A line shows how many values lie in intervals of each size: below the "
                    "diagonal intervals are too narrow, above it too wide. A calibrated output "
                    "stays in the grey band 19 times in 20."
                )
            if pictures.Spans in kinds:
                caption += (
                    " Dots are groups of predictions of yes/no outputs and classes: the predicted "
                    "probability and how often it happened, with bars for what chance allows 19 "
                    "times in 20."
                )
            text += self._figure("calibration", replace(picture, caption=caption))
        text += _about_censored(part)
        return text

    def _sharing(self) -> str:
        model = self._model
        summary = model.summary()
        parts = []
        if summary.sentences:
            heading, sentences = summary.said()
            items = "".join(f"<li>{safe(words)}.</li>" for words in sentences)
            parts.append(f"<p>{safe(heading)}:</p><ul>{items}</ul>")
        if summary.correlated:
            sizes = [len(one.latent) for one in model.likelihoods_.values()]
            correlation = replace(
                pictures.correlation(summary.correlation, sizes),
                caption="Correlation of the parameter functions, before their links, in the prior "
                "that was learned. Far from zero between two outputs: what one shows informs the "
                "other. Grey: no correlation to show.",
            )
            parts.append(self._figure("correlation", correlation))
        if len(summary.functions) > 1:
            parts += [f"<p>{safe(line)}.</p>" for line in summary.about_correlation]
            shares = replace(
                pictures.shares(summary.shares),
                caption="Share of each parameter function's variance that comes from each latent.",
            )
            parts.append(self._figure("shares", shares))
        if summary.decision is not None and summary.gains is not None:
            parts.append(f"<p>{safe(summary.decision[0].upper() + summary.decision[1:])}.</p>")
            parts.append(_table(summary.gains.map("{:,.1f}".format)))
        functions = summary.functions.drop(columns="flat")
        if summary.local.any():
            functions["from local latents"] = summary.local.map("{:.0%}".format)
        return (
            "".join(parts)
            + _table(summary.latents)
            + _table(functions.map(lambda v: f"{v:.3f}" if isinstance(v, float) else v))
        )

    def _output(self, name: str) -> str:
        model = self._model
        likelihood = model.likelihoods_[name]
        constants = (f"{key} {value:.4g}" for key, value in likelihood.constants.items())
        place = f"output-{model.output_names_.index(name)}"
        figures = (
            self._figure(f"{place}-{k}", picture)
            for k, picture in enumerate(self._of_outputs.of_output(name))
        )
        facts = "; ".join([f"{model.n_observed_[name]:,} observed values", *constants])
        return (
            f"<h3>{safe(name)}</h3><p><code>{safe(repr(likelihood))}</code>, {safe(facts)}</p>"
            f"{''.join(figures)}"
        )

    def _learning(self) -> str:
        model = self._model
        caption = "The evidence lower bound as learning went on."
        options = {k: repr(v) for k, v in model.get_params(deep=False).items()}
        del options["likelihoods"]
        table = pd.DataFrame({"value": options}).rename_axis("option")
        picture = replace(pictures.bound(model), caption=caption)
        return (
            self._figure("history", picture)
            + f"<details><summary>Options of the model</summary>{_table(table)}</details>"
        )


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
    return f"{most} per latent" if least == most else f"{least} to {most} per latent"


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
        return '<p class="fine">No warnings.</p>'
    return "".join(f'<p class="warning">{safe(text)}</p>' for text in warnings)


def _scored(part: Part) -> str:
    """The scores of some rows."""
    return f"<p>{safe(part.words)}</p>{_table(_scores(part))}"


def _about_censored(part: Part) -> str:
    """How censored values count."""
    counts = {name: int((~one.exact).sum()) for name, one in part.observed.items()}
    some = ", ".join(f"{n:,} of {name}" for name, n in counts.items() if n)
    if not some:
        return ""
    text = (
        f"Censored values ({some}) count in the NLPD with the probability of what is known of "
        "them. They are left out of the share in intervals and of the error, and the calibration "
        "picture places them at random where they may have been."
    )
    return f"<p>{safe(text)}</p>"


def _scores(part: Part) -> pd.DataFrame:
    """The scores as text."""
    names = {"nlpd": "NLPD", "coverage": f"in {LEVEL:.0%} interval", "rmse": "RMSE"}
    table = part.scores.dropna(axis=1, how="all").rename(columns=names)
    for column in table.columns:
        if column != "values":
            form = "{:.0%}" if "interval" in column or column == "accuracy" else "{:.3f}"
            table[column] = [("" if v != v else form.format(v)) for v in table[column]]
    return table


def _table(table: pd.DataFrame) -> str:
    text = shown(table).to_html(border=0, justify="left", na_rep="", escape=True)
    text = MINUS_ZERO.sub(r">\1<", text)
    return f'<div class="wide">{text}</div>'
