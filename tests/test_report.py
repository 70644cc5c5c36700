"""The report: what it says against the model, its warnings, and that a browser shows it offline."""

import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import equinox as eqx
import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp import curves, report
from hetmogp.fitted import Fitted
from hetmogp.report import canvas, learned
from hetmogp.report import page as page_module
from hetmogp.report.notes import notes
from hetmogp.report.outputs import Pictures
from hetmogp.scoring import evaluate, pit
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
    assert calls == {"read": 1, "_latents": 1 + 3}  # at the data, and along a line for each site


# -- pictures --------------------------------------------------------------------------------------


def test_curves_are_the_models_one_for_each_label(model, table):
    X, Y = table
    data = read(model.likelihoods_, X, Y, model.columns_)
    ((caption, figure),) = Pictures(model, data).of_output("ozone")
    assert caption.startswith("ozone along date: mean and 90% interval")
    means = [t for t in figure.data if t.mode == "lines" and t.showlegend and t.name != "draws"]
    assert [trace.name for trace in means] == ["<b>town", "hill", "port"]
    port = means[2]
    at = pd.DataFrame({"date": np.asarray(port.x), "site": "port"})
    np.testing.assert_allclose(port.y, model.predict(at)["ozone"].mean)
    lower, upper = model.predict(at)["ozone"].interval(0.9)
    np.testing.assert_allclose(np.asarray(port.customdata).T, [lower, upper])
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert sum(len(trace.y) for trace in dots) == model.n_observed_["ozone"]


def test_classes_have_a_picture_at_each_label(model, table):
    X, Y = table
    found = Pictures(model, read(model.likelihoods_, X, Y, model.columns_)).of_output("sky")
    assert [caption.split(":")[0] for caption, _ in found] == [
        f"sky along date at {place}" for place in ("<b>town", "hill", "port")
    ]
    clear, fog = (np.asarray(found[1][1].data[c].y) for c in (0, 1))
    np.testing.assert_allclose(clear + fog, 1.0)


def test_two_inputs_are_a_map_and_three_are_cut_through():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.uniform(size=(40, 3)), columns=["a", "b", "c"])
    Y = {"y": X["a"].to_numpy(), "kind": np.where(X["b"] > 0.5, "u", "v")}
    options = {"latents": 1, "inducing": 8, "max_iter": 0, "progress": False}
    likelihoods = {"y": hm.Gaussian(), "kind": hm.Categorical()}
    two = hm.HetMOGP(likelihoods, **options).fit(X[["a", "b"]], Y)
    data = read(two.likelihoods_, X[["a", "b"]], Y, two.columns_)
    ((caption, figure),) = Pictures(two, data).of_output("y")
    heat = figure.data[0]
    i, j = 7, 30
    at = pd.DataFrame({"a": [heat.x[j]], "b": [heat.y[i]]})
    np.testing.assert_allclose(heat.z[i, j], two.predict(at)["y"].mean[0])
    assert caption.startswith("y over a and b")
    ((_, figure),) = Pictures(two, data).of_output("kind")
    assert set(np.unique(figure.data[0].z)) <= {0.0, 1.0}
    assert figure.data[0].colorbar.ticktext == ("u", "v")

    three = hm.HetMOGP({"y": hm.Gaussian()}, **options).fit(X, Y)
    found = Pictures(three, None).of_output("y")
    assert [caption.split(":")[0] for caption, _ in found] == [f"y along {c}" for c in "abc"]
    assert "Other inputs (b, c) are held at their median" in found[0][0]


def test_calibration_is_the_share_of_values_inside(model, table):
    transforms = pit(model.fitted.observe(model.fitted.read(*table)))
    assert list(transforms) == ["ozone"]  # the others have no intervals to speak of
    curve = learned.calibration(transforms).data[1]
    k = int(np.argmin(np.abs(np.asarray(curve.x) - 0.9)))
    share = evaluate(model, *table).loc["ozone", "coverage"]
    assert curve.y[k] == pytest.approx(share, abs=0.02)


def test_values_are_shown_as_they_are_meant():
    """Classes in order by name, directions over one turn, censored times as such."""
    rng = np.random.default_rng(2)
    x = np.linspace(0, 1, 40)
    Y = pd.DataFrame(
        {
            "grade": np.where(x > 0.6, "high", np.where(x > 0.3, "mid", "low")),
            "wind": np.angle(np.exp(1j * (8 * x + 0.2 * rng.standard_normal(40)))),
            "life": rng.weibull(1.5, 40) + 0.01,
            "died": (np.arange(40) % 4 > 0).astype(float),
        }
    )
    likelihoods = {
        "grade": hm.Ordinal(["low", "mid", "high"]),
        "wind": hm.VonMises(),
        "life": hm.Weibull(event="died"),
    }
    model = hm.HetMOGP(likelihoods, latents=3, inducing=8, max_iter=1, progress=False).fit(x, Y)
    data = read(model.likelihoods_, x, Y, model.columns_)
    grade, wind, life = (Pictures(model, data).of_output(name)[0][1] for name in likelihoods)
    assert grade.layout.yaxis.ticktext == ("low", "mid", "high")
    assert grade.data[-1].text[0] == "low"
    for trace in wind.data:
        if trace.mode == "lines" and trace.showlegend is not False:
            assert np.abs(np.diff(trace.y)).max() < 1.0  # unbroken
    np.testing.assert_allclose(wind.layout.yaxis.range, [-np.pi, np.pi])
    dots = life.data[-1]
    assert dots.text[0].startswith("at least")
    assert sum(symbol != "circle" for symbol in dots.marker.symbol) == 10


