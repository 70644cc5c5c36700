"""The default fit: each output alone, all together, and what is kept of the two."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import hetmogp as hm
from hetmogp.columns import Column
from hetmogp.data import full_batch
from hetmogp.fitting import Progress
from hetmogp.fitting.alone import PRICE, Alone, Candidates
from hetmogp.fitting.inducing import for_supports, how_many_inducing
from hetmogp.fitting.sharing import Chooser, _together
from hetmogp.fitting.start import initial_parameters
from hetmogp.fitting.supports import groups, tells_units
from hetmogp.session import session
from hetmogp.tables import read

x = np.linspace(0.0, 1.0, 80)
rng = np.random.default_rng(0)
wave = np.sin(12 * x)
REAL = {"a": hm.Gaussian(), "b": hm.Gaussian(), "c": hm.Gaussian()}


def noisy(f):
    return f + 0.2 * rng.standard_normal(len(f))


@pytest.fixture(scope="module")
def sharing():
    """Three outputs of one function, one of them hidden for a stretch."""
    Y = {"a": noisy(wave), "b": noisy(-2 * wave), "c": noisy(wave)}
    Y["b"][30:50] = np.nan
    return hm.HetMOGP(REAL, progress=False).fit(x, Y)


@pytest.fixture(scope="module")
def unrelated():
    """Three outputs that have nothing to do with each other."""
    return {"a": noisy(wave), "b": noisy(np.cos(17 * x)), "c": noisy((3 * x - 1) ** 2)}


@pytest.fixture(scope="module")
def separate(unrelated):
    """A model of them."""
    return hm.HetMOGP(REAL, progress=False).fit(x, unrelated)


def test_outputs_of_one_function_share_it_and_fill_each_others_gaps(sharing):
    assert sharing.summary().shared
    assert "share latents" in repr(sharing.summary())
    gap = slice(32, 48)
    error = sharing.predict(x[gap])["b"].mean + 2 * wave[gap]
    alone = sharing.alone_.predict(x[gap])["b"].mean + 2 * wave[gap]
    assert np.sqrt(np.mean(error**2)) < 0.2
    assert np.sqrt(np.mean(error**2)) < 0.5 * np.sqrt(np.mean(alone**2))


def test_outputs_that_have_nothing_in_common_stay_alone(separate):
    assert not separate.summary().shared
    assert "share nothing" in repr(separate.summary())
    W = separate.weights_
    assert W.shape == (3, 3)
    assert (np.count_nonzero(W, axis=0) == 1).all()
    table = separate.sharing_
    assert table.loc["all", "gain"] < PRICE * 9  # nine more weights, with a latent to spare


@pytest.mark.parametrize("name", ["sharing", "separate"])
def test_the_table_of_gains_adds_up(request, name):
    table = request.getfixturevalue(name).sharing_
    assert list(table.index) == ["a", "b", "c", "all"]
    assert list(table.columns) == ["alone", "joint", "gain"]
    np.testing.assert_allclose(table["joint"] - table["alone"], table["gain"])
    np.testing.assert_allclose(table["alone"][:3].sum(), table.loc["all", "alone"])


def test_the_bound_of_an_output_alone_is_the_evidence_of_an_exact_process():
    """At the fitted hyperparameters, inducing inputs being at all rows."""
    y = noisy(wave)
    model = hm.HetMOGP({"a": hm.Gaussian()}, progress=False).fit(x, {"a": y})
    (kernel,) = model.kernels_
    K = np.exp(-0.5 * (x[:, None] - x) ** 2 / float(kernel.lengthscale[0]) ** 2)
    noise = float(model.likelihoods_["a"].constants["scale"])
    cov = float(model.weights_[0, 0]) ** 2 * K + noise**2 * np.eye(len(x))
    evidence = multivariate_normal.logpdf(y, np.full(len(x), model.constants_[0]), cov)
    assert model.elbo_ == pytest.approx(evidence, abs=0.02)
    assert model.sharing_.loc["a", "alone"] == pytest.approx(evidence, abs=0.5)


def test_a_fast_cycle_is_found_although_no_start_is_near():
    """A start that is too long would end where the cycle is noise."""
    t = np.arange(300.0)
    y = np.sin(2 * np.pi * t / 11) * (1 + 0.3 * np.sin(t / 40)) + 0.05 * noisy(np.zeros(300))
    (kernel,) = hm.HetMOGP({"a": hm.Gaussian()}, progress=False).fit(t, {"a": y}).kernels_
    assert 1.5 < float(kernel.lengthscale[0]) < 6.0


def test_what_was_chosen_comes_back_from_a_file(sharing, tmp_path):
    sharing.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    pd.testing.assert_frame_equal(again.sharing_, sharing.sharing_)
    for model, then in ((again, sharing), (again.alone_, sharing.alone_)):
        np.testing.assert_array_equal(model.predict(x)["b"].mean, then.predict(x)["b"].mean)
    assert again.summary().decision == sharing.summary().decision


def test_a_number_of_latents_is_that_number_and_has_no_table_of_gains():
    model = hm.HetMOGP([hm.Gaussian()], latents=2, inducing=5, max_iter=1, prune=False)
    model.fit(x, wave)
    assert model.weights_.shape == (1, 2)
    for name in ("sharing_", "alone_"):
        with pytest.raises(AttributeError, match='latents="auto"'):
            getattr(model, name)


def test_without_hyperpriors_the_objective_is_the_bound():
    options = {"latents": 1, "inducing": 10, "max_iter": 2, "prune": False, "progress": False}
    plain = hm.HetMOGP([hm.Gaussian()], hyperpriors=None, **options).fit(x, noisy(wave))
    weak = hm.HetMOGP([hm.Gaussian()], **options).fit(x, noisy(wave))
    assert plain.history_[-1] == plain.elbo_
    assert weak.history_[-1] < weak.elbo_


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lon", "lat", "month"], [(0, 1), (2,)]),
        (["x", "y"], []),
        (["day", "hour"], [(0,), (1,)]),
        (["UTM_X", "UTM_Y", "depth"], [(0, 1), (2,)]),
        (["a", "b", "c", "d", "e"], []),
        (["x"], []),
    ],
)
def test_inputs_that_belong_together_are_grouped(names, expected):
    assert groups([Column(name) for name in names]) == expected


def test_labels_are_a_group():
    columns = [Column("year"), Column("sex", "category", ("f", "m"))]
    assert groups(columns) == [(1,), (0,)]


def test_a_sum_over_inputs_is_found_and_said():
    """A function of one input plus a function of the other, 200 rows."""
    points = rng.uniform(0.0, 1.0, (200, 2))
    y = np.sin(14 * points[:, 0]) + np.cos(11 * points[:, 1]) + 0.1 * rng.standard_normal(200)
    X = pd.DataFrame(points, columns=["day", "hour"])
    model = hm.HetMOGP({"a": hm.Gaussian()}, inducing=60, progress=False).fit(X, {"a": y})
    assert {k.active_dims for k in model.kernels_} == {(0,), (1,)}
    assert "RBF(hour" in repr(model.summary())


def test_the_spare_latent_keeps_its_inducing_inputs_beside_latents_with_few():
    """A sum over an hour and a station needs 6 and 3 inducing inputs; the spare latent has 18."""
    X = np.stack(np.meshgrid(np.arange(6.0), np.arange(3.0)), axis=-1).reshape(-1, 2)
    data = read({"a": hm.Gaussian()}, X, {"a": X.sum(axis=1)})
    kernels = [hm.RBF(), hm.RBF(active_dims=(0,)), hm.RBF(active_dims=(1,))]
    with session():
        batch, scaling = full_batch(data)
        rows = np.asarray(batch.X)
        placed = for_supports(kernels, rows, 18, 0, [])
        candidates = Candidates(kernels, placed, scaling, data.columns, rows)
        start = initial_parameters(data, candidates.beginning([0, 1, 2]), scaling)
        start = eqx.tree_at(lambda one: one.prior.mask, start, jnp.array([[0.0, 1.0, 1.0]]))
        tables = _together([start], candidates).prior.tables
    for table, own, count in zip(tables, placed.inputs[[1, 2, 0]], (6, 3, 18), strict=True):
        np.testing.assert_array_equal(table, own[:count])


def test_inducing_inputs_are_all_rows_or_as_many_as_latents_allow():
    assert how_many_inducing("auto", 50, 4) == how_many_inducing(None, 50, 4) == 50
    assert how_many_inducing("auto", 5000, 4) == 200
    assert how_many_inducing("auto", 5000, 4, "svi") == 300
    with pytest.raises(ValueError, match='whole number >= 1, or "auto"'):
        how_many_inducing("many", 50, 4)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"latents": "many"}, 'latents must be a whole number >= 1, or "auto"'),
        ({"rank": 2}, "needs a number of latents"),
        ({"rank": [2, 1]}, "needs a number of latents"),
        ({"hyperpriors": "strong"}, 'hyperpriors must be "auto" or None'),
    ],
)
def test_what_cannot_be_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        hm.HetMOGP([hm.Gaussian()], **options).fit(x, wave)


def test_a_list_of_kernels_says_how_many_latents_there_are():
    kernels = [hm.RBF(), hm.Matern32(), hm.Matern12()]
    model = hm.HetMOGP([hm.Gaussian()], kernel=kernels, inducing=5, max_iter=1, prune=False)
    assert len(model.fit(x, wave).kernels_) == 3


@pytest.mark.parametrize("when", ["b alone", "joint"])
def test_an_interrupt_while_latents_are_chosen_keeps_what_was_found(when, monkeypatch):
    """With all outputs fitted alone it is that model; before, the rest as they start."""
    stops = iter([KeyboardInterrupt])

    def update(self, what, *_):
        if what.startswith(when):
            raise next(stops)

    monkeypatch.setattr(Progress, "update", update)
    Y = {"a": noisy(wave), "b": noisy(-2 * wave), "c": noisy(wave)}
    model = hm.HetMOGP(REAL, progress=False)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model.fit(x, Y)
    assert model.interrupted_
    assert not model.summary().shared
    error = model.predict(x)["a"].mean - wave
    assert np.sqrt(np.mean(error**2)) < 0.15  # it was fitted before
    assert np.isfinite(model.nlpd(x, Y)["global"])


def test_the_jitter_rises_when_no_joint_start_is_finite(monkeypatch):
    """Nothing else is learned here, to be quick."""
    jitters = []

    def at_first_nothing(self, state, *_):
        jitters.append(self.jitter)
        return state._replace(objective=np.nan) if self.jitter == jitters[0] else state

    monkeypatch.setattr(Alone, "best", Alone.begun)
    monkeypatch.setattr(Chooser, "_climbed", at_first_nothing)
    outputs = {"a": hm.Gaussian(), "b": hm.Gaussian()}
    Y = {"a": wave[:6], "b": -wave[:6]}
    model = hm.HetMOGP(outputs, max_iter=1, restarts=1, progress=False).fit(x[:6], Y)
    assert max(jitters) == pytest.approx(10.0 * jitters[0])
    assert np.isfinite(model.elbo_)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.repeat(rng.uniform(30, 70, 50), 6), True),  # patients, by their age
        (np.tile(np.arange(60.0), 5), False),  # months: nothing lies between them
        (rng.uniform(30, 70, 300), False),  # nobody comes back
        (np.repeat(rng.uniform(30, 70, 10), 30), False),  # too few
        (np.append(np.zeros(150), rng.uniform(0, 9, 150)), False),  # one value alone comes back
    ],
)
def test_numbers_that_tell_units_apart_come_back_at_irregular_distances(values, expected):
    X = np.c_[rng.uniform(size=300), values]
    assert tells_units((1,), X) == expected
    assert not tells_units((0, 1), np.c_[values, values])  # a place


@pytest.mark.slow
def test_what_is_a_units_own_is_not_passed_on_to_a_new_unit_nearby():
    """Units known by their age, each with an effect of its own: a new one is anyone's guess."""
    draw = np.random.default_rng(0)
    units, visits, noise = 60, 5, 0.3
    age, effect = draw.uniform(30, 70, units), draw.standard_normal(units)
    who = np.repeat(np.arange(units), visits)

    def table(time, age, effect):
        Y = {"a": 0.5 * np.sin(time) + effect, "b": -0.8 * effect}
        Y = {name: f + noise * draw.standard_normal(len(f)) for name, f in Y.items()}
        return pd.DataFrame({"time": time, "age": age}), Y

    X, Y = table(draw.uniform(0, 5, len(who)), age[who], effect[who])
    model = hm.HetMOGP({"a": hm.Gaussian(), "b": hm.Gaussian()}, progress=False).fit(X, Y)
    assert model.summary().shared
    assert any("Category(age" in k.in_words({"time": "", "age": ""}) for k in model.kernels_)
    new, Y_new = table(
        draw.uniform(0, 5, 400), draw.choice(age, 400) + 0.01, draw.standard_normal(400)
    )
    scores = model.nlpd(new, Y_new)
    for name, size in (("a", 1.0), ("b", 0.8)):
        truth = 0.5 * np.log(2 * np.pi * np.e * (size**2 + noise**2))
        assert scores[name] == pytest.approx(truth, abs=0.15)
    again, Y_again = table(draw.uniform(0, 5, units), age, effect)  # the same units, later
    error = Y_again["a"] - model.predict(again)["a"].mean
    assert np.sqrt(np.mean(error**2)) < 1.5 * noise


