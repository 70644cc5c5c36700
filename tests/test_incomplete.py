"""The incomplete gamma and beta functions against SciPy's, which iterate as long as it takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from hetmogp.likelihoods.incomplete import lower_beta, lower_gamma
from hetmogp.session import session

rng = np.random.default_rng(0)
LEVELS = rng.uniform(size=4000)


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


@pytest.mark.parametrize("a", [0.3, 2.0, 60.0])
def test_slopes_are_those_of_scipy(a):
    """Along x the density; along a shape a difference, to six digits."""
    log_x = jnp.log(a) + jnp.array([-1.5, -0.1, 0.4])
    ours = jax.vmap(jax.grad(lower_gamma, (0, 1)), (None, 0))(jnp.asarray(a), log_x)
    x = np.exp(np.asarray(log_x))
    h = 1e-5 * a
    along = (special.gammainc(a + h, x) - special.gammainc(a - h, x)) / (2 * h)
    np.testing.assert_allclose(ours[0], along, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours[1], x * stats.gamma(a).pdf(x), rtol=1e-8)
    t = special.logit(0.4) + np.array([-0.5, 0.0, 0.7])
    ours = jax.vmap(jax.grad(lower_beta, (0, 1, 2)), (None, None, 0))(
        jnp.asarray(a), jnp.asarray(1.5 * a), jnp.asarray(t)
    )
    x = special.expit(t)
    along = (special.betainc(a + h, 1.5 * a, x) - special.betainc(a - h, 1.5 * a, x)) / (2 * h)
    np.testing.assert_allclose(ours[0], along, rtol=1e-5, atol=1e-7)
    density = x * (1 - x) * stats.beta(a, 1.5 * a).pdf(x)
    np.testing.assert_allclose(ours[2], density, rtol=1e-7)
