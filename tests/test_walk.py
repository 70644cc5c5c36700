"""A new user's walk: a table with five kinds of columns and gaps, to predictions and a report.

The fit runs in a process of its own, as a user would call it, the other commands in this one. Every
file that they leave is opened and compared with the truth that the table was made from.
"""

import io
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import hetmogp as hm
from hetmogp import plots
from hetmogp.cli import app

DAYS, SITES = 60, ("hill", "port", "town")
GAP = (30, 42)  # days in which nobody wrote down whether it rained, but at the hill


def truth(day, site):
    """What drives every column."""
    return np.sin(day / 8) + np.select([site == "hill", site == "port"], [-0.6, 0.6], 0.0)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The user's file, another with values held back, and the folder they are in."""
    folder = tmp_path_factory.mktemp("walk")
    rng = np.random.default_rng(3)
    day, site = np.repeat(np.arange(DAYS), 3), np.tile(SITES, DAYS)
    f = truth(day, site)
    N = len(f)
    table = pd.DataFrame(
        {
            "date": (pd.Timestamp("2024-03-01") + pd.to_timedelta(day, "D")).strftime("%Y-%m-%d"),
            "site": site,
            "level": 5 + 2 * f + 0.3 * rng.standard_normal(N),
            "rain": (rng.uniform(size=N) < 1 / (1 + np.exp(-3 * f))).astype(int),
            "visits": rng.poisson(np.exp(1.5 + 0.8 * f)),
            "sky": np.array(["clear", "cloud", "fog"])[
                np.argmax(np.stack([-2 * f, 0 * f, 2 * f], 1) + rng.gumbel(size=(N, 3)), axis=1)
            ],
            "wait": 10 * np.exp(0.8 * f) * rng.weibull(2.0, N),
        }
    )
    test = rng.uniform(size=N) < 0.15
    table[test].to_csv(folder / "test.csv", index=False)
    gap = (day >= GAP[0]) & (day < GAP[1]) & (site != "hill")
    table["rain"] = table["rain"].astype(object).where(~gap, None)
    table["wait"] = table["wait"].where(rng.uniform(size=N) > 0.2)
    table[~test].to_csv(folder / "days.csv", index=False)
    return folder


def hetmogp(folder, *arguments):
    """Run the command as a user would; its results, with nothing but progress beside them."""
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "hetmogp", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=400, env=os.environ | quick,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def here(*arguments):
    """The same in this process, which has imported all that is needed."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def walk(tables):
    """All the commands in turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tables)
        yield _walked(tables)


def _walked(tables):
    said = {}
    said["discover"] = here(
        *(
            "discover",
            "days.csv",
            "--inputs",
            "date,site",
            "--output",
            "rain",
            "--output",
            "sky",
            "--json",
        )
    )
    said["fit"] = hetmogp(
        *(tables, "fit", "days.csv", "--inputs", "date,site", "--inducing", 30, "--latents", 2),
        *("--output", "level:gaussian", "--output", "rain:bernoulli", "--output", "visits:poisson"),
        *("--output", "sky:categorical", "--output", "wait:weibull"),
    )
    said["score"] = here("score", "days.hetmogp", "test.csv", "--json")
    said["predict"] = here("predict", "days.hetmogp", "--grid", DAYS, "--out", "grid.csv")
    said["report"] = here("report", "days.hetmogp", "--data", "days.csv")
    return said


def test_discovery_knows_the_kinds(walk):
    rows = pd.DataFrame(json.loads(walk["discover"]))
    chosen = rows[rows["recommended"]].set_index("output")["likelihood"]
    assert chosen["rain"] == "Bernoulli()"
    assert chosen["sky"].startswith("Categorical")


def test_the_fit_is_told_and_saved(walk, tables):
    text = walk["fit"]
    assert "5 outputs, 6 parameter functions, 1 latent in use" in text
    assert "converged after" in text
    assert "NOT" not in text
    assert "model: days.hetmogp" in text
    model = hm.load(tables / "days.hetmogp")
    assert model.likelihoods_["wait"].constants["shape"] == pytest.approx(2.0, rel=0.25)
    summary = model.summary()
    correlation = summary.correlation.fillna(summary.constructed)
    assert correlation.loc["level.mean", "rain.probability"] > 0.9  # as the table was made
    assert correlation.loc["level.mean", "sky.fog"] > 0.9


def test_scores_on_held_out_rows_beat_constants(walk, tables):
    """A constant model of each column, fitted to the training rows."""
    scores = json.loads(walk["score"])
    train, test = (pd.read_csv(tables / f"{name}.csv") for name in ("days", "test"))
    rain, sky = train["rain"].mean(), train["sky"].value_counts(normalize=True)
    p = np.where(test["rain"] == 1, rain, 1 - rain)
    constant = {
        "level": 0.5 * np.log(2 * np.pi * np.e * train["level"].var()),
        "rain": -np.log(p).mean(),
        "sky": -np.log(sky[test["sky"]]).mean(),
    }
    for name, limit in constant.items():
        assert scores[name]["nlpd"] < limit - 0.1, name
    assert scores["level"]["values"] == len(test)
    assert scores["level"]["coverage"] > 0.75
    assert scores["level"]["rmse"] < 0.5  # the noise is 0.3


