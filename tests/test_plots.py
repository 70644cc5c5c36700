"""Pictures say what the model says: lines, bands, cells and bars against the numbers behind."""

import copy
import io
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import date2num
from scipy import stats
from scipy.special import expit

import hetmogp as hm
from hetmogp import curves, plots
from hetmogp.scoring import transforms
from hetmogp.tables import read

rng = np.random.default_rng(5)
N = 150
x = np.sort(rng.uniform(0.0, 10.0, N))
wave = np.sin(x)
OPTIONS = {"inducing": 8, "max_iter": 0, "progress": False}  # q(u) alone is quick


class Sampled(hm.Gaussian):
    """An output without a distribution function: quantiles and ranks come from samples."""

    has_cdf = property(lambda self: False)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def one():
    """Outputs of most kinds over one input; `home` has a gap in the middle, `height` at the end."""
    life, end = np.exp(0.5 + wave) * rng.weibull(2.0, N), 5.0 * rng.uniform(0.2, 1.0, N)
    people = rng.integers(5, 60, N)
    grade = (wave + rng.logistic(size=N) > 0).astype(int) + (wave + rng.logistic(size=N) > 1.5)
    grades = pd.Index(["low", "mid", "high"])
    Y = pd.DataFrame(
        {
            "height": np.where(x > 8.5, np.nan, wave + 0.3 * rng.standard_normal(N)),
            "home": np.where(
                (x > 4) & (x < 6), np.nan, rng.uniform(size=N) < expit(3.0 * wave)
            ).astype(float),
            "deaths": rng.poisson(people * np.exp(wave - 2.0)),
            "people": people,
            "life": np.minimum(life, end),
            "ended": (life <= end).astype(int),
            "grade": pd.Categorical.from_codes(grade, grades, ordered=True),
            "kind": np.array(["bus", "car", "walk"])[grade],
            "drawn": wave + 0.1 * rng.standard_normal(N),
        }
    )
    likelihoods = {
        "height": hm.Gaussian(),
        "home": hm.Bernoulli(),
        "deaths": hm.Poisson(exposure="people"),
        "life": hm.Weibull(event="ended"),
        "grade": hm.Ordinal(),
        "kind": hm.Categorical(),
        "drawn": Sampled(),
    }
    X = pd.DataFrame({"hour": x})
    return hm.HetMOGP(likelihoods, latents=2, **OPTIONS).fit(X, Y), X, Y


@pytest.fixture(scope="module")
def dated():
    """Two models over dates, of which one is better."""
    day = pd.Timestamp("2024-03-01") + pd.to_timedelta(np.round(86400 * x), "s")
    X = pd.DataFrame({"day": day})
    Y = {"real": wave + 0.3 * rng.standard_normal(N), "yes": (wave > 0).astype(float)}
    Y["yes"][50:90] = np.nan
    likelihoods = {"real": hm.Gaussian(), "yes": hm.Bernoulli()}
    joint, alone = (
        hm.HetMOGP(likelihoods, kernel=kernel, latents=1, rank=2, **OPTIONS).fit(X, Y)
        for kernel in (hm.RBF(lengthscale=2.0), hm.RBF(lengthscale=0.2))
    )
    return joint, alone, X, Y


@pytest.fixture(scope="module")
def plane():
    """Two outputs over two numbers and a label."""
    X = pd.DataFrame({"east": rng.uniform(0, 10, N), "north": rng.uniform(50, 53, N)})
    X["side"] = np.where(rng.uniform(size=N) < 0.7, "left", "right")
    height = np.sin(X["east"]) + (X["side"] == "left")
    Y = {"height": height, "kind": np.where(height > 0.5, "hill", "vale")}
    likelihoods = {"height": hm.Gaussian(), "kind": hm.Categorical()}
    return hm.HetMOGP(likelihoods, latents=1, **OPTIONS).fit(X, Y), X, Y


@pytest.fixture(scope="module")
def sites():
    """An output over two numbers and twelve sites, each with an intercept; the first row is odd."""
    X = pd.DataFrame({"day": x[:60], "size": np.r_[500.0, rng.uniform(size=59)]})
    X["site"] = [f"s{k % 12:02}" for k in range(60)]
    options = {"latents": 1, "groups": "site", **OPTIONS}
    return hm.HetMOGP({"y": hm.Gaussian()}, **options).fit(X, {"y": wave[:60]}), X


