"""The cells of a text table: which of them are missing, and what type a column of them has.

A type is decided cell by cell: a column has it if every cell that is not missing can be read as it.
So it does not matter in which order, or in how many pieces, the cells are looked at.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["MISSING", "TYPES", "Cells", "Kind", "typed"]

Kind = str  # one of the keys of TYPES

MISSING = ("", "NA", "N/A", "NaN", "nan")  # means "not observed"; None and null may be labels
YES, NO = ("True", "TRUE", "true"), ("False", "FALSE", "false")
TYPES: dict[Kind, pa.DataType] = {
    "whole number": pa.int64(),
    "number": pa.float64(),
    "number with a comma": pa.float64(),
    "yes or no": pa.bool_(),
    "text": pa.string(),
}


class Cells:
    """What is known about the cells of one column so far.

    Args:
        commas: whether the decimal mark may be a comma.

    Attributes:
        possible: the kinds, apart from text, as which all cells can be read.
        missing: whether some cells are missing.
        known: whether some cells are not missing.
    """

    def __init__(self, commas: bool = False) -> None:
        self.possible, self.missing, self.known = set(READ), False, False
        if not commas:
            self.possible.remove("number with a comma")

    def add(self, cells: pa.Array) -> None:
        """Take further cells into account."""
        trimmed = _trimmed(cells)
        self.missing |= trimmed.null_count > 0
        self.known |= trimmed.null_count < len(trimmed)
        for kind in list(self.possible):
            try:
                READ[kind](trimmed)
            except pa.ArrowInvalid:
                self.possible.remove(kind)

    def kind(self, numbers: Kind) -> Kind:
        """The narrowest kind as which all cells can be read.

        Args:
            numbers: the kind of numbers in this table, with a point or with a comma.
        """
        whole = {"whole number", "number"} <= self.possible  # Arrow reads 0x1F as whole only
        if whole and self.known and not self.missing:
            return "whole number"
        return next((kind for kind in (numbers, "yes or no") if kind in self.possible), "text")


def typed(cells: pa.Array, kind: Kind) -> pa.Array:
    """Cells as values of a kind, null where they are missing; text keeps the spaces around it."""
    trimmed = _trimmed(cells)
    if kind == "text":
        return pc.if_else(pc.is_null(trimmed), None, cells)
    return READ[kind](trimmed)


def _trimmed(cells: pa.Array) -> pa.Array:
    """Cells without the spaces around them, null where they are missing."""
    trimmed = pc.utf8_trim_whitespace(cells)
    return pc.if_else(_one_of(trimmed, MISSING), None, trimmed)


def _one_of(cells: pa.Array, words: Sequence[str]) -> pa.Array:
    return pc.is_in(cells, pa.array(words, pa.string()))


def _number(cells: pa.Array) -> pa.Array:
    numbers = _without_plus(cells).cast(pa.float64())
    if pc.any(pc.is_nan(numbers)).as_py():
        raise pa.ArrowInvalid("Arrow takes words such as NAN, not in MISSING, for numbers")
    return numbers


def _number_with_a_comma(cells: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring(cells, ".")).as_py():
        raise pa.ArrowInvalid("there is a point, but the decimal mark is a comma")
    return _number(pc.replace_substring(cells, ",", "."))


def _whole_number(cells: pa.Array) -> pa.Array:
    return _without_plus(cells).cast(pa.int64())


def _without_plus(cells: pa.Array) -> pa.Array:
    if not pc.any(pc.starts_with(cells, "+")).as_py():
        return cells
    return pc.replace_substring_regex(cells, r"^\+([0-9.])", r"\1")


def _yes_or_no(cells: pa.Array) -> pa.Array:
    missing = pc.is_null(cells)
    if not pc.all(pc.or_(missing, _one_of(cells, YES + NO))).as_py():
        raise pa.ArrowInvalid("there is neither yes nor no")
    return pc.if_else(missing, None, _one_of(cells, YES))


READ: dict[Kind, Callable[[pa.Array], pa.Array]] = {
    "whole number": _whole_number,
    "number": _number,
    "number with a comma": _number_with_a_comma,
    "yes or no": _yes_or_no,
}
