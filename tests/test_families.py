"""Whole models with the less usual likelihoods: what a prediction offers, and that it is right."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from problems import elbo
from scipy import integrate, special, stats

import hetmogp as hm
from hetmogp.bound import Rules, Wide, at_observations, evaluate
from hetmogp.data import full_batch
from hetmogp.fitting import vem
from hetmogp.fitting.sites import ClassSites
from hetmogp.fitting.start import Beginning, initial_parameters
from hetmogp.predictive import log_density, nodes
from hetmogp.priors import Latents
from hetmogp.session import session
from hetmogp.tables import read
from hetmogp.variational import Coupled, Factorised

rng = np.random.default_rng(3)
N = 150
x = np.sort(rng.uniform(0.0, 1.0, N))
wave = np.sin(6.0 * x)


@pytest.fixture(scope="module")
def model():
    """Six unusual outputs over one latent; each is checked by the tests below."""
    t = np.exp(0.5 + wave) * rng.weibull(2.0, N)
    end = 4.0 * rng.uniform(0.2, 1.0, N)
    inside = rng.beta(6 * special.expit(wave), 6 * special.expit(-wave))
    edge = rng.uniform(size=N)
    grade = np.array(["low", "mid", "high"])[
        (wave + rng.logistic(size=N) > 0).astype(int) + (wave + rng.logistic(size=N) > 1.5)
    ]
    frame = pd.DataFrame(
        {
            "life": np.minimum(t, end),
            "ended": (t <= end).astype(int),
            "cover": np.where(edge < 0.15, 0.0, np.where(edge > 0.9, 1.0, inside)),
            "grade": pd.Categorical(grade, ["low", "mid", "high"], ordered=True),
            "wind": rng.vonmises(np.pi * 0.9 + 0.5 * wave, 8.0),
            "seen": rng.poisson(np.exp(1 + wave)) * (rng.uniform(size=N) > 0.3),
            "dose": np.exp(wave + 0.3 * rng.standard_normal(N)),
        }
    )
    likelihoods = {
        "life": hm.Weibull(event="ended"),
        "cover": hm.ZeroOneInflatedBeta(),
        "grade": hm.Ordinal(),
        "wind": hm.VonMises(),
        "seen": hm.ZeroInflatedPoisson(),
        "dose": hm.LogNormal(),
    }
    options = {"latents": 2, "inducing": 12, "max_iter": 4, "prune": False, "progress": False}
    return hm.HetMOGP(likelihoods, **options).fit(x, frame), frame


AT = np.array([0.1, 0.45, 0.8])


def test_survival_falls_from_one_to_nothing(model):
    pred = model[0].predict(AT)["life"]
    times = np.array([1e-6, 0.5, 1.0, 3.0, 1e3])
    S = pred.survival(times)
    assert S.shape == (5, 3)
    assert np.all(np.diff(S, axis=0) <= 1e-12)
    np.testing.assert_allclose(S[[0, -1]], [[1.0] * 3, [0.0] * 3], atol=1e-4)
    np.testing.assert_allclose(pred.survival(1.0), 1.0 - pred.cdf(np.ones(3)), atol=1e-12)
    np.testing.assert_allclose(pred.survival(pred.quantile(0.5)[1])[1], 0.5, atol=1e-5)
    with pytest.raises(ValueError, match=r"t must be a number or label, or a sequence of them"):
        pred.survival([])


def test_censored_times_are_scored_by_their_survival(model):
    fitted, _ = model
    Y = pd.DataFrame({"life": [1.0, 2.0, 3.0], "ended": [1, 0, 0]})
    others = {name: [np.nan] * 3 for name in fitted.output_names_ if name != "life"}
    score = fitted.nlpd(AT, Y.assign(**others))["life"]
    pred = fitted.predict(AT)["life"]
    survival = [np.log(pred.survival(t)[i]) for i, t in ((1, 2.0), (2, 3.0))]
    expected = (pred.log_prob([1.0, 2.0, 3.0])[0] + sum(survival)) / 3
    assert -score == pytest.approx(expected, rel=1e-4)


def test_a_lognormal_predictive_is_exact(model):
    """Normal on the log scale: the quantiles of log y are those of one normal distribution."""
    fitted, _ = model
    mean, cov = fitted.parameter_functions(AT)
    j = fitted.parameter_names_.index("dose.mean")
    scale = fitted.likelihoods_["dose"].constants["scale"]
    truth = stats.norm(mean[:, j], np.sqrt(cov[:, j, j] + scale**2))
    pred = fitted.predict(AT)["dose"]
    np.testing.assert_allclose(
        np.log(pred.quantile([0.05, 0.7])), [truth.ppf(q) for q in (0.05, 0.7)], rtol=1e-6
    )
    np.testing.assert_allclose(
        pred.log_prob([1.0, 2.0, 0.3]),
        truth.logpdf(np.log([1.0, 2.0, 0.3])) - np.log([1.0, 2.0, 0.3]),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        pred.cdf([1.0, 2.0, 0.3]), truth.cdf(np.log([1.0, 2.0, 0.3])), rtol=1e-9
    )


def test_ordered_classes(model):
    pred = model[0].predict(AT)["grade"]
    p = pred.probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    labels = np.array(["low", "mid", "high"])
    for k, label in enumerate(labels):
        np.testing.assert_allclose(np.exp(pred.log_prob([label] * 3)), p[:, k], rtol=1e-4)
        np.testing.assert_allclose(pred.cdf([label] * 3), p[:, : k + 1].sum(axis=1), atol=1e-4)
    np.testing.assert_allclose(pred.mean, p @ np.arange(3.0), rtol=1e-4)
    for q in (0.05, 0.5, 0.95):
        expected = labels[(np.cumsum(p, axis=1) < q).sum(axis=1)]
        assert pred.quantile(q).tolist() == expected.tolist()
    assert set(pred.sample(30).ravel()) <= set(labels)
    cuts = model[0].likelihoods_["grade"].cutpoints
    assert cuts[0] == 0.0
    assert cuts[1] > 0.0


def test_unseen_classes_are_named_when_scoring(model):
    fitted, frame = model
    Y = frame.astype({"grade": object}).iloc[:3].copy()
    Y.loc[1, "grade"] = "none"
    with pytest.raises(ValueError, match=r"output 'grade', row 1: 'none' is not .* \['low', 'mid'"):
        fitted.nlpd(x[:3], Y)


def test_proportions_reach_their_ends(model):
    pred = model[0].predict(AT)["cover"]
    np.testing.assert_array_equal(pred.quantile(0.02), 0.0)
    np.testing.assert_array_equal(pred.quantile(0.99), 1.0)
    middle = pred.quantile(0.5)
    assert np.all((middle > 0) & (middle < 1))
    np.testing.assert_allclose(pred.cdf(middle), 0.5, atol=1e-5)
    none, all_ = np.exp(pred.log_prob(np.zeros(3))), np.exp(pred.log_prob(np.ones(3)))
    np.testing.assert_allclose(pred.prob_zero, none)
    grid = np.linspace(1e-4, 1 - 1e-4, 2001)
    for i in range(3):
        inside = [pred.log_prob(np.full(3, y))[i] for y in grid[::20]]
        mass = integrate.trapezoid(np.exp(inside), grid[::20])
        assert none[i] + mass + all_[i] == pytest.approx(1.0, abs=0.02)


def test_directions(model):
    pred = model[0].predict(AT)["wind"]
    truth = np.pi * 0.9 + 0.5 * np.sin(6.0 * AT)
    apart = np.angle(np.exp(1j * (pred.mean - truth)))
    assert np.all(np.abs(apart) < 0.4)
    lower, upper = pred.interval(0.9)
    assert np.all((upper - lower > 0.2) & (upper - lower < 2.5))  # not most of the circle
    assert np.all((lower < pred.mean) & (pred.mean < upper))
    draws = pred.sample(4000, seed=1)
    inside = np.mod(draws - lower, 2 * np.pi) < upper - lower
    np.testing.assert_allclose(inside.mean(axis=0), 0.9, atol=0.02)
    np.testing.assert_allclose(pred.cdf(pred.quantile(0.3)), 0.3, atol=1e-5)
    np.testing.assert_allclose(pred.cdf(np.full(3, np.pi)), 1.0, atol=1e-6)
    R = np.abs(np.exp(1j * draws).mean(axis=0))
    np.testing.assert_allclose(pred.std, np.sqrt(-2 * np.log(R)), rtol=0.05)


def test_zero_inflated_counts(model):
    pred = model[0].predict(AT)["seen"]
    np.testing.assert_allclose(pred.prob_zero, pred.cdf(np.zeros(3)), atol=1e-3)
    assert np.all(pred.prob_zero > np.exp(-pred.mean / (1 - pred.prob_zero)))
    q = pred.quantile([0.1, 0.5, 0.9])
    assert np.all(q == np.floor(q))
    with pytest.raises(AttributeError, match="no meaning"):
        _ = model[0].predict(AT)["dose"].prob_zero


def test_to_frame_has_every_output(model):
    columns = model[0].predict(AT).to_frame().columns
    assert {"life_mean", "cover_lower", "grade", "grade_mid", "wind_std", "seen_upper"} <= set(
        columns
    )


# -- von Mises against scipy -----------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [1e-3, 0.5, 5.0, 45.0, 60.0, 1e4])
@pytest.mark.parametrize("mu", [-3.0, 0.0, 1.2])
def test_von_mises_equals_scipy(kappa, mu):
    of, f = hm.VonMises(), jnp.asarray
    y = np.linspace(-np.pi, np.pi, 41)
    with session():
        vector = f(kappa * np.array([np.cos(mu), np.sin(mu)]))
        density = jax.vmap(lambda t: of.log_prob(t, vector))(f(y))
        np.testing.assert_allclose(
            density, stats.vonmises.logpdf(y, kappa, loc=mu), rtol=1e-7, atol=1e-8
        )
        ours = jax.vmap(lambda t: of.cdf(t, vector))(f(y))
        whole = [
            integrate.quad(
                lambda s: stats.vonmises.pdf(s, kappa, loc=mu),
                *(-np.pi, t),
                points=sorted({np.clip(m, -np.pi, t) for m in (mu - 0.05, mu, mu + 0.05)}),
                limit=200,
            )[0]
            for t in y
        ]
        np.testing.assert_allclose(ours, whole, atol=2e-6)
        np.testing.assert_allclose(of.mean(vector), mu, atol=1e-9)
        R = special.i1e(kappa) / special.i0e(kappa)
        np.testing.assert_allclose(of.variance(vector), -2 * np.log(R), rtol=1e-6)
        slope = jax.grad(of.log_prob, argnums=1)(f(0.3), vector)
        expected = np.array([np.cos(0.3), np.sin(0.3)]) - R * np.array([np.cos(mu), np.sin(mu)])
        np.testing.assert_allclose(slope, expected, atol=1e-6)


def test_von_mises_is_finite_everywhere():
    with session():
        for f in ([0.0, 0.0], [30.0, -30.0], [1e-200, 0.0]):
            value, slope = jax.value_and_grad(hm.VonMises().log_prob, argnums=1)(
                jnp.asarray(1.0), jnp.array(f)
            )
            assert np.isfinite(value)
            assert np.isfinite(slope).all()


# -- many classes ----------------------------------------------------------------------------------


def many_classes(K, n=80, R=3):
    """A Categorical of K classes and a Gaussian over R latents, ready for the bound."""
    local = np.random.default_rng(K)
    at = np.linspace(0.0, 1.0, n)
    Y = {"c": local.integers(0, K, n), "z": np.sin(6 * at)}
    likelihoods = {"c": hm.Categorical(classes=range(K)), "z": hm.Gaussian(scale=0.3)}
    data = read(likelihoods, at, Y)
    batch, scaling = full_batch(data)
    Z, lengthscales = np.linspace(-1.5, 1.5, 8)[None, :, None], np.geomspace(0.15, 0.8, R)
    beginning = Beginning([hm.RBF()] * R, [1] * R, Z, lengthscales)
    return initial_parameters(data, beginning, scaling), batch


def fit_at(parameters, latents, batch):
    """The expected log-likelihood where q(u) has these latents at the batch's rows."""
    at = at_observations(parameters, latents, batch, Rules())
    q = Factorised.at_prior(parameters.prior.widths)  # of no effect on it
    view = parameters.prior.matrices(batch.X, 1e-6)
    return evaluate(parameters, q, view, batch, Rules(), at=at).fit