def labelled(artists, label):
    (found,) = [artist for artist in artists if artist.get_label() == label]
    return found


def band(ax, label):
    """The lower and upper ends of a band, at the inputs where it was drawn."""
    (path,) = labelled(ax.collections, label).get_paths()
    corners = pd.DataFrame(path.vertices, columns=["x", "y"]).groupby("x")["y"]
    return corners.min().to_numpy(), corners.max().to_numpy()


def legend_of(ax):
    legend = ax.get_legend() or ax.figure.legends[0]
    return [text.get_text() for text in legend.get_texts()]


# -- one output ------------------------------------------------------------------------------------


def test_the_line_is_the_mean_and_the_band_the_interval(one):
    model, X, Y = one
    ax = plots.posterior(model, "height", X=X, Y=Y, level=0.8)
    at = np.linspace(x.min(), x.max(), 300)
    predicted = model.predict(at)["height"]
    line = labelled(ax.lines, "mean")
    np.testing.assert_allclose(line.get_xdata(), at)
    np.testing.assert_allclose(line.get_ydata(), predicted.mean)
    for drawn, expected in zip(band(ax, "80% interval"), predicted.interval(0.8), strict=True):
        np.testing.assert_allclose(drawn, expected)
    dots = labelled(ax.lines, "observed")
    seen = Y["height"].notna()
    np.testing.assert_allclose(dots.get_xdata(), x[seen])
    np.testing.assert_allclose(dots.get_ydata(), Y["height"][seen])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("hour", "height")
    assert legend_of(ax) == ["not observed", "observed", "80% interval", "mean"]


def test_a_bundle_of_draws_beside_the_band(one):
    """Draws have the band's spread at each input, and are functions: neighbours go together."""
    model, _, _ = one
    ax = plots.posterior(model, "home", draws=400)
    lower, upper = band(ax, "90% band of the probability")
    drawn = np.array([line.get_ydata() for line in ax.lines if line.get_linewidth() < 1])
    assert drawn.shape == (400, 300)
    ends = np.quantile(drawn, [0.05, 0.95], axis=0)
    assert np.abs(ends - [lower, upper]).max() < 0.12
    steps = np.abs(np.diff(drawn, axis=1)).mean()
    assert steps < 0.2 * drawn.std(axis=0).mean()  # independent ones would have 1.1
    with pytest.raises(ValueError, match="cannot be drawn as lines"):
        plots.posterior(model, "kind", draws=3)


def test_a_fan_has_the_intervals_and_possible_futures(one):
    model, X, Y = one
    at = np.linspace(10, 12, 15)
    ax = plots.fan(model, "height", at, X=X, Y=Y, levels=(0.5, 0.9), draws=5)
    predicted = model.predict(at)["height"]
    for level in (0.5, 0.9):
        drawn = band(ax, f"{100 * level:g}%")
        for one_end, expected in zip(drawn, predicted.interval(level), strict=True):
            np.testing.assert_allclose(one_end, expected)
    np.testing.assert_allclose(labelled(ax.lines, "median").get_ydata(), predicted.quantile(0.5))
    futures = model.sample_y(at, 5, outputs="height")["height"]
    np.testing.assert_allclose(labelled(ax.lines, "draws").get_ydata(), futures[0])
    assert legend_of(ax) == ["90%", "50%", "median", "draws", "observed"]


@pytest.mark.parametrize(("output", "begin", "end"), [("home", 4.0, 6.0), ("height", 8.5, x[-1])])
def test_what_was_not_observed_is_shaded(one, output, begin, end):
    model, X, Y = one
    ax = plots.posterior(model, output, X=X, Y=Y)
    span = labelled(ax.patches, "not observed").get_extents().transformed(ax.transData.inverted())
    seen = x[Y[output].notna()]
    assert span.x0 == pytest.approx(seen[seen < begin].max())
    assert span.x1 == pytest.approx(seen[seen > end].min() if (seen > end).any() else end)


def test_a_site_without_data_can_be_drawn(sites):
    model, X = sites
    new, Y = X.assign(site="new"), {"y": wave[:60]}
    drawn: Any = {"along": "day", "at": {"site": "new"}}
    ax = plots.posterior(model, "y", X=X, Y=Y, **drawn)
    assert "site = a new level" in ax.get_title()
    assert len(labelled(ax.lines, "observed").get_xdata()) == 0
    assert model.peak(new, n_samples=2)["site"].tolist() == ["a new level"]
    assert "site = s00" in plots.posterior(model, "y", along="day", X=new, Y=Y).get_title()


