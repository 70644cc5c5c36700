"""The incomplete gamma and beta functions against SciPy's, which iterate as long as it takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from hetmogp.likelihoods.incomplete import log_student_tail, lower_beta, lower_gamma
from hetmogp.session import session

rng = np.random.default_rng(0)
LEVELS = rng.uniform(size=4000)
BETA = jax.jit(jax.vmap(jax.grad(lower_beta, (0, 1, 2))))
GAMMA = jax.jit(jax.vmap(jax.grad(lower_gamma, (0, 1))))
TAIL = jax.jit(jax.vmap(jax.value_and_grad(log_student_tail, (0, 1))))


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def spread(low, high):
    """Shapes of every size between two."""
    return np.exp(rng.uniform(np.log(low), np.log(high), len(LEVELS)))


@pytest.mark.parametrize(("low", "high", "error"), [(1e-3, 1e4, 3e-9), (1e4, 1e12, 3e-9)])
def test_lower_gamma(low, high, error):
    a = spread(low, high)
    x = np.maximum(special.gammaincinv(a, LEVELS), 1e-300)
    np.testing.assert_allclose(lower_gamma(a, np.log(x)), special.gammainc(a, x), atol=error)


@pytest.mark.parametrize(("low", "high", "error"), [(1e-3, 1e6, 5e-9), (1e-3, 1e11, 3e-4)])
def test_lower_beta(low, high, error):
    a, b = spread(low, high), spread(low, high)
    x = special.betaincinv(a, b, LEVELS)
    kept = (x > 1e-200) & (x < 1 - 1e-6)  # beyond, x itself has lost the digits
    a, b, x = a[kept], b[kept], x[kept]
    odds = np.log(x) - np.log1p(-x)
    np.testing.assert_allclose(lower_beta(a, b, odds), special.betainc(a, b, x), atol=error)


def test_they_end_at_zero_and_one():
    far = jnp.array([-jnp.inf, -1e300, 1e300, jnp.inf])
    for shape in (1e-12, 1.0, 1e15, 1e300):
        a = jnp.full(4, shape)
        np.testing.assert_array_equal(lower_gamma(a, far)[jnp.array([0, 2, 3])], [0.0, 1.0, 1.0])
        np.testing.assert_array_equal(lower_beta(a, a, far)[jnp.array([0, 3])], [0.0, 1.0])
        for value in (lower_gamma(a, far), lower_beta(a, a, far)):
            assert np.all((value >= 0) & (value <= 1))  # and nothing is NaN


@pytest.mark.parametrize("shape", [0.01, 3.0, 2e5])
def test_they_never_fall(shape):
    t = jnp.linspace(-40.0, 40.0, 2001)
    a = jnp.full(t.shape, shape)
    assert np.all(np.diff(lower_gamma(a, t + np.log(shape))) >= -1e-9)
    assert np.all(np.diff(lower_beta(a, a, t)) >= -1e-9)


def along(share, at, h):
    """The slope of SciPy's function by differences of fourth order."""
    ends = share(at - h) - share(at + h), share(at - h / 2) - share(at + h / 2)
    return (ends[0] - 8 * ends[1]) / (6 * h)


@pytest.mark.parametrize("a", [0.05, 0.3, 2.0, 60.0, 4000.0])
def test_slopes_are_those_of_scipy(a):
    """Along x the density; along a shape a difference of SciPy's, which has ten digits."""
    log_x, h = jnp.log(a) + jnp.array([-1.5, -0.1, 0.02, 0.4]) / (1 + 0.2 * np.sqrt(a)), 1e-3 * a
    ours = GAMMA(jnp.full(4, a), log_x)
    x = np.exp(np.asarray(log_x))
    expected = along(lambda a: special.gammainc(a, x), a, h)
    np.testing.assert_allclose(ours[0], expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours[1], x * stats.gamma(a).pdf(x), rtol=1e-8)
    b, t = 1.5 * a, special.logit(0.4) + np.array([-0.5, 0.0, 0.7]) / (1 + 0.2 * np.sqrt(a))
    ours = BETA(jnp.full(3, a), jnp.full(3, b), jnp.asarray(t))
    x = special.expit(t)
    for i, share in enumerate(
        (lambda a: special.betainc(a, b, x), lambda b: special.betainc(a, b, x))
    ):
        expected = along(share, (a, b)[i], h)
        np.testing.assert_allclose(ours[i], expected, rtol=1e-7, atol=3e-9)
    density = x * (1 - x) * stats.beta(a, b).pdf(x)
    np.testing.assert_allclose(ours[2], density, rtol=1e-7)


def test_slopes_are_finite_far_out():
    far = jnp.exp(jnp.array([-30.0, 0.0, 30.0]))
    a, b, t = jnp.meshgrid(far, far, jnp.array([-300.0, -3.0, 0.0, 3.0, 300.0]))
    for slopes in (BETA(a.ravel(), b.ravel(), t.ravel()), GAMMA(a.ravel(), t.ravel())):
        assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("df", [0.01, 0.5, 3.0, 40.0, 1e4])
def test_the_tail_of_a_t(df):
    """Against SciPy's where that has digits, and its slopes against differences of it."""
    z = np.exp(rng.uniform(-6, 5, 400))
    ours, (by_df, by_z) = TAIL(jnp.full(400, df), jnp.log(z))
    p = stats.t.sf(z, df)
    np.testing.assert_allclose(ours[p > 1e-280], np.log(p[p > 1e-280]), rtol=1e-9, atol=1e-9)
    some = (p > 1e-9) & (p < 0.3)
    expected = along(lambda df: stats.t.sf(z[some], df), df, 1e-3 * df) / p[some]
    np.testing.assert_allclose(by_df[some], expected, rtol=1e-5, atol=1e-8)
    hazard = np.exp(np.log(z) + stats.t.logpdf(z, df))[some] / p[some]
    np.testing.assert_allclose(by_z[some], -hazard, rtol=1e-7)


@pytest.mark.parametrize(("df", "z"), [(4.0, 1e90), (300.0, 400.0), (1e6, 60.0), (1e13, 45.0)])
def test_the_tail_of_a_t_beyond_the_smallest_number(df, z):
    """P(T > z) is the density there times an integral of how it falls."""

    def falls(share):
        return np.exp(stats.t.logpdf(z * (1 + share), df) - stats.t.logpdf(z, df))

    scale = max(1 / z**2, 1 / df)  # of z, over which it falls to a share of itself
    area = integrate.quad(lambda u: scale * falls(scale * u), 0, np.inf, limit=500)[0]
    expected = stats.t.logpdf(z, df) + np.log(z * area)
    ours, slopes = jax.value_and_grad(log_student_tail, (0, 1))(jnp.asarray(df), jnp.log(z))
    np.testing.assert_allclose(ours, expected, rtol=1e-8)
    assert np.isfinite(slopes).all()
