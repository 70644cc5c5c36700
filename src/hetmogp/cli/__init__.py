"""The command line: one file per command. Heavy imports happen inside them, so help is instant."""

from . import demo, discover, experiment, fit, predict, report, score
from .application import app

__all__ = ["app", "demo", "discover", "experiment", "fit", "predict", "report", "score"]
