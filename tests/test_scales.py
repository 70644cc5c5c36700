"""Every likelihood with data of any size in its support: finite predictions, or a clear error."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from fuzz import COLUMNS, fitted, values

QUICK = ("HetGaussian", "NegativeBinomial", "Gamma")


@pytest.mark.parametrize(
    "kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in COLUMNS]
)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), size=st.floats(-12, 12))
def test_data_of_any_size_are_predicted(kind, seed, size):
    y = values(kind, np.random.default_rng(seed), 10.0**size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `fitted` looks at those about predictions
        fitted(kind, y, method="vem", max_iter=3)
