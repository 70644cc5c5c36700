"""Which inputs a latent may use: all of them, or a group of inputs that belong together.

A function of place and month is often a sum of a function of place and a function of month, which a
product kernel over all inputs cannot express. So where there are several inputs, latents over
groups of them are candidates too. The coordinates of a place are one group, recognised by their
names; the labels are another; every other input is a group by itself.

Some numbers identify units, as an age identifies patients who are seen several times. Each unit has
an effect of its own, which says nothing about a new unit. A stationary kernel can express this only
as a function of short range, and a new patient who is a week older than another would inherit that
patient's effect. So a latent over such a number alone treats its values as labels. Coordinates of
places are exempt, because neighbouring places are expected to be alike.
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
MOST = 4  # groups; with more, every latent uses all inputs
LEAST_UNITS, LEAST_ROWS = 20, 2  # the fewest units, and the fewest rows that most of them have
IRREGULAR = 0.5  # a tenth of the units are closer to the next than this share of the median


def groups(columns: Sequence[Column], hidden: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """The groups of inputs that belong together; none if there is one group or too many.

    Hidden inputs, which act only by effects, are in no group.
    """
    seen = [j for j in range(len(columns)) if j not in hidden]
    labels = [j for j in seen if columns[j].kind == "category"]
    numbers = [j for j in seen if j not in labels]
    place = [j for j in numbers if AXES.fullmatch(re.sub(r"[\W_\d]", "", columns[j].name.lower()))]
    place = place if len(place) > 1 else []
    found = [place, labels, *([j] for j in numbers if j not in place)]
    result = [tuple(group) for group in found if group]
    return result if 1 < len(result) <= MOST else []


def over(group: tuple[int, ...], columns: Sequence[Column], units: bool = False) -> Kernel:
    """The kernel of a latent over a group of inputs; `units` if the group identifies units."""
    labels = units or columns[group[0]].kind == "category"
    return Category(active_dims=group) if labels else RBF(active_dims=group)


def tells_units(group: tuple[int, ...], X: Float[np.ndarray, "N p"]) -> bool:
    """Whether a group is one number whose values repeat and are irregularly spaced.

    Regularly spaced values, such as months, do not identify units: nobody asks for a prediction
    between two of them.
    """
    values, rows = np.unique(X[:, group], axis=0, return_counts=True)
    if len(group) > 1 or len(values) < LEAST_UNITS or np.median(rows) < LEAST_ROWS:
        return False
    apart = cKDTree(values).query(values, k=2)[0][:, 1]
    return bool(np.quantile(apart, 0.1) < IRREGULAR * np.median(apart))
