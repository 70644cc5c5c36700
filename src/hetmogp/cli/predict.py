"""`hetmogp predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .application import Json, app, fail, one_clear_line, print_data, print_json, say
from .files import (
    WRITTEN,
    columns_of,
    is_many,
    load_model,
    read_table,
    split_names,
    text_of,
    will_write,
    write_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..model import HetMOGP


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model that `hetmogp fit` has saved.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A CSV or Parquet file with the inputs to predict at; or a folder or pattern of "
            "them, with --out."
        ),
    ] = None,
    grid: Annotated[
        int | None,
        typer.Option(min=2, help="Predict on a grid of so many points per input instead."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A CSV or Parquet file to write; CSV to standard output by default."),
    ] = None,
    outputs: Annotated[
        str | None, typer.Option(help="The outputs to predict, separated by commas.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.001, max=0.999, help="The probability of the intervals.")
    ] = 0.9,
    as_json: Json = False,
) -> None:
    """Predict every output at new inputs: mean, standard deviation and interval, or probabilities.

    Columns that likelihoods take beside their outputs (an exposure, a number of trials) are read
    from the file where it has them, and are one where it has not.

    Examples:
    hetmogp predict sales.hetmogp new.csv --out predicted.csv

    hetmogp predict sales.hetmogp --grid 50 --outputs flat --out map.parquet
    """
    with one_clear_line():
        if (data is None) == (grid is None):
            raise typer.BadParameter("name either a file with inputs or --grid")
        if out is not None:
            will_write(out, model, data)
            if out.suffix.lower() not in WRITTEN:
                fail(f"cannot write {out}: tables are written as .csv, .tsv or .parquet")
        fitted = load_model(model)
        chosen = None if outputs is None else split_names(outputs)
        given: Any = None
        if data is not None and is_many(data):
            _predict_many(fitted, data, chosen, out, interval, as_json)
            return
        if data is not None:
            table = read_table(data, text_of(fitted))
            names = [column.name for column in fitted.columns_]
            for name in names:
                if name not in table.columns:
                    fail(f"{data} has no column {name!r}; the model was fitted on {names}")
            columns_of(table, names, data)
            beside = {c for of in fitted.likelihoods_.values() for _, c in of.columns}
            X, given = table[names], table[[c for c in table.columns if c in beside]]
        else:
            assert grid is not None
            X = fitted.grid(grid)
        found = fitted.predict(X, chosen, given).to_frame(interval)
        _tell(_joined(X, found), out, as_json)


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
    from ..disk import Table

    if out is None:
        fail(f"name a Parquet file for the predictions of {data} with --out")
    inputs = [column.name for column in model.columns_]
    table = Table(data, inputs=inputs, text=text_of(model))
    predict(model, table, outputs, out, interval)
    if as_json:
        print_json({"out": str(out), "rows": len(table)})
    else:
        say(f"{len(table)} rows: {out}")


def _joined(X: "pd.DataFrame", found: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    return pd.concat([X, found.set_axis(X.index, axis=0)], axis=1)


def _tell(table: "pd.DataFrame", out: Path | None, as_json: bool) -> None:
    if out is not None:
        write_table(table, out)
        if as_json:
            print_json({"out": str(out), "rows": len(table), "columns": list(table.columns)})
        else:
            say(f"{len(table)} rows: {out}")
    elif as_json:
        print_json(table.to_dict("records"))
    else:
        print_data(table.to_csv(index=False))
