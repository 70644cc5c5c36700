"""The one-pass marginals and their gradients, against the readable form and plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetmogp as hm
from hetmogp.kernels import squared_distance
from hetmogp.linalg import BLOCK, inverse_root
from hetmogp.marginals import _one_pass, _projected, by_projection, marginals
from hetmogp.priors import Matrices, Projection
from hetmogp.session import session
from hetmogp.variational import Factors, Moments, Natural, kl


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def problem(ranks, M, N, seed=0, jitter=1e-6):
    """Kernel matrices of latents in the plane and some q(u)."""
    rng = np.random.default_rng(seed)
    Q, R = len(ranks), sum(ranks)
    X, Z = rng.uniform(size=(N, 2)), rng.uniform(size=(Q, M, 2))
    kernels = [hm.RBF(lengthscale=0.2 + 0.1 * q) for q in range(Q)]
    matrices = Matrices(
        jnp.stack([k.matrix(z, z) + jitter * np.eye(M) for k, z in zip(kernels, Z, strict=True)]),
        jnp.stack([k.matrix(z, X) for k, z in zip(kernels, Z, strict=True)]),
        jnp.ones((Q, N)),
    )
    root = np.tril(rng.standard_normal((R, M, M)) / M) + 0.5 * np.eye(M)
    return matrices, Factors(jnp.asarray(rng.standard_normal((R, M))), jnp.asarray(root))


@pytest.mark.parametrize("M", [1, 7, BLOCK, BLOCK + 1, 3 * BLOCK - 5])
def test_inverse_root_is_numpys(M):
    matrices, _ = problem((1, 1, 1), M, 2, jitter=1e-3)
    found = np.asarray(jax.jit(inverse_root)(matrices.inducing))
    for K, inverse in zip(np.asarray(matrices.inducing), found, strict=True):
        expected = np.linalg.inv(np.linalg.cholesky(K))
        np.testing.assert_allclose(inverse, expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
        assert np.all(np.triu(inverse, 1) == 0)


@pytest.mark.parametrize("M", [5, 2 * BLOCK])
def test_inverse_root_of_an_indefinite_matrix_is_nan(M):
    K = np.eye(M)
    K[-1, -1] = -1.0
    assert np.isnan(np.asarray(inverse_root(jnp.asarray(K)[None]))).any()


@pytest.mark.parametrize("ranks", [(1,), (1, 1, 1), (2, 1, 3)])
@pytest.mark.parametrize("M", [6, BLOCK + 9])
def test_one_pass_agrees_with_numpy_and_with_the_projection(ranks, M):
    matrices, q = problem(ranks, M, 40)
    mean, variance = jax.jit(marginals, static_argnums=1)(matrices, ranks, Moments.of(q))
    owner = np.repeat(np.arange(len(ranks)), ranks)
    A, residual = [], []
    for r, of in enumerate(owner):
        Kzz, Kzx = np.asarray(matrices.inducing[of]), np.asarray(matrices.cross[of])
        A.append(np.linalg.solve(np.linalg.cholesky(Kzz), Kzx))
        m, S = np.asarray(q.mean[r]), np.asarray(q.root[r] @ q.root[r].T)
        residual.append(1.0 - np.sum(A[r] ** 2, axis=0))
        np.testing.assert_allclose(mean[:, r], A[r].T @ m, rtol=1e-7, atol=1e-7)
        expected = residual[r] + np.sum(A[r] * (S @ A[r]), axis=0)
        np.testing.assert_allclose(variance[:, r], expected, rtol=1e-6, atol=1e-8)
    again = by_projection(Projection(jnp.asarray(A), jnp.asarray(residual)), q)
    np.testing.assert_allclose(mean, again[0], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(variance, again[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("ranks", [(1, 1), (2, 1)])
@pytest.mark.parametrize("M", [6, BLOCK + 9])
def test_gradients_of_one_pass_are_those_of_the_readable_form(ranks, M):
    """Every input: k(Z, Z), k(Z, X), k(x, x), m and S. Both forms with a jitter of 1e-4."""
    matrices, q = problem(ranks, M, 50, jitter=1e-4)
    q = Moments.of(q)
    rng = np.random.default_rng(1)
    r, g = (jnp.asarray(rng.standard_normal((sum(ranks), 50))) for _ in range(2))

    def gradient(way):
        def f(Kzz, Kzx, variance, m, S):
            mean, spread = way(ranks, 0.5 * (Kzz + jnp.swapaxes(Kzz, 1, 2)), Kzx, variance, m, S)
            return jnp.sum(r * mean) + jnp.sum(g * spread**2)

        return jax.jit(jax.grad(f, tuple(range(5))))(*matrices, q.mean, q.cov)

    for fast, readable in zip(gradient(_one_pass), gradient(_projected), strict=True):
        scale = float(jnp.abs(readable).max())
        np.testing.assert_allclose(fast, readable, rtol=1e-6, atol=1e-7 * scale)


def test_the_gradients_of_q_are_those_a_natural_step_needs():
    """∂E/∂m = A r and ∂E/∂S = A diag(g) Aᵀ."""
    matrices, q = problem((1,), 8, 30, jitter=1e-3)
    rng = np.random.default_rng(2)
    r, g = rng.standard_normal((2, 30))

    def f(q):
        mean, variance = marginals(matrices, (1,), q)
        return mean[:, 0] @ r + variance[:, 0] @ g

    slope = jax.grad(f)(Moments.of(q))
    L = np.linalg.cholesky(np.asarray(matrices.inducing[0]))
    A = np.linalg.solve(L, np.asarray(matrices.cross[0]))
    np.testing.assert_allclose(slope.mean[0], A @ r, atol=1e-9)
    np.testing.assert_allclose(slope.cov[0], A @ np.diag(g) @ A.T, atol=1e-9)


def test_single_precision_stays_near_double_and_variances_stay_positive():
    matrices, q = problem((1, 1), 60, 200, jitter=1e-4)
    q = Moments.of(q)
    mean, variance = map(np.asarray, marginals(matrices, (1, 1), q))
    double = jax.tree.map(np.asarray, (matrices, q))
    with session("float32"):
        low = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), double)
        found = jax.jit(marginals, static_argnums=1)(low[0], (1, 1), low[1])
        assert found[0].dtype == jnp.float32
        np.testing.assert_allclose(found[0], mean, atol=2e-2 * abs(mean).max())
        np.testing.assert_allclose(found[1], variance, atol=2e-2 * variance.max())
        assert np.all(np.asarray(found[1]) >= 0)


@pytest.mark.parametrize("M", [4, BLOCK + 3])
def test_natural_parameters_and_moments_say_the_same(M):
    _, q = problem((1, 1), M, 2)
    S = np.asarray(q.root @ jnp.swapaxes(q.root, 1, 2))
    precision = np.linalg.inv(S)
    linear = np.einsum("rmk,rk->rm", precision, np.asarray(q.mean))
    natural = Natural(jnp.asarray(linear), jnp.asarray(precision))
    moments, factors = natural.moments(), natural.factors()
    np.testing.assert_allclose(moments.mean, q.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(moments.cov, S, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(moments.log_det, np.linalg.slogdet(S)[1], rtol=1e-9)
    np.testing.assert_allclose(factors.root @ jnp.swapaxes(factors.root, 1, 2), S, atol=1e-9)
    assert float(kl(moments)) == pytest.approx(float(kl(q)), rel=1e-8)


def test_the_gradient_of_distances_is_that_of_pairs():
    rng = np.random.default_rng(3)
    X, Z = jnp.asarray(5 + rng.standard_normal((9, 3))), jnp.asarray(rng.standard_normal((4, 3)))
    weights = jnp.asarray(rng.standard_normal((9, 4)))

    def pairs(X, Z):
        return jnp.sum((X[:, None] - Z[None]) ** 2, axis=2)

    found = jax.grad(lambda X, Z: jnp.sum(weights * squared_distance(X, Z)), (0, 1))(X, Z)
    expected = jax.grad(lambda X, Z: jnp.sum(weights * pairs(X, Z)), (0, 1))(X, Z)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(squared_distance(X, Z), pairs(X, Z), rtol=1e-10)
