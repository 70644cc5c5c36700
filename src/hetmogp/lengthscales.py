"""The numbers of a fitted model's kernels, in the units of the inputs, with their intervals."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from scipy.stats import norm

from .fitted import Fitted
from .kernels import Kernel
from .kernels.leaf import with_unit

__all__ = ["NORMAL", "in_words", "lengthscales"]

NORMAL = float(norm.ppf(0.95))  # standard deviations on either side of 90%
COLUMNS = ["latent", "kernel", "input", "number", "value", "lower", "upper", "flat"]


def lengthscales(fitted: Fitted, latents: Sequence[int]) -> pd.DataFrame:
    """A row for each number of the kernels of some latents.

    `lower` and `upper` are the ends of its 90% interval, NaN where none is known: before
    `HetMOGP.intervals`, and for numbers that are held. `flat` says that a lengthscale is larger
    than the range of its input in the data.
    """
    names = [column.name for column in fitted.columns]
    ranges = np.ptp(np.asarray(fitted.record.input_range, float), axis=0)
    three = [fitted.kernels, *(_moved(fitted, sign) for sign in (-1.0, 1.0))]
    rows = []
    for q in latents:
        for leaf, low, high in zip(*(kernels[q].leaves for kernels in three), strict=True):
            if leaf.own_scale:
                continue
            dims = range(len(names)) if leaf.active_dims is None else leaf.active_dims
            for number in leaf.numbers:
                ends = (getattr(kernel, number) for kernel in (leaf, low, high))
                values = np.stack([np.broadcast_to(np.asarray(v, float), len(dims)) for v in ends])
                for dim, (value, lower, upper) in zip(dims, values.T, strict=True):
                    scale = number == "lengthscale" and leaf.by_distance
                    known = fitted.record.widths is not None and lower < upper
                    rows.append(
                        (f"u{q}", type(leaf).__name__, names[int(dim)], number, float(value))
                        + ((float(lower), float(upper)) if known else (np.nan, np.nan))
                        + (bool(scale and value > ranges[int(dim)]),)
                    )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype({"value": float, "lower": float, "upper": float, "flat": bool})


def _moved(fitted: Fitted, sign: float) -> tuple[Kernel, ...]:
    """The kernels at the lower or at the upper ends of the intervals of their numbers."""
    kernels, widths = fitted.posterior.prior.kernels, fitted.record.widths
    if widths is None:
        return fitted.kernels
    learned = tuple(kernel.learned() for kernel in kernels)
    leaves, structure = jax.tree.flatten(learned)
    spread = iter(widths.kernels)
    moved = []
    for leaf in map(np.asarray, leaves):
        width = np.array([next(spread) for _ in range(leaf.size)]).reshape(leaf.shape)
        moved.append(leaf * np.exp(np.clip(sign * NORMAL * width, -50.0, 50.0)))
    centre, scale = fitted.scaling
    combined: tuple[Kernel, ...] = eqx.combine(jax.tree.unflatten(structure, moved), kernels)
    return tuple(kernel.rescaled(scale, centre) for kernel in combined)


def in_words(table: pd.DataFrame, units: dict[str, str]) -> pd.DataFrame:
    """The table as text, with the units of the inputs."""

    def said(row: pd.Series, value: float) -> str:
        if row["kernel"] == "Category":
            return f"{np.exp(-1.0 / value):.2f}"
        phase = row["kernel"] == "Periodic" and row["number"] == "lengthscale"
        return with_unit(value, "" if phase else units[row["input"]])

    words = {"Category": "correlation"}
    lines = {
        "number": [words.get(row["kernel"], row["number"]) for _, row in table.iterrows()],
        "value": [said(row, row["value"]) for _, row in table.iterrows()],
        "interval": [
            f"{said(row, row['lower'])} to {said(row, row['upper'])}"
            if row["lower"] == row["lower"]
            else "held"
            for _, row in table.iterrows()
        ],
        "": ["flat: beyond the data's range" if flat else "" for flat in table["flat"]],
    }
    shown = table[["latent", "kernel", "input"]].assign(**lines)
    return shown.set_index("latent")
