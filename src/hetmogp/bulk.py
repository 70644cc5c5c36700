"""Scores and predictions of a whole table on disk, part by part; each process does a stretch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from . import distributed
from .disk import Table
from .files import temporary_file

if TYPE_CHECKING:
    from .model import HetMOGP

__all__ = ["nlpd", "predict"]


def nlpd(model: "HetMOGP", table: Table) -> dict[str, float]:
    """The mean negative log predictive density of each output, and their sum as "global"."""
    inputs = [column.name for column in model.columns_]
    beside = [c for of in model.likelihoods_.values() for c in dict(of.columns).values()]
    columns = list(dict.fromkeys([*inputs, *model.output_names_, *beside]))
    table.agree()
    mine = (distributed.index(), distributed.count())

    def densities(frame: pd.DataFrame) -> dict[str, np.ndarray]:
        return model._log_densities(frame[inputs], frame)

    def own() -> dict[str, np.ndarray]:
        found = {name: np.zeros(2) for name in model.output_names_}  # a sum, and of how many
        for here in table.each(densities, columns, *mine):
            for name, of in here.items():
                found[name] += (-np.sum(of), of.size)
        return found

    parts = distributed.gathered(distributed.together(own))
    result = {}
    for name in model.output_names_:
        total, count = np.sum([part[name] for part in parts], axis=0)
        result[name] = float(total / count) if count else np.nan
    return {**result, "global": sum(result.values())}


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
        out: the file, never half written; with several processes a folder of one file each.
        interval: the probability of the intervals.
    """
    target = Path(out)
    if target.suffix.lower() not in (".parquet", ".pq"):
        raise ValueError(f"out={str(out)!r}: predictions of a Table are written as .parquet")
    inputs = [column.name for column in model.columns_]
    needed = [c for of in model.likelihoods_.values() for c in dict(of.columns).values()]
    columns = list(dict.fromkeys([*inputs, *(c for c in needed if c in table.columns)]))
    table.agree()
    mine = (distributed.index(), distributed.count())

    def predicted(frame: pd.DataFrame) -> pa.Table:
        given = frame[[name for name in columns if name not in inputs]]
        found = model.predict(frame[inputs], outputs, given).to_frame(interval)
        return pa.Table.from_pandas(pd.concat([frame[inputs], found], axis=1), preserve_index=False)

    def write(path: Path) -> None:
        writer: pq.ParquetWriter | None = None
        with temporary_file(path) as partial:
            try:
                for rows in table.each(predicted, columns, *mine):
                    writer = writer or pq.ParquetWriter(partial, rows.schema)
                    writer.write_table(rows.cast(writer.schema))
            finally:
                if writer is not None:
                    writer.close()

    def own() -> str | None:
        if distributed.count() == 1:
            write(target)
            return None
        target.mkdir(parents=True, exist_ok=True)
        part = target / f"part-{distributed.index():05d}.parquet"
        if not table.stretch(*mine):
            return None
        write(part)
        return part.name

    written = distributed.gathered(distributed.together(own))
    if distributed.count() > 1 and distributed.index() == 0:
        for part in target.glob("part-*.parquet"):
            if part.name not in written:
                part.unlink()  # of an earlier time, by more processes
    return target