def test_the_middle_of_an_input_is_that_of_the_latents_that_see_it(sites):
    """The table of a group's latent has a row for each site, all with the same other inputs."""
    model, X = sites
    assert np.concatenate(model.inducing_inputs_)[:, 1].max() == 500.0
    row = curves.middle(model, None)
    assert 0.0 <= row[1] <= 1.0
    assert curves.middle(model, read(model.likelihoods_, X, {"y": wave[:60]}))[1] in set(X["size"])


def test_values_at_random_or_evenly_spaced_leave_no_gap():
    for seed in range(20):
        values = np.random.default_rng(seed).uniform(size=100)
        assert curves.gaps(values, np.array([0.0, 1.0])) == []
    weekly = np.arange(0.0, 365.0, 7.0)
    assert curves.gaps(weekly, np.arange(365.0)) == []
    assert curves.gaps(np.delete(weekly, slice(20, 25)), weekly) == [(133.0, 175.0)]
    assert curves.gaps(np.empty(0), weekly) == [(0.0, 364.0)]
    assert curves.gaps(np.empty(0), np.empty(0)) == []


def test_a_probability_has_a_band_of_its_own(one):
    model, _, _ = one
    ax = plots.posterior(model, "home", [1.0, 5.0, 9.0])
    at = model.parameter_names_.index("home.probability")
    mean, cov = model.parameter_functions([1.0, 5.0, 9.0])
    reach = 1.6448536 * np.sqrt(cov[:, at, at])
    lower, upper = band(ax, "90% band of the probability")
    np.testing.assert_allclose(lower, expit(mean[:, at] - reach), rtol=1e-6)
    np.testing.assert_allclose(upper, expit(mean[:, at] + reach), rtol=1e-6)
    assert ax.get_ylabel() == "P(home = 1)"
    with pytest.raises(ValueError, match=r"level must lie strictly between 0 and 1, not 1\.5"):
        plots.posterior(model, "home", level=1.5)


def test_counts_with_an_exposure_are_rates(one):
    model, X, Y = one
    ax = plots.posterior(model, "deaths", X=X, Y=Y)
    dots = labelled(ax.lines, "observed")
    np.testing.assert_allclose(dots.get_ydata(), Y["deaths"] / Y["people"])
    lower, upper = band(ax, "90% band of the rate")
    rate = labelled(ax.lines, "rate").get_ydata()
    assert np.all((lower < rate) & (rate < upper))
    assert upper.max() < 1.5  # of new counts per person it would reach 2
    assert ax.get_ylabel() == "deaths / people"


def test_functions_are_drawn_from_their_posterior(one):
    """Where a rate has several functions its band comes from draws of these."""
    model, _, _ = one
    mean, cov = model.parameter_functions(x[:5])
    two = [model.parameter_names_.index(f"kind.{name}") for name in ("car", "walk")]
    f = curves._draws(*model.predict(x[:5])["kind"]._f())
    std = np.sqrt(cov[:, two, two])
    assert np.all(np.abs(f.mean(axis=0) - mean[:, two]) < 4 * std / np.sqrt(len(f)))
    for n in range(5):
        expected = cov[n][np.ix_(two, two)] / np.outer(std[n], std[n])
        np.testing.assert_allclose(np.corrcoef(f[:, n].T), expected, atol=0.1)
        np.testing.assert_allclose(f[:, n].std(axis=0), std[n], rtol=0.1)


def test_classes_are_stacked_and_ordered_ones_keep_their_labels(one):
    model, X, Y = one
    ax = plots.posterior(model, "kind", X=X, Y=Y)
    p = model.predict(np.linspace(x.min(), x.max(), 300))["kind"].probabilities
    tops = [band(ax, label)[1] for label in ("bus", "car", "walk")]
    np.testing.assert_allclose(np.stack(tops, axis=1), p.cumsum(axis=1), atol=1e-9)

    ax = plots.posterior(model, "grade", X=X, Y=Y)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["low", "mid", "high"]
    median = model.predict(np.linspace(x.min(), x.max(), 300))["grade"].quantile(0.5)
    drawn = labelled(ax.lines, "median").get_ydata()
    assert [["low", "mid", "high"][int(k)] for k in drawn] == list(median)


