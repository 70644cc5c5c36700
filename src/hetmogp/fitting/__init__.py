"""Learning: where it starts, how it proceeds, when it stops."""

from .checkpoint import CheckpointError, Checkpoints
from .free import Anchor
from .learning import Source, learn
from .progress import Progress
from .run import JITTER, Fit, NotPositiveDefiniteError, run_svi, run_vem
from .start import initial_lengthscales, initial_parameters

__all__ = [
    "JITTER",
    "Anchor",
    "CheckpointError",
    "Checkpoints",
    "Fit",
    "NotPositiveDefiniteError",
    "Progress",
    "Source",
    "initial_lengthscales",
    "initial_parameters",
    "learn",
    "run_svi",
    "run_vem",
]
