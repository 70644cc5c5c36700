"""The application that the commands belong to, and how they end when something is wrong.

Results go to standard output, progress, warnings and errors to standard error. A command ends with
0 when it did what was asked, 1 when data, files or numbers did not allow it, 2 when it was called
wrongly, and 130 when it was interrupted.
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .. import __version__

__all__ = ["Json", "Seed", "app", "fail", "one_clear_line", "print_json"]

app = typer.Typer(
    help="Gaussian processes for outputs of different kinds, in one model.\n\n"
    "From a table to predictions: discover, fit, score, predict, report.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Seed = Annotated[int, typer.Option(min=0, help="Everything random follows from it.")]


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
    """Gaussian processes for outputs of different kinds, in one model."""


def fail(message: str) -> NoReturn:
    """End the command with one line that says why."""
    typer.echo(f"hetmogp: {' '.join(message.split())}", err=True)
    raise typer.Exit(1)


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Around a command's work: compiled programs are kept, trouble and warnings become one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("default", RuntimeWarning)
        warnings.showwarning = _warn
        try:
            _remember_compilations()
            yield
        except (ValueError, TypeError, ArithmeticError, OSError) as error:
            fail(_said(error))
        except MemoryError:
            fail("there is not enough memory for this")
        except KeyboardInterrupt:
            typer.echo("hetmogp: interrupted", err=True)
            raise typer.Exit(130) from None


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"hetmogp: warning: {' '.join(str(message).split())}", err=True)


def print_json(content: Any) -> None:
    """Print an object as JSON; what is not a finite number is null."""
    typer.echo(json.dumps(_plain(content), indent=1, ensure_ascii=False))


def _plain(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if hasattr(content, "item"):
        content = content.item()
    if isinstance(content, float) and (content != content or abs(content) == float("inf")):
        return None
    return content if isinstance(content, str | int | float | bool | None) else str(content)


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
