"""The command line. Heavy imports happen inside the commands, so that help is instant."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from . import __version__

if TYPE_CHECKING:
    import pandas as pd

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


def _remember_compilations() -> None:
    """Keep what XLA compiles in the user's cache, so that a second run starts at once."""
    import jax

    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return  # the user has chosen a place
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "hetmogp" / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # nowhere to keep it: compile each time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write the figure to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of the simulated data.")] = 0,
) -> None:
    """Fit the paper's missing-gap problem, jointly and independently; print a table, draw a figure.

    Example: hetmogp demo --out demo
    """
    _remember_compilations()
    from .demo import run

    try:
        run(out, seed)
    except OSError as error:
        _fail(f"cannot write to {out}: {error.strerror or error}")


@app.command()
def discover(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file, one row per observation.")],
    inputs: Annotated[str, typer.Option(help="The input columns, separated by commas.")],
    outputs: Annotated[
        str | None,
        typer.Option(help="The columns to look at, separated by commas; the others by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of rows.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Find a likelihood for each output: what the column admits, scored on held-out rows.

    Example: hetmogp discover sales.csv --inputs lat,lon --outputs price,flat
    """
    table = _read(data)
    chosen = _columns(table, inputs, data)
    others = [column for column in table.columns if column not in chosen]
    named = _columns(table, outputs, data) if outputs is not None else others
    if not named:
        _fail(f"{data} has no column beside the inputs")
    for name in named:
        if name in chosen:
            _fail(f"{name!r} is named as an input and as an output")
    _remember_compilations()
    from .discovery import discover

    try:
        found = discover(table[chosen], table[named], seed=seed)
    except ValueError as error:
        _fail(str(error))
    if as_json:
        typer.echo(json.dumps(json.loads(found.table.to_json(orient="records")), indent=1))
    else:
        _show(found.table)


def _show(table: "pd.DataFrame") -> None:
    """The table of a discovery, one block per output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, side in (
        *(("output", "left"), ("likelihood", "left"), ("log density", "right")),
        *(("behind", "right"), ("error", "right"), ("why", "left")),
    ):
        shown.add_column(heading, justify=side, no_wrap=heading != "why")  # type: ignore[arg-type]
    last = None
    for row in table.to_dict("records"):
        name = row["output"] if row["output"] != last else ""
        if name and last is not None:
            shown.add_row()
        last = row["output"]
        numbers = [row[key] for key in ("log_density", "behind", "error")]
        kind = f"{row['likelihood']} *" if row["recommended"] else row["likelihood"] or "-"
        cells = [name, kind, *("" if n != n else f"{n:.3f}" for n in numbers), row["reason"]]
        shown.add_row(*(Text(str(cell)) for cell in cells))
    Console().print(shown)


def _read(path: Path) -> "pd.DataFrame":
    """A table from a file, or one line that says why not."""
    import pandas as pd

    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(path)
        return pd.read_csv(path)
    except FileNotFoundError:
        _fail(f"there is no file {path}")
    except (OSError, ValueError, UnicodeDecodeError) as error:
        _fail(f"cannot read {path} as a table: {str(error).splitlines()[0]}")


def _columns(table: "pd.DataFrame", names: str, path: Path) -> list[str]:
    """The columns of a comma-separated list."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        _fail("no column was named")
    for name in chosen:
        if name not in table.columns:
            _fail(f"{path} has no column {name!r}; it has {', '.join(map(str, table.columns))}")
    return chosen


def _fail(message: str) -> NoReturn:
    typer.echo(f"hetmogp: {message}", err=True)
    raise typer.Exit(1)
