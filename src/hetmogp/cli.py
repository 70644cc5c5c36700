"""The command line. Heavy imports happen inside the commands, so that help is instant."""

from pathlib import Path
from typing import Annotated

import typer

from . import __version__

__all__ = ["app"]

app = typer.Typer(
    help="Heterogeneous multi-output Gaussian processes: outputs of different kinds, one model.",
    no_args_is_help=True,
    add_completion=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"hetmogp {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Heterogeneous multi-output Gaussian processes."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write the figure to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of the simulated data.")] = 0,
) -> None:
    """Fit the paper's missing-gap problem, jointly and independently; print a table, draw a figure.

    Example: hetmogp demo --out demo
    """
    from .demo import run

    try:
        run(out, seed)
    except OSError as error:
        typer.echo(f"hetmogp: cannot write to {out}: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None
