"""Which inputs a latent may see: all of them, or a group that belongs together.

A product kernel over all inputs cannot be a sum, and a function of place and month often is one. So
where there are several inputs, latents over groups of them are candidates too: the coordinates of a
place, which are known by their names; the labels; every other input by itself.
"""

import re
from collections.abc import Sequence

from ..columns import Column
from ..kernels import RBF, Category, Kernel

__all__ = ["groups", "over"]

AXES = re.compile(
    r"(utm|gps|coord|grid|proj|pos)*(x|y|z|lon|long|lng|longitude|lat|latitude|east|easting|north|"
    r"northing|eastings|northings)(utm|coord|coords|pos|km|m|deg|degrees)*"
)
MOST = 4  # groups; with more, every latent sees all inputs


def groups(columns: Sequence[Column]) -> list[tuple[int, ...]]:
    """The groups of inputs that belong together, if there are several and not too many."""
    labels = [j for j, column in enumerate(columns) if column.kind == "category"]
    numbers = [j for j in range(len(columns)) if j not in labels]
    place = [j for j in numbers if AXES.fullmatch(re.sub(r"[\W_\d]", "", columns[j].name.lower()))]
    place = place if len(place) > 1 else []
    found = [place, labels, *([j] for j in numbers if j not in place)]
    result = [tuple(group) for group in found if group]
    return result if 1 < len(result) <= MOST else []


def over(group: tuple[int, ...], columns: Sequence[Column]) -> Kernel:
    """The kernel of a latent that sees a group of inputs."""
    labels = columns[group[0]].kind == "category"
    return Category(active_dims=group) if labels else RBF(active_dims=group)
