"""Small trials of likelihoods: constants are the most likely ones, and functions are found."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hetmogp as hm
from hetmogp import trials
from hetmogp.session import session
from hetmogp.tables import read
from hetmogp.trials import cross_fitted, features, held_out

rng = np.random.default_rng(2)
N = 400
x = rng.uniform(0, 1, N)
rows = np.arange(N)
nothing = [np.zeros((N, 1))]


@pytest.fixture(scope="module")
def tried():
    """A sine with noise of 0.3."""
    y = 2.0 * np.sin(8 * x) + 0.3 * rng.normal(size=N)
    data = read({"y": hm.Gaussian()}, x, {"y": y})
    with session():
        phi = features(data.inputs[0], data.columns, 0)
        return y, *(
            held_out(hm.Gaussian(), one, y, rows[:250], rows[250:]) for one in (phi, nothing)
        )


def test_without_features_constants_are_the_most_likely_ones(tried):
    y, _, constant = tried
    truth = stats.norm(y[:250].mean(), y[:250].std())
    np.testing.assert_allclose(constant, truth.logpdf(y[250:]), atol=1e-3)


def test_functions_are_found(tried):
    y, learned, constant = tried
    truth = stats.norm(2.0 * np.sin(8 * x[250:]), 0.3).logpdf(y[250:])
    assert truth.mean() - learned.mean() < 0.1
    assert learned.mean() - constant.mean() > 1.0


def test_labels_and_several_inputs_have_features():
    X = {"a": x, "b": rng.normal(size=N), "kind": np.array(["p", "q", "r"])[rows % 3]}
    data = read({"y": hm.Gaussian()}, pd.DataFrame(X), {"y": x})
    tables = features(data.inputs[0], data.columns, 0)
    assert len({table.shape for table in tables}) == 1
    assert all(np.isfinite(table).all() for table in tables)
    kinds = 2.0 * (rows % 3 == 1) - x
    with session():
        learned, constant = (
            held_out(hm.Gaussian(), one, kinds, rows[:250], rows[250:]) for one in (tables, nothing)
        )
    assert learned is not None
    assert constant is not None
    assert learned.mean() - constant.mean() > 0.7


def test_what_is_not_finite_is_no_score():
    with session():
        y = np.where(rows < 250, 1.0 + x, 1e300)
        assert held_out(hm.Gaussian(), nothing, y, rows[:250], rows[250:]) is None


def test_every_value_is_scored_by_fits_to_others():
    y = rng.normal(3.0, 2.0, N)
    with session():
        density = cross_fitted(hm.Gaussian(), nothing, y, 200, 0)
    truth = stats.norm(y.mean(), y.std()).logpdf(y)
    assert density is not None
    assert density.shape == (N,)
    assert np.mean(density) == pytest.approx(np.mean(truth), abs=0.03)
    assert np.corrcoef(density, truth)[0, 1] > 0.99


def test_columns_of_one_kind_share_a_program():
    with session():
        phi = features(x[:, None], read({"y": hm.Gaussian()}, x, {"y": x}).columns, 0)
        for k in range(3):
            y = np.exp(rng.normal(k, 1.0 + k, N))
            assert held_out(hm.Weibull(), phi, y, rows[:250], rows[250:]) is not None
            if k == 0:
                before = trials._cost._cache_size(), trials._densities._cache_size()
    assert (trials._cost._cache_size(), trials._densities._cache_size()) == before
