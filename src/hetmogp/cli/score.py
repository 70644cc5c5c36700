"""`hetmogp score`."""

from pathlib import Path
from typing import Annotated

import typer

from .application import Json, app, fail, one_clear_line, print_json, say
from .files import is_many, load_model, read_for, text_of


@app.command()
def score(
    model: Annotated[Path, typer.Argument(help="A model that `hetmogp fit` has saved.")],
    data: Annotated[
        Path,
        typer.Argument(
            help="A CSV or Parquet file with inputs and outputs; of a folder or pattern of them "
            "the density alone is measured."
        ),
    ],
    interval: Annotated[
        float | None,
        typer.Option(min=0.001, max=0.999, help="Whose coverage is measured; 0.9 by default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score a model on a table: of each output the negative log predictive density and more.

    Lower is better. coverage is the share of values inside their intervals (of counts and other
    whole numbers it may well be more than was asked for); rmse is the error of the mean, accuracy
    the share of classes that were the most probable one.

    Example: hetmogp score sales.hetmogp test.csv
    """
    with one_clear_line():
        fitted = load_model(model)
        if is_many(data):
            if interval is not None:
                fail(f"--interval is for a single file: of {data} the density alone is measured")
            from ..disk import Table

            inputs = [column.name for column in fitted.columns_]
            scores = fitted.nlpd(Table(data, inputs=inputs, text=text_of(fitted)))
            if as_json:
                print_json({name: {"nlpd": value} for name, value in scores.items()})
            else:
                say("\n".join(f"{name}  {value:.3f}" for name, value in scores.items()))
            return
        X, Y = read_for(fitted, data)
        from ..scoring import evaluate

        found = evaluate(fitted, X, Y, 0.9 if interval is None else interval)
        if as_json:
            print_json(found.to_dict("index"))
        else:
            say(found.to_string(float_format="{:.3f}".format, na_rep=""))