def test_the_grid_follows_the_truth_where_nothing_was_seen(walk, tables):
    grid = pd.read_csv(tables / "grid.csv", parse_dates=["date"])
    assert len(grid) == DAYS * len(SITES)
    assert f"{len(grid)} rows: grid.csv" in walk["predict"]
    day = (grid["date"] - pd.Timestamp("2024-03-01")) / pd.Timedelta("1D")
    f = truth(day.to_numpy(), grid["site"].to_numpy())
    assert np.abs(grid["level_mean"] - (5 + 2 * f)).mean() < 0.25
    assert np.abs(np.log(grid["visits_mean"]) - (1.5 + 0.8 * f)).mean() < 0.25
    inside = day.between(*GAP).to_numpy() & (grid["site"] == "port").to_numpy()
    p = 1 / (1 + np.exp(-3 * f))
    assert np.abs(grid["rain_mean"] - p)[inside].mean() < 0.15  # the others were seen
    classes = grid[["sky_clear", "sky_cloud", "sky_fog"]]
    np.testing.assert_allclose(classes.sum(axis=1), 1.0, atol=1e-6)
    assert (grid["wait_lower"] < grid["wait_mean"]).all()
    assert (grid["wait_mean"] < grid["wait_upper"]).all()


def test_the_report_has_it_all(walk, tables):
    page = (tables / "days.html").read_text(encoding="utf-8")
    assert walk["report"].splitlines()[-1] == "report: days.html"
    for output in ("level", "rain", "visits", "sky", "wait"):
        assert f"<h3>{output}</h3>" in page
    assert "has not converged" not in page
    assert "gains nothing" not in page
    model, table = hm.load(tables / "days.hetmogp"), pd.read_csv(tables / "days.csv")
    assert f"{model.nlpd(table, table)['level']:.3f}" in page


def test_the_file_loads_in_python_and_is_drawn(walk, tables):
    model, table = hm.load(tables / "days.hetmogp"), pd.read_csv(tables / "days.csv")
    new = pd.DataFrame({"date": ["2024-04-05"], "site": ["port"]})
    (p,) = model.predict(new)["rain"].mean
    assert p == pytest.approx(1 / (1 + np.exp(-3 * truth(35, "port"))), abs=0.2)
    ax: Any = plots.posterior(model, "rain", at={"site": "port"}, X=table, Y=table)
    assert ax.get_title() == "at site = port"
    assert len(ax.patches) == 1  # the gap
    picture = io.BytesIO()
    ax.figure.savefig(picture, format="png")
    assert len(picture.getvalue()) > 10_000


# -- daily weather, of which most days are dry -----------------------------------------------------


@pytest.fixture(scope="module")
def weather(tmp_path_factory):
    """From a table to a report; rain falls when it is cold, on fewer than half of the days."""
    folder = tmp_path_factory.mktemp("weather")
    rng = np.random.default_rng(5)
    day = np.arange(150)
    f = np.sin(day / 4) + 0.6 * np.sin(day / 9 + 1)
    wet = rng.uniform(size=150) < 1 / (1 + np.exp(0.45 + 2.5 * f))
    amount = np.exp(0.8 - 0.7 * f + 0.5 * rng.standard_normal(150))
    table = pd.DataFrame(
        {
            "date": (pd.Timestamp("2024-03-01") + pd.to_timedelta(day, "D")).strftime("%Y-%m-%d"),
            "rain": np.where(wet, amount, 0.0).round(1),
            "temp": (14 + 4 * f + 0.8 * rng.standard_normal(150)).round(1),
        }
    )
    assert 0.55 < (table["rain"] == 0).mean() < 0.58
    table.to_csv(folder / "weather.csv", index=False)
    named = "--output", "rain:hurdle:lognormal", "--output", "temp:gaussian"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said = {
            "fit": here("fit", "weather.csv", "--inputs", "date", *named, "--holdout", 0.2),
            "summary": here("summary", "weather.hetmogp"),
            "score": here("score", "weather.hetmogp", "weather.csv"),
            "report": here("report", "weather.hetmogp", "--data", "weather.csv"),
        }
    page = (folder / "weather.html").read_text(encoding="utf-8")
    return {**said, "page": page}, table, hm.load(folder / "weather.hetmogp")


def test_every_step_says_what_was_held_out(weather):
    said, table, model = weather
    held = model.held_out(table)
    assert held.sum() == 30
    assert "30 rows held out of the fit: 20% of the rows, at random" in said["summary"]
    for step in ("fit", "score"):
        assert "30 of 150 rows, held out of the fit: 20% of the rows, at random" in said[step]
    assert "held out" in said["page"]


def test_what_sharing_was_worth_is_told_and_true(weather):
    """Against densities of the two models on the rows held out, and of the best constants."""
    said, table, model = weather
    rows = table[model.held_out(table)].reset_index(drop=True)
    own, alone = (
        one.predict(rows[["date"]])["rain"].log_prob(rows["rain"]) for one in (model, model.alone_)
    )
    fitted = table[~model.held_out(table)]["rain"]
    wet = np.log(fitted[fitted > 0])
    dry, scale, y = (fitted == 0).mean(), wet.std(ddof=0), rows["rain"].to_numpy()
    some = stats.lognorm(scale, scale=np.exp(wet.mean())).logpdf(np.where(y > 0, y, 1.0))
    constant = np.where(y == 0, np.log(dry), np.log(1 - dry) + some)
    over = (own - constant).mean(), (own - constant).std(ddof=1) / np.sqrt(30)
    gain = (own - alone).mean(), (own - alone).std(ddof=1) / np.sqrt(30)
    assert gain[0] > 2 * gain[1]  # as the table was made
    beats = f"rain beats its average by {over[0]:.2f} ± {over[1]:.2f} nats a value"
    worth = f"sharing is worth {gain[0]:.2f} ± {gain[1]:.2f}"
    for step in ("fit", "summary", "page"):
        assert beats in said[step], step
        assert worth in said[step], step
    assert f"{gain[0]:+.3f} ± {gain[1]:.3f}" in said["score"]


def test_nothing_else_was_left(walk, tables):
    files = {path.name for path in tables.iterdir()} - {"cache"}
    assert files == {"days.csv", "test.csv", "days.hetmogp", "grid.csv", "days.html"}
