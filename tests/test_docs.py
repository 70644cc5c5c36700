"""The code of the README and of the pages in docs runs as it stands, top to bottom."""

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import hetmogp as hm
from docs import outputs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))]
PAGES += sorted(DOCS.glob("*.md"))


def code(page, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def run(page, capsys):
    """The names that a page defines and what it prints, which is what it shows."""
    names: dict = {}
    printed = ""
    for block, output in zip(code(page), outputs.shown(page), strict=True):
        exec(block, names)
        new = capsys.readouterr().out
        if output is not None:
            assert outputs.without_numbers(new) == outputs.without_numbers(output), "make outputs"
        printed += new
    return names, printed


SLOW = {"worked_case.md"}  # fits models with all defaults, about a minute


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW), id=page.name)
        for page in PAGES
        if code(page)
    ],
)
def test_the_code_of_a_page_runs(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for the files that pages write
    monkeypatch.setattr(plt, "show", lambda: None)
    try:
        names, shown = run(page, capsys)
    finally:
        plt.close("all")
    assert shown
    figures = {path.name for path in tmp_path.glob("*.png")}
    assert figures == set(outputs.written(page, tmp_path)), "a figure that is saved is shown"
    if page.name == "README.md":
        assert names["model"].converged_
        assert "global" in shown
        truth = 1 / (1 + np.exp(2 * np.sin(names["x"][80:140])))
        assert np.abs(names["pred"]["home"].mean - truth).mean() < 0.15
    if page.name == "your_own_likelihood.md":
        assert names["model"].likelihoods_["delay"].constants["scale"] == pytest.approx(
            0.5, rel=0.2
        )
    if page.name == "likelihoods.md":
        assert set(names["found"]) == {"cases"}
    if page.name == "missing_data.md":
        joint, alone = (
            np.abs(names[of].predict(names["gap"])["flood"].mean - names["truth"]).mean()
            for of in ("joint", "alone")
        )
        assert joint < 0.1 < 0.3 < alone
    if page.name == "your_own_kernel.md":
        assert names["model"].kernels_[0].period == pytest.approx(1.5, rel=0.1)
        assert shown.endswith("True True\n")
    if page.name == "tour.md":
        assert names["off"].mean() < 0.2
        assert names["inside"].mean() > 0.75
        assert {path.name for path in tmp_path.iterdir()} == {
            *("ozone.png", "air.hetmogp", "report.html")
        }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target.strip()).exists(), target


COMMANDS = [
    pytest.param(shlex.split(line, comments=True), id=f"{page.stem}-{k}")
    for page in PAGES
    for k, line in enumerate("\n".join(code(page, "sh")).replace("\\\n", " ").splitlines())
    if line.startswith("hetmogp ")
]


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_are_written_as_the_command_line_takes_them(words):
    from typer.main import get_command

    from hetmogp.cli import app

    _, first, *rest = words
    group: Any = get_command(app)
    if first.startswith("-"):
        assert any(first in parameter.opts for parameter in group.params)
    else:
        group.commands[first].make_context(first, rest)  # complains of what it does not know


def test_the_reference_names_everything_public():
    reference = (DOCS / "api.md").read_text()
    for name in set(hm.__all__) - {"__version__"}:
        assert re.search(rf"\.{name}\b", reference), name


def test_every_file_says_the_same_version():
    assert f"\nversion: {hm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {hm.__version__}" in (ROOT / "CHANGELOG.md").read_text()


class Loaded(HTMLParser):
    """The addresses that a page makes a browser load, unasked."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag != "a":
            self.found += [value for name, value in attributes if name in ("src", "href", "srcset")]


def test_the_site_builds_without_complaint_and_loads_nothing_from_elsewhere(tmp_path):
    import mkdocs

    assert mkdocs.__version__
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {f"{page.stem}.html" for page in DOCS.glob("*.md")} <= {page.name for page in pages}
    for page in pages:
        for address in Loaded(page.read_text()).found:
            assert "//" not in (address or ""), (page.name, address)
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet
    reference = (tmp_path / "api.html").read_text()
    for name in ("HetMOGP", "Weibull", "RBF", "posterior"):
        assert f"{name}</span>" in reference
