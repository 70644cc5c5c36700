"""Functions drawn from the posterior, against its closed form and that of its kernels."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import cKDTree

import hetmogp as hm
from hetmogp.kernels import FeaturesMissingError, Stationary, features
from hetmogp.pathwise import Paths
from hetmogp.places import Places, nearest
from hetmogp.posterior import Posterior
from hetmogp.priors import LMC
from hetmogp.session import session
from hetmogp.variational import Coupled, Factorised, Neighbourhood

OWN = 0.05  # the share of a latent that every place has to itself
LABELS = {1: np.arange(4.0)}


def on(dims, kind, *lengthscale, **rest):
    return kind(lengthscale=np.array(lengthscale), active_dims=dims, **rest)


def of_period(dims=(0,)):
    return on(dims, hm.Periodic, 0.8, period=np.array([1.3]))


EXACT = {
    "periodic": of_period(),
    "linear": on((0,), hm.Linear, 0.8),
    "category": on((1,), hm.Category, 2.0),
    "category of two": on((1, 2), hm.Category, 2.0, 0.7),
    "lines by level": on((0,), hm.Linear, 0.8) * on((1,), hm.Category, 2.0),
    "line and period": hm.Sum(
        (on((0,), hm.Linear, 0.8), of_period()), weights=np.array([2.0, 1.0])
    ),
}
SAMPLED = {
    "rbf": on((0,), hm.RBF, 0.7),
    "matern12": on((0,), hm.Matern12, 0.7),
    "matern32": on((0,), hm.Matern32, 0.7),
    "matern52": on((0,), hm.Matern52, 0.7),
    "rational quadratic": on((0,), hm.RationalQuadratic, 0.7, alpha=1.3),
    "two inputs": on((0, 2), hm.Matern52, 0.7, 1.5),
    "rbf by level": on((0,), hm.RBF, 0.7) * on((1,), hm.Category, 2.0),
    "rbf, repeating": on((0,), hm.RBF, 2.0) * of_period(),
    "slopes and more": hm.Sum(
        (on((0,), hm.RBF, 0.9) * on((0, 2), hm.Linear, 0.8, 0.9), on((0,), hm.Matern32, 0.7)),
        weights=np.array([2.0, 1.0]),
    ),
    "numbers as levels": on((2,), hm.Category, 2.0),
}


def inputs(n, seed=0):
    """A number, a label, and a number that has few values."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, 4, n), rng.integers(0, 3, n)
    return np.stack([rng.normal(size=n), *whole], axis=1)


def error(kernel, n, sets, levels=LABELS):
    """The largest and the usual error of the features' k, and that of its mean over sets."""
    x = jnp.asarray(inputs(25))
    off = []
    for seed in range(sets):
        phi = np.asarray(features(kernel, n, 3, levels, np.random.default_rng(seed))(x))
        off.append(phi @ phi.T - np.asarray(kernel.matrix(x, x)))
    mean = np.mean(off, axis=0)
    return np.abs(off).max(), np.sqrt(np.mean(np.square(off))), np.sqrt(np.mean(mean**2))


@pytest.mark.parametrize("name", EXACT)
def test_finitely_many_features_are_exact(name):
    with session():
        largest, *_ = error(EXACT[name], 64, 1, {**LABELS, 2: np.arange(3.0)})
    assert largest < 1e-9


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_features_are_unbiased_and_their_error_falls_with_their_number(name):
    with session():
        _, few, _ = error(SAMPLED[name], 32, 24)
        _, many, mean = error(SAMPLED[name], 512, 24)
    assert many < 0.45 * few  # independent ones would have 0.25
    assert mean < 0.5 * many + 1e-4  # 24 sets have a fifth of the error of one
    assert many < 0.15


def test_a_kernel_without_features_is_named():
    class Wendland(Stationary):
        def profile(self, r2):
            return jnp.maximum(1.0 - jnp.sqrt(r2), 0.0) ** 4

    with pytest.raises(FeaturesMissingError, match="Wendland: it defines neither frequencies"):
        features(on((0,), Wendland, 1.0), 64, 1, {}, np.random.default_rng(0))


# -- against the posterior in closed form ----------------------------------------------------------


def posterior(kernels, family, *, ranks=(1, 1), counts=(), jitter=1e-6, at_prior=False):
    """Three functions of some latents, with a random q."""
    rng, R, M = np.random.default_rng(1), sum(ranks), 9
    each = zip(counts or (M,) * len(ranks), ranks, strict=True)
    widths = [width for width, rank in each for _ in range(rank)]
    q = family.at_prior(widths)
    if not at_prior:
        root = 0.4 * np.asarray(q.root) + 0.15 * np.tril(rng.normal(size=q.root.shape))
        q = family(jnp.asarray(rng.normal(size=q.mean.shape)), jnp.asarray(root))
    prior = LMC(
        kernels=kernels,
        inducing_inputs=jnp.asarray(np.stack([inputs(M, 7 + k) for k in range(len(kernels))])),
        ranks=ranks,
        counts=counts,
        weights=jnp.asarray(rng.normal(size=(3, R))),
        constants=jnp.asarray(rng.normal(size=3)),
        centre=jnp.zeros(3),
        spread=jnp.ones(3),
        mask=jnp.ones((3, R)),
    )
    return Posterior(prior, q, jitter)


