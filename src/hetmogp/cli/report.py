"""`hetmogp report`."""

from pathlib import Path
from typing import Annotated

import typer

from ..text import printable
from .application import Json, app, one_clear_line, print_json, say
from .files import load_model, read_for, will_write


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="A model that `hetmogp fit` has saved.")],
    data: Annotated[
        Path | None,
        typer.Option(help="A CSV or Parquet file to show and to score the model on."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The page to write; beside the model, as .html, by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a model: what it is, how well it predicts, what outputs share.

    The page holds all it needs and is readable without a network.

    Example: hetmogp report sales.hetmogp --data sales.csv --out sales.html
    """
    with one_clear_line():
        target = model.with_suffix(".html") if out is None else out
        will_write(target, model, data)
        fitted = load_model(model)
        X, Y = (None, None) if data is None else read_for(fitted, data)
        from ..report import write

        notes = write(fitted, target, X, Y, title=model.stem)
        if as_json:
            print_json({"report": str(target), "warnings": notes})
        else:
            for note in notes:
                say(printable(f"note: {note}"))
            say(printable(f"report: {target}"))
