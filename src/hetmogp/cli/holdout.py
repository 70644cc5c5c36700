"""Rows held out of a fit, and scores beside baselines: what `fit` and `score` have in common."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .application import fail
from .files import columns_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ..model import HetMOGP

__all__ = ["Chosen", "chosen", "only", "scored"]


A_FEW = 0.1  # share of rows that may lie beyond those fitted, as some at the ends do
FEWEST_GROUPS = 5  # held out, below which a standard error says little


class Chosen(NamedTuple):
    """The rows to hold out, how they were chosen, and the column whose groups they are."""

    held: "np.ndarray"
    how: str
    by: str | None = None


def chosen(
    table: "pd.DataFrame",
    X: "pd.DataFrame",
    path: Path,
    share: float,
    by: str | None,
    after: str | None,
    seed: int,
) -> Chosen:
    """The rows that --holdout, --by and --holdout-after mean.

    Args:
        table: all of its columns.
        X: the inputs.
        path: of the table, for error messages.
        share: of the rows, at random.
        by: the column whose groups are held out whole, or the input that `after` is about.
        after: the last value of an input that is fitted.
        seed: for what is random.
    """
    from ..holdout import at_random, in_groups

    if share and after is not None:
        fail("--holdout takes rows at random and --holdout-after the last ones: choose one of them")
    if by is not None and not share and after is None:
        fail("--by says which rows are held out together: it goes with --holdout")
    if after is not None:
        held, name = _later(X, path, by, after)
        result = Chosen(held, f"those with {name} after {after}")
    elif by is not None:
        columns_of(table, [by], path)
        held = in_groups(table[by], share, seed)
        groups = table[by][held].nunique(dropna=False)
        of = table[by].nunique(dropna=False)
        if groups < FEWEST_GROUPS:
            warnings.warn(
                f"only {groups} of {of} groups of {by} {'is' if groups == 1 else 'are'} held out: "
                "standard errors count each group once and are rough with so few; raise --holdout",
                UserWarning,
                stacklevel=2,
            )
        return Chosen(held, f"{groups} of {of} groups of {by}, chosen at random", by)
    else:
        held = at_random(len(table), share, seed)
        if share and (held.all() or not held.any()):
            many = "every row" if held.all() else "less than one row"
            fail(f"--holdout {share:g} is {many} of the {len(table)} in {path}")
        return Chosen(held, f"{share:.0%} of the rows, at random")
    if result.held.all() or not result.held.any():
        many = "every" if result.held.all() else "no"
        fail(f"--holdout-after {after}: {many} row of {path} is later")
    return result


def _later(X: "pd.DataFrame", path: Path, by: str | None, after: str) -> tuple["np.ndarray", str]:
    """Which rows have an input above a limit, and the name of that input."""
    import pandas as pd

    from ..columns import is_time
    from ..inputs import read_inputs

    table, columns = read_inputs(X)
    limit: float | None = None
    with suppress(ValueError):
        limit = float(after)
    kinds = ("time", "duration") if limit is None else ("number",)
    able = [column for column in columns if column.kind in kinds]
    if by is not None:
        able = [column for column in able if column.name == by]
    if len(able) != 1:
        what, kind = ("not a number", "dates or durations")
        if limit is not None:
            what, kind = ("a number", "numbers")
        if not able:
            named = "no input" if by is None else f"no input {by!r}"
            fail(f"--holdout-after {after} is {what}, and {path} has {named} that holds {kind}")
        names = ", ".join(repr(column.name) for column in able)
        fail(
            f"--holdout-after {after} is {what}, and {path} has several inputs that hold {kind}: "
            f"{names}. Name one of them with --by"
        )
    (column,) = able
    if limit is None:
        if column.kind == "time" and not is_time(after):
            fail(f"--holdout-after {after!r} is not a date; write a date as 2001-06-01")
        values = pd.DataFrame({column.name: [after]})
        limit = float(read_inputs(values, [column], "--holdout-after")[0][0, 0])
    j = columns.index(column)
    return table[:, j] > limit, column.name


def only(table: "pd.DataFrame", outputs: Any, rows: Any) -> "pd.DataFrame":
    """The table with its outputs observed in these rows only; text keeps all of its classes."""
    import pandas as pd

    table = table.copy()
    for name in outputs:
        values, kind = table[name].astype(object).where(rows, None), table[name].dtype
        if isinstance(kind, pd.CategoricalDtype):
            values = values.astype(kind)
        elif any(isinstance(value, str) for value in table[name]):
            values = pd.Categorical(values, sorted(table[name].dropna().unique()))
        table[name] = values
    return table


def _beyond(model: "HetMOGP", X: "pd.DataFrame", table: "pd.DataFrame") -> Iterator[str]:
    """Which inputs of scored rows lie beyond those that were fitted, a sentence each."""
    from ..inputs import read_inputs

    rows = table[model.output_names_].notna().any(axis=1).to_numpy()
    numbers = read_inputs(X, model.columns_)[0][rows]
    low, high = model.input_range_
    for j, column in enumerate(model.columns_):
        far = int(((numbers[:, j] < low[j]) | (numbers[:, j] > high[j])).sum())
        if column.kind != "category" and far > A_FEW * len(numbers):
            yield (
                f"{far:,} of {len(numbers):,} scored rows have a {column.name} beyond that of all "
                "rows fitted: far from these, predictions return to the average"
            )


def scored(
    model: "HetMOGP", X: "pd.DataFrame", table: "pd.DataFrame", level: float = 0.9
) -> tuple[dict[str, Any], str]:
    """Scores of a model on a table and its baselines there: for programs, and for people.

    Of the table that it was fitted to, only rows that were held out count, if there are any. There
    is a warning for an output that does not beat its constant.
    """
    from ..baselines import doubts, missing, shown
    from ..scoring import evaluate

    marked, by = model.fitted.record.held_out, None
    held, where = model.held_out(X), ""
    if held is not None and marked is not None and held.any():
        table = only(table, model.output_names_, held)
        where = f"{held.sum():,} of {len(held):,} rows, held out of the fit: {marked.how}"
        by = table[marked.by].tolist() if marked.by in table else None
    elif held is not None:
        where = "the model was fitted to these very rows; new ones will be predicted less well"
    for words in _beyond(model, X, table):
        warnings.warn(words, UserWarning, stacklevel=2)
    scores = evaluate(model, X, table, level)
    beside = model.compare_baselines(X, table, by)
    for words in doubts(beside):
        warnings.warn(words, UserWarning, stacklevel=2)
    text = [
        *([where, ""] if where else []),
        _plain(scores.dropna(axis=1, how="all"), float_format="{:.3f}".format, na_rep=""),
        "",
        "beside baselines: NLPD, and the gain in nats a value ± its standard error",
        _plain(shown(beside).drop(columns="values")),
        *(f"({words})" for words in missing(model.fitted)),
    ]
    both = scores.join(beside.drop(columns=["values", "joint"]))
    return {str(name): row.to_dict() for name, row in both.iterrows()}, "\n".join(text)


def _plain(table: "pd.DataFrame", **how: Any) -> str:
    """A table as text, without a line for the name of its index."""
    return table.rename_axis(None).to_string(**how)
