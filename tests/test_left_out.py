"""Values left out, against refits in closed form and by quadrature."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hetmogp as hm
from hetmogp.session import session

N = 30
rng = np.random.default_rng(3)
t = np.sort(rng.uniform(0.0, 1.0, N))
f = np.sin(7.0 * t)
Y = pd.DataFrame({"a": f + 0.2 * rng.standard_normal(N), "b": -f + 0.4 * rng.standard_normal(N)})
Y.loc[3:9, "b"] = np.nan
BOTH = {"a": hm.Gaussian(), "b": hm.Gaussian()}


def kernel_matrix(model, x, z):
    with session():
        return np.asarray(model.kernels_[0].matrix(x[:, None], z[:, None]))


@pytest.mark.parametrize("inducing", [N, 6])
def test_gaussian_outputs_against_q_found_again_without_each_value(inducing):
    """The posterior of inducing values in closed form, from all values but one."""
    model = hm.HetMOGP(BOTH, latents=1, inducing=inducing, tol=1e-9, progress=False).fit(t, Y)
    Z = model.inducing_inputs_[0][:, 0]
    jitter = model.fitted.record.jitter
    Kzz = kernel_matrix(model, Z, Z) + jitter * np.eye(len(Z))
    A = np.linalg.solve(np.linalg.cholesky(Kzz), kernel_matrix(model, Z, t))  # whitened
    residual = np.maximum(1.0 - np.sum(A * A, axis=0), 0.0)
    values = Y.to_numpy()
    rows = [(n, d) for d in range(2) for n in np.flatnonzero(~np.isnan(values[:, d]))]
    noise = [model.likelihoods_[name].constants["scale"] ** 2 for name in "ab"]
    w, b = model.weights_[:, 0], model.constants_
    expected: list[list[float]] = [[], []]
    for n, d in rows:
        P, linear = np.eye(len(Z)), np.zeros(len(Z))
        for m, e in rows:
            if (m, e) != (n, d):
                P += w[e] ** 2 / noise[e] * np.outer(A[:, m], A[:, m])
                linear += w[e] / noise[e] * (values[m, e] - b[e]) * A[:, m]
        mean = b[d] + w[d] * A[:, n] @ np.linalg.solve(P, linear)
        variance = w[d] ** 2 * (residual[n] + A[:, n] @ np.linalg.solve(P, A[:, n])) + noise[d]
        expected[d].append(stats.norm(mean, np.sqrt(variance)).logpdf(values[n, d]))
    found = model.leave_one_out(t, Y)["joint"]
    for d, name in enumerate("ab"):
        assert found[name] == pytest.approx(-np.mean(expected[d]), abs=2e-5)


def test_other_likelihoods_against_refits():
    """Hyperparameters learned again for each value: cavities are near, fitted scores are not."""
    g = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "count": g.poisson(np.exp(0.5 + f)).astype(float),
            "spread": f + 0.3 * g.standard_normal(N),
        }
    )
    kinds = {"count": hm.Poisson(), "spread": hm.HetGaussian()}
    options = {"latents": 2, "prune": False, "progress": False}
    model = hm.HetMOGP(kinds, **options).fit(t, table)
    found, inside = model.leave_one_out(t, table)["joint"], model.nlpd(t, table)
    for name in table:
        scores = []
        for n in range(0, N, 2):
            some = table.copy()
            some.loc[n, name] = np.nan
            again = hm.HetMOGP(kinds, **options).fit(t, some)
            scores.append(again.predict(t[[n]])[name].log_prob(table[name].iloc[[n]])[0])
        assert found[name] > inside[name]
        assert found[name] == pytest.approx(-np.mean(scores), abs=0.25)


def test_weights_are_left_out_whole():
    """A value that counts twice is as two values, of which both are left out."""
    table = pd.DataFrame({"a": Y["a"], "w": 1.0 + (np.arange(N) % 2)})
    kinds = {"a": hm.Gaussian(weight="w", scale=0.2)}
    options = {"latents": 1, "max_iter": 0, "progress": False, "inducing": N}
    model = hm.HetMOGP(kinds, **options).fit(t, table)
    K = model.weights_[0, 0] ** 2 * kernel_matrix(model, t, t)
    S = np.diag(0.2**2 / table["w"].to_numpy())
    scores = []
    for n in range(N):
        rest = np.delete(np.arange(N), n)
        solve = np.linalg.solve((K + S)[np.ix_(rest, rest)], K[rest, n])
        mean = model.constants_[0] + solve @ (table["a"].to_numpy()[rest] - model.constants_[0])
        variance = K[n, n] - solve @ K[rest, n] + 0.2**2
        scores.append(stats.norm(mean, np.sqrt(variance)).logpdf(table["a"][n]))
    found = model.leave_one_out(t, table)["joint"]["a"]
    assert found == pytest.approx(-np.mean(scores), abs=1e-4)


def test_what_has_no_sites_and_other_data_are_refused():
    model = hm.HetMOGP(BOTH, latents=1, method="svi", max_iter=2, progress=False).fit(t, Y)
    with pytest.raises(ValueError, match="full batches"):
        model.leave_one_out(t, Y)
    model = hm.HetMOGP(BOTH, latents=1, max_iter=0, progress=False).fit(t, Y)
    with pytest.raises(ValueError, match="output 'b' had 23 values, here it has 20"):
        model.leave_one_out(t, Y.assign(b=Y["b"].where(Y.index >= 3)))
    with pytest.raises(ValueError, match="the largest value of input 'x0' is another one here"):
        model.leave_one_out(t + 1.0, Y)
    model.mark_held_out(t, np.arange(len(Y)) < 3)
    with pytest.raises(ValueError, match=r"here it has 20; pass .*: X\[~model.held_out\(X\)\]"):
        model.leave_one_out(t, Y.assign(b=Y["b"].where(Y.index >= 3)))
