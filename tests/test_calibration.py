"""The calibration run in short: one family, one seed, fewer rows; `make calibration` is whole."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from calibration import one_family


@pytest.mark.parametrize(
    "name", ["LogLogistic", pytest.param("ZeroInflatedPoisson", marks=pytest.mark.slow)]
)
def test_predictions_are_as_sure_as_they_should_be(name):
    found = one_family(name, seeds=1, first=100, rows=400, fresh=1000)
    assert found["converged"] == 1.0
    assert 0.86 < found["covered"] < 0.94  # three standard errors at this size
    assert found["excess"] < 0.05
