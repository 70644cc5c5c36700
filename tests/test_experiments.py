"""The paper's experiments, with fits cut short: what they report is what the models say."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hetmogp import demo
from hetmogp.cli import app
from hetmogp.experiments import gap


@pytest.fixture
def quick(monkeypatch):
    """Fits of one round; what comes of them is kept."""
    fitted = []

    def fit_both(problem, **options):
        fitted.append((problem, full(problem, max_iter=1, inducing=8, progress=False, **options)))
        return fitted[-1][1]

    full = demo.fit_both
    monkeypatch.setattr(demo, "fit_both", fit_both)
    return fitted


def test_the_gap_is_told_as_it_was_measured(quick, tmp_path):
    found = CliRunner().invoke(
        app, ["experiment", "gap", "--seeds", "2", "--out", str(tmp_path / "out"), "--json"]
    )
    assert found.exit_code == 0, found.output
    tables = json.loads(found.stdout)
    assert list(tables) == ["the paper's", "sharing"]
    rows = [row for table in tables.values() for row in table]
    for row, (problem, (joint, alone)) in zip(rows, quick, strict=True):
        assert row["truth"] == problem.nlpd_of_truth
        assert row["joint"] == demo.nlpd_in_gap(joint, problem)
        assert row["difference"] == row["joint"] - demo.nlpd_in_gap(alone, problem)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "gap_paper.png",
        "gap_sharing.png",
    }


def test_the_line_below_a_table_counts_who_was_better():
    numbers = {
        "truth": [0.5, 0.6],
        "joint": [0.7, 0.9],
        "independent": [1.0, 0.8],
        "joint s": [1.0, 3.0],
        "independent s": [1.0, 1.0],
    }
    table = pd.DataFrame(numbers)
    table["difference"] = table["joint"] - table["independent"]
    line = gap.summary(table)
    spread = np.std([-0.3, 0.1], ddof=1)
    assert f"joint − independent -0.1000 ± {spread:.4f}, better on 1 of 2" in line
    assert "2.0 and 1.0 s a fit" in line
