"""The estimator: its public contract, its invariances, and data that is hard on it."""

import inspect
import itertools
import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from threadpoolctl import threadpool_info

import hetmogp as hm
from hetmogp.fitting import Options, mini_batches, svi, vem

N = 40
nan = np.nan
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 1.0, N))
f = np.sin(6.0 * x)
height = f + 0.2 * rng.standard_normal(N)
high = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-3.0 * f))).astype(float)
high[12:16] = nan
Y = {"height": height, "high": high}
n = 8  # predictions compile once per length, so all of them have this one
new = np.linspace(-0.1, 1.1, n)

# One structure for most tests: what costs time is compiling, and that is per structure.
PAIR = {"height": hm.Gaussian(), "high": hm.Bernoulli()}
QUICK = {"latents": 2, "inducing": 6, "method": "vem", "progress": False}
ALONE = {"latents": 1, "inducing": 6, "method": "vem", "progress": False}


def fitted(X=x, values=None, likelihoods=None, **options):
    model = hm.HetMOGP(PAIR if likelihoods is None else likelihoods, **{**QUICK, **options})
    return model.fit(X, Y if values is None else values)


def alone(X=x, y=height, **options):
    return hm.HetMOGP({"height": hm.Gaussian()}, **{**ALONE, **options}).fit(X, {"height": y})


def means(model, X=new):
    """The parameter functions by output, so that the order of the outputs does not matter."""
    mean, cov = model.parameter_functions(X)
    order = np.argsort(model.parameter_names_)
    return mean[:, order], cov[:, order][:, :, order]


def same(one, other, rtol=0.0, atol=0.0, X=new, Z=None):
    np.testing.assert_allclose(one.elbo_, other.elbo_, rtol=rtol, atol=atol)
    for a, b in zip(means(one, X), means(other, X if Z is None else Z), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.fixture(scope="module")
def pair():
    return fitted()


@pytest.fixture(scope="module")
def single():
    return alone()


# -- every likelihood in one model -----------------------------------------------------------------

ALL = {
    "real": hm.Gaussian(),
    "noisy": hm.HetGaussian(),
    "robust": hm.StudentT(),
    "yes": hm.Bernoulli(),
    "kind": hm.Categorical(),
    "count": hm.Poisson(),
    "wait": hm.Exponential(),
    "size": hm.Gamma(),
    "share": hm.Beta(),
}
FUNCTIONS = [
    *("real.mean", "noisy.mean", "noisy.variance", "robust.location", "yes.probability"),
    *("kind.green", "kind.red", "count.rate", "wait.rate", "size.shape", "size.rate"),
    *("share.mean", "share.concentration"),
]


def everything():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "real": f + 0.1 * rng.standard_normal(N),
            "noisy": f + np.exp(f - 2) * rng.standard_normal(N),
            "robust": f + 0.1 * rng.standard_t(3, N),
            "yes": pd.array(f + 0.3 * rng.standard_normal(N) > 0, dtype="boolean"),
            "kind": rng.choice(["blue", "green", "red"], N),
            "count": pd.array(rng.poisson(np.exp(1 + f)), dtype="Int64"),
            "wait": rng.exponential(np.exp(f)),
            "size": rng.gamma(3.0, np.exp(f)),
            "share": 1.0 / (1.0 + np.exp(-f - 0.3 * rng.standard_normal(N))),
        }
    )
    frame["kind"] = frame["kind"].astype(object)
    for j, column in enumerate(frame.columns):
        frame.loc[3 * j : 3 * j + 2, column] = None if column == "kind" else pd.NA
    return frame


@pytest.fixture(scope="module")
def mixed():
    model = hm.HetMOGP(ALL, **{**QUICK, "max_iter": 4, "prune": False})
    return model.fit(x, everything())


@pytest.fixture(scope="module")
def forecast(mixed):
    return mixed.predict(pd.DataFrame({"x0": new}, index=np.arange(n) + 100))


def test_every_parameter_function_is_named(mixed):
    assert mixed.output_names_ == list(ALL)
    assert mixed.parameter_names_ == FUNCTIONS


