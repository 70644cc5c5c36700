"""Inducing inputs where latents need them: as many as each can use, and no more."""

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp.fitting import inducing
from hetmogp.fitting.inducing import by_need, choose_inducing, for_supports
from hetmogp.linalg import gram, spread
from hetmogp.posterior import Posterior
from hetmogp.priors import LMC
from hetmogp.session import session
from hetmogp.variational import Coupled, Factorised, LatentSites


@pytest.fixture(autouse=True)
def in_double_precision():
    """As within a fit."""
    with session():
        yield


def prior_of(kernels, Z, counts=()):
    """Two parameter functions that mix some latents."""
    R, rng = len(kernels), np.random.default_rng(0)
    return LMC(
        kernels=tuple(jax.tree.map(jnp.asarray, kernel) for kernel in kernels),
        inducing_inputs=jnp.asarray(Z),
        ranks=(1,) * R,
        weights=jnp.asarray(rng.standard_normal((2, R))),
        constants=jnp.zeros(2),
        centre=jnp.zeros(2),
        spread=jnp.ones(2),
        mask=jnp.ones((2, R)),
        counts=counts,
    )


def rbf(lengthscale, dims=None):
    """A kernel whose numbers are arrays, as after the start of a fit."""
    return hm.RBF(lengthscale=np.asarray(lengthscale), active_dims=dims)


@pytest.mark.parametrize("widths", [(4, 4, 4), (4, 2, 2), (1, 3, 4)])
def test_products_over_latents_of_different_sizes_equal_numpy(widths):
    rng = np.random.default_rng(1)
    R, M, N, K = 3, 4, 6, sum(widths)
    A, metric, S = (
        rng.standard_normal((R, M, N)),
        rng.standard_normal((N, R, R)),
        rng.standard_normal((K, K)),
    )
    metric, S = metric + metric.transpose(0, 2, 1), S + S.T
    wide = np.zeros((N, K, R))
    for r, end in enumerate(np.cumsum(widths)):
        wide[:, end - widths[r] : end, r] = A[r, : widths[r]].T
    expected = np.einsum("nkr,nrs,nls->kl", wide, metric, wide)
    np.testing.assert_allclose(
        gram(jnp.asarray(A), jnp.asarray(metric), widths), expected, rtol=1e-12, atol=1e-12
    )
    expected = np.einsum("nkr,kl,nls->nrs", wide, S, wide)
    np.testing.assert_allclose(
        spread(jnp.asarray(A), jnp.asarray(S), widths), expected, rtol=1e-12, atol=1e-12
    )

    def value(A, S):
        return jnp.sum(jnp.sin(spread(A, 0.5 * (S + S.T), widths)))

    jax.test_util.check_grads(value, (jnp.asarray(A), jnp.asarray(S)), 1, ["rev"])


