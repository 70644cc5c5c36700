"""The report: what it says against the model, its warnings, and that a browser shows it offline."""

import json
import re
import shutil
import warnings
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp import curves, pictures, report
from hetmogp.fitted import Fitted
from hetmogp.report import encode
from hetmogp.report import page as page_module
from hetmogp.report.notes import CROWDED, _about_sharing, _nearest, notes
from hetmogp.report.outputs import Pictures
from hetmogp.scoring import evaluate
from hetmogp.tables import read

N = 90
FAST = {"inducing": 10, "max_iter": 4, "progress": False}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(N // 3), 3)
    site = np.tile(["hill", "port", "<b>town"], N // 3)
    f = np.sin(day / 4) + (site == "port")
    X = pd.DataFrame({"date": pd.Timestamp("2024-05-01") + pd.to_timedelta(day, "D"), "site": site})
    Y = pd.DataFrame(
        {
            "ozone": f + 0.3 * rng.standard_normal(N),
            "alert": (rng.uniform(size=N) < 1 / (1 + np.exp(-2 * f))).astype(float),
            "sky": np.array(["clear", "fog"])[(rng.uniform(size=N) < 0.5).astype(int)],
        }
    )
    Y.loc[30:45, "ozone"] = np.nan
    return X, Y


@pytest.fixture(scope="module")
def model(table):
    likelihoods = {"ozone": hm.Gaussian(), "alert": hm.Bernoulli(), "sky": hm.Categorical()}
    return hm.HetMOGP(likelihoods, latents=2, **FAST | {"max_iter": 0}).fit(*table)


@pytest.fixture(scope="module")
def page(model, table, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "air.html"
    warnings = report.write(model, path, *table, title="Air & <weather>")
    return path, path.read_text(encoding="utf-8"), warnings


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found and self.found[-1][0] not in ("script", "style"):
            self.text.append(data)


def test_the_page_says_what_the_model_says(page, model, table):
    _, text, warnings = page
    shown = " ".join(Tags(text).text)
    assert "Air & <weather>" in shown  # escaped
    for words in (f"{model.elbo_:,.1f}", "ozone.mean", "Categorical(classes=['clear', 'fog'])"):
        assert words in shown
    scores = evaluate(model, *table)
    for name in ("ozone", "alert", "sky", "global"):
        assert f"{scores['nlpd'][name]:.3f}" in shown
    assert f"{scores['coverage']['ozone']:.0%}" in shown
    assert warnings
    for warning in warnings:
        assert warning in shown


def test_the_page_needs_nothing_else(page):
    path, text, _ = page
    for tag, attributes in Tags(text).found:
        for key in ("src", "href"):
            assert re.match(r"#|data:", attributes.get(key, "#")), (tag, attributes)
    assert "default-src 'none'" in text  # and the browser is told to fetch nothing
    assert [p.name for p in path.parent.iterdir()] == ["air.html"]


def test_a_report_needs_no_data(model, tmp_path):
    report.write(model, tmp_path / "r.html")
    assert "was not scored" in (tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="X and Y belong together"):
        report.write(model, tmp_path / "r.html", X=[1.0])


def test_data_are_read_once_and_predicted_once_for_all_outputs(model, table, tmp_path, monkeypatch):
    calls: Counter[str] = Counter()

    def counted(owner, name):
        function = getattr(owner, name)

        def call(*arguments, **options):
            calls[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((curves, "read"), (Fitted, "read"), (Fitted, "_latents")):
        counted(owner, name)
    report.write(model, tmp_path / "once.html", *table)
    # At the data, along a line for each site, and past the end.
    assert calls == {"read": 1, "_latents": 1 + 3 + 1}


# -- pictures --------------------------------------------------------------------------------------


def of_kind(picture, kind):
    return [mark for mark in picture.marks if isinstance(mark, kind)]


def test_curves_are_the_models_one_for_each_label(model, table):
    X, Y = table
    data = read(model.likelihoods_, X, Y, model.columns_)
    picture, fan = Pictures(model, data).of_output("ozone")
    assert picture.caption.startswith("ozone along date: mean and 90% interval")
    means = [line for line in of_kind(picture, pictures.Line) if line.words]
    assert [line.name for line in means] == ["<b>town", "hill", "port"]
    at = pd.DataFrame({"date": means[2].x, "site": "port"})
    predicted = model.predict(at)["ozone"]
    np.testing.assert_allclose(means[2].y, predicted.mean)
    (band,) = [one for one in of_kind(picture, pictures.Band) if one.group == "port"]
    np.testing.assert_allclose([band.lower, band.upper], predicted.interval(0.9))
    dots = of_kind(picture, pictures.Dots)
    assert sum(len(each.y) for each in dots) == model.n_observed_["ozone"]
    draws = [line for line in of_kind(picture, pictures.Line) if not line.words]
    assert len(draws) == 8
    assert "Of" not in fan.caption


def test_a_forecast_is_a_fan_past_the_last_date(model, table):
    X, Y = table
    data = read(model.likelihoods_, X, Y, model.columns_)
    _, fan = Pictures(model, data).of_output("ozone")
    assert "past the end of the data" in fan.caption
    widest, _, narrowest = of_kind(fan, pictures.Band)
    last = X["date"].max()
    assert widest.x[0] == last
    np.testing.assert_array_equal(np.diff(widest.x), np.timedelta64(1, "D"))  # as the data have it
    common = X["site"].mode()[0]
    at = pd.DataFrame({"date": widest.x, "site": common})
    predicted = model.predict(at)["ozone"]
    np.testing.assert_allclose([widest.lower, widest.upper], predicted.interval(0.95))
    np.testing.assert_allclose([narrowest.lower, narrowest.upper], predicted.interval(0.5))
    futures = [line for line in of_kind(fan, pictures.Line) if not line.words]
    drawn = model.sample_y(at, len(futures), outputs="ozone")["ozone"]
    np.testing.assert_allclose([line.y for line in futures], drawn)
    assert len(Pictures(model, data).of_output("alert")) == 1  # yes or no makes no fan


def test_classes_have_a_picture_at_each_label(model, table):
    X, Y = table
    found = Pictures(model, read(model.likelihoods_, X, Y, model.columns_)).of_output("sky")
    assert [one.caption.split(":")[0] for one in found] == [
        f"sky along date at {place}" for place in ("<b>town", "hill", "port")
    ]
    clear, fog = of_kind(found[1], pictures.Band)
    np.testing.assert_allclose(fog.upper, 1.0)
    np.testing.assert_allclose(fog.lower, clear.upper)
    at = pd.DataFrame({"date": clear.x, "site": "hill"})
    np.testing.assert_allclose(clear.upper, model.predict(at)["sky"].probabilities[:, 0])


@pytest.fixture(scope="module")
def square():
    """A real output and classes over two numbers and a label of which one is more frequent."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.uniform(size=(60, 2)), columns=["a", "b"])
    X["side"] = np.where(rng.uniform(size=60) < 0.3, "left", "right")
    Y = {"y": X["a"].to_numpy(), "kind": np.where(X["b"] > 0.5, "u", "v")}
    options = {"latents": 1, "inducing": 8, "max_iter": 0, "progress": False}
    likelihoods = {"y": hm.Gaussian(), "kind": hm.Categorical()}
    model = hm.HetMOGP(likelihoods, **options).fit(X, Y)
    return model, read(model.likelihoods_, X, Y, model.columns_), X, Y


def test_two_inputs_are_a_map_and_the_label_is_named(square):
    model, data, X, _ = square
    mean, above = Pictures(model, data).of_output("y")
    (heat,) = of_kind(mean, pictures.Heat)
    i, j = 7, 30
    at = pd.DataFrame({"a": [heat.x[j]], "b": [heat.y[i]], "side": ["right"]})
    np.testing.assert_allclose(heat.z[i, j], model.predict(at)["y"].mean[0])
    assert mean.caption.startswith("mean of y over a and b")
    words = "The map is drawn at side = right, the most frequent; the other one is not shown."
    assert words in mean.caption
    (dots,) = of_kind(mean, pictures.Dots)
    assert len(dots.x) == (X["side"] == "right").sum()  # those of the label that is drawn
    (heat,) = of_kind(above, pictures.Heat)
    limit = float(f"{np.quantile(X['a'], 0.75):.2g}")
    expected = 1.0 - model.predict(at)["y"].cdf(np.array([limit]))[0]
    np.testing.assert_allclose(heat.z[i, j], expected)
    assert "The limit is the upper quartile of the observed values" in above.caption
    (classes,) = Pictures(model, data).of_output("kind")
    assert set(np.unique(of_kind(classes, pictures.Heat)[0].z)) <= {0.0, 1.0}
    assert classes.scale is not None
    assert classes.scale.ticks == [(0, "u"), (1, "v")]


def test_a_limit_can_be_given(square, tmp_path):
    model, data, X, Y = square
    _, above = Pictures(model, data, {"y": 0.5}).of_output("y")
    assert above.caption.startswith("P(y > 0.5) over a and b")
    assert "quartile" not in above.caption
    report.write(model, tmp_path / "r.html", X, Y, above=0.25)
    assert "P(y &gt; 0.25) over" in (tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="above names 'kind'; outputs that are numbers: y"):
        report.write(model, tmp_path / "r.html", X, Y, above={"kind": 1.0})


def test_three_inputs_are_cut_through():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.uniform(size=(40, 3)), columns=["a", "b", "c"])
    three = hm.HetMOGP({"y": hm.Gaussian()}, latents=1, inducing=8, max_iter=0, progress=False)
    found = Pictures(three.fit(X, {"y": X["a"]}), None).of_output("y")
    assert [one.caption.split(":")[0] for one in found] == [f"y along {c}" for c in "abc"]
    assert "Other inputs (b, c) are held at their median" in found[0].caption


def test_calibration_is_the_share_of_values_inside(model, table):
    picture = pictures.calibration(model.fitted.observe(model.fitted.read(*table)))
    (curve,) = [line for line in of_kind(picture, pictures.Line) if line.words]
    assert curve.name.startswith("ozone")  # the others have no intervals to speak of
    share = evaluate(model, *table).loc["ozone", "coverage"]
    assert curve.y[90] == pytest.approx(share, abs=0.02)
    assert {one.name.split()[0] for one in of_kind(picture, pictures.Spans)} == {"alert", "sky"}


def test_values_are_shown_as_they_are_meant(tmp_path):
    """Classes in order by name, directions over one turn, censored values as such."""
    rng = np.random.default_rng(2)
    x = np.linspace(0, 1, 40)
    Y = pd.DataFrame(
        {
            "grade": np.where(x > 0.6, "high", np.where(x > 0.3, "mid", "low")),
            "wind": np.angle(np.exp(1j * (8 * x + 0.2 * rng.standard_normal(40)))),
            "life": rng.weibull(1.5, 40) + 0.01,
            "died": (np.arange(40) % 4 > 0).astype(float),
            "lead": np.maximum(rng.lognormal(size=40), 0.5),
        }
    )
    likelihoods = {
        "grade": hm.Ordinal(["low", "mid", "high"]),
        "wind": hm.VonMises(),
        "life": hm.Weibull(event="died"),
        "lead": hm.LogNormal(lower=0.5),
    }
    model = hm.HetMOGP(likelihoods, latents=3, inducing=8, max_iter=1, progress=False).fit(x, Y)
    data = read(model.likelihoods_, x, Y, model.columns_)
    grade, wind, life, lead = (Pictures(model, data).of_output(name)[0] for name in likelihoods)
    assert grade.y.ticks == [(0.0, "low"), (1.0, "mid"), (2.0, "high")]
    assert of_kind(grade, pictures.Dots)[0].words[0] == "low"
    for line in of_kind(wind, pictures.Line):
        assert np.abs(np.diff(line.y)).max() < 1.0  # unbroken
    assert wind.y.ends == (-np.pi, np.pi)
    seen, more = of_kind(life, pictures.Dots)
    assert (more.name, more.shape, len(more.x)) == ("censored: at least this", "up", 10)
    assert more.words[0].startswith("at least ")
    assert len(seen.x) == 30
    assert "triangles that point up are values known to be at least this large" in life.caption
    seen, less = of_kind(lead, pictures.Dots)
    below = (Y["lead"] <= 0.5).sum()
    assert (less.name, less.shape, len(less.x)) == ("censored: at most this", "down", below)
    report.write(model, tmp_path / "r.html", x, Y)
    words = f"Censored values (10 of life, {below} of lead) count in the NLPD with the probability"
    assert words in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_labels_that_are_not_shown_are_counted():
    x = np.tile(np.linspace(0, 1, 5), 12)
    X = pd.DataFrame({"t": x, "site": np.repeat([f"s{k:02}" for k in range(12)], 5)})
    model = hm.HetMOGP({"y": hm.Gaussian()}, latents=1, inducing=8, max_iter=0, progress=False)
    (picture,) = Pictures(model.fit(X, {"y": x}), None).of_output("y")
    assert "Of 12 labels the first 7 are drawn." in picture.caption
    groups = {mark.group for mark in picture.marks if not mark.group.startswith("draws")}
    assert len(groups) == 7


def test_new_levels_of_a_group_and_a_single_date(tmp_path):
    """Predictions for new patients are pictured; from one date there is no forecast."""
    X = pd.DataFrame({"day": pd.Timestamp("2024-05-01"), "who": [f"p{k}" for k in range(6)] * 3})
    Y = {"y": np.arange(18.0), "kind": ["u", "v"] * 9}
    kinds = {"y": hm.Gaussian(), "kind": hm.Categorical()}
    options = {"latents": 1, "inducing": 8, "max_iter": 0, "groups": "who", "progress": False}
    model = hm.HetMOGP(kinds, **options).fit(X, Y)
    later = X.assign(day=X["day"] + pd.Timedelta(days=9))
    for table in (X, later.assign(who="p9")):
        report.write(model, tmp_path / "r.html", table, Y)
        text = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert "past the end of the data" not in text


def test_labels_that_never_occur_together_are_drawn(tmp_path):
    x = np.tile(np.linspace(0, 1, 5), 6)
    X = pd.DataFrame({"t": x, "a": np.repeat(["p", "q"], 15), "b": np.repeat(["r", "s"], 15)})
    Y = {"kind": np.where(x > 0.5, "u", "v")}
    options = {"latents": 1, "inducing": 8, "max_iter": 0, "progress": False}
    model = hm.HetMOGP({"kind": hm.Categorical()}, **options).fit(X, Y)
    report.write(model, tmp_path / "r.html", X, Y)
    assert "kind along t at p, s" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_what_rounds_to_zero_has_no_sign():
    assert "−0.00" not in str(pictures.learned._signed(-0.001))
    table = pd.DataFrame({"gain": ["-0.000", "-0.010"]}, index=["a", "b"])
    text = page_module._table(table)
    assert "<td>0.000</td>" in text
    assert "<td>-0.010</td>" in text


def test_the_page_is_small(page):
    assert page[0].stat().st_size < 400_000  # 1.5 MB are asked for


def test_what_is_drawn_in_the_page_is_what_is_described():
    """Numbers to five digits, dates in milliseconds, gaps as null."""
    days = np.array(["2024-01-01", "2024-01-02T12:00"], "datetime64[us]")
    line = pictures.Line(x=days, y=np.array([1.2345678, np.nan]), name="<i>")
    picture = pictures.Picture([line], pictures.Axis("t", "time"), pictures.Axis("y"))
    text = encode.as_json({"a": picture})
    assert not set("<>&") & set(text)
    mark = json.loads(text)["a"]["marks"][0]
    start = pd.Timestamp("2024-01-01").timestamp() * 1000
    assert mark["x"] == [start, start + 36 * 3600_000]
    assert mark["y"] == [1.2346, None]
    assert (mark["kind"], mark["name"]) == ("line", "<i>")


# -- warnings --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apart():
    """Two outputs with nothing in common, far more inducing inputs than needed."""
    x = np.linspace(0, 1, 60)
    rng = np.random.default_rng(0)
    Y = {"wave": np.sin(12 * x) + 0.1 * rng.standard_normal(60), "line": 3 * x - 1}
    return hm.HetMOGP({"wave": hm.Gaussian(), "line": hm.Gaussian()}, latents=3, **FAST).fit(x, Y)


def changed(model, where, values):
    """What was learned, with some numbers of the posterior replaced."""
    fitted = model.fitted
    return replace(fitted, posterior=eqx.tree_at(where, fitted.posterior, values))


def said(model, **changes):
    """The warnings about a model of which something is changed, and then put back."""
    before = {name: getattr(model, name) for name in changes}
    for name, value in changes.items():
        setattr(model, name, value)
    try:
        return " ".join(notes(model))
    finally:
        for name, value in before.items():
            setattr(model, name, value)


def test_warnings_follow_from_what_happened(apart):
    assert "has not converged" in said(apart, converged_=False, interrupted_=False)
    assert "converged" not in said(apart, converged_=True)
    assert "was interrupted" in said(apart, interrupted_=True)
    fitted = apart.fitted
    jittered = replace(fitted, record=replace(fitted.record, jitter=1e-3))
    assert "jitter of 0.001" in said(apart, _fitted=jittered)
    assert "has only 7 observed values" in said(apart, n_observed_={"wave": 7, "line": 60})


def test_an_output_that_shares_nothing_is_named(apart):
    nothing = changed(apart, lambda p: p.prior.weights, np.eye(2, 3))
    assert "No output gains anything from the others" in said(apart, _fitted=nothing)
    all_of_it = changed(apart, lambda p: [p.prior.weights, p.prior.mask], [np.ones((2, 3))] * 2)
    assert "gains nothing" not in said(apart, _fitted=all_of_it)
    assert "one process per parameter function" in said(apart, prior="independent")


def test_one_output_of_three_that_shares_nothing_is_named():
    class Model:
        output_names_, prior, fitted = ["a", "b", "c"], "lmc", SimpleNamespace(untried=False)

        def summary(self):
            return SimpleNamespace(sharing=pd.Series({"a": 0.04, "b": 0.9, "c": 0.9}))

    (text,) = _about_sharing(Model())  # type: ignore[arg-type]
    assert text.startswith("Output a gains nothing")
    assert "0.04" in text


def test_inducing_inputs_of_labels_are_neither_crowded_nor_sparse():
    """They are the levels, however little or much these are correlated."""
    t, site = np.tile(np.arange(20.0), 4), np.repeat(list("abcd"), 20)
    y = np.repeat([2.0, -1.5, 0.5, -1.0], 20) + np.sin(t)
    labels = hm.Category(lengthscale=0.3, active_dims="site", fixed=("lengthscale",))
    kernel = [labels, hm.RBF(active_dims="t")]
    model = hm.HetMOGP([hm.Gaussian()], kernel=kernel, latents=2, **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(pd.DataFrame({"t": t, "site": site}), y)
    prior = model.fitted.posterior.prior
    assert np.median(_nearest(prior.smooth[0], prior.tables[0], "float64")) > CROWDED
    assert "u0" in model.summary().shares.columns
    assert "latent u0" not in said(model)


def test_crowded_and_sparse_inducing_inputs_are_told_apart(apart):
    def with_lengthscale(value):
        scales = [np.full(1, value)] * 3
        return changed(apart, lambda p: [k.lengthscale for k in p.prior.kernels], scales)

    assert "are crowded" in said(apart, _fitted=with_lengthscale(100.0))
    assert "are sparse" in said(apart, _fitted=with_lengthscale(0.05))
    text = said(apart, _fitted=with_lengthscale(0.5))
    assert "crowded" not in text
    assert "sparse" not in text


def test_intervals_that_are_too_narrow_are_named(apart):
    scores = pd.DataFrame({"values": [100, 100], "coverage": [0.7, 0.88]}, index=["wave", "line"])
    text = " ".join(notes(apart, scores))
    assert "Intervals of wave are too narrow: 70%" in text
    assert "Intervals of line" not in text


# -- names and labels that look like HTML ----------------------------------------------------------

LINK = '<a href="https://example.com">click</a>'
CODE = "</script><script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
ODD = [LINK, "$x^2$", "%{x}", "&lt;b&gt; & <b>", "12", "2024-01-01", "<extra>no</extra>\u202e"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Models with hostile names over labels, a number, two numbers; their figures and pages."""
    n = 28
    labels = pd.Categorical(np.tile(ODD, 4))
    inputs = pd.DataFrame({LINK: labels, IMAGE: np.linspace(0, 1, n), CODE: np.arange(n) % 5})
    grade = {f"{LINK} of {CODE}": hm.Ordinal(["12", LINK, CODE])}
    kind = {"%{y}": hm.Categorical([IMAGE, LINK, "$a_b$"], weight=IMAGE)}
    real = {"_$x": hm.Gaussian(scale=0.5)}
    Y = pd.DataFrame({"_$x": np.sin(np.arange(n)), IMAGE: 1.0})
    for outputs in (grade, kind):
        for name, likelihood in outputs.items():
            Y[name] = np.resize(np.array(likelihood.classes, dtype=object), n)
    found: list[Any] = []
    folder = tmp_path_factory.mktemp("hostile")
    for names, outputs in (([LINK], real | kind), ([LINK, IMAGE], grade), ([IMAGE, CODE], kind)):
        X, path = inputs[names], folder / f"{len(found)}.html"
        model = hm.HetMOGP(outputs, latents=1, inducing=5, max_iter=0, progress=False).fit(X, Y)
        report.write(model, path, X, Y, title=f"{CODE} {LINK}")
        found.append((path, described(path), model))
    return found


def described(path):
    """The descriptions of the pictures in a page."""
    page = path.read_text(encoding="utf-8")
    (text,) = re.findall(r'<script type="application/json" id="pictures">(.*?)</script>', page)
    assert not set("<>&\u202e") & set(text)  # nothing that HTML could take for its own
    return json.loads(text)


def test_names_and_labels_make_no_elements(hostile):
    for path, _, model in hostile:
        page = path.read_text(encoding="utf-8")
        tags = Tags(page)
        links = [attributes.get("href") for tag, attributes in tags.found if tag == "a"]
        assert links == ["#warnings", "#fit", "#sharing", "#outputs", "#learning"]
        assert not {"img", "extra"} & {tag for tag, _ in tags.found}
        assert "<script>alert" not in page
        shown = " ".join(tags.text)
        assert f"{CODE} {LINK}" in shown
        for name in model.output_names_:
            assert name in shown


def test_labels_that_look_like_numbers_or_dates_are_labels(hostile):
    of_page = hostile[0][1]
    for key in ("output-0-0", "output-1-0"):
        assert of_page[key]["x"]["kind"] == "names"
    assert of_page["shares"]["y"]["kind"] == "names"
    ticks = [text for _, text in of_page["output-0-0"]["x"]["ticks"]]
    assert {"12", "2024-01-01", "$x^2$", "%{x}"} <= set(ticks)


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no Chromium; `make browser` installs Debian's")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_a_browser_shows_names_and_labels_as_they_are(browser, hostile):
    for path, _, _ in hostile[::2]:
        said: list[str] = []
        tab = browser.new_page(viewport={"width": 1000, "height": 800})
        tab.on("dialog", lambda dialog, said=said: (said.append(dialog.message), dialog.dismiss()))
        tab.on("pageerror", lambda error, said=said: said.append(str(error)))
        tab.goto(path.as_uri())
        tab.wait_for_function(
            "[...document.querySelectorAll('figure')].every(f => f.querySelector('.frame svg'))"
        )
        places = tab.evaluate(
            "[...document.querySelectorAll('a')]"
            ".map(a => a.getAttribute('href') || a.getAttribute('xlink:href') || '#')"
        )
        assert [place for place in places if not place.startswith("#")] == []
        assert tab.locator("img").count() == 0
        assert said == []
        drawn = tab.evaluate(
            "[...document.querySelectorAll('svg text, .legend span')].map(t => t.textContent)"
        )
        assert any(LINK in text for text in drawn)
        tab.close()


def test_a_browser_shows_it_without_a_network(page, browser):
    path, _, _ = page
    for width in (1280, 390):
        said: list[str] = []
        asked: list[str] = []
        tab = browser.new_page(viewport={"width": width, "height": 844})
        tab.on("console", lambda message, said=said: said.append(message.text))
        tab.on("pageerror", lambda error, said=said: said.append(str(error)))
        tab.on("request", lambda request, asked=asked: asked.append(request.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("#history svg")
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
        drawn = tab.locator(".picture .frame svg").count()
        assert drawn == tab.locator("figure").count() >= 8
        assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out

        plot = tab.locator("#output-0-0")
        plot.scroll_into_view_if_needed()
        box = plot.locator(".frame").bounding_box()
        assert box["width"] > 0.8 * width or width > 1000
        assert box["height"] > 200
        dot = plot.locator(".dots circle").first.bounding_box()
        tab.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
        assert "observed:" in plot.locator(".tip").text_content()

        ticks = "[...document.querySelectorAll('#output-0-0 text')].map(t => t.textContent).join()"
        before = tab.evaluate(ticks)
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.mouse.move(*middle)
        tab.mouse.down()
        tab.mouse.move(middle[0] + 60, middle[1] + 40, steps=4)
        tab.mouse.up()
        assert tab.evaluate(ticks) != before  # zoomed
        tab.mouse.dblclick(*middle)
        assert tab.evaluate(ticks) == before

        lines = plot.locator(".frame path[stroke='#009e73']")
        there = lines.count()
        plot.get_by_role("button", name="port").click()
        assert lines.count() < there  # a click on the legend hides
        tab.close()


def test_rows_held_out_are_scored_apart_from_those_fitted(tmp_path):
    """Narrow intervals of held-out rows must not hide among many that were fitted."""
    rng = np.random.default_rng(2)
    X = pd.DataFrame({"t": np.arange(100.0)})
    Y = pd.DataFrame({"y": np.sin(X["t"] / 9.0) + 0.1 * rng.standard_normal(100)})
    held = X["t"].to_numpy() >= 60
    Y.loc[held, "y"] += 5.0  # nothing like what was fitted
    model = hm.HetMOGP({"y": hm.Gaussian()}, latents=1, progress=False)
    model.fit(X, Y.where(~held[:, None])).mark_held_out(X, held, "t after 59")
    warnings = report.write(model, tmp_path / "r.html", X, Y)
    text = (tmp_path / "r.html").read_text()
    assert any("Intervals of y are too narrow" in words for words in warnings)
    assert any("Output y is predicted worse than by a constant" in words for words in warnings)
    assert "The model has not seen these 40 of 100 rows: t after 59." in text
    assert text.index("<h3>Held-out rows</h3>") < text.index("<h3>Fitted rows</h3>")
    nlpd = [model.nlpd(X[rows], Y[rows])["y"] for rows in (held, ~held)]
    assert all(f"<td>{value:.3f}</td>" in text for value in nlpd)
    other = report.write(model, tmp_path / "r.html", X[::-1], Y[::-1])
    assert (
        "This is not the table that the model was fitted to." in (tmp_path / "r.html").read_text()
    )
    assert other