def test_learned_attributes_have_the_promised_shapes(mixed):
    J = len(FUNCTIONS)
    assert mixed.weights_.shape == (J, 2)
    assert mixed.constants_.shape == (J,)
    assert mixed.coregionalisation_.shape == (2, J, J)
    expected = mixed.weights_[:, :1] @ mixed.weights_[:, :1].T
    np.testing.assert_allclose(mixed.coregionalisation_[0], expected)
    assert [Z.shape for Z in mixed.inducing_inputs_] == [(6, 1)] * 2
    assert len(mixed.kernels_) == 2
    assert mixed.n_features_in_ == 1
    assert np.isfinite(mixed.elbo_)
    assert len(mixed.history_) == mixed.n_iter_ + 1
    assert mixed.history_[-1] <= mixed.elbo_, "it has the log density of the hyperparameters"
    assert np.all(np.diff(mixed.history_) >= 0), "the bound never falls"


def test_functions_at_inputs_have_the_promised_shapes(mixed):
    J = len(FUNCTIONS)
    mean, cov = mixed.parameter_functions(new)
    assert (mean.shape, cov.shape) == ((n, J), (n, J, J))
    u, v = mixed.latent_functions(new)
    assert u.shape == v.shape == (n, 2)
    assert {a.dtype for a in (mean, cov, u, v)} == {np.dtype(float)}
    np.testing.assert_allclose(mean, mixed.constants_ + u @ mixed.weights_.T, rtol=1e-9)
    assert np.all(v > 0)


@pytest.mark.parametrize("name", [name for name in ALL if name != "kind"])
def test_every_ordered_output_is_predicted_whole(forecast, name):
    output = forecast[name]
    mean, variance, std = output.mean, output.variance, output.std
    assert mean.shape == variance.shape == std.shape == (n,)
    assert np.isfinite(mean).all()
    assert np.all(variance > 0)
    lower, upper = output.interval(0.9)
    median = output.quantile(0.5)
    assert lower.shape == median.shape == upper.shape == (n,)
    assert np.all(lower <= median)
    assert np.all(median <= upper)
    draws = output.sample(5, seed=3)
    assert draws.shape == (5, n)
    np.testing.assert_array_equal(draws, output.sample(5, seed=3))
    assert np.isfinite(output.log_prob(draws[0])).all()


def test_a_categorical_output_keeps_its_labels(forecast):
    kind = forecast["kind"]
    assert kind.likelihood.classes == ("blue", "green", "red")
    assert kind.probabilities.shape == (n, 3)
    np.testing.assert_allclose(kind.probabilities.sum(axis=1), 1.0)
    draws = kind.sample(5)
    assert set(draws.ravel()) <= {"blue", "green", "red"}
    np.testing.assert_allclose(
        kind.log_prob(["green"] * n), np.log(kind.probabilities[:, 1]), rtol=1e-6
    )
    with pytest.raises(AttributeError, match=r"'kind'.*probabilities"):
        _ = kind.mean


def test_a_yes_no_output_has_two_probabilities(forecast):
    yes = forecast["yes"]
    np.testing.assert_array_equal(yes.probabilities, np.c_[1 - yes.mean, yes.mean])
    with pytest.raises(AttributeError, match=r"'count'.*no classes"):
        _ = forecast["count"].probabilities


def test_quantiles_of_several_levels_are_rows(forecast):
    levels = forecast["real"].quantile([0.05, 0.5, 0.95])
    assert levels.shape == (3, n)
    np.testing.assert_array_equal(levels[1], forecast["real"].quantile(0.5))
    np.testing.assert_allclose(levels[[0, 2]], forecast["real"].interval(0.9))


def test_missing_values_have_no_density(forecast):
    found = forecast["real"].log_prob([nan, None, *np.zeros(n - 2)])
    np.testing.assert_array_equal(np.isnan(found), np.arange(n) < 2)


def test_joint_samples_are_those_of_each_output(forecast):
    draws = forecast.sample(5, seed=3)
    assert list(draws) == list(ALL)
    assert all(draw.shape == (5, n) for draw in draws.values())
    np.testing.assert_array_equal(draws["count"], forecast["count"].sample(5, seed=3))


