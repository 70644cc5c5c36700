"""What was observed, and where: marks that pictures of an output have in common."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import curves
from ..curves import Seen
from ..inputs import restored
from ..likelihoods import Likelihood
from ..model import HetMOGP
from ..tables import Dataset
from .marks import Axis, Dots, Line, Mark, Shade, Shape, palette, short

__all__ = [
    "bundle_marks",
    "gap_marks",
    "observed_marks",
    "of_these_labels",
    "said",
    "values_axis",
    "where",
]

TURN = np.pi * np.arange(-2, 3) / 2


def of_these_labels(
    model: HetMOGP, row: np.ndarray, output: str, data: Dataset, besides: Sequence[int] = ()
) -> tuple[Seen, np.ndarray]:
    """The observed values, and all inputs of the data, that have the labels of a row."""
    here = curves.seen_of(data, output)
    labels = [j for j, c in enumerate(model.columns_) if c.kind == "category" and j not in besides]
    every = np.concatenate(data.inputs)
    mine, all_mine = ((X[:, labels] == row[labels]).all(axis=1) for X in (here.inputs, every))
    return here.at(mine), every[all_mine]


def observed_marks(likelihood: Likelihood, x: np.ndarray, seen: Seen) -> list[Dots]:
    """What was observed: dots, or ticks if only few values are possible; triangles if censored.

    Each class without an order has a row of ticks, above the areas of the probabilities.
    """
    values = likelihood.decode(seen.codes) if likelihood.labelled else seen.values
    words_of = [str(v) if likelihood.labelled else short(v) for v in values]
    if likelihood.outcome == "nominal":
        K = len(likelihood.levels)
        y = 1.0 + min(0.05, 0.4 / K) * (seen.values + 0.8)
        colours = [palette(K)[int(code)] for code in seen.codes]
        look: dict[str, Any] = {"shape": "tick", "size": 6.0, "opacity": 0.7, "words": words_of}
        return [Dots(x=x, y=y, colour=colours, name="observed", group="observed", **look)]
    few = likelihood.outcome == "ordered" or bool(np.isin(seen.values, (0.0, 1.0)).all())
    ticks = few and likelihood.unit_column is None
    kinds: tuple[tuple[np.ndarray, str, Shape, str], ...] = (
        (~(seen.larger | seen.smaller), "observed", "tick" if ticks else "dot", ""),
        (seen.larger, "censored: at least this", "up", "at least "),
        (seen.smaller, "censored: at most this", "down", "at most "),
    )
    marks = []
    for rows, name, shape, before in kinds:
        if rows.any() or shape in ("dot", "tick"):
            words = [before + text for text, mine in zip(words_of, rows, strict=True) if mine]
            size, opacity = {"dot": (3.0, 0.5), "tick": (8.0, 0.5)}.get(shape, (4.0, 0.7))
            marks.append(
                Dots(
                    x=x[rows],
                    y=seen.values[rows],
                    shape=shape,
                    size=size,
                    opacity=opacity,
                    words=words,
                    name=name,
                    group=name,
                )
            )
    return marks


def gap_marks(model: HetMOGP, row: np.ndarray, j: int, seen: Seen, every: np.ndarray) -> list[Mark]:
    """Long ranges in which the output was not observed although others were."""
    marks: list[Mark] = []
    for k, ends in enumerate(curves.gaps(seen.inputs[:, j], every[:, j])):
        two = np.tile(row, (2, 1))
        two[:, j] = ends
        begin, end = curves.shown_as(model, two, j)
        marks.append(Shade(begin=begin, end=end, name="" if k else "not observed", group="gaps"))
    return marks


def bundle_marks(x: np.ndarray, paths: Iterable[np.ndarray], colour: str, look: dict) -> list[Mark]:
    """Draws of a function, as thin lines."""
    thin: dict[str, Any] = {"width": 0.8, "opacity": 0.6, "colour": colour}
    own = {**look, "group": f"draws {look['group']}" if look.get("group") else "draws"}
    return [
        Line(x=x, y=path, name="" if k else "draws", **thin, **own) for k, path in enumerate(paths)
    ]


def said(likelihood: Likelihood, values: np.ndarray) -> list[str]:
    """Values in words: classes in an order by their labels."""
    if likelihood.numeric:
        return list(map(short, values))
    return [str(likelihood.levels[int(value)]) for value in values]


def values_axis(output: str, likelihood: Likelihood, whole: bool) -> Axis:
    """The axis of the values of an output."""
    title = curves.quantity(output, likelihood)
    if likelihood.outcome == "circular":
        return Axis(
            title,
            ticks=list(zip(TURN, ["−π", "−π/2", "0", "π/2", "π"], strict=True)),
            ends=(-np.pi, np.pi),
        )
    if likelihood.outcome == "nominal":
        return Axis(title, ticks=[(p, f"{p:.1f}") for p in np.linspace(0, 1, 6)])
    if likelihood.outcome == "ordered":
        labels = likelihood.levels
        at = labels if likelihood.numeric else range(len(labels))
        return Axis(title, ticks=[(float(a), str(v)) for a, v in zip(at, labels, strict=True)])
    return Axis(title, whole=whole)


def where(model: HetMOGP, table: np.ndarray, over: Sequence[int]) -> str:
    """The inputs that are not drawn over, and their values."""
    values = restored(table[:1], model.columns_).iloc[0]
    held = [
        f"{c.name} = {values[c.name]:.4g}" if c.kind == "number" else f"{c.name} = {values[c.name]}"
        for j, c in enumerate(model.columns_)
        if j not in over
    ]
    return f"at {', '.join(held)}" if held else ""
