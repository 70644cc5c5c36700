"""Predictive distributions of one output at one input, against dense numerical integration."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import hetmogp as hm
from hetmogp.inversion import quantiles
from hetmogp.predictive import distribution_function, log_density, moments
from hetmogp.session import session

LEVELS = np.array([0.01, 0.05, 0.3, 0.5, 0.9, 0.99])


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


class Case(NamedTuple):
    """f ~ N(mean, cov), the likelihood of y given f, and the same one in scipy."""

    likelihood: hm.Likelihood
    frozen: Callable[..., Any]  # f (..., J) -> a frozen distribution of scipy.stats
    mean: tuple
    cov: tuple
    values: tuple


def normal(log_scale):
    return lambda f: stats.norm(f[..., 0], np.exp(log_scale(f)))


def student(df, log_scale):
    return lambda f: stats.t(df, f[..., 0], np.exp(log_scale(f)))


def poisson(f):
    return stats.poisson(np.exp(f[..., 0]))


def gamma(f):
    return stats.gamma(np.exp(f[..., 0]), scale=np.exp(-f[..., 1]))


def beta(f):
    c = np.exp(f[..., 1])
    return stats.beta(special.expit(f[..., 0]) * c, special.expit(-f[..., 0]) * c)


PAIR = ((0.5, 0.2), (0.2, 0.4))
RANK_ONE = ((0.36, -0.18), (-0.18, 0.09))
REAL = (-2.0, 0.1, 0.5, 3.0)
CASES = {
    "Gaussian": Case(
        hm.Gaussian(scale=0.7), normal(lambda f: np.log(0.7)), (0.3,), ((0.5,),), REAL
    ),
    "HetGaussian": Case(hm.HetGaussian(), normal(lambda f: 0.5 * f[..., 1]), (0.3, -1), PAIR, REAL),
    "HetGaussian, one latent": Case(
        hm.HetGaussian(), normal(lambda f: 0.5 * f[..., 1]), (0.3, -1), RANK_ONE, REAL
    ),
    "Gaussian(mean, scale)": Case(
        hm.Gaussian(latent=("mean", "scale")), normal(lambda f: f[..., 1]), (0.3, 0.2), PAIR, REAL
    ),
    "StudentT": Case(
        hm.StudentT(scale=0.5, df=3.5), student(3.5, lambda f: np.log(0.5)), (0.3,), ((0.5,),), REAL
    ),
    "StudentT(location, scale)": Case(
        hm.StudentT(df=4.0, latent=("location", "scale")),
        student(4.0, lambda f: f[..., 1]),
        (0.3, 0.2),
        PAIR,
        REAL,
    ),
    "Bernoulli": Case(
        hm.Bernoulli(),
        lambda f: stats.bernoulli(special.expit(f[..., 0])),
        (0.8,),
        ((2.0,),),
        (0.0, 1.0),
    ),
    "Bernoulli probit": Case(
        hm.Bernoulli("probit"),
        lambda f: stats.bernoulli(special.ndtr(f[..., 0])),
        (-0.8,),
        ((2.0,),),
        (0.0, 1.0),
    ),
    "Poisson": Case(hm.Poisson(), poisson, (1.2,), ((0.6,),), (0.0, 2.0, 5.0, 40.0)),
    "Exponential": Case(
        hm.Exponential(),
        lambda f: stats.expon(scale=np.exp(-f[..., 0])),
        (0.4,),
        ((0.8,),),
        (0.0, 0.2, 1.0, 9.0),
    ),
    "Gamma": Case(hm.Gamma(), gamma, (1.0, 0.4), PAIR, (0.1, 1.0, 6.0)),
    "Gamma(rate)": Case(
        hm.Gamma(latent=("rate",), shape=2.0),
        lambda f: stats.gamma(2.0, scale=np.exp(-f[..., 0])),
        (0.4,),
        ((0.8,),),
        (0.1, 1.0, 6.0),
    ),
    "Beta": Case(hm.Beta(), beta, (0.5, 1.2), PAIR, (0.05, 0.5, 0.9)),
    # y is known far better given f than f is: nodes laid on q(f) alone would miss the likelihood
    "sharp Gaussian": Case(
        hm.Gaussian(scale=0.01), normal(lambda f: np.log(0.01)), (0.3,), ((1.0,),), REAL
    ),
    "sharp HetGaussian": Case(
        hm.HetGaussian(),
        normal(lambda f: 0.5 * f[..., 1]),
        (0.3, -7),
        ((1.0, 0.2), (0.2, 0.4)),
        REAL,
    ),
    "sharp StudentT": Case(
        hm.StudentT(scale=0.01, df=3.0),
        student(3.0, lambda f: np.log(0.01)),
        (0.3,),
        ((1.0,),),
        REAL,
    ),
    "sharp Poisson": Case(
        hm.Poisson(), poisson, (np.log(1000.0),), ((1.0,),), (40.0, 700.0, 1000.0, 1100.0, 9000.0)
    ),
    "sharp Gamma(rate)": Case(
        hm.Gamma(latent=("rate",), shape=1000.0),
        lambda f: stats.gamma(1000.0, scale=np.exp(-f[..., 0])),
        (np.log(1000.0),),
        ((1.0,),),
        (0.1, 1.0, 1.06, 6.0),
    ),
    "sharp Gamma": Case(hm.Gamma(), gamma, (6.0, 6.0), PAIR, (0.3, 1.0, 1.1, 3.0)),
    "sharp Beta": Case(hm.Beta(), beta, (0.5, 6.0), PAIR, (0.3, 0.6, 0.63, 0.8)),
    "sharp Gaussian(mean, scale)": Case(
        hm.Gaussian(latent=("mean", "scale")),
        normal(lambda f: f[..., 1]),
        (0.3, -3.0),
        ((1.0, 0.2), (0.2, 0.3)),
        REAL,
    ),
}
each = pytest.mark.parametrize("name", CASES)
DISCRETE = [name for name in CASES if CASES[name].likelihood.discrete]
CONTINUOUS = [name for name in CASES if name not in DISCRETE]


class Oracle:
    """p(y) = ∫ p(y | f) N(f; mean, cov) df by a dense trapezoidal rule."""

    def __init__(self, case, sharp=True):
        J = len(case.mean)
        cov = np.array(case.cov)
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        fine = {1: 16_001, 2: 481 if sharp else 161}[J]
        e = np.linspace(-8.0, 8.0, fine)
        w = np.exp(-0.5 * e**2) / np.exp(-0.5 * e**2).sum()
        grid = np.stack(np.meshgrid(*[e] * J, indexing="ij"), axis=-1).reshape(-1, J)
        mass = np.prod(np.stack(np.meshgrid(*[w] * J, indexing="ij"), axis=-1), axis=-1).ravel()
        seen = mass > 1e-17
        self.mass = mass[seen]
        self.frozen = case.frozen(np.array(case.mean) + grid[seen] @ root.T)
        self.discrete = case.likelihood.discrete

    def moments(self):
        inner, spread = self.frozen.mean(), self.frozen.var()
        mean = self.mass @ inner
        return mean, self.mass @ (spread + (inner - mean) ** 2)

    def log_density(self, y):
        log_p = self.frozen.logpmf(y) if self.discrete else self.frozen.logpdf(y)
        return special.logsumexp(log_p, b=self.mass)

    def cdf(self, y):
        return self.mass @ self.frozen.cdf(y)


def factor(cov):
    """Some F with F Fᵀ = cov, which may be singular."""
    values, vectors = np.linalg.eigh(np.asarray(cov))
    return jnp.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@eqx.filter_jit
def _cdf(likelihood, y, mean, F):
    return jax.vmap(lambda y: distribution_function(likelihood, y, mean, F))(y)


@eqx.filter_jit
def _closed(likelihood, mean, F, values):
    return {
        "moments": moments(likelihood, mean, F),
        "log_density": jax.vmap(lambda y: log_density(likelihood, y, mean, F))(values),
        "cdf": _cdf(likelihood, values, mean, F),
    }


def predict(case, cov, mean_of_y, std_of_y):
    """Everything the package says about one case; cases of one likelihood share a compilation."""
    mean, F = jnp.asarray(case.mean, float), factor(cov)

    def cdf(y, rows=None):
        room = np.resize(y, 2 * len(LEVELS))  # as many as are ever asked for
        return np.asarray(_cdf(case.likelihood, jnp.asarray(room), mean, F))[: len(y)]

    found = quantiles(case.likelihood, cdf, LEVELS, *np.array([[mean_of_y], [std_of_y]]))[:, 0]
    values = jnp.asarray(np.resize(case.values, 5))
    ours = jax.tree.map(np.asarray, _closed(case.likelihood, mean, F, values))
    n = len(case.values)
    return {
        "moments": ours["moments"],
        "log_density": ours["log_density"][:n],
        "cdf": ours["cdf"][:n],
        "quantile": found,
        "cdf at quantile": cdf(found),
        "cdf below quantile": cdf(found - 1.0),
    }


@cache
def both(name):
    case, oracle = CASES[name], Oracle(CASES[name], name.startswith("sharp"))
    mean, variance = oracle.moments()
    return oracle, predict(case, case.cov, mean, np.sqrt(variance))


@each
def test_moments(name):
    oracle, ours = both(name)
    np.testing.assert_allclose(ours["moments"], oracle.moments(), rtol=1e-6)


@each
def test_log_density(name):
    oracle, ours = both(name)
    truth = [oracle.log_density(y) for y in CASES[name].values]
    np.testing.assert_allclose(ours["log_density"], truth, atol=2e-3)


@each
def test_distribution_function(name):
    oracle, ours = both(name)
    truth = [oracle.cdf(y) for y in CASES[name].values]
    np.testing.assert_allclose(ours["cdf"], truth, atol=1e-3)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_invert_the_distribution_function(name):
    """Its own one to many digits, the true one as well as the integral over f allows."""
    oracle, ours = both(name)
    assert np.all(np.diff(ours["quantile"]) > 0)
    np.testing.assert_allclose(ours["cdf at quantile"], LEVELS, atol=1e-7)
    np.testing.assert_allclose([oracle.cdf(y) for y in ours["quantile"]], LEVELS, atol=1e-3)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_quantiles_are_attainable_and_minimal(name):
    """F(k) ≥ q > F(k − 1), for the package's F and within its precision for the true one."""
    oracle, ours = both(name)
    k = ours["quantile"]
    assert np.all(k == np.floor(k))
    assert CASES[name].likelihood.valid(k).all()
    assert np.all(ours["cdf at quantile"] >= LEVELS)
    assert np.all(ours["cdf below quantile"] < LEVELS)
    for value, level in zip(k, LEVELS, strict=True):
        assert oracle.cdf(value) >= level - 1e-3
        assert oracle.cdf(value - 1) < level + 1e-3