def test_censored_times_are_marked(one):
    model, X, Y = one
    ax = plots.posterior(model, "life", X=X, Y=Y)
    censored = Y["ended"] == 0
    np.testing.assert_allclose(
        labelled(ax.lines, "censored: at least this").get_ydata(), Y["life"][censored]
    )
    assert len(labelled(ax.lines, "observed").get_ydata()) == (~censored).sum()


def test_dates_stay_dates(dated):
    joint, _, X, Y = dated
    ax: Any = plots.posterior(joint, "yes", X=X, Y=Y)
    dots = labelled(ax.lines, "observed")
    seen = ~np.isnan(Y["yes"])
    np.testing.assert_array_equal(dots.get_xdata(orig=True), X["day"][seen].to_numpy())
    span = labelled(ax.patches, "not observed").get_extents().transformed(ax.transData.inverted())
    edges = date2num([X["day"][49], X["day"][90]])
    np.testing.assert_allclose([span.x0, span.x1], edges, atol=1e-6)
    days = pd.date_range("2024-03-02", "2024-03-05", freq="12h")
    line = labelled(plots.posterior(joint, "real", days).lines, "mean")
    np.testing.assert_array_equal(line.get_xdata(orig=True), days.to_numpy())
    np.testing.assert_allclose(
        line.get_ydata(), joint.predict(days.to_frame(name="day"))["real"].mean
    )
    ax.figure.draw_without_rendering()


def test_directions_go_round():
    turn = np.linspace(0.0, 2.5 * np.pi, 50)
    centre = (turn + np.pi) % (2 * np.pi) - np.pi
    parts = curves.turns(curves.Curve(centre, centre - 0.3, centre + 0.3, "mean", "band"))
    for part in parts:  # unbroken, and the same direction
        assert np.abs(np.diff(part.centre)).max() < 0.2
        np.testing.assert_allclose(np.cos(part.centre), np.cos(centre), atol=1e-9)
    shown = [np.abs(part.centre) <= np.pi for part in parts]
    assert np.all(np.any(shown, axis=0))

    wind = {"wind": np.angle(np.exp(1j * turn))}
    model = hm.HetMOGP({"wind": hm.VonMises()}, latents=1, **OPTIONS).fit(turn, wind)
    ax = plots.posterior(model, "wind")
    assert ax.get_ylim() == (-np.pi, np.pi)
    assert legend_of(ax) == ["90% interval", "mean"]  # once each


def test_what_cannot_be_drawn_is_refused(one, plane):
    model, X, _ = one
    flat = plane[0]
    for draw in (lambda m: plots.posterior(m, "height"), plots.parameter_functions, plots.latents):
        with pytest.raises(ValueError, match=r"draws over one input; .* 3 \(east, north, side\)"):
            draw(flat)
    with pytest.raises(ValueError, match=r"x has whole rows, .* leave at out"):
        plots.posterior(flat, "height", plane[1][:2], along="east", at={"side": "left"})
    with pytest.raises(ValueError, match="no output 'weight'; there are height, home"):
        plots.posterior(model, "weight")
    with pytest.raises(ValueError, match="X and Y belong together"):
        plots.posterior(model, "height", X=X)
    with pytest.raises(
        ValueError, match=r"surface draws over two inputs; the model has 1 \(hour\)"
    ):
        plots.surface(model, "height")
    with pytest.raises(ValueError, match=r"3 \(east, north, side\): choose two, such as inputs="):
        plots.surface(flat, "height")
    with pytest.raises(ValueError, match="no input 'up'"):
        plots.surface(flat, "height", inputs=("east", "up"))
    with pytest.raises(ValueError, match="classes have no standard deviation"):
        plots.surface(flat, "kind", inputs=("east", "north"), what="std")
    with pytest.raises(ValueError, match="is Gaussian, which has no label 'hill'"):
        plots.surface(flat, "height", inputs=("east", "north"), label="hill")
    with pytest.raises(ValueError, match=r"no parameter function 'height\.scale'"):
        plots.parameter_functions(model, names=["height.scale"])
    with pytest.raises(ValueError, match="axes has 1 Axes for 2 panels"):
        plots.latents(model, axes=plt.subplots()[1])
    assert len(plt.get_fignums()) == 1  # nothing was begun that could not be drawn


