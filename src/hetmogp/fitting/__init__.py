"""Learning: where it starts, how it proceeds, when it stops."""

from .checkpoint import CheckpointError, Checkpoints
from .fit import Fit, NotPositiveDefiniteError
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
    "learn",
]