def test_quantiles_do_not_depend_on_the_guess():
    case = CASES["StudentT"]
    guesses = [(0.0, 1.0), (-1e4, 0.1), (50.0, 1e3)]
    found = [predict(case, case.cov, *guess)["quantile"] for guess in guesses]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)


@pytest.mark.parametrize("name", ["Poisson", "sharp Poisson"])
def test_log_density_of_counts_sums_to_one(name):
    case = CASES[name]
    mean, F = jnp.asarray(case.mean), factor(case.cov)
    k = jnp.arange(60_000.0 if name == "sharp Poisson" else 400.0)
    log_p = jax.jit(jax.vmap(lambda y: log_density(case.likelihood, y, mean, F)))(k)
    np.testing.assert_allclose(jnp.sum(jnp.exp(log_p)), 1.0, rtol=2e-4)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_categorical_log_density(K):
    """Against 10⁶ samples of f; the classes' probabilities sum to one."""
    J = K - 1
    mean, W = np.linspace(-0.5, 0.8, J), np.linspace(-0.9, 0.7, 2 * J).reshape(J, 2)
    likelihood = hm.Categorical(classes=list("abcde"[:K]))
    ours = jax.jit(
        jax.vmap(lambda y: log_density(likelihood, y, jnp.asarray(mean), jnp.asarray(W)))
    )(jnp.arange(float(K)))
    f = mean + np.random.default_rng(0).normal(size=(1_000_000, 2)) @ W.T
    p = special.softmax(np.concatenate([np.zeros((len(f), 1)), f], axis=1), axis=1)
    error = np.abs(np.exp(ours) - p.mean(axis=0))
    assert np.all(error < 4 * p.std(axis=0) / np.sqrt(1e6 if K <= 3 else 1024)), error
    np.testing.assert_allclose(np.sum(np.exp(ours)), 1.0, rtol=1e-7)


