"""What a fitted model says, as tables: outputs, latents, and what the outputs share."""

import numpy as np
import pandas as pd

from . import effects
from .fitted import Fitted
from .text import printable

__all__ = ["Summary", "shown"]

NEGLIGIBLE = 1e-12  # of the largest variance: a parameter function that does not vary


def _local(fitted: Fitted) -> list[str]:
    """For each latent, whether it is local, in words."""
    near = fitted.posterior.near
    own = [] if near is None else np.asarray(near.own).tolist()
    smooth = [""] * (len(fitted.kernels) - len(own))
    return [*smooth, *(f", local, {share:.0%} of it each place's own" for share in own)]


class Summary:
    """The tables of a fitted model; it prints them all, and shows them in a notebook.

    Attributes:
        outputs: of each output its likelihood, how many values were observed, and the constants
            that were learned or fixed.
        functions: of each parameter function its link, its constant b and its prior standard
            deviation, both before the link.
        latents: of each latent its kernel, in words and in the units of the inputs, and its rank.
        shares: the share of each parameter function's prior variance that comes from each latent.
        correlation: the prior correlation between parameter functions at one input.
        gains: what each output gains from the others, in nats (`HetMOGP.sharing_`), where latents
            were chosen; None where they were not.
        shared: likewise, whether the outputs share latents.
        effects: the slopes of linear inputs (`HetMOGP.effects_`).
        groups: the standard deviation between the levels of each group, by parameter function.
        sharing: of each output the largest |correlation| between one of its parameter functions and
            one of another output's; zero means that it learns nothing from the others.
        bound: the evidence lower bound.
        converged: whether the convergence rule was met.
        effort: rounds or steps, method and seconds, in words.
    """

    def __init__(self, fitted: Fitted):
        likelihoods, record = fitted.likelihoods, fitted.record
        names = fitted.parameter_names
        owner = np.array([output for output, one in likelihoods.items() for _ in one.latent])
        free = [q for q, kernel in enumerate(fitted.kernels) if not kernel.own_scale]
        B = (fitted.coregionalisation * fitted.sizes[:, None, None])[free]  # without slopes
        variance = np.diagonal(B, axis1=1, axis2=2).T  # (J, Q)
        total = variance.sum(axis=1)
        varies = total > NEGLIGIBLE * max(total.max(), 1e-300)
        unit = np.where(varies, np.sqrt(np.where(varies, total, 1.0)), np.inf)
        correlation = B.sum(axis=0) / np.outer(unit, unit)
        np.fill_diagonal(correlation, 1.0)
        units = {column.name: column.unit for column in fitted.columns}
        columns = [f"u{q}" for q in range(len(fitted.kernels))]

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
        links = [one.links[name].name for one in likelihoods.values() for name in one.latent]
        constants = fitted.attributes().get("constants_", np.nan)
        self.functions = pd.DataFrame(
            {"link": links, "constant": constants, "std": np.sqrt(total)},
            index=pd.Index(names, name="parameter function"),
        )
        self.latents = pd.DataFrame(
            {
                "kernel": [
                    kernel.in_words(units) + words
                    for kernel, words in zip(fitted.kernels, _local(fitted), strict=True)
                ],
                "rank": list(fitted.posterior.prior.ranks),
            },
            index=pd.Index(columns, name="latent"),
        )
        self.shares = pd.DataFrame(
            variance / np.where(varies, total, np.inf)[:, None],
            index=pd.Index(names, name="parameter function"),
            columns=[columns[q] for q in free],
        )
        self.effects, self.groups = effects.slopes(fitted), effects.sizes(fitted)
        self.correlation = pd.DataFrame(correlation, index=names, columns=names)
        foreign = np.abs(correlation) * (owner[:, None] != owner)
        self.sharing = pd.Series(
            {name: float(np.max(foreign[owner == name], initial=0.0)) for name in likelihoods},
            name="sharing",
        )
        self.gains, self.shared = fitted.sharing, record.shared
        self.bound, self.converged = record.elbo, record.converged
        work = "round{} of VEM" if record.method == "vem" else "step{} of SVI"
        work = work.format("" if record.n_iter == 1 else "s")
        self.effort = f"{record.n_iter} {work}, {record.seconds:.1f} s"
        if record.sampled is not None:
            self.effort += f", started from a sample of {record.sampled:,} rows"

    @property
    def title(self) -> str:
        """The sizes of the model, in one line."""
        D, J, Q = len(self.outputs), len(self.functions), len(self.latents)
        return f"{_many(D, 'output')}, {_many(J, 'parameter function')}, {_many(Q, 'latent')}"

    @property
    def verdict(self) -> str:
        """How the fit went, in one line."""
        state = "converged" if self.converged else "NOT converged"
        return f"bound {self.bound:,.2f}; {state} after {self.effort}"

    @property
    def decision(self) -> str | None:
        """What was chosen, in one line, where something was to be chosen."""
        if self.gains is None or len(self.gains) < 3:
            return None
        gain = float(self.gains["gain"].iloc[-1])
        if self.shared:
            return f"the outputs share latents: the joint model gains {gain:,.1f} nats"
        return "the outputs share nothing: a joint model does not pay for the weights it needs"

    def _tables(self) -> dict[str, pd.DataFrame]:
        shares = self.shares.map("{:.0%}".format)
        functions = self.functions.assign(
            constant=self.functions["constant"].map("{:.3f}".format),
            std=self.functions["std"].map("{:.3f}".format),
        )
        gains = {}
        if self.decision is not None and self.gains is not None:
            gains["what each output gains from the others, in nats"] = self.gains.round(1)
        added = {}
        if len(self.effects):
            slopes = self.effects.set_index("output").map(_number)
            added["linear effects (slopes before the link, with 90% intervals)"] = slopes
        if self.groups.shape[1]:
            groups = self.groups.map("{:.3f}".format)
            added["groups (standard deviation of the intercepts)"] = groups
        tables = {
            "outputs": self.outputs,
            **gains,
            **added,
            "latents": self.latents,
            "parameter functions (before their links; share of variance by latent)": pd.concat(
                [functions, shares], axis=1
            ),
            "correlation of the parameter functions": self.correlation.map("{:+.2f}".format),
        }
        return {heading: shown(table) for heading, table in tables.items()}

    def __repr__(self) -> str:
        parts = [self.title, self.verdict, *filter(None, [self.decision])]
        for heading, table in self._tables().items():
            text = table.to_string(max_colwidth=None)
            parts += ["", heading, *(f"  {line}" for line in text.split("\n"))]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        said = f"<br>{self.decision}" if self.decision else ""
        tables = (
            f"<h4>{heading[0].upper()}{heading[1:]}</h4>{table.to_html()}"
            for heading, table in self._tables().items()
        )
        return f"<p><b>{self.title}</b><br>{self.verdict}{said}</p>{''.join(tables)}"


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table for people, whatever characters names and labels have."""
    cells = table.map(lambda value: printable(value) if isinstance(value, str) else value)
    return cells.rename_axis(None).rename(index=printable, columns=printable)


def _number(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
