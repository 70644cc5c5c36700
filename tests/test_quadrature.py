"""Quadrature rules against the closed-form moments of Gaussians."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import factorial2

from hetmogp.quadrature import expect, gauss_hermite, place, root, standard_nodes
from hetmogp.session import session

MEAN = np.array([0.4, -0.7])
COVS = {
    "correlated": np.array([[0.9, 0.5], [0.5, 0.6]]),
    "negative": np.array([[0.4, -0.45], [-0.45, 1.1]]),
    "independent": np.diag([0.3, 1.2]),
    "rank one": np.outer([0.8, -0.5], [0.8, -0.5]),
    "equal": np.ones((2, 2)),
}


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def expectation(h, mean, cov, **rule):
    points, weights = standard_nodes(len(mean), **rule)
    return weights @ jax.vmap(h)(place(points, jnp.asarray(mean), jnp.asarray(cov)))


@pytest.mark.parametrize("n", [1, 2, 5, 12, 20])
def test_gauss_hermite_is_exact_to_degree_2n_minus_1(n):
    """E[x^k] = (k − 1)!! for even k, 0 for odd k; and the next even power is missed."""
    x, w = gauss_hermite(n)
    for k in range(2 * n):
        scale = factorial2(2 * (k // 2) + 1)
        expected = factorial2(k - 1) if k % 2 == 0 and k > 0 else float(k == 0)
        assert abs(w @ x**k - expected) < 1e-9 * scale, k
    missed = factorial2(2 * n - 1) if n else 1.0
    assert abs(w @ x ** (2 * n) - missed) > 1e-6


@pytest.mark.parametrize("name", COVS)
def test_root_is_a_square_root(name):
    C = np.asarray(root(jnp.asarray(COVS[name])))
    np.testing.assert_allclose(C @ C.T, COVS[name], rtol=1e-8, atol=1e-12)
    assert C[0, 1] == 0.0


def test_root_of_a_larger_singular_covariance():
    W = np.random.default_rng(0).normal(size=(5, 2))
    C = np.asarray(jax.jit(root)(jnp.asarray(W @ W.T)))
    np.testing.assert_allclose(C @ C.T, W @ W.T, rtol=1e-7, atol=1e-7)


# Functions of two variables with E[h] in closed form (Isserlis; log-normal), h and E[h](mean, cov).
CLOSED = {
    "f1 f2": (lambda f: f[0] * f[1], lambda m, C: m[0] * m[1] + C[0, 1]),
    "f1 f2^2": (
        lambda f: f[0] * f[1] ** 2,
        lambda m, C: m[0] * (m[1] ** 2 + C[1, 1]) + 2 * m[1] * C[0, 1],
    ),
    "f1^2 f2^2": (
        lambda f: f[0] ** 2 * f[1] ** 2,
        lambda m, C: (
            (m[0] ** 2 + C[0, 0]) * (m[1] ** 2 + C[1, 1])
            + 4 * m[0] * m[1] * C[0, 1]
            + 2 * C[0, 1] ** 2
        ),
    ),
    "exp(f1 + f2)": (
        lambda f: jnp.exp(f[0] + f[1]),
        lambda m, C: jnp.exp(m[0] + m[1] + 0.5 * (C[0, 0] + 2 * C[0, 1] + C[1, 1])),
    ),
    "f1 exp(-f2)": (
        lambda f: f[0] * jnp.exp(-f[1]),
        lambda m, C: jnp.exp(-m[1] + 0.5 * C[1, 1]) * (m[0] - C[0, 1]),
    ),
}


@cache
def by_rule_and_by_formula(name):
    """E[h] and its gradients as functions of the mean and of C₁₁, C₂₁, C₂₂, twice."""
    h, closed = CLOSED[name]

    def symmetric(t):
        return jnp.array([[t[0], t[1]], [t[1], t[2]]])

    pair = (
        lambda mean, t: expectation(h, mean, symmetric(t)),
        lambda mean, t: closed(mean, symmetric(t)),
    )
    return [jax.jit(jax.value_and_grad(f, argnums=(0, 1))) for f in pair]


@pytest.mark.parametrize("cov", COVS)
@pytest.mark.parametrize("name", CLOSED)
def test_product_grid_value_and_gradient_against_closed_form(name, cov):
    """Also where the covariance is singular, with respect to the mean and the covariance.

    The rule reads one triangle of the covariance, so what is compared is the derivative along
    symmetric directions: C₁₁, C₂₂, and C₁₂ = C₂₁ together.
    """
    ours, theirs = by_rule_and_by_formula(name)
    at = jnp.asarray(MEAN), jnp.asarray(COVS[cov][np.tril_indices(2)])
    (value, gradient), (value_, gradient_) = ours(*at), theirs(*at)
    np.testing.assert_allclose(value, value_, rtol=1e-6)
    np.testing.assert_allclose(gradient[0], gradient_[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient[1], gradient_[1], rtol=1e-4, atol=1e-6)


def test_gradients_at_zero_covariance_are_finite():
    def total(C):
        return expectation(lambda f: jnp.exp(f[0] + f[1]), MEAN, C)

    value, gradient = jax.value_and_grad(total)(jnp.zeros((2, 2)))
    np.testing.assert_allclose(value, np.exp(MEAN.sum()), rtol=1e-8)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("variance", [1e-10, 1e-4, 1.0, 4.0])
def test_one_variable_against_closed_form(variance):
    """d/dv E[e^f] = ½ E[e^f], however small the variance."""
    closed = np.exp(0.3 + 0.5 * variance)

    def total(v):
        return expectation(lambda f: jnp.exp(f[0]), np.array([0.3]), v[None, None])

    value, slope = jax.value_and_grad(total)(jnp.asarray(variance))
    np.testing.assert_allclose(value, closed, rtol=1e-6)
    np.testing.assert_allclose(slope, 0.5 * closed, rtol=1e-5)


def test_three_variables_by_grid():
    W = np.random.default_rng(1).normal(size=(3, 2)) * 0.5
    mean, cov = np.array([0.1, -0.2, 0.3]), W @ W.T
    a = np.array([0.5, 1.0, -0.7])
    value = expectation(lambda f: jnp.exp(a @ f), mean, cov, method="quadrature")
    np.testing.assert_allclose(value, np.exp(a @ mean + 0.5 * a @ cov @ a), rtol=1e-6)


@pytest.mark.parametrize("dimension", [1, 2, 3, 6, 20])
@pytest.mark.parametrize("with_key", [False, True])
def test_quasi_monte_carlo_moments(dimension, with_key):
    """Weights sum to one; odd moments vanish, variances are one; a smooth expectation is near."""
    key = jax.random.key(3) if with_key else None
    points, weights = map(np.asarray, standard_nodes(dimension, "montecarlo", key))
    assert points.shape == (weights.size, dimension)
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(weights @ points, 0.0, atol=1e-12)
    np.testing.assert_allclose(weights @ points**3, 0.0, atol=1e-10)
    np.testing.assert_allclose(weights @ points**2, 1.0)
    a = np.full(dimension, 0.8 / np.sqrt(dimension))
    np.testing.assert_allclose(weights @ np.exp(points @ a), np.exp(0.32), rtol=0.12)


@pytest.mark.parametrize("dimension", [2, 3, 4, 6])
def test_quasi_monte_carlo_is_much_better_than_plain_sampling(dimension):
    """Root mean square error over shifts, against that of as many plain mirrored samples."""
    n, a = 1024, np.full(dimension, 0.8 / np.sqrt(dimension))
    mean, square = np.exp(0.32), 0.5 * (1.0 + np.exp(2 * 0.64))  # of cosh(a·f), the mirrored pair
    plain = np.sqrt((square - mean**2) / n)

    def one(key):
        points, weights = standard_nodes(dimension, "montecarlo", key, n)
        return weights @ jnp.exp(points @ a)

    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 100))
    assert (
        np.sqrt(np.mean((np.asarray(found) - mean) ** 2)) < (0.4 if dimension < 6 else 0.8) * plain
    )


@pytest.mark.parametrize(
    "v", [(0.3, 0.4), (0.3, 0.4, 0.2, 0.3), (0.3, 0.4, 0.2, 1e-4), (0.3, 1e-6, 0.2, 0.3)], ids=str
)
def test_quasi_monte_carlo_gradient_by_the_variances_of_latents(v):
    """C = W diag(v) Wᵀ, as in the bound: singular with two latents, or one of them well known."""
    v, W = np.array(v), np.random.default_rng(2).normal(size=(4, 4))[:, : len(v)]
    mean, a = np.array([0.1, -0.2, 0.3, 0.0]), np.array([0.5, 1.0, -0.7, 0.2])

    def ours(v):
        return expect(lambda f: jnp.exp(a @ f), jnp.asarray(mean), (W * v) @ W.T)

    value, slope = jax.jit(jax.value_and_grad(ours))(jnp.asarray(v))
    closed = np.exp(a @ mean + 0.5 * (a @ W) ** 2 @ v)
    # 256 points on a steep integrand; no error of theirs may be divided by a small variance.
    np.testing.assert_allclose(value, closed, rtol=0.08)
    np.testing.assert_allclose(slope, 0.5 * (a @ W) ** 2 * closed, rtol=0.12)


def test_shifted_points_are_unbiased():
    """The average over keys is the expectation, within four standard errors."""
    a, b = np.array([1.0, -0.5, 0.7]), np.array([0.3, 0.9, 0.0])

    @jax.jit
    @jax.vmap
    def one(key):
        points, weights = standard_nodes(3, "montecarlo", key)
        rough = jnp.logaddexp(points @ a, 2.0 * (points @ b))
        return weights @ jnp.exp(points @ a), weights @ rough

    smooth, rough = one(jax.random.split(jax.random.key(0), 4000))
    far, mass = gauss_hermite(60)  # the rough one depends on two directions only
    u, v = np.meshgrid(far, far, indexing="ij")
    C = np.linalg.cholesky(np.array([[a @ a, a @ b], [a @ b, b @ b]]))
    exact = np.einsum(
        "ij,i,j", np.logaddexp(C[0, 0] * u, 2.0 * (C[1, 0] * u + C[1, 1] * v)), mass, mass
    )
    for draws, truth in ((smooth, np.exp(0.5 * a @ a)), (rough, exact)):
        draws = np.asarray(draws)
        error = draws.std() / np.sqrt(draws.size)
        assert abs(draws.mean() - truth) < 4 * error, (draws.mean(), truth, error)


def test_points_without_a_key_are_fixed_and_with_keys_differ():
    fixed = [np.asarray(standard_nodes(4, "montecarlo")[0]) for _ in range(2)]
    moved = [np.asarray(standard_nodes(4, "montecarlo", jax.random.key(k))[0]) for k in (0, 1)]
    np.testing.assert_array_equal(fixed[0], fixed[1])
    assert np.abs(moved[0] - moved[1]).max() > 0.1


def test_a_grid_over_many_variables_is_refused():
    standard_nodes(3, "quadrature")
    with pytest.raises(ValueError, match=r"n\^4 nodes.*4 parameter functions.*montecarlo"):
        standard_nodes(4, "quadrature")


def test_the_cost_of_auto_does_not_grow_exponentially():
    """Ten classes: linear in their number, where the original tool needs 10^9 nodes."""
    assert standard_nodes(9)[0].shape[0] <= 300
