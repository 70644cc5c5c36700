"""The application that the commands belong to, and how they end when something is wrong.

Results go to standard output, progress, warnings and errors to standard error. A command ends with
0 when it did what was asked, 1 when data, files or numbers did not allow it, 2 when it was called
wrongly, and 130 when it was interrupted.
"""

import atexit
import json
import lzma
import os
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .. import __version__
from ..text import UNPRINTABLE, printable

__all__ = [
    *("At", "Chosen", "DropMissing", "Inputs", "Json", "Labels", "Model", "Out", "Seed"),
    *("app", "fail", "interrupted", "one_clear_line", "print_data", "print_json", "say", "tell"),
]


class Application(typer.Typer):
    """The commands; after an interrupt the process ends without taking JAX apart.

    The compiler's threads may still be at work, and the process would crash instead of ending with
    its exit code.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ended: list[object] = []
        # Before anything of JAX is imported, and so called after all that it has registered.
        atexit.register(lambda: _end_at_once() if ended == [130] else None)
        try:
            return super().__call__(*args, **kwargs)
        except SystemExit as end:
            ended.append(end.code)
            raise


def _end_at_once() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)


app = Application(
    help="Gaussian processes for outputs of different kinds, in one model.\n\n"
    "From a table to predictions: discover, fit, score, predict, report.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")]
Model = Annotated[Path, typer.Argument(help="A model that `hetmogp fit` has saved.")]
Inputs = Annotated[str, typer.Option(help="The input columns, separated by commas.")]
Labels = Annotated[
    str | None,
    typer.Option(help="Inputs that look like numbers but are labels, separated by commas."),
]
DropMissing = Annotated[
    bool,
    typer.Option("--drop-missing-inputs", help="Leave out rows in which an input is missing."),
]
At = Annotated[Path, typer.Option(help="A CSV or Parquet file with the inputs.")]
Chosen = Annotated[
    list[str] | None, typer.Option(help="An output; repeat for more. All of them by default.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="A CSV or Parquet file to write; CSV to standard output by default."),
]


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
    _complain(message)
    raise typer.Exit(1)


def interrupted(message: str) -> NoReturn:
    """End a command that was interrupted, with one line that says what is left of it."""
    _complain(message)
    raise typer.Exit(130)


def _complain(message: str) -> None:
    """One line on standard error."""
    typer.echo(f"hetmogp: {printable(' '.join(message.split()))}", err=True)


# Damaged archives, data of a kind that a library cannot read, texts nested too deep, an extra that
# is not installed: trouble that users meet and can mend. Other errors are faults of this package,
# and keep their traceback.
TROUBLE = (
    *(ValueError, TypeError, ArithmeticError, OSError),
    *(EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile),
    *(NotImplementedError, RecursionError, ImportError),
)


@contextmanager
def one_clear_line(stopped: str = "interrupted") -> Iterator[None]:
    """Around a command's work: trouble and warnings become one line.

    Args:
        stopped: what to say of an interrupt.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("default", RuntimeWarning)
        warnings.showwarning = _warn
        try:
            yield
        except TROUBLE as error:
            if isinstance(error, BrokenPipeError) and error.filename is None:
                raise  # whoever read standard output has seen enough, and typer ends in silence
            fail(_said(error))
        except MemoryError:
            fail(NO_MEMORY)
        except RuntimeError as error:
            if not _of_the_device(error):
                raise
            fail(NO_MEMORY if "RESOURCE_EXHAUSTED" in str(error) else str(error).split("\n")[0])
        except KeyboardInterrupt:
            interrupted(stopped)


NO_MEMORY = "there is not enough memory for this"


def _of_the_device(error: RuntimeError) -> bool:
    """Whether an error is JAX's, about the device that it was told to use."""
    kind = type(error).__name__
    missing = str(error).startswith("Unable to initialize backend")
    return missing or kind in ("JaxRuntimeError", "XlaRuntimeError")


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or f"this could not be done ({type(error).__name__})"


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    _complain(f"warning: {message}")


def tell(as_json: bool, content: Any, text: object) -> None:
    """Print a result: as JSON, or as lines for people."""
    if as_json:
        print_json(content)
    else:
        say(text)


def say(text: object) -> None:
    """Print lines for people: control characters in names do not reach the terminal."""
    _print("\n".join(map(printable, str(text).split("\n"))), end="\n")


def print_data(text: str) -> None:
    """Print data for programs: as they are, but on a terminal without control characters."""
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    _print(text, end="")


def print_json(content: Any) -> None:
    """Print an object as JSON; what is not a finite number is null."""
    text = json.dumps(content, default=lambda one: one.item() if hasattr(one, "item") else str(one))
    finite = json.loads(text, parse_constant=lambda word: None)
    text = json.dumps(finite, indent=1, ensure_ascii=False)
    lines = (UNPRINTABLE.sub(lambda c: f"\\u{ord(c[0]):04x}", line) for line in text.split("\n"))
    _print("\n".join(lines), end="\n")


def _print(text: str, end: str) -> None:
    try:
        # With colours allowed, as data would lose what looks like one.
        typer.echo(text + end, nl=False, color=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error