def test_to_frame_never_overwrites_a_column():
    kind = np.array(["flat", "steep"] * 5)
    Y = {"kind": kind, "kind_flat": kind}
    kinds = {name: hm.Categorical() for name in Y}
    model = hm.HetMOGP(kinds, latents=1, max_iter=0, progress=False).fit(np.arange(10.0), Y)
    with pytest.raises(ValueError, match="'kind_flat' would make a second column 'kind_flat'"):
        model.predict([0.5]).to_frame()


def test_to_frame_keeps_the_index_and_names_every_column(forecast):
    frame = forecast.to_frame(interval=0.9)
    assert list(frame.index) == list(np.arange(n) + 100)
    expected = []
    for name in ALL:
        ordered = [f"{name}_{what}" for what in ("mean", "std", "lower", "upper")]
        kinds = ["kind", "kind_blue", "kind_green", "kind_red"]
        expected += kinds if name == "kind" else ordered
    assert list(frame.columns) == expected
    np.testing.assert_allclose(frame["real_upper"], forecast["real"].quantile(0.95))
    best = forecast["kind"].probabilities.argmax(axis=1)
    assert frame["kind"].tolist() == [["blue", "green", "red"][k] for k in best]


def test_scores_are_means_over_observed_values(mixed):
    table = everything()[:n]
    nlpd = mixed.nlpd(x[:n], table)
    assert list(nlpd) == [*ALL, "global"]
    np.testing.assert_allclose(nlpd["global"], sum(nlpd[name] for name in ALL))
    density = mixed.predict(x[:n])["real"].log_prob(table["real"])
    np.testing.assert_allclose(nlpd["real"], -np.nanmean(density))
    seen = table.notna().sum()
    expected = -sum(nlpd[name] * seen[name] for name in ALL) / seen.sum()
    np.testing.assert_allclose(mixed.score(x[:n], table), expected)


def test_an_unseen_category_is_named_when_scoring(mixed):
    table = everything()
    table.loc[39, "kind"] = "purple"
    with pytest.raises(ValueError, match=r"output 'kind', row 39: 'purple'.*'blue'"):
        mixed.score(x, table)


# -- scikit-learn manners --------------------------------------------------------------------------


def test_the_constructor_stores_its_arguments_untouched():
    likelihoods, kernel, inducing = dict(PAIR), [hm.RBF(), hm.RBF()], np.ones((3, 1))
    model = hm.HetMOGP(likelihoods, kernel=kernel, inducing=inducing)
    assert model.likelihoods is likelihoods
    assert model.kernel is kernel
    assert model.inducing is inducing
    assert model.get_params()["kernel"] is kernel
    assert model.set_params(latents=5).latents == 5


def test_clone_forgets_what_was_learned_and_learns_it_again(pair):
    copy = clone(pair)
    assert not hasattr(copy, "elbo_")
    assert copy.get_params().keys() == pair.get_params().keys()
    same(copy.fit(x, Y), pair)


def test_fit_returns_self_and_leaves_the_arguments_alone(pair):
    assert pair.likelihoods is PAIR
    assert PAIR["height"].free == {"scale": None}
    model = hm.HetMOGP(PAIR, **QUICK, max_iter=0)
    assert model.fit(x, Y) is model


def test_a_pickled_model_predicts_the_same(pair):
    copy = pickle.loads(pickle.dumps(pair))
    same(copy, pair)
    np.testing.assert_array_equal(copy.predict(new)["high"].mean, pair.predict(new)["high"].mean)


def test_cross_validation_takes_an_array_with_nan_and_a_frame():
    model = hm.HetMOGP([hm.Gaussian(), hm.Bernoulli()], **QUICK, max_iter=2)
    table = np.c_[height, high]
    folds = [(np.arange(2, N), [0, 1]), (np.arange(N - 2), [N - 2, N - 1])]
    scores = cross_val_score(model, x[:, None], table, cv=folds)
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()
    frame = pd.DataFrame(table, columns=["y0", "y1"])
    framed = cross_val_score(model, pd.DataFrame({"t": x}), frame, cv=folds)
    np.testing.assert_allclose(framed, scores, rtol=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.predict(x),
        lambda model: model.score(x, Y),
        lambda model: model.nlpd(x, Y),
        lambda model: model.parameter_functions(x),
        lambda model: model.latent_functions(x),
    ],
)
def test_an_unfitted_model_says_so(call):
    with pytest.raises(NotFittedError):
        call(hm.HetMOGP(PAIR))


