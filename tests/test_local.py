"""Local latents: places and their relations, q by blocks against exact processes, whole fits."""

import warnings
from types import SimpleNamespace
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

import hetmogp as hm
from hetmogp.fitting import learning, local
from hetmogp.fitting.draws import Feed
from hetmogp.fitting.fit import NotPositiveDefiniteError
from hetmogp.fitting.local import kernel_of_range
from hetmogp.fitting.options import Options
from hetmogp.places import Places, nearest
from hetmogp.session import session
from hetmogp.variational import deviations, evidence, means
from hetmogp.variational.neighbours import Neighbourhood, Sites, Surroundings
from hetmogp.variational.semidefinite import positive_part

rng = np.random.default_rng(0)
OWN = 0.05  # the share of a latent's variance that every place has to itself


# -- places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3])
def test_near_places_are_the_nearest_of_the_earlier_ones(p):
    places = Places.of(rng.uniform(size=(600, p)), 7, 20, seed=0)
    apart = cdist(places.at, places.at)
    for i in (0, 1, 3, 8, 57, 300, 599):
        earlier = np.argsort(apart[i, :i], kind="stable")[:7]
        assert set(places.near[i][places.near[i] >= 0]) == set(earlier)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_rows_have_their_nearest_places_however_few_rows_there_are(n):
    at, X = rng.uniform(size=(4, 2)), rng.uniform(size=(n, 2))
    for neighbours in (1, 3, 9):
        expected = np.argsort(cdist(X, at), axis=1)[:, :neighbours]
        np.testing.assert_array_equal(nearest(cKDTree(at), X, neighbours), expected)


def test_every_place_is_in_one_block_and_every_conditional_is_known_to_those_it_speaks_of():
    places = Places.of(rng.uniform(size=(500, 2)), 6, 32, seed=0)
    assert sorted(places.members[places.members >= 0]) == list(range(500))
    assert (places.members >= 0).sum(axis=1).min() >= 28  # nearly equal
    for c, members in enumerate(places.members):
        own = set(members[members >= 0])
        assert {i for i in own if places.block[i] == c} == own
        speak = {i for i in range(500) if own & {i, *places.near[i]}}
        assert set(places.terms[c][places.terms[c] >= 0]) == speak


# -- q by blocks -----------------------------------------------------------------------------------


def neighbourhood(places, R=1):
    (L, _), (C, n), K = places.at.shape, places.members.shape, places.near.shape[1]
    at, block, slot = map(jnp.asarray, (places.at, places.block, places.slot))
    eyes, none = jnp.tile(jnp.eye(R * n), (C, 1, 1)), jnp.zeros((0, L, R))
    own = jnp.full(R, OWN)
    return Neighbourhood(at, block, slot, jnp.zeros((L, R)), eyes, none, own, neighbours=K)


def covariance(kernel, X, Z=None):
    """Of a local latent between places, or inputs and places, with each place's own share."""
    Z = X if Z is None else Z
    same = (cdist(X, Z) == 0).astype(float)
    return (1 - OWN) * np.asarray(kernel.matrix(jnp.asarray(X), jnp.asarray(Z))) + OWN * same


@eqx.filter_jit
def swept(q, given, around, sites):
    """q with some of its blocks brought to their best."""
    members = around.members
    there = (members >= 0)[..., None]
    own = Sites(
        jnp.where(there, sites.linear[members], 0.0),
        jnp.where(there[..., None], sites.precision[members], 0.0),
    )
    mean, cov, _ = q.updated(given.of(around.terms.reshape(-1)), around, own)
    to = jnp.where(members >= 0, members, len(q.block))
    means, covs = q.mean, q.cov
    changed = means.at[to].set(mean, mode="drop"), covs.at[around.block].set(cov)  # noqa: PD008
    return eqx.tree_at(lambda q: (q.mean, q.cov), q, changed)


def settled(places, kernel, linear, precision, sweeps=60):
    """q brought to its best by turns, block by block, given Gaussian sites."""
    q, near = neighbourhood(places), jnp.asarray(places.near)
    given = eqx.filter_jit(q.given)((kernel,), q.at, near)
    sites = Sites(jnp.asarray(linear)[:, None], jnp.asarray(precision)[:, None, None])
    for _ in range(sweeps):
        for some in np.arange(len(places.members))[:, None]:  # neighbours by turns
            members, terms = (jnp.asarray(a[some]) for a in (places.members, places.terms))
            by = jnp.where((terms >= 0)[..., None], near[terms], -1)
            q = swept(q, given, Surroundings(jnp.asarray(some), members, terms, by), sites)
    return q


