"""Discovery left alone on daily weather: what it chooses, how long it takes, and what comes of it.

Four years of simulated days: rain with 57% zeros, two temperatures and the wind, all rounded to
0.1, a class of weather that depends on the others, and a count. The date is the only input.

- Discovery of the six columns is timed, on all rows and on a fifth of them left out, five times:
  how many choices differ from those of all rows?
- With `--fit`, `HetMOGP("auto")` is fitted to 85% of the days, and every output is scored on the
  others beside its constant and beside a model of its own.
- With `--table FILE --inputs date` the choices are those for a table of one's own.

    python benchmarks/weather.py --fit
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import hetmogp as hm

DAYS = 1461
DRY = 0.57


def simulated(seed: int = 0) -> pd.DataFrame:
    """Daily weather, with the date."""
    rng = np.random.default_rng(seed)
    day = np.arange(DAYS)
    season = np.cos(2 * np.pi * (day - 15) / 365.25)  # one in winter
    front = _smooth(rng, 4.0)  # days, as weather lasts
    wetness = 0.9 * season + 1.2 * front + rng.logistic(0.0, 0.6, DAYS)
    wet = wetness > np.quantile(wetness, DRY)
    rain = np.maximum(np.round(rng.gamma(0.9, 6.0 * np.exp(0.3 * season), DAYS), 1), 0.1)
    warm = 16.0 - 8.0 * season + 3.0 * _smooth(rng, 5.0) + 1.5 * rng.normal(size=DAYS)
    spread = np.exp(1.9 - 0.3 * season - 0.4 * wet + 0.25 * rng.normal(size=DAYS))
    wind = rng.gamma(6.0, 0.5 * np.exp(0.2 * season + 0.2 * front), DAYS)
    snow = wet & (warm - spread < 0.5)
    fog = ~wet & (rng.uniform(size=DAYS) < 1 / (1 + np.exp(3.0 - 1.5 * season)))
    weather = np.where(snow, "snow", np.where(wet, "rain", np.where(fog, "fog", "sun")))
    return pd.DataFrame(
        {
            "date": pd.Timestamp("2012-01-01") + pd.to_timedelta(day, "D"),
            "rain": np.where(wet, rain, 0.0),
            "temp_max": np.round(warm, 1),
            "temp_min": np.round(warm - spread, 1),
            "wind": np.maximum(np.round(wind, 1), 0.1),
            "weather": weather,
            "calls": rng.poisson(np.exp(1.0 + 0.4 * season + 0.3 * wet)),
        }
    )


def _smooth(rng: np.random.Generator, width: float) -> np.ndarray:
    """A stationary process of unit variance: white noise under a normal window."""
    window = np.exp(-0.5 * (np.arange(-20, 21) / width) ** 2)
    return np.convolve(rng.normal(size=DAYS + 40), window / np.linalg.norm(window), "valid")


def discovered(table: pd.DataFrame, inputs: list[str], seed: int = 0) -> dict[str, str]:
    """The choice for each column, in words, and the time it takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = hm.discover(table[inputs], table.drop(columns=inputs), progress=False, seed=seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{len(table)} rows, {table.shape[1] - len(inputs)} columns: {wall:.1f} s, {cpu:.1f} CPU s"
    )
    return {name: repr(one) for name, one in found.items()}


def stability(table: pd.DataFrame, inputs: list[str], times: int) -> None:
    """Do choices stay without a fifth of the rows?"""
    whole = discovered(table, inputs)
    for name, said in whole.items():
        print(f"  {name}: {said}")
    changed = 0
    for k in range(times):
        keep = np.random.default_rng(k).uniform(size=len(table)) < 0.8
        some = discovered(table[keep].reset_index(drop=True), inputs)
        other = {n: one for n, one in some.items() if one != whole.get(n)}
        changed += len(other)
        print(f"  without a fifth of the rows, {k}: {other or 'the same'}", flush=True)
    print(f"{changed} of {times * len(whole)} choices differ")


def fitted(table: pd.DataFrame, seed: int) -> None:
    """A fit with "auto", beside constants and outputs alone, on days held out at random."""
    held = np.random.default_rng(seed).permutation(len(table))[: round(0.15 * len(table))]
    test = np.zeros(len(table), bool)
    test[held] = True
    X, Y = table[["date"]], table.drop(columns="date")
    began = time.process_time()
    model = hm.HetMOGP("auto", progress=False, seed=seed).fit(X[~test], Y[~test])
    print(f"fit: {time.process_time() - began:.0f} CPU s; {model.discovery_.likelihoods}")
    print(model.compare_baselines(X[test], Y[test]).round(3).to_string())


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=5, help="how often a fifth is left out")
    parser.add_argument("--fit", action="store_true", help="fit a model with auto")
    parser.add_argument("--table", type=Path, default=None, help="a parquet or CSV file")
    parser.add_argument("--inputs", default="date", help="of that table, separated by commas")
    options = parser.parse_args()
    warnings.simplefilter("default", UserWarning)
    if options.table is None:
        table, inputs = simulated(options.seed), ["date"]
        print(f"{(table['rain'] == 0).mean():.1%} of the days are dry")
    else:
        read = pd.read_parquet if options.table.suffix == ".parquet" else pd.read_csv
        table, inputs = read(options.table), options.inputs.split(",")
    if options.fit:
        fitted(table, options.seed)
    else:
        stability(table, inputs, options.times)


if __name__ == "__main__":
    main()
