"""Linear effects and groups: against closed forms, and in what users see."""

import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp.columns import Column
from hetmogp.fitting import Options
from hetmogp.fitting.effects import Effects, within_budget
from hetmogp.tables import read


@pytest.fixture(scope="module")
def visits():
    """Repeated visits of patients: two slopes, and an intercept for each patient."""
    rng = np.random.default_rng(0)
    N, names = 160, np.array([f"p{k:02}" for k in range(20)])
    own = rng.normal(0, 1.5, 20)
    who = rng.integers(0, 20, N)
    X = pd.DataFrame(
        {"dose": rng.uniform(0, 10, N), "age": rng.normal(50, 12, N), "patient": names[who]}
    )
    f = 0.5 * X["dose"] - 0.03 * X["age"] + own[who]
    return X, pd.DataFrame({"y": f + 0.7 * rng.normal(size=N)})


@pytest.fixture(scope="module")
def mixed(visits):
    X, Y = visits
    options = {"linear": ["dose", "age"], "groups": ["patient"], "hyperpriors": None}
    return hm.HetMOGP({"y": hm.Gaussian()}, progress=False, **options).fit(X, Y)


def posterior(X, y, mean, sigma, prior):
    """Mean and covariance of β in y = mean + X β + noise, β ~ N(0, prior)."""
    precision = X.T @ X / sigma**2 + np.diag(1.0 / prior)
    cov = np.linalg.inv(precision)
    return cov @ X.T @ (y - mean) / sigma**2, cov


def test_slopes_are_those_of_a_bayesian_linear_regression(visits):
    X, Y = visits
    X = X[["dose", "age"]]
    model = hm.HetMOGP({"y": hm.Gaussian()}, linear=["dose", "age"], progress=False).fit(X, Y)
    scaling = model.fitted.scaling
    spread = float(np.asarray(model.fitted.posterior.prior.spread)[0])
    mean, cov = posterior(
        (X.to_numpy() - scaling.centre) / scaling.scale,
        Y["y"].to_numpy(),
        model.constants_[0],
        model.likelihoods_["y"].constants["scale"],
        np.full(2, spread**2),
    )
    effects = model.effects_
    assert effects["input"].tolist() == ["dose", "age"]
    assert effects["mean"].to_numpy() == pytest.approx(mean / scaling.scale, rel=1e-3)
    sd = np.sqrt(np.diag(cov)) / scaling.scale
    assert effects["sd"].to_numpy() == pytest.approx(sd, rel=1e-3)
    assert effects["upper"].to_numpy() == pytest.approx(effects["mean"] + 1.6449 * sd, rel=1e-3)


def test_slopes_and_intercepts_are_those_of_a_mixed_model(visits, mixed):
    """Henderson's equations, at the standard deviations that were learned."""
    X, Y = visits
    scaling, prior = mixed.fitted.scaling, mixed.fitted.posterior.prior
    levels, who = np.unique(X["patient"], return_inverse=True)
    lines = ((X[["dose", "age"]].to_numpy()) - scaling.centre[:2]) / scaling.scale[:2]
    size = mixed.summary().groups.loc["y.mean", "patient"]
    width = [float(np.asarray(prior.spread)[0]) ** 2] * 3 + [size**2] * len(levels)
    mean, cov = posterior(
        np.column_stack([lines, np.ones(len(lines)), np.eye(len(levels))[who]]),
        Y["y"].to_numpy(),
        mixed.constants_[0],
        mixed.likelihoods_["y"].constants["scale"],
        np.array(width),
    )
    sd = np.sqrt(np.diag(cov))
    assert mixed.effects_["mean"].to_numpy() == pytest.approx(
        mean[:2] / scaling.scale[:2], rel=1e-3
    )
    found = mixed.intercepts_
    assert found["level"].tolist() == levels.tolist()
    assert found["mean"].to_numpy() == pytest.approx(mean[3:], rel=1e-3, abs=1e-3)
    assert found["sd"].to_numpy() == pytest.approx(sd[3:], rel=1e-3)


