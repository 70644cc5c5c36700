"""The short form of `make fuzz`: some cases, always the same; data are in `test_scales.py`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import fuzz


@pytest.mark.parametrize(("target", "cases"), [("models", 60), ("tables", 100), ("commands", 12)])
def test_nothing_unkind_does_harm(target, cases):
    assert fuzz.main(0.0, cases, [target], seed=1) == 0
