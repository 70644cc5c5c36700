"""One input column: how its values become numbers, and numbers its values again.

Numbers stay as they are. Dates are counted in days since 1970-01-01 (in UTC, where they have a time
zone) and durations in days, so that lengthscales and periods are in days. Labels become their
position among the column's levels, and a `Category` kernel compares these.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

import numpy as np
import pandas as pd

__all__ = ["Column", "describe", "is_missing", "is_time"]

DAY = 86_400_000_000  # microseconds
OFFSET = re.compile(r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")  # a time with its offset from UTC
ISO = re.compile(r"\d{4}-\d\d-\d\d")
LIKE_A_DATE = re.compile(r"\d{1,4}([/.-])\d{1,2}\1\d{1,4}\b|-?\d+,\d+$")
PLURAL = {"number": "numbers", "time": "dates", "duration": "durations", "category": "labels"}
NEW = "a new level"
TO_PLAIN = '.dt.tz_convert("UTC").dt.tz_localize(None)'  # from times with a zone to those in UTC
FEW_NUMBERS = 10  # labels may be so many different numbers beside other texts
MOST_LABELS = 50  # text with more values than this, and than half of the rows, is no category


@dataclass(frozen=True)
class Column:
    """An input by name.

    Attributes:
        name: its name in the user's table.
        kind: the kind of its values.
        levels: the labels of a category, in the order of their codes.
        aware: whether times have a time zone.
        open: whether predictions may have labels that were not in the fit; each is a new level.
    """

    name: str
    kind: Literal["number", "time", "duration", "category"] = "number"
    levels: tuple[Any, ...] = ()
    aware: bool = False
    open: bool = False

    @property
    def unit(self) -> str:
        """The unit of the numbers, if it is known."""
        return "days" if self.kind in ("time", "duration") else ""

    def encode(self, values: pd.Series, what: str) -> np.ndarray:
        """The numbers of a column, NaN where missing; errors name `what` and the row."""
        where = f"{what}, column {self.name!r}"
        if self.kind == "category":
            return self._codes(values, what)
        if self.kind == "number":
            _refuse_complex(values, where)
            return _numbers(values, where)
        if values.isna().all():  # whatever type it has
            return np.full(len(values), np.nan)
        if self.kind == "duration" and values.map(lambda v: isinstance(v, str)).any():
            with suppress(ValueError):  # text such as "2 days 03:00:00", as in files
                values = pd.Series(pd.to_timedelta(values))
        column = describe(values, what, self.name)
        if column.kind != self.kind:
            raise ValueError(
                f"{where} holds {PLURAL[column.kind]} such as {_some(values)!r}; the model was "
                f"fitted on {PLURAL[self.kind]}"
            )
        if self.kind == "duration":
            return _microseconds(values.astype("timedelta64[us]")) / DAY
        times = _as_times(values)
        if column.aware != self.aware:
            have, had, remedy = ("without a", "one", '.dt.tz_localize("UTC")')
            if column.aware:
                have, had, remedy = ("with a", "none", TO_PLAIN)
            raise ValueError(
                f"{where} holds times {have} time zone; in the fit they had {had}. In UTC: {remedy}"
            )
        if column.aware:
            times = times.dt.tz_convert("UTC").dt.tz_localize(None)
        return _microseconds(times.astype("datetime64[us]")) / DAY

    def _codes(self, values: pd.Series, what: str) -> np.ndarray:
        position = {level: float(code) for code, level in enumerate(self.levels)}
        codes = np.full(len(values), np.nan)
        for row, value in enumerate(values.tolist()):
            if is_missing(value):
                continue
            if value not in position and self.open:
                position[value] = float(len(position))
            if value not in position:
                known = ", ".join(map(repr, self.levels[:10]))
                more = ", ..." if len(self.levels) > 10 else ""
                raise ValueError(
                    f"{what}, row {row}, column {self.name!r}: {value!r} is not one of the "
                    f"{len(self.levels)} levels of the fit ({known}{more}). To predict at a level "
                    "without data, fit on a pandas categorical that lists it"
                )
            codes[row] = position[value]
        return codes

    def decode(self, numbers: np.ndarray) -> Any:
        """The user's values for numbers: floats, dates, durations or labels.

        Labels that were not in the fit are all `NEW`.
        """
        if self.kind == "number":
            return numbers
        if self.kind == "category":
            codes, levels = np.rint(numbers).astype(int), self.levels
            if np.any(codes >= len(levels)):
                codes, levels = np.minimum(codes, len(levels)), (*levels, NEW)
            return pd.Categorical.from_codes(codes.tolist(), categories=pd.Index(levels))
        whole = np.rint(np.asarray(numbers) * DAY).astype("int64")
        if self.kind == "duration":
            return whole.astype("timedelta64[us]")
        times = pd.DatetimeIndex(whole.astype("datetime64[us]"))
        return times.tz_localize("UTC") if self.aware else times


def describe(values: pd.Series, what: str, name: str) -> Column:
    """What kind of input a column of a table is."""
    dtype, types = values.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return Column(name, "category", tuple(_plain(level) for level in dtype.categories))
    _refuse_complex(values, f"{what}, column {name!r}")
    if types.is_numeric_dtype(dtype):
        return Column(name)
    if types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return Column(name, "time", aware=isinstance(dtype, pd.DatetimeTZDtype))
    if types.is_timedelta64_dtype(dtype):
        return Column(name, "duration")
    present = [value for value in values.tolist() if not is_missing(value)]
    for value in present:
        if isinstance(value, list | tuple | dict | np.ndarray):
            raise ValueError(
                f"{what}, column {name!r} holds several values in a cell, such as {value!r}; "
                "inputs must be numbers, dates or labels, one in each cell"
            )
    with suppress(ValueError):
        _numbers(values, "")
        return Column(name)
    if all(isinstance(value, timedelta) for value in present):
        return Column(name, "duration")
    if all(isinstance(value, str | date) for value in present):
        with suppress(ValueError, TypeError):
            times = _as_times(values)
            return Column(name, "time", aware=isinstance(times.dtype, pd.DatetimeTZDtype))
    return Column(name, "category", _levels(values, present, what, name))


def _levels(values: pd.Series, present: list[Any], what: str, name: str) -> tuple[Any, ...]:
    """The labels of a column of labels; an error if it holds something else."""
    if not all(isinstance(value, str | int | float) for value in present):
        raise ValueError(
            f"{what}, column {name!r} holds {values.dtype} values such as {present[0]!r}; inputs "
            "must be numbers, dates or labels"
        )
    _refuse_spoiled(values, f"{what}, column {name!r}", name)
    dates = any(isinstance(value, str) and ISO.match(value.strip()) for value in present)
    for row, value in enumerate(values.tolist()):
        if is_missing(value):
            continue
        text = value.strip() if isinstance(value, str) else ""
        if (LIKE_A_DATE.match(text) and not ISO.match(text)) or (dates and not is_time(text)):
            raise ValueError(
                f"{what}, row {row}, column {name!r}: {value!r} is not clearly a "
                "date, a number or a label; write dates as 2024-05-31 (or convert them with "
                "pandas.to_datetime) and numbers with a point"
            )
    if dates:
        raise ValueError(
            f"{what}, column {name!r} holds times with and without a time zone; give all of them "
            "one, or none"
        )
    levels = set(map(_plain, present))
    if len(levels) > max(MOST_LABELS, len(present) / 2) or len(levels) == len(present) > 20:
        raise ValueError(
            f"{what}, column {name!r} holds {len(levels)} different texts such as "
            f"{present[0]!r}: convert dates with pandas.to_datetime, numbers with "
            "pandas.to_numeric, or make labels a pandas categorical"
        )
    return tuple(sorted(levels, key=lambda level: (type(level).__name__, level)))


def _refuse_complex(values: pd.Series, where: str) -> None:
    """Raise an error for complex numbers, in scikit-learn's words."""
    if pd.api.types.is_complex_dtype(values.dtype):
        raise ValueError(
            f"Complex data not supported: {where} holds complex numbers; inputs must be real"
        )