def test_outputs_that_stay_alone_are_those_of_independent_models(separate, unrelated):
    """With few rows nothing is fitted again once sharing was found not to pay."""
    alone = hm.independent(REAL, progress=False).fit(x, unrelated)
    assert separate.elbo_ == pytest.approx(alone.elbo_)
    assert separate.elbo_ == pytest.approx(separate.sharing_.loc["all", "alone"])
    for name in REAL:
        mean, other = (model.predict(x)[name].mean for model in (separate, alone))
        np.testing.assert_allclose(mean, other, atol=1e-6)
    assert separate.converged_
    assert separate.history_[-1] < separate.elbo_  # less what the hyperpriors take


@pytest.mark.slow
def test_what_is_chosen_on_a_sample_is_asked_again_on_all_rows():
    """1,100 rows, of which 1,000 are looked at first: the table of gains is about all of them."""
    t = np.linspace(0.0, 1.0, 1100)
    draw = np.random.default_rng(3)
    Y = {name: np.sin(12 * t) + 0.3 * draw.standard_normal(1100) for name in "ab"}
    hidden = (t > 0.4) & (t < 0.7)
    Y["b"][hidden] = np.nan
    model = hm.HetMOGP({"a": hm.Gaussian(), "b": hm.Gaussian()}, progress=False).fit(t, Y)
    assert model.summary().shared
    assert model.sharing_.loc["all", "joint"] == pytest.approx(model.elbo_)
    error = model.predict(t[hidden])["b"].mean - np.sin(12 * t[hidden])
    assert np.sqrt(np.mean(error**2)) < 0.1
    (kernel, _), alone = model.alone_.kernels_, model.alone_
    K = np.exp(-0.5 * (t[:, None] - t) ** 2 / float(kernel.lengthscale[0]) ** 2)
    noise = float(alone.likelihoods_["a"].constants["scale"])
    cov = float(np.abs(alone.weights_[0]).max()) ** 2 * K + noise**2 * np.eye(1100)
    evidence = multivariate_normal.logpdf(Y["a"], np.full(1100, alone.constants_[0]), cov)
    assert model.sharing_.loc["a", "alone"] == pytest.approx(evidence, abs=0.5)