def off_by(draws, mean, cov):
    """Errors of the mean and the covariance of draws (N, n, J), in Monte Carlo standard errors."""
    N, n, J = draws.shape
    flat = np.moveaxis(draws, 1, 0).reshape(n, N * J)
    mean, cov = mean.reshape(-1), cov.reshape(N * J, N * J)
    variance = np.diag(cov)
    of_cov = np.sqrt((np.outer(variance, variance) + cov**2) / n)
    return (flat.mean(0) - mean) / np.sqrt(variance / n), (np.cov(flat.T) - cov) / of_cov


def agrees(draws, mean, cov):
    """Whether moments are those of the closed form, but for chance and the error of features."""
    of_mean, of_cov = off_by(draws, mean, cov)
    assert np.abs(of_mean).max() < 4.5
    assert np.abs(of_cov).max() < 6.0


QUICK = ("lines by level", "rbf", "matern12", "rbf by level", "numbers as levels")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in (*EXACT, *SAMPLED)
    ],
)
def test_draws_have_the_moments_of_the_posterior(name):
    kernel = {**EXACT, **SAMPLED}[name]
    family = Coupled if len(name) % 2 else Factorised
    with session():
        whole = posterior((kernel, on((0,), hm.RBF, 1.0)), family)
        agrees(whole.paths(10_000, 3, LABELS)(inputs(8)), *whole.joint(inputs(8)))


@pytest.mark.parametrize("family", [Coupled, Factorised])
def test_copies_and_latents_with_few_inducing_inputs(family):
    with session():
        kernels = on((0,), hm.RBF, 1.0), on((0,), hm.Matern32, 0.5)
        whole = posterior(kernels, family, ranks=(2, 1), counts=(5, 9))
        moments = whole.joint(inputs(8))
        agrees(whole.paths(10_000, 3, {})(inputs(8)), *moments)
        agrees(whole.draws(inputs(8), 10_000, 0), *moments)


@pytest.mark.parametrize("family", [Coupled, Factorised])
def test_conditioned_on_nothing_draws_are_of_the_prior(family):
    x, kernels = inputs(8), (on((0,), hm.RBF, 1.0), on((0, 2), hm.Matern12, 0.5, 1.0))
    with session():
        whole = posterior(kernels, family, at_prior=True)
        draws = whole.paths(10_000, 3, LABELS)(x)
        W, b = np.asarray(whole.prior.W), np.asarray(whole.prior.b)
        K = [np.asarray(kernel.matrix(jnp.asarray(x), jnp.asarray(x))) for kernel in kernels]
    cov = np.einsum("jr,rnm,kr->njmk", W, K, W)
    agrees(draws, np.tile(b, (len(x), 1)), cov)


def test_the_noise_of_the_jitter_belongs_to_the_residual():
    """With much jitter, draws without its noise would be too narrow at the inducing inputs."""
    with session():
        whole = posterior((on((0,), hm.RBF, 1.0),) * 2, Coupled, jitter=0.3)
        Z = np.asarray(whole.prior.Z[0])
        agrees(whole.paths(10_000, 3, {})(Z), *whole.joint(Z))


def test_few_groups_of_draws_are_never_far_too_wide_beyond_the_inducing_inputs():
    """Where the update multiplies high frequencies by hundreds; see `Stationary.frequencies`."""
    Z, x = np.linspace(-3, 3, 15)[:, None], jnp.asarray([[-4.2], [-3.6], [3.3], [4.2]])
    kernel = hm.RBF(lengthscale=np.array([0.8]))
    with session():
        K = np.asarray(kernel.matrix(Z, Z)) + 1e-6 * np.eye(15)
        a = np.linalg.solve(K, np.asarray(kernel.matrix(jnp.asarray(Z), x)))
        exact = 1.0 - np.sum(a * np.asarray(kernel.matrix(jnp.asarray(Z), x)), axis=0)
        for seed in range(60):
            phi = features(kernel, 256, 1, {}, np.random.default_rng(seed))
            rest = np.asarray(phi(x)) - a.T @ np.asarray(phi(jnp.asarray(Z)))
            found = np.sum(rest**2, axis=1) + 1e-6 * np.sum(a**2, axis=0)
            np.testing.assert_allclose(found, exact, rtol=0.25)