# -- maps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["mean", "std"])
def test_a_map_is_of_the_prediction(plane, what):
    model, X, Y = plane
    pair = ("north", "east")
    ax: Any = plots.surface(model, "height", X=X, Y=Y, grid=5, what=what, inputs=pair)
    mesh, points = ax.collections
    across, up = (np.linspace(X[name].min(), X[name].max(), 5) for name in pair)
    at = pd.DataFrame(
        {"north": np.tile(across, 5), "east": np.repeat(up, 5), "side": ["left"] * 25}
    )
    expected = getattr(model.predict(at)["height"], what)
    np.testing.assert_allclose(np.ravel(mesh.get_array()), expected)
    mine = (X["side"] == "left").to_numpy()
    np.testing.assert_allclose(points.get_offsets(), X[mine][list(pair)])
    if what == "mean":  # the points have the colours of their own values
        np.testing.assert_allclose(points.get_array(), np.asarray(Y["height"])[mine])
        assert points.norm is mesh.norm
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == (*pair, "at side = left")
    bar = ax.figure.axes[1]
    assert bar.get_ylabel() == {"mean": "mean", "std": "standard deviation"}[what] + " of height"


def test_a_map_of_what_exceeds_a_limit(plane):
    model, X, Y = plane
    pair = ("north", "east")
    ax: Any = plots.surface(model, "height", X=X, Y=Y, grid=4, above=0.3, inputs=pair)
    mesh, points = ax.collections
    across, up = (np.linspace(X[name].min(), X[name].max(), 4) for name in pair)
    at = pd.DataFrame(
        {"north": np.tile(across, 4), "east": np.repeat(up, 4), "side": ["left"] * 16}
    )
    expected = 1.0 - model.predict(at)["height"].cdf(np.full(16, 0.3))
    np.testing.assert_allclose(np.ravel(mesh.get_array()), expected)
    assert set(np.unique(points.get_array())) <= {0.0, 1.0}
    assert ax.figure.axes[1].get_ylabel() == "P(height > 0.3)"
    with pytest.raises(ValueError, match="leave out what and label"):
        plots.surface(model, "height", above=0.3, what="std", inputs=pair)


def test_a_map_of_classes_in_order_above_a_label():
    X = pd.DataFrame(rng.uniform(size=(30, 2)), columns=["a", "b"])
    for labels in (["low", "mid", "high"], [10, 20, 40]):
        grade = np.array(labels)[np.digitize(X["a"], [0.3, 0.6])]
        kinds = {"grade": hm.Ordinal(classes=labels)}
        model = hm.HetMOGP(kinds, latents=1, **OPTIONS).fit(X, {"grade": grade})
        ax: Any = plots.surface(model, "grade", X=X, Y={"grade": grade}, grid=2, above=labels[1])
        assert ax.figure.axes[1].get_ylabel() == f"P(grade > {labels[1]})"
        points = ax.collections[1].get_array()
        np.testing.assert_array_equal(points, grade == labels[2])


def test_a_map_of_classes(plane):
    model, X, Y = plane
    pair = ("east", "side")
    ax: Any = plots.surface(model, "kind", grid=6, inputs=pair)
    east = np.linspace(X["east"].min(), X["east"].max(), 6)
    at = pd.DataFrame({"east": np.tile(east, 2), "side": np.repeat(["left", "right"], 6)})
    middle = np.quantile(model.inducing_inputs_[0][:, 1], 0.5, method="inverted_cdf")
    p = model.predict(at.assign(north=middle))["kind"].probabilities
    np.testing.assert_array_equal(np.ravel(ax.collections[0].get_array()), p.argmax(axis=1))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["left", "right"]
    bar = ax.figure.axes[1]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["hill", "vale"]

    ax = plots.surface(model, "kind", X=X, Y=Y, grid=6, inputs=pair, label="vale")
    mesh, points = ax.collections
    at["north"] = np.quantile(X["north"], 0.5, method="inverted_cdf")
    p = model.predict(at)["kind"].probabilities
    np.testing.assert_allclose(np.ravel(mesh.get_array()), p[:, 1])
    np.testing.assert_array_equal(points.get_array(), Y["kind"] == "vale")
    assert ax.figure.axes[1].get_ylabel() == "P(kind = vale)"


# -- what was learned ------------------------------------------------------------------------------


