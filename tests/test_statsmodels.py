"""Effects in models that statsmodels has too: linear regression, GLMs, a random intercept.

Slopes here have a prior as wide as the spread of the function for each standard deviation of the
input, and statsmodels has none. With some hundred rows the two agree to a few percent of a standard
error.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import hetmogp as hm

N = 500


@pytest.fixture(scope="module")
def table():
    """Two inputs that are correlated, thirty patients, and an output of each kind."""
    rng = np.random.default_rng(3)
    dose = rng.uniform(0, 4, N)
    X = pd.DataFrame({"dose": dose, "age": 40 + 5 * dose + rng.normal(0, 8, N)})
    f = 0.6 * X["dose"] - 0.05 * (X["age"] - 50)
    who = rng.integers(0, 30, N)
    own = rng.normal(0, 0.8, 30)
    Y = pd.DataFrame(
        {
            "pressure": f + rng.normal(0, 1.0, N),
            "visits": rng.poisson(np.exp(f)),
            "ill": (rng.uniform(size=N) < 1 / (1 + np.exp(-f))).astype(float),
            "repeated": f + own[who] + rng.normal(0, 1.0, N),
        }
    )
    return X.assign(patient=[f"p{k:02}" for k in who]), Y


def slopes(likelihood, X, y, **options):
    model = hm.HetMOGP({"y": likelihood}, linear=["dose", "age"], progress=False, **options)
    model.fit(X, {"y": y})
    return model, model.effects_.set_index("input")


def assert_the_same(found, peer, errors, shift=0.1, width=0.05):
    """Means within a share of a standard error, and these within a share of themselves."""
    for name in ("dose", "age"):
        assert abs(found.loc[name, "mean"] - peer[name]) < shift * errors[name]
        assert found.loc[name, "sd"] == pytest.approx(errors[name], rel=width)


def test_slopes_are_those_of_least_squares(table):
    X, Y = table
    peer = sm.OLS(Y["pressure"], sm.add_constant(X[["dose", "age"]])).fit()
    _, found = slopes(hm.Gaussian(), X[["dose", "age"]], Y["pressure"])
    assert_the_same(found, peer.params, peer.bse)


@pytest.mark.parametrize(
    ("output", "likelihood", "family"),
    [
        ("visits", hm.Poisson(), sm.families.Poisson()),
        ("ill", hm.Bernoulli(), sm.families.Binomial()),
    ],
)
def test_slopes_are_those_of_generalised_linear_models(table, output, likelihood, family):
    X, Y = table
    peer = sm.GLM(Y[output], sm.add_constant(X[["dose", "age"]]), family=family).fit()
    _, found = slopes(likelihood, X[["dose", "age"]], Y[output])
    assert_the_same(found, peer.params, peer.bse)


def test_a_group_is_the_random_intercept_of_a_mixed_model(table):
    X, Y = table
    fixed = sm.add_constant(X[["dose", "age"]])
    peer = sm.MixedLM(Y["repeated"], fixed, groups=X["patient"]).fit(reml=False)
    model, found = slopes(hm.Gaussian(), X, Y["repeated"], groups=["patient"], hyperpriors=None)
    assert_the_same(found, peer.fe_params, peer.bse_fe)
    size = model.summary().groups.loc["y.mean", "patient"]
    assert size == pytest.approx(np.sqrt(float(peer.cov_re.iloc[0, 0])), rel=0.03)
    assert model.likelihoods_["y"].constants["scale"] == pytest.approx(
        np.sqrt(peer.scale), rel=0.01
    )
    own = model.intercepts_.set_index("level")["mean"]
    theirs = pd.Series(
        {level: float(effect.iloc[0]) for level, effect in peer.random_effects.items()}
    )
    assert own.loc[theirs.index].to_numpy() == pytest.approx(theirs.to_numpy(), abs=0.02)
