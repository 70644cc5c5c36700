"""Scores and predictions for a table on disk, part by part; each process has a section."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from . import distributed
from .disk import Table
from .files import temporary_file
from .fitted import Fitted

__all__ = ["nlpd", "predict"]


def nlpd(fitted: Fitted, table: Table) -> dict[str, float]:
    """The mean negative log predictive density of each output, and their sum as "global"."""
    inputs, extra = _columns(fitted)
    columns = list(dict.fromkeys([*inputs, *fitted.likelihoods, *extra]))
    table.agree()

    def densities(frame: pd.DataFrame) -> dict[str, np.ndarray]:
        return fitted.log_densities(frame[inputs], frame)

    def own() -> dict[str, np.ndarray]:
        sums = {name: np.zeros(2) for name in fitted.likelihoods}  # sums and counts of values
        for part in table.each(densities, columns):
            for name, values in part.items():
                sums[name] += (-np.sum(values), values.size)
        return sums

    parts = distributed.gathered(distributed.together(own))
    result = {}
    for name in fitted.likelihoods:
        total, count = np.sum([part[name] for part in parts], axis=0)
        result[name] = float(total / count) if count else np.nan
    return {**result, "global": sum(result.values())}


def _columns(fitted: Fitted) -> tuple[list[str], list[str]]:
    """The inputs, and the columns that come with each value of the outputs."""
    extra = [column for one in fitted.likelihoods.values() for _, column in one.columns]
    return [column.name for column in fitted.columns], extra


def predict(
    fitted: Fitted,
    table: Table,
    outputs: str | Sequence[str] | None,
    out: str | os.PathLike,
    interval: float = 0.9,
) -> Path:
    """Predict at every row, and write inputs and predictions to a Parquet file in order.

    Args:
        fitted: the model.
        table: the inputs; columns that come with outputs, such as exposures, are used if present.
        outputs: the outputs to predict; all by default.
        out: the file, written completely or not at all; with several processes, a folder with
            one file each.
        interval: the probability of the intervals.
    """
    target = Path(out)
    if target.suffix.lower() not in (".parquet", ".pq"):
        raise ValueError(f"out={str(out)!r}: predictions of a Table are written as .parquet")
    inputs, extra = _columns(fitted)
    extra = [column for column in dict.fromkeys(extra) if column in table.columns]
    columns = list(dict.fromkeys([*inputs, *extra]))  # an input may also be an exposure
    table.agree()

    def predicted(frame: pd.DataFrame) -> pa.Table:
        values = fitted.predict(frame[inputs], outputs, frame[extra]).to_frame(interval)
        joined = pd.concat([frame[inputs], values], axis=1)
        return pa.Table.from_pandas(joined, preserve_index=False)

    def write(path: Path) -> None:
        writer: pq.ParquetWriter | None = None
        with temporary_file(path) as partial:
            try:
                for rows in table.each(predicted, columns):
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
        if not table.own_section():
            return None
        write(part)
        return part.name

    written = distributed.gathered(distributed.together(own))
    if distributed.count() > 1 and distributed.index() == 0:
        for part in target.glob("part-*.parquet"):
            if part.name not in written:
                part.unlink()  # from an earlier run with more processes
    return target