def test_functions_and_latents_have_a_panel_each(one, dated):
    model, _, _ = one
    at = np.linspace(0.0, 10.0, 7)
    mean, cov = model.parameter_functions(at)
    axes = plots.parameter_functions(model, at)
    assert [ax.get_title() for ax in axes] == model.parameter_names_
    for j, ax in enumerate(axes):
        np.testing.assert_allclose(ax.lines[0].get_ydata(), mean[:, j])
        lower, upper = band(ax, "90% band")
        np.testing.assert_allclose(upper - lower, 2 * 1.6448536 * np.sqrt(cov[:, j, j]), rtol=1e-6)
    (ax,) = plots.parameter_functions(model, names=["kind.car"], axes=[plt.subplots()[1]])
    assert ax.get_title() == "kind.car"

    joint, _, X, _ = dated
    mean, _ = joint.latent_functions(X)
    axes = plots.latents(joint, X)
    said = joint.kernels_[0].in_words({c.name: c.unit for c in joint.columns_})
    for r, ax in enumerate(axes):  # two copies of one latent
        assert ax.get_title() == f"u0, copy {r}\n{said}"
        np.testing.assert_allclose(labelled(ax.lines, "mean").get_ydata(), mean[:, r])
        ticks = labelled(ax.lines, "inducing inputs")
        days = np.sort(joint.inducing_inputs_[0][:, 0])
        np.testing.assert_allclose(np.sort(date2num(ticks.get_xdata(orig=True))), days, atol=1e-6)
    axes[0].figure.draw_without_rendering()


def test_the_heat_map_is_the_correlation(one, dated):
    model, _, _ = one
    B = model.coregionalisation_.sum(axis=0)
    ax: Any = plots.coregionalisation(model)
    drawn = np.ma.filled(ax.collections[0].get_array(), np.nan)
    expected = model.summary().correlation.to_numpy()  # without those that say nothing
    np.testing.assert_allclose(drawn, expected)
    shown = np.isfinite(drawn)
    whole = B / np.sqrt(np.outer(np.diag(B), np.diag(B)))
    np.testing.assert_allclose(drawn[shown], whole[shown], rtol=1e-9)
    assert ax.collections[0].get_clim() == (-1.0, 1.0)
    assert [text.get_text() for text in ax.get_xticklabels()] == model.parameter_names_
    cells = [float(text.get_text().replace("−", "-")) for text in ax.texts]
    np.testing.assert_allclose(cells, drawn[shown], atol=0.0051)
    lines = {line.get_ydata()[0] for line in ax.lines if line.get_ydata()[0] == line.get_ydata()[1]}
    assert lines == {0.5, 1.5, 2.5, 3.5, 4.5, 6.5}  # `kind` has two functions


def test_a_function_without_weight_has_no_correlation(one):
    model = copy.copy(one[0])
    model._fitted, B = copy.copy(model.fitted), model.coregionalisation_.copy()
    B[:, 1, :] = B[:, :, 1] = 0.0
    vars(model.fitted)["coregionalisation"] = B
    ax: Any = plots.coregionalisation(model)
    found = np.ma.filled(ax.collections[0].get_array(), np.nan)
    assert np.isnan(np.delete(found[1], 1)).all()
    assert np.isnan(np.delete(found[:, 1], 1)).all()
    assert np.isfinite(np.delete(np.diag(found), 1)).all()


def test_the_bound_is_traced(dated):
    model = copy.copy(dated[0])
    model.history_, model.n_iter_ = np.array([-300.0, -260.0, model.elbo_]), 2
    ax = plots.bound(model)
    trace = labelled(ax.lines, "bound after each round")
    np.testing.assert_allclose(trace.get_data(), [[0, 1, 2], model.history_])
    assert (ax.get_xlabel(), ax.get_title()) == ("round", "not converged in 2 rounds")
    final = labelled(ax.lines, f"final bound −{-model.elbo_:.1f}")
    np.testing.assert_allclose(final.get_data(), [[2], [model.elbo_]])

    model.method_, model.n_iter_, model.converged_ = "svi", 40, True
    ax = plots.bound(model)
    trace = labelled(ax.lines, "mean bound of each window")
    np.testing.assert_allclose(trace.get_xdata(), [1, 2, 3])
    assert (ax.get_xlabel(), ax.get_title()) == ("window of steps", "converged in 40 steps")
    model.history_ = model.history_[:1]
    assert plots.bound(model).get_xlim() == (0.0, 2.0)


# -- how good it is --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh(one):
    """Values from the model's own predictive distribution: nothing could be better calibrated."""
    model, _, _ = one
    at = np.random.default_rng(1).uniform(0.0, 10.0, 400)
    people = np.random.default_rng(2).integers(1, 60, 400)
    predicted = model.predict(at, given={"people": people})
    Y = {name: draws[0] for name, draws in predicted.sample(1, seed=3).items()}
    end = np.random.default_rng(4).uniform(0.2, 1.5, 400)
    Y |= {"people": people, "ended": (Y["life"] <= end).astype(int)}
    return at, Y | {"life": np.minimum(Y["life"], end)}


