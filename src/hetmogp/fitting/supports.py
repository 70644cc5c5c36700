"""Which inputs a latent may see: all of them, or a group that belongs together.

A product kernel over all inputs cannot be a sum, and a function of place and month often is one. So
where there are several inputs, latents over groups of them are candidates too: the coordinates of a
place, which are known by their names; the labels; every other input by itself.

Some numbers tell units apart, as an age tells patients apart who come several times. Each unit has
an effect of its own, which says nothing of a new one. A stationary kernel can only make that a
function of short range, and a new patient who is a week older than another would inherit from them.
So a latent over such a number alone takes its values as labels. Places stay places: there, what is
near is expected to be alike.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from ..columns import Column
from ..kernels import RBF, Category, Kernel

__all__ = ["groups", "over", "tells_units"]

AXES = re.compile(
    r"(utm|gps|coord|grid|proj|pos)*(x|y|z|lon|long|lng|longitude|lat|latitude|east|easting|north|"
    r"northing|eastings|northings)(utm|coord|coords|pos|km|m|deg|degrees)*"
)
MOST = 4  # groups; with more, every latent sees all inputs
LEAST_UNITS, LEAST_ROWS = 20, 2  # units, and rows of most of them
IRREGULAR = 0.5  # of the median distance to the next unit; a tenth of the units have a nearer one


def groups(columns: Sequence[Column]) -> list[tuple[int, ...]]:
    """The groups of inputs that belong together, if there are several and not too many."""
    labels = [j for j, column in enumerate(columns) if column.kind == "category"]
    numbers = [j for j in range(len(columns)) if j not in labels]
    place = [j for j in numbers if AXES.fullmatch(re.sub(r"[\W_\d]", "", columns[j].name.lower()))]
    place = place if len(place) > 1 else []
    found = [place, labels, *([j] for j in numbers if j not in place)]
    result = [tuple(group) for group in found if group]
    return result if 1 < len(result) <= MOST else []


def over(group: tuple[int, ...], columns: Sequence[Column], units: bool = False) -> Kernel:
    """The kernel of a latent that sees a group of inputs; `units` if it tells units apart."""
    labels = units or columns[group[0]].kind == "category"
    return Category(active_dims=group) if labels else RBF(active_dims=group)


def tells_units(group: tuple[int, ...], X: Float[np.ndarray, "N p"]) -> bool:
    """Whether a group is one number whose values come back, at irregular distances.

    Regular ones, such as months, are no names of units: between two of them nothing is ever asked
    for.
    """
    values, rows = np.unique(X[:, group], axis=0, return_counts=True)
    if len(group) > 1 or len(values) < LEAST_UNITS or np.median(rows) < LEAST_ROWS:
        return False
    apart = cKDTree(values).query(values, k=2)[0][:, 1]
    return bool(np.quantile(apart, 0.1) < IRREGULAR * np.median(apart))