@pytest.mark.parametrize("K", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_expectations_over_many_classes_equal_brute_force(K):
    """Within 10⁻³ nats of 10⁶ samples (with the second-order term as a control), row by row."""
    with session():
        parameters, batch = many_classes(K)
        W, b = (np.asarray(a)[: K - 1] for a in (parameters.prior.W, parameters.prior.b))
        local = np.random.default_rng(1)
        rows = batch.X.shape[0]
        mean, variance = local.normal(size=(rows, 3)), np.full(3, 0.3)
        mixed = 0.2 * np.eye(3) + 0.1 * np.ones((3, 3))  # as a q that couples the latents has it
        seen, value = batch.outputs[0], jax.jit(fit_at)
        for n, cov in ((0, variance), (7, mixed)):
            latents = Latents(jnp.asarray(mean), jnp.asarray(np.array([cov] * rows)))
            at = at_observations(parameters, latents, batch, Rules())[0]
            assert isinstance(at, Wide)  # over the latents, not over the classes
            only = eqx.tree_at(
                lambda B: [B.outputs[0].seen, B.outputs[1].seen],
                batch,
                [jnp.arange(seen.y.size) == n, jnp.zeros_like(batch.outputs[1].seen)],
            )
            ours = float(value(parameters, latents, only))
            here = int(seen.row[n])
            C = np.diag(cov) if cov.ndim == 1 else cov
            e = local.standard_normal((500_000, 3)) @ np.linalg.cholesky(C).T
            total = 0.0
            centre = np.append(0.0, b + W @ mean[here])
            p = special.softmax(centre)[1:]
            H = W.T @ (np.diag(p) - np.outer(p, p)) @ W
            for u in (e, -e):
                f = np.concatenate([np.zeros((len(u), 1)), b + (mean[here] + u) @ W.T], axis=1)
                second = 0.5 * np.einsum("ni,ij,nj->n", u, H, u) + u @ (W.T @ p)
                total += 0.5 * np.mean(special.logsumexp(f, axis=1) - second)
            truth = centre[int(seen.y[n])] - total - 0.5 * np.trace(H @ C)
            assert ours == pytest.approx(truth, abs=1e-3)


def test_the_f_space_expectation_of_many_classes_is_near_too():
    K = 10
    local = np.random.default_rng(0)
    mean, root = (
        local.normal(size=K - 1),
        0.4 * local.normal(size=(K - 1, K - 1)) / 3 + 0.3 * np.eye(K - 1),
    )
    f = mean + local.standard_normal((400_000, K - 1)) @ root.T
    f = np.concatenate([np.zeros((len(f), 1)), np.concatenate([f])], axis=1)
    truth = special.log_softmax(f, axis=1)[:, 2].mean()
    with session():
        of = hm.Categorical(classes=range(K))
        ours = of.expectation(jnp.asarray(2.0), jnp.asarray(mean), jnp.asarray(root @ root.T))
    assert float(ours) == pytest.approx(
        truth, abs=1e-3 + 3 * special.log_softmax(f, axis=1)[:, 2].std() / np.sqrt(4e5)
    )


@pytest.mark.parametrize("family", [Factorised, Coupled])
def test_the_e_step_over_many_classes_reaches_a_stationary_point(family):
    """After it the gradient of the bound with respect to q(u) vanishes."""
    with session():
        parameters, batch = many_classes(6, R=2)
        state = vem.init(parameters, vem.Problem(batch, Rules(), family, 1e-10), 1e-6)
        assert isinstance(state.sites[0], ClassSites)
        bound = jax.jit(jax.value_and_grad(lambda q: elbo(parameters, q, batch)))
        at_prior = float(bound(family.at_prior(parameters.prior.widths))[0])
        again, slope = bound(state.q)
    assert float(again) == pytest.approx(state.bound, rel=1e-9)
    assert state.bound > at_prior
    assert np.abs(slope.mean).max() < 1e-2
    assert np.abs(np.triu(slope.root)).max() < 1e-2  # the root is an upper triangle


def test_the_cost_of_a_class_is_linear():
    """Operations that XLA counts for the bound and its gradient: 49 functions against 12."""
    counts = {}
    for K in (13, 50):
        with session():
            parameters, batch = many_classes(K, n=64)
            mean = jnp.zeros((batch.X.shape[0], 3))

            def value(W, parameters=parameters, batch=batch, mean=mean):
                moved = eqx.tree_at(lambda p: p.prior.weights, parameters, W)
                return fit_at(moved, Latents(mean, mean + 0.3), batch)

            program: Any = (
                jax.jit(jax.value_and_grad(value)).lower(parameters.prior.weights).compile()
            )
            counts[K] = program.cost_analysis()["flops"]
    assert counts[50] / counts[13] < 49 / 12 * 1.2


def test_many_classes_are_fitted_on_mini_batches():
    n, K = 640, 50
    at, labels = np.linspace(0.0, 1.0, n), np.arange(n) % K
    model = hm.HetMOGP({"c": hm.Categorical()}, latents=1, inducing=5, max_iter=2, progress=False)
    model.fit(at, {"c": labels})
    assert model.method_ == "svi"
    np.testing.assert_allclose(model.predict(AT)["c"].probabilities.sum(axis=1), 1.0, rtol=1e-6)


def test_predicted_probabilities_of_many_classes():
    """At fifty classes, against 10⁵ samples of the latents."""
    K, R = 50, 3
    local = np.random.default_rng(5)
    mean, factor = local.normal(size=K - 1), 0.6 * local.normal(size=(K - 1, R))
    of = hm.Categorical(classes=range(K))
    with session():
        f, weights = nodes(jnp.asarray(mean), jnp.asarray(factor))
        ours = np.asarray(weights @ jax.vmap(of.probabilities)(f))
        scored = log_density(of, jnp.asarray(7.0), jnp.asarray(mean), jnp.asarray(factor))
    e = local.standard_normal((100_000, R))
    logits = np.concatenate([np.zeros((len(e), 1)), mean + e @ factor.T], axis=1)
    np.testing.assert_allclose(ours, special.softmax(logits, axis=1).mean(axis=0), atol=2e-3)
    assert np.exp(float(scored)) == pytest.approx(ours[7], rel=1e-3)


# -- likelihoods of one's own ----------------------------------------------------------------------

GUMBEL = hm.from_distribution(dist.Gumbel, {"loc": "identity", "scale": "exp"}, latent=("loc",))


def test_from_distribution_equals_scipy():
    of = eqx.tree_at(
        lambda o: o.free, GUMBEL, {"scale": np.log(0.7)}, is_leaf=lambda v: isinstance(v, dict)
    )
    with session():
        for y in (-1.0, 0.4, 9.0):
            truth = stats.gumbel_r(0.3, 0.7)
            at = (jnp.asarray(y), jnp.array([0.3]))
            assert float(of.log_prob(*at)) == pytest.approx(truth.logpdf(y))
            assert float(of.cdf(*at)) == pytest.approx(truth.cdf(y))
            assert float(of.mean(at[1])) == pytest.approx(truth.mean(), rel=1e-6)
            assert float(of.variance(at[1])) == pytest.approx(truth.var(), rel=1e-6)


def test_from_distribution_starts_at_the_most_likely_constants():
    y = stats.gumbel_r(1e5, 250.0).rvs(2000, random_state=0)
    with session():
        start = GUMBEL.start(y)
    loc, scale = stats.gumbel_r.fit(y)
    assert start.constant[0] == pytest.approx(loc, rel=1e-3)
    assert np.exp(start.free["scale"]) == pytest.approx(scale, rel=0.1)


@pytest.mark.slow
def test_from_distribution_in_a_mixed_model():
    y = rng.gumbel(2.0 * wave, 0.5)
    counts = rng.poisson(np.exp(1.0 + wave))
    own = hm.from_distribution(
        dist.BetaBinomial, {"concentration1": "exp", "concentration0": "exp"}, total_count=5
    )
    share = rng.binomial(5, special.expit(wave))
    model = hm.HetMOGP(
        {"y": GUMBEL, "counts": hm.Poisson(), "share": own},
        latents=1,
        inducing=10,
        max_iter=5,
        prune=False,
        progress=False,
    ).fit(x, {"y": y, "counts": counts, "share": share})
    pred = model.predict(AT)
    np.testing.assert_allclose(pred["y"].mean, 2 * np.sin(6 * AT) + 0.5 * np.euler_gamma, atol=0.5)
    assert model.likelihoods_["y"].constants["scale"] == pytest.approx(0.5, rel=0.3)
    np.testing.assert_allclose(pred["y"].cdf(pred["y"].quantile(0.2)), 0.2, atol=1e-5)
    q = pred["share"].quantile([0.1, 0.9])  # numpyro has no distribution function: from samples
    assert np.all((q >= 0) & (q <= 5) & (q == np.floor(q)))
    with pytest.raises(ValueError, match="output 'share', row 0: 6 is not a BetaBinomial value"):
        model.nlpd(x[:1], {"y": [0.0], "counts": [1], "share": [6]})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: hm.from_distribution(dist.Gumbel, {"mu": "exp"}), ValueError, "no parameter 'mu'"),
        (lambda: hm.from_distribution(dist.Normal, {"loc": "sqrt"}), ValueError, "link of loc is"),
        (lambda: hm.from_distribution(dist.Dirichlet), ValueError, "no usual link"),
        (lambda: hm.from_distribution(dist.Normal(0, 1)), TypeError, "not a class"),
        (
            lambda: hm.from_distribution(dist.Normal, spread=1.0),
            ValueError,
            "no parameter 'spread'",
        ),
        (
            lambda: hm.from_distribution(dist.Normal, {"scale": "exp"}, scale=1.0),
            ValueError,
            "cannot have a link and be fixed",
        ),
    ],
)
def test_from_distribution_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_default_links_follow_the_constraints():
    links = hm.from_distribution(dist.StudentT, df=4.0).links
    assert {name: link.name for name, link in links.items()} == {
        "loc": "identity",
        "scale": "exp",
        "df": "identity",
    }


