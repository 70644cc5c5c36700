"""Gaussian outputs, inducing inputs at every data row: everything has a dense closed form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import elbo
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import hetmogp as hm
from hetmogp.bound import Rules
from hetmogp.data import Scaling, full_batch
from hetmogp.fitting import vem
from hetmogp.parameters import Parameters
from hetmogp.posterior import Posterior
from hetmogp.priors import LMC, Independent
from hetmogp.session import session
from hetmogp.tables import read
from hetmogp.variational import Coupled, Factorised

JITTER = 1e-10
UNSCALED = Scaling(np.zeros(1), np.ones(1))


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def rbf(a, b, lengthscale):
    """Written out, so as not to trust the package's own kernel."""
    return np.exp(-0.5 * ((a[:, None] - b[None]) / lengthscale) ** 2)


def problem(ranks, shared, prior=LMC, seed=0):
    """Two Gaussian outputs with random hyperparameters, and Z at every distinct input."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(0.0, 3.0, 17) + 0.03 * rng.standard_normal(17)
    X = [grid, grid] if shared else [np.sort(grid[:11]), np.sort(grid[5:])]
    Y = [rng.standard_normal(len(x)) for x in X]
    if shared:
        Y[0][3:6] = np.nan
    scales = [0.3, 0.7]
    data = read({f"y{d}": hm.Gaussian(scale=s) for d, s in enumerate(scales)}, X, Y)
    batch, _ = full_batch(data, UNSCALED)
    Z = np.unique(np.concatenate([x[~np.isnan(y)] for x, y in zip(X, Y, strict=True)]))
    lengthscales = np.geomspace(0.15, 0.3, len(ranks))
    J, R = 2, sum(ranks)
    numbers = {
        "kernels": tuple(hm.RBF(np.array([ell])) for ell in lengthscales),
        "inducing_inputs": Z[None, :, None],
        "weights": rng.standard_normal((J, R if prior is LMC else 1)),
        "constants": rng.standard_normal(J),
        "centre": rng.standard_normal(J),
        "spread": np.array([1.0, 2.0]),
        **({"mask": np.ones((J, R))} if prior is LMC else {}),
    }
    parameters = Parameters(
        prior(**jax.tree.map(jnp.asarray, numbers), ranks=tuple(ranks)), tuple(data.likelihoods)
    )
    return data, batch, parameters, lengthscales, scales, Z


def fitted(parameters, batch, family):
    """The best q(u) of a family, as a state of VEM and with the prior as a posterior."""
    state = vem.init(parameters, vem.Problem(batch, Rules(), family, 1e-12), JITTER)
    return state, Posterior(parameters.prior, state.q, JITTER)


class Dense:
    """The same model without inducing variables, by NumPy: a Gaussian of all values at once."""

    def __init__(self, data, parameters, lengthscales, scales, ranks):
        self.W, self.b = np.asarray(parameters.prior.W), np.asarray(parameters.prior.b)
        self.lengthscales = np.repeat(lengthscales, ranks)
        seen = data.observed()
        self.x = np.concatenate([X[s, 0] for X, s in zip(data.inputs, seen, strict=True)])
        self.y = np.concatenate([v[s] for v, s in zip(data.values, seen, strict=True)])
        self.d = np.repeat(range(len(seen)), [s.sum() for s in seen])
        self.noise = np.asarray(scales)[self.d] ** 2
        self.G = self.covariance(self.x, self.d, self.x, self.d) + np.diag(self.noise)

    def covariance(self, x, d, other, e):
        """Of parameter functions d at x and e at the other inputs."""
        return sum(
            np.outer(self.W[d, r], self.W[e, r]) * rbf(x, other, ell)
            for r, ell in enumerate(self.lengthscales)
        )

    def evidence(self):
        return multivariate_normal(self.b[self.d], self.G).logpdf(self.y)

    def posterior(self, x, d):
        """Mean and covariance of parameter functions d at x."""
        cross = self.covariance(x, d, self.x, self.d)
        gain = np.linalg.solve(self.G, cross.T).T
        mean = self.b[d] + gain @ (self.y - self.b[self.d])
        return mean, self.covariance(x, d, x, d) - gain @ cross.T

    def mean_field_correction(self, Z):
        """What a product over latents loses: log det of a precision against that of its blocks."""
        rows = []
        for r, ell in enumerate(self.lengthscales):
            L = np.linalg.cholesky(rbf(Z, Z, ell) + JITTER * np.eye(len(Z)))
            rows.append(self.W[self.d, r] * np.linalg.solve(L, rbf(Z, self.x, ell)))
        phi, R = np.concatenate(rows), len(rows)
        P = np.eye(len(phi)) + (phi / self.noise) @ phi.T
        blocks = P.reshape(R, len(Z), R, len(Z))
        log_det = sum(np.linalg.slogdet(blocks[r, :, r])[1] for r in range(R))
        return 0.5 * (log_det - np.linalg.slogdet(P)[1])


NEW = np.linspace(-0.3, 3.3, 8)  # between the rows, and beyond them


@pytest.mark.parametrize("shared", [True, False], ids=["shared X", "different X"])
@pytest.mark.parametrize("ranks", [(1,), (2,), (1, 1, 1), (2, 1, 2)], ids=str)
def test_bound_is_evidence_less_the_mean_field_correction_and_means_are_exact(ranks, shared):
    data, batch, parameters, lengthscales, scales, Z = problem(ranks, shared)
    state, posterior = fitted(parameters, batch, Factorised)
    exact = Dense(data, parameters, lengthscales, scales, ranks)
    correction = exact.mean_field_correction(Z)

    assert state.bound == pytest.approx(exact.evidence() - correction, rel=1e-6)
    if ranks == (1,):
        assert correction == pytest.approx(0.0, abs=1e-8)
    else:
        assert correction > 0.1
    f, _ = posterior.functions(np.concatenate([exact.x, NEW])[:, None])
    for d in range(2):
        x = np.concatenate([exact.x, NEW])
        np.testing.assert_allclose(f[:, d], exact.posterior(x, np.full(len(x), d))[0], atol=1e-6)


@pytest.mark.parametrize("Q", [1, 3, 6, 10])
def test_a_coupled_q_has_the_evidence_itself_and_the_exact_covariances(Q):
    """However many latents the two outputs share: at a row, and between rows and outputs."""
    ranks = (1,) * Q
    data, batch, parameters, lengthscales, scales, _ = problem(ranks, Q > 3)
    state, posterior = fitted(parameters, batch, Coupled)
    exact = Dense(data, parameters, lengthscales, scales, ranks)
    assert state.bound == pytest.approx(exact.evidence(), rel=1e-6)
    x, d = np.repeat(NEW, 2), np.tile([0, 1], len(NEW))
    mean, cov = (a.reshape(len(NEW), 2, *a.shape[1:]) for a in exact.posterior(x, d))
    cov = cov.reshape(len(NEW), 2, len(NEW), 2)
    f, at_rows = posterior.functions(NEW[:, None])
    np.testing.assert_allclose(f, mean, atol=1e-6)
    np.testing.assert_allclose(at_rows, np.einsum("njnk->njk", cov), atol=1e-6)
    again, joint = posterior.joint(NEW[:, None])
    np.testing.assert_allclose(again, mean, atol=1e-6)
    np.testing.assert_allclose(joint, cov, atol=1e-6)


def test_independent_outputs_have_the_evidence_itself_and_exact_variances():
    data, batch, parameters, lengthscales, scales, _ = problem((1, 1), False, Independent)
    state, posterior = fitted(parameters, batch, Factorised)
    exact = Dense(data, parameters, lengthscales, scales, (1, 1))
    assert np.count_nonzero(exact.W) == 2
    assert state.bound == pytest.approx(exact.evidence(), rel=1e-6)
    _, cov = posterior.functions(exact.x[:, None])
    for d in range(2):
        variance = np.diag(exact.posterior(exact.x, np.full(len(exact.x), d))[1])
        np.testing.assert_allclose(cov[:, d, d], variance, atol=1e-6)


def test_one_gaussian_output_is_scikit_learns_exact_regression():
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0.0, 5.0, 40))[:, None]
    y = 3.0 + 2.0 * np.sin(2.0 * x[:, 0]) + 0.4 * rng.standard_normal(40)
    model = hm.HetMOGP(
        [hm.Gaussian()], latents=1, inducing=x, learn_inducing=False, progress=False
    ).fit(x, y)
    noise = float(np.exp(model.likelihoods_["y0"].free["scale"]))
    kernel = sk.ConstantKernel(model.weights_[0, 0] ** 2) * sk.RBF(model.kernels_[0].lengthscale)
    oracle = GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None)
    oracle.fit(x, y - model.constants_[0])
    new = np.linspace(-1.0, 6.0, 50)[:, None]
    mean, std = oracle.predict(new, return_std=True)
    pred = model.predict(new)["y0"]
    # On a scale of 2: what the jitter of 1e-6 leaves, seen most where the mean extrapolates.
    np.testing.assert_allclose(pred.mean, mean + model.constants_[0], atol=3e-3)
    np.testing.assert_allclose(pred.std, np.sqrt(std**2 + noise**2), atol=1e-3)
    assert model.elbo_ == pytest.approx(oracle.log_marginal_likelihood_value_, abs=0.02)


def test_the_learned_hyperparameters_are_those_of_the_exact_evidence():
    """Where q is exact the M-step climbs the evidence: scikit-learn's optimiser gets no higher."""
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0.0, 5.0, 30))[:, None]
    y = np.sin(2.0 * x[:, 0]) + 0.3 * rng.standard_normal(30)
    model = hm.HetMOGP(
        [hm.Gaussian(scale=0.3)], latents=1, inducing=x, learn_inducing=False, progress=False
    ).fit(x, y)
    kernel = sk.ConstantKernel(1.0, (1e-3, 1e3)) * sk.RBF(1.0, (1e-2, 1e2))
    oracle = GaussianProcessRegressor(kernel, alpha=0.09, n_restarts_optimizer=3, random_state=0)
    oracle.fit(x, y - model.constants_[0])
    assert model.elbo_ >= oracle.log_marginal_likelihood_value_ - 0.01