def test_frames_name_their_inputs_and_may_come_in_any_order():
    X = pd.DataFrame({"a": x, "b": x[::-1] ** 2})
    model = alone(X, max_iter=1)
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["a", "b"]
    X = X[:n]
    swapped = X[["b", "a"]].assign(other="ignored").set_index(np.arange(n) * 10)
    prediction = model.predict(swapped)
    np.testing.assert_array_equal(prediction["height"].mean, model.predict(X)["height"].mean)
    assert list(prediction.to_frame().index) == list(np.arange(n) * 10)
    with pytest.raises(ValueError, match="no column 'b'"):
        model.predict(X[["a"]])


# -- what must not matter --------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_fit_to_the_last_bit(pair):
    same(fitted(), pair)


def test_another_seed_starts_elsewhere(pair):
    assert fitted(seed=1, max_iter=1).history_[0] != pair.history_[0]


def test_the_order_of_outputs_does_not_matter(pair):
    turned = fitted(likelihoods=dict(reversed(PAIR.items())))
    assert turned.output_names_ == ["high", "height"]
    assert turned.parameter_names_ == ["high.probability", "height.mean"]
    np.testing.assert_array_equal(turned.weights_, pair.weights_[::-1])
    same(turned, pair)


def test_inputs_shared_or_repeated_per_output_give_the_same_fit(pair):
    same(fitted(X=[x, x.copy()]), pair)
    same(fitted(X={"high": x.copy(), "height": x}), pair)


def test_nan_rows_and_absent_rows_give_the_same_fit(pair):
    seen = ~np.isnan(high)
    apart = fitted(X=[x, x[seen]], values=[height, high[seen]])
    same(apart, pair, rtol=1e-10)
    gap = np.r_[np.linspace(2.0, 3.0, 5), x]  # rows where nothing was observed
    longer = {name: np.r_[np.full(5, nan), y] for name, y in Y.items()}
    same(fitted(X=gap, values=longer), pair, rtol=1e-10)


def test_the_order_of_rows_hardly_matters(pair):
    order = np.random.default_rng(0).permutation(N)
    turned = fitted(X=x[order], values={name: y[order] for name, y in Y.items()})
    same(turned, pair, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("unit", "offset"), [(1e3, 0.0), (1e-8, 0.0), (1e8, 0.0), (1.0, 1e4)])
def test_units_of_the_inputs_are_the_users(pair, unit, offset):
    model = fitted(X=unit * x + offset)
    same(model, pair, rtol=1e-4, atol=1e-4, Z=new, X=unit * new + offset)
    for mine, theirs in zip(model.kernels_, pair.kernels_, strict=True):
        np.testing.assert_allclose(mine.lengthscale, unit * theirs.lengthscale, rtol=1e-2)
    for mine, theirs in zip(model.inducing_inputs_, pair.inducing_inputs_, strict=True):
        np.testing.assert_allclose(mine, unit * theirs + offset, atol=1e-2 * unit)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_units_of_a_real_output_only_scale_its_prediction(pair, unit):
    model = fitted(values={"height": unit * height, "high": high})
    shift = np.sum(~np.isnan(height)) * np.log(unit)
    np.testing.assert_allclose(model.elbo_ + shift, pair.elbo_, atol=0.05)
    found, expected = model.predict(new), pair.predict(new)
    np.testing.assert_allclose(found["height"].mean / unit, expected["height"].mean, atol=0.05)
    np.testing.assert_allclose(found["high"].mean, expected["high"].mean, atol=0.05)


# -- options ---------------------------------------------------------------------------------------


def test_inducing_inputs_given_and_held_stay_where_they_are():
    Z = np.linspace(0.0, 1.0, 5)[:, None]
    model = alone(inducing=Z, learn_inducing=False, max_iter=2, restarts=1)
    assert model.elbo_ > model.history_[0]
    np.testing.assert_allclose(model.inducing_inputs_[0], Z, atol=1e-12)


