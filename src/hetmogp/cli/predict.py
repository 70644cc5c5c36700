"""`hetmogp predict`."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .application import Chosen, DropMissing, Json, Model, Out, app, fail, one_clear_line, tell
from .files import (
    inputs_at,
    is_many,
    refuse_many,
    show_table,
    table_for,
    will_write_table,
)

MANY = 100_000  # rows; a grid over three inputs soon has more

if TYPE_CHECKING:
    from ..model import HetMOGP


@app.command()
def predict(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A CSV or Parquet file with the inputs to predict at; or a folder or pattern of "
            "them, with --out."
        ),
    ] = None,
    at: Annotated[
        Path | None, typer.Option(help="The same as DATA; draw and aggregate have this option too.")
    ] = None,
    grid: Annotated[
        int | None,
        typer.Option(min=2, help="Predict on a grid instead, with this many points per input."),
    ] = None,
    drop_missing: DropMissing = False,
    out: Out = None,
    output: Chosen = None,
    interval: Annotated[
        float, typer.Option(min=0.001, max=0.999, help="The probability of the intervals.")
    ] = 0.9,
    as_json: Json = False,
) -> None:
    """Predict every output at new inputs: mean, standard deviation and interval, or probabilities.

    Columns that likelihoods need (such as an exposure or a number of trials) are read from the
    file if it has them, and taken to be 1 otherwise.

    Examples:
    hetmogp predict sales.hetmogp new.csv --out predicted.csv

    hetmogp predict sales.hetmogp --grid 50 --output flat --out map.parquet
    """
    with one_clear_line():
        if sum(one is not None for one in (data, at, grid)) != 1:
            raise typer.BadParameter("name either a file with inputs or --grid")
        data = data or at
        will_write_table(out, model, data)
        import pandas as pd

        from ..model import load

        fitted = load(model)
        if data is not None and is_many(data):
            refuse_many(data, drop_missing)
            _predict_many(fitted, data, output, out, interval, as_json)
            return
        given: Any = None
        if data is not None:
            X, given, _ = inputs_at(fitted, data, drop_missing)
        else:
            assert grid is not None
            X = fitted.grid(grid)
            if len(X) > MANY:
                words = f"a grid of {grid} points along each input has {len(X):,} rows, which takes"
                warnings.warn(f"{words} long; a smaller --grid is faster", stacklevel=2)
        predicted = fitted.predict(X, output, given).to_frame(interval).set_axis(X.index, axis=0)
        show_table(pd.concat([X, predicted], axis=1), out, as_json)


def _predict_many(
    model: "HetMOGP",
    data: Path,
    outputs: list[str] | None,
    out: Path | None,
    interval: float,
    as_json: bool,
) -> None:
    """Predict at the rows of many files, part by part."""
    from ..bulk import predict

    if out is None:
        fail(f"name a Parquet file for the predictions of {data} with --out")
    table = table_for(model, data)
    predict(model.fitted, table, outputs, out, interval)
    tell(as_json, {"out": str(out), "rows": len(table)}, f"{len(table)} rows: {out}")