def test_labels_that_are_not_shown_are_counted():
    x = np.tile(np.linspace(0, 1, 5), 12)
    X = pd.DataFrame({"t": x, "site": np.repeat([f"s{k:02}" for k in range(12)], 5)})
    model = hm.HetMOGP({"y": hm.Gaussian()}, latents=1, inducing=8, max_iter=0, progress=False)
    ((caption, figure),) = Pictures(model.fit(X, {"y": x}), None).of_output("y")
    assert "Of 12 labels or combinations the first 8 are shown" in caption
    assert len({trace.legendgroup for trace in figure.data} - {"draws"}) == 8


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
    assert "Output wave gains nothing from the others" in said(apart, _fitted=nothing)
    all_of_it = changed(apart, lambda p: [p.prior.weights, p.prior.mask], [np.ones((2, 3))] * 2)
    assert "gains nothing" not in said(apart, _fitted=all_of_it)
    assert "one process per parameter function" in said(apart, prior="independent")


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
        figures: dict[str, Any] = {}
        X, path = inputs[names], folder / f"{len(found)}.html"
        model = hm.HetMOGP(outputs, latents=1, inducing=5, max_iter=0, progress=False).fit(X, Y)

        def embedded(figure, key, figures=figures):
            figures[key] = figure
            return canvas.embedded(figure, key)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(page_module, "embedded", embedded)
            report.write(model, path, X, Y, title=f"{CODE} {LINK}")
        found.append((path, figures, model))
    return found


def texts(part, key=""):
    """Every text in a figure, with the name of its place."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from texts(value, name)
    elif isinstance(part, list | tuple | np.ndarray):
        for value in np.asarray(part, dtype=object).reshape(-1):
            yield from texts(value, key)
    elif isinstance(part, str):
        yield key, part


def test_every_text_of_a_figure_is_escaped(hostile):
    seen = set()
    for _, figures, _ in hostile:
        for figure in figures.values():
            for key, text in texts(canvas._escaped(figure.to_dict())):
                if key in canvas.TEMPLATES:
                    seen.add(text)
                else:
                    assert not set("<>\u202e") & set(text), (key, text)
    assert len(seen) < 15  # templates are few, and none has a name or a label in it
    assert not any(odd in text for odd in (LINK, CODE, IMAGE, "x^2", "a_b") for text in seen)


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
    figures = hostile[0][1]
    for key in ("output-0-0", "output-1-0"):
        assert figures[key].layout.xaxis.type == "category"
    assert figures["shares"].layout.yaxis.type == "category"
    assert figures["shares"].layout.yaxis.type == "category"


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
            "[...document.querySelectorAll('figure')].every(f => f.querySelector('.main-svg'))"
        )
        places = tab.evaluate(
            "[...document.querySelectorAll('a')]"
            ".map(a => a.getAttribute('href') || a.getAttribute('xlink:href') || '#')"
        )
        assert [place for place in places if not place.startswith("#")] == []
        assert tab.locator("img").count() == 0
        assert said == []
        drawn = tab.evaluate("[...document.querySelectorAll('svg text')].map(t => t.textContent)")
        assert any(LINK in text for text in drawn)
        assert tab.locator(".modebar-btn[data-title*=Share]").count() == 0  # nothing is uploaded
        assert tab.locator(".modebar-btn[data-title*=Download]").count() > 0
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
        tab.wait_for_selector(".js-plotly-plot .main-svg")
        assert said == []
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
        drawn = tab.locator(".js-plotly-plot").count()
        assert drawn == tab.locator("figure").count() >= 8
        assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out

        plot = tab.locator("#output-0-0")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box["width"] > 0.8 * width or width > 1000
        assert box["height"] > 200
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        dot = plot.locator(".scatterlayer .points path").first.bounding_box()
        tab.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
        tab.wait_for_selector("#output-0-0 .hoverlayer .hovertext")
        assert "observed" in plot.locator(".hovertext").first.text_content()

        ends = "document.getElementById('output-0-0')._fullLayout.xaxis.range.map(String)"
        before = tab.evaluate(ends)
        tab.mouse.move(*middle)
        tab.mouse.down()
        tab.mouse.move(middle[0] + 60, middle[1] + 40, steps=4)
        tab.mouse.up()
        tab.wait_for_function(f"{ends}.join() !== {before!r}.join()")  # zoomed
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
