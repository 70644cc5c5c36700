"""What cannot be computed with, or is not finite, is told by the name of its output."""

import numpy as np
import pytest

import hetmogp as hm

rng = np.random.default_rng(0)
N = 24
x = np.linspace(0.0, 1.0, N)


def fit(likelihood, y, **beside):
    model = hm.HetMOGP({"y": likelihood}, latents=1, inducing=6, max_iter=20, progress=False)
    return model.fit(x, {"y": y, **beside})


def test_a_value_next_to_nothing_has_a_score():
    y = rng.gamma(2.0, 1.0, N)
    y[3] = 1e-300
    assert np.isfinite(fit(hm.Gamma(), y).nlpd(x, {"y": y})["y"])


def test_large_counts_have_their_mean_inside_their_interval():
    y = np.round(1e15 * np.exp(0.4 * rng.normal(size=N)))
    pred = fit(hm.NegativeBinomial(), y).predict(x)["y"]
    lower, upper = pred.interval(0.9)
    assert np.all((lower < pred.mean) & (pred.mean < upper))
    assert np.mean((y >= lower) & (y <= upper)) > 0.7
    draws = pred.sample(200, seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), pred.mean, rtol=0.3)


@pytest.mark.filterwarnings("ignore:.*it has one value only")
@pytest.mark.parametrize("likelihood", [hm.ZeroInflatedNegativeBinomial(), hm.Poisson()])
def test_zeros_and_nothing_else_predict_about_zero(likelihood):
    pred = fit(likelihood, np.zeros(N)).predict([-3.0, 0.5, 4.0])["y"]
    assert np.all(pred.mean < 0.2)
    assert np.all(pred.std < 1.0)


def test_lifetimes_of_which_no_end_was_seen_are_doubted():
    with pytest.warns(UserWarning, match="output 'y': no end was seen"):
        fit(hm.Weibull(event="seen"), rng.weibull(2.0, N), seen=np.zeros(N))


@pytest.mark.parametrize("likelihood", [hm.Gaussian(), hm.HetGaussian(), hm.StudentT()])
def test_values_too_large_to_square_are_refused_before_the_fit(likelihood):
    with pytest.raises(ValueError, match=r"output 'y': its values lie between .*closer to one"):
        fit(likelihood, 1e300 * rng.normal(size=N))


def test_values_too_small_for_single_precision_are_refused_too():
    model = hm.HetMOGP({"y": hm.Gaussian()}, latents=1, inducing=4, dtype="float32")
    with pytest.raises(ValueError, match="float32 cannot represent"):
        model.fit(x, {"y": 1e-25 * rng.normal(size=N)})


def test_a_prediction_that_is_not_finite_warns_with_its_output():
    pred = fit(hm.StudentT(df=1.5), rng.standard_t(1.5, N)).predict([0.2, 0.6])["y"]
    assert np.isfinite(pred.interval(0.9)).all()
    with pytest.warns(RuntimeWarning, match=r"output 'y' .*variance is not finite at 2 of 2"):
        assert np.isinf(pred.variance).all()


def test_an_empty_prediction_has_columns_and_no_rows():
    named = {"a": hm.Gaussian(), "b": hm.Gamma(), "c": hm.Poisson(), "d": hm.Beta()}
    values = {"a": x, "b": 1 + x, "c": np.arange(N) % 3, "d": 0.1 + 0.5 * x}
    model = hm.HetMOGP(named, latents=1, inducing=4, max_iter=0, progress=False).fit(x, values)
    frame = model.predict(np.zeros((0, 1))).to_frame()
    assert len(frame) == 0
    assert "d_upper" in frame


def test_counts_far_beyond_the_data_have_an_interval():
    model = hm.HetMOGP(
        {"y": hm.Poisson()}, kernel=hm.Linear(), latents=1, inducing=4, progress=False
    )
    X = np.linspace(0, 10, N)
    for dtype, at in (("float64", 200.0), ("float32", 60.0)):
        model.set_params(dtype=dtype).fit(X, {"y": rng.poisson(np.exp(0.3 * X))})
        lower, upper = model.predict([[at]])["y"].interval(0.9)
        assert 1e6 < lower < upper < np.inf
