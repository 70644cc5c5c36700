"""Values known in part: their probability against scipy, expectations, fits without functions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, special, stats
from test_likelihoods import CASES, COV, LARGE, MEAN, MODERATE, oracle_nodes, points

import hetmogp as hm
from hetmogp.cli.words import output_from
from hetmogp.likelihoods import limits
from hetmogp.predictive import log_density
from hetmogp.scoring import evaluate, pit
from hetmogp.session import session
from hetmogp.tables import read

rng = np.random.default_rng(5)
NUMBERS = [n for n in CASES if CASES[n].likelihood.outcome in ("real", "count")]
NUMBERS = [n for n in NUMBERS if "Hurdle" not in n]
DEAR = ["ZeroOneInflatedBeta", "Beta(mean)", "NegativeBinomial(mean, concentration)", "Binomial"]
DEAR += ["ZeroInflatedNegativeBinomial", "StudentT(location, scale)", "Gamma(rate)", "Beta"]
DEAR += ["ZeroInflatedPoisson(rate)", "Gaussian(mean, scale)", "LogLogistic(scale, shape)"]
SLOW = [pytest.param(n, marks=pytest.mark.slow) if n in DEAR else n for n in NUMBERS]


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def at(name):
    """Values at which a limit may stand."""
    of = CASES[name].likelihood
    if of.discrete:
        return np.array([0.0, 3.0, 6.0] if name == "Binomial" else [0.0, 2.0, 30.0])
    return np.array([0.1, 0.5, 0.9]) if of.ends[1] == 1.0 else np.array([0.3, 2.0, 30.0])


@eqx.filter_jit
def _both(of, y, f):
    """Both tails and the interval up to half as much again, with their slopes."""

    def tails(y, f):
        more = 1.0 - 0.5 * (1.0 - y) if of.ends[1] == 1.0 else 1.5 * y + 1.0
        return jnp.stack([of.log_cdf(y, f), of.log_survival(y, f), of.log_interval(y, more, f)])

    def one(y, f):
        return tails(y, f), jax.jacrev(tails, argnums=1)(y, f)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(y, f)


@pytest.mark.parametrize("name", SLOW)
def test_tails_equal_scipy_and_are_finite_far_out(name):
    """To a thousandth where scipy has digits, and finite with their slopes for |f| up to 30."""
    of, y = CASES[name].likelihood, at(name)
    f = np.concatenate([points(len(of.latent), MODERATE), points(len(of.latent), [0.0, *LARGE])])
    ours, slopes = map(np.asarray, _both(of, jnp.asarray(y), jnp.asarray(f)))
    assert np.isfinite(ours).all()
    assert np.isfinite(slopes).all()
    near = np.abs(f).max(axis=1) < 7
    frozen = CASES[name].frozen(f[near])
    more = 1.0 - 0.5 * (1.0 - y) if of.ends[1] == 1.0 else 1.5 * y + 1.0
    for i, (a, b) in enumerate(zip(y, more, strict=True)):
        below, upto = frozen.cdf(a), frozen.cdf(b)
        above = frozen.sf(a) if hasattr(frozen, "sf") else 1.0 - below
        for k, p in enumerate((below, above, upto - below)):
            clear = p > 1e-10 if k < 2 and hasattr(frozen, "sf") else p > 1e-5
            np.testing.assert_allclose(
                ours[i, near, k][clear], np.log(p[clear]), rtol=2e-3, atol=1e-4
            )


@pytest.mark.parametrize("z", [-300.0, -8.0, -0.1, 3.0, 30.0])
@pytest.mark.parametrize("width", [1e-6, 0.1, 5.0])
def test_a_normal_interval_keeps_its_digits_in_both_tails(z, width):
    of = hm.Gaussian(scale=1.0)
    ours = of.log_interval(jnp.asarray(z), jnp.asarray(z + width), jnp.zeros(1))
    a, b = (z, z + width) if z < 0 else (-z - width, -z)
    if width < 0.01:
        expected = stats.norm.logpdf(z + width / 2) + np.log(width)
    else:
        expected = stats.norm.logcdf(b) + np.log1p(
            -np.exp(stats.norm.logcdf(a) - stats.norm.logcdf(b))
        )
    np.testing.assert_allclose(ours, expected, rtol=1e-7 if width > 0.01 else 1e-4)


# -- what is known ---------------------------------------------------------------------------------


def rows(of, y, **given):
    """What `known` says of some values, as (exact, a, b) lists."""
    known = of.at({n: np.asarray(v, float) for n, v in given.items()}).known(np.asarray(y), np)
    return [part.tolist() for part in known]


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("of", "y", "given", "exact", "a", "b"),
    [
        (hm.Gaussian(lower=1.0), [1.0, 2.0], {}, [False, True], [-INF, 2.0], [1.0, 2.0]),
        (hm.Gaussian(upper=1.0), [1.0, 0.5], {}, [False, True], [1.0, 0.5], [INF, 0.5]),
        (hm.Poisson(upper=4), [4.0, 2.0], {}, [False, True], [3.0, 2.0], [INF, 2.0]),
        (hm.Poisson(lower=0), [0.0, 2.0], {}, [False, True], [-INF, 2.0], [0.0, 2.0]),
        (hm.Gamma(step=0.5), [0.0, 2.0], {}, [False, False], [-INF, 1.75], [0.25, 2.25]),
        (hm.Gamma(step=0.5, lower=1.0), [0.0, 1.5], {}, [False, False], [-INF, 1.25], [1.25, 1.75]),
        (hm.Gamma(step=0.5, upper=2.0), [1.5, 9.0], {}, [False, False], [1.25, 1.75], [1.75, INF]),
        (hm.Hurdle(hm.Gamma(step=0.5)), [0.0, 0.5], {}, [True, False], [0.0, 0.0], [0.0, 0.75]),
        (hm.Hurdle(hm.Gamma(lower=1.0)), [0.0, 0.5], {}, [True, False], [0.0, 0.0], [0.0, 1.0]),
        (hm.Hurdle(hm.Poisson(lower=2)), [0.0, 1.0], {}, [True, False], [0.0, 0.0], [0.0, 2.0]),
        (
            hm.Weibull(event="e", step=1.0),
            [3.0, 3.0],
            {"event": [0.0, 1.0]},
            [False, False],
            [3.0, 2.5],
            [INF, 3.5],
        ),
        (
            hm.Gaussian(lower="a", upper="b"),
            [1.0, 2.0, 3.0, 4.0, 5.0],
            {"lower": [0.5, NAN, 3.0, NAN, 4.0], "upper": [1.5, 2.5, 3.0, NAN, NAN]},
            [False, False, True, True, False],
            [0.5, -INF, 3.0, 4.0, 4.0],
            [1.5, 2.5, 3.0, 4.0, INF],
        ),
        (
            hm.Poisson(lower="a"),
            [3.0, 3.0],
            {"lower": [3.0, NAN]},
            [False, True],
            [2.0, 3.0],
            [INF, 3.0],
        ),
        (
            hm.Gamma(lower="a", upper="b"),
            [3.0, 3.0],
            {"lower": [0.0, 0.0], "upper": [NAN, 5.0]},
            [True, False],
            [3.0, -INF],
            [3.0, 5.0],
        ),
    ],
)
def test_what_each_limit_says(of, y, given, exact, a, b):
    found = rows(of, y, **given)
    assert found[0] == exact
    np.testing.assert_array_equal(found[1:], [a, b])


@pytest.mark.parametrize(
    ("of", "low", "high", "noted"),
    [
        (hm.Gamma(lower="a", upper="b"), 0.0, NAN, NAN),  # nothing is known
        (hm.Gamma(lower="a", upper="b"), -1.0, 0.3, 0.15),
        (hm.Gamma(lower="a", upper="b"), NAN, 0.3, 0.3),
        (hm.Beta(lower="a", upper="b"), NAN, 1.0, NAN),
        (hm.Beta(lower="a", upper="b"), 0.5, 2.0, 0.75),
        (hm.Poisson(lower="a", upper="b"), 0.0, NAN, NAN),
    ],
)
def test_a_missing_value_stands_in_the_part_of_its_interval_that_is_possible(of, low, high, noted):
    here = of.at({"lower": np.array([low]), "upper": np.array([high])})
    np.testing.assert_allclose(here.noted(np.array([NAN])), [noted])


def test_limits_that_allow_everything_leave_a_value_missing():
    Y = {"y": [1.0, 2.0, NAN], "lo": [NAN, NAN, 0.0], "hi": [NAN] * 3}
    data = read({"y": hm.Gamma(lower="lo", upper="hi")}, [0.0, 1.0, 2.0], Y)
    np.testing.assert_array_equal(data.values[0], [1.0, 2.0, NAN])


ORACLES = {
    "lower": lambda d, y: np.where(y <= 0.5, d.logcdf(0.5), d.logpdf(y)),
    "upper": lambda d, y: np.where(y >= 2.0, d.logsf(2.0), d.logpdf(y)),
    "step": lambda d, y: np.log(
        np.where(
            d.cdf(y) > 0.5,  # the smaller tail has the digits
            d.sf(y - 0.25) - d.sf(y + 0.25),
            d.cdf(y + 0.25) - d.cdf(y - 0.25),
        )
    ),
}
LIMITED = {"lower": 0.5, "upper": 2.0, "step": 0.5}


@pytest.mark.parametrize("limit", LIMITED)
@pytest.mark.parametrize("name", ["LogNormal", "Gamma", "Weibull"])
def test_expectations_equal_dense_integration(name, limit):
    """Of an exact value, of one at the limit, and of one in between."""
    made = {"LogNormal": hm.LogNormal, "Gamma": hm.Gamma, "Weibull": hm.Weibull}[name]
    fixed = {"LogNormal": {"scale": 0.6}, "Gamma": {}, "Weibull": {"shape": 1.7}}[name]
    of = made(**fixed, **{limit: LIMITED[limit]})
    J = len(of.latent)
    f, mass = oracle_nodes(J)
    mean, cov = jnp.asarray(MEAN[:J]), jnp.asarray(COV[:J, :J])
    frozen = CASES[name].frozen(f)
    run = eqx.filter_jit(lambda y: of.expectation(y, mean, cov))
    for y in (0.5, 1.5, 2.0):
        with np.errstate(divide="ignore"):
            log_p = ORACLES[limit](frozen, y)
        fine = np.isfinite(log_p)
        assert mass[~fine].sum() < 1e-6
        truth = log_p[fine] @ mass[fine]
        np.testing.assert_allclose(run(jnp.asarray(y)), truth, atol=2e-3)


@pytest.mark.parametrize("of", [hm.HetGaussian(lower=0.5), hm.StudentT(1.0, 4.0, lower=0.5)])
def test_the_predictive_probability_beyond_a_limit_is_the_distribution_function(of):
    """By the mixture of normals, against samples of f and scipy."""
    mean, F = np.array([0.2, -0.4])[: len(of.latent)], np.array([[0.6, 0.0], [0.3, 0.5]])
    F = F[: len(of.latent)]
    f = rng.normal(size=(200_000, 2)) @ F.T + mean
    if len(of.latent) == 2:
        p = stats.norm.cdf(0.5, f[:, 0], np.exp(0.5 * f[:, 1]))
    else:
        p = stats.t.cdf(0.5, 4.0, f[:, 0], 1.0)
    ours = np.exp(log_density(of, jnp.asarray(0.5), jnp.asarray(mean), jnp.asarray(F)))
    assert abs(ours - p.mean()) < 5 * p.std() / np.sqrt(len(p)) + 1e-5


def grid(step, last):
    return step * np.arange(round(last / step) + 1)


ALL = [  # a likelihood, what comes with values, and the values that can be recorded
    (hm.Hurdle(hm.Gamma(step=0.5)), {}, grid(0.5, 200)),
    (hm.Hurdle(hm.LogNormal(scale=0.7, step=0.1)), {}, grid(0.1, 150)),
    (hm.Hurdle(hm.Weibull(shape=0.8, step=0.5, upper=4.0)), {}, grid(0.5, 4)),
    (hm.Hurdle(hm.Gamma(step=0.5, lower=1.2)), {}, [0.0, 1.2, *grid(0.5, 200)[3:]]),
    (hm.Hurdle(hm.Poisson(upper=5)), {}, grid(1.0, 5)),
    (hm.Hurdle(hm.NegativeBinomial(concentration=2.0, lower=2, upper=9)), {}, [0, *range(2, 10)]),
    (hm.Hurdle(hm.Poisson(exposure="e")), {"exposure": 3.0}, grid(1.0, 300)),
    (hm.Gamma(step=0.5), {}, grid(0.5, 200)),
    (hm.Exponential(step=1.0, upper=3.0), {}, grid(1.0, 3)),
    (hm.Gaussian(scale=0.8, step=0.5, lower=-1.0, upper=1.5), {}, np.arange(-2, 4) / 2),
    (hm.Gaussian(scale=0.8, step=0.5, lower=-1.1, upper=1.4), {}, np.arange(-3, 4) / 2),
    (hm.StudentT(scale=0.8, df=3.0, step=0.5, upper=1.5), {}, np.arange(-4000, 4) / 2),
    (hm.Poisson(lower=1, upper=4), {}, grid(1.0, 4)[1:]),
    (hm.NegativeBinomial(concentration=2.0, upper=4), {}, grid(1.0, 4)),
    (hm.Binomial(trials=6, lower=1, upper=4), {}, grid(1.0, 4)[1:]),
    (hm.ZeroInflatedPoisson(upper=4), {}, grid(1.0, 4)),
    (hm.ZeroOneInflatedBeta(concentration=5.0, one=0.3, step=0.1), {}, grid(0.1, 1)),
    (
        hm.ZeroOneInflatedBeta(concentration=5.0, one=0.3, step=0.1, lower=0.25),
        {},
        grid(0.1, 1)[2:],
    ),
]


@pytest.mark.parametrize(("of", "given", "values"), ALL, ids=[repr(case[0]) for case in ALL])
def test_the_probabilities_of_all_that_can_be_recorded_add_up(of, given, values):
    J = len(of.latent)
    f = jnp.asarray(np.random.default_rng(7).normal(0.2, 0.6, (4, J)))
    each = jax.vmap(
        lambda f: jax.vmap(lambda y: of.at(given).log_observed(y, f))(jnp.asarray(values, float))
    )
    np.testing.assert_allclose(np.exp(jax.jit(each)(f)).sum(axis=1), 1.0, atol=2e-5)


PIECES = [  # densities between the limits, and probabilities beyond
    (hm.Gaussian(scale=0.8, lower=-0.5, upper=1.0), {}, (-0.5, 1.0), [-0.5, 1.0]),
    (hm.StudentT(scale=0.8, df=2.5, upper=1.0), {}, (-np.inf, 1.0), [1.0]),
    (hm.Gamma(event="seen", upper=2.0), {"event": 1.0}, (0.0, 2.0), [2.0]),
    (hm.LogNormal(scale=0.6, event="seen", lower=0.5), {"event": 1.0}, (0.5, np.inf), [0.5]),
    (hm.Hurdle(hm.Gamma(lower=0.5, upper=2.0)), {}, (0.5, 2.0), [0.0, 0.5, 2.0]),
    (hm.Hurdle(hm.LogNormal(scale=0.6)), {}, (0.0, np.inf), [0.0]),
    (hm.Beta(lower=0.2, upper=0.7), {}, (0.2, 0.7), [0.2, 0.7]),
]


@pytest.mark.parametrize(
    ("of", "given", "ends", "beyond"), PIECES, ids=[repr(case[0]) for case in PIECES]
)
def test_densities_and_what_is_beyond_add_up(of, given, ends, beyond):
    f = jnp.asarray(np.random.default_rng(8).normal(0.2, 0.5, len(of.latent)))
    p = jax.jit(lambda y: jnp.exp(of.at(given).log_observed(y, f)))
    inside = integrate.quad(lambda y: float(p(y)), *ends, limit=200)[0]
    assert inside + sum(float(p(y)) for y in beyond) == pytest.approx(1.0, abs=2e-5)


def test_a_rounded_time_whose_end_was_not_seen_is_only_known_to_be_larger():
    """It is no cell: that would say that the end came there."""
    of = hm.Weibull(shape=1.5, event="seen", step=1.0)
    f, d = jnp.array([0.7]), stats.weibull_min(1.5, scale=np.exp(0.7))
    ours = [
        float(of.at({"event": event}).log_observed(jnp.asarray(y), f))
        for event, y in ((1.0, 2.0), (0.0, 2.0), (0.0, 0.0))
    ]
    expected = [np.log(d.cdf(2.5) - d.cdf(1.5)), d.logsf(2.0), 0.0]
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-12)
    ends = 3.0 * rng.weibull(1.5, N)
    Y = {"y": np.round(np.minimum(ends, 2.0)), "seen": (ends <= 2.0).astype(int)}
    model = constants(hm.Weibull(event="seen", step=1.0), Y)

    def cost(z):
        d = stats.weibull_min(np.exp(z[0]), scale=np.exp(z[1]))
        cell = np.log(d.cdf(Y["y"] + 0.5) - d.cdf(np.maximum(Y["y"] - 0.5, 0.0)))
        return -np.sum(np.where(Y["seen"] == 1, cell, d.logsf(Y["y"])))

    log_shape, log_scale = likely(cost, [0.0, 0.0])
    at = stats.weibull_min.sf(2.0, np.exp(log_shape), scale=np.exp(log_scale))
    assert model.predict([[0.0]])["y"].survival(2.0)[0] == pytest.approx(at, abs=0.03)
    observed = model.fitted.observe(model.fitted.read(np.zeros((N, 1)), Y))
    assert stats.kstest(pit(observed)["y"], "uniform").pvalue > 1e-3


@pytest.mark.parametrize("edge", [-25.0, 0.4, 25.0])
def test_what_is_rounded_to_an_atom_has_the_probability_of_the_atom_too(edge):
    of = hm.ZeroOneInflatedBeta(concentration=5.0, one=0.3, step=0.1)
    f, beta = jnp.array([0.2, edge]), stats.beta(5 * special.expit(0.2), 5 * special.expit(-0.2))
    p, q = special.expit(edge), special.expit(-edge)
    expected = [0.7 * p + q * beta.cdf(0.05), 0.3 * p + q * beta.sf(0.95)]
    for y, ours in zip((0.0, 1.0), expected, strict=True):
        log_p, slope = jax.value_and_grad(lambda f, y=y: of.log_observed(jnp.asarray(y), f))(f)
        assert log_p == pytest.approx(np.log(ours), rel=1e-3)
        assert np.isfinite(slope).all()
    start = of.initial(limits.typical(of, np.array([0.0, 0.0, 0.5, 1.0])))
    assert start["edge"] == pytest.approx(3.5 / 5)


BEFORE = {
    "Weibull": (hm.Weibull, {"shape": 1.5}, lambda f: stats.weibull_min(1.5, scale=np.exp(f))),
    "LogNormal": (hm.LogNormal, {"scale": 0.6}, lambda f: stats.lognorm(0.6, scale=np.exp(f))),
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_censored_time_is_only_known_to_be_larger_whatever_the_limits_say(name):
    """In the fit and in scores; an end that was seen is judged by the limits."""
    made, fixed, truth = BEFORE[name]
    d, f, none = truth(0.4), jnp.array([0.4]), jnp.zeros((1, 1))

    @eqx.filter_jit
    def each(of, y):
        return of.log_observed(y, f), of.expectation(y, f, none), log_density(of, y, f, none)

    of = made(**fixed, event="e", lower=0.5, upper=2.0)
    columns = made(**fixed, event="e", lower="from", upper="to")
    ends = {"lower": 0.7, "upper": 1.5}
    for one, y, given, expected in (
        (of, 0.3, {"event": 0.0}, d.logsf(0.3)),
        (of, 5.0, {"event": 0.0}, d.logsf(5.0)),
        (of, 0.3, {"event": 1.0}, d.logcdf(0.5)),
        (of, 5.0, {"event": 1.0}, d.logsf(2.0)),
        (columns, 0.3, {"event": 0.0, **ends}, d.logsf(0.3)),
        (columns, NAN, {"event": 0.0, **ends}, d.logsf(0.7)),
        (columns, NAN, {"event": 1.0, **ends}, np.log(d.cdf(1.5) - d.cdf(0.7))),
    ):
        here = one.at({name: jnp.asarray(value) for name, value in given.items()})
        noted = jnp.asarray(here.noted(np.array([y]))[0])
        np.testing.assert_allclose(each(here, noted), expected, rtol=1e-6)


# -- fits without functions, against maximum likelihood by scipy -----------------------------------

N = 300
x = np.zeros(N)


def constants(of, Y):
    """A model whose functions cannot move: all inputs are one."""
    model = hm.HetMOGP({"y": of}, latents=1, inducing=1, hyperpriors=None, progress=False)
    return model.fit(np.zeros((len(Y["y"]), 1)), Y)


def likely(cost, start):
    return optimize.minimize(cost, start, method="Nelder-Mead", options={"maxiter": 4000}).x


def test_tobit_equals_maximum_likelihood():
    y = rng.normal(1.0, 2.0, N)
    seen = np.clip(y, 0.0, 3.0)
    model = constants(hm.Gaussian(lower=0.0, upper=3.0), {"y": seen})

    def cost(z):
        d = stats.norm(z[0], np.exp(z[1]))
        exact = (seen > 0) & (seen < 3)
        beyond = np.where(seen <= 0, d.logcdf(0.0), d.logsf(3.0))
        return -np.sum(np.where(exact, d.logpdf(seen), beyond))

    m, log_s = likely(cost, [0.0, 0.0])
    assert model.predict([[0.0]])["y"].mean[0] == pytest.approx(m, abs=0.05)
    assert model.likelihoods_["y"].constants["scale"] == pytest.approx(np.exp(log_s), rel=0.02)
    assert abs(m - 1.0) < 0.4  # which the mean of what was recorded is not
    table = evaluate(model, np.zeros((N, 1)), {"y": seen})
    assert 0.7 < table["coverage"].to_dict()["y"] <= 1.0


def test_interval_censored_lifetimes_equal_maximum_likelihood():
    """Inspected at whole times: an end lies between two visits, or after the last."""
    ends = 3.0 * rng.weibull(1.5, N)
    low, high = np.floor(ends), np.ceil(ends)
    low, high = np.where(ends > 4, 4.0, low), np.where(ends > 4, np.nan, high)
    Y = pd.DataFrame({"y": np.nan, "from": np.where(low == 0, np.nan, low), "to": high})
    model = constants(hm.Weibull(lower="from", upper="to"), Y)
    censored = stats.CensoredData(
        interval=np.stack([low, high], axis=1)[ends <= 4],
        right=np.full(int(np.sum(ends > 4)), 4.0),
    )
    shape, _, scale = stats.weibull_min.fit(censored, floc=0.0)
    assert model.likelihoods_["y"].constants["shape"] == pytest.approx(shape, rel=0.03)
    at = model.predict([[0.0]])["y"].survival(2.0)
    assert at[0] == pytest.approx(stats.weibull_min.sf(2.0, shape, scale=scale), abs=0.01)


def test_a_gamma_of_which_some_ends_were_not_seen():
    ends = rng.gamma(2.0, 1.0, N)
    Y: dict[str, np.ndarray] = {"y": np.minimum(ends, 2.5), "seen": (ends <= 2.5).astype(int)}
    model = constants(hm.Gamma(event="seen"), Y)
    data = stats.CensoredData.right_censored(Y["y"], Y["seen"] == 0)
    shape, _, scale = stats.gamma.fit(data, floc=0.0)
    pred = model.predict([[0.0]])["y"]
    assert pred.mean[0] == pytest.approx(shape * scale, rel=0.05)
    assert pred.survival(3.5)[0] == pytest.approx(stats.gamma.sf(3.5, shape, scale=scale), abs=0.02)


def test_rounding_is_not_noise():
    """A scale smaller than the step is found, where the density of rounded values would spread."""
    y = rng.normal(0.3, 0.4, N)
    Y = {"y": np.round(y)}
    model = constants(hm.Gaussian(step=1.0), Y)

    def cost(z):
        d = stats.norm(z[0], np.exp(z[1]))
        return -np.sum(np.log(d.cdf(Y["y"] + 0.5) - d.cdf(Y["y"] - 0.5)))

    _, log_s = likely(cost, [0.0, -1.0])
    assert model.likelihoods_["y"].constants["scale"] == pytest.approx(np.exp(log_s), rel=0.05)
    transforms = pit(model.fitted.observe(model.fitted.read(np.zeros((N, 1)), Y)))["y"]
    assert stats.kstest(transforms, "uniform").pvalue > 1e-3


def test_counts_that_stop_at_a_limit():
    n = rng.poisson(4.0, N)
    Y = {"y": np.minimum(n, 5)}
    model = constants(hm.Poisson(upper=5), Y)

    def cost(z):
        d = stats.poisson(np.exp(z[0]))
        return -np.sum(np.where(Y["y"] < 5, d.logpmf(Y["y"]), d.logsf(4)))

    rate = np.exp(likely(cost, [1.0])[0])
    assert model.predict([[0.0]])["y"].mean[0] == pytest.approx(rate, rel=0.02)


# -- tables, files and words -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited():
    X = rng.uniform(size=60)
    y = np.exp(np.sin(6 * X) + 0.3 * rng.normal(size=60))
    Y = pd.DataFrame({"y": np.where(y < 0.5, 0.0, y)})  # a zero stands for what was not detected
    model = hm.HetMOGP({"y": hm.LogNormal(lower=0.5)}, latents=1, inducing=8, progress=False)
    return model.fit(X, Y), X, Y


def test_predictions_are_of_the_value_itself(limited):
    model, X, Y = limited
    pred = model.predict(X)["y"]
    low = pred.quantile(0.05)
    assert np.any(low < 0.5)
    assert np.all(low > 0)
    np.testing.assert_allclose(pred.cdf(low), 0.05, atol=1e-6)
    beyond = (Y["y"] == 0).to_numpy()
    assert beyond.sum() > 3
    expected = np.log(pred.cdf(np.full(60, 0.5)))
    np.testing.assert_allclose(pred.log_prob(Y["y"])[beyond], expected[beyond], rtol=1e-6)
    assert "y_lower" in model.predict(X).to_frame()


def test_limits_are_saved_and_read(limited, tmp_path):
    model, X, Y = limited
    model.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    assert repr(again.likelihoods_["y"]) == "LogNormal(lower=0.5)"
    assert again.nlpd(X, Y) == model.nlpd(X, Y)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("rain:gamma:lower=0.2", "Gamma(lower=0.2)"),
        ("rain:hurdle:gamma:step=0.1", "Hurdle(Gamma(step=0.1))"),
        ("t:weibull:lower=from:upper=to", "Weibull(lower='from', upper='to')"),
        ("n:poisson:upper=20:exposure=hours", "Poisson(upper=20, exposure='hours')"),
    ],
)
def test_in_words_and_by_plain_options(words, shown):
    of = output_from(words)[1]
    assert repr(of) == shown
    assert repr(type(of).from_plain_options(**of.plain_options())) == shown


def test_a_hurdle_whose_amounts_were_rounded():
    """A zero is exact; an amount stands for its interval."""
    of, f = hm.Hurdle(hm.Gamma(step=0.1)), jnp.array([0.5, 0.2, 0.3])
    gamma = stats.gamma(np.exp(0.5), scale=np.exp(-0.2))
    p = gamma.cdf(0.35) - gamma.cdf(0.25)
    np.testing.assert_allclose(
        of.log_prob(jnp.asarray(0.3), f), np.log(special.expit(-0.3) * p), rtol=1e-6
    )
    np.testing.assert_allclose(of.log_prob(jnp.zeros(()), f), special.log_expit(0.3))
    exact, a, b = of.known(np.array([0.0, 0.3]), np)
    assert exact.tolist() == [True, False]
    np.testing.assert_allclose([a[1], b[1]], [0.25, 0.35])


def test_a_limit_of_ones_own_likelihood():
    class Logistic(hm.Likelihood):
        links = {"location": hm.identity}

        def log_prob(self, y, f):
            return -(y - f[0]) - 2 * jax.nn.softplus(-(y - f[0]))

        def mean(self, f):
            return f[0]

        def variance(self, f):
            return jnp.pi**2 / 3

        def cdf(self, y, f):
            return jax.nn.sigmoid(y - f[0])

    of = Logistic(lower=0.0)
    for f in (-3.0, 1.0, 40.0):
        ours = of.log_observed(jnp.asarray(-1.0), jnp.array([f]))
        np.testing.assert_allclose(ours, special.log_expit(-f), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hm.Gamma(lower=0.0), "lower=0 must lie between 0 and inf"),
        (lambda: hm.Gaussian(lower=2.0, upper=1.0), "lower=2 is not below upper=1"),
        (lambda: hm.Gaussian(step=-1.0), "step=-1 is not possible"),
        (lambda: hm.Poisson(step=1.0), "counts are whole already"),
        (lambda: hm.Gaussian(step=1.0, lower="a"), "step cannot be combined with columns"),
        (lambda: hm.Gaussian(step="a"), "step must be a number, not 'a'"),
        (lambda: hm.Gaussian(lower=NAN), "lower must be a number or the name of a column"),
        (
            lambda: hm.HetMOGP({"y": hm.Gaussian(lower="a", upper="b")}).fit(
                [0.0, 1.0], {"y": [1.0, 2.0], "a": [0.0, 3.0], "b": [1.0, 2.0]}
            ),
            "row 1: 'a' is 3, which is above 'b', 2",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_values_all_beyond_a_limit_are_doubted():
    model = hm.HetMOGP({"y": hm.Gaussian(lower=5.0)}, latents=1, inducing=2, max_iter=2)
    with pytest.warns(UserWarning, match="are only upper limits"):
        model.fit(np.arange(8.0), {"y": np.zeros(8)})


def test_the_names_of_limits_are_said_once():
    assert hm.Likelihood.common == ("lower", "upper", "step")
    assert set(limits.LIMITS) < set(hm.Likelihood.common)