@pytest.mark.parametrize("family", [Coupled, Factorised])
def test_rows_that_do_not_count_change_nothing(family):
    """A latent with two of four inducing inputs is one that was given those two alone."""
    rng = np.random.default_rng(2)
    Z, X = rng.standard_normal((2, 4, 1)), rng.standard_normal((9, 1))
    kernels = rbf([0.7]), rbf([1.5])
    sites = LatentSites(
        jnp.asarray(rng.standard_normal((9, 2))),
        *[jnp.broadcast_to(jnp.eye(2) + 0.3, (9, 2, 2))] * 2,
    )

    def marginals(prior):
        q = family.from_sites(prior.matrices(jnp.asarray(X), 1e-6).project(), sites)
        return float(q.kl()), Posterior(prior, q, 1e-6).functions(X)

    kl, padded = marginals(prior_of(kernels, Z, (4, 2)))
    Z[1, 2:] = 5.0  # whatever stands there
    assert marginals(prior_of(kernels, Z, (4, 2)))[0] == pytest.approx(kl)
    Z[1, 2:] = [[1e3], [2e3]]  # so far away that two rows are as good as none
    other, alone = marginals(prior_of(kernels, Z))
    assert other == pytest.approx(kl)
    for a, b in zip(padded, alone, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_smooth_latents_get_few_and_the_budget_is_kept():
    X = np.linspace(-2, 2, 400)[:, None]
    prior = prior_of([rbf([0.02]), rbf([2.0])], X[None, :5])
    Z, counts = by_need(prior, X, np.full((400, 2), 10.0), 150)
    assert sum(counts) <= 150
    assert counts[0] > 5 * counts[1] > 5
    assert len(np.unique(Z[0, : counts[0]])) == counts[0]
    for r, kernel in enumerate(prior.kernels):  # nats: what is short goes where it says most
        Zr = Z[r, : counts[r]]
        K = np.asarray(kernel.matrix(Zr, Zr)) + 1e-9 * np.eye(len(Zr))
        Kx = np.asarray(kernel.matrix(Zr, X))
        rest = 10.0 / 2 * np.sum(1.0 - np.sum(Kx * np.linalg.solve(K, Kx), axis=0))
        assert rest < (2000.0, 5.0)[r]


def test_rows_that_say_nothing_are_not_taken():
    X = np.linspace(-2, 2, 100)[:, None]
    known = np.zeros((100, 2))
    known[:50, 0] = 5.0  # the second latent is seen nowhere
    Z, counts = by_need(prior_of([rbf([0.3]), rbf([0.3])], X[None, :5]), X, known, 60)
    assert counts[1] == 1
    assert (Z[0, : counts[0]] < 0).all()


def test_a_latent_over_one_input_has_its_values_and_no_more():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.standard_normal(200), np.repeat(np.arange(8.0), 25)])
    Z, counts = for_supports([rbf([1.0, 1.0]), rbf([1.0], (1,))], X, 40, 0, [])
    assert counts == (40, 8)
    np.testing.assert_array_equal(np.sort(Z[1, :8, 1]), np.arange(8.0))


@pytest.mark.parametrize("number", [4, 30, 40])
@pytest.mark.parametrize("labels", [[], [0]])
def test_values_that_are_rare_count_as_distinct_however_many_rows_there_are(
    number, labels, monkeypatch
):
    """Forty values, most of which a sample of a hundred rows misses."""
    monkeypatch.setattr(inducing, "KMEANS_ROWS", 100)
    values, times = np.arange(40.0), np.where(np.arange(40) < 2, 5000, 1)
    X = np.random.default_rng(0).permutation(np.repeat(values, times))[:, None]
    Z = choose_inducing(X, number, 0, labels)
    assert len(np.unique(Z)) == number
    if labels:  # the most frequent ones
        np.testing.assert_array_equal(np.sort(Z[:, 0])[:2], [0.0, 1.0])
    assert for_supports([rbf([1.0])], X, number, 0, labels).inputs.shape == (1, number, 1)


@pytest.mark.parametrize(
    ("latents", "right"),
    [
        ("auto", "2 of one shape and latents=2"),
        (1, "2 of one shape and latents=2"),
        (3, "3 of one"),
    ],
)
def test_the_right_number_of_arrays_is_said(latents, right):
    two = [np.arange(3.0), np.arange(3.0)]
    model = hm.HetMOGP([hm.Gaussian()], inducing=two, latents=latents, progress=False)
    with pytest.raises(ValueError, match=f"give one array, or {right}"):
        model.fit(np.arange(6.0), np.arange(6.0))


@pytest.mark.slow
def test_a_model_whose_latents_differ_is_saved_and_shown(tmp_path):
    """By default: a smooth and a rough output, alone or together, with more rows than fit."""
    rng = np.random.default_rng(4)
    t = np.linspace(0, 10, 500)
    frame = pd.DataFrame(
        {
            "slow": np.sin(0.6 * t) + 0.1 * rng.standard_normal(500),
            "fast": np.sin(25.0 * t) + 0.1 * rng.standard_normal(500),
        }
    )
    X = pd.DataFrame({"t": t})
    model = hm.HetMOGP([hm.Gaussian(), hm.Gaussian()], progress=False).fit(X, frame)
    counts = [len(Z) for Z in model.inducing_inputs_]
    assert len(set(counts)) > 1
    assert sum(counts) <= 800
    fast = model.predict(X)["fast"].mean
    assert np.sqrt(np.mean((fast - np.sin(25.0 * t)) ** 2)) < 0.06
    model.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    np.testing.assert_array_equal(again.predict(X)["slow"].mean, model.predict(X)["slow"].mean)
    assert [len(Z) for Z in again.inducing_inputs_] == counts
