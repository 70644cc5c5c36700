"""Progress on standard error: a bar on a terminal or in a notebook, else a line now and then."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]

SOONEST, LATEST = 10.0, 300.0  # seconds between two lines


class Progress:
    """Shows the bound and how close a fit is to convergence.

    Where there is no terminal, as in a log, the first line comes after ten seconds; the waits
    between lines grow to five minutes.
    """

    def __init__(self, show: bool):
        console = Console(stderr=True)
        live = console.is_terminal or console.is_jupyter
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not (show and live),
        )
        self._task = self._bar.add_task("preparing", total=1.0, detail="")
        self._lines = show and not live
        self._began = time.monotonic()
        self._next = SOONEST

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, what: str, fraction: float, bound: float | None = None) -> None:
        """Show the current stage, its progress from 0 to 1 and the bound, if known."""
        done = min(max(fraction, 0.0), 1.0)
        detail = "" if bound is None else f"bound {bound:,.2f}"
        self._bar.update(self._task, description=what, completed=done, detail=detail)
        elapsed = time.monotonic() - self._began
        if self._lines and elapsed >= self._next:
            self._next = elapsed + min(max(elapsed / 2, SOONEST), LATEST)
            words = (f"{elapsed:.0f} s", what, f"{done:.0%}", detail)
            print("hetmogp:", ", ".join(filter(None, words)), file=sys.stderr, flush=True)
