"""Likelihoods against scipy.stats, and their expectations against dense numerical integration."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from oracles import EdgedBeta, Hurdled, Inflated, LogitNormal, LogLogistic, Ordered
from scipy import integrate, optimize, special, stats

import hetmogp as hm
from hetmogp.session import session


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


class Case(NamedTuple):
    """A likelihood, and the same distribution in scipy for parameter functions f (..., J)."""

    likelihood: hm.Likelihood
    frozen: Callable[..., Any]  # f -> a frozen distribution of scipy.stats
    values: tuple  # observations in its support


def bernoulli(p):
    return lambda f: stats.bernoulli(p(f[..., 0]))


def categorical_log_prob(y, f):
    logits = np.concatenate([np.zeros((*f.shape[:-1], 1)), f], axis=-1)
    return special.log_softmax(logits, axis=-1)[..., int(y)]


def negative_binomial(mean, concentration):
    return stats.nbinom(concentration, concentration / (concentration + mean))


def learned(likelihood, **constants):
    """A likelihood whose free constants have been learned to be these."""
    free = {name: np.log(value) for name, value in constants.items()}
    return eqx.tree_at(lambda of: of.free, likelihood, free, is_leaf=lambda x: isinstance(x, dict))


REAL = (-3.0, -0.2, 0.0, 1.5, 40.0)
POSITIVE = (1e-3, 0.4, 1.0, 7.0)
COUNTS = (0.0, 1.0, 4.0, 300.0)
CASES = {
    "Gaussian": Case(hm.Gaussian(scale=0.7), lambda f: stats.norm(f[..., 0], 0.7), REAL),
    "Gaussian(mean, scale)": Case(
        hm.Gaussian(latent=("mean", "scale")),
        lambda f: stats.norm(f[..., 0], np.exp(f[..., 1])),
        REAL,
    ),
    "HetGaussian": Case(
        hm.HetGaussian(), lambda f: stats.norm(f[..., 0], np.exp(0.5 * f[..., 1])), REAL
    ),
    "StudentT": Case(hm.StudentT(scale=0.5, df=3.5), lambda f: stats.t(3.5, f[..., 0], 0.5), REAL),
    "StudentT(location, scale)": Case(
        hm.StudentT(df=4.0, latent=("location", "scale")),
        lambda f: stats.t(4.0, f[..., 0], np.exp(f[..., 1])),
        REAL,
    ),
    "Bernoulli": Case(hm.Bernoulli(), bernoulli(special.expit), (0.0, 1.0)),
    "Bernoulli probit": Case(hm.Bernoulli("probit"), bernoulli(special.ndtr), (0.0, 1.0)),
    "Poisson": Case(
        hm.Poisson(), lambda f: stats.poisson(np.exp(f[..., 0])), (0.0, 1.0, 4.0, 300.0)
    ),
    "Exponential": Case(
        hm.Exponential(), lambda f: stats.expon(scale=np.exp(-f[..., 0])), (0.0, *POSITIVE)
    ),
    "Gamma": Case(
        hm.Gamma(),
        lambda f: stats.gamma(np.exp(f[..., 0]), scale=np.exp(-f[..., 1])),
        POSITIVE,
    ),
    "Gamma(rate)": Case(
        hm.Gamma(latent=("rate",), shape=2.0),
        lambda f: stats.gamma(2.0, scale=np.exp(-f[..., 0])),
        POSITIVE,
    ),
    "Beta": Case(
        hm.Beta(),
        lambda f: stats.beta(
            special.expit(f[..., 0]) * np.exp(f[..., 1]),
            special.expit(-f[..., 0]) * np.exp(f[..., 1]),
        ),
        (1e-3, 0.3, 0.5, 0.98),
    ),
    "Beta(mean)": Case(
        hm.Beta(latent=("mean",), concentration=6.0),
        lambda f: stats.beta(6 * special.expit(f[..., 0]), 6 * special.expit(-f[..., 0])),
        (1e-3, 0.3, 0.5, 0.98),
    ),
    "HetStudentT": Case(
        hm.HetStudentT(df=4.0), lambda f: stats.t(4.0, f[..., 0], np.exp(f[..., 1])), REAL
    ),
    "Binomial": Case(
        hm.Binomial(trials=7), lambda f: stats.binom(7, special.expit(f[..., 0])), (0.0, 3.0, 7.0)
    ),
    "NegativeBinomial": Case(
        hm.NegativeBinomial(concentration=2.5),
        lambda f: negative_binomial(np.exp(f[..., 0]), 2.5),
        COUNTS,
    ),
    "NegativeBinomial(mean, concentration)": Case(
        hm.NegativeBinomial(latent=("mean", "concentration")),
        lambda f: negative_binomial(np.exp(f[..., 0]), np.exp(f[..., 1])),
        (0.0, 1.0, 4.0),
    ),
    "ZeroInflatedPoisson": Case(
        hm.ZeroInflatedPoisson(),
        lambda f: Inflated(special.expit(f[..., 1]), stats.poisson(np.exp(f[..., 0]))),
        (0.0, 1.0, 4.0),
    ),
    "ZeroInflatedPoisson(rate)": Case(
        hm.ZeroInflatedPoisson(zero=0.2, latent=("rate",)),
        lambda f: Inflated(0.2, stats.poisson(np.exp(f[..., 0]))),
        (0.0, 1.0, 4.0),
    ),
    "ZeroInflatedNegativeBinomial": Case(
        hm.ZeroInflatedNegativeBinomial(concentration=1.5),
        lambda f: Inflated(special.expit(f[..., 1]), negative_binomial(np.exp(f[..., 0]), 1.5)),
        (0.0, 1.0, 4.0),
    ),
    "Hurdle(Poisson)": Case(
        hm.Hurdle(hm.Poisson()),
        lambda f: Hurdled(special.expit(f[..., 1]), stats.poisson(np.exp(f[..., 0]))),
        (0.0, 1.0, 4.0),
    ),
    "Hurdle(NegativeBinomial)": Case(
        hm.Hurdle(hm.NegativeBinomial(concentration=1.5)),
        lambda f: Hurdled(special.expit(f[..., 1]), negative_binomial(np.exp(f[..., 0]), 1.5)),
        (0.0, 1.0, 4.0),
    ),
    "Hurdle(LogNormal)": Case(
        hm.Hurdle(hm.LogNormal(scale=0.6)),
        lambda f: Hurdled(special.expit(f[..., 1]), stats.lognorm(0.6, scale=np.exp(f[..., 0]))),
        (0.0, *POSITIVE),
    ),
    "Hurdle(Gamma(rate))": Case(
        hm.Hurdle(hm.Gamma(shape=2.0, latent=("rate",))),
        lambda f: Hurdled(special.expit(f[..., 1]), stats.gamma(2.0, scale=np.exp(-f[..., 0]))),
        (0.0, *POSITIVE),
    ),
    "Ordinal": Case(
        learned(hm.Ordinal(classes=[0, 1, 2, 3]), gap1=0.8, gap2=1.5),
        lambda f: Ordered(f[..., 0], [0.0, 0.8, 2.3]),
        (0.0, 1.0, 2.0, 3.0),
    ),
    "LogNormal": Case(
        hm.LogNormal(scale=0.6), lambda f: stats.lognorm(0.6, scale=np.exp(f[..., 0])), POSITIVE
    ),
    "Weibull": Case(
        hm.Weibull(shape=1.7),
        lambda f: stats.weibull_min(1.7, scale=np.exp(f[..., 0])),
        (0.1, 0.4, 1.0, 7.0),
    ),
    "LogLogistic": Case(
        hm.LogLogistic(shape=3.0), lambda f: stats.fisk(3.0, scale=np.exp(f[..., 0])), POSITIVE
    ),
    "LogLogistic(scale, shape)": Case(
        hm.LogLogistic(latent=("scale", "shape")),
        lambda f: LogLogistic(f[..., 0], np.exp(-f[..., 1])),
        (0.4, 1.0, 7.0),
    ),
    "LogitNormal": Case(
        hm.LogitNormal(scale=0.8), lambda f: LogitNormal(f[..., 0], 0.8), (1e-3, 0.3, 0.98)
    ),
    "ZeroOneInflatedBeta": Case(
        hm.ZeroOneInflatedBeta(concentration=5.0, one=0.3),
        lambda f: EdgedBeta(
            special.expit(f[..., 1]),
            0.3,
            stats.beta(5 * special.expit(f[..., 0]), 5 * special.expit(-f[..., 0])),
        ),
        (0.0, 0.3, 0.98, 1.0),
    ),
}
CATEGORICAL = {K: hm.Categorical(classes=list(range(K))) for K in (2, 3, 5)}
DISCRETE = [name for name in CASES if CASES[name].likelihood.discrete]
CONTINUOUS = [name for name in CASES if name not in DISCRETE]
each = pytest.mark.parametrize("name", CASES)


def log_prob_oracle(name, y, f):
    """Log p(y | f) by scipy, by functions that keep their digits in the tails."""
    sign = 2.0 * y - 1.0
    if name == "Bernoulli":
        return special.log_expit(sign * f[..., 0])
    if name == "Bernoulli probit":
        return special.log_ndtr(sign * f[..., 0])
    frozen = CASES[name].frozen(f)
    return frozen.logpmf(y) if name in DISCRETE else frozen.logpdf(y)


def points(J, values):
    return np.stack(np.meshgrid(*[values] * J, indexing="ij"), axis=-1).reshape(-1, J)


@eqx.filter_jit
def _table(likelihood, method, y, f):
    one = getattr(likelihood, method)
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(y, f)


def table(likelihood, method, y, f):
    """A method of one point, over all pairs of y and f: (len(y), len(f))."""
    return np.asarray(_table(likelihood, method, jnp.asarray(y), jnp.asarray(f)))


# -- densities -------------------------------------------------------------------------------------


MODERATE = [-6.0, -2.0, -0.5, 0.0, 1.0, 3.0, 6.0]
LARGE = [-30.0, -15.0, 15.0, 30.0]


@eqx.filter_jit
def _density(likelihood, y, f):
    both = jax.value_and_grad(likelihood.log_prob, argnums=1)
    return jax.vmap(jax.vmap(both, (None, 0)), (0, None))(y, f)


@cache
def density(name):
    """Moderate and large f, and for every y and f the log density and its gradient."""
    case = CASES[name]
    J = len(case.likelihood.latent)
    f = np.concatenate([points(J, MODERATE), points(J, [0.0, *LARGE])])
    value, gradient = _density(case.likelihood, jnp.asarray(case.values), jnp.asarray(f))
    return f, np.asarray(value), np.asarray(gradient)


@each
def test_log_prob_equals_scipy(name):
    f, ours, _ = density(name)
    near = np.abs(f).max(axis=1) < 10
    theirs = np.stack([log_prob_oracle(name, y, f[near]) for y in CASES[name].values])
    digits = 1e-6 if "Beta" in name else 1e-9  # JAX's log B(a, b) is good to 3e-7 only
    np.testing.assert_allclose(ours[:, near], theirs, rtol=10 * digits, atol=digits)


@pytest.mark.parametrize("name", ["Gaussian", "StudentT", "Bernoulli", "Bernoulli probit"])
def test_log_prob_keeps_its_digits_in_the_tails(name):
    """|f| of 30: a probability of e⁻³⁰ (logit) or e⁻⁴⁵⁰ (probit) is neither 0 nor 1."""
    f, ours, _ = density(name)
    theirs = np.stack([log_prob_oracle(name, y, f) for y in CASES[name].values])
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-15)


@each
def test_log_prob_and_gradient_are_finite_for_large_f(name):
    _, value, gradient = density(name)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradient))


@each
def test_gradient_of_log_prob_equals_differences_of_scipy(name):
    f, _, gradient = density(name)
    near = np.abs(f).max(axis=1) < 3.5
    for i, y in enumerate(CASES[name].values):
        for j in range(f.shape[1]):
            step = 1e-5 * np.eye(f.shape[1])[j]
            above, below = (log_prob_oracle(name, y, f[near] + d) for d in (step, -step))
            slope = (above - below) / 2e-5
            np.testing.assert_allclose(gradient[i, near, j], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("K", CATEGORICAL)
def test_categorical_log_prob(K):
    likelihood = CATEGORICAL[K]
    f = np.concatenate([points(K - 1, [-30.0, 0.5, 30.0]), points(K - 1, [-1.0, 2.0])])
    ours = table(likelihood, "log_prob", np.arange(float(K)), f)
    theirs = np.stack([categorical_log_prob(k, f) for k in range(K)])
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    gradient = jax.vmap(jax.grad(lambda f: likelihood.log_prob(jnp.asarray(1.0), f)))(f)
    expected = -np.asarray(jax.vmap(likelihood.probabilities)(jnp.asarray(f)))[:, 1:]
    expected[:, 0] += 1.0
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_two_classes_are_a_bernoulli():
    f = points(1, [-4.0, 0.0, 2.5])
    np.testing.assert_allclose(
        table(CATEGORICAL[2], "log_prob", (0.0, 1.0), f),
        table(hm.Bernoulli(), "log_prob", (0.0, 1.0), f),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("likelihood", "theirs", "values"),
    [
        (hm.StudentT(scale=0.5, df=3.5), lambda f: dist.StudentT(3.5, f[0], 0.5), REAL),
        (hm.Gamma(), lambda f: dist.Gamma(jnp.exp(f[0]), jnp.exp(f[1])), POSITIVE),
    ],
    ids=["StudentT", "Gamma"],
)
def test_log_prob_equals_numpyro(likelihood, theirs, values):
    f = points(len(likelihood.latent), [-1.0, 0.5, 2.0])
    ours = table(likelihood, "log_prob", values, f)
    expected = jax.vmap(lambda y: jax.vmap(lambda f: theirs(f).log_prob(y))(jnp.asarray(f)))(
        jnp.asarray(values)
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("f1", "f2"), [(5.0, 2.0), (15.0, 6.0), (30.0, 6.0)])
def test_beta_is_its_own_mirror_image(f1, f2):
    """y ~ Beta(f₁, f₂) if and only if 1 − y ~ Beta(−f₁, f₂), however near the mean is to one."""
    y = jnp.asarray(0.5)
    right = hm.Beta().log_prob(y, jnp.array([f1, f2]))
    left = hm.Beta().log_prob(y, jnp.array([-f1, f2]))
    np.testing.assert_allclose(right, left, rtol=1e-6)


@pytest.mark.parametrize("f2", [10.0, 20.0, 25.0])
def test_beta_of_high_concentration_near_its_mode(f2):
    """Large shapes cancel in log B(a, b): the Gaussian limit of the density is the oracle."""
    m, c = special.expit(0.4), np.exp(f2)
    sd = np.sqrt(m * (1 - m) / (1 + c))
    ours = hm.Beta().log_prob(jnp.asarray(m), jnp.array([0.4, f2]))
    np.testing.assert_allclose(ours, stats.norm.logpdf(0.0, 0.0, sd), atol=2e-2)


@pytest.mark.parametrize("f1", [10.0, 20.0, 25.0])
def test_gamma_of_large_shape_near_its_mode(f1):
    ours = hm.Gamma().log_prob(jnp.asarray(1.0), jnp.array([f1, f1]))
    np.testing.assert_allclose(ours, stats.norm.logpdf(0.0, 0.0, np.exp(-0.5 * f1)), atol=2e-2)


def test_learned_constants_enter_through_their_links():
    """A free scale of log 0.7 is the scale fixed at 0.7."""
    for free, fixed, values in [
        (hm.Gaussian(), hm.Gaussian(scale=0.7), {"scale": 0.7}),
        (hm.StudentT(), hm.StudentT(scale=0.7, df=3.0), {"scale": 0.7, "df": 3.0}),
        (hm.Beta(latent=("mean",)), hm.Beta(latent=("mean",), concentration=5.0), None),
    ]:
        values = values or {"concentration": 5.0}
        assert set(free.free) == set(values)
        logs = {name: jnp.log(jnp.asarray(value)) for name, value in values.items()}
        learned = eqx.tree_at(
            lambda one: one.free, free, logs, is_leaf=lambda leaf: isinstance(leaf, dict)
        )
        y, f = jnp.asarray(0.4), jnp.array([0.2])
        np.testing.assert_allclose(learned.log_prob(y, f), fixed.log_prob(y, f), rtol=1e-12)


# -- moments, distribution functions, samples ------------------------------------------------------


@each
def test_mean_and_variance_equal_scipy(name):
    case = CASES[name]
    f = points(len(case.likelihood.latent), [-3.0, 0.0, 0.7, 2.0])
    frozen = case.frozen(f)
    for method, expected in (("mean", frozen.mean()), ("variance", frozen.var())):
        ours = jax.vmap(getattr(case.likelihood, method))(jnp.asarray(f))
        np.testing.assert_allclose(ours, expected, rtol=1e-10)


def test_student_t_without_a_variance_says_infinity():
    assert np.isinf(hm.StudentT(scale=1.0, df=2.0).variance(jnp.zeros(1)))


@each
def test_cdf_equals_scipy_and_is_monotone(name):
    case = CASES[name]
    f = points(len(case.likelihood.latent), [-2.0, 0.0, 1.0, 3.0])
    frozen = case.frozen(f)
    low, high = frozen.ppf(0.001).min(), frozen.ppf(0.999).max()
    y = np.sort(np.concatenate([np.linspace(low - 1.0, high + 1.0, 60), [0.0, 0.5, 1.0]]))
    ours = table(case.likelihood, "cdf", y, f)
    np.testing.assert_allclose(ours, frozen.cdf(y[:, None]), rtol=1e-7, atol=1e-9)
    assert np.all(np.diff(ours, axis=0) >= -1e-12)


@pytest.mark.parametrize("rate", [1e2, 1e4, 1e6, 1e7])
def test_poisson_cdf_of_large_counts(rate):
    y = np.round(rate + np.sqrt(rate) * np.array([-3.0, -1.0, 0.0, 0.5, 2.0]))
    ours = table(hm.Poisson(), "cdf", y, np.log([[rate]]))[:, 0]
    np.testing.assert_allclose(ours, stats.poisson(rate).cdf(y), atol=1e-6)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_gamma_and_beta_cdf_of_large_shapes(size):
    z = np.array([-3.0, -1.0, 0.0, 0.5, 2.0])
    y = 1.0 + z / np.sqrt(size)
    f = np.log([[size, size]])
    ours = table(hm.Gamma(), "cdf", y[y > 0], f)[:, 0]
    np.testing.assert_allclose(ours, stats.gamma(size, scale=1 / size).cdf(y[y > 0]), atol=1e-6)
    y = 0.5 + 0.5 * z / np.sqrt(size)
    ours = table(hm.Beta(), "cdf", y, np.array([[0.0, np.log(size)]]))[:, 0]
    np.testing.assert_allclose(ours, stats.beta(size / 2, size / 2).cdf(y), atol=1e-6)


DRAWS = 20_000


@eqx.filter_jit
def _draw(likelihood, keys, f):
    return jax.vmap(likelihood.sample, (0, None))(keys, f)


def sampled(likelihood, f, seed=11):
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return np.asarray(_draw(likelihood, keys, jnp.asarray(f, float)))


@cache
def draws(name):
    likelihood = CASES[name].likelihood
    f = np.array([0.4, 0.8])[: len(likelihood.latent)]
    return f, sampled(likelihood, f)


VARIANTS = ("Gaussian(mean, scale)", "StudentT", "Gamma(rate)", "Beta(mean)")  # slow to compile


@pytest.mark.parametrize("name", [name for name in CASES if name not in VARIANTS])
def test_samples_have_the_right_mean(name):
    f, y = draws(name)
    frozen = CASES[name].frozen(f)
    assert CASES[name].likelihood.valid(y).all()
    assert abs(y.mean() - frozen.mean()) < 4 * frozen.std() / np.sqrt(DRAWS)


EDGED = [name for name in CONTINUOUS if CASES[name].likelihood.atoms]


@pytest.mark.parametrize("name", EDGED)
def test_samples_reach_the_ends_as_often_as_they_should(name):
    f, y = draws(name)
    truth, atoms = CASES[name].frozen(f), CASES[name].likelihood.atoms
    for end in atoms:
        p = np.exp(truth.logpdf(end))
        assert abs(np.mean(y == end) - p) <= 4 * np.sqrt(p * (1 - p) / DRAWS)
    assert stats.kstest(y[~np.isin(y, atoms)], truth.part.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", [n for n in CONTINUOUS if n not in (*VARIANTS, *EDGED)])
def test_samples_have_the_right_distribution(name):
    f, y = draws(name)
    assert stats.kstest(y, CASES[name].frozen(f).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_samples_have_the_right_frequencies(name):
    f, y = draws(name)
    frozen = CASES[name].frozen(f)
    for k in range(4):
        p = frozen.pmf(k)
        assert abs(np.mean(y == k) - p) <= 4 * np.sqrt(p * (1 - p) / DRAWS)


def test_many_discrete_samples_at_once_have_the_right_frequencies():
    faster = set()
    for name in DISCRETE:
        case = CASES[name]
        f = np.array([0.4, 0.8])[: len(case.likelihood.latent)]
        y = case.likelihood.sample_many(np.random.default_rng(3), np.tile(f[:, None], (1, DRAWS)))
        if y is None:
            continue
        faster.add(case.likelihood.kind)
        for k in range(4):
            p = case.frozen(f).pmf(k)
            assert abs(np.mean(y == k) - p) <= 4.5 * np.sqrt(p * (1 - p) / DRAWS)
    assert {"Poisson", "NegativeBinomial", "ZeroInflatedPoisson", "Binomial"} <= faster


def test_many_counts_beyond_whole_numbers_of_the_machine():
    y = hm.Poisson().sample_many(np.random.default_rng(0), np.full((1, 100), 60.0))
    np.testing.assert_allclose(y, np.exp(60.0), rtol=1e-9)


@pytest.mark.parametrize("K", CATEGORICAL)
def test_categorical_samples_and_probabilities(K):
    likelihood, f = CATEGORICAL[K], np.linspace(-1.0, 1.5, K - 1)
    p = special.softmax([0.0, *f])
    np.testing.assert_allclose(likelihood.probabilities(jnp.asarray(f)), p, rtol=1e-12)
    y = sampled(likelihood, f)
    share = np.bincount(y.astype(int), minlength=K) / DRAWS
    assert np.all(np.abs(share - p) < 4 * np.sqrt(p * (1 - p) / DRAWS))


def test_samples_of_extreme_shapes_stay_in_the_support():
    for likelihood, f in ((hm.Gamma(), [-4.0, 1.0]), (hm.Beta(), [6.0, 1.0]), (hm.Beta(), [0, -3])):
        y = sampled(likelihood, f)
        assert np.all(np.isfinite(y)), likelihood
        assert np.all(y >= 0), likelihood


# -- expectations ----------------------------------------------------------------------------------

MEAN = np.array([0.4, -0.3, 0.8, 0.1])
FACTOR = np.array([[0.7, 0.0], [0.4, -0.5], [-0.3, 0.6], [0.2, 0.7]])
COV = FACTOR @ FACTOR.T + 0.05 * np.eye(4)


@cache
def oracle_nodes(J):
    """A dense trapezoidal rule under N(MEAN, COV): far finer than anything in the package."""
    e = np.linspace(-9.0, 9.0, {1: 20_001, 2: 501}[J])
    w = np.exp(-0.5 * e**2)
    grid = points(J, e)
    mass = np.prod(points(J, w / w.sum()), axis=-1)
    return MEAN[:J] + grid @ np.linalg.cholesky(COV[:J, :J]).T, mass


@cache
def oracle_expectations(name):
    case = CASES[name]
    f, mass = oracle_nodes(len(case.likelihood.latent))
    log_p = np.stack([log_prob_oracle(name, y, f) for y in case.values])
    centre = log_p @ mass
    return centre, np.sqrt((log_p - centre[:, None]) ** 2 @ mass)


@eqx.filter_jit
def _expectations(likelihood, method, values, mean, cov, key):
    return jax.vmap(lambda y: likelihood.expectation(y, mean, cov, method, key))(values)


def expectations(likelihood, method, values, mean, cov, key=None):
    """E[log p(y | f)] for each of several values y."""
    values, mean, cov = (jnp.asarray(a) for a in (values, mean, cov))
    return np.asarray(_expectations(likelihood, method, values, mean, cov, key))


# the error of the package's default rule relative to the standard deviation of log p: closed forms
# are exact, rules of 20 and 12² nodes are not
TOLERANCE = {
    "StudentT": 2e-3,
    "StudentT(location, scale)": 2e-2,
    "HetStudentT": 2e-2,
    "Beta": 1e-4,
    "ZeroInflatedPoisson": 2e-5,
    "ZeroInflatedPoisson(rate)": 2e-6,
    "LogLogistic": 1e-5,
    "LogLogistic(scale, shape)": 1e-2,
}


@eqx.filter_jit
def _by_every_method(likelihood, values, mean, cov, key):
    def one(y):
        rules = [("auto", None), ("quadrature", None), ("montecarlo", None), ("montecarlo", key)]
        return jnp.stack([likelihood.expectation(y, mean, cov, *rule) for rule in rules])

    return jax.vmap(one, out_axes=1)(values)


@cache
def by_every_method(name):
    likelihood, J = CASES[name].likelihood, len(CASES[name].likelihood.latent)
    values, mean, cov = map(jnp.asarray, (CASES[name].values, MEAN[:J], COV[:J, :J]))
    return np.asarray(_by_every_method(likelihood, values, mean, cov, jax.random.key(2)))


@each
@pytest.mark.parametrize("method", ["auto", "quadrature"])
def test_expectation_equals_dense_integration(name, method):
    """Under a joint with non-zero correlation, for likelihoods with two parameters."""
    ours = by_every_method(name)[0 if method == "auto" else 1]
    truth, spread = oracle_expectations(name)
    error = np.abs(ours - truth) / np.maximum(spread, 1e-3)
    assert error.max() < TOLERANCE.get(name, 1e-6), error


@each
def test_montecarlo_expectation_is_near(name):
    """With and without a key, within four standard errors of as many plain samples."""
    truth, spread = oracle_expectations(name)
    for ours in by_every_method(name)[2:]:
        assert np.all(np.abs(ours - truth) < 4 * spread / np.sqrt(128))


@cache
def categorical_oracle(K):
    """Mean and standard deviation of log p(class) over 10⁶ samples of f."""
    f = np.random.default_rng(0).multivariate_normal(
        MEAN[: K - 1], COV[: K - 1, : K - 1], size=1_000_000, method="cholesky"
    )
    log_p = special.log_softmax(np.concatenate([np.zeros((len(f), 1)), f], axis=1), axis=1)
    return log_p.mean(axis=0), log_p.std(axis=0)


@pytest.mark.parametrize("K", CATEGORICAL)
@pytest.mark.parametrize("method", ["auto", "montecarlo"])
def test_categorical_expectation(K, method):
    """Against 10⁶ samples: a grid for two and three classes, quasi-Monte Carlo beyond."""
    truth, spread = categorical_oracle(K)
    ours = expectations(
        CATEGORICAL[K], method, np.arange(float(K)), MEAN[: K - 1], COV[: K - 1, : K - 1]
    )
    grid = method == "auto" and K <= 3
    assert np.all(np.abs(ours - truth) < 4 * spread / np.sqrt(1e6 if grid else 128))


def test_categorical_refuses_a_grid_over_many_classes():
    with pytest.raises(ValueError, match="quadrature"):
        expectations(CATEGORICAL[5], "quadrature", (0.0,), MEAN, COV)


@eqx.filter_jit
def _bernoulli(means, variance):
    cov = variance[None, None]
    return jax.vmap(lambda m: hm.Bernoulli().expectation(jnp.ones(()), m[None], cov))(means)


@pytest.mark.parametrize("variance", [0.0, 1e-6, 0.1, 1.0, 10.0, 100.0, 400.0])
def test_bernoulli_expectation_for_any_variance(variance):
    """To 1e-7 of scipy.integrate.quad, up to a standard deviation of twenty."""
    means = np.array([-30.0, -3.0, 0.0, 0.7, 12.0])
    ours = _bernoulli(jnp.asarray(means), jnp.asarray(variance))
    sd = np.sqrt(variance)

    for m, value in zip(means, np.asarray(ours), strict=True):
        kink = [] if sd == 0 else [e for e in (-m / sd,) if abs(e) < 12]
        truth, _ = integrate.quad(
            lambda e, m=m: special.log_expit(m + sd * e) * stats.norm.pdf(e),
            *(-12.0, 12.0),
            points=kink or None,
            limit=400,
            epsabs=1e-11,
        )
        assert abs(value - truth) < 1e-7, (m, variance)


def test_bernoulli_expectation_has_the_right_slopes():
    """dE/dμ = E[d/df], dE/dv = ½ E[d²/df²] at a large variance."""
    likelihood, m, v = hm.Bernoulli(), 1.3, 50.0
    slope_m, slope_v = jax.grad(
        lambda m, v: likelihood.expectation(jnp.ones(()), m[None], v[None, None]), argnums=(0, 1)
    )(jnp.asarray(m), jnp.asarray(v))
    e = np.linspace(-12, 12, 200_001)
    w = stats.norm.pdf(e) / stats.norm.pdf(e).sum()
    p = special.expit(m + np.sqrt(v) * e)
    np.testing.assert_allclose(slope_m, w @ (1 - p), atol=1e-7)
    np.testing.assert_allclose(slope_v, -0.5 * (w @ (p * (1 - p))), atol=1e-7)


@pytest.mark.parametrize("c", [-0.6, 0.0, 0.3, 0.7])
def test_het_gaussian_closed_form(c):
    """E[log N(y; f₁, e^f₂)] to 1e-8 of a dense two-dimensional quadrature."""
    mean, cov = np.array([0.5, -0.4]), np.array([[0.8, c], [c, 0.9]])
    x, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    f = mean + points(2, x) @ np.linalg.cholesky(cov).T
    mass = np.prod(points(2, w), axis=-1)
    values = np.array([-2.0, 0.5, 3.0])
    truth = [stats.norm.logpdf(y, f[:, 0], np.exp(0.5 * f[:, 1])) @ mass for y in values]
    ours = expectations(hm.HetGaussian(), "auto", values, mean, cov)
    np.testing.assert_allclose(ours, truth, rtol=1e-8)


@pytest.mark.parametrize("v", [0.01, 1.0, 4.0])
def test_gamma_closed_form_for_wide_shapes(v):
    """The one quadrature inside it, E[log Γ(e^f₁)], holds for wide q too."""
    mean, cov = np.array([0.5, -0.4]), np.array([[v, 0.2 * v], [0.2 * v, 0.3 * v]])
    e = np.linspace(-10, 10, 801)
    f = mean + points(2, e) @ np.linalg.cholesky(cov).T
    mass = np.prod(points(2, stats.norm.pdf(e) / stats.norm.pdf(e).sum()), axis=-1)
    values = np.array([0.1, 1.0, 5.0])
    truth = [stats.gamma.logpdf(y, np.exp(f[:, 0]), scale=np.exp(-f[:, 1])) @ mass for y in values]
    ours = expectations(hm.Gamma(), "auto", values, mean, cov)
    np.testing.assert_allclose(ours, truth, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in CASES if len(CASES[n].likelihood.latent) == 2])
def test_expectation_under_one_shared_latent(name):
    """f₁ = u, f₂ = −u/2: the joint is singular; value against a one-dimensional integral."""
    case, w = CASES[name], np.array([0.6, -0.3])
    mean, cov = np.array([0.3, 0.5]), np.outer(w, w)
    e = np.linspace(-9.0, 9.0, 4001)
    mass = stats.norm.pdf(e) / stats.norm.pdf(e).sum()
    y = case.values[1]
    truth = log_prob_oracle(name, y, mean + e[:, None] * w) @ mass
    value, slopes = jax.jit(jax.value_and_grad(case.likelihood.expectation, argnums=(1, 2)))(
        jnp.asarray(y), jnp.asarray(mean), jnp.asarray(cov)
    )
    np.testing.assert_allclose(value, truth, rtol=TOLERANCE.get(name, 1e-6))
    assert all(np.all(np.isfinite(slope)) for slope in slopes)
    # dE/d(scale of u) = tr(dE/dC · 2 w wᵀ): the direction in which one latent's variance moves C
    spread = 1.001
    wider = log_prob_oracle(name, y, mean + spread * e[:, None] * w) @ mass
    narrower = log_prob_oracle(name, y, mean + e[:, None] * w / spread) @ mass
    along = (wider - narrower) / (spread**2 - spread**-2)
    np.testing.assert_allclose(
        np.sum(np.asarray(slopes[1]) * cov), along, rtol=1e-2 if name in TOLERANCE else 1e-4
    )


def test_only_the_joint_is_a_lower_bound():
    """One latent u ~ N(0, 1), f₁ = f₂ = u, y = 2: the factorised bound exceeds the evidence."""
    likelihood, y = hm.HetGaussian(), 2.0
    u = np.linspace(-14.0, 14.0, 400_001)
    joint_density = stats.norm.pdf(y, u, np.exp(0.5 * u)) * stats.norm.pdf(u)
    evidence = np.log(integrate.trapezoid(joint_density, u))

    @jax.jit
    def bound(q, pattern):
        mean, variance = q[0], jnp.exp(q[1])
        kl = 0.5 * (variance + mean**2 - 1.0 - q[1])
        fit = likelihood.expectation(jnp.asarray(y), jnp.full(2, mean), variance * pattern)
        return fit - kl

    def best(pattern):
        found = optimize.minimize(
            lambda q: -float(bound(jnp.asarray(q), pattern)), np.zeros(2), method="Nelder-Mead"
        )
        return -found.fun

    joint, factorised = best(jnp.ones((2, 2))), best(jnp.eye(2))
    assert joint < evidence < factorised
    np.testing.assert_allclose([evidence, joint, factorised], [-2.522, -2.552, -2.293], atol=1e-3)


# -- starts and errors -----------------------------------------------------------------------------

AWKWARD = {
    "real": {"constant": [3.0] * 5, "zero": [0.0] * 4, "single": [-2.0], "large": [1e8, 2e8]},
    "positive": {"constant": [3.0] * 5, "single": [0.01], "wide": [1e-6, 1e6]},
    "counts": {"zeros": [0.0] * 6, "single zero": [0.0], "single": [7.0], "large": [1e7, 0.0]},
    "binary": {"zeros": [0.0] * 3, "ones": [1.0] * 3, "single": [1.0]},
    "unit": {"constant": [0.5] * 3, "single": [0.999], "ends": [1e-9, 1 - 1e-9]},
}
KINDS = {
    "real": [
        hm.Gaussian(),
        hm.Gaussian(latent=("mean", "scale")),
        hm.HetGaussian(),
        hm.StudentT(),
        hm.StudentT(latent=("location", "scale")),
        hm.StudentT(df=3.0),
    ],
    "positive": [
        hm.Exponential(),
        hm.Gamma(),
        hm.Gamma(latent=("rate",), shape=2.0),
        hm.Gamma(latent=("rate",)),
    ],
    "counts": [hm.Poisson()],
    "binary": [hm.Bernoulli(), hm.Bernoulli("probit"), hm.Categorical(classes=[0, 1])],
    "unit": [hm.Beta(), hm.Beta(latent=("mean",))],
}
STARTS = [
    pytest.param(likelihood, np.array(y), id=f"{likelihood}-{label}")
    for kind, likelihoods in KINDS.items()
    for likelihood in likelihoods
    for label, y in AWKWARD[kind].items()
] + [pytest.param(hm.Exponential(), np.zeros(3), id="Exponential-zeros")]


@pytest.mark.parametrize(("likelihood", "y"), STARTS)
def test_start_is_finite_for_awkward_values(likelihood, y):
    start = likelihood.start(y)
    J = len(likelihood.latent)
    assert start.constant.shape == start.spread.shape == (J,)
    assert np.all(np.isfinite(start.constant))
    assert np.all(np.isfinite(start.spread))
    assert np.all(start.spread > 0)
    assert set(start.free) == set(likelihood.free)
    assert np.all(np.isfinite(list(start.free.values())))


def test_start_is_the_best_constant_model():
    """The constant of one-parameter likelihoods is the maximum likelihood one."""
    y = np.array([1.0, 4.0, 0.0, 2.0, 2.0])
    np.testing.assert_allclose(hm.Poisson().start(y).constant, [np.log(1.8)])
    np.testing.assert_allclose(hm.Exponential().start(y).constant, [-np.log(1.8)])
    np.testing.assert_allclose(hm.Gaussian().start(y).constant, [1.8])
    np.testing.assert_allclose(hm.StudentT().start(y).constant, [2.0])


def test_start_of_gamma_and_beta_matches_moments():
    rng = np.random.default_rng(0)
    y = rng.gamma(3.0, 2.0, size=500)
    f = hm.Gamma().start(y).constant[None]
    frozen = CASES["Gamma"].frozen(f)
    np.testing.assert_allclose([frozen.mean()[0], frozen.var()[0]], [y.mean(), y.var()])
    y = rng.beta(3.0, 2.0, size=500)
    frozen = CASES["Beta"].frozen(hm.Beta().start(y).constant[None])
    np.testing.assert_allclose([frozen.mean()[0], frozen.var()[0]], [y.mean(), y.var()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hm.Gaussian(scale=0.0), "scale=0.0.*range"),
        (lambda: hm.Gaussian(scale=-1.0), "scale=-1.0.*range"),
        (lambda: hm.Gaussian(scale=float("nan")), "scale=nan"),
        (lambda: hm.Gaussian(scale=float("inf")), "scale=inf"),
        (lambda: hm.Gaussian(latent=("variance",)), "no parameter 'variance'.*scale"),
        (lambda: hm.Gaussian(latent=()), "at least one latent"),
        (lambda: hm.Gaussian(scale=1.0, latent=("mean", "scale")), "scale cannot be latent"),
        (lambda: hm.Gamma(shape=2.0), "shape cannot be latent"),
        (lambda: hm.StudentT(df=-3.0), "df=-3.0"),
        (lambda: hm.Beta(mean=1.5, latent=("concentration",)), "mean=1.5"),
        (lambda: hm.Bernoulli(link="cauchit"), "cauchit"),
        (lambda: hm.Categorical(classes=["a"]), "two labels"),
        (lambda: hm.Categorical(classes=["a", "b", "a"]), "duplicates"),
        (lambda: hm.Likelihood.__init__(hm.Gaussian(), mode=3.0), "no parameter 'mode'"),
    ],
)
def test_constructor_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_latent_parameters_keep_the_order_of_the_family():
    assert hm.Gaussian(latent=("scale", "mean")).latent == ("mean", "scale")
    assert hm.Gamma(latent=("rate",), shape=2.0).free == {}
    assert set(hm.StudentT().free) == {"scale", "df"}


@pytest.mark.parametrize(
    ("likelihood", "good", "bad"),
    [
        (hm.Bernoulli(), [0.0, 1.0], [0.5, -1.0, 2.0]),
        (hm.Poisson(), [0.0, 3.0], [-1.0, 0.5]),
        (hm.Exponential(), [0.0, 3.0], [-1e-9]),
        (hm.Gamma(), [1e-9, 3.0], [0.0, -1.0]),
        (hm.Beta(), [1e-9, 0.5], [0.0, 1.0, 1.1]),
        (hm.Gaussian(), [-1e9, 0.0], []),
    ],
)
def test_support(likelihood, good, bad):
    assert likelihood.valid(np.array(good)).all()
    assert not likelihood.valid(np.array(bad)).any()


def test_categorical_reads_and_returns_labels():
    column = np.array(["red", None, "blue", "green", "red"], dtype=object)
    likelihood, codes = hm.Categorical().observe(column)
    assert likelihood.classes == ("blue", "green", "red")
    assert likelihood.latent == ("green", "red")
    np.testing.assert_array_equal(codes, [2.0, np.nan, 0.0, 1.0, 2.0])
    assert list(likelihood.decode(codes[[0, 2, 3]])) == ["red", "blue", "green"]
    with pytest.raises(ValueError, match="pink"):
        likelihood.observe(np.array(["red", "pink"], dtype=object))
    with pytest.raises(ValueError, match="1 class "):
        hm.Categorical().observe(np.array(["red", "red"], dtype=object))


@pytest.mark.parametrize("made", [np.array, pd.Index, pd.Series, tuple])
@pytest.mark.parametrize("kind", [hm.Categorical, hm.Ordinal])
def test_classes_may_come_in_any_sequence(kind, made):
    assert kind(made(["a", "b", "c"])).classes == ("a", "b", "c")
    assert kind(classes=made([3, 1])).classes == (3, 1)
