"""`hetmogp discover`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..text import printable
from .application import (
    DropMissing,
    Inputs,
    Json,
    Labels,
    Seed,
    app,
    fail,
    one_clear_line,
    print_json,
)
from .files import check_inputs, columns_of, read_table, split_names, with_inputs, with_labels

if TYPE_CHECKING:
    import pandas as pd


WIDE = 300  # columns, where there is no terminal to fit


@app.command()
def discover(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file, one row per observation.")],
    inputs: Inputs,
    output: Annotated[
        list[str] | None,
        typer.Option(help="A column to look at; repeat for more. By default all but the inputs."),
    ] = None,
    labels: Labels = None,
    drop_missing: DropMissing = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find a likelihood for each output: what the column admits, scored on held-out rows.

    Example: hetmogp discover sales.csv --inputs lat,lon --output price --output flat
    """
    with one_clear_line():
        table = read_table(data, [] if labels is None else [labels, *split_names(labels)])
        chosen = split_names(inputs, table.columns)
        named = list(dict.fromkeys(output or ())) or [
            column for column in table.columns if column not in chosen
        ]
        if not named:
            fail(f"{data} has no column beside the inputs")
        table = with_inputs(table, chosen, data, drop_missing)
        X = with_labels(columns_of(table, chosen, data), labels, data)
        check_inputs(X, data)
        for name in named:
            if name in X:
                fail(f"{name!r} is named as an input and as an output")
        Y = columns_of(table, named, data)
        from ..discovery import discover

        found = discover(X, Y, seed=seed)
        if as_json:
            print_json(found.table.to_dict("records"))
        else:
            show(found.table)
            for note in found.notes:
                print(printable(note))
        if not found:
            fail(f"no column of {data} can be an output; the table says why")


def show(table: "pd.DataFrame") -> None:
    """The table of a discovery, one block per output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    numbers = {"log density": "log_density", "behind": "behind", "error": "error"}
    for heading in ("output", "likelihood", *numbers, "why"):
        side: Any = "right" if heading in numbers else "left"
        shown.add_column(heading, justify=side, no_wrap=heading != "why")
    for k, (name, rows) in enumerate(table.groupby("output", sort=False)):
        if k:
            shown.add_row()
        for row in rows.to_dict("records"):
            kind = f"{row['likelihood']} *" if row["recommended"] else row["likelihood"] or "-"
            values = [row[key] for key in numbers.values()]
            words = ("" if value != value else f"{value:.3f}" for value in values)
            shown.add_row(*(Text(printable(str(c))) for c in (name, kind, *words, row["reason"])))
            name = ""  # which is shown once
    Console(width=None if Console().is_terminal else WIDE).print(shown)
