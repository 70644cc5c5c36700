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
    above: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=LIMIT: map the probability that this output exceeds a limit; repeat for "
            "more. By default the upper quartile of the observed values."
        ),
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
        limits = dict(map(_limit, above or ()))
        from ..model import load
        from ..report import write

        fitted = load(model)
        X, Y = (None, None) if data is None else read_for(fitted, data, drop_missing)
        notes = write(fitted, target, X, Y, title=model.stem, above=limits)
        lines = [*(f"note: {note}" for note in notes), f"report: {target}"]
        tell(as_json, {"report": str(target), "warnings": notes}, "\n".join(lines))


def _limit(words: str) -> tuple[str, float]:
    """An output and a limit, from NAME=LIMIT."""
    name, _, limit = words.rpartition("=")
    try:
        number = float(limit)
    except ValueError:
        number = None
    if not name or number is None:
        raise typer.BadParameter(f"--above {words!r} should be NAME=LIMIT, such as zinc=300")
    return name, number
