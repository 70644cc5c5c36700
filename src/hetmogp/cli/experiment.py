"""`hetmogp experiment NAME`: the paper's experiments, one command each."""

from pathlib import Path
from typing import Annotated

import typer

from .application import Json, app, one_clear_line, print_json

experiment = typer.Typer(help="Run one of the paper's experiments.", no_args_is_help=True)
app.add_typer(experiment, name="experiment")

Out = Annotated[Path, typer.Option(help="The folder to write figures to.")]


@experiment.callback()
def main() -> None:
    """Run one of the paper's experiments: a table with its numbers, and its figure."""


@experiment.command()
def gap(
    seeds: Annotated[int, typer.Option(min=1, help="How many draws of the data.")] = 10,
    out: Out = Path("experiments"),
    as_json: Json = False,
) -> None:
    """A binary output is predicted where it was never seen, from a real one that was.

    Ten draws take about a minute. Example: hetmogp experiment gap --seeds 3
    """
    with one_clear_line():
        from ..experiments import gap

        found = gap.run(out, seeds)
        if as_json:
            print_json(
                {name: table.reset_index().to_dict("records") for name, table in found.items()}
            )
        else:
            gap.show(found)
