"""What each picture of a fitted model shows: curves, bands, points, labels and colours.

A picture is described here once. `plots` draws the description with matplotlib, and the page of
`report` draws it in the browser.
"""

from .along import Place, along, by_label
from .forecasts import fan
from .learned import bound, correlation, shares
from .maps import Map, over_map
from .marks import (
    DATA,
    GAP,
    INK,
    SERIES,
    Axis,
    Band,
    Bars,
    Dots,
    Heat,
    Line,
    Mark,
    Picture,
    Rules,
    Scale,
    Shade,
    Spans,
    palette,
)
from .quality import calibration

__all__ = [
    "DATA",
    "GAP",
    "INK",
    "SERIES",
    "Axis",
    "Band",
    "Bars",
    "Dots",
    "Heat",
    "Line",
    "Map",
    "Mark",
    "Picture",
    "Place",
    "Rules",
    "Scale",
    "Shade",
    "Spans",
    "along",
    "bound",
    "by_label",
    "calibration",
    "correlation",
    "fan",
    "over_map",
    "palette",
    "shares",
]