def test_inducing_inputs_given_per_latent_are_kept_apart():
    tables = [np.linspace(0.0, 0.5, 4)[:, None], np.linspace(0.5, 1.0, 4)[:, None]]
    model = alone(latents=2, inducing=tables, max_iter=0)
    np.testing.assert_allclose(model.inducing_inputs_, tables, atol=1e-12)


def test_learned_inducing_inputs_move(single):
    start = alone(max_iter=0)
    assert np.abs(single.inducing_inputs_[0] - start.inducing_inputs_[0]).max() > 1e-3


def test_more_inducing_inputs_than_distinct_rows_are_reduced_with_a_warning():
    X = np.repeat([0.0, 0.5, 1.0], [20, 10, 10])
    with pytest.warns(UserWarning, match="inducing=6 is more than the 3 distinct"):
        model = alone(X, max_iter=0)
    assert model.inducing_inputs_[0].shape == (3, 1)
    assert np.isfinite(model.predict(new)["height"].mean).all()


def test_latents_may_differ_in_kernel_and_rank():
    kernels = [hm.RBF(), hm.Matern32() + hm.Linear()]
    model = alone(latents=2, kernel=kernels, rank=[1, 2], max_iter=2)
    assert type(model.kernels_[0]).__name__ == "RBF"
    assert type(model.kernels_[1]).__name__ == "Sum"
    assert model.weights_.shape == (1, 3)
    assert model.latent_functions(new)[0].shape == (n, 3)
    assert model.coregionalisation_.shape == (2, 1, 1)
    W = model.weights_[:, 1:]
    np.testing.assert_allclose(model.coregionalisation_[1], W @ W.T)
    assert model.history_[-1] > model.history_[0]


def test_restarts_keep_the_best_bound():
    several = alone(restarts=3)
    assert several.elbo_ >= alone(restarts=1).elbo_ - 0.05
    assert several.converged_


def test_plain_gradients_reach_the_bound_of_natural_ones(single):
    plain = alone(natural_gradients=False)
    assert plain.converged_
    assert abs(plain.elbo_ - single.elbo_) < 1.0


def test_single_precision_agrees_with_double(single):
    model = alone(dtype="float32")
    found, expected = model.predict(new)["height"], single.predict(new)["height"]
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-2)
    np.testing.assert_allclose(found.std, expected.std, atol=1e-2)
    assert abs(model.elbo_ - single.elbo_) < 0.1


def test_independent_shares_nothing():
    model = hm.independent(PAIR, **QUICK, max_iter=0).fit(x, Y)
    assert model.prior == "independent"
    np.testing.assert_array_equal(model.weights_ - np.diag(np.diag(model.weights_)), 0.0)
    _, cov = model.parameter_functions(new)
    np.testing.assert_array_equal(cov[:, 0, 1], 0.0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("method", "em"),
        ("latents", 0),
        ("latents", 2.5),
        ("rank", 0),
        ("rank", [1, 2, 3]),
        ("kernel", [hm.RBF()]),
        ("inducing", 0),
        ("inducing", 2.5),
        ("inducing", np.ones((3, 2))),
        ("inducing", [np.ones((3, 1))] * 3),
        ("inducing", []),
        ("batch_size", 0),
        ("max_iter", -1),
        ("restarts", 0),
        ("tol", -1.0),
        ("weight_scale", 0.0),
        ("weight_scale", np.inf),
        ("dtype", "float16"),
        ("bound", "exact"),
        ("q", "exact"),
        ("optimizer", "sgd"),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(ValueError, match=option):
        fitted(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("kernel", hm.RBF),
        ("kernel", "rbf"),
        ("rank", 1.5),
        ("tol", "small"),
        ("weight_scale", True),
        ("seed", None),
    ],
)
def test_options_of_the_wrong_kind_are_named(option, value):
    with pytest.raises((TypeError, ValueError), match=option) as caught:
        fitted(**{option: value})
    assert "'r'" not in str(caught.value), "a string was taken for a list"


def test_options_are_the_constructors_arguments_with_their_defaults():
    arguments = dict(inspect.signature(hm.HetMOGP).parameters)
    arguments.pop("likelihoods")
    assert Options().items() == {name: one.default for name, one in arguments.items()}


