"""`hetmogp experiment NAME`."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .application import Json, app, one_clear_line, tell

Name = Literal["gap", "behaviour", "london", "register", "arrhythmia"]
HERE = Path("experiments")


@app.command(no_args_is_help=True)
def experiment(
    name: Annotated[Name, typer.Argument(help="Which one.")],
    splits: Annotated[
        int | None,
        typer.Option(min=1, help="The number of splits for each case; 10 or 5 by default."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for the figure and the scores, as CSV.")
    ] = HERE,
    data: Annotated[
        Path | None, typer.Option(envvar="HETMOGP_DATA", help="The folder with the data.")
    ] = None,
    fetch: Annotated[
        bool,
        typer.Option("--fetch", help="Fetch the arrhythmia data from OpenML, with scikit-learn."),
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="The number of fits at a time, each in a process of its own.")
    ] = 1,
    page: Annotated[
        Path | None, typer.Option(help="A Markdown page in which to renew the experiment's tables.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one of the paper's experiments: tables with its numbers beside ours, and its figure.

    gap: a binary output is predicted where it was never seen, from a real one that was. Ten draws
    take two minutes; it needs no data.

    behaviour: a person's week (at home, movement, phone), of which minutes or hours are hidden.

    london: house sales (flat or not, log price), also with one hidden in a third of the map.

    register: time and memory of one pass over London's sales in 2017, and over four years.

    arrhythmia: sex and age from 255 measurements of the heart, beside penalised regressions.

    Examples:
    hetmogp experiment gap --splits 3

    hetmogp experiment behaviour --data folder --splits 1 --workers 2
    """
    with one_clear_line():
        if fetch and name != "arrhythmia":
            raise typer.BadParameter("--fetch is for arrhythmia")
        if name == "register" and (splits, out, workers) != (None, HERE, 1):
            raise typer.BadParameter("register is one pass: it takes only --data and --page")
        from ..experiments import compare, london

        if page is not None:
            compare.around_marks(page, name)  # a page without marks is refused before the work
        if name == "register":
            table = london.register(data)
            text = london.as_markdown(table)
        else:
            module = import_module(f"hetmogp.experiments.{name}")
            options: dict[str, Any] = {"workers": workers}
            options |= {} if splits is None else {"splits": splits}
            options |= {} if name == "gap" else {"data": data}
            table = module.run(out, **options, **({"from_openml": True} if fetch else {}))
            settings = ", ".join(f"{option}={value!r}" for option, value in module.SETTINGS.items())
            text = compare.markdown(table, module.PAPER, settings)
            typer.echo(f"scores of every split and the figure are in {out}", err=True)
        if page is not None:
            compare.renew(page, name, text)
        tell(as_json, table.to_dict("records"), text)
