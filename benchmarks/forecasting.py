"""A held-out tail of three series, against the seasonal naive forecast: `make forecasting`.

The seasonal naive forecast is the value of one season before, with normal errors whose spread is
the root mean square of the differences between seasons, times the root of how many lie between.
`inside` is the share of values in 90% intervals. The mean absolute error of the median and the
continuous ranked probability score (CRPS) are in the units of the series; lower is better.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

import hetmogp as hm

# Monthly totals of international airline passengers in thousands, 1949 to 1960 (Box and Jenkins).
AIR = """
112 118 132 129 121 135 148 148 136 119 104 118 115 126 141 135 125 149 170 170 158 133 114 140
145 150 178 163 172 178 199 199 184 162 146 166 171 180 193 181 183 218 230 242 209 191 172 194
196 196 236 235 229 243 264 272 237 211 180 201 204 188 235 227 234 264 302 293 259 229 203 229
242 233 267 269 270 315 364 347 312 274 237 278 284 277 317 313 318 374 413 405 355 306 271 306
315 301 356 348 355 422 465 467 404 347 305 336 340 318 362 348 363 435 491 505 404 359 310 337
360 342 406 396 420 472 548 559 463 407 362 405 417 391 419 461 472 535 622 606 508 461 390 432
"""
YEAR, WEEK = pd.Timedelta(days=365.25), pd.Timedelta(days=7)


class Series(NamedTuple):
    """A series, how long its season and its tail are, and the model of it."""

    y: pd.Series
    season: int
    tail: int
    likelihood: hm.Likelihood
    kernel: Callable[[], hm.Kernel]


def repeating(period: pd.Timedelta, steady: pd.Timedelta) -> hm.Kernel:
    """A season that changes slowly."""
    return hm.Periodic(period=period, fixed=("period",)) * hm.RBF(lengthscale=steady)


def air() -> Series:
    y = pd.Series(np.array(AIR.split(), float), pd.date_range("1949-01-01", periods=144, freq="MS"))
    return Series(
        *(y, 12, 24, hm.LogNormal()),
        lambda: hm.Linear() + repeating(YEAR, 10 * YEAR) + hm.Matern32(lengthscale=YEAR),
    )


def rentals() -> Series:
    """Simulated: a count a day, with a week and a slow course."""
    rng, t = np.random.default_rng(1), np.arange(280)
    slow = np.cumsum(rng.normal(size=280)) * 0.03
    rate = 20 * np.exp(slow + 0.5 * np.sin(2 * np.pi * t / 7) + 0.2 * np.cos(4 * np.pi * t / 7))
    y = pd.Series(rng.poisson(rate).astype(float), pd.date_range("2024-01-01", periods=280))
    return Series(
        *(y, 7, 28, hm.NegativeBinomial()),
        lambda: repeating(WEEK, 20 * WEEK) + hm.Matern32(lengthscale=4 * WEEK),
    )


def warmth() -> Series:
    """Simulated: weekly means of a temperature over four years, with weather that lasts."""
    rng, t = np.random.default_rng(2), np.arange(208)
    weather = np.zeros(208)
    for k in range(1, 208):
        weather[k] = 0.7 * weather[k - 1] + rng.normal()
    y = pd.Series(
        10 - 8 * np.cos(2 * np.pi * t / 52.18) + 1.2 * weather,
        pd.date_range("2021-01-03", periods=208, freq="7D"),
    )
    return Series(
        *(y, 52, 26, hm.Gaussian()),
        lambda: repeating(YEAR, 10 * YEAR) + hm.Matern12(lengthscale=3 * WEEK),
    )


SERIES = {"air passengers": air, "rentals (simulated)": rentals, "warmth (simulated)": warmth}


def scores(draws: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Of forecasts by draws (n, N): error of the median, CRPS, share inside 90% intervals."""
    n = len(draws)
    ordered = np.sort(draws, axis=0)
    weights = (2 * np.arange(1, n + 1) - n - 1) / n**2
    crps = np.abs(draws - y).mean(axis=0) - weights @ ordered
    lower, median, upper = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    inside = (lower <= y) & (y <= upper)
    error = np.abs(median - y).mean()
    return {"mae": error, "crps": float(crps.mean()), "inside": inside.mean()}


def naive(series: Series, n: int) -> np.ndarray:
    """Draws of the seasonal naive forecast."""
    y = series.y.to_numpy()[: -series.tail]
    steps = np.arange(series.tail)
    centre = y[len(y) - series.season + steps % series.season]
    ahead = 1 + steps // series.season
    change = y[series.season :] - y[: -series.season]
    spread = np.sqrt(np.mean(change**2) * ahead)
    return centre + spread * np.random.default_rng(0).standard_normal((n, series.tail))


def forecast(series: Series, n: int) -> np.ndarray:
    """Draws of the model's forecast."""
    known = series.y.iloc[: -series.tail]
    options: dict = {"kernel": series.kernel(), "latents": 1, "progress": False}
    model = hm.HetMOGP({"y": series.likelihood}, **options)
    model.fit(pd.DataFrame({"date": known.index}), {"y": known.to_numpy()})
    tail = pd.DataFrame({"date": series.y.index[-series.tail :]})
    return model.sample_y(tail, n)["y"]


def main() -> None:
    rows = {}
    for name, make in SERIES.items():
        series = make()
        y = series.y.to_numpy()[-series.tail :]
        for kind, draws in (("model", forecast(series, 2000)), ("naive", naive(series, 2000))):
            rows[name, kind] = scores(draws, y)
    print(pd.DataFrame.from_dict(rows, orient="index").round(2).to_string())


if __name__ == "__main__":
    main()