# -- mini-batches ----------------------------------------------------------------------------------

SVI = {"method": "svi", "batch_size": 16, "max_iter": 300}


@pytest.fixture(scope="module")
def stochastic():
    return fitted(**SVI)


def test_svi_improves_the_bound_and_nears_the_full_batch_fit(stochastic, pair):
    assert stochastic.method_ == "svi"
    assert stochastic.history_[-1] > stochastic.history_[0]
    assert stochastic.elbo_ > fitted(**{**SVI, "max_iter": 1}).elbo_ + 1.0
    assert stochastic.elbo_ < pair.elbo_ + 1.0
    assert stochastic.elbo_ > pair.elbo_ - 10.0
    assert np.isfinite(stochastic.score(x, Y))


def test_svi_repeats_itself_to_the_last_bit(stochastic):
    same(fitted(**SVI), stochastic)


@pytest.mark.parametrize(
    "options", [{"optimizer": "adadelta"}, {"natural_gradients": False}], ids=["adadelta", "plain"]
)
def test_the_papers_way_runs_and_improves(options):
    model = alone(**SVI, **options)
    assert len(model.history_) > 1
    assert model.history_[-1] > model.history_[0]


WAYS = list(
    itertools.product(["coupled", "factorised"], ["joint", "factorised"], ["vem", "svi"], [1, 0])
)
IN_SHORT = [
    ("coupled", "joint", "svi", 1),
    ("coupled", "factorised", "vem", 1),
    ("coupled", "joint", "vem", 0),
]


@pytest.mark.parametrize(
    ("q", "bound", "method", "natural"),
    [*IN_SHORT, *(pytest.param(*w, marks=pytest.mark.slow) for w in WAYS if w not in IN_SHORT)],
)
def test_every_way_to_fit_works(q, bound, method, natural):
    """The size of q says which it is; each gives predictions and a bound that rises."""
    model = hm.HetMOGP(
        *({"h": hm.HetGaussian()},),
        **{"latents": 2, "inducing": 3, "q": q, "bound": bound, "method": method},
        **{"natural_gradients": bool(natural), "max_iter": 2, "batch_size": 16, "progress": False},
    ).fit(x, height)
    assert model.fitted.posterior.q.mean.shape == ((1, 6) if q == "coupled" else (2, 3))
    assert model.n_iter_ == 2
    assert np.isfinite(model.elbo_)
    if method == "vem":
        assert model.elbo_ > model.history_[0]
    _, cov = model.parameter_functions(new)
    assert np.linalg.eigvalsh(cov).min() > -1e-12
    assert np.isfinite(model.score(new, height[:n]))


def test_a_step_that_would_couple_too_much_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr("hetmogp.fitting.options.LARGEST_COUPLED", 11)
    with pytest.raises(ValueError, match=r'q="coupled".*12 rows.*2 latents with 6.*factorised'):
        fitted(q="coupled", **SVI)
    assert fitted(q="coupled", max_iter=0).method_ == "vem"  # which factorises once a round


def test_svi_takes_different_inputs_per_output():
    seen = ~np.isnan(high)
    model = fitted(X=[x, x[seen] + 0.01], values=[height, high[seen]], **{**SVI, "max_iter": 50})
    assert np.isfinite(model.elbo_)
    assert np.isfinite(model.predict(new)["high"].mean).all()


def test_a_full_batch_asked_for_by_name_is_not_refused_for_its_size(monkeypatch):
    monkeypatch.setattr("hetmogp.fitting.ready.LARGEST_VEM_ROWS", 1)
    assert alone(max_iter=0).method_ == "vem"


def test_large_data_take_mini_batches_by_themselves(monkeypatch):
    monkeypatch.setattr("hetmogp.fitting.ready.LARGEST_VEM_COST", 1.0)
    assert fitted(**{**SVI, "method": "auto", "max_iter": 1}).method_ == "svi"


# -- interruption and surroundings -----------------------------------------------------------------


