"""Fitting: where it starts, how it proceeds and when it stops."""

from .checkpoint import CheckpointError, Checkpoints
from .effects import grouped
from .fit import Fit, NotPositiveDefiniteError
from .inducing import inputs_of
from .learning import Learned, Source, learn
from .options import JITTER, Options
from .progress import Progress

__all__ = [
    "JITTER",
    "CheckpointError",
    "Checkpoints",
    "Fit",
    "Learned",
    "NotPositiveDefiniteError",
    "Options",
    "Progress",
    "Source",
    "grouped",
    "inputs_of",
    "learn",
]
