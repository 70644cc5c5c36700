"""What one column of values looks like, and the likelihoods it admits: type, support, ties, zeros.

Values that repeat were rounded, or have a probability of their own, with which no density can be
compared. Therefore candidates are compared by the probability of the interval that a rounded value
stands for. If there are more zeros than rounding explains, only candidates that allow for them are
admitted.
"""

import re
from datetime import date, time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import likelihoods as families
from .likelihoods import Likelihood
from .likelihoods.reading import InvalidValueError, yes_or_no_in

__all__ = ["FEWEST", "Proposal", "codes", "propose", "together"]

LARGEST_COUNT = 10_000  # larger whole numbers are taken for measurements
FEWEST = 20  # with fewer observed values candidates are not compared
FEW = 6  # up to so many different whole numbers may be codes of classes
WIDE = 40  # whole numbers over so wide a range may be a measurement
MANY_CLASSES = 50
TIED = 0.1  # of the values, from which on they count as rounded
COARSE = 0.3  # standard deviations: rounding that wide is part of the recommendation
HEAP = 3.0  # times the next most frequent value: more zeros than rounding makes
IDENTIFIER = re.compile(r"(.*[\W_])?(id|ids|uid|uuid|key|index|code|nr|no|number|identifier)")
ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"

REAL = (families.Gaussian(), families.HetGaussian(), families.StudentT(), families.HetStudentT())
POSITIVE = (
    families.Exponential(),
    families.LogNormal(),
    families.Gamma(),
    families.Weibull(),
    families.LogLogistic(),
)
HURDLES = tuple(
    families.Hurdle(part) for part in (families.Gamma(), families.LogNormal(), families.Weibull())
)


class Proposal(NamedTuple):
    """What a column looks like, in words, and the likelihoods it admits (none: not an output).

    `step` is what its values were rounded to, if enough of them repeat to matter in comparisons.
    """

    seen: str
    candidates: tuple[Likelihood, ...]
    step: float | None = None


def propose(column: Any, name: str = "") -> Proposal:
    """Read one column of values; missing ones are ignored."""
    series = column if isinstance(column, pd.Series) else pd.Series(column)
    values = series.dropna()
    if not len(values):
        return Proposal("no observed value", ())
    if isinstance(values.dtype, pd.CategoricalDtype):
        ordered = values.dtype.ordered
        present = [label for label in values.dtype.categories if (values == label).any()]
        return _labels(values, present if ordered else None)
    if pd.api.types.is_datetime64_any_dtype(values) or pd.api.types.is_timedelta64_dtype(values):
        return Proposal("dates or times, which are inputs rather than outputs", ())
    if any(isinstance(value, date | time | complex) for value in values):
        return Proposal("dates, times or complex numbers, which cannot be outputs", ())
    if any(isinstance(value, list | tuple | dict | set | np.ndarray) for value in values):
        return Proposal("collections, where an output has one value a row", ())
    if pd.api.types.is_bool_dtype(values):
        return Proposal("True and False", (families.Bernoulli(),))
    try:
        if any(isinstance(value, str) for value in values):
            raise ValueError
        numbers = values.to_numpy(dtype=float)
    except (TypeError, ValueError):
        return _labels(values, name=name)
    if not np.isfinite(numbers).all():
        return Proposal("infinite values", ())
    return _numbers(numbers, name)


def _labels(values: pd.Series, in_order: list[Any] | None = None, name: str = "") -> Proposal:
    distinct = values.nunique()
    if all(isinstance(value, str) and re.fullmatch(ISO_DATE, value) for value in values):
        return Proposal("dates in text, which are inputs rather than outputs", ())
    if distinct == 1:
        return Proposal(f"one label only, {values.iloc[0]!r}", ())
    if _says_yes_or_no(values):
        return Proposal("yes and no", (families.Bernoulli(),))
    if distinct > min(MANY_CLASSES, len(values) / 3):
        kind = "identifiers" if IDENTIFIER.fullmatch(name.lower()) else "names or text"
        return Proposal(f"{distinct} different labels: {kind} rather than classes", ())
    if in_order:
        return Proposal(f"{distinct} classes in order", (families.Ordinal(in_order),))
    return Proposal(f"{distinct} classes without an order", (families.Categorical(),))


def _says_yes_or_no(values: pd.Series) -> bool:
    try:
        return set(yes_or_no_in(values.to_numpy(dtype=object))) <= {0.0, 1.0}
    except InvalidValueError:
        return False