def test_a_model_of_ones_own_distribution_pickles():
    import pickle

    again = pickle.loads(pickle.dumps(GUMBEL))
    assert repr(again) == repr(GUMBEL)
    assert again.links == GUMBEL.links


def test_without_a_distribution_function_there_is_a_sentence():
    of = hm.from_distribution(dist.GeometricProbs, {"probs": "logistic"})
    model = hm.HetMOGP({"y": of}, latents=1, inducing=5, max_iter=0, progress=False)
    pred = model.fit(x[:40], {"y": rng.geometric(0.4, 40) - 1}).predict(AT)["y"]
    for call in (lambda: pred.cdf([0, 1, 2]), lambda: pred.survival(1.0)):
        with pytest.raises(AttributeError, match="GeometricProbs has no cdf"):
            call()
    assert np.all(pred.quantile(0.5) >= 0)


# -- what a hostile user found ---------------------------------------------------------------------


def test_survival_of_ordered_classes_takes_labels(model):
    pred = model[0].predict(AT)["grade"]
    expected = pred.probabilities[:, 1:].sum(axis=1)
    np.testing.assert_allclose(pred.survival("low"), expected, atol=1e-4)
    np.testing.assert_allclose(pred.survival(["low", "high"]), [expected, np.zeros(3)], atol=1e-4)


