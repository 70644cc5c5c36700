"""The paper's missing-gap problem: a real output helps to predict a binary one inside a gap.

Two outputs over [0, 1]: y₁ = f₁ + N(0, 1) at 600 inputs, y₂ ~ Bernoulli(logistic f₂) at 500 others,
of which those in [0.7, 0.9] are removed. f = u Wᵀ mixes two sums of waves.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from . import plots
from .files import temporary_file
from .likelihoods import Bernoulli, Gaussian
from .model import HetMOGP, independent

__all__ = ["PAPER", "SHARING", "MissingGap", "fit_both", "run", "simulate"]

PAPER = ((-0.5, -0.1), (0.1, 0.6))  # the paper's weights: the functions share little
SHARING = ((-0.5, -0.1), (-0.3, -0.1))  # weights with which the functions share much
GAP = (0.7, 0.9)
LIKELIHOODS = {"real": Gaussian(scale=1.0), "binary": Bernoulli()}
SETTINGS: dict[str, Any] = {"latents": 3, "inducing": 20}


@dataclass(frozen=True)
class MissingGap:
    """One draw of the problem: training data, and 150 fresh binary values inside the gap."""

    X: dict[str, np.ndarray]
    Y: dict[str, np.ndarray]
    x_test: np.ndarray
    y_test: np.ndarray
    weights: tuple[tuple[float, float], tuple[float, float]]

    def truth(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two functions."""
        return mixed(x, self.weights)

    @property
    def nlpd_of_truth(self) -> float:
        """What the true function would score in the gap."""
        f = self.truth(self.x_test)[1]
        return float(np.mean(np.logaddexp(0.0, np.where(self.y_test > 0.5, -f, f))))


def mixed(x: np.ndarray, weights: tuple) -> tuple[np.ndarray, np.ndarray]:
    """f = u Wᵀ."""
    pi = np.pi
    u1 = (
        4.5 * np.cos(2 * pi * x + 1.5 * pi)
        - 3 * np.sin(4.3 * pi * x + 0.3 * pi)
        + 5 * np.cos(7 * pi * x + 2.4 * pi)
    )
    u2 = (
        4.5 * np.cos(1.5 * pi * x + 0.5 * pi)
        + 5 * np.sin(3 * pi * x + 1.5 * pi)
        - 5.5 * np.cos(8 * pi * x + 0.25 * pi)
    )
    (a, b), (c, d) = weights
    return a * u1 + b * u2, c * u1 + d * u2


def simulate(seed: int, weights: tuple = SHARING) -> MissingGap:
    """Draw the problem."""
    rng = np.random.RandomState(seed)
    x1, x2 = np.sort(rng.rand(600)), np.sort(rng.rand(500))
    y1 = mixed(x1, weights)[0] + rng.randn(600)
    y2 = (rng.rand(500) < 1 / (1 + np.exp(-mixed(x2, weights)[1]))).astype(float)
    kept = (x2 < GAP[0]) | (x2 > GAP[1])
    x_test = np.sort(rng.uniform(*GAP, 150))
    y_test = (rng.rand(150) < 1 / (1 + np.exp(-mixed(x_test, weights)[1]))).astype(float)
    return MissingGap(
        {"real": x1, "binary": x2[kept]},
        {"real": y1, "binary": y2[kept]},
        x_test,
        y_test,
        weights,
    )


def fit_both(problem: MissingGap, **options: Any) -> tuple[HetMOGP, HetMOGP]:
    """The joint model and the independent ones, on the same data."""
    joint = HetMOGP(LIKELIHOODS, **SETTINGS, **options)
    alone = independent(LIKELIHOODS, **SETTINGS, **options)
    return joint.fit(problem.X, problem.Y), alone.fit(problem.X, problem.Y)


def nlpd_in_gap(model: HetMOGP, problem: MissingGap) -> float:
    """The mean negative log predictive density of the binary values hidden in the gap."""
    prediction = model.predict(problem.x_test, ["binary"])["binary"]
    return float(-np.mean(prediction.log_prob(problem.y_test)))


def run(out: Path, seed: int = 0) -> str:
    """Simulate, fit and write the figure; return a summary in words."""
    out.mkdir(parents=True, exist_ok=True)
    target = out / "missing_gap.png"
    problem = simulate(seed)
    joint, alone = fit_both(problem)
    models = {"joint (hetmogp)": joint, "independent": alone}
    nlpd = {name: f"{nlpd_in_gap(model, problem):.3f}" for name, model in models.items()}
    table = pd.DataFrame(
        {
            "NLPD per value": {**nlpd, "the true function": f"{problem.nlpd_of_truth:.3f}"},
            "bound": {name: f"{model.elbo_:.1f}" for name, model in models.items()},
            "rounds": {name: str(model.n_iter_) for name, model in models.items()},
            "seconds": {name: f"{model.fit_seconds_:.1f}" for name, model in models.items()},
        }
    )
    with temporary_file(target) as partial:
        drawn(problem, joint, alone).savefig(partial, dpi=130)
    return (
        "Binary output inside the gap it was never seen in (150 fresh values)\n"
        f"{table.to_string(na_rep='')}\nfigure: {target}"
    )


def drawn(problem: MissingGap, joint: HetMOGP, alone: HetMOGP) -> Figure:
    """Three panels as in the paper: the real output, and the binary one joint and alone."""
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    axes = figure.subplots(1, 3)
    grid = np.linspace(0.0, 1.0, 300)
    f1, f2 = problem.truth(grid)
    truth = {"real": f1, "binary": 1 / (1 + np.exp(-f2))}
    panels = (
        (joint, "real", "Real output, seen everywhere"),
        (joint, "binary", "Binary output, joint model"),
        (alone, "binary", "Binary output, by itself"),
    )
    for ax, (model, output, title) in zip(axes, panels, strict=True):
        if output == "binary":
            plots.shade(*GAP, ax=ax)
            title += f"\nNLPD in the gap {nlpd_in_gap(model, problem):.3f}"
        plots.observations(problem.X[output], problem.Y[output], ax=ax)
        plots.posterior(model, output, grid, legend=False, ax=ax)
        ax.plot(grid, truth[output], color="black", ls="--", lw=1.2, label="truth")
        ax.set(title=title, xlabel="x", ylabel="y" if output == "real" else "P(y = 1)")
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0)
    handles: dict[str, Any] = {}
    for ax in axes[:2]:
        handles |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles)}
    figure.legend(handles=list(handles.values()), frameon=False, **below)
    return figure
