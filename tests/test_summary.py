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


def test_a_function_without_spread_has_no_correlation(model):
    fitted, B = copy.copy(model.fitted), model.coregionalisation_.copy()
    B[:, 2, :] = B[:, :, 2] = 0.0
    vars(fitted)["coregionalisation"] = B
    summary = Summary(fitted)
    assert summary.sharing["b"] == 0.0
    assert list(summary.shares.loc["b.mean"]) == [0.0, 0.0]
    assert summary.correlation.loc["b.mean", "b.mean"] == 1.0
    assert summary.correlation.loc["b.mean", ["a.mean", "a.variance"]].isna().all()
    assert list(summary.functions["flat"]) == [False, False, True]
    assert "b.mean has no spread" in repr(summary)
    assert "nan" not in repr(summary)


def test_a_correlation_by_construction_is_not_shown_as_one():
    """One latent of rank one: ±1 whatever the data are."""
    one = hm.HetMOGP([hm.Gaussian(), hm.Gaussian()], latents=1, **FAST).fit(x, Y.to_numpy())
    summary = one.summary()
    assert np.isnan(summary.correlation.to_numpy()[0, 1])
    assert abs(summary.constructed.to_numpy()[0, 1]) == 1
    assert "one latent: the parameter functions move together by construction" in repr(summary)
    assert "correlation of the parameter functions" not in repr(summary)
    assert summary.sharing["y0"] == pytest.approx(1.0)  # it does share


def test_a_latent_that_is_not_used_is_not_listed(model):
    fitted, B = copy.copy(model.fitted), model.coregionalisation_.copy()
    B[1] *= 1e-6
    vars(fitted)["coregionalisation"] = B
    summary = Summary(fitted)
    assert list(summary.latents.index) == list(summary.shares.columns) == ["u0"]
    assert summary.title.endswith("1 latent in use, 1 not in use")


def test_a_lengthscale_beyond_the_data_is_called_flat():
    X = pd.DataFrame({"x": x, "z": rng.uniform(0.0, 2.0, N)})
    kernel = hm.RBF([0.2, 2.5], fixed=("lengthscale",))
    flat = hm.HetMOGP([hm.Gaussian()], latents=1, kernel=kernel, **FAST).fit(X, Y[["a"]])
    summary = flat.summary()
    assert summary.latents.loc["u0", "kernel"] == "RBF(x 0.2, z 2.5), flat along z"
    assert list(summary.lengthscales["flat"]) == [False, True]
    assert summary.lengthscales["lower"].isna().all()


def test_sentences_say_what_the_table_of_baselines_says(model):
    both = copy.copy(model)
    assert both.summary().sentences == {}  # nothing is known yet
    table = both.leave_one_out(x, Y)
    gain, error = table.loc["b", ["over_constant", "over_constant_se"]]
    summary = both.summary()
    assert f"b beats its average by {gain:.2f} ± {error:.2f} nats a value" in repr(summary)
    assert "each value left out in turn" in repr(summary)
    rows = np.arange(N) % 5 == 0
    both.mark_held_out(x, rows, "every fifth")
    both.compare_baselines(x, Y.where(np.c_[rows, rows]))
    assert both.summary().scored == "10 rows held out of the fit: every fifth"
    both.compare_baselines(x, Y.where(~np.c_[rows, rows]))
    assert both.summary().scored == "40 rows that were fitted"
    both.compare_baselines(x[:7], Y[:7])
    assert both.summary().scored == "7 rows given to compare_baselines"


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