def test_labels_that_read_the_same_are_refused():
    with pytest.raises(ValueError, match="two classes read the same"):
        hm.Categorical(classes=[0, 1, "1"])


def test_quantiles_of_counts_end_at_any_level(model):
    top = model[0].predict(AT)["seen"].quantile(float(np.nextafter(1, 0)))
    assert np.all(np.isfinite(top))


def test_single_precision_learns_as_much():
    """Padding rows, whose precision is zero, must not become NaN in float32."""
    y = np.sin(5 * x) + 0.1 * rng.standard_normal(N)
    found = {}
    for dtype in ("float32", "float64"):
        model = hm.HetMOGP(
            {"y": hm.Gaussian()}, dtype=dtype, latents=1, inducing=15, progress=False
        )
        found[dtype] = model.fit(x, {"y": y})
    assert found["float32"].elbo_ == pytest.approx(found["float64"].elbo_, abs=5.0)
    single, double = (model.predict(AT)["y"].mean for model in found.values())
    np.testing.assert_allclose(single, double, atol=0.02)


def test_an_ordered_categorical_need_not_be_a_series():
    kinds = pd.Categorical(["b", "a"] * 20, ["b", "a"], ordered=True)
    data = read({"g": hm.Ordinal()}, x[:40], {"g": kinds})
    assert vars(data.likelihoods[0])["classes"] == ("b", "a")
    with pytest.raises(ValueError, match="output 'g': Categorical: classes needs at least two"):
        read({"g": hm.Categorical()}, x[:4], {"g": pd.Categorical(["a"] * 4)})
