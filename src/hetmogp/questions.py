"""Questions that span rows, asked of a fitted model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from . import aggregates, exchange
from .aggregates import How
from .fitted import Fitted
from .sampling import Ask, FunctionDraws, Kind, sample_y

__all__ = ["Questions"]

Given = Mapping[str, Any] | pd.DataFrame | None  # columns that likelihoods take beside outputs


class Questions:
    """What a fitted model answers by joint draws."""

    @property
    def fitted(self) -> Fitted:
        """What was learned."""
        raise NotImplementedError

    def sample_functions(self, n: int = 1, seed: int = 0) -> FunctionDraws:
        """Draw functions from the posterior, which can be called at any inputs.

        Args:
            n: the number of functions.
            seed: the seed of the draws.

        Returns:
            Functions that, called at inputs X, give the parameter functions of each draw,
            (n, N, J), before their links and in the order of `parameter_names_`. Calls agree with
            each other: a draw has one value at an input, however often it is asked.
        """
        return FunctionDraws(self.fitted, n, seed)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int = 0,
        outputs: str | Sequence[str] | None = None,
        given: Given = None,
    ) -> dict[str, np.ndarray]:
        """Draw observations, jointly over rows and outputs.

        `predict(X).sample()` draws each row independently. Sums and differences over rows need the
        joint draws of this method.

        Args:
            X: the inputs, as for `predict`.
            n_samples: the number of draws.
            random_state: the seed of the draws.
            outputs: the outputs to draw; all of them by default.
            given: as for `predict`.

        Returns:
            {output: (n_samples, N)}.
        """
        return sample_y(Ask.of(self.fitted, X, outputs, given, n_samples, random_state))

    def aggregate(
        self,
        X: Any,
        by: Any = None,
        *,
        outputs: str | Sequence[str] | None = None,
        how: How = "mean",
        of: Kind = "observations",
        level: float = 0.9,
        above: float | Mapping[str, float] | None = None,
        weights: Any = None,
        given: Given = None,
        n_samples: int = 1000,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """Totals, means or extremes over groups of rows, with their uncertainty.

        The errors of neighbouring rows are correlated, so the interval of a group does not follow
        from those of its rows; it comes from joint draws. Rows are taken in chunks, so there may be
        millions of them.

        Args:
            X: the inputs, as for `predict`; a frame may have further columns.
            by: what makes the groups: a column of X, a list of columns, or a label for each row.
                One group of all rows by default.
            outputs: the outputs; all of them by default.
            how: "mean", "sum", "max", "min", or a function that is handed the draws of a group,
                (n_samples, rows), and returns one number for each draw.
            of: "observations", or "expected" for their expected values, without noise.
            level: the probability of the intervals.
            above: a limit, or one by output: how probable it is that the group exceeds it.
            weights: a column of X or a number for each row, for "mean" and "sum".
            given: as for `predict`.
            n_samples: the number of draws.
            random_state: the seed of the draws.

        Returns:
            A row per group: how many rows it has, and of each output the mean, standard deviation
            and interval of the aggregate, as "output_mean" and so on; "output_above" with a limit.
        """
        ask = Ask.of(self.fitted, X, outputs, given, n_samples, random_state, of)
        groups = aggregates.grouped(X, len(ask.table), by, weights)
        return aggregates.aggregate(ask, groups, how, level, above)

    def difference(
        self,
        X_a: Any,
        X_b: Any,
        *,
        outputs: str | Sequence[str] | None = None,
        how: How = "mean",
        of: Kind = "expected",
        level: float = 0.9,
        given: Given | tuple[Given, Given] = None,
        n_samples: int = 1000,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """By how much one place, or set of rows, exceeds another, with its uncertainty.

        Args:
            X_a: the inputs of the one, as for `predict`.
            X_b: the inputs of the other.
            outputs: the outputs; all of them by default.
            how: how the rows of each become one number; see `aggregate`.
            of: "expected", or "observations" with their noise.
            level: the probability of the intervals.
            given: as for `predict`, for the rows of both; or a pair, for X_a and for X_b.
            n_samples: the number of draws.
            random_state: the seed of the draws.

        Returns:
            A row per output: mean, standard deviation and interval of a − b, and "positive", the
            probability that a is larger (half of it where they are equal).
        """
        if isinstance(given, tuple) and len(given) != 2:
            raise ValueError(f"given has {len(given)} parts; a pair is for X_a and for X_b")
        of_each = given if isinstance(given, tuple) else (given, given)
        a, b = (
            Ask.of(self.fitted, X, outputs, columns, n_samples, random_state, of)
            for X, columns in zip((X_a, X_b), of_each, strict=True)
        )
        return aggregates.difference(a.followed_by(b), len(a.table), how, level)

    def peak(
        self,
        X: Any,
        *,
        outputs: str | Sequence[str] | None = None,
        of: Kind = "expected",
        lowest: bool = False,
        level: float = 0.9,
        given: Given = None,
        n_samples: int = 1000,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """Where, among the rows of X, each output is largest.

        Args:
            X: the inputs among which to look, as for `predict`.
            outputs: the outputs; all of them by default.
            of: "expected", or "observations" with their noise.
            lowest: whether to look for the smallest instead.
            level: the probability of the intervals.
            given: as for `predict`.
            n_samples: the number of draws.
            random_state: the seed of the draws.

        Returns:
            A row per output: the median and interval of each input at the peak (of a label the
            most frequent one), the row that is the peak most often and how probable that is, and
            the height of the peak.
        """
        ask = Ask.of(self.fitted, X, outputs, given, n_samples, random_state, of)
        return aggregates.peak(ask, level, lowest)

    def to_arviz(
        self,
        X: Any,
        n: int = 500,
        Y: Any = None,
        seed: int = 0,
        *,
        outputs: str | Sequence[str] | None = None,
        given: Given = None,
    ) -> Any:
        """Draws for ArviZ, whose plots and comparisons then work; needs `hetmogp[arviz]`.

        Args:
            X: the inputs, as for `predict`.
            n: how many draws.
            Y: what was observed there, as for `fit`. Without it there are no observed data and no
                log likelihood.
            seed: the seed of the draws.
            outputs: the outputs; all of them by default.
            given: as for `predict`; without Y only, as Y has these columns itself.

        Returns:
            An `InferenceData` (a `DataTree` from ArviZ 1 on): the parameter functions as `f` in
            `posterior`; each output in `posterior_predictive`, `observed_data` and
            `log_likelihood`, at the rows where it was observed. Classes are positions.
        """
        return exchange.to_arviz(self.fitted, X, n, Y, seed, outputs, given)