ORDERED = ["height", "deaths", "life", "grade", "drawn"]


def outside(ax, name):
    """How far the curve of an output leaves the band, at most."""
    curve = labelled(ax.lines, f"{name} (n = 400)")
    lower, upper = band(ax, "95% by chance, n = 400")
    y = curve.get_ydata()
    return max(np.max(lower - y), np.max(y - upper))


def test_what_the_model_says_of_itself_is_calibrated(one, fresh):
    model, _, _ = one
    at, Y = fresh
    assert (Y["ended"] == 0).sum() > 50
    ax: Any = plots.calibration(model, at, Y)
    for name in ORDERED:
        assert outside(ax, name) <= 0.0, name
    lower, upper = band(ax, "95% by chance, n = 400")
    assert upper[50] - lower[50] == pytest.approx(2 * stats.kstwo.ppf(0.95, 400))
    assert ax.get_xlabel() == "nominal coverage / predicted probability"
    for container in ax.containers:  # home and kind: groups within chance of the diagonal
        p, share = container.lines[0].get_data()
        reach = np.array(
            [(high - low)[1] / 2 for low, high in container.lines[2][0].get_segments()]
        )
        assert len(p) == 10
        assert np.all(np.diff(p) > 0)
        z = 1.96 * (share - p) / reach
        assert stats.chi2(10).sf(np.sum(z**2)) > 0.001


