"""The code of the README and of the pages in docs runs as it stands, top to bottom."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run(page):
    names: dict = {}
    for block in code(page):
        exec(block, names)
    return names


@pytest.mark.parametrize("page", [page for page in PAGES if code(page)], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page, capsys):
    names = run(page)
    shown = capsys.readouterr().out
    assert shown
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
        assert set(names["found"]) == {"cases", "stay"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target.strip()).exists(), target
