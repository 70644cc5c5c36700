"""`hetmogp experiment NAME`: the paper's experiments, one command each."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from .application import Json, app, one_clear_line, tell

experiment = typer.Typer(help="Run one of the paper's experiments.", no_args_is_help=True)
app.add_typer(experiment, name="experiment")

Out = Annotated[Path, typer.Option(help="The folder for the figure and the scores, as CSV.")]
Data = Annotated[Path | None, typer.Option(envvar="HETMOGP_DATA", help="The folder with the data.")]
Workers = Annotated[int, typer.Option(min=1, help="How many fits at a time, each a process.")]
Page = Annotated[
    Path | None, typer.Option(help="A Markdown page in which to renew the experiment's tables.")
]
Splits = Annotated[int, typer.Option(min=1, help="How many for each case.")]
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
    _run("gap", out, page, as_json, splits=splits, workers=workers)


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
    _run("behaviour", out, page, as_json, splits=splits, data=data, workers=workers)


@experiment.command()
def london(
    splits: Splits = 5,
    out: Out = HERE,
    data: Data = None,
    workers: Workers = 1,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """House sales in London: flat or not, and log price; also hidden in a third of the map.

    Example: hetmogp experiment london --splits 1
    """
    _run("london", out, page, as_json, splits=splits, data=data, workers=workers)


@experiment.command()
def arrhythmia(
    splits: Splits = 10,
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
    options = {"splits": splits, "data": data, "workers": workers, "from_openml": fetch}
    _run("arrhythmia", out, page, as_json, **options)


def _run(name: str, out: Path, page: Path | None, as_json: bool, **options: Any) -> None:
    """Run an experiment: its tables are printed and put into the page."""
    with one_clear_line():
        from ..experiments.compare import around_marks, markdown, plain_text, renew

        if page is not None:
            around_marks(page, name)  # a page without marks is refused before the work
        module = import_module(f"hetmogp.experiments.{name}")
        table = module.run(out, **options)
        settings = ", ".join(f"{option}={value!r}" for option, value in module.SETTINGS.items())
        if page is not None:
            renew(page, name, markdown(table, module.PAPER, settings))
        tell(as_json, table.to_dict("records"), plain_text(table, module.PAPER, settings))
        typer.echo(f"scores of every split and the figure are in {out}", err=True)


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
        from ..experiments import london
        from ..experiments.compare import around_marks, renew

        if page is not None:
            around_marks(page, "register")
        table = london.register(data)
        if page is not None:
            renew(page, "register", london.as_markdown(table))
        text = table.T.to_string(header=False, float_format="{:,.3f}".format)
        tell(as_json, table.to_dict("records"), text)
