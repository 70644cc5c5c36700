"""One self-contained HTML page about a fitted model, to read offline, on any screen."""

from .notes import notes
from .page import write

__all__ = ["notes", "write"]