def interrupt_second(function):
    calls: list[None] = []

    def interrupted(*arguments, **options):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return interrupted


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_an_interrupted_fit_is_usable(monkeypatch):
    monkeypatch.setattr(vem, "ITERATIONS", 3)
    monkeypatch.setattr(vem, "step", interrupt_second(vem.step))
    with pytest.warns(RuntimeWarning, match="interrupted after 1 iteration"):
        model = fitted(restarts=1)
    assert not model.converged_
    assert model.n_iter_ == 1
    assert model.elbo_ >= model.history_[-1], "which has the log density of the hyperparameters"
    assert np.isfinite(model.predict(new)["height"].mean).all()


def test_a_fit_interrupted_while_starts_compete_is_usable_and_warns_once(monkeypatch):
    """Whoever pressed Ctrl-C need not be told to raise max_iter."""
    monkeypatch.setattr(vem, "step", interrupt_second(vem.step))
    with pytest.warns(RuntimeWarning) as caught:
        model = fitted()
    assert len(caught) == 1
    assert model.n_iter_ == 0
    assert np.isfinite(model.predict(new)["height"].mean).all()


def test_an_interrupted_stochastic_fit_is_usable(monkeypatch):
    monkeypatch.setattr(svi, "chunk", interrupt_second(svi.chunk))
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = fitted(**SVI)
    assert not model.converged_
    assert 0 < model.n_iter_ < SVI["max_iter"]
    assert np.isfinite(model.score(x[::5], {name: y[::5] for name, y in Y.items()}))


