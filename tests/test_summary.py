"""What a model says of itself, against what it is; and the manners of an estimator."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import hetmogp as hm
from hetmogp.session import session
from hetmogp.summary import Summary

N = 50
x = np.linspace(0.0, 1.0, N)
rng = np.random.default_rng(0)
Y = pd.DataFrame({"a": np.sin(6 * x), "b": np.sin(6 * x) + 0.1 * rng.standard_normal(N)})
FAST = {"inducing": 6, "max_iter": 1, "tol": 1e-12, "progress": False}


@pytest.fixture(scope="module")
def model():
    likelihoods = {"a": hm.HetGaussian(), "b": hm.Gaussian(scale=0.5)}
    kernel = [hm.RBF() + hm.Linear(), hm.RBF()]
    return hm.HetMOGP(likelihoods, latents=2, rank=[2, 1], kernel=kernel, **FAST).fit(x, Y)


def test_shares_and_correlations_are_those_of_the_prior(model):
    """Against the prior covariance at the inducing inputs, averaged."""
    summary = model.summary()
    with session("float64"):
        pairs = zip(model.kernels_, model.inducing_inputs_, strict=True)
        of_each = np.array([np.mean(np.asarray(k.diag(Z))) for k, Z in pairs])
    assert of_each[0] != pytest.approx(1.0, abs=0.01)  # a Linear part does not have variance one
    W = model.weights_ * np.sqrt(of_each[[0, 0, 1]])
    cov = W @ W.T
    std = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(summary.functions["std"], std, rtol=1e-5)
    np.testing.assert_allclose(summary.correlation, cov / np.outer(std, std), atol=1e-6)
    np.testing.assert_allclose(summary.shares["u1"], W[:, 2] ** 2 / std**2, atol=1e-6)
    np.testing.assert_allclose(summary.shares.sum(axis=1), 1.0)
    between = summary.correlation.loc[["a.mean", "a.variance"], "b.mean"].abs().max()
    assert summary.sharing["a"] == summary.sharing["b"] == pytest.approx(between)


def test_it_prints_everything_and_lines_up(model):
    text, n = repr(model.summary()), model.n_iter_
    state = "converged" if model.converged_ else "NOT converged"
    for words in (
        *("2 outputs, 3 parameter functions, 2 latents", f"bound {model.elbo_:,.2f}"),
        *(
            f"; {state} after {n} round{'s' * (n > 1)} of VEM",
            "scale 0.5",
            "HetGaussian()",
            "a.variance",
            "exp",
        ),
    ):
        assert words in text
    block = text.split("correlation of the parameter functions\n")[1].splitlines()
    assert len({len(line) for line in block}) == 1


def test_a_function_that_does_not_vary_is_correlated_with_nothing(model):
    fitted, B = copy.copy(model.fitted), model.coregionalisation_.copy()
    B[:, 2, :] = B[:, :, 2] = 0.0
    vars(fitted)["coregionalisation"] = B
    summary = Summary(fitted)
    assert summary.sharing["b"] == 0.0
    assert list(summary.shares.loc["b.mean"]) == [0.0, 0.0]
    assert summary.correlation.loc["b.mean", "b.mean"] == 1.0


def test_kernels_in_words_have_names_and_units():
    units = {"when": "days", "site": "", "depth": ""}
    kernel = hm.RBF([2.0, 30.0], active_dims=(0, 2)) * hm.Category([1.0], active_dims=(1,))
    assert kernel.in_words(units) == (
        "RBF(when 2 days, depth 30) × Category(site correlation 0.37)"
    )
    week = hm.Periodic(lengthscale=[1.5], period=[7.0], active_dims=(0,))
    assert week.in_words(units) == "Periodic(when every 7 days, lengthscale 1.5)"
    for days, text in ((0.25, "6 h"), (0.01, "14.4 min"), (1e-5, "0.864 s")):
        assert hm.RBF([days], active_dims=(0,)).in_words(units) == f"RBF(when {text})"


def test_notebooks_see_the_summary_once_fitted(model):
    assert "a.variance" in model._repr_html_()
    assert model._repr_mimebundle_()["text/html"] == model._repr_html_()
    unfitted = clone(model)
    assert "HetMOGP" in unfitted._repr_html_()
    with pytest.raises(NotFittedError):
        unfitted.summary()
    assert repr(unfitted).startswith("HetMOGP(")
    assert "HetGaussian()" in repr(unfitted)


# -- scikit-learn ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_grid_search_over_latents_and_kernels():
    search = GridSearchCV(
        hm.HetMOGP([hm.Gaussian()], **FAST),
        [{"latents": [1, 2]}, {"latents": [1], "kernel": [hm.Linear()]}],
        cv=2,
    ).fit(x[:, None], Y.to_numpy()[:, :1])
    assert "kernel" not in search.best_params_  # a sine is no straight line
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.summary().latents.shape[0] == search.best_params_["latents"]


def test_a_pipeline_and_cross_validation_with_gaps():
    values = Y.to_numpy().copy()
    values[5:9, 0] = np.nan
    model = hm.HetMOGP([hm.Gaussian()] * 2, latents=1, **{**FAST, "max_iter": 0})
    pipe = Pipeline([("scale", StandardScaler()), ("gp", model)])
    assert np.isfinite(cross_val_score(pipe, x[:, None], values, cv=2)).all()
    pipe.set_params(gp__latents=2).fit(x[:, None], values)
    assert pipe.predict(x[:3, None])["y0"].mean.shape == (3,)
    assert pipe.get_params()["gp__latents"] == 2
    assert pipe["gp"].weights_.shape == (2, 2)
