"""What there is to know about a fit besides the model it learned."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .fitting import Learned
from .holdout import HeldOut
from .tables import Dataset

__all__ = ["Record", "Scored", "Widths"]

ARRAYS = ("history", "input_range")
ATTRIBUTES = {"seconds": "fit_seconds_", "observed": "n_observed_", "sampled": "n_sampled_"}
INTERNAL = ("jitter", "shared", "sharing", "marginal", "held_out", "widths", "scored")


@dataclass(frozen=True)
class Widths:
    """How well hyperparameters are determined: standard deviations, see `laplace`.

    Attributes:
        kernels: of the logarithm of each learned number of the kernels, in their order.
        correlation: of artanh of the correlation of two parameter functions, (J, J), in the user's
            order; zero where the model leaves no choice.
    """

    kernels: list[float]
    correlation: list[list[float]]


@dataclass(frozen=True)
class Scored:
    """A table of `baselines` as a model keeps it.

    Attributes:
        rows: which rows it is about, in words.
        table: by output its numbers, in the order of `baselines.COLUMNS`; None is unknown.
    """

    rows: str
    table: dict[str, list[float | None]]


@dataclass(frozen=True)
class Record:
    """How a fit went. The estimator shows it as attributes; files and JSON hold the same.

    Attributes:
        elbo: the evidence lower bound reached.
        history: the objective after each round, or the mean bound of each window of steps.
        converged: whether the convergence rule was met.
        interrupted: whether the user stopped it.
        n_iter: rounds or steps taken.
        method: "vem" or "svi".
        jitter: what is added to the diagonals of k(Z, Z).
        observed: how many values of each output were observed.
        input_range: the smallest and largest observed inputs, (2, p).
        sampled: for a `Table`, how many of its rows were sampled to start the fit.
        shared: whether the outputs share latents; None unless latents were chosen.
        sharing: for each output, the bound of its own model and what it adds to the bound of the
            joint model; under the name "", the sum of the former and the bound of the joint model.
            None unless latents were chosen.
        seconds: how long it took.
        marginal: for each output, the constants that suit it best if nothing depends on the inputs,
            see `marginal`; unknown in files of earlier versions.
        held_out: which rows of the table were kept from the fit, if they were marked.
        widths: how well hyperparameters are determined, after `HetMOGP.intervals`.
        scored: the latest comparison with baselines.
    """

    elbo: float
    history: np.ndarray
    converged: bool
    interrupted: bool
    n_iter: int
    method: str
    jitter: float
    observed: dict[str, int]
    input_range: np.ndarray
    sampled: int | None = None
    shared: bool | None = None
    sharing: dict[str, list[float]] | None = None
    seconds: float = 0.0
    marginal: dict[str, list[float]] | None = None
    held_out: HeldOut | None = None
    widths: Widths | None = None
    scored: Scored | None = None

    @classmethod
    def of(cls, learned: Learned, data: Dataset) -> "Record":
        """From what was learned and the data it was learned from."""
        fit, seen = learned.fit, dict(zip(data.names, data.observed(), strict=True))
        rows = [X[s] for X, s in zip(data.inputs, seen.values(), strict=True)]
        least = np.min([X.min(axis=0) for X in rows], axis=0)
        most = np.max([X.max(axis=0) for X in rows], axis=0)
        return cls(
            elbo=float(fit.bound),
            history=np.asarray(fit.history),
            converged=bool(fit.converged),
            interrupted=bool(fit.interrupted),
            n_iter=int(fit.iterations),
            method=learned.method,
            jitter=float(fit.jitter),
            observed={name: int(s.sum()) for name, s in seen.items()},
            input_range=np.stack([least, most]),
            **_sharing(learned, data),
        )

    def attributes(self) -> dict[str, Any]:
        """The attributes of a fitted estimator, by name."""
        return {
            ATTRIBUTES.get(name, f"{name}_"): value
            for name, value in vars(self).items()
            if name not in INTERNAL
        }

    def facts(self) -> dict[str, Any]:
        """What is written as JSON: all but arrays and the numbers of observed values."""
        return {k: v for k, v in asdict(self).items() if k not in (*ARRAYS, "observed")}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays, by name."""
        return {name: getattr(self, name) for name in ARRAYS}


def _sharing(learned: Learned, data: Dataset) -> dict[str, Any]:
    """What was chosen, by the names of the outputs."""
    choice = learned.choice
    if choice is None or choice.interrupted:
        return {}  # nothing was chosen
    bounds = zip(sorted(data.names), choice.own.tolist(), choice.together.tolist(), strict=True)
    by_name = {name: [own, joint] for name, own, joint in bounds}
    sharing = {name: by_name[name] for name in data.names}
    sharing[""] = [float(choice.own.sum()), float(choice.joint)]
    return {"shared": choice.shared, "sharing": sharing}
