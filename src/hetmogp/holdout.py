"""Rows that are kept from a fit, to score it on: which they are, and how a model remembers them."""

import base64
import hashlib
from dataclasses import dataclass

import numpy as np
import pandas as pd

__all__ = ["HeldOut", "at_random", "in_groups"]


@dataclass(frozen=True)
class HeldOut:
    """Which rows of a table were held out, as a model file keeps it.

    Attributes:
        how: how they were chosen, in words.
        digest: the digest of the inputs of all rows, by which the table is recognised.
        rows: how many rows the table has.
        mask: one bit for each row, set where it was held out, in base 64.
        by: the column whose groups were held out whole, if any.
    """

    how: str
    digest: str
    rows: int
    mask: str
    by: str | None = None

    @classmethod
    def of(
        cls, table: np.ndarray, held: np.ndarray, how: str = "", by: str | None = None
    ) -> "HeldOut":
        """From the inputs of all rows, as numbers, and whether each row was held out."""
        held = np.asarray(held)
        if held.shape != (len(table),) or held.dtype != bool:
            raise ValueError(
                f"held-out rows are marked by {len(table)} values True or False, one for each row; "
                f"found {held.dtype} of shape {held.shape}"
            )
        mask = base64.b64encode(np.packbits(held).tobytes()).decode()
        return cls(how, _digest(table), len(table), mask, by)

    @property
    def held(self) -> np.ndarray:
        """Whether each row was held out."""
        bits = np.frombuffer(base64.b64decode(self.mask, validate=True), np.uint8)
        if len(bits) != -(-self.rows // 8):
            raise ValueError(f"{len(bits)} bytes cannot mark {self.rows} rows")
        return np.unpackbits(bits, count=self.rows).astype(bool)

    def at(self, table: np.ndarray) -> np.ndarray | None:
        """Which rows of a table were held out; None if it is not the table that was marked."""
        same = len(table) == self.rows and _digest(table) == self.digest
        return self.held if same else None


def _digest(table: np.ndarray) -> str:
    """A digest that is the same for the same numbers, wherever they come from; −0 is 0."""
    numbers = np.ascontiguousarray(np.asarray(table, "<f8") + 0.0)
    return hashlib.sha256(repr(numbers.shape).encode() + numbers.tobytes()).hexdigest()


def at_random(N: int, share: float, seed: int) -> np.ndarray:
    """Which of N rows are held out, each with the same chance."""
    return np.isin(np.arange(N), np.random.default_rng(seed).permutation(N)[: round(share * N)])


def in_groups(labels: pd.Series, share: float, seed: int) -> np.ndarray:
    """Which rows are held out: whole groups at random, until they have a share of the rows.

    The last group is taken if that brings the share nearer. At least one is held out and one kept.
    """
    codes, levels = pd.factorize(labels, use_na_sentinel=False)
    G = len(levels)
    if G < 2:
        raise ValueError(
            f"{labels.name!r} has {G} group{'s' * (G != 1)}; to hold groups out there must be two"
        )
    order = np.random.default_rng(seed).permutation(G)
    sizes = np.bincount(codes, minlength=G)[order]
    reached = np.abs(np.cumsum(sizes) - share * len(codes))
    taken = min(int(reached.argmin()) + 1, G - 1)
    return np.isin(codes, order[:taken])