def test_what_is_wrong_leaves_the_band(one, fresh):
    model, _, _ = one
    at, Y = fresh
    wrong = {**Y, "height": 3.0 * Y["height"], "deaths": Y["deaths"] // 2, "drawn": Y["drawn"] + 1}
    wrong["ended"] = np.ones(400)  # as if every end had been seen
    wrong["home"] = 1.0 - Y["home"]
    ax = plots.calibration(model, at, wrong)
    for name in ("height", "deaths", "life", "drawn"):
        assert outside(ax, name) > 0.02, name
    assert outside(ax, "grade") <= 0.0
    p, share = labelled(ax.containers, "home (n = 400)").lines[0].get_data()
    assert np.all(np.diff(share)[[0, -1]] <= 0.1)
    assert np.corrcoef(p, share)[0, 1] < -0.9

    ax = plots.calibration(model, at, wrong, outputs=["kind"])
    assert (ax.get_xlabel(), legend_of(ax)) == ("predicted probability", ["kind (n = 400)"])
    with pytest.raises(ValueError, match="no output 'car'"):
        plots.calibration(model, at, wrong, outputs=["car"])
    nothing = {**wrong, "height": np.full(400, np.nan)}
    with pytest.raises(ValueError, match="Y has no observed value of height"):
        plots.calibration(model, at, nothing, outputs=["height"])


def test_a_proportion_may_be_an_end():
    """The probability at 0 and at 1 is spread out, so that transforms are uniform there too."""
    rng = np.random.default_rng(0)
    likelihood = hm.ZeroOneInflatedBeta(mean=0.5, concentration=4.0, latent=("edge",), one=0.5)

    edge = rng.uniform(size=2000)
    y = np.where(edge < 0.25, 0.0, np.where(edge > 0.75, 1.0, rng.beta(2, 2, 2000)))
    half = stats.beta(2, 2)  # the other half of the values are at an end
    known: Any = SimpleNamespace(
        prediction=SimpleNamespace(likelihood=likelihood, name="cover", given={}),
        numbers=y,
        known=SimpleNamespace(exact=np.full(2000, True)),
        cdf=np.where(y < 1, 0.25 + 0.5 * half.cdf(y), 1.0),
        log_prob=np.log(np.where(np.isin(y, (0, 1)), 0.25, 0.5 * half.pdf(y))),
    )
    u = transforms(known)
    assert stats.kstest(u, "uniform").pvalue > 0.01


def test_the_comparison_is_of_nlpds(one, dated):
    joint, alone, X, Y = dated
    ax: Any = plots.comparison(joint, alone, X, Y)
    ours, theirs = joint.nlpd(X, Y), alone.nlpd(X, Y)
    for k, name in enumerate(joint.output_names_):
        dot, _, (bar,) = ax.containers[k].lines
        assert dot.get_xdata()[0] == pytest.approx(ours[name] - theirs[name])
        assert dot.get_ydata()[0] == k
        (left, _), (right, _) = bar.get_segments()[0]
        difference = joint.fitted.log_densities(X, Y)[name] - alone.fitted.log_densities(X, Y)[name]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        assert right - left == pytest.approx(2 * error)
        written = [text.get_text() for text in ax.texts[2 * k : 2 * k + 2]]
        assert written == [f"{nlpd[name]:.3f}".replace("-", "−") for nlpd in (ours, theirs)]
    assert [text.get_text() for text in ax.get_yticklabels()] == joint.output_names_
    with pytest.raises(ValueError, match="different outputs: real, yes and height, home"):
        plots.comparison(joint, one[0], X, Y)


# -- on axes of the user ---------------------------------------------------------------------------


def test_axes_that_are_given_are_used(one, dated):
    model, X, Y = one
    figure, axes = plt.subplots(2, 3)
    drawn = [
        plots.posterior(model, "home", X=X, Y=Y, ax=axes[0, 0]),
        plots.posterior(model, "kind", legend=False, ax=axes[0, 1]),
        plots.coregionalisation(model, ax=axes[0, 2]),
        plots.bound(model, ax=axes[1, 0]),
        plots.calibration(model, X, Y, outputs=["height", "home"], ax=axes[1, 1]),
        plots.comparison(dated[0], dated[1], *dated[2:], ax=axes[1, 2]),
    ]
    assert drawn == list(axes.flat)
    assert plt.get_fignums() == [figure.number]
    assert axes[0, 0].get_legend() is not None
    assert axes[0, 1].get_legend() is None
    figure.draw_without_rendering()


def test_one_input_of_several_is_drawn_along_and_the_others_are_held():
    rng = np.random.default_rng(0)
    day, site = np.tile(np.arange(30.0), 2), np.repeat(["hill", "port"], 30)
    X = pd.DataFrame({"day": day, "site": site})
    Y = {"level": np.where(site == "port", 2.0, 0.0) + 0.1 * rng.standard_normal(60)}
    Y["level"][10:20] = np.nan  # on the hill
    model = hm.HetMOGP({"level": hm.Gaussian()}, latents=1, inducing=12, max_iter=1, progress=False)
    model.fit(X, Y)
    for place, level in (("hill", 0.0), ("port", 2.0)):
        ax = plots.posterior(model, "level", at={"site": place}, X=X, Y=Y)
        assert ax.get_title() == f"at site = {place}"
        assert ax.get_xlabel() == "day"
        drawn = labelled(ax.lines, "mean")
        at = pd.DataFrame({"day": drawn.get_xdata(), "site": place})
        np.testing.assert_allclose(drawn.get_ydata(), model.predict(at)["level"].mean, rtol=1e-6)
        dots = labelled(ax.lines, "observed")
        assert len(dots.get_xdata()) == (20 if place == "hill" else 30)
        assert np.abs(dots.get_ydata() - level).max() < 0.5
        assert bool(ax.patches) == (place == "hill")  # the gap
    with pytest.raises(ValueError, match="'west' is not one of the 2 levels"):
        plots.posterior(model, "level", at={"site": "west"})
    with pytest.raises(ValueError, match="no input 'place'"):
        plots.posterior(model, "level", at={"place": "hill"})
    with pytest.raises(ValueError, match="'site' holds labels"):
        plots.posterior(model, "level", along="site")
    assert len(plots.latents(model, at={"site": "port"})) == 1


def test_text_is_drawn_as_it_is():
    """Dollar signs begin no formula, and a label may begin with an underscore."""
    x = np.linspace(0, 1, 30)
    Y = {"a $\\alph$": np.where(x > 0.6, "_other", np.where(x > 0.3, "$10-$20", "less"))}
    model = hm.HetMOGP({"a $\\alph$": hm.Categorical()}, latents=1, inducing=5, max_iter=0)
    ax: Any = plots.posterior(model.fit(x, Y), "a $\\alph$", X=x, Y=Y)
    ax.figure.savefig(io.BytesIO(), format="png")
    shown = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert {text.strip("\u200b") for text in shown} == {
        *("observed", "less", "_other", r"\$10-\$20")
    }
    ax = plots.coregionalisation(model)
    ax.figure.savefig(io.BytesIO(), format="png")