@pytest.mark.parametrize("width", [0.5, 0.1])
def test_weights_with_a_prior_end_where_evidence_and_prior_balance(width):
    """The exact evidence, its kernel and constant held: SciPy finds the same weight."""
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(0.0, 5.0, 40))
    y = 3.0 * np.sin(2.0 * x) + 0.5 * rng.standard_normal(40)
    model = hm.HetMOGP(
        *([hm.Gaussian(scale=0.5)],),
        **{"latents": 1, "inducing": x, "learn_inducing": False, "progress": False},
        **{"weight_scale": width, "tol": 1e-8},
    ).fit(x, y)
    ell, b = float(model.kernels_[0].lengthscale[0]), model.constants_[0]
    K, unit = rbf(x, x, ell), np.std(y)

    def minus_log_posterior(w):
        evidence = multivariate_normal(np.full(40, b), w**2 * K + 0.25 * np.eye(40)).logpdf(y)
        return 0.5 * (w / (unit * width)) ** 2 - evidence

    found = minimize_scalar(minus_log_posterior, bounds=(0.01, 20.0), method="bounded").x
    assert abs(model.weights_[0, 0]) == pytest.approx(found, rel=5e-3)


def test_one_output_gives_the_chained_gp_bound():
    """HetGaussian, independent priors: the bound of Saul et al. (2016), unwhitened, in NumPy."""
    rng = np.random.default_rng(3)
    x, y, Z = rng.uniform(0, 3, 25), rng.standard_normal(25), np.linspace(0, 3, 6)
    data = read({"y": hm.HetGaussian()}, x, y)
    batch, _ = full_batch(data, UNSCALED)
    numbers: dict[str, Any] = {
        "kernels": (hm.RBF(np.array([0.5])), hm.RBF(np.array([0.9]))),
        "inducing_inputs": Z[None, :, None],
        "weights": np.array([[1.3, 5.0], [5.0, 0.6]]),
        "mask": np.eye(2),
        "constants": np.array([0.2, -0.4]),
        "centre": np.zeros(2),
        "spread": np.ones(2),
    }
    prior = LMC(**jax.tree.map(jnp.asarray, numbers), ranks=(1, 1))
    m = rng.standard_normal((2, 6))
    root = np.tril(0.3 * rng.standard_normal((2, 6, 6))) + 0.5 * np.eye(6)
    model = Parameters(prior, tuple(data.likelihoods))
    value = jax.jit(elbo)(model, Factorised(jnp.asarray(m), jnp.asarray(root)), batch, JITTER)
    f_mean, f_var, kl = [], [], 0.0
    for j, ell in enumerate((0.5, 0.9)):
        a, b = numbers["weights"][j, j], numbers["constants"][j]
        Kzz = a**2 * (rbf(Z, Z, ell) + JITTER * np.eye(6))
        Kzx = a**2 * rbf(Z, x, ell)
        L = np.linalg.cholesky(Kzz)
        mu, S = L @ m[j], L @ root[j] @ root[j].T @ L.T
        B = np.linalg.solve(Kzz, Kzx)
        f_mean.append(b + B.T @ mu)
        f_var.append(a**2 - np.sum(Kzx * B, axis=0) + np.sum(B * (S @ B), axis=0))
        kl += 0.5 * (np.trace(np.linalg.solve(Kzz, S)) + mu @ np.linalg.solve(Kzz, mu) - 6)
        kl += 0.5 * (np.linalg.slogdet(Kzz)[1] - np.linalg.slogdet(S)[1])
    square = (y - f_mean[0]) ** 2 + f_var[0]
    ell_terms = np.log(2 * np.pi) + f_mean[1] + np.exp(-f_mean[1] + 0.5 * f_var[1]) * square
    assert float(value) == pytest.approx(-0.5 * np.sum(ell_terms) - kl, rel=1e-8)