@pytest.mark.parametrize("variance", [0.0, 1e-12])
@pytest.mark.parametrize("name", ["Gaussian", "HetGaussian", "StudentT", "Poisson", "Gamma"])
def test_without_uncertainty_the_predictive_is_the_likelihood(name, variance):
    case = CASES[name]
    frozen, y = case.frozen(np.array(case.mean)), np.array(case.values)
    cov = variance * np.eye(len(case.mean))
    ours = predict(case, cov, frozen.mean(), frozen.std())
    truth = frozen.logpmf(y) if case.likelihood.discrete else frozen.logpdf(y)
    np.testing.assert_allclose(ours["log_density"], truth, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours["cdf"], frozen.cdf(y), atol=1e-5)
    np.testing.assert_allclose(ours["moments"], [frozen.mean(), frozen.var()], rtol=1e-5)
    np.testing.assert_allclose(ours["quantile"], frozen.ppf(LEVELS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_a_certain_yes_or_no_has_a_variance_of_zero_at_least(link):
    """Rounding must not make p (1 − p) negative where the probability is one."""
    for f in (-60.0, 60.0):
        mean, F = jnp.array([f]), jnp.array([[1e-4]])
        expected, variance = moments(hm.Bernoulli(link), mean, F)
        assert 0.0 <= float(expected) <= 1.0
        assert float(variance) >= 0.0
