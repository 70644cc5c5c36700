"""Scores and predictions of a whole table on disk, part by part."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .disk import Table
from .files import beside

if TYPE_CHECKING:
    from .model import HetMOGP

__all__ = ["nlpd", "predict"]


def nlpd(model: "HetMOGP", table: Table) -> dict[str, float]:
    """The mean negative log predictive density of each output, and their sum as "global"."""
    inputs = [column.name for column in model.columns_]
    beside = [c for of in model.likelihoods_.values() for c in dict(of.columns).values()]
    columns = list(dict.fromkeys([*inputs, *model.output_names_, *beside]))
    totals, counts = dict.fromkeys(model.output_names_, 0.0), dict.fromkeys(model.output_names_, 0)
    for frame in table.frames(columns):
        for name, densities in model._log_densities(frame[inputs], frame).items():
            totals[name] -= float(np.sum(densities))
            counts[name] += densities.size
    found = {name: totals[name] / counts[name] if counts[name] else np.nan for name in totals}
    return {**found, "global": sum(found.values())}


def predict(
    model: "HetMOGP",
    table: Table,
    outputs: str | Sequence[str] | None,
    out: str | os.PathLike,
    interval: float = 0.9,
) -> Path:
    """Predict at every row and write a Parquet file of inputs and predictions, in their order.

    Args:
        model: fitted.
        table: has the inputs, and the columns that likelihoods take beside their outputs or not.
        outputs: those to predict; all by default.
        out: the file, never half written.
        interval: the probability of the intervals.
    """
    target = Path(out)
    if target.suffix.lower() not in (".parquet", ".pq"):
        raise ValueError(f"out={str(out)!r}: predictions of a Table are written as .parquet")
    inputs = [column.name for column in model.columns_]
    needed = [c for of in model.likelihoods_.values() for c in dict(of.columns).values()]
    columns = list(dict.fromkeys([*inputs, *(c for c in needed if c in table.columns)]))
    writer: pq.ParquetWriter | None = None
    with beside(target) as partial:
        try:
            for frame in table.frames(columns):
                given = frame[[name for name in columns if name not in inputs]]
                found = model.predict(frame[inputs], outputs, given).to_frame(interval)
                rows = pa.Table.from_pandas(
                    pd.concat([frame[inputs], found], axis=1), preserve_index=False
                )
                writer = writer or pq.ParquetWriter(partial, rows.schema)
                writer.write_table(rows.cast(writer.schema))
        finally:
            if writer is not None:
                writer.close()
    return target
