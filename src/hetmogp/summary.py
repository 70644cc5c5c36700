"""What a fitted model says, as tables and sentences: outputs, latents, and what outputs share."""

from html import escape

import numpy as np
import pandas as pd

from . import baselines, effects
from .fitted import Fitted
from .lengthscales import NORMAL, in_words, lengthscales
from .mixing import mixing
from .text import printable

__all__ = ["Summary", "shown"]


class Summary:
    """The tables of a fitted model; it prints them all, and shows them in a notebook.

    A parameter function whose standard deviation is below 2% of its unit (the spread of the
    output's values, or one on the scale of a logarithm or of log odds) is flat, and has no
    correlations. Two functions that have one latent in common and no other are correlated by ±1
    whatever the data say; that is not shown either. A latent that adds less than 1% to the variance
    of every function is not used, and not listed.

    Attributes:
        outputs: for each output its likelihood, how many values were observed, and the constants
            that were learned or fixed.
        sentences: for each output, what the inputs and the other outputs are worth, in words: from
            the latest `compare_baselines` or `leave_one_out`, else from `HetMOGP.sharing_`.
        scored: which rows the sentences are about, in words.
        functions: for each parameter function its link, its constant b and its prior standard
            deviation, both before the link, and whether it is flat.
        latents: for each latent in use its kernel, in words and in the units of the inputs, and its
            rank.
        unused: how many latents are not in use.
        lengthscales: the numbers of the kernels in use, with 90% intervals (after
            `HetMOGP.intervals`); `flat` is a lengthscale beyond the range of the data.
        shares: the share of each parameter function's prior variance that comes from each latent
            in use.
        local: the share of that variance that comes from all local latents together.
        correlation: the prior correlation between parameter functions at one input; NaN where a
            function is flat, and where it is ±1 by construction.
        correlation_lower: the lower ends of 90% intervals of the correlations; None before
            `HetMOGP.intervals`.
        correlation_upper: the upper ends.
        constructed: the signs of correlations that are ±1 by construction, zero elsewhere.
        gains: what each output gains from the others, in nats (`HetMOGP.sharing_`); None unless
            latents were chosen.
        shared: whether the outputs share latents; None unless latents were chosen.
        effects: the slopes of linear inputs (`HetMOGP.effects_`).
        groups: the standard deviation between the levels of each group, by parameter function.
        unseen: the inputs without any effect, such as groups whose intercepts did not pay.
        sharing: for each output the largest |correlation| between one of its parameter functions
            and one of another output's; zero means that it learns nothing from the others.
        bound: the evidence lower bound.
        converged: whether the convergence rule was met.
        effort: rounds or steps, method and seconds, in words.
    """

    def __init__(self, fitted: Fitted):
        likelihoods, record = fitted.likelihoods, fitted.record
        names = fitted.parameter_names
        owner = np.array([output for output, one in likelihoods.items() for _ in one.latent])
        mixed = mixing(fitted)
        index = pd.Index(names, name="parameter function")
        self._units = {column.name: column.unit for column in fitted.columns}

        self.outputs = pd.DataFrame(
            {
                "likelihood": [repr(one) for one in likelihoods.values()],
                "observed": [record.observed[name] for name in likelihoods],
                "constants": [
                    ", ".join(f"{name} {value:.4g}" for name, value in one.constants.items())
                    for one in likelihoods.values()
                ],
            },
            index=pd.Index(list(likelihoods), name="output"),
        )
        self.sentences = baselines.sentences(fitted)
        self.scored = None if record.scored is None else record.scored.rows
        links = [one.links[name].name for one in likelihoods.values() for name in one.latent]
        constants = fitted.attributes().get("constants_", np.nan)
        self.functions = pd.DataFrame(
            {
                "link": links,
                "constant": constants,
                "std": np.sqrt(mixed.variance),
                "flat": mixed.flat,
            },
            index=index,
        )
        self.lengthscales = lengthscales(fitted, mixed.used)
        self.latents = pd.DataFrame(
            {
                "kernel": [self._kernel(fitted, q) for q in mixed.used],
                "rank": [fitted.posterior.prior.ranks[q] for q in mixed.used],
            },
            index=pd.Index([f"u{q}" for q in mixed.used], name="latent"),
        )
        self.unused = len(fitted.kernels) - len(mixed.used)
        self.shares = pd.DataFrame(
            mixed.shares, index=index, columns=[f"u{q}" for q in mixed.mixed]
        )
        first = len(fitted.kernels) - fitted.posterior.prior.local
        self.local = self.shares[[f"u{q}" for q in mixed.mixed if q >= first]].sum(axis=1)
        self.effects, self.groups = effects.slopes(fitted), effects.sizes(fitted)
        self.unseen = effects.unseen(fitted)
        hidden = mixed.flat[:, None] | mixed.flat | (mixed.constructed != 0)
        np.fill_diagonal(hidden, False)
        correlation = np.where(hidden, np.nan, mixed.correlation)
        self.correlation = pd.DataFrame(correlation, index=names, columns=names)
        self.correlation_lower = self.correlation_upper = None
        if record.widths is not None:
            half = NORMAL * np.asarray(record.widths.correlation)
            middle = np.arctanh(np.clip(correlation, -1.0 + 1e-12, 1.0 - 1e-12))
            self.correlation_lower, self.correlation_upper = (
                pd.DataFrame(np.tanh(ends), index=names, columns=names)
                for ends in (middle - half, middle + half)
            )
        self.constructed = pd.DataFrame(mixed.constructed, index=names, columns=names)
        foreign = np.abs(mixed.correlation) * (owner[:, None] != owner)
        self.sharing = pd.Series(
            {name: float(np.max(foreign[owner == name], initial=0.0)) for name in likelihoods},
            name="sharing",
        )
        self.gains, self.shared = fitted.sharing, record.shared
        self._untried = fitted.untried
        self.bound, self.converged = record.elbo, record.converged
        work = "round{} of VEM" if record.method == "vem" else "step{} of SVI"
        work = work.format("" if record.n_iter == 1 else "s")
        self.effort = f"{record.n_iter} {work}, {record.seconds:.1f} s"
        if record.sampled is not None:
            self.effort += f", started from a sample of {record.sampled:,} rows"

    def _kernel(self, fitted: Fitted, q: int) -> str:
        """A latent's kernel in words, along which inputs it is flat, and whether it is local."""
        words = fitted.kernels[q].in_words(self._units)
        table = self.lengthscales
        flat = table.loc[(table["latent"] == f"u{q}") & table["flat"], "input"].unique()
        if len(flat):
            words += f", flat along {', '.join(flat)}"
        near = fitted.posterior.near
        local = q - (len(fitted.kernels) - fitted.posterior.prior.local)
        if near is not None and local >= 0:
            words += f", local, {np.asarray(near.own)[local]:.0%} of it specific to each place"
        return words

    @property
    def title(self) -> str:
        """The sizes of the model, in one line."""
        D, J, Q = len(self.outputs), len(self.functions), len(self.latents)
        more = f" in use, {self.unused} not in use" if self.unused else ""
        return f"{_many(D, 'output')}, {_many(J, 'parameter function')}, {_many(Q, 'latent')}{more}"

    @property
    def verdict(self) -> str:
        """How the fit went, in one line."""
        state = "converged" if self.converged else "NOT converged"
        return f"bound {self.bound:,.2f}; {state} after {self.effort}"

    @property
    def decision(self) -> str | None:
        """What was chosen, in one line; None if there was nothing to choose."""
        if self._untried:
            return "interrupted before sharing was tried: the outputs share nothing"
        if self.gains is None or len(self.gains) < 3:
            return None
        gain = float(self.gains["gain"].iloc[-1])
        if self.functions["flat"].all() and not len(self.effects) and not self.groups.shape[1]:
            return "no output depends on the inputs: all parameter functions are flat"
        if self.shared and gain < 0.05:
            return "the outputs share latents, but the joint model gains nothing by it"
        if self.shared:
            return f"the outputs share latents: the joint model gains {gain:,.1f} nats"
        return (
            f"the outputs share nothing: a joint model would gain {gain:,.1f} nats, too few to pay "
            "for the weights it needs"
        )

    @property
    def correlated(self) -> bool:
        """Whether there is any correlation between two functions to show."""
        others = ~np.eye(len(self.functions), dtype=bool)
        return bool(np.nan_to_num(self.correlation.to_numpy()[others]).any())

    @property
    def about_correlation(self) -> list[str]:
        """Which correlations are left out and why, a line each."""
        flat = self.functions["flat"]
        words = []
        if flat.any():
            verb = "has" if flat.sum() == 1 else "have"
            words.append(
                f"{', '.join(map(str, flat[flat].index))} {verb} no spread and no correlations"
            )
        signs = self.constructed.to_numpy()
        if len(flat) - flat.sum() > 1 and not self.correlated and not signs.any():
            words.append("no two parameter functions share a latent, so none are correlated")
        if len(flat) > 1 and len(self.shares.columns) == 1 and signs.any():
            words.append("one latent: the parameter functions move together by construction")
        elif signs.any():
            words.append(
                "(+) and (-): two functions of one and the same latent, which move together or "
                "against each other by construction"
            )
        return words

    def _tables(self) -> dict[str, pd.DataFrame]:
        shares = self.shares.map("{:.0%}".format)
        if self.local.any():
            shares["local"] = self.local.map("{:.0%}".format)
        functions = self.functions.drop(columns="flat").assign(
            constant=self.functions["constant"].map("{:.3f}".format),
            std=[
                f"{std:.3f}{' (flat)' * flat}"
                for std, flat in zip(self.functions["std"], self.functions["flat"], strict=True)
            ],
        )
        tables = {"outputs": self.outputs}
        if self.decision is not None and self.gains is not None:
            gain = "gains" if self.shared else "would gain"
            tables[f"what each output {gain} from the others, in nats"] = self.gains.round(1)
        if len(self.effects):
            slopes = self.effects.set_index("output").map(_number)
            tables["linear effects (slopes before the link, with 90% intervals)"] = slopes
        if self.groups.shape[1]:
            groups = self.groups.map("{:.3f}".format)
            tables["groups (standard deviation of the intercepts)"] = groups
        if len(self.latents):
            tables["latents"] = self.latents
        if self.lengthscales["lower"].notna().any():
            numbers = in_words(self.lengthscales, self._units)
            tables["numbers of the kernels, with 90% intervals"] = numbers
        tables["parameter functions (before their links; share of variance by latent)"] = pd.concat(
            [functions, shares], axis=1
        )
        if self.correlated:
            ends = "" if self.correlation_lower is None else ", with 90% intervals"
            heading = f"correlation of the parameter functions{ends}"
            tables[heading] = self._correlation_in_words()
        return {heading: shown(table) for heading, table in tables.items()}

    def _unseen_in_words(self) -> list[str]:
        return [f"{name}: no differences found (no latent depends on it)" for name in self.unseen]

    def _correlation_in_words(self) -> pd.DataFrame:
        cells = self.correlation.map(lambda r: "" if r != r else _signed(r))
        cells = cells.mask(self.constructed > 0, "(+)").mask(self.constructed < 0, "(-)")
        if self.correlation_lower is None or self.correlation_upper is None:
            return cells
        low, high = (
            table.map(_signed) for table in (self.correlation_lower, self.correlation_upper)
        )
        known = self.correlation.notna() & (self.correlation_lower < self.correlation_upper)
        known &= ~np.eye(len(cells), dtype=bool)
        return cells.mask(known, cells + " [" + low + ", " + high + "]")

    def said(self) -> tuple[str, list[str]]:
        """A heading for the sentences about the outputs, and the sentences."""
        rows = "" if self.scored is None else f" ({self.scored})"
        return f"What the inputs and the other outputs are worth{rows}", [*self.sentences.values()]

    def __repr__(self) -> str:
        parts = [self.title, self.verdict, *filter(None, [self.decision])]
        parts += [printable(line) for line in self._unseen_in_words()]
        heading, sentences = self.said()
        if sentences:
            lines = (f"  {printable(one)}" for one in sentences)
            parts += ["", heading[0].lower() + heading[1:], *lines]
        for heading, table in self._tables().items():
            text = table.to_string(max_colwidth=None)
            parts += ["", heading, *(f"  {line}" for line in text.split("\n"))]
        if len(self.functions) > 1:
            parts += [f"  {printable(line)}" for line in self.about_correlation]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        lines = [*filter(None, [self.decision]), *map(printable, self._unseen_in_words())]
        said = "".join(f"<br>{escape(line)}" for line in lines)
        heading, sentences = self.said()
        if sentences:
            items = "".join(f"<li>{escape(printable(one))}</li>" for one in sentences)
            said += f"</p><h4>{escape(heading)}</h4><ul>{items}</ul><p>"
        tables = (
            f"<h4>{_capital(heading)}</h4>{table.to_html()}"
            for heading, table in self._tables().items()
        )
        notes = "<br>".join(escape(printable(line)) for line in self.about_correlation)
        return f"<p><b>{self.title}</b><br>{self.verdict}{said}</p>{''.join(tables)}<p>{notes}</p>"


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table for people, without control characters in names and labels."""
    cells = table.map(lambda value: printable(value) if isinstance(value, str) else value)
    return cells.rename_axis(None).rename(index=printable, columns=printable)


def _number(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


def _signed(value: float) -> str:
    """A correlation; one that rounds to zero has no sign."""
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