def _numbers(y: np.ndarray, name: str = "") -> Proposal:
    distinct, counts = np.unique(y, return_counts=True)
    low, high = distinct[0], distinct[-1]
    if len(distinct) == 1:
        return Proposal(f"one value only, {low:g}", ())
    if set(distinct) <= {0.0, 1.0}:
        return Proposal("0 and 1", (families.Bernoulli(),))
    if len(distinct) == len(y) == high - low + 1 and len(y) >= FEWEST:
        return Proposal(f"each of the numbers from {low:g} to {high:g} once: a row number", ())
    whole = bool(np.all(y == np.floor(y)))
    if whole and IDENTIFIER.fullmatch(name.lower()) and len(distinct) > MANY_CLASSES:
        return Proposal(f"{len(distinct)} whole numbers in a column named as identifiers are", ())
    if len(distinct) == 2:
        return Proposal(f"two values, {low:g} and {high:g}", (families.Categorical(),))
    step = _step(distinct, len(y))
    if whole and low >= 0 and high <= LARGEST_COUNT:
        proposal = _whole(y, distinct, counts)
        if high - low < WIDE or (step or 1.0) > 1.0 or low < 0.1 * high:
            return proposal if (step or 1.0) <= 1.0 else _stepped(y, distinct, counts, step)
        wide = _continuous(y, distinct, counts)
        return Proposal(proposal.seen, (*proposal.candidates, *wide.candidates), 1.0)
    return _stepped(y, distinct, counts, step)


def _step(distinct: np.ndarray, n: int) -> float | None:
    """What values are multiples of, if many repeat: 1, 2, 2.5 or 5 times a power of ten."""
    if 1.0 - len(distinct) / n < TIED or len(distinct) < 3:
        return None
    gap = float(np.min(np.diff(distinct)))
    largest = np.max(np.abs(distinct))
    for power in range(6, -10, -1):
        for digit in (5.0, 2.5, 2.0, 1.0):
            step = digit * 10.0**power
            units = distinct / step
            rounding = 1e-6 + 1e-12 * largest / step
            if step <= gap * 1.001 and np.all(np.abs(units - np.round(units)) < rounding):
                return float(f"{step:g}")
    return None


def _stepped(
    y: np.ndarray, distinct: np.ndarray, counts: np.ndarray, step: float | None
) -> Proposal:
    """Numbers, perhaps rounded; a rounding that is wide for their spread is recommended too."""
    seen, candidates, _ = _continuous(y, distinct, counts)
    if step is None:
        return Proposal(seen, candidates)
    seen = f"{seen}, rounded to {step:g}"
    if step > COARSE * np.std(y[y != 0] if np.any(y == 0) and distinct[0] == 0 else y):
        candidates = tuple(one.rounded(step) for one in candidates if one.outcome != "circular")
    return Proposal(seen, candidates, step)


def _whole(y: np.ndarray, distinct: np.ndarray, counts: np.ndarray) -> Proposal:
    low, high, zeros = int(distinct[0]), int(distinct[-1]), float(np.mean(y == 0))
    seen = f"whole numbers from {low} to {high}" + (f", {zeros:.1%} of them zero" if zeros else "")
    candidates: tuple[Likelihood, ...] = (families.Poisson(), families.NegativeBinomial())
    if zeros:
        candidates += (families.ZeroInflatedPoisson(), families.ZeroInflatedNegativeBinomial())
        candidates += (families.Hurdle(families.NegativeBinomial()),)
    # Counts thin out towards their largest value; scales of classes and of trials need not.
    piled = len(distinct) <= 2 * FEW and counts[-1] >= 0.25 * counts.max()
    if piled:
        seen += f", {counts[-1] / len(y):.0%} at the top"
        candidates += (families.Binomial(trials=high),)
    if piled or len(distinct) <= FEW:
        candidates += (families.Ordinal(), families.Categorical())
    return Proposal(seen, candidates)


