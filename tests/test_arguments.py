"""Numbers that come with each observation: weights, exposures, trials, events."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from problems import elbo
from scipy import special, stats

import hetmogp as hm
from hetmogp.data import Scaling, blocks, full_batch
from hetmogp.fitting import svi
from hetmogp.fitting.start import Beginning, initial_parameters
from hetmogp.session import session
from hetmogp.tables import name_outputs, read
from hetmogp.variational import Factorised

rng = np.random.default_rng(0)
N = 40
x = np.linspace(0.0, 1.0, N)
compiled_elbo = jax.jit(elbo)


def bound(likelihoods, X, Y, mini=False):
    """The bound of a plain model at a fixed q(u), from the full batch or from one mini-batch."""
    with session():
        data = read(name_outputs(likelihoods, Y), X, Y)
        batch, _ = full_batch(data)
        same = replace(  # the same start whatever the data
            data,
            values=[np.full(5, 2.0) for _ in data.values],
            given=[{name: np.ones(5) for name in columns} for columns in data.given],
        )
        Z = np.linspace(-1.0, 1.0, 5)[None, :, None]
        beginning = Beginning([hm.RBF()], [1], Z, np.array([0.35]))
        parameters = initial_parameters(same, beginning, Scaling(np.zeros(1), np.ones(1)))
        q = Factorised(jnp.full((1, 5), 0.3), jnp.eye(5)[None])
        if mini:
            groups, _ = blocks(data)
            rows = tuple(jnp.arange(len(group.X)) for group in groups)
            batch = svi.mini_batch(groups, rows)
        return float(compiled_elbo(parameters, q, batch))


y = rng.poisson(3.0, N).astype(float)
weight = rng.integers(0, 3, N).astype(float)


def test_a_weight_counts_an_observation_that_many_times():
    weighted = bound({"y": hm.Poisson(weight="w")}, x, {"y": y, "w": weight})
    copies = np.repeat(np.arange(N), weight.astype(int))
    repeated = bound({"y": hm.Poisson()}, x[copies], {"y": y[copies]})
    assert weighted == pytest.approx(repeated, rel=1e-10)


def test_mini_batches_carry_weights():
    Y = {"y": y, "w": 0.5 + weight}
    full, mini = (bound({"y": hm.Poisson(weight="w")}, x, Y, mini) for mini in (False, True))
    assert mini == pytest.approx(full, rel=1e-10)


def test_weights_need_not_be_whole():
    half = bound({"y": hm.Poisson(weight="w")}, x, {"y": y, "w": np.full(N, 0.5)})
    one = bound({"y": hm.Poisson(weight="w")}, x, {"y": y, "w": np.ones(N)})
    two = bound({"y": hm.Poisson(weight="w")}, x, {"y": y, "w": np.full(N, 2.0)})
    assert two - one == pytest.approx(2 * (one - half), rel=1e-9)
    assert one == pytest.approx(bound({"y": hm.Poisson()}, x, {"y": y}), rel=1e-12)


def test_no_weight_is_no_observation():
    hidden = np.where(weight > 0, y, np.nan)
    zeroed = bound({"y": hm.Poisson(weight="w")}, x, {"y": y, "w": np.minimum(weight, 1.0)})
    assert zeroed == pytest.approx(bound({"y": hm.Poisson()}, x, {"y": hidden}), rel=1e-12)
    half = np.arange(N) % 2
    with pytest.raises(ValueError, match="no observed value: every value has the weight 0 in 'w'"):
        bound({"y": hm.Poisson(weight="w")}, x, {"y": np.where(half, np.nan, y), "w": half})
    with pytest.raises(ValueError, match=r"no observed value$"):
        bound({"y": hm.Poisson(weight="w")}, x, {"y": np.full(N, np.nan), "w": half})


def test_mini_batches_carry_arguments():
    exposure = rng.uniform(0.5, 2.0, N)
    hidden = np.where(np.arange(N) % 3 == 0, np.nan, y)
    Y = {"y": hidden, "e": np.where(np.isnan(hidden), np.nan, exposure), "z": y}
    likelihoods = {"y": hm.Poisson(exposure="e"), "z": hm.Gaussian(scale=1.0)}
    assert bound(likelihoods, x, Y, True) == pytest.approx(bound(likelihoods, x, Y), rel=1e-10)


# -- what each argument does to one observation ----------------------------------------------------


def one(likelihood, method, *args):
    with session():
        return float(getattr(likelihood, method)(*(jnp.asarray(a, float) for a in args)))


def test_exposure_multiplies_the_rate():
    f = [0.4]
    for make, frozen in (
        (hm.Poisson, lambda m: stats.poisson(m)),
        (
            lambda: hm.NegativeBinomial(concentration=2.0),
            lambda m: stats.nbinom(2.0, 2.0 / (2.0 + m)),
        ),
    ):
        of, truth = make().at({"exposure": 2.5}), frozen(2.5 * np.exp(0.4))
        assert one(of, "log_prob", 3.0, f) == pytest.approx(truth.logpmf(3))
        assert one(of, "mean", f) == pytest.approx(truth.mean())
        assert one(of, "variance", f) == pytest.approx(truth.var())
        assert one(of, "cdf", 3.0, f) == pytest.approx(truth.cdf(3))
    zip_ = hm.ZeroInflatedPoisson().at({"exposure": 2.5})
    zero = special.expit(-0.3)
    expected = np.log(zero + (1 - zero) * np.exp(-2.5 * np.exp(0.4)))
    assert one(zip_, "log_prob", 0.0, [0.4, -0.3]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("likelihood", "frozen"),
    [
        (hm.Exponential(), stats.expon(scale=np.exp(-0.4))),
        (hm.Weibull(shape=1.7), stats.weibull_min(1.7, scale=np.exp(0.4))),
        (hm.LogLogistic(shape=3.0), stats.fisk(3.0, scale=np.exp(0.4))),
        (hm.LogNormal(scale=0.6), stats.lognorm(0.6, scale=np.exp(0.4))),
    ],
    ids=["Exponential", "Weibull", "LogLogistic", "LogNormal"],
)
def test_a_censored_time_counts_by_its_survival(likelihood, frozen):
    for t in (0.01, 0.8, 3.0):
        assert one(likelihood.at({"event": 1.0}), "log_prob", t, [0.4]) == pytest.approx(
            frozen.logpdf(t)
        )
        assert one(likelihood.at({"event": 0.0}), "log_prob", t, [0.4]) == pytest.approx(
            frozen.logsf(t), rel=1e-9
        )
    # and its expectation is that of the survival function
    e, w = np.polynomial.hermite_e.hermegauss(60)
    with session():
        for event in (0.0, 1.0):
            of = type(likelihood)(event="e", **dict(likelihood.fixed)).at({"event": event})
            f = 0.4 + 0.5 * e
            values = [float(of.log_prob(jnp.asarray(0.8), jnp.array([v]))) for v in f]
            ours = of.expectation(jnp.asarray(0.8), jnp.array([0.4]), jnp.array([[0.25]]))
            assert float(ours) == pytest.approx(np.dot(w, values) / w.sum(), rel=1e-6)


@pytest.mark.parametrize(
    "name", ["Weibull", "LogLogistic", "LogNormal", "Exponential", "Binomial", "Poisson"]
)
def test_extreme_functions_stay_finite_with_arguments(name):
    import jax

    given = {"Binomial": {"trials": 9.0}, "Poisson": {"exposure": 1e6}}.get(name, {"event": 0.0})
    of = getattr(hm, name)()
    free = dict.fromkeys(of.free, 0.3)
    with session():
        import equinox as eqx

        if free:
            of = eqx.tree_at(lambda o: o.free, of, free, is_leaf=lambda v: isinstance(v, dict))
        of = of.at(given)
        for f in (-30.0, -15.0, 0.0, 15.0, 30.0):
            value, slope = jax.value_and_grad(of.log_prob, argnums=1)(
                jnp.asarray(4.0), jnp.array([f])
            )
            assert np.isfinite(value), f
            assert np.isfinite(slope).all(), f


# -- tables ----------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"cases": y, "people": 10.0, "t": rng.uniform(1, 2, N), "died": 1.0, "n": 20.0}
)


@pytest.mark.parametrize(
    ("likelihoods", "change", "message"),
    [
        (
            {"cases": hm.Poisson(exposure="people")},
            {"people": (3, 0.0)},
            r"output 'cases', column 'people', row 3: 0 is not a valid exposure, .* a number > 0",
        ),
        (
            {"cases": hm.Poisson(exposure="people")},
            {"people": (3, np.nan)},
            r"column 'people', row 3: a missing value is not a valid exposure",
        ),
        (
            {"cases": hm.Binomial(trials="n")},
            {"n": (5, 0.0)},
            r"output 'cases', row 5: \d is not a Binomial value, .*trials, in column 'n', is 0",
        ),
        (
            {"cases": hm.Binomial(trials="n")},
            {"n": (5, 2.5)},
            r"column 'n', row 5: 2.5 is not a valid trials, .* whole number",
        ),
        (
            {"t": hm.Weibull(event="died")},
            {"died": (7, 2.0)},
            r"output 't', column 'died', row 7: 2 is not a valid event, which is 0 .* or 1",
        ),
        (
            {"t": hm.Weibull(event="died")},
            {"t": (7, -1.0)},
            r"output 't', row 7: -1 is not a Weibull value, which is a number > 0",
        ),
        (
            {"cases": hm.Gaussian(weight="people")},
            {"people": (2, -1.0)},
            r"column 'people', row 2: -1 is not a valid weight, .*>= 0",
        ),
        (
            {"t": hm.LogLogistic(event="died")},
            {"died": (1, "yes")},
            r"column 'died', row 1: 'yes' is not a valid event",
        ),
    ],
)
def test_bad_arguments_are_named(likelihoods, change, message):
    frame = FRAME.copy()
    frame.loc[5, "cases"] = 3.0
    for column, (row, value) in change.items():
        frame[column] = frame[column].astype(object)
        frame.loc[row, column] = value
    with pytest.raises(ValueError, match=message):
        hm.HetMOGP(likelihoods).fit(x, frame)


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="exposure='area', but Y has no column 'area'; it has"):
        hm.HetMOGP({"cases": hm.Poisson(exposure="area")}).fit(x, FRAME)
    with pytest.raises(ValueError, match="'people', which an array or list cannot carry"):
        hm.HetMOGP([hm.Poisson(exposure="people")]).fit(x, y)
    with pytest.raises(ValueError, match="column 'e' has 3 rows, the output has 40"):
        hm.HetMOGP({"y": hm.Poisson(exposure="e")}).fit(x, {"y": y, "e": [1, 2, 3]})


def test_rows_in_another_order_are_refused(fitted):
    Y = {"y": pd.Series(y), "e": pd.Series(np.ones(N), index=range(N)[::-1])}
    with pytest.raises(ValueError, match="index of its values and of 'e' differ"):
        hm.HetMOGP({"y": hm.Poisson(exposure="e")}).fit(x, Y)
    model, at, frame = fitted
    for given in (frame[["n"]].iloc[::-1], {"n": frame["n"].iloc[::-1]}):
        with pytest.raises(ValueError, match="'cured': the index of X and of 'n' in given differ"):
            model.predict(pd.DataFrame({"x0": at}), given=given)


def test_outputs_may_be_an_index_and_not_empty(fitted):
    model, at, _ = fitted
    assert list(model.predict(at[:2], outputs=pd.Index(["cured"]))) == ["cured"]
    with pytest.raises(ValueError, match="outputs is empty: name some"):
        model.predict(at[:2], outputs=[])


def test_odd_columns_are_named():
    twice = pd.concat([FRAME[["cases", "people"]], FRAME[["people"]]], axis=1)
    with pytest.raises(ValueError, match="more than one column called 'people'"):
        hm.HetMOGP({"cases": hm.Poisson(exposure="people")}).fit(x, twice)
    with pytest.raises(ValueError, match=r"output 'y': column 'e' has shape \(40, 2\)"):
        hm.HetMOGP({"y": hm.Poisson(exposure="e")}).fit(x, {"y": y, "e": np.ones((N, 2))})
    with pytest.raises(ValueError, match="every value has the weight 0 in 'w'"):
        hm.HetMOGP({"y": hm.Poisson(weight="w")}).fit(x, {"y": y, "w": np.zeros(N)})


def test_an_argument_may_be_missing_where_its_value_is():
    frame = FRAME.copy()
    frame.loc[4, ["cases", "people"]] = np.nan
    data = read({"cases": hm.Poisson(exposure="people")}, x, frame)
    assert np.isnan(data.values[0][4])
    assert np.isfinite(data.given[0]["exposure"]).all()


def test_a_list_of_likelihoods_skips_the_columns_beside():
    named = name_outputs(
        [hm.Poisson(exposure="people"), hm.LogNormal(event="died", weight="n")], FRAME
    )
    assert list(named) == ["cases", "t"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hm.Binomial(trials=-1), "trials must be the name of a column, or a whole number"),
        (lambda: hm.Binomial(trials=2.5), "trials must be the name"),
        (lambda: hm.Binomial([1, 2]), "trials must be the name of a column"),
        (lambda: hm.Poisson(exposure=np.ones(3)), "exposure must be the name of a column, not"),
        (lambda: hm.LogNormal(event=0), "event must be the name of a column, not 0"),
        (lambda: hm.Poisson(weight=3), "weight must be the name of a column, not 3"),
        (
            lambda: hm.StudentT(latent="scale"),
            r"latent must be a tuple of names, such as \('scale'",
        ),
        (lambda: hm.Weibull(shape="k"), "shape must be a number, not 'k'"),
    ],
)
def test_constructor_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_repr_shows_columns():
    assert repr(hm.Poisson(exposure="people", weight="w")) == (
        "Poisson(exposure='people', weight='w')"
    )
    assert repr(hm.Binomial(trials=10)) == "Binomial(trials=10)"
    assert repr(hm.Weibull(shape=2.0, event="died")) == "Weibull(shape=2, event='died')"
    assert repr(hm.Bernoulli(weight="w")) == "Bernoulli(weight='w')"


# -- a whole model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    n = 120
    at = np.linspace(0.0, 1.0, n)
    people = rng.uniform(10.0, 1000.0, n)
    trials = rng.integers(1, 20, n)
    frame = pd.DataFrame(
        {
            "cases": rng.poisson(0.02 * people * np.exp(np.sin(6 * at))),
            "people": people,
            "cured": rng.binomial(trials, special.expit(2 * np.sin(6 * at))),
            "n": trials,
        }
    )
    likelihoods = {"cases": hm.Poisson(exposure="people"), "cured": hm.Binomial(trials="n")}
    model = hm.HetMOGP(likelihoods, latents=1, inducing=10, progress=False).fit(at, frame)
    return model, at, frame


def test_the_rate_is_per_unit_of_exposure(fitted):
    model, at, _ = fitted
    rate = model.predict(at)["cases"].mean
    np.testing.assert_allclose(rate, 0.02 * np.exp(np.sin(6 * at)), rtol=0.25)
    thousand = model.predict(at, given={"people": 1000})["cases"].mean
    np.testing.assert_allclose(thousand, 1000 * rate, rtol=1e-6)
    each = model.predict(at[:3], given={"people": [1.0, 10.0, 100.0]})["cases"].mean
    np.testing.assert_allclose(each, rate[:3] * [1.0, 10.0, 100.0], rtol=1e-6)


def test_predictions_know_their_trials(fitted):
    model, at, frame = fitted
    share = model.predict(at)["cured"].mean
    assert np.all((share > 0) & (share < 1))
    pred = model.predict(at, given=frame)  # a frame may hold more
    np.testing.assert_allclose(pred["cured"].mean, share * frame["n"], rtol=1e-6)
    upper = pred["cured"].quantile(0.999)
    assert np.all(upper <= frame["n"])
    assert np.all(upper == np.floor(upper))
    draws = pred["cured"].sample(50)
    assert np.all(draws <= frame["n"].to_numpy())
    assert pred["cured"].prob_zero.shape == (len(at),)


def test_to_frame_says_what_was_assumed(fitted):
    model, at, frame = fitted
    plain = model.predict(at[:4]).to_frame()
    assert (plain["cases_exposure"] == 1).all()
    assert (plain["cured_trials"] == 1).all()
    given = model.predict(at[:4], given=frame.iloc[:4]).to_frame()
    np.testing.assert_array_equal(given["cured_trials"], frame["n"][:4])


def test_scores_take_the_columns_from_the_table(fitted):
    model, at, frame = fitted
    pred = model.predict(at, given=frame)
    expected = -pred["cases"].log_prob(frame["cases"]).mean()
    assert model.nlpd(at, frame)["cases"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="has no column 'people'"):
        model.nlpd(at, frame.drop(columns="people"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"persons": 3}, "'persons', which no likelihood asks for; those in use are"),
        ({"people": 0.0}, "column 'people', row 0: 0 is not a valid exposure"),
        ({"people": [1.0, 2.0]}, "column 'people' has 2 rows, the output has 5"),
    ],
)
def test_bad_given(fitted, given, message):
    model, at, _ = fitted
    with pytest.raises(ValueError, match=message):
        model.predict(at[:5], given=given)
    with pytest.raises(TypeError, match="given must be a dict"):
        model.predict(at[:5], given=3.0)
    with pytest.raises(ValueError, match="trials are taken as 1 where 'n' is not given"):
        model.predict(at[:2])["cured"].log_prob([5, 5])
