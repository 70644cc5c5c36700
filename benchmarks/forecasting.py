"""Held-out tails of series, against the seasonal naive forecast: `make forecasting`.

The seasonal naive forecast is the value of one season before, with normal errors whose spread is
the root mean square of the differences between seasons, times the root of how many lie between.
`inside` is the share of values in 90% intervals. The mean absolute error of the median and the
continuous ranked probability score (CRPS) are in the units of the series; lower is better.

Three series are simulated. Two are real, of tables that are not part of this repository: they are
added where `--tables` or `HETMOGP_TABLES` names the folder that holds them.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import hetmogp as hm

DAY = pd.Timedelta(days=1)
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


def lasts(lengthscale: pd.Timedelta) -> hm.Kernel:
    """What lasts for a while."""
    return hm.Matern32(lengthscale=lengthscale)


def visitors() -> Series:
    """Simulated: a total a month, with a trend and a season that multiply, and what lasts."""
    rng, t = np.random.default_rng(3), np.arange(144)
    lasting = np.zeros(144)
    for k in range(1, 144):
        lasting[k] = 0.8 * lasting[k - 1] + 0.02 * rng.normal()
    season = 0.2 * np.sin(2 * np.pi * t / 12 - 1.0) + 0.08 * np.cos(4 * np.pi * t / 12)
    y = 120 * np.exp(0.1 * t / 12 + season + lasting + 0.02 * rng.normal(size=144))
    return Series(
        *(pd.Series(y, pd.date_range("2013-01-01", periods=144, freq="MS")), 12, 24),
        *(hm.LogNormal(), lambda: hm.Linear() + repeating(YEAR, 10 * YEAR) + lasts(YEAR)),
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


def seattle(folder: Path) -> Series:
    """Real: weekly means of the highest temperature of the day, over four years."""
    table = pd.read_parquet(folder / "data" / "seattle.parquet").set_index("date")
    y = table["temp_max"].resample("7D").mean()[:208]
    return Series(
        *(y, 52, 26, hm.Gaussian()),
        lambda: repeating(YEAR, 10 * YEAR) + hm.Matern12(lengthscale=3 * WEEK),
    )


def bikes(folder: Path) -> Series:
    """Real: rentals by registered users an hour, over two months; the last week is held out."""
    table = pd.read_parquet(folder / "data" / "bike.parquet").set_index("time")
    y = table["registered"].asfreq("h").ffill()  # a few hours are missing
    return Series(
        *(y, 168, 168, hm.NegativeBinomial()),
        lambda: repeating(DAY, 4 * WEEK) + repeating(WEEK, 4 * WEEK) + lasts(pd.Timedelta(hours=6)),
    )


SIMULATED: dict[str, Callable[[], Series]] = {
    "visitors (simulated)": visitors,
    "rentals (simulated)": rentals,
    "warmth (simulated)": warmth,
}
REAL: dict[str, Callable[[Path], Series]] = {
    "Seattle, warmest of the day": seattle,
    "bikes by the hour": bikes,
}


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


def main(folder: Path | None) -> None:
    every = dict(SIMULATED)
    if folder is not None:
        every |= {name: partial(make, folder) for name, make in REAL.items()}
    rows = {}
    for name, make in every.items():
        series = make()
        y = series.y.to_numpy()[-series.tail :]
        for kind, draws in (("model", forecast(series, 2000)), ("naive", naive(series, 2000))):
            rows[name, kind] = scores(draws, y)
    print(pd.DataFrame.from_dict(rows, orient="index").round(2).to_string())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=os.environ.get("HETMOGP_TABLES"))
    found = parser.parse_args().tables
    main(None if found is None else Path(found))
