"""The command line: one file per command. Heavy imports happen inside them, so help is instant."""

from . import aggregate, demo, discover, draw, experiment, fit, predict, report, score, summary
from .application import app

__all__ = [
    "aggregate",
    "app",
    "demo",
    "discover",
    "draw",
    "experiment",
    "fit",
    "predict",
    "report",
    "score",
    "summary",
]
