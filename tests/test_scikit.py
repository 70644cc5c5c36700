"""What scikit-learn's tools find: its own checks, and its metrics computed by hand."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import hetmogp as hm
from hetmogp.scikit import EXPECTED_FAILED_CHECKS

QUICK: dict[str, Any] = {"latents": 1, "max_iter": 5, "progress": False}


class Means(hm.HetMOGP):
    """A model that predicts numbers, which is what scikit-learn's checks can compare."""

    def predict(self, X, outputs=None, given=None):
        return self.predict_mean(X, outputs, given).to_numpy()


@pytest.mark.filterwarnings("ignore")
def test_check_estimator_fails_where_declared_and_nowhere_else():
    estimator = hm.HetMOGP([hm.Gaussian()], **QUICK)
    results = check_estimator(
        estimator, expected_failed_checks=EXPECTED_FAILED_CHECKS, on_skip=None, on_fail=None
    )
    by_status: dict[str, set[str]] = {}
    for one in results:
        by_status.setdefault(one["status"], set()).add(one["check_name"])
    assert by_status.keys() <= {"passed", "xfail", "skipped"}, by_status
    assert by_status["xfail"] == EXPECTED_FAILED_CHECKS.keys()  # none is declared in vain


@pytest.mark.filterwarnings("ignore")
def test_predict_mean_passes_what_predict_cannot():
    names = ("check_fit1d", "check_n_features_in_after_fitting")
    only = {name: EXPECTED_FAILED_CHECKS[name] for name in names}
    check_estimator(
        Means([hm.Gaussian()], **QUICK), expected_failed_checks=only, on_skip=None, on_fail="raise"
    )


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 6.0, 70)
    f = np.sin(x)
    Y = pd.DataFrame(
        {
            "price": f + 0.2 * rng.normal(size=70),
            "sold": (f + 0.4 * rng.normal(size=70) > 0).astype(float),
            "kind": np.where(f > 0.4, "zoo", np.where(f > -0.4, "farm", "barn")),
            "visits": rng.poisson(5 * np.exp(f)),
            "days": np.full(70, 5.0),
        }
    )
    Y.loc[10:15, "price"] = np.nan
    return pd.DataFrame({"x": x}), Y


@pytest.fixture(scope="module")
def model(table):
    likelihoods = {
        "price": hm.Gaussian(),
        "sold": hm.Bernoulli(),
        "kind": hm.Categorical(classes=["zoo", "farm", "barn"]),  # not in the order of letters
        "visits": hm.Poisson(exposure="days"),
    }
    return hm.HetMOGP(likelihoods, **QUICK).fit(*table)


