"""What a fit leaves unexplained: its scores, and the evidence for detail of short range in them."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

import hetmogp as hm
from hetmogp.batch import Observations
from hetmogp.fitting.learning import CLEAR
from hetmogp.fitting.unexplained import NEIGHBOURS, RANGES, SHARES, _gains, _scaled
from hetmogp.priors import Functions
from hetmogp.session import session


def apart(X):
    """The typical distance of a place to the nearest one."""
    return np.median(cKDTree(X).query(X, k=2)[0][:, 1])


def matern(X, lengthscale):
    """The Matern 3/2 covariance of places."""
    r = np.sqrt(3.0) * cdist(X, X) / lengthscale
    return (1.0 + r) * np.exp(-r)


def test_the_gain_is_that_of_dense_gaussians_where_all_places_are_neighbours():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(NEIGHBOURS + 1, 2))
    rows = np.array([0, 0, 1, 2, 3, 4, 4, 4, 5, 6])  # some places have several values
    scores = rng.standard_normal((len(rows), 1))
    with session():
        found = _gains(X, rows, scores, labels=())
    s = np.array([scores[rows == i].sum() / np.sqrt(np.sum(rows == i)) for i in range(len(X))])
    s /= np.sqrt(np.mean(s**2))
    alone = multivariate_normal(np.zeros(len(X))).logpdf(s)
    gains = [
        multivariate_normal(
            np.zeros(len(X)), (1 - share) * np.eye(len(X)) + share * matern(X, one * apart(X))
        ).logpdf(s)
        - alone
        for one, share in product(RANGES, SHARES)
    ]
    assert found == pytest.approx([max(gains)], abs=1e-4)


@pytest.mark.parametrize("p", [1, 2])
def test_scores_that_neighbours_share_are_told_from_noise(p):
    rng = np.random.default_rng(p)
    X = rng.uniform(size=(800, p))
    noise = rng.standard_normal((800, 1))
    root = np.linalg.cholesky(matern(X, 3 * apart(X)) + 1e-9 * np.eye(800))
    detail = root @ rng.standard_normal((800, 1))
    with session():
        (nothing,) = _gains(X, np.arange(800), noise, labels=())
        (something,) = _gains(X, np.arange(800), noise + detail, labels=())
        (elsewhere,) = _gains(np.column_stack([X, np.arange(800)]), np.arange(800), noise, [p])
    assert nothing < CLEAR < something
    assert abs(elsewhere) < 0.1 * CLEAR  # no two places have a label in common


def test_the_score_of_a_real_value_is_its_residual_in_units_of_the_noise():
    y, mean, scale = np.array([0.3, -1.0, 2.0]), np.array([0.1, 0.1, 0.5]), 0.7
    with session():
        slope = Functions(
            jnp.asarray((y - mean) / scale**2)[:, None],
            jnp.full((3, 1, 1), -0.5 / scale**2),
        )
        there = jnp.ones(3, bool)
        rows = jnp.arange(3)
        seen = Observations(jnp.asarray(y), there, rows, jnp.ones(3), {}, jnp.asarray(1.0))
        found = np.asarray(_scaled(slope, seen))[:, 0]
    np.testing.assert_allclose(found, (y - mean) / scale)


def days(n, seed):
    """A real and a binary output of a slow function and a quick one, by day."""
    rng = np.random.default_rng(seed)
    t = np.arange(float(n))[:, None]
    root = np.linalg.cholesky(matern(t, 3.0) + 1e-9 * np.eye(n))
    f = np.sin(t[:, 0] / 150) + 0.7 * root @ rng.standard_normal(n)
    yes = (rng.uniform(size=n) < 1 / (1 + np.exp(-3 * f))).astype(float)
    return t, {"level": f + 0.3 * rng.standard_normal(n), "high": yes}


def test_a_full_batch_has_local_latents_too_where_inducing_inputs_are_too_few():
    t, Y = days(1800, 0)
    rng = np.random.default_rng(1)
    old = np.sort(rng.permutation(1800)[:1500])
    new = np.setdiff1d(np.arange(1800), old)
    seen = {name: np.where(rng.uniform(size=1500) < 0.9, y[old], np.nan) for name, y in Y.items()}
    likelihoods = {"level": hm.Gaussian(), "high": hm.Bernoulli()}
    fine = hm.HetMOGP(likelihoods, progress=False).fit(t[old], seen)
    smooth = hm.HetMOGP(likelihoods, local=0, progress=False).fit(t[old], seen)
    assert fine.fitted.posterior.near is not None
    assert smooth.fitted.posterior.near is None
    assert fine.elbo_ > smooth.elbo_ + 20
    fresh = {name: y[new] for name, y in Y.items()}
    assert fine.nlpd(t[new], fresh)["global"] < smooth.nlpd(t[new], fresh)["global"] - 0.1
    with pytest.raises(ValueError, match="local=0"):
        fine.leave_one_out(t[old], seen)
