"""`hetmogp demo`."""

from pathlib import Path
from typing import Annotated

import typer

from .application import Seed, app, fail, one_clear_line, say


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write the figure to.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Fit the paper's missing-gap problem, jointly and independently: a table and a figure.

    Example: hetmogp demo --out demo
    """
    with one_clear_line():
        from ..demo import run

        try:
            say(run(out, seed))
        except OSError as error:
            fail(f"cannot write to {out}: {error.strerror or error}")
