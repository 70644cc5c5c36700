"""Joint draws of outputs, and answers that span rows, against closed forms and plain loops."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import norm, poisson

import hetmogp as hm
from hetmogp import sampling
from hetmogp.aggregates import draws_of_groups, grouped
from hetmogp.exchange import groups_of
from hetmogp.sampling import Ask
from hetmogp.session import session

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

N = 120


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=N, freq="D")
    x, site = np.arange(N) / 20.0, np.array(["north", "south"])[rng.integers(0, 2, N)]
    g = np.sin(x) + 0.3 * (site == "north")
    population = rng.integers(50, 200, N).astype(float)
    return pd.DataFrame(
        {
            "day": days,
            "site": site,
            "level": g + 0.3 * rng.standard_normal(N),
            "high": (rng.uniform(size=N) < 1 / (1 + np.exp(-2 * g))).astype(float),
            "cases": rng.poisson(0.05 * population * np.exp(0.5 * g)).astype(float),
            "kind": np.array(["a", "b", "c"])[np.clip(np.round(g + 1), 0, 2).astype(int)],
            "population": population,
        }
    )


@pytest.fixture(scope="module")
def model(table):
    likelihoods = {
        "level": hm.Gaussian(),
        "high": hm.Bernoulli(),
        "cases": hm.Poisson(exposure="population"),
        "kind": hm.Categorical(),
    }
    made = hm.HetMOGP(likelihoods, latents=2, inducing=20, max_iter=3, progress=False)
    return made.fit(table[["day", "site"]], table)


def pathwise(monkeypatch):
    monkeypatch.setattr(sampling, "DENSE", 0)


@pytest.mark.parametrize("exact", [True, False])
def test_observations_have_the_moments_of_functions_and_noise(model, table, exact, monkeypatch):
    """Real outputs in closed form: cov f over rows, and the noise on its diagonal."""
    if not exact:
        pathwise(monkeypatch)
    rows, n = table[::8][["day", "site"]], 6000
    draws = model.sample_y(rows, n, random_state=1)
    with session():
        fitted = model.fitted
        encoded = hm.inputs.read_inputs(rows, fitted.columns)[0]
        mean, cov = fitted.posterior.joint(fitted.scaling.apply(encoded))
    j = fitted.outputs["level"].part.start
    noise = model.likelihoods_["level"].constants["scale"] ** 2
    cov = cov[:, j, :, j] + noise * np.eye(len(rows))
    y, variance = draws["level"], np.diag(cov)
    assert y.shape == (n, len(rows))
    assert np.abs((y.mean(0) - mean[:, j]) / np.sqrt(variance / n)).max() < 4.5
    of_cov = np.sqrt((np.outer(variance, variance) + cov**2) / n)
    assert np.abs((np.cov(y.T) - cov) / of_cov).max() < 6.0
    pred = model.predict(rows)
    for name in ("high", "cases"):
        off = (draws[name].mean(0) - pred[name].mean) / (draws[name].std(0) / np.sqrt(n))
        assert np.abs(off).max() < 4.5
    share = (draws["kind"] == "b").mean(0)
    np.testing.assert_allclose(share, pred["kind"].probabilities[:, 1], atol=0.035)
    assert set(np.unique(draws["kind"])) <= {"a", "b", "c"}


def test_outputs_are_drawn_jointly(model, table, monkeypatch):
    """Where two outputs share latents, a draw that is high in one is high in the other."""
    pathwise(monkeypatch)
    rows = table[["day", "site"]].iloc[[0, 60]]
    rows = rows.assign(day=pd.Timestamp("2025-03-01"))  # far from all data
    f = model.sample_functions(4000, seed=2)(rows)
    _, cov = model.parameter_functions(rows)
    names = model.parameter_names_
    a, b = names.index("level.mean"), names.index("cases.rate")
    expected = cov[0, a, b] / np.sqrt(cov[0, a, a] * cov[0, b, b])
    assert np.corrcoef(f[:, 0, a], f[:, 0, b])[0, 1] == pytest.approx(expected, abs=0.06)
    np.testing.assert_allclose(f.mean(0), model.parameter_functions(rows)[0], atol=0.1)


def test_arguments_of_observations_count(model, table):
    rows = table[["day", "site"]].iloc[:5]
    few = model.sample_y(rows, 2000, outputs="cases", given={"population": 10.0})["cases"]
    many = model.sample_y(rows, 2000, outputs="cases", given={"population": 1000.0})["cases"]
    assert many.mean() == pytest.approx(100 * few.mean(), rel=0.05)
    assert list(model.sample_y(rows, outputs="cases")) == ["cases"]


def test_functions_are_in_the_users_order_and_units(model, table):
    rows = table[["day", "site"]].iloc[::30]
    functions = model.sample_functions(3, seed=4)
    assert functions.names == model.parameter_names_
    assert len(functions) == 3
    assert functions(rows).shape == (3, 4, len(model.parameter_names_))
    np.testing.assert_allclose(functions(rows)[:, 1:3], functions(rows.iloc[1:3]), rtol=1e-8)


def test_what_cannot_be_drawn_is_refused_in_words(model, table):
    rows = table[["day", "site"]]
    with pytest.raises(ValueError, match="X is a dict; give one table"):
        model.sample_y({"level": rows})
    with pytest.raises(ValueError, match="no output 'width'"):
        model.sample_y(rows, outputs="width")
    with pytest.raises(TypeError, match=r"n_samples must be a whole number, not 2\.5"):
        model.sample_y(rows, 2.5)
    with pytest.raises(ValueError, match="n must be at least 1, not 0"):
        model.sample_functions(0)
    with pytest.raises(ValueError, match=r"of must be .* not 'noise'"):
        model.aggregate(rows, of="noise")


def test_draws_at_the_observations_reproduce_them_as_noise_vanishes(monkeypatch):
    pathwise(monkeypatch)
    x = np.linspace(0, 10, 40)
    y = np.sin(x)
    off = []
    for scale in (0.3, 0.01):
        made = hm.HetMOGP(
            {"y": hm.Gaussian(scale=scale)},
            kernel=hm.Matern32(lengthscale=2.0),
            latents=1,
            inducing=x,
            max_iter=0,
            progress=False,
        ).fit(x, {"y": y})
        off.append(np.abs(made.sample_y(x, 200)["y"] - y).mean())
    assert off[1] < 0.03 * 1.5
    assert off[0] > 5 * off[1]


def test_groups_for_arviz_belong_together(model, table):
    """The log likelihood is that of the draws of f that are handed over, at observed rows."""
    seen = table.assign(level=table["level"].where(np.arange(N) % 3 > 0))
    groups, rows = groups_of(model.fitted, table[["day", "site"]], 40, seen, 1)
    f = groups["posterior"]["f"]
    assert f.shape == (1, 40, N, len(model.parameter_names_))
    np.testing.assert_array_equal(rows["level"], np.flatnonzero(np.arange(N) % 3))
    for group in ("posterior_predictive", "log_likelihood"):
        assert groups[group]["level"].shape == (1, 40, len(rows["level"]))
    names = model.parameter_names_
    at = f[0][:, rows["level"], names.index("level.mean")]
    y, scale = groups["observed_data"]["level"], model.likelihoods_["level"].constants["scale"]
    np.testing.assert_allclose(groups["log_likelihood"]["level"][0], norm.logpdf(y, at, scale))
    rate = np.exp(f[0][:, :, names.index("cases.rate")]) * table["population"].to_numpy()
    density = poisson.logpmf(table["cases"].to_numpy(), rate)
    np.testing.assert_allclose(groups["log_likelihood"]["cases"][0], density, rtol=1e-8)
    drawn = groups["posterior_predictive"]["cases"][0]
    assert drawn.mean() == pytest.approx(rate.mean(), rel=0.05)
    X = table[["day", "site"]]
    bare, _ = groups_of(model.fitted, X, 3, None, 1)
    assert set(bare) == {"posterior", "posterior_predictive"}
    many, _ = groups_of(model.fitted, X, 3, None, 1, "cases", {"population": 1e5})
    assert list(many["posterior_predictive"]) == ["cases"]
    rate = np.exp(many["posterior"]["f"][..., names.index("cases.rate")]) * 1e5
    assert many["posterior_predictive"]["cases"].mean() == pytest.approx(rate.mean(), rel=0.02)
    groups, rows = groups_of(model.fitted, X, 3, seen.assign(level=np.nan, kind=None), 1)
    assert list(rows) == list(groups["log_likelihood"]) == ["high", "cases"]
    assert set(groups["observed_data"]) == set(groups["posterior_predictive"]) == set(rows)
    with pytest.raises(ValueError, match="Y has no observed value"):
        groups_of(model.fitted, X, 3, seen.assign(level=np.nan), 1, "level")
    with pytest.raises(ValueError, match="given is for inputs without Y"):
        groups_of(model.fitted, X, 3, seen, 1, None, {"population": 1.0})


def test_without_arviz_the_error_says_what_to_install(model, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"hetmogp\[arviz\]"):
        model.to_arviz(table[["day", "site"]])


@pytest.mark.filterwarnings("ignore")  # of ArviZ and xarray themselves
def test_arviz_can_use_what_it_gets(model, table):
    """Names and shapes, and leave-one-out: its score and effective number add up to the lppd."""
    arviz = pytest.importorskip("arviz")
    seen = table.assign(cases=table["cases"].where(np.arange(N) % 5 > 0))
    data = model.to_arviz(table[["day", "site"]], 400, seen)
    assert data["posterior"]["f"].dims == ("chain", "draw", "row", "function")
    assert list(data["posterior"]["f"].coords["function"].values) == model.parameter_names_
    density = np.asarray(data["log_likelihood"]["cases"])
    assert density.shape == (1, 400, (np.arange(N) % 5 > 0).sum())
    np.testing.assert_array_equal(data["observed_data"]["cases"], seen["cases"].dropna())
    loo = arviz.loo(data, var_name="cases")
    lppd = np.sum(logsumexp(density[0], axis=0) - np.log(400))
    score, effective = (loo.elpd, loo.p) if hasattr(loo, "elpd") else (loo.elpd_loo, loo.p_loo)
    assert score + effective == pytest.approx(lppd, rel=1e-6)
    assert 0 < effective < 30


# -- groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
def test_a_group_mean_has_the_moments_of_its_rows_together(model, table, exact, monkeypatch):
    if not exact:
        pathwise(monkeypatch)
    rows = table[["day", "site"]]
    found = model.aggregate(rows, by="site", outputs="level", n_samples=4000, above=0.2)
    with session():
        fitted = model.fitted
        encoded = hm.inputs.read_inputs(rows, fitted.columns)[0]
        mean, cov = fitted.posterior.joint(fitted.scaling.apply(encoded))
    j = fitted.outputs["level"].part.start
    noise = model.likelihoods_["level"].constants["scale"] ** 2
    for site in ("north", "south"):
        w = (table["site"] == site).to_numpy() / (table["site"] == site).sum()
        centre, variance = w @ mean[:, j], w @ (cov[:, j, :, j] + noise * np.eye(N)) @ w
        std = np.sqrt(variance)
        row = found.loc[site]
        assert row["rows"] == (table["site"] == site).sum()
        assert row["level_mean"] == pytest.approx(centre, abs=4.5 * std / np.sqrt(4000))
        assert row["level_std"] == pytest.approx(std, rel=0.06)
        assert row["level_lower"] == pytest.approx(norm.ppf(0.05, centre, std), abs=0.1 * std)
        assert row["level_above"] == pytest.approx(norm.sf(0.2, centre, std), abs=0.035)


@pytest.mark.parametrize("how", ["mean", "sum", "max", "min"])
def test_aggregates_in_chunks_are_those_of_all_draws(model, table, how, monkeypatch):
    """Against plain NumPy on the draws of the same functions, with groups that span chunks."""
    pathwise(monkeypatch)
    monkeypatch.setattr(sampling, "ROWS", 32)
    rows = table[["day", "site"]]
    ask = Ask.of(model.fitted, rows, ["high", "level"], None, 64, 5, "expected")
    weights = np.ones(N) if how in ("max", "min") else np.linspace(0.5, 2.0, N)
    groups = grouped(rows, N, "site", weights)
    found = draws_of_groups(ask, groups, how)
    f = model.sample_functions(64, seed=5)(rows)
    level = f[:, :, model.parameter_names_.index("level.mean")]
    high = 1 / (1 + np.exp(-f[:, :, model.parameter_names_.index("high.probability")]))
    plain = {
        "mean": lambda y, w: np.average(y, axis=1, weights=w),
        "sum": lambda y, w: y @ w,
        "max": lambda y, w: y.max(axis=1),
        "min": lambda y, w: y.min(axis=1),
    }[how]
    for name, values in (("level", level), ("high", high)):
        for k, site in enumerate(["north", "south"]):
            own = (table["site"] == site).to_numpy()
            expected = plain(values[:, own], weights[own])
            np.testing.assert_allclose(found[name][:, k], expected, rtol=1e-8)


def test_a_function_of_ones_own_is_handed_whole_groups(model, table, monkeypatch):
    monkeypatch.setattr(sampling, "ROWS", 64)
    rows = table[["day", "site"]]
    sizes = []

    def most_frequent(kinds):
        sizes.append(kinds.shape)
        return (kinds == "b").sum(axis=1)

    found = model.aggregate(rows, by="site", outputs="kind", how=most_frequent, n_samples=50)
    counts = table["site"].value_counts()
    assert sizes == [(50, counts["north"]), (50, counts["south"])]
    expected = model.predict(rows)["kind"].probabilities[:, 1]
    north = (table["site"] == "north").to_numpy()
    assert found.loc["north", "kind_mean"] == pytest.approx(expected[north].sum(), rel=0.2)
    with pytest.raises(ValueError, match=r"must return \(50,\), one number a draw"):
        model.aggregate(rows, how=lambda y: y, outputs="level", n_samples=50)


def test_groups_by_columns_labels_or_none(model, table):
    rows = table[["day", "site"]].assign(month=table["day"].dt.month)
    two = model.aggregate(rows, by=["site", "month"], outputs="level", n_samples=20)
    assert two.index.names == ["site", "month"]
    assert two["rows"].sum() == N
    by_hand = model.aggregate(rows, by=rows["month"].to_numpy(), outputs="level", n_samples=20)
    assert by_hand.index.tolist() == [1, 2, 3, 4]
    assert model.aggregate(rows, outputs="level", n_samples=20).index.tolist() == ["all"]
    few = rows.iloc[:2].assign(site=["north", None])
    for by in ("site", ["site"], ["site", "month"]):
        with pytest.raises(ValueError, match="by has no label at row 1; every row needs a group"):
            grouped(few, 2, by, None)
    assert grouped(rows.iloc[:2], 2, ["site", "month"], None).labels.names == ["site", "month"]
    assert list(grouped(rows.iloc[:2], 2, ["s", "month"], None).labels) == ["month", "s"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"by": "parcel"}, "by='parcel': X has no such column; it has day, site"),
        ({"by": [1, 2]}, "by has 2 labels for 120 rows"),
        ({"how": "median", "outputs": "level"}, "how must be"),
        ({"outputs": "kind"}, "'kind' is Categorical: classes cannot be added"),
        ({"weights": [1.0]}, r"weights have shape \(1,\) for 120 rows"),
        ({"weights": -np.ones(N)}, "weights, row 0: -1.0 is not a finite number >= 0"),
        ({"outputs": "level", "how": "max", "weights": np.arange(N)}, "weights have no meaning"),
        ({"outputs": "level", "above": {"cases": 3}}, "above names 'cases'"),
        ({"outputs": "level", "level": 1.5}, "level must lie strictly between 0 and 1"),
    ],
)
def test_unfit_questions_are_refused_in_words(model, table, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        model.aggregate(table[["day", "site"]], n_samples=8, **arguments)


# -- differences and peaks -------------------------------------------------------------------------


def test_a_difference_has_the_moments_of_both_together(model, table):
    a, b = table[["day", "site"]].iloc[:20], table[["day", "site"]].iloc[20:50]
    found = model.difference(a, b, outputs="level", n_samples=4000).loc["level"]
    with session():
        fitted = model.fitted
        encoded = hm.inputs.read_inputs(pd.concat([a, b]), fitted.columns)[0]
        mean, cov = fitted.posterior.joint(fitted.scaling.apply(encoded))
    j = fitted.outputs["level"].part.start
    w = np.concatenate([np.full(20, 1 / 20), np.full(30, -1 / 30)])
    centre, std = w @ mean[:, j], np.sqrt(w @ cov[:, j, :, j] @ w)
    assert found["mean"] == pytest.approx(centre, abs=4.5 * std / np.sqrt(4000))
    assert found["std"] == pytest.approx(std, rel=0.06)
    assert found["positive"] == pytest.approx(norm.sf(0, centre, std), abs=0.035)
    same = model.difference(a, a, outputs="level", n_samples=100).loc["level"]
    assert same["positive"] == pytest.approx(0.5, abs=0.2)
    assert abs(same["mean"]) < 1e-5


def test_a_difference_of_rates_counts_how_many_are_exposed(model, table):
    """E[cases] = population × rate: equal rows differ by the populations times the mean rate."""
    a = table[["day", "site"]].iloc[:5]
    options: dict = {"outputs": "cases", "n_samples": 3000}
    rate = model.aggregate(a, outputs="cases", of="expected", n_samples=3000)["cases_mean"].iloc[0]
    pair = ({"population": 300.0}, {"population": np.full(5, 100.0)})
    found = model.difference(a, a, given=pair, **options).loc["cases"]
    assert found["mean"] == pytest.approx(200.0 * rate, rel=0.02)
    assert found["positive"] == 1.0
    same = model.difference(a, a, given={"population": 300.0}, **options).loc["cases"]
    assert abs(same["mean"]) < 1e-3 * 300.0 * rate
    with pytest.raises(ValueError, match="has exposure of output 'cases' for the first rows and"):
        model.difference(a, a, given=({"population": 300.0}, None), **options)
    with pytest.raises(ValueError, match="given has 3 parts; a pair is for X_a and for X_b"):
        model.difference(a, a, given=(None, None, None))


def test_the_peak_is_that_of_every_draw(model, table, monkeypatch):
    pathwise(monkeypatch)
    monkeypatch.setattr(sampling, "ROWS", 32)
    rows = table[["day", "site"]].set_index(np.arange(N) + 1000)
    found = model.peak(rows, outputs="level", n_samples=200, random_state=3).loc["level"]
    f = model.sample_functions(200, seed=3)(rows)
    level = f[:, :, model.parameter_names_.index("level.mean")]
    at = level.argmax(axis=1)
    assert found["row"] == 1000 + np.bincount(at).argmax()
    assert found["row_probability"] == pytest.approx(np.bincount(at).max() / 200)
    assert found["peak_mean"] == pytest.approx(level.max(axis=1).mean())
    days = rows["day"].iloc[at].sort_values()
    assert found["day"] == days.iloc[99]
    assert found["day_lower"] <= found["day"] <= found["day_upper"]
    lowest = model.peak(rows, outputs="level", lowest=True, n_samples=200, random_state=3)
    assert lowest.loc["level", "lowest_mean"] == pytest.approx(level.min(axis=1).mean())


def test_levels_and_tables_without_rows_are_refused_before_any_draw(model, table, monkeypatch):
    def drawn(*_):
        raise AssertionError

    monkeypatch.setattr(Ask, "chunks", drawn)
    rows = table[["day", "site"]]
    asked = {"outputs": "level", "n_samples": 3}
    for level in (0.0, 1.5):
        for ask in (model.aggregate, model.peak, lambda X, **more: model.difference(X, X, **more)):
            with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
                ask(rows, level=level, **asked)
    for ask in (model.aggregate, model.peak):
        with pytest.raises(ValueError, match="X has no rows"):
            ask(rows.iloc[:0], **asked)
    with pytest.raises(ValueError, match="X_b has no rows"):
        model.difference(rows, rows.iloc[:0], **asked)


@pytest.mark.slow
def test_intervals_of_group_means_hold_the_truth_and_those_of_single_rows_do_not():
    """The short form of `make group_means`."""
    from group_means import study

    shares = study(20).loc["all"]
    assert 0.84 < shares["joint"] < 0.96
    assert shares["apart"] < shares["joint"] - 0.08