def exact(K, noise, y):
    """Mean and covariance of an exact process with Gaussian noise."""
    gain = K @ np.linalg.inv(K + noise**2 * np.eye(len(K)))
    return gain @ y, K - gain @ K


@pytest.mark.parametrize(("p", "spacings"), [(1, 3), (1, 10), (2, 1), (2, 3), (2, 10)])
def test_standard_deviations_are_those_of_an_exact_process(p, spacings):
    """Of f, and of means over 20 neighbouring places, also across blocks."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(400, p))
    apart = cdist(X, X) + 9 * np.eye(400)
    with session():
        places = Places.of(X, 10, 40, seed=0)
        kernel = kernel_of_range(spacings * np.median(apart.min(axis=1)), p, ())
        K = covariance(kernel, places.at)
        y = np.linalg.cholesky(K + 1e-9 * np.eye(400)) @ rng.standard_normal(400)
        y += rng.standard_normal(400)
        blocks = settled(places, kernel, y, np.ones(400))
        mean, cov = exact(K, 1.0, y)
        near, members = jnp.asarray(places.near), jnp.asarray(places.members)
        known = blocks, (kernel,), near, members, jnp.ones((400, 1, 1))
        beyond = jnp.concatenate([deviations(*known, jax.random.key(k)) for k in range(16)])
        q = eqx.tree_at(lambda q: q.beyond, blocks, beyond)
        found = q.at_places(jnp.arange(400))
        nearest20 = jnp.asarray(nearest(cKDTree(places.at), places.at, 20))
        among = np.asarray(q._among(nearest20, nearest20, 0, 0))
    truth, sd = np.sqrt(np.diag(cov)), np.sqrt(np.asarray(found.cov)[:, 0, 0])
    assert np.median(sd / truth) == pytest.approx(1.0, abs=0.02)
    assert np.quantile(sd / truth, 0.05) > 0.9
    off = np.asarray(found.mean)[:, 0] - mean
    assert np.sqrt(np.mean(off**2 / truth**2)) < 0.15
    of_means = [cov[np.ix_(some, some)].sum() for some in np.asarray(nearest20)]
    ratios = np.sqrt(among.sum(axis=(1, 2)) / of_means)
    assert np.median(ratios) == pytest.approx(1.0, abs=0.07)  # see `deviations` on other blocks


def test_means_of_all_places_together_are_those_of_an_exact_process():
    """Also of a latent that reaches across all blocks, where sweeps would not end."""
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(400, 2))
    with session():
        places = Places.of(X, 12, 40, seed=0)
        kernel = kernel_of_range(1.0, 2, ())
        K = covariance(kernel, places.at)
        y = np.linalg.cholesky(K) @ rng.standard_normal(400) + rng.standard_normal(400)
        once = settled(places, kernel, y, np.ones(400), sweeps=1)
        near, members = jnp.asarray(places.near), jnp.asarray(places.members)
        sites = Sites(jnp.asarray(y)[:, None], jnp.ones((400, 1, 1)))
        found = np.asarray(means(once, (kernel,), near, members, sites))[:, 0]
    mean, cov = exact(K, 1.0, y)
    sd = np.sqrt(np.diag(cov))
    assert np.sqrt(np.mean(((found - mean) / sd) ** 2)) < 0.25  # what twelve near places leave
    assert np.sqrt(np.mean(((np.asarray(once.mean)[:, 0] - mean) / sd) ** 2)) > 0.5


@pytest.mark.parametrize("R", [1, 2, 3, 5])
def test_the_nearest_semi_definite_matrix(R):
    """Against LAPACK; the curvature of one function of several latents has rank one and stays."""
    rng = np.random.default_rng(R)
    some = rng.standard_normal((200, R, R)) * 10 ** rng.uniform(-4, 4, size=(200, 1, 1))
    some = some + some.transpose(0, 2, 1)
    root = rng.standard_normal((200, R, 1)) * 10 ** rng.uniform(-4, 2, size=(200, R, 1))
    values, vectors = np.linalg.eigh(some)
    nearest = (vectors * np.maximum(values, 0.0)[:, None]) @ vectors.transpose(0, 2, 1)
    of_rank_one = root @ root.transpose(0, 2, 1)
    with session():
        for given, expected in ((some, nearest), (of_rank_one, of_rank_one)):
            found = np.asarray(positive_part(jnp.asarray(given)))
            off = np.abs(found - expected).max(axis=(1, 2))
            assert np.max(off / np.abs(given).max(axis=(1, 2))) < 1e-13


def test_the_evidence_of_sites_is_that_of_an_exact_process_and_finds_its_lengthscale():
    """Two latents, told by two numbers at each place, of which some are missing."""
    rng, L = np.random.default_rng(0), 300
    with session():
        places = Places.of(rng.uniform(size=(L, 2)), 12, 40, seed=0)
        first, second = (kernel_of_range(scale, 2, ()) for scale in (0.05, 0.15))
        K = [covariance(kernel, places.at) for kernel in (first, second)]
        u = np.stack([np.linalg.cholesky(k) @ rng.standard_normal(L) for k in K], axis=1)
        H = rng.standard_normal((L, 2, 2))
        H[::3, 1] = 0.0  # half of it not seen
        y = np.einsum("ljr,lr->lj", H, u) + 0.5 * rng.standard_normal((L, 2))
        linear = np.einsum("ljr,lj->lr", H, y) / 0.25
        precision = np.einsum("ljr,ljs->lrs", H, H) / 0.25
        near, i = jnp.asarray(places.near), jnp.arange(L)
        every = jnp.concatenate([near, i[:, None]], axis=1)
        sites = Sites(jnp.asarray(linear)[every], jnp.asarray(precision)[every])
        found, right = [], []
        for scale in (0.03, 0.05, 0.08):
            kernels = kernel_of_range(scale, 2, ()), second
            own, at = jnp.full(2, OWN), jnp.asarray(places.at)
            terms = evidence(kernels, own, at, i, near, sites)
            found.append(float(jnp.sum(terms)))
            K = [covariance(kernel, places.at) for kernel in kernels]
            right.append(evidence_of_gaussians(K, linear, precision))
    np.testing.assert_allclose(found, right, atol=4.0)
    assert np.argmax(found) == np.argmax(right) == 1


def evidence_of_gaussians(K, linear, precision):
    """log ∫ exp(λᵀu − ½ uᵀΛu) N(u; 0, K) du of independent latents, all places at once."""
    L, R = linear.shape
    whole, together = np.zeros((2, R * L, R * L))
    for r in range(R):
        whole[r * L : (r + 1) * L, r * L : (r + 1) * L] = K[r]
        for s in range(R):
            together[np.arange(L) + r * L, np.arange(L) + s * L] = precision[:, r, s]
    A, flat = np.eye(R * L) + together @ whole, linear.T.reshape(-1)
    return 0.5 * flat @ whole @ np.linalg.solve(A, flat) - 0.5 * np.linalg.slogdet(A)[1]


def test_the_divergence_is_that_of_two_gaussians():
    """With one block for all places and all earlier ones near, prior and q are plain Gaussians."""
    X = rng.uniform(size=(12, 2))
    with session():
        places = Places.of(X, 11, 12, seed=0)
        kernel = kernel_of_range(0.4, 2, ())
        q = neighbourhood(places)
        root = rng.standard_normal((12, 12))
        cov, mean = root @ root.T / 12 + 0.1 * np.eye(12), rng.standard_normal(12)
        slot = np.argsort(places.slot)
        q = Neighbourhood(
            *(q.at, q.block, q.slot, jnp.asarray(mean)[:, None]),
            *(jnp.asarray(cov[np.ix_(slot, slot)])[None], q.beyond, q.own),
            neighbours=11,
        )
        given = q.given((kernel,), q.at, jnp.asarray(places.near))
        terms = q.divergence(given, jnp.arange(12), jnp.asarray(places.near))
        found = float(terms) - 0.5 * (np.linalg.slogdet(cov)[1] + 12)
        K = covariance(kernel, places.at)
    inverse = np.linalg.inv(K)
    expected = 0.5 * (
        np.trace(inverse @ cov)
        + mean @ inverse @ mean
        - 12
        + np.linalg.slogdet(K)[1]
        - np.linalg.slogdet(cov)[1]
    )
    assert found == pytest.approx(expected, rel=1e-6)


def test_new_inputs_are_predicted_as_by_an_exact_process_and_rows_together():
    """From the nearest places; a row that repeats has the same value."""
    rng = np.random.default_rng(3)
    X, new = rng.uniform(size=(300, 1)), np.sort(rng.uniform(0.2, 0.8, size=(30, 1)), axis=0)
    new[1] = new[0]
    with session():
        places = Places.of(X, 8, 40, seed=0)
        new[2] = X[np.argmin(np.abs(X - 0.5))]  # a place, whose own share it has, too
        kernel = kernel_of_range(0.02, 1, ())
        K = covariance(kernel, places.at)
        y = np.linalg.cholesky(K + 1e-9 * np.eye(300)) @ rng.standard_normal(300)
        y += 0.3 * rng.standard_normal(300)
        q = settled(places, kernel, y / 0.09, np.full(300, 1 / 0.09))
        near, members = map(jnp.asarray, (places.near, places.members))
        known = q, (kernel,), near, members, jnp.full((300, 1, 1), 1 / 0.09)
        beyond = jnp.concatenate([deviations(*known, jax.random.key(k)) for k in range(4)])
        q = eqx.tree_at(lambda q: q.beyond, q, beyond)
        near = jnp.asarray(nearest(cKDTree(places.at), new, 8))
        given = q.given((kernel,), jnp.asarray(new), near)
        found, joint = q.latents(given, near), np.asarray(q.joint(given, jnp.asarray(new), near))
        cross, own = covariance(kernel, new, places.at), covariance(kernel, new)
    inverse = np.linalg.inv(K + 0.09 * np.eye(300))
    mean, cov = cross @ inverse @ y, own - cross @ inverse @ cross.T
    truth = np.sqrt(np.diag(cov))
    ratio = np.sqrt(np.asarray(found.cov)[:, 0, 0]) / truth
    assert np.median(np.abs(ratio - 1)) < 0.02
    assert np.min(ratio) > 0.8
    assert np.max(np.abs(np.asarray(found.mean)[:, 0] - mean) / truth) < 0.3
    np.testing.assert_allclose(np.diagonal(joint[:, 0, :, 0]), found.cov[:, 0, 0], rtol=1e-9)
    assert joint[0, 0, 1, 0] == pytest.approx(joint[0, 0, 0, 0])


# -- mini-batches ----------------------------------------------------------------------------------


def test_an_epoch_meets_every_block_and_every_row_once():
    blocks = rng.integers(0, 23, 500), rng.integers(0, 23, 70)
    feed = Feed(blocks, 23, Options(batch_size=20))
    assert feed.epoch > 1
    met: list[int] = []
    rows: list[list[int]] = [[], []]
    for step in range(feed.epoch):
        drawn = feed.take(1)
        met += [c for c in np.asarray(drawn.block[0]) if c >= 0]
        for g in range(2):
            own, which = np.asarray(drawn.rows[g][0]), np.asarray(drawn.which[g][0])
            own, which = own[own >= 0], which[own >= 0]
            np.testing.assert_array_equal(np.asarray(drawn.block[0])[which], blocks[g][own])
            rows[g] += own.tolist()
        assert step < 1000
    assert sorted(met) == list(range(23))
    assert [sorted(r) for r in rows] == [list(range(500)), list(range(70))]


def rough(n, seed):
    """Places with a smooth function and one of short range; a real and a binary output of both."""
    draw = np.random.default_rng(seed)
    X = pd.DataFrame(draw.uniform(size=(n, 2)), columns=["x", "y"])
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 26)] * 2), axis=-1).reshape(-1, 2)
    apart = cdist(X.to_numpy(), grid)
    bumps = np.exp(-0.5 * (apart / 0.02) ** 2) @ np.random.default_rng(9).standard_normal(676)
    f = np.sin(5 * X["x"]) + 1.5 * bumps
    Y = pd.DataFrame(
        {
            "level": f + 0.2 * draw.standard_normal(n),
            "high": (draw.uniform(size=n) < 1 / (1 + np.exp(-3 * f))).astype(float),
        }
    )
    return X, Y


LIKELIHOODS = {"level": hm.Gaussian(), "high": hm.Bernoulli()}


@pytest.fixture(scope="module")
def fitted():
    X, Y = rough(3500, 0)
    Y.loc[X["x"] > 0.8, "high"] = np.nan
    return hm.HetMOGP(LIKELIHOODS, max_iter=300, batch_size=150, progress=False).fit(X, Y)


def test_local_latents_come_by_themselves_where_they_pay(fitted):
    assert fitted.fitted.posterior.near is not None
    assert fitted.weights_.shape[1] == len(fitted.inducing_inputs_) + 2  # one for each function
    summary = fitted.summary()
    assert "local" in repr(summary)
    W, local_ones = fitted.weights_, fitted.weights_[:, -2:]  # kernels have unit variance
    share = (local_ones**2).sum(axis=1) / (W**2).sum(axis=1)
    np.testing.assert_allclose(summary.local, share, atol=0.02)  # latents not in use do not count
    X, Y = rough(1000, 1)
    smooth = hm.HetMOGP(LIKELIHOODS, latents=2, inducing=40, max_iter=200, progress=False)
    smooth.fit(*rough(3500, 0))
    scores, blurred = fitted.nlpd(X, Y), smooth.nlpd(X, Y)
    assert scores["level"] < 0.5 * np.log(2 * np.pi * np.e * 0.2**2) + 0.5  # of the truth
    assert scores["level"] < blurred["level"] - 0.5
    assert scores["high"] < blurred["high"] - 0.05


def test_outputs_share_local_latents_where_they_have_gaps(fitted):
    assert np.all(np.asarray(fitted.fitted.posterior.prior.mask)[:, -2:] > 0)
    X, Y = rough(400, 0)
    Y["noisy"] = Y["level"]
    likelihoods = {**LIKELIHOODS, "noisy": hm.HetGaussian()}
    whole = hm.HetMOGP(likelihoods, local=3, max_iter=5, progress=False).fit(X, Y)
    of_output = np.array([0, 1, 2, 2])  # the output of each function
    own = of_output[:, None] == np.arange(3)  # the first functions of all outputs come first
    mask = np.asarray(whole.fitted.posterior.prior.mask)[:, -3:]
    assert (mask > 0).tolist() == own.tolist()
    assert np.count_nonzero(whole.weights_[:, -3:]) == np.sum(own)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_local_model_predicts_as_many_rows_as_there_are(fitted, n):
    prediction = fitted.predict(rough(5, 2)[0][:n])["level"]
    assert prediction.mean.shape == (n,)
    assert prediction.interval(0.9)[0].shape == (n,)


def test_intervals_of_local_models_hold(fitted):
    X, Y = rough(1000, 2)
    lower, upper = fitted.predict(X)["level"].interval(0.9)
    inside = np.mean((Y["level"] >= lower) & (Y["level"] <= upper))
    assert 0.85 < inside < 0.97  # the fit is cut short, so that noise is still too large


def test_functions_and_joint_of_a_local_model_agree(fitted):
    X = rough(40, 3)[0]
    mean, cov = fitted.parameter_functions(X)
    order = fitted.fitted.places
    with session():
        table = fitted.fitted.scaling.apply(X.to_numpy())
        together, joint = fitted.fitted.posterior.joint(table)
    np.testing.assert_allclose(together[:, order], mean, rtol=1e-6, atol=1e-8)
    each = joint[np.arange(40), :, np.arange(40)][:, order[:, None], order]
    np.testing.assert_allclose(each, cov, rtol=1e-5, atol=1e-8)


def test_a_local_model_is_saved_whole(fitted, tmp_path):
    fitted.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    X = rough(50, 4)[0]
    for name in LIKELIHOODS:
        np.testing.assert_array_equal(again.predict(X)[name].mean, fitted.predict(X)[name].mean)
    assert repr(again.summary()) == repr(fitted.summary())


def test_a_local_fit_that_was_killed_goes_on_where_it_was(tmp_path, monkeypatch):
    X, Y = rough(600, 5)
    options = {"latents": 2, "inducing": 20, "local": 1, "max_iter": 48, "batch_size": 60}
    model = hm.HetMOGP(LIKELIHOODS, progress=False, **options)
    whole = model.fit(X, Y).predict(X)["level"].mean
    calls, chunk = iter(range(100)), local.chunk

    def killed(*args):
        if next(calls) == 4:
            raise RuntimeError("killed")
        return chunk(*args)

    monkeypatch.setattr(local, "chunk", killed)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, Y, checkpoint=tmp_path, every=16)
    assert list((tmp_path / "local").glob("*.checkpoint"))
    again = model.fit(X, Y, checkpoint=tmp_path, every=16, resume=True)
    np.testing.assert_allclose(again.predict(X)["level"].mean, whole, rtol=1e-9)


def test_a_full_batch_has_local_latents_too_where_inducing_inputs_are_too_few():
    """A slow function of time and a quick one, whose values by day are nearly unrelated."""
    rng = np.random.default_rng(0)
    t = np.arange(1560.0)[:, None]
    r = np.sqrt(3.0) * cdist(t, t) / 3.0
    root = np.linalg.cholesky((1 + r) * np.exp(-r) + 1e-9 * np.eye(len(t)))
    f = np.sin(t[:, 0] / 150) + 0.7 * root @ rng.standard_normal(len(t))
    y = f + 0.3 * rng.standard_normal(len(t))
    old = np.sort(rng.permutation(len(t))[:1300])
    new = np.setdiff1d(np.arange(len(t)), old)
    options = {"tol": 0.005, "progress": False}
    fine = hm.HetMOGP([hm.Gaussian()], **options).fit(t[old], y[old])
    smooth = hm.HetMOGP([hm.Gaussian()], local=0, **options).fit(t[old], y[old])
    assert fine.fitted.posterior.near is not None
    assert smooth.fitted.posterior.near is None
    assert fine.elbo_ > smooth.elbo_ + 20
    assert fine.score(t[new], y[new]) > smooth.score(t[new], y[new]) + 0.05
    with pytest.raises(ValueError, match="local=0"):
        fine.leave_one_out(t[old], y[old])


@pytest.mark.parametrize("error", [KeyboardInterrupt, NotPositiveDefiniteError])
def test_an_attempt_that_fails_does_not_lose_the_fit(monkeypatch, error):
    def failing(*rest):
        raise error

    monkeypatch.setattr(learning, "_with_detail", failing)
    t = np.arange(900.0)
    y = np.sin(t / 30) + 0.3 * np.random.default_rng(0).standard_normal(900)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the interrupt
        model = hm.HetMOGP([hm.Gaussian()], progress=False).fit(t, y)
    assert model.method_ == "vem"
    assert model.score(t, y) > -0.5


def test_a_fit_is_given_up_when_its_gains_no_longer_lead_to_the_goal():
    bounds = iter([0.0, 50.0, 60.0])  # of which the last gain promises 30 more
    run = SimpleNamespace(
        **{"fit": SimpleNamespace(converged=False), "goal": 100.0, "checked": -np.inf},
        **{"state": SimpleNamespace(near=SimpleNamespace(beyond=None)), "hopeless": False},
        **{"reached": lambda beyond: (), "whole_bound": lambda: next(bounds)},
    )
    given_up = []
    for _ in range(3):
        local._Local._give_up_if_hopeless(cast(local._Local, run))
        given_up.append((run.hopeless, run.fit.converged))
    assert given_up == [(False, False), (False, False), (True, True)]


def test_the_bound_of_a_local_model_is_nearly_the_evidence():
    """Of the same hyperparameters, by an exact process; the smooth latent is not used."""
    t = np.linspace(0, 1, 600)[:, None]
    draw = np.random.default_rng(3)
    y = np.convolve(draw.standard_normal(610), np.ones(11), "valid") / 3 + draw.normal(0, 0.3, 600)
    options = {"latents": 1, "inducing": 20, "max_iter": 400, "progress": False}
    model = hm.HetMOGP({"y": hm.Gaussian()}, local=1, **options).fit(t, y)
    with session():
        smooth, near = (np.asarray(kernel.matrix(t, t)) for kernel in model.kernels_)
    (first, second), own = model.weights_[0], float(model.fitted.posterior.near.own[0])
    noise = model.likelihoods_["y"].constants["scale"]
    K = first**2 * smooth + second**2 * (1 - own) * near
    K += (second**2 * own + noise**2) * np.eye(600)
    evidence = multivariate_normal(np.full(600, model.constants_[0]), K).logpdf(y)
    assert model.elbo_ == pytest.approx(evidence, abs=1.0)


def test_sites_say_no_more_than_the_values(monkeypatch):
    """A value of one function of three local latents tells one number, their weighted sum."""
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(300, 2))
    Y = {"y": (rng.uniform(size=300) < 0.5 + 0.4 * np.sin(20 * X[:, 0])).astype(float)}
    states, reached = [], local._Local.reached

    def kept(run, beyond):
        states.append(run.state)
        return reached(run, beyond)

    monkeypatch.setattr(local._Local, "reached", kept)
    hm.HetMOGP([hm.Bernoulli()], local=3, max_iter=20, batch_size=300, progress=False).fit(X, Y)
    P = np.asarray(states[0].precision)
    size = np.sqrt(np.diagonal(P, axis1=1, axis2=2))
    assert np.min(size) > 0
    alike = np.abs(P) / (size[:, :, None] * size[:, None, :])  # all ones, as P has rank one
    assert np.median(alike[:, 0, 1:]) > 0.99  # sites are replaced by and by, and weights move


def test_a_table_on_disk_has_local_latents_too(tmp_path):
    """All rows are places, in whichever file they are; scores are those of a fit from memory."""
    X, Y = rough(900, 7)
    rows = X.join(Y)
    for k, part in enumerate((rows[:500], rows[500:])):
        part.to_parquet(tmp_path / f"{k}.parquet")
    options = {"latents": 2, "inducing": 20, "local": 1, "max_iter": 100, "batch_size": 60}
    model = hm.HetMOGP(LIKELIHOODS, progress=False, **options)
    here = model.fit(X, Y).nlpd(X, Y)
    model.fit(hm.Table(tmp_path, inputs=["x", "y"]))
    assert len(model.fitted.posterior.near.at) == 900
    assert model.nlpd(X, Y)["global"] == pytest.approx(here["global"], abs=0.05)


@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.slow), "float32"])
def test_local_latents_of_a_series_and_of_outputs_with_their_own_inputs(dtype):
    t = np.linspace(0, 1, 700)
    f = np.cumsum(rng.standard_normal(700)) / 10
    X = {"a": t[:, None], "b": t[::2, None]}
    Y = {"a": f + 0.1 * rng.standard_normal(700), "b": -f[::2] + 0.1 * rng.standard_normal(350)}
    model = hm.HetMOGP(
        {"a": hm.Gaussian(), "b": hm.Gaussian()},
        **{"latents": 2, "inducing": 10, "local": 2, "max_iter": 150, "dtype": dtype},
        progress=False,
    )
    model.fit(X, Y)
    error = model.predict(t[:, None])["a"].mean - f
    assert np.sqrt(np.mean(error**2)) < 0.1


def test_what_local_latents_do_not_go_with_is_said():
    X, Y = rough(100, 6)
    with pytest.raises(ValueError, match="local must be a whole number >= 0"):
        hm.HetMOGP(LIKELIHOODS, local=-1).fit(X, Y)
    with pytest.raises(ValueError, match="local=2 needs prior='lmc'"):
        hm.independent(LIKELIHOODS, local=2).fit(X, Y)
    with pytest.raises(ValueError, match="learned on mini-batches"):
        hm.HetMOGP(LIKELIHOODS, local=2, method="vem").fit(X, Y)


@pytest.mark.slow
def test_labels_have_local_latents_of_their_own():
    """Two sites whose series have nothing in common: each is followed, and told apart."""
    t = np.linspace(0.0, 40.0, 1500)
    site = np.where(np.arange(1500) % 2, "a", "b")
    f = np.where(site == "a", np.sin(3.0 * t), np.sin(4.1 * t + 1.0))
    X = pd.DataFrame({"t": t, "site": site})
    Y = pd.DataFrame({"y": f + 0.1 * np.random.default_rng(0).standard_normal(1500)})
    options = {"latents": 1, "inducing": 10, "local": 1, "max_iter": 300, "progress": False}
    model = hm.HetMOGP({"y": hm.Gaussian()}, **options).fit(X, Y)
    error = model.predict(X)["y"].mean - f
    assert np.sqrt(np.mean(error**2)) < 0.15
