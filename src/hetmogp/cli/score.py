"""`hetmogp score`."""

from pathlib import Path
from typing import Annotated

import typer

from .application import DropMissing, Json, Model, app, fail, one_clear_line, tell
from .files import is_many, read_for, refuse_many, table_for
from .holdout import scored


@app.command()
def score(
    model: Model,
    data: Annotated[
        Path,
        typer.Argument(
            help="A CSV or Parquet file with inputs and outputs; for a folder or pattern of "
            "files only the density is measured."
        ),
    ],
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=0.999, help="The probability of the intervals; 0.9 by default."
        ),
    ] = None,
    drop_missing: DropMissing = False,
    as_json: Json = False,
) -> None:
    """Score a model on a table: the negative log predictive density of each output, and more.

    Lower is better. coverage is the share of values inside their intervals (for counts and other
    whole numbers it is often above the nominal level); rmse is the error of the mean; accuracy is
    the share of values that were the most probable class. A second table compares the model with
    the same outputs alone and with the best constant of each. If the model was fitted to this
    table, only the rows that were held out count, if there are any.

    Example: hetmogp score sales.hetmogp test.csv
    """
    with one_clear_line():
        from ..model import load

        fitted = load(model)
        if is_many(data):
            refuse_many(data, drop_missing)
            if interval is not None:
                fail(f"--interval is for a single file: for {data} only the density is measured")
            scores = fitted.nlpd(table_for(fitted, data))
            lines = (f"{name}  {value:.3f}" for name, value in scores.items())
            tell(as_json, {name: {"nlpd": v} for name, v in scores.items()}, "\n".join(lines))
            return
        tell(as_json, *scored(fitted, *read_for(fitted, data, drop_missing), interval or 0.9))
