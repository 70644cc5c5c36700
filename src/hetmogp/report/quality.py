"""How well the model predicts: scores beside baselines, of held-out rows apart from fitted ones."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..baselines import compare_on
from ..model import HetMOGP
from ..prediction import Observed
from ..scoring import scores
from ..tables import Dataset

__all__ = ["Part", "parts"]


class Part(NamedTuple):
    """Some rows of the data, and how well they are predicted.

    Attributes:
        title: which rows they are.
        words: what to think of their scores.
        observed: their values, with predictions.
        scores: see `scoring.evaluate`.
        baselines: see `HetMOGP.compare_baselines`.
    """

    title: str
    words: str
    observed: dict[str, Observed]
    scores: pd.DataFrame
    baselines: pd.DataFrame


def parts(model: HetMOGP, data: Dataset, tables: tuple[Any, ...], level: float) -> list[Part]:
    """The data in parts, those that say most first.

    Args:
        model: a fitted model.
        data: what was given with the report.
        tables: the inputs and outputs as they were given, in which a column may make groups.
        level: of the intervals whose coverage is measured.
    """
    marked = model.fitted.record.held_out
    shared = all(X is data.inputs[0] for X in data.inputs)
    held = marked.at(data.inputs[0]) if marked is not None and shared else None
    if held is None:
        words = "If the model was fitted to these very rows, new ones are predicted less well."
        if marked is not None:
            words = "This is not the table that the model was fitted to."
        return [_part("All rows", words, model, data, level)]
    assert marked is not None
    seen = "The model was fitted to these rows. New ones are predicted less well."
    if not held.any():
        return [_part("All rows", seen, model, data, level)]
    how = f"The model has not seen these {held.sum():,} of {len(held):,} rows: {marked.how}."
    columns = [table[marked.by] for table in tables if _has(table, marked.by)]
    by = columns[0].tolist() if columns else None
    return [
        _part("Held-out rows", how, model, _only(data, held), level, by),
        _part("Fitted rows", seen, model, _only(data, ~held), level),
    ]


def _has(table: Any, name: str | None) -> bool:
    return isinstance(table, pd.DataFrame) and name in table.columns


def _only(data: Dataset, rows: np.ndarray) -> Dataset:
    """The data with values in these rows alone."""
    return replace(data, values=[np.where(rows, y, np.nan) for y in data.values])


def _part(
    title: str, words: str, model: HetMOGP, data: Dataset, level: float, by: Any = None
) -> Part:
    fitted = model.fitted
    observed = fitted.observe(data)
    table = scores(model.output_names_, observed, level)
    return Part(title, words, observed, table, compare_on(fitted, data, observed, by))