def test_the_learned_sizes_maximise_the_likelihood_of_a_mixed_model(visits, mixed):
    """The bound of Gaussian values is exact, so its maximum is that of the evidence."""
    from scipy.optimize import minimize
    from scipy.stats import multivariate_normal

    X, Y = visits
    scaling = mixed.fitted.scaling
    lines = ((X[["dose", "age"]].to_numpy()) - scaling.centre[:2]) / scaling.scale[:2]
    same = X["patient"].to_numpy()[:, None] == X["patient"].to_numpy()
    slopes = float(np.asarray(mixed.fitted.posterior.prior.spread)[0]) ** 2 * (1 + lines @ lines.T)

    def loss(z):
        cov = slopes + np.exp(2 * z[0]) * same + np.exp(2 * z[1]) * np.eye(len(X))
        return -multivariate_normal(np.full(len(X), z[2]), cov).logpdf(Y["y"])

    best = minimize(loss, [0.0, 0.0, 0.0], method="BFGS")
    assert mixed.elbo_ == pytest.approx(-best.fun, abs=0.05)
    size = mixed.summary().groups.loc["y.mean", "patient"]
    assert size == pytest.approx(np.exp(best.x[0]), rel=0.05)


def test_a_new_patient_is_predicted_from_the_prior(visits, mixed):
    X, _ = visits
    new = X.iloc[[0, 0, 0]].assign(patient=["someone", "someone", "another"])
    mean, cov = mixed.parameter_functions(new)
    slopes = mixed.effects_.set_index("input")["mean"]
    centre = mixed.fitted.scaling.centre
    line = mixed.constants_[0] + sum(
        slopes[name] * (new[name].iloc[0] - centre[k]) for k, name in enumerate(["dose", "age"])
    )
    size = mixed.summary().groups.loc["y.mean", "patient"]
    assert mean[:, 0] == pytest.approx(np.full(3, line), abs=1e-4)
    assert np.sqrt(cov[:, 0, 0]) == pytest.approx(np.full(3, size), rel=0.1)
    draws = mixed.sample_functions(300)(new)[:, :, 0]
    assert np.corrcoef(draws[:, 0], draws[:, 1])[0, 1] == pytest.approx(1.0)
    assert abs(np.corrcoef(draws[:, 0], draws[:, 2])[0, 1]) < 0.3


def test_few_visits_shrink_an_intercept_more(visits, mixed):
    X, _ = visits
    rows = X["patient"].value_counts()
    few, many = rows.index[-1], rows.index[0]
    sd = mixed.intercepts_.set_index("level")["sd"]
    assert rows[few] < rows[many]
    assert sd[few] > sd[many]


def test_whole_numbers_are_groups_as_labels_are(visits, mixed):
    X, Y = visits
    numbered = X.assign(patient=X["patient"].str[1:].astype(int))
    options = {"linear": ["dose", "age"], "groups": [2], "hyperpriors": None}
    model = hm.HetMOGP({"y": hm.Gaussian()}, progress=False, **options).fit(numbered, Y)
    assert model.elbo_ == pytest.approx(mixed.elbo_, abs=1e-3)
    assert model.intercepts_["mean"].to_numpy() == pytest.approx(
        mixed.intercepts_["mean"].to_numpy(), abs=1e-2
    )


def test_a_saved_model_keeps_its_effects(mixed, visits, tmp_path):
    X, _ = visits
    mixed.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    pd.testing.assert_frame_equal(again.effects_, mixed.effects_)
    pd.testing.assert_frame_equal(again.intercepts_, mixed.intercepts_)
    assert (again.linear, again.groups) == (["dose", "age"], ["patient"])
    new = X.iloc[:2].assign(patient="someone")
    assert again.predict(new)["y"].mean == pytest.approx(mixed.predict(new)["y"].mean)


def test_the_summary_has_the_effects(mixed):
    text = str(mixed.summary())
    assert "linear effects (slopes before the link, with 90% intervals)" in text
    assert "groups (standard deviation of the intercepts)" in text


def test_a_group_without_differences_is_named():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"t": np.linspace(0, 1, 80), "who": np.tile([f"p{k}" for k in range(8)], 10)})
    Y = {"y": np.sin(6 * X["t"]) + 0.1 * rng.normal(size=80)}
    model = hm.HetMOGP({"y": hm.Gaussian()}, groups="who", progress=False).fit(X, Y)
    assert model.intercepts_.empty
    assert "\nwho: no differences found" in repr(model.summary())


