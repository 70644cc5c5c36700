"""`hetmogp draw`."""

from typing import Annotated

import typer

from .application import At, Chosen, DropMissing, Json, Model, Out, Seed, app, fail, one_clear_line
from .files import inputs_at, show_table, will_write_table

MOST_ROWS = 50_000_000  # of a table of draws


@app.command()
def draw(
    model: Model,
    at: At,
    n: Annotated[int, typer.Option("-n", min=1, help="How many draws.")] = 100,
    output: Chosen = None,
    drop_missing: DropMissing = False,
    out: Out = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw observations at new inputs, jointly over rows and outputs.

    Each draw is one possible table of outputs, with the right dependence between rows and between
    outputs. The result has a row for each draw and input; the column draw counts from 0.

    Example:
    hetmogp draw model.hetmogp --at grid.csv -n 100 --out draws.parquet
    """
    with one_clear_line():
        will_write_table(out, model, at)
        import numpy as np
        import pandas as pd

        from ..model import load

        fitted = load(model)
        X, given, _ = inputs_at(fitted, at, drop_missing)
        if n * len(X) > MOST_ROWS:
            most = f"{MOST_ROWS:,}"
            fail(f"{n} draws at {len(X)} rows are more than {most} rows; take fewer with -n")
        drawn = fitted.sample_y(X, n, seed, output, given)
        rows = X.iloc[np.tile(np.arange(len(X)), n)].reset_index(drop=True)
        count = pd.Series(np.repeat(np.arange(n), len(X)), name="draw")
        values = pd.DataFrame({name: y.reshape(-1) for name, y in drawn.items()})
        show_table(pd.concat([count, rows, values], axis=1), out, as_json)
