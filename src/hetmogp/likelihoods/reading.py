"""Columns of values as numbers."""

from typing import Any

import numpy as np

__all__ = ["InvalidValueError", "numbers_in", "yes_or_no_in"]

WORDS = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}


def numbers_in(column: np.ndarray) -> np.ndarray:
    """A column as numbers, NaN where it has NaN or None; text and times are refused."""
    if column.dtype.kind in "mMc":  # times and complex numbers
        raise InvalidValueError(0, column[0])
    if column.dtype.kind in "OUS":
        odd = [r for r, v in enumerate(column) if isinstance(v, str) or not _is_number(v)]
        if odd:  # rather name a value that is no number than a number in text
            row = next((row for row in odd if not _is_number(column[row])), odd[0])
            raise InvalidValueError(row, column[row], len(odd) - 1)
    return np.asarray(column, dtype=float)


def yes_or_no_in(column: np.ndarray) -> np.ndarray:
    """A column of yes and no as ones and zeros: numbers, or words in upper or lower case."""
    if column.dtype.kind in "OU":
        known = [WORDS.get(v.strip().lower(), v) if isinstance(v, str) else v for v in column]
        column = np.empty(len(known), dtype=object)
        column[:] = known
    return numbers_in(column)


def _is_number(value: Any) -> bool:
    try:
        float("nan" if value is None else value)
    except (TypeError, ValueError):
        return False
    return True


class InvalidValueError(ValueError):
    """A value a likelihood cannot read, with its row; the caller adds the output's name.

    `others` is how many further values cannot be read either, as far as that is known.
    """

    def __init__(self, row: int, value: Any, others: int = 0):
        super().__init__(f"row {row}: {value!r}")
        self.row, self.value, self.others = row, value, others