def test_effects_stand_beside_smooth_functions():
    rng = np.random.default_rng(1)
    N = 120
    X = pd.DataFrame({"t": rng.uniform(0, 6, N), "dose": rng.uniform(0, 1, N)})
    f = np.sin(X["t"]) + 1.5 * X["dose"]
    Y = pd.DataFrame({"a": f + 0.2 * rng.normal(size=N), "n": rng.poisson(np.exp(f))})
    model = hm.HetMOGP({"a": hm.Gaussian(), "n": hm.Poisson()}, linear="dose", progress=False).fit(
        X, Y
    )
    effects = model.effects_.set_index("output")
    assert effects["parameter"].tolist() == ["mean", "rate"]
    assert (np.abs(effects["mean"] - 1.5) < 3 * effects["sd"]).all()
    grid = pd.DataFrame({"t": np.full(2, 2.0), "dose": [0.2, 0.7]})
    mean, _ = model.parameter_functions(grid)
    assert mean[1] - mean[0] == pytest.approx(0.5 * effects["mean"].to_numpy(), rel=1e-6)


def test_large_groups_leave_room_for_every_level():
    """800 inducing inputs: two latents of 300 levels, and two smooth ones of 100."""
    for patients, latents, inducing in ((300, 2, 100), (260, 3, 50), (500, 1, 300)):
        X = pd.DataFrame({"t": np.arange(500.0), "patient": np.arange(500) % patients})
        data = read({n: hm.Gaussian() for n in "abcd"}, X, {n: np.arange(500.0) for n in "abcd"})
        found = within_budget(data, Options(groups="patient"), "vem")
        assert (found.latents, found.inducing) == (latents, inducing)
    data = read({"a": hm.Gaussian()}, X, {"a": np.arange(500.0)})
    assert within_budget(data, Options(groups="patient"), "vem").latents == "auto"
    kind = np.arange(500) % 4  # three functions, each with 500 intercepts
    data = read({"a": hm.Categorical()}, X, {"a": kind})
    assert within_budget(data, Options(groups="patient"), "vem").latents == 1


def test_an_input_may_be_named_by_a_number_of_numpy():
    columns = [Column("age"), Column("dose")]
    assert Effects.of(Options(linear=np.int64(1)), columns).linear == (1,)


def test_a_model_of_effects_alone_can_be_made_without_learning():
    """No latent has inducing inputs to choose; predictions are finite."""
    model = hm.HetMOGP({"y": hm.Gaussian()}, linear=["x"], max_iter=0)
    X = pd.DataFrame({"x": np.arange(5.0)})
    prediction = model.fit(X, {"y": np.arange(5.0)}).predict(X)["y"]
    assert np.isfinite(prediction.mean).all()
    assert len(model.kernels_) == 1


@pytest.mark.slow
def test_every_level_of_a_large_group_has_its_intercept():
    """300 patients in three outputs: more than a latent per output has room for."""
    rng = np.random.default_rng(2)
    N, own = 600, rng.normal(size=300)
    who = np.concatenate([np.arange(300), rng.integers(0, 300, 300)])
    X = pd.DataFrame({"t": rng.uniform(0, 1, N), "patient": [f"p{k:03}" for k in who]})
    Y = {
        name: slope * own[who] + 0.3 * rng.normal(size=N)
        for name, slope in (("a", 1.0), ("b", -0.7), ("c", 0.5))
    }
    kinds = {name: hm.Gaussian() for name in Y}
    model = hm.HetMOGP(kinds, groups="patient", progress=False, tol=1e-3).fit(X, Y)
    found = model.intercepts_.query("output == 'a'").set_index("level")
    assert len(found) == 300
    truth = own[[int(level[1:]) for level in found.index]]
    assert np.corrcoef(found["mean"], truth)[0, 1] > 0.9
    assert np.mean(np.abs(found["mean"] - truth) < 1.645 * found["sd"]) == pytest.approx(
        0.9, abs=0.06
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"linear": ["weight"]}, "linear names 'weight'; the inputs are"),
        ({"groups": ["site"]}, "groups names 'site'; the inputs are"),
        ({"linear": ["patient"]}, "linear names 'patient', which holds labels"),
        ({"groups": ["dose"]}, "groups names 'dose', which holds numbers such as"),
        ({"linear": ["dose", "dose"]}, "linear names 'dose' twice"),
        ({"linear": [7]}, "linear names input 7, but there are 3 inputs"),
        ({"linear": [0.5]}, "linear must be names or numbers of inputs"),
        ({"linear": ["dose"], "prior": "independent"}, "needs prior='lmc'"),
    ],
)
def test_what_cannot_be_an_effect_is_refused_in_words(visits, options, words):
    X, Y = visits
    with pytest.raises(ValueError, match=words):
        hm.HetMOGP({"y": hm.Gaussian()}, progress=False, **options).fit(X, Y)
