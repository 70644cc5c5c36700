"""`hetmogp report`."""

from pathlib import Path
from typing import Annotated

import typer

from .application import DropMissing, Json, Model, app, one_clear_line, tell
from .files import read_for, will_write


@app.command()
def report(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Option(help="A CSV or Parquet file to show and to score the model on."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The page to write; by default next to the model, ending in .html."),
    ] = None,
    drop_missing: DropMissing = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a model: what it is, how well it predicts, what outputs share.

    The page holds all it needs and is readable without a network.

    Example: hetmogp report sales.hetmogp --data sales.csv --out sales.html
    """
    with one_clear_line():
        target = model.with_suffix(".html") if out is None else out
        will_write(target, model, data)
        from ..model import load
        from ..report import write

        fitted = load(model)
        X, Y = (None, None) if data is None else read_for(fitted, data, drop_missing)
        notes = write(fitted, target, X, Y, title=model.stem)
        lines = [*(f"note: {note}" for note in notes), f"report: {target}"]
        tell(as_json, {"report": str(target), "warnings": notes}, "\n".join(lines))
