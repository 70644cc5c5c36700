"""A progress bar on standard error, silent where nobody is looking."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]


class Progress:
    """Shows how far a fit has come towards its convergence rule, and the bound."""

    def __init__(self, show: bool):
        console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not (show and (console.is_terminal or console.is_jupyter)),
        )
        self._task = self._bar.add_task("preparing", total=1.0, detail="")

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
        """Say what is going on, how far it is (0 to 1) and the bound reached, if any."""
        self._bar.update(
            self._task,
            description=what,
            completed=min(max(fraction, 0.0), 1.0),
            detail="" if bound is None else f"bound {bound:,.2f}",
        )
