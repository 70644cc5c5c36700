"""The one-pass marginals and their gradients, against the readable form and plain NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hetmogp.kernels import RBF, squared_distance
from hetmogp.linalg import BLOCK, gram, inverse_root, spread
from hetmogp.priors import LMC, Latents, Matrices, Projection
from hetmogp.session import session
from hetmogp.variational import Coupled, Factorised, Natural
from hetmogp.variational.one_pass import _one_pass, _projected


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def problem(ranks, M, N, seed=0, jitter=1e-6):
    """Kernel matrices of latents in the plane and some q(u)."""
    rng = np.random.default_rng(seed)
    Q, R = len(ranks), sum(ranks)
    X, Z = rng.uniform(size=(N, 2)), rng.uniform(size=(Q, M, 2))
    lengthscales = (0.2 + 0.1 * np.arange(Q))[:, None, None]

    def rbf(others):
        apart = np.sum((Z[:, :, None] - others) ** 2, axis=-1)
        return jnp.asarray(np.exp(-0.5 * apart / lengthscales**2))

    inducing = rbf(Z[:, None]) + jitter * np.eye(M)
    matrices = Matrices(inducing, rbf(X), jnp.asarray(np.ones((Q, N))), ranks, (M,) * R)
    root = np.tril(rng.standard_normal((R, M, M)) / M) + 0.5 * np.eye(M)
    return matrices, Factorised(jnp.asarray(rng.standard_normal((R, M))), jnp.asarray(root))


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


def test_the_gradient_of_an_inverse_root_is_that_of_the_factorisation():
    """jax differentiates its Cholesky factorisation and inverse; ours is one formula."""
    M = BLOCK + 9  # by halves, each of which goes to LAPACK whole
    rng = np.random.default_rng(0)
    C = rng.standard_normal((M, M)) / np.sqrt(M)
    K, weights = jnp.asarray(C @ C.T + 0.5 * np.eye(M)), jnp.asarray(rng.standard_normal((M, M)))

    def plain(K):
        return jnp.sum(weights * jnp.linalg.inv(jnp.linalg.cholesky(K)) ** 2)

    def ours(K):
        return jnp.sum(weights * inverse_root(K[None])[0] ** 2)

    found, expected = (np.asarray(jax.jit(jax.grad(way))(K)) for way in (ours, plain))
    np.testing.assert_allclose(found, found.T, rtol=1e-12)
    np.testing.assert_allclose(found, 0.5 * (expected + expected.T), rtol=1e-8, atol=1e-9)


def test_gram_and_spread_and_their_gradients_are_those_of_their_definitions():
    """Σ_n Ã_n Λ_n Ã_nᵀ and Ã_nᵀ S Ã_n, written out by index."""
    R, M, N = 3, 4, 9
    rng = np.random.default_rng(0)

    def symmetric(*shape):
        values = rng.standard_normal(shape)
        return jnp.asarray(values + np.swapaxes(values, -1, -2))

    A = jnp.asarray(rng.standard_normal((R, M, N)))
    precision, S = symmetric(N, R, R), symmetric(R * M, R * M)

    def plain_gram(A, precision):
        return jnp.einsum("rmn,nrs,skn->rmsk", A, precision, A).reshape(R * M, R * M)

    def plain_spread(A, S):
        return jnp.einsum("rmn,rmsk,skn->nrs", A, S.reshape(R, M, R, M), A)

    for ours, plain, inner, outer in (
        (gram, plain_gram, precision, symmetric(R * M, R * M)),
        (spread, plain_spread, S, symmetric(N, R, R)),
    ):

        def values_and_gradients(f, inner=inner, outer=outer):
            def total(*arrays):
                values = f(*arrays)
                return jnp.sum(outer * values**2), values

            (dA, d_inner), values = jax.jit(jax.grad(total, (0, 1), has_aux=True))(A, inner)
            return values, dA, d_inner

        for found, expected in zip(
            values_and_gradients(ours), values_and_gradients(plain), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_a_coupled_q_at_the_rows_and_its_draws():
    """Ãᵀ S Ã by NumPy, with Ã a block-diagonal matrix; what is drawn has that S."""
    matrices, _ = problem((1, 2), 3, 5)
    R, M, N = 3, 3, 5
    rng = np.random.default_rng(1)
    root = np.tril(rng.standard_normal((9, 9)) / 3) + 0.5 * np.eye(9)
    q = Coupled(jnp.asarray(rng.standard_normal((1, 9))), jnp.asarray(root)[None])
    m, S = np.asarray(q.mean[0]), root @ root.T
    prior = jnp.asarray(rng.standard_normal((R, N, N)))  # any: it is only added to

    @jax.jit
    def everything(q, matrices, prior):
        projection = matrices.project()
        two_ways = q.latents(projection), q.moments().latents(matrices)
        draws = q.draws(jax.random.key(0), 100_000)
        return projection, two_ways, q.joint(projection, prior), draws

    projection, two_ways, joint, v = jax.tree.map(np.asarray, everything(q, matrices, prior))
    A, residual = projection.A, projection.residual
    wide = np.zeros((N, R * M, R))
    for r in range(R):
        wide[:, r * M : (r + 1) * M, r] = A[r].T
    among = np.einsum("nir,ij,ljs->nrls", wide, S - np.eye(9), wide)
    among += np.einsum("rnl,rs->nrls", prior, np.eye(R))
    np.testing.assert_allclose(joint, among, rtol=1e-10, atol=1e-12)
    for n in range(N):
        C = wide[n].T @ S @ wide[n] + np.diag(residual[:, n])
        for own in two_ways:
            np.testing.assert_allclose(own.mean[n], wide[n].T @ m, rtol=1e-10)
            np.testing.assert_allclose(own.cov[n], C, rtol=1e-10)
    # The error of a covariance is at most √2 S_max / √n; five of these.
    within = 5 * np.sqrt(2) * S.max() / np.sqrt(len(v))
    np.testing.assert_allclose(np.cov(v.T), S, atol=within)
    np.testing.assert_allclose(v.mean(axis=0), m, atol=within)


@pytest.mark.parametrize("ranks", [(1,), (1, 1, 1), (2, 1, 3)])
@pytest.mark.parametrize("M", [6, BLOCK + 9])
def test_one_pass_agrees_with_numpy_and_with_the_projection(ranks, M):
    matrices, q = problem(ranks, M, 40)
    mean, variance = jax.jit(lambda q, matrices: q.latents(matrices))(q.moments(), matrices)
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
    again = q.latents(Projection(jnp.asarray(A), jnp.asarray(residual), (len(A[0]),) * len(A)))
    np.testing.assert_allclose(mean, again[0], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(variance, again[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("ranks", [(1, 1), (2, 1)])
@pytest.mark.parametrize("M", [6, BLOCK + 9])
def test_gradients_of_one_pass_are_those_of_the_readable_form(ranks, M):
    """Every input: k(Z, Z), k(Z, X), k(x, x), m and S. Both forms with a jitter of 1e-4."""
    matrices, q = problem(ranks, M, 50, jitter=1e-4)
    q = q.moments()
    rng = np.random.default_rng(1)
    r, g = (jnp.asarray(rng.standard_normal((sum(ranks), 50))) for _ in range(2))

    def gradient(way):
        def f(Kzz, Kzx, variance, m, S):
            mean, spread = way(ranks, 0.5 * (Kzz + jnp.swapaxes(Kzz, 1, 2)), Kzx, variance, m, S)
            return jnp.sum(r * mean) + jnp.sum(g * spread**2)

        return jax.jit(jax.grad(f, tuple(range(5))))(
            *(matrices.inducing, matrices.cross, matrices.variance, q.mean, q.cov)
        )

    for fast, readable in zip(gradient(_one_pass), gradient(_projected), strict=True):
        scale = float(jnp.abs(readable).max())
        np.testing.assert_allclose(fast, readable, rtol=1e-6, atol=1e-7 * scale)


def test_the_gradients_of_q_are_those_a_natural_step_needs():
    """∂E/∂m = A r and ∂E/∂S = A diag(g) Aᵀ."""
    matrices, q = problem((1,), 8, 30, jitter=1e-3)
    rng = np.random.default_rng(2)
    r, g = rng.standard_normal((2, 30))

    def f(q):
        mean, variance = q.latents(matrices)
        return mean[:, 0] @ r + variance[:, 0] @ g

    slope = jax.jit(jax.grad(f))(q.moments())
    L = np.linalg.cholesky(np.asarray(matrices.inducing[0]))
    A = np.linalg.solve(L, np.asarray(matrices.cross[0]))
    np.testing.assert_allclose(slope.mean[0], A @ r, atol=1e-9)
    np.testing.assert_allclose(slope.cov[0], A @ np.diag(g) @ A.T, atol=1e-9)


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("J", [3, 6])
def test_functions_of_latents_and_what_is_handed_back_to_them(J, diagonal):
    """For fewer and for more parameter functions than latents, coupled at a row or not."""
    R, n, part = 4, 5, slice(1, J)
    rng = np.random.default_rng(J)
    W, b = rng.standard_normal((J, R)), rng.standard_normal(J)
    numbers: Any = (np.zeros((1, 1, 1)), (1,) * R, W, b, np.zeros(J), np.ones(J), np.ones((J, R)))
    prior = LMC((RBF(),) * R, *numbers)
    root = rng.standard_normal((n, R, R))
    C = np.array([np.diag(np.diag(a @ a.T)) if diagonal else a @ a.T for a in root])
    mean, r = rng.standard_normal((n, R)), rng.standard_normal((n, J - 1))
    cov = np.diagonal(C, axis1=1, axis2=2) if diagonal else C
    curvature = rng.standard_normal((n, J - 1, J - 1))

    @jax.jit
    def found(mean, cov, r, curvature):
        latents = Latents(mean, cov)
        along = jnp.diagonal(curvature, axis1=1, axis2=2)
        back = [prior.pull_back_curvature(part, each) for each in (curvature, along)]
        # The columns of the root that draws are made with: one standard normal at a time is one.
        columns = latents.draws(jnp.broadcast_to(jnp.eye(R)[:, None], (R, n, R))) - mean
        functions, factor = prior.functions(part, latents), prior.factor(part, latents)
        return functions, factor, columns, latents.square(), prior.pull_back(part, r), *back

    functions, factor, columns, square, slope, full, along = jax.tree.map(
        np.asarray, found(mean, cov, r, curvature)
    )
    own = W[part]
    for at in (functions, factor):
        np.testing.assert_allclose(at[0], b[part] + mean @ own.T, rtol=1e-10)
    np.testing.assert_allclose(functions.cov, own @ C @ own.T, rtol=1e-9, atol=1e-9)
    F = factor[1]
    assert F.shape[2] <= R
    np.testing.assert_allclose(F @ np.swapaxes(F, 1, 2), own @ C @ own.T, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(np.einsum("kni,knj->nij", columns, columns), C, atol=1e-7)
    np.testing.assert_allclose(square, C)
    np.testing.assert_allclose(slope, r @ own, rtol=1e-10)
    np.testing.assert_allclose(full, own.T @ curvature @ own, rtol=1e-9, atol=1e-9)
    diagonals = np.array([np.diag(np.diag(each)) for each in curvature])
    np.testing.assert_allclose(along, own.T @ diagonals @ own, rtol=1e-9, atol=1e-9)


def test_single_precision_stays_near_double_and_variances_stay_positive():
    matrices, q = problem((1, 1), 60, 200, jitter=1e-4)
    q = q.moments()
    mean, variance = map(np.asarray, q.latents(matrices))
    double = jax.tree.map(np.asarray, (matrices, q))
    with session("float32"):
        low = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), double)
        found = jax.jit(lambda matrices, q: q.latents(matrices))(*low)
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
    natural = Natural(jnp.asarray(linear), jnp.asarray(precision), Factorised)
    moments, factors = jax.jit(lambda natural: (natural.moments(), natural.factors()))(natural)
    np.testing.assert_allclose(moments.mean, q.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(moments.cov, S, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(moments.log_det, np.linalg.slogdet(S)[1], rtol=1e-9)
    np.testing.assert_allclose(factors.root @ jnp.swapaxes(factors.root, 1, 2), S, atol=1e-9)
    assert float(moments.kl()) == pytest.approx(float(q.kl()), rel=1e-8)


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