def _continuous(y: np.ndarray, distinct: np.ndarray, counts: np.ndarray) -> Proposal:
    low, high = distinct[0], distinct[-1]
    most = int(np.argmax(counts))
    tied = counts[most] / len(y)
    ties = f", {tied:.1%} of them exactly {distinct[most]:g}" if tied > 0.05 else ""
    if ties and most in (0, len(distinct) - 1) and counts[most] > HEAP * np.sort(counts)[-2]:
        ties += f", as a limit would make (say {'upper' if most else 'lower'}= if it is one)"
    if low >= 0 and high <= 1:
        at_end = float(np.mean((y == 0) | (y == 1)))
        if at_end:
            seen = f"numbers from 0 to 1, {at_end:.1%} of them at an end"
            return Proposal(seen, (families.ZeroOneInflatedBeta(),))
        bounded: tuple[Likelihood, ...] = (families.LogitNormal(), families.Beta())
        narrow = high - low < 0.5
        return Proposal(
            f"numbers between 0 and 1{ties}", (*REAL[:2], *bounded) if narrow else bounded
        )
    kurtosis = float(np.mean((y - y.mean()) ** 4) / np.var(y) ** 2)
    tails = f", with long tails (kurtosis {kurtosis:.0f})" if kurtosis > 6 else ""
    if low > 0:
        variation = np.std(y) / np.mean(y)
        skew = float(np.mean((y - y.mean()) ** 3) / np.std(y) ** 3)
        seen = f"positive numbers, {low:g} to {high:g}{ties}"
        if variation < 0.15:
            return Proposal(f"{seen}, far from zero for their spread{tails}", REAL)
        if variation > 0.5 or skew > 1:
            return Proposal(f"{seen}, skewed (skewness {skew:.1f})", POSITIVE)
        return Proposal(seen, (*REAL[:2], *POSITIVE[1:]))
    if low == 0:
        zeros = float(np.mean(y == 0))
        seen = f"numbers >= 0, {zeros:.1%} of them zero"
        others = np.max(counts[1:])
        if counts[0] > max(HEAP * others, FEW) or (counts[0] > FEW and others == 1):
            return Proposal(seen, HURDLES)
        hurdles = HURDLES if counts[0] > FEW else ()
        return Proposal(seen, (families.Exponential(), *REAL, *hurdles))
    seen = f"real numbers, {low:g} to {high:g}{ties}{tails}"
    if low >= -np.pi and high <= np.pi and high - low > 5.0:
        return Proposal(f"{seen}, as angles in radians have", (families.VonMises(), *REAL))
    return Proposal(seen, REAL)


CODES = (-9, -99, -999, -9999, -99999, 99, 999, 9999, 99999)


def codes(columns: dict[str, pd.Series]) -> list[str]:
    """Values that may be codes for missing ones, far from all others, in words."""
    said = []
    for name, column in columns.items():
        if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            continue
        y = column.dropna().to_numpy(dtype=float)
        rest = y[~np.isin(y, CODES)]
        if len(rest) < FEWEST or 2 * len(rest) < len(y):
            continue
        spread = np.ptp(rest)
        for code in sorted(set(y) & set(CODES)):
            if code < rest.min() - spread or code > rest.max() + spread:
                times = int(np.sum(y == code))
                said.append(
                    f"{name!r} has {code:g} {'once' if times == 1 else f'{times} times'}, far from "
                    "the rest: if it is a code for missing, leave these cells empty"
                )
    return said


# -- columns that belong together ------------------------------------------------------------------

FLAG = re.compile(r".*(event|status|dead|death|died|censor|observed|relapse|fail).*")


def together(columns: dict[str, pd.Series]) -> list[str]:
    """Columns that seem to belong together, in words; it is for the user to say so."""
    numbers = {n: c for n, c in columns.items() if pd.api.types.is_numeric_dtype(c)}
    flags = {n: c for n, c in numbers.items() if set(c.dropna().unique()) == {0, 1}}
    said = []
    for name, column in numbers.items():
        for flag, values in flags.items():
            if name == flag or len(values) != len(column):
                continue
            off, missing = values.to_numpy() == 0, column.isna().to_numpy()
            if missing.any() and off.any() and np.array_equal(off, missing):
                said.append(
                    f"{name!r} is missing exactly where {flag!r} is 0: one column with zeros there "
                    f"can be a Hurdle, and says both"
                )
            positive = not missing.any() and float(column.min()) > 0
            if positive and FLAG.fullmatch(flag.lower()) and column.nunique() > WIDE:
                said.append(
                    f"{name!r} may be a time and {flag!r} its event: Weibull(event={flag!r}) takes "
                    "both, where 0 means that the end was not seen"
                )
    return said + _trials({n: c for n, c in numbers.items() if n not in flags})


def _trials(columns: dict[str, pd.Series]) -> list[str]:
    """Pairs of which one never exceeds the other, though by chance it would."""
    generator = np.random.default_rng(0)
    counts = {
        n: c.to_numpy(float)
        for n, c in columns.items()
        if c.notna().all() and np.all(c == np.floor(c)) and c.min() >= 0 and c.nunique() > 2
    }
    said = []
    for few, a in counts.items():
        for many, b in counts.items():
            if few == many or len(a) != len(b) or len(a) < FEWEST or np.any(a > b):
                continue
            if np.mean(a > generator.permutation(b)) > 0.05 and np.mean(a == b) > 0.0:
                said.append(
                    f"{few!r} never exceeds {many!r}: if it counts some of them, Binomial(trials="
                    f"{many!r}) takes both"
                )
    return said