def test_calls_agree_with_each_other():
    with session():
        whole = posterior((SAMPLED["rbf by level"], SAMPLED["numbers as levels"]), Coupled)
        paths, x = whole.paths(300, 3, LABELS), inputs(50)
        values = paths(x)
        np.testing.assert_array_equal(paths(x), values)
        np.testing.assert_allclose(paths(x[[30, 4]]), values[[30, 4]], rtol=1e-9, atol=1e-10)
        again = whole.paths(300, 3, LABELS)(x)
        other = whole.paths(300, 4, LABELS)(x)
    np.testing.assert_array_equal(again, values)
    assert np.abs(other - values).min(axis=(0, 2)).max() > 1e-3  # no draw is among both


# -- local latents ---------------------------------------------------------------------------------


def local_posterior():
    """Two local latents at 120 places in blocks of up to 16, with a random q; one smooth latent."""
    rng = np.random.default_rng(2)
    places = Places.of(rng.uniform(-1, 1, (120, 2)), 6, 16, seed=0)
    (C, n), S = places.members.shape, 2
    half = rng.normal(size=(C, S * n, S * n)) * 0.1 + 0.5 * np.eye(S * n)
    at, block, slot = map(jnp.asarray, (places.at, places.block, places.slot))
    mean, cov = rng.normal(size=(120, S)), half @ np.swapaxes(half, 1, 2)
    beyond, own = jnp.asarray(0.3 * rng.normal(size=(4, 120, S))), jnp.full(S, OWN)
    places_of_q = at, block, slot, jnp.asarray(mean), jnp.asarray(cov), beyond, own
    near = Neighbourhood(*places_of_q, neighbours=6)
    local = on(None, hm.Matern32, 0.3, 0.3), on(None, hm.RBF, 0.2, 0.4)
    prior = LMC(
        kernels=(on(None, hm.RBF, 1.0, 1.0), *local),
        inducing_inputs=jnp.asarray(rng.uniform(-1, 1, (1, 5, 2))),
        ranks=(1, 1, 1),
        local=2,
        weights=jnp.asarray(rng.normal(size=(2, 3))),
        constants=jnp.zeros(2),
        centre=jnp.zeros(2),
        spread=jnp.ones(2),
        mask=jnp.ones((2, 3)),
    )
    return Posterior(prior, Coupled.at_prior((5,)), 1e-6, near), places


def residual(kernel, a, x, at, near):
    """cov of u(x) − a(x)ᵀu_n over inputs: what the nearest places leave open, by plain loops."""

    def shared(x, z):
        return (1 - OWN) * np.asarray(kernel.matrix(x, z))

    N = len(x)
    result = np.empty((N, N))
    for i in range(N):
        for j in range(N):
            zi, zj = at[near[i]], at[near[j]]
            own = OWN * (near[i][:, None] == near[j])
            result[i, j] = (
                shared(x[i : i + 1], x[j : j + 1])[0, 0]
                + (OWN if i == j else 0.0)
                - a[i] @ shared(zi, x[j : j + 1])[:, 0]
                - a[j] @ shared(zj, x[i : i + 1])[:, 0]
                + a[i] @ (shared(zi, zj) + own) @ a[j]
            )
    return result


def test_local_latents_come_from_the_nearest_places():
    whole, places = local_posterior()
    x = np.random.default_rng(5).uniform(-1, 1, (7, 2))
    x[1] = x[0] + 0.01  # near to each other, so that what is left open is shared
    with session():
        draws = whole.paths(3000, 0, {})(x)
        mean, cov = whole.joint(x)
        near = nearest(cKDTree(places.at), x, 6)
        given = whole.near.given(whole.prior.nearby, jnp.asarray(x), jnp.asarray(near))
        W = np.asarray(whole.prior.W)
        for s, kernel in enumerate(whole.prior.nearby):
            a, v = np.asarray(given.a[s]), np.asarray(given.v[s])
            rest = residual(kernel, a, x, places.at, near)
            np.testing.assert_allclose(np.diag(rest), v, rtol=1e-6)
            # `joint` has different inputs independent, given the places; draws do not.
            cov = cov + np.einsum("j,nm,k->njmk", W[:, 1 + s], rest - np.diag(v), W[:, 1 + s])
        agrees(draws, mean, cov)
        marginal = whole.functions(x)
        np.testing.assert_allclose(np.asarray(marginal.mean), mean, atol=1e-9)


def test_calls_of_local_latents_agree_with_each_other():
    whole, places = local_posterior()
    x = np.concatenate([places.at[:3], np.random.default_rng(5).uniform(-1, 1, (40, 2))])
    with session():
        paths = Paths(whole.prior, whole.q, 1e-6, whole.near, 200, 3, {})
        values = paths(x)
        np.testing.assert_allclose(paths(x[[30, 1]]), values[[30, 1]], rtol=1e-9, atol=1e-9)