def _refuse_spoiled(values: pd.Series, where: str, name: str) -> None:
    """Raise an error if most of the values are numbers, so that the others seem to be slips."""
    cells = [(row, v) for row, v in enumerate(values.tolist()) if not is_missing(v)]
    others = [(row, value) for row, value in cells if not _is_number(value)]
    numbers = {float(value) for _, value in cells if _is_number(value)}
    if len(numbers) > FEW_NUMBERS and 2 * len(others) <= len(cells):
        row, value = others[0]
        more = "" if len(others) == 1 else f", and {len(others) - 1} more are not"
        raise ValueError(
            f"{where}: row {row} has {value!r}, which is not a number{more}; the other "
            f"{len(cells) - len(others)} values are. Correct it, or make the column a pandas "
            f"categorical if these are labels (on the command line: --labels {name})"
        )


def _is_number(value: Any) -> bool:
    with suppress(TypeError, ValueError):
        float(value)
        return True
    return False


def _numbers(values: pd.Series, where: str) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(dtype=float, na_value=np.nan)
    if not isinstance(values.dtype, pd.CategoricalDtype):
        with suppress(TypeError, ValueError):
            return np.array([np.nan if is_missing(v) else float(v) for v in values], float)
    wrong = [(k, v) for k, v in enumerate(values) if not (is_missing(v) or _is_number(v))]
    if wrong and len(wrong) < len(values):
        row, value = wrong[0]
        raise ValueError(f"{where}: row {row} has {value!r}, which is not a number")
    raise ValueError(
        f"{where} holds {values.dtype} values such as {_some(values)!r}; it should hold numbers"
    )


def _as_times(values: pd.Series) -> pd.Series:
    """Dates of any kind as one column of times; text must be in ISO 8601, such as 2024-05-31."""
    if isinstance(values.dtype, pd.PeriodDtype):
        return values.dt.to_timestamp()
    if pd.api.types.is_datetime64_any_dtype(values):
        return values
    with_offset = [
        isinstance(v, str) and bool(OFFSET.search(v)) for v in values if not is_missing(v)
    ]
    offsets = bool(with_offset) and all(with_offset)  # the offset may change with the season
    return pd.Series(pd.to_datetime(values, format="ISO8601", utc=offsets))


def is_time(text: str) -> bool:
    """Whether a text is a date or time in ISO 8601."""
    with suppress(ValueError, TypeError):
        pd.to_datetime(text, format="ISO8601")
        return True
    return False


def _microseconds(values: pd.Series) -> np.ndarray:
    return np.where(values.isna(), np.nan, values.to_numpy().view("int64").astype(float))


def _some(values: pd.Series) -> Any:
    present = values.dropna()
    return _plain(present.iloc[0]) if len(present) else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def is_missing(value: Any) -> bool:
    """Whether a value means "not observed"."""
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    differs = value != value
    return isinstance(differs, bool | np.bool_) and bool(differs)  # a list gives an array