def test_predict_mean_is_a_frame_of_means_and_classes(model, table):
    X = table[0].iloc[::7]
    means, pred = model.predict_mean(X), model.predict(X)
    assert list(means) == model.output_names_
    assert means.index.equals(X.index)
    np.testing.assert_array_equal(means["price"], pred["price"].mean)
    np.testing.assert_array_equal(means["sold"], pred["sold"].mean)
    best = np.array(["zoo", "farm", "barn"])[pred["kind"].probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(means["kind"], best)
    five = model.predict_mean(X, outputs="visits", given={"days": 5.0})["visits"]
    np.testing.assert_allclose(five, 5.0 * means["visits"])


def test_scorers_equal_the_metrics_by_hand(model, table):
    X, Y = table
    pred = model.predict(X, given=Y)
    seen = Y["price"].notna().to_numpy()
    kinds = np.array(["barn", "farm", "zoo"])
    by_letters = pred["kind"].probabilities[:, ::-1]
    wanted = {
        ("r2", "price"): metrics.r2_score(Y["price"][seen], pred["price"].mean[seen]),
        ("neg_mean_absolute_error", "visits"): -metrics.mean_absolute_error(
            Y["visits"], pred["visits"].mean
        ),
        ("accuracy", "sold"): np.mean((pred["sold"].mean > 0.5) == Y["sold"]),
        ("roc_auc", "sold"): metrics.roc_auc_score(Y["sold"], pred["sold"].mean),
        ("accuracy", "kind"): np.mean(kinds[by_letters.argmax(axis=1)] == Y["kind"]),
        ("neg_log_loss", "kind"): -metrics.log_loss(Y["kind"], by_letters, labels=kinds),
        ("log_density", "price"): -model.nlpd(X, Y)["price"],
    }
    for (name, output), value in wanted.items():
        assert hm.scorer(name, output=output)(model, X, Y) == pytest.approx(value), (name, output)


def test_scorers_serve_cross_validation_and_grids(table):
    X, Y = table[0], table[1][["price", "sold"]]
    model = hm.HetMOGP({"price": hm.Gaussian(), "sold": hm.Bernoulli()}, **QUICK)
    r2 = hm.scorer("r2", output="price")
    assert pickle.loads(pickle.dumps(r2)) == r2
    folds = cross_val_score(model, X, Y, scoring=r2, cv=2, error_score="raise")
    assert folds.shape == (2,)
    assert np.isfinite(folds).all()
    scoring = {"r2": r2, "auc": hm.scorer("roc_auc", output="sold")}
    search = GridSearchCV(model, {"latents": [1, 2]}, scoring=scoring, refit="r2", cv=2)
    search.fit(X.sample(frac=1.0, random_state=0), Y.sample(frac=1.0, random_state=0))
    assert np.isfinite(search.cv_results_["mean_test_auc"]).all()


def test_a_censored_value_has_no_part_in_an_error():
    x = np.linspace(0.0, 1.0, 30)
    y = np.exp(np.sin(3 * x))
    Y = pd.DataFrame({"stay": y, "left": np.r_[np.zeros(5), np.ones(25)]})
    model = hm.HetMOGP({"stay": hm.Weibull(event="left")}, **QUICK).fit(x, Y)
    wanted = -metrics.mean_squared_error(y[5:], model.predict(x)["stay"].mean[5:])
    assert hm.scorer("neg_mean_squared_error")(model, x, Y) == pytest.approx(wanted)


def test_densities_of_values_that_are_all_censored_are_scored():
    x = np.arange(8.0)
    Y = pd.DataFrame({"stay": 1.0 + x, "ended": [1.0] * 4 + [0.0] * 4})
    model = hm.HetMOGP({"stay": hm.Weibull(event="ended")}, latents=1, max_iter=0, progress=False)
    model.fit(x, Y)
    found = hm.scorer("log_density")(model, x[4:], Y[4:])
    assert found == pytest.approx(model.score(x[4:], Y[4:]))
    with pytest.raises(ValueError, match="'stay' has no exactly known observed value"):
        hm.scorer("r2")(model, x[4:], Y[4:])


def test_a_wrong_number_of_inputs_is_said_in_the_words_of_scikit_learn(model, table):
    words = "X has 2 features, but HetMOGP is expecting 1 features as input"
    wide = np.c_[table[0], table[0]]
    for call in (model.predict, model.predict_mean, lambda X: model.score(X, table[1])):
        with pytest.raises(ValueError, match=words):
            call(wide)


def test_scorers_complain_of_names(model, table):
    with pytest.raises(ValueError, match="nonsense"):
        hm.scorer("nonsense")
    with pytest.raises(ValueError, match="no output 'cost'; there are price, sold"):
        hm.scorer("r2", output="cost")(model, *table)
    with pytest.raises(ValueError, match="name one by output="):
        hm.scorer("r2")(model, *table)
    with pytest.raises(ValueError, match="'price' has no observed value"):
        hm.scorer("r2", output="price")(model, table[0][10:16], table[1][10:16])


def test_the_nlpd_is_pointed_to_its_scorer():
    with pytest.raises(ValueError, match="'nlpd' is no metric; 'log_density' is its negative"):
        hm.scorer("nlpd")
