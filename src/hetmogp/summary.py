"""What a fitted model says, as tables: outputs, latents, and what the outputs share."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import pandas as pd

from .session import session
from .text import printable

if TYPE_CHECKING:
    from .model import HetMOGP

__all__ = ["Summary", "shown"]

NEGLIGIBLE = 1e-12  # of the largest variance: a parameter function that does not vary


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
        sharing: of each output the largest |correlation| between one of its parameter functions and
            one of another output's; zero means that it learns nothing from the others.
        bound: the evidence lower bound.
        converged: whether the convergence rule was met.
        effort: rounds or steps, method and seconds, in words.
    """

    def __init__(self, model: "HetMOGP"):
        names = model.parameter_names_
        owner = [output for output, of in model.likelihoods_.items() for _ in of.latent]
        B = model.coregionalisation_ * _sizes(model)[:, None, None]  # (Q, J, J)
        variance = np.diagonal(B, axis1=1, axis2=2).T  # (J, Q)
        total = variance.sum(axis=1)
        varies = total > NEGLIGIBLE * max(total.max(), 1e-300)
        unit = np.where(varies, np.sqrt(np.where(varies, total, 1.0)), np.inf)
        correlation = B.sum(axis=0) / np.outer(unit, unit)
        np.fill_diagonal(correlation, 1.0)
        units = {column.name: column.unit for column in model.columns_}
        columns = [f"u{q}" for q in range(len(model.kernels_))]

        self.outputs = pd.DataFrame(
            {
                "likelihood": [repr(of) for of in model.likelihoods_.values()],
                "observed": [model.n_observed_[name] for name in model.output_names_],
                "constants": [
                    ", ".join(f"{name} {value:.4g}" for name, value in of.constants.items())
                    for of in model.likelihoods_.values()
                ],
            },
            index=pd.Index(model.output_names_, name="output"),
        )
        links = [of.links[name].name for of in model.likelihoods_.values() for name in of.latent]
        self.functions = pd.DataFrame(
            {"link": links, "constant": model.constants_, "std": np.sqrt(total)},
            index=pd.Index(names, name="parameter function"),
        )
        self.latents = pd.DataFrame(
            {
                "kernel": [k.in_words(units) for k in model.kernels_],
                "rank": list(model._learned.parameters.prior.ranks),
            },
            index=pd.Index(columns, name="latent"),
        )
        self.shares = pd.DataFrame(
            variance / np.where(varies, total, np.inf)[:, None],
            index=pd.Index(names, name="parameter function"),
            columns=columns,
        )
        self.correlation = pd.DataFrame(correlation, index=names, columns=names)
        foreign = np.array(owner)[:, None] != np.array(owner)
        self.sharing = pd.Series(
            {
                output: float(np.max(np.abs(correlation) * foreign, where=rows, initial=0.0))
                for output in model.output_names_
                for rows in [(np.array(owner) == output)[:, None]]
            },
            name="sharing",
        )
        self.bound, self.converged = float(model.elbo_), bool(model.converged_)
        unit_of_work = "rounds of VEM" if model.method_ == "vem" else "steps of SVI"
        self.effort = f"{model.n_iter_} {unit_of_work}, {model.fit_seconds_:.1f} s"
        if model.n_sampled_ is not None:
            self.effort += f", started from a sample of {model.n_sampled_:,} rows"

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

    def _tables(self) -> dict[str, pd.DataFrame]:
        shares = self.shares.map("{:.0%}".format)
        functions = self.functions.assign(
            constant=self.functions["constant"].map("{:.3f}".format),
            std=self.functions["std"].map("{:.3f}".format),
        )
        tables = {
            "outputs": self.outputs,
            "latents": self.latents,
            "parameter functions (before their links; share of variance by latent)": pd.concat(
                [functions, shares], axis=1
            ),
            "correlation of the parameter functions": self.correlation.map("{:+.2f}".format),
        }
        return {heading: shown(table) for heading, table in tables.items()}

    def __repr__(self) -> str:
        parts = [self.title, self.verdict]
        for heading, table in self._tables().items():
            text = table.to_string(max_colwidth=None)
            parts += ["", heading, *(f"  {line}" for line in text.split("\n"))]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        tables = (
            f"<h4>{heading[0].upper()}{heading[1:]}</h4>{table.to_html()}"
            for heading, table in self._tables().items()
        )
        return f"<p><b>{self.title}</b><br>{self.verdict}</p>{''.join(tables)}"


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table for people, whatever characters names and labels have."""
    cells = table.map(lambda value: printable(value) if isinstance(value, str) else value)
    return cells.rename_axis(None).rename(index=printable, columns=printable)


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _sizes(model: "HetMOGP") -> np.ndarray:
    """The variance of each latent, averaged over its inducing inputs; one but for Linear parts."""
    prior = model._learned.parameters.prior
    with session(model.dtype):
        of_each = [k.diag(jnp.asarray(Z)) for k, Z in zip(prior.kernels, prior.Z, strict=True)]
        return np.array([float(jnp.mean(v)) for v in of_each])
