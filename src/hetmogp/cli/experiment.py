"""`hetmogp experiment NAME`: the paper's experiments, one command each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .application import Json, app, one_clear_line, print_json

if TYPE_CHECKING:
    import pandas as pd

    from ..experiments.compare import Paper

experiment = typer.Typer(help="Run one of the paper's experiments.", no_args_is_help=True)
app.add_typer(experiment, name="experiment")

Out = Annotated[Path, typer.Option(help="The folder for the figure and the scores, as CSV.")]
Data = Annotated[Path | None, typer.Option(envvar="HETMOGP_DATA", help="The folder with the data.")]
Workers = Annotated[int, typer.Option(min=1, help="How many fits at a time, each a process.")]
Page = Annotated[
    Path | None, typer.Option(help="A Markdown page in which to renew the experiment's tables.")
]
HERE = Path("experiments")


@experiment.callback()
def main() -> None:
    """Run one of the paper's experiments: tables with its numbers beside ours, and its figure."""


@experiment.command()
def gap(
    splits: Annotated[int, typer.Option(min=1, help="How many draws of the data.")] = 10,
    out: Out = HERE,
    workers: Workers = 1,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """A binary output is predicted where it was never seen, from a real one that was.

    Ten draws take two minutes. Example: hetmogp experiment gap --splits 3
    """
    with one_clear_line():
        _room(page, "gap")
        from ..experiments import gap

        found = gap.run(out, splits, workers)
        _tell("gap", found, gap.PAPER, gap.SETTINGS, out, page, as_json)


@experiment.command()
def behaviour(
    splits: Annotated[int, typer.Option(min=1, help="How many for each person and case.")] = 5,
    out: Out = HERE,
    data: Data = None,
    workers: Workers = 1,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """A person's week: at home, movement and phone, minutes or whole hours hidden.

    Example: hetmogp experiment behaviour --splits 1 --workers 2
    """
    with one_clear_line():
        _room(page, "behaviour")
        from ..experiments import behaviour

        found = behaviour.run(out, splits, data, workers)
        _tell("behaviour", found, behaviour.PAPER, behaviour.SETTINGS, out, page, as_json)


@experiment.command()
def london(
    splits: Annotated[int, typer.Option(min=1, help="How many for each case.")] = 5,
    out: Out = HERE,
    data: Data = None,
    workers: Workers = 1,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """House sales in London: flat or not, and log price; also hidden in a third of the map.

    Example: hetmogp experiment london --splits 1
    """
    with one_clear_line():
        _room(page, "london")
        from ..experiments import london

        found = london.run(out, splits, data, workers)
        _tell("london", found, london.PAPER, london.SETTINGS, out, page, as_json)


@experiment.command()
def register(
    data: Data = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """One pass over four years of London's sales, beside one over 2017: time and memory.

    Example: hetmogp experiment register
    """
    with one_clear_line():
        _room(page, "register")
        from ..experiments import london
        from ..experiments.compare import renew

        table = london.register(data)
        if page is not None:
            renew(page, "register", london.as_markdown(table))
        if as_json:
            print_json(table.to_dict("records"))
        else:
            typer.echo(table.T.to_string(header=False, float_format="{:,.3f}".format))


@experiment.command()
def arrhythmia(
    splits: Annotated[int, typer.Option(min=1, help="How many for each case.")] = 10,
    out: Out = HERE,
    data: Data = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Take the data from OpenML, through scikit-learn.")
    ] = False,
    workers: Workers = 1,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Sex and age from 255 measurements of the heart; beside penalised regressions.

    Example: hetmogp experiment arrhythmia --splits 2
    """
    with one_clear_line():
        _room(page, "arrhythmia")
        from ..experiments import arrhythmia

        found = arrhythmia.run(out, splits, data, workers, fetch)
        _tell("arrhythmia", found, {}, arrhythmia.SETTINGS, out, page, as_json)


def _room(page: Path | None, name: str) -> None:
    """Refuse a page without marks before the work, not after it."""
    from ..experiments.compare import around_marks

    if page is not None:
        around_marks(page, name)


def _tell(
    name: str,
    table: "pd.DataFrame",
    paper: "Paper",
    settings: dict[str, object],
    out: Path,
    page: Path | None,
    as_json: bool,
) -> None:
    from ..experiments.compare import markdown, renew, show

    words = ", ".join(f"{option}={value!r}" for option, value in settings.items())
    if page is not None:
        renew(page, name, markdown(table, paper, f"`{words}`"))
    if as_json:
        print_json(table.to_dict("records"))
    else:
        show(table, paper, words)
    typer.echo(f"scores of every split and the figure are in {out}", err=True)
