"""The short form of `make fuzz`: a few cases of each kind, always the same."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import fuzz


@pytest.mark.parametrize(
    ("target", "cases"), [("models", 60), ("tables", 60), ("commands", 12), ("likelihoods", 1)]
)
def test_nothing_unkind_does_harm(target, cases):
    assert fuzz.main(0.0, cases, [target], seed=1) == 0
