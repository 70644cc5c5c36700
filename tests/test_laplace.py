"""Intervals of hyperparameters, against the curvature of an exact process's evidence."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hetmogp as hm

N = 40
rng = np.random.default_rng(0)
t = np.sort(rng.uniform(0.0, 1.0, N))
f = np.sin(7.0 * t)
Y = pd.DataFrame(
    {
        "a": f + 0.2 * rng.standard_normal(N),
        "b": -f + np.cos(9.0 * t) + 0.3 * rng.standard_normal(N),
    }
)
GAUSSIAN = {"a": hm.Gaussian(), "b": hm.Gaussian()}


@pytest.fixture(scope="module")
def model():
    options = {"inducing": t[:, None], "prune": False, "tol": 1e-9, "progress": False}
    return hm.HetMOGP(GAUSSIAN, latents=2, hyperpriors=None, **options).fit(t, Y)


def evidence(theta, jitter):
    """Of log lengthscales (2), weights (4), constants (2) and log noise (2), by NumPy."""
    W, K = theta[2:6].reshape(2, 2), np.zeros((2 * N, 2 * N))
    squares = (t[:, None] - t) ** 2
    for q in range(2):
        k = np.exp(-0.5 * squares / np.exp(2.0 * theta[q])) + jitter * np.eye(N)
        K += np.kron(np.outer(W[:, q], W[:, q]), k)
    K += np.kron(np.diag(np.exp(2.0 * theta[8:])), np.eye(N))
    mean = np.repeat(theta[6:8], N)
    return stats.multivariate_normal(mean, K).logpdf(Y.to_numpy().T.ravel())


def correlation(theta):
    B = theta[2:6].reshape(2, 2) @ theta[2:6].reshape(2, 2).T
    return np.arctanh(B[0, 1] / np.sqrt(B[0, 0] * B[1, 1]))


def test_widths_are_those_of_the_exact_evidence(model):
    lengthscales = [np.log(kernel.lengthscale[0]) for kernel in model.kernels_]
    noise = [np.log(model.likelihoods_[name].constants["scale"]) for name in "ab"]
    theta = np.concatenate([lengthscales, model.weights_.ravel(), model.constants_, noise])
    n, h = len(theta), 1e-3
    steps, H, jitter = h * np.eye(n), np.empty((n, n)), model.fitted.record.jitter
    for i in range(n):
        for j in range(n):
            corners = [
                r * s * evidence(theta + r * steps[i] + s * steps[j], jitter)
                for r in (1, -1)
                for s in (1, -1)
            ]
            H[i, j] = -sum(corners) / (4.0 * h * h)
    cov = np.linalg.inv(H)
    slope = np.array([correlation(theta + s) - correlation(theta - s) for s in steps]) / (2 * h)

    table = model.intervals(t, Y)
    widths = model.fitted.record.widths
    np.testing.assert_allclose(widths.kernels, np.sqrt(np.diag(cov))[:2], rtol=0.02)
    expected = np.sqrt(slope @ cov @ slope)
    np.testing.assert_allclose(widths.correlation[0][1], expected, rtol=0.02)
    half = 1.6449 * np.sqrt(np.diag(cov))[:2]
    np.testing.assert_allclose(np.log(table["upper"]), np.asarray(lengthscales) + half, rtol=0.02)
    np.testing.assert_allclose(np.log(table["lower"]), np.asarray(lengthscales) - half, rtol=0.02)
    summary = model.summary()
    low, high = summary.correlation_lower.iloc[0, 1], summary.correlation_upper.iloc[0, 1]
    middle = correlation(theta)
    assert np.arctanh(high) - middle == pytest.approx(1.6449 * expected, rel=0.02)
    assert middle - np.arctanh(low) == pytest.approx(1.6449 * expected, rel=0.02)


def test_they_are_kept_with_the_model_and_printed(model, tmp_path):
    model.intervals(t, Y)
    model.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    assert again.fitted.record.widths == model.fitted.record.widths
    assert repr(again.summary()) == repr(model.summary())
    assert "numbers of the kernels, with 90% intervals" in repr(again.summary())


def test_priors_narrow_and_other_likelihoods_have_them():
    """A weak prior adds 1/1.5² to the curvature of a log lengthscale; more data narrow it."""
    g = np.random.default_rng(1)
    found = []
    for n in (30, 240):
        x = np.sort(g.uniform(0.0, 1.0, n))
        counts = g.poisson(np.exp(1.0 + np.sin(7.0 * x))).astype(float)
        kind = {"count": hm.Poisson()}
        model = hm.HetMOGP(kind, latents=1, inducing=12, progress=False).fit(x, {"count": counts})
        table = model.intervals(x, {"count": counts})
        found.append(np.log(table["upper"] / table["lower"]).iloc[0] / (2 * 1.6449))
    assert found[1] < found[0] < 1.5


def test_fixed_numbers_have_none_and_mini_batches_refuse():
    kernel = hm.RBF(0.2, fixed=("lengthscale",))
    options = {"latents": 1, "inducing": 8, "max_iter": 1, "progress": False}
    model = hm.HetMOGP([hm.Gaussian()], kernel=kernel, **options).fit(t, Y["a"])
    assert model.intervals(t, Y["a"])["lower"].isna().all()
    with pytest.raises(ValueError, match="intervals are about the data that were fitted"):
        model.intervals(t[:9], Y["a"][:9])
    small = hm.HetMOGP([hm.Gaussian()], method="svi", **{**options, "max_iter": 5})
    with pytest.raises(ValueError, match="not available for a fit on mini-batches"):
        small.fit(t, Y["a"]).intervals(t, Y["a"])
