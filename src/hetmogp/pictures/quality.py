"""Whether predictions are as sure as they should be."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import kstwo

from ..prediction import Observed
from ..scoring import has_transforms, reliability, transforms
from .marks import SERIES, Axis, Band, Dash, Line, Mark, Picture, Spans

__all__ = ["calibration"]

NOMINAL = np.linspace(0.0, 1.0, 101)  # coverages that are looked at
DASHES: tuple[Dash, ...] = ("", "dash", "dot", "dashdot")


def calibration(seen: Mapping[str, Observed]) -> Picture:
    """Observed against nominal coverage; for classes, observed shares against predictions.

    Args:
        seen: the observed values of each output, with predictions.
    """
    ordered = [name for name, one in seen.items() if has_transforms(one.prediction.likelihood)]
    marks: list[Mark] = [*_chance([len(seen[name].numbers) for name in ordered])]
    ends = np.array([0.0, 1.0])
    marks.append(Line(x=ends, y=ends, colour="#000000", width=1.0, dash="dash"))
    for k, (name, one) in enumerate(seen.items()):
        label = f"{name} (n = {len(one.numbers)})"
        look: dict[str, Any] = {"colour": SERIES[k % len(SERIES)], "name": label, "group": label}
        if name in ordered:
            inside = np.abs(2.0 * transforms(one) - 1.0)
            covered = np.searchsorted(np.sort(inside), NOMINAL, side="right") / len(inside)
            words = [
                f"{a:.0%} intervals hold {b:.0%}" for a, b in zip(NOMINAL, covered, strict=True)
            ]
            dash = DASHES[k // len(SERIES) % len(DASHES)]
            marks.append(Line(x=NOMINAL, y=covered, width=1.8, dash=dash, words=words, **look))
        else:
            p, share, reach = reliability(one)
            words = [f"predicted {a:.2f}, observed {b:.2f}" for a, b in zip(p, share, strict=True)]
            look |= {"joined": True, "words": words}
            marks.append(Spans(x=p, y=share, lower=share - reach, upper=share + reach, **look))
    across, up = [], []
    if ordered:
        across, up = ["nominal coverage"], ["observed coverage"]
    if len(ordered) < len(seen):
        across, up = [*across, "predicted probability"], [*up, "observed share"]
    x = Axis(" / ".join(across), ends=(0.0, 1.0))
    y = Axis(" / ".join(up), ends=(0.0, 1.0))
    return Picture(marks, x, y, height=420)


def _chance(counts: Sequence[int]) -> list[Mark]:
    """The band in which 95% of the curves of n values stay, by Kolmogorov and Smirnov.

    If outputs differ much in size, there is a band for the smallest and one for the largest.
    """
    if not counts:
        return []
    fewest, most = min(counts), max(counts)
    marks: list[Mark] = []
    for n in (fewest, most) if most > 2 * fewest else (fewest,):
        reach, name = kstwo.ppf(0.95, n), f"95% by chance, n = {n}"
        lower, upper = np.clip(NOMINAL - reach, 0, 1), np.clip(NOMINAL + reach, 0, 1)
        look: dict[str, Any] = {"colour": "#808080", "opacity": 0.2, "name": name, "group": name}
        marks.append(Band(x=NOMINAL, lower=lower, upper=upper, **look))
    return marks
