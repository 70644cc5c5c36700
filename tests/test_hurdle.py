"""Zero or not, and how much if not: whole models, three functions at once, saved and in words."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Hurdled
from scipy import special, stats

import hetmogp as hm
from hetmogp.cli.words import output_from
from hetmogp.predictive import distribution_function, log_density, moments
from hetmogp.session import session

rng = np.random.default_rng(3)
MEAN, FACTOR = np.array([0.4, -0.3, 0.6]), np.array([[0.5, 0.1], [0.2, -0.4], [-0.7, 0.9]])
DRAWS = rng.normal(size=(100_000, 2)) @ FACTOR.T + MEAN


def truth(f):
    gamma = stats.gamma(np.exp(f[..., 0]), scale=np.exp(-f[..., 1]))
    return Hurdled(special.expit(f[..., 2]), gamma)


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


@pytest.mark.parametrize("y", [0.0, 0.3, 4.0])
def test_three_functions_that_share_latents(y):
    """Expectation, predictive density, distribution function: against 100,000 draws of f."""
    of, frozen = hm.Hurdle(hm.Gamma()), truth(DRAWS)
    log_p = frozen.logpdf(y)
    near = 5 / np.sqrt(len(DRAWS))
    ours = eqx.filter_jit(of.expectation)(
        jnp.asarray(y), jnp.asarray(MEAN), jnp.asarray(FACTOR @ FACTOR.T)
    )
    assert abs(ours - log_p.mean()) < near * log_p.std()
    p, at = np.exp(log_p), (jnp.asarray(y), jnp.asarray(MEAN), jnp.asarray(FACTOR))
    assert abs(np.exp(eqx.filter_jit(log_density)(of, *at)) - p.mean()) < near * p.std() + 1e-6
    upto = frozen.cdf(y)
    assert (
        abs(eqx.filter_jit(distribution_function)(of, *at) - upto.mean()) < near * upto.std() + 1e-5
    )


def test_moments_of_three_functions():
    of, frozen = hm.Hurdle(hm.Gamma()), truth(DRAWS)
    mean, variance = moments(of, jnp.asarray(MEAN), jnp.asarray(FACTOR))
    inner = frozen.mean()
    assert abs(mean - inner.mean()) < 5 * inner.std() / np.sqrt(len(DRAWS))
    square = frozen.var() + inner**2
    expected = square.mean() - inner.mean() ** 2
    assert abs(variance - expected) < 5 * square.std() / np.sqrt(len(DRAWS))


def test_samples_of_few_large_counts_are_never_zero():
    """A truncated count at a rate of e⁻²⁰ is one; at e²⁰ it is its rate."""
    for part in (hm.Poisson(), hm.NegativeBinomial(concentration=50.0)):
        of, keys = hm.Hurdle(part, zero=1e-9), jax.random.split(jax.random.key(0), 200)
        few = jax.vmap(of.sample, (0, None))(keys, jnp.array([-20.0]))
        many = jax.vmap(of.sample, (0, None))(keys, jnp.array([20.0]))
        assert np.all(np.asarray(few) == 1.0)
        np.testing.assert_allclose(np.mean(many), np.exp(20.0), rtol=0.1)


@pytest.fixture(scope="module")
def rain():
    """A season: often dry when it is warm, and Gamma amounts when not."""
    x = rng.uniform(0, 1, 400)
    dry = special.expit(1.5 * np.sin(6 * x))
    amount = rng.gamma(2.0, np.exp(0.5 + 0.8 * np.cos(6 * x)) / 2.0)
    y = np.where(rng.uniform(size=400) < dry, 0.0, amount)
    model = hm.HetMOGP({"rain": hm.Hurdle(hm.Gamma())}, latents=3, inducing=15, progress=False)
    model.fit(x, {"rain": y})
    return model, x, y, dry


def test_a_model_recovers_both_parts(rain):
    model, _, _, _ = rain
    at = np.linspace(0.05, 0.95, 25)
    pred = model.predict(at)["rain"]
    dry, amount = special.expit(1.5 * np.sin(6 * at)), np.exp(0.5 + 0.8 * np.cos(6 * at))
    assert np.abs(pred.prob_zero - dry).mean() < 0.06
    np.testing.assert_allclose(pred.mean, (1 - dry) * amount, atol=0.35 * amount.max())
    np.testing.assert_allclose(pred.cdf(np.zeros(25)), pred.prob_zero, atol=2e-5)


def test_quantiles_are_zero_where_zero_is_that_likely(rain):
    model, _, _, _ = rain
    pred = model.predict(np.linspace(0, 1, 30))["rain"]
    for level in (0.3, 0.6, 0.95):
        q = pred.quantile(level)
        np.testing.assert_array_equal(q == 0, pred.prob_zero >= level)
        np.testing.assert_allclose(pred.cdf(q)[q > 0], level, atol=1e-5)
    draws = pred.sample(4000)
    assert np.abs((draws == 0).mean(axis=0) - pred.prob_zero).max() < 0.04


def test_it_is_saved_and_read(rain, tmp_path):
    model, x, y, _ = rain
    model.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    assert repr(again.likelihoods_["rain"]) == "Hurdle(Gamma())"
    assert again.nlpd(x, {"rain": y}) == model.nlpd(x, {"rain": y})


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("rain:hurdle:gamma", "Hurdle(Gamma())"),
        (
            "rain:hurdle:zero=0.4:gamma:latent=rate:shape=2",
            "Hurdle(Gamma(shape=2, latent=('rate',)), zero=0.4)",
        ),
        ("n:hurdle:poisson:exposure=hours", "Hurdle(Poisson(exposure='hours'))"),
    ],
)
def test_in_words_and_by_plain_options(words, shown):
    of = output_from(words)[1]
    assert repr(of) == shown
    assert repr(type(of).from_plain_options(**of.plain_options())) == shown


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: hm.Hurdle(hm.Gaussian()), ValueError, "cannot be Gaussian()"),
        (lambda: hm.Hurdle(hm.ZeroInflatedPoisson()), ValueError, "cannot be ZeroInflatedPoisson"),
        (lambda: hm.Hurdle(hm.Binomial(trials=3)), ValueError, "cannot be Binomial"),
        (lambda: hm.Hurdle(hm.Gamma), TypeError, "part must be a likelihood"),
        (lambda: hm.Hurdle(hm.Gamma(), latent=("rate", "zero")), ValueError, "must name"),
        (lambda: output_from("rain:hurdle"), ValueError, "should name its part"),
    ],
)
def test_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_constant_probability_of_zero_is_learned():
    x = rng.uniform(size=120)
    y = np.where(rng.uniform(size=120) < 0.3, 0.0, rng.poisson(3.0, 120) + 1.0)
    of = hm.Hurdle(hm.Poisson(), latent=("rate",))
    model = hm.HetMOGP({"n": of}, latents=1, inducing=6, progress=False).fit(x, {"n": y})
    np.testing.assert_allclose(
        model.likelihoods_["n"].constants["zero"], np.mean(y == 0), atol=0.02
    )


def test_nothing_but_zeros_is_doubted():
    model = hm.HetMOGP({"y": hm.Hurdle(hm.Gamma())}, latents=1, inducing=4, progress=False)
    with pytest.warns(UserWarning, match="output 'y': all of its values are zero"):
        model.fit(np.arange(12.0), {"y": np.zeros(12)})
    assert np.all(model.predict([3.0])["y"].prob_zero > 0.8)