def test_an_interrupt_while_the_final_bound_is_computed_keeps_the_fit(monkeypatch):
    """The last window of steps says what the bound is."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(mini_batches.Run, "final_bound", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted after 2 iterations"):
        model = fitted(**{**SVI, "max_iter": 2})
    assert model.interrupted_
    assert model.elbo_ == model.history_[-1]
    assert np.isfinite(model.predict(new)["height"].mean).all()


def test_threads_and_precision_are_as_they_were():
    def surroundings():
        threads = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
        return threads, jax.config.read("jax_enable_x64")

    before = surroundings()
    assert before[1] is False, "importing hetmogp changed the precision"
    model = alone(max_iter=1)
    assert surroundings() == before
    model.predict(new)["height"].interval()
    assert surroundings() == before


# -- data that is hard on it -----------------------------------------------------------------------


def usable(model, X, values):
    """Everything a user would look at is finite and in order."""
    assert np.isfinite(model.elbo_)
    X, values = X[::5], {name: y[::5] for name, y in values.items()}
    prediction = model.predict(X)
    for output in prediction.values():
        assert np.isfinite(output.mean).all()
        assert np.isfinite(output.std).all()
        lower, upper = output.interval()
        assert np.isfinite([lower, upper]).all()
        assert np.all(lower <= upper)
    assert np.isfinite(list(model.nlpd(X, values).values())).all()
    return model


def test_duplicate_inputs_are_fine():
    X = np.repeat(np.linspace(0.0, 1.0, 8), 5)
    model = usable(alone(X), X, {"height": height})
    groups = height.reshape(8, 5).mean(axis=1)
    assert np.corrcoef(model.predict(X[::5])["height"].mean, groups)[0, 1] > 0.8


def test_a_constant_column_changes_nothing():
    X = np.c_[x, np.full(N, 7.0)]
    model = usable(alone(X), X, {"height": height})
    other = alone()
    X = X[::5]
    np.testing.assert_allclose(
        model.predict(X)["height"].mean, other.predict(x[::5])["height"].mean, atol=0.05
    )


def test_only_one_distinct_input_is_fine():
    X = np.full(N, 3.0)
    with pytest.warns(UserWarning, match="distinct"):
        model = alone(X)
    usable(model, X, {"height": height})
    np.testing.assert_allclose(model.predict([3.0])["height"].mean, height.mean(), atol=0.05)
    np.testing.assert_allclose(model.predict([3.0])["height"].std, height.std(), rtol=0.1)


@pytest.mark.filterwarnings("ignore:.*it has one value only")
def test_outputs_of_one_row_are_fine():
    short = {"height": np.where(np.arange(N) == 20, height, nan), "high": high}
    usable(fitted(values=short), x, short)


@pytest.mark.filterwarnings("ignore:.*it has one value only")
def test_a_single_row_of_data_is_fine():
    with pytest.warns(UserWarning, match="distinct"):
        model = fitted(X=[0.5], values={"height": [1.7], "high": [1.0]})
    usable(model, [0.5], {"height": [1.7], "high": [1.0]})


@pytest.mark.filterwarnings("ignore:.*it has one value only")
@pytest.mark.parametrize("level", [0.0, 1.0, 1e8])
def test_a_constant_real_output_is_fine(level):
    constant = np.full(N, level)
    model = usable(alone(y=constant), x, {"height": constant})
    found = model.predict(x[::5])["height"].mean
    np.testing.assert_allclose(found, level, atol=1e-2, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:.*it has one value only")
def test_a_yes_no_output_that_is_always_yes_is_fine():
    always = {"height": height, "high": np.ones(N)}
    model = usable(fitted(values=always), x, always)
    assert np.all(model.predict(x[::5])["high"].mean > 0.9)


@pytest.mark.parametrize("unit_x", [1e-8, 1e8])
@pytest.mark.parametrize("unit_y", [1e-8, 1e8])
def test_extreme_units_together_are_fine(unit_x, unit_y):
    values = {"height": unit_y * height, "high": high}
    usable(fitted(X=unit_x * x, values=values), unit_x * x, values)


def test_a_large_offset_is_fine(pair):
    values = {"height": height + 1e8, "high": high}
    model = usable(fitted(X=x + 1e6, values=values), x + 1e6, values)
    np.testing.assert_allclose(
        model.predict(new + 1e6)["height"].mean - 1e8, pair.predict(new)["height"].mean, atol=0.01
    )


COUNTS = {"count": hm.Poisson(), "wait": hm.Exponential()}


def counts_and_waits(scale):
    rng = np.random.default_rng(2)
    return {
        "count": rng.poisson(max(scale, 1.0) * np.exp(1 + f)).astype(float),
        "wait": scale * rng.exponential(np.exp(f)),
    }


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_counts_and_waiting_times_of_any_size_are_fine(scale):
    values = counts_and_waits(scale)
    model = fitted(values=values, likelihoods=COUNTS)
    assert np.isfinite(model.elbo_)
    few = {name: y[::5] for name, y in values.items()}
    assert np.isfinite(list(model.nlpd(x[::5], few).values())).all()
    prediction = model.predict(x[::5])
    count, wait = prediction["count"], prediction["wait"]
    assert np.all(count.variance >= count.mean)
    assert np.corrcoef(np.log(count.mean), f[::5])[0, 1] > 0.8
    assert 0.2 * scale < np.median(wait.mean) < 5.0 * scale


@pytest.mark.filterwarnings("ignore:.*it has one value only")
def test_counts_of_zero_alone_are_fine():
    values = {**counts_and_waits(1.0), "count": np.zeros(N)}
    usable(fitted(values=values, likelihoods=COUNTS), x, values)


def test_one_huge_count_is_fine():
    values = counts_and_waits(1.0)
    values["count"][5] = 1e6
    model = fitted(values=values, likelihoods=COUNTS)
    assert np.all(model.predict(x[::5])["count"].variance >= 0)
    few = {name: y[::5] for name, y in values.items()}
    assert np.isfinite(list(model.nlpd(x[::5], few).values())).all()


def test_nothing_to_predict_gives_nothing(pair):
    assert pair.predict(np.empty((0, 1)))["height"].mean.shape == (0,)


def test_density_where_everything_is_missing_is_missing(pair):
    assert np.isnan(pair.predict(new)["height"].log_prob([nan] * n)).all()


@pytest.mark.filterwarnings("ignore:.*it has one value only")
def test_one_value_says_little_about_its_noise():
    """A Gaussian output seen once, beside one seen often, is not predicted with false precision."""
    x = np.linspace(0.0, 1.0, 30)
    model = hm.HetMOGP({"g": hm.Gaussian(), "b": hm.Bernoulli()}, **QUICK)
    model.fit({"g": np.array([0.5]), "b": x}, {"g": [3.0], "b": (x > 0.5).astype(float)})
    assert model.predict(x)["g"].std.min() > 0.1
