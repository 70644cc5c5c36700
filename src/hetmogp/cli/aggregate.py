"""`hetmogp aggregate`."""

from enum import StrEnum
from typing import Annotated

import typer

from .application import At, Chosen, DropMissing, Json, Model, Out, Seed, app, fail, one_clear_line
from .files import columns_of, inputs_at, show_table, split_names, will_write_table


class How(StrEnum):
    """How to combine the rows of a group."""

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Of(StrEnum):
    """What is aggregated."""

    OBSERVATIONS = "observations"
    EXPECTED = "expected"


@app.command()
def aggregate(
    model: Model,
    at: At,
    by: Annotated[
        str | None,
        typer.Option(
            help="The columns that define the groups, separated by commas; one group by default."
        ),
    ] = None,
    output: Chosen = None,
    how: Annotated[How, typer.Option(help="How to combine the rows of a group.")] = How.MEAN,
    of: Annotated[
        Of, typer.Option(help="Observations with their noise, or their expected values.")
    ] = Of.OBSERVATIONS,
    above: Annotated[
        float | None,
        typer.Option(help="A limit; also give the probability that a group exceeds it."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="The column with the weight of each row.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.001, max=0.999, help="The probability of the intervals.")
    ] = 0.9,
    n: Annotated[int, typer.Option("-n", min=2, help="How many draws.")] = 1000,
    drop_missing: DropMissing = False,
    out: Out = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Means, totals or extremes over groups of rows, with their uncertainty.

    The errors of rows in a group are correlated, so the interval of a group does not follow from
    those of its rows. The result has a row for each group: its number of rows, and the mean,
    standard deviation and interval of each output.

    Example:
    hetmogp aggregate model.hetmogp --at parcels.csv --by parcel --output zinc --above 300
    """
    with one_clear_line():
        will_write_table(out, model, at)
        from ..model import load

        fitted = load(model)
        X, given, table = inputs_at(fitted, at, drop_missing)
        groups = None if by is None else split_names(by, table.columns)
        further = [*(groups or []), *([] if weights is None else [weights])]
        columns_of(table, further, at)
        for name in groups or ():
            if (none := table[name].isna().to_numpy()).any():
                row = int(none.argmax())
                fail(f"{at}, row {row}, column {name!r}: no label, and every row needs a group")
        extra = [name for name in dict.fromkeys(further) if name not in X.columns]
        found = fitted.aggregate(
            X.join(table[extra]),
            groups[0] if groups is not None and len(groups) == 1 else groups,
            outputs=output,
            how=how.value,
            of=of.value,
            level=interval,
            above=above,
            weights=weights,
            given=given,
            n_samples=n,
            random_state=seed,
        )
        show_table(found.reset_index(drop=by is None), out, as_json)
