"""Descriptions of pictures (`pictures`) as JSON, for the page's own code to draw."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ..pictures import GAP, Axis, Heat, Mark, Picture, Scale, Shade
from ..text import printable

__all__ = ["as_json", "encoded"]

DIGITS = 5  # of numbers: a pixel is about one in a thousand


def as_json(pictures: Mapping[str, Picture]) -> str:
    """All pictures, by the ids of their places; nothing in it can end a script of HTML."""
    text = json.dumps({key: encoded(one) for key, one in pictures.items()}, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def encoded(picture: Picture) -> dict[str, Any]:
    """One picture."""
    return {
        "marks": [_mark(mark) for mark in picture.marks],
        "x": _axis(picture.x),
        "y": _axis(picture.y),
        "scale": None if picture.scale is None else _scale(picture.scale),
        "title": printable(picture.title),
        "height": picture.height,
    }


def _mark(mark: Mark) -> dict[str, Any]:
    found = {one.name: _plain(getattr(mark, one.name)) for one in fields(mark)}
    found["kind"] = type(mark).__name__.lower()
    if isinstance(mark, Shade):
        found |= {"colour": GAP, "opacity": 0.18}
    if isinstance(mark, Heat) and mark.more is not None:
        found["more"] = [mark.more[0], _plain(mark.more[1])]
    return found


def _axis(axis: Axis) -> dict[str, Any]:
    return {one.name: _plain(getattr(axis, one.name)) for one in fields(axis)}


def _scale(scale: Scale) -> dict[str, Any]:
    return {
        "title": printable(scale.title),
        "stops": scale.stops,
        "ends": _plain(np.asarray(scale.ends, float)),
        "ticks": _plain(scale.ticks),
        "steps": scale.steps,
    }


def _plain(part: Any) -> Any:
    """Lists, numbers and text: times in milliseconds, what is not finite as null."""
    if isinstance(part, np.ndarray) and part.ndim > 1:
        return [_plain(row) for row in part]
    if isinstance(part, np.ndarray | np.datetime64) and np.asarray(part).dtype.kind == "M":
        return (np.asarray(part, "datetime64[us]").astype(float) / 1000.0).tolist()
    if isinstance(part, np.ndarray):
        return [_number(value) for value in part.tolist()]
    if isinstance(part, list | tuple):
        return [_plain(value) for value in part]
    if isinstance(part, str):
        return printable(part)
    return part if part is None or isinstance(part, bool) else _number(part)


def _number(value: Any) -> Any:
    if not np.isfinite(value):
        return None
    short = float(f"{float(value):.{DIGITS}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short
