"""A model beside its baselines, against closed forms, refits and simulated truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hetmogp as hm
from hetmogp import baselines, holdout, marginal
from hetmogp.fitting import sharing
from hetmogp.session import session

N = 120
rng = np.random.default_rng(5)
t = np.sort(rng.uniform(0.0, 1.0, N))
f = np.sin(9.0 * t)
Y = pd.DataFrame(
    {
        "height": f + 0.3 * rng.standard_normal(N),
        "count": rng.poisson(np.exp(f)).astype(float),
        "noise": rng.standard_normal(N),
    }
)
Y.loc[::7, "count"] = np.nan
LIKELIHOODS = {"height": hm.Gaussian(), "count": hm.Poisson(), "noise": hm.Gaussian()}
train = np.arange(N) % 2 == 0


def rows(keep):
    return pd.DataFrame({"t": t[keep]}), Y[keep].reset_index(drop=True)


@pytest.fixture(scope="module")
def model():
    return hm.HetMOGP(LIKELIHOODS, progress=False).fit(*rows(train))


def test_constants_are_the_most_likely_ones():
    """A normal, a Poisson rate with exposures, a binary share and weights, in closed form."""
    y, people = rng.standard_normal(50) * 3e4 + 1e6, rng.uniform(1.0, 9.0, 50)
    weight, yes = rng.uniform(0.0, 2.0, 50), (rng.uniform(size=50) < 0.3) * 1.0
    cases = rng.poisson(0.7 * people).astype(float)
    one = np.ones(50)
    with session():
        normal = marginal.most_likely(hm.HetGaussian(), y, one, {})
        rate = marginal.most_likely(hm.Poisson(exposure="people"), cases, one, {"exposure": people})
        odds = marginal.most_likely(hm.Bernoulli(), yes, weight, {})
        densities = marginal.log_densities(hm.HetGaussian(), normal, y, {})
    np.testing.assert_allclose(normal, [y.mean(), np.log(y.var())], rtol=1e-4)
    np.testing.assert_allclose(np.exp(rate), cases.sum() / people.sum(), rtol=1e-4)
    share = (weight * yes).sum() / weight.sum()
    np.testing.assert_allclose(odds, np.log(share / (1.0 - share)), rtol=1e-3)
    expected = stats.norm(normal[0], np.exp(normal[1] / 2)).logpdf(y)
    np.testing.assert_allclose(densities, expected, rtol=1e-9)


def test_values_that_are_all_the_same_have_finite_constants():
    with session():
        for likelihood, value in ((hm.Gaussian(), 3.0), (hm.Poisson(), 0.0), (hm.Bernoulli(), 1.0)):
            theta = marginal.most_likely(likelihood, np.full(9, value), np.ones(9), {})
            assert np.isfinite(theta).all()
            assert np.isfinite(
                marginal.log_densities(likelihood, theta, np.array([value]), {})
            ).all()


@pytest.mark.parametrize("likelihood", [hm.HetGaussian(), hm.Poisson(), hm.NegativeBinomial()])
def test_constants_of_the_other_values_against_refits(likelihood):
    y = np.random.default_rng(1).poisson(4.0, 40).astype(float)
    y = y + 0.1 if likelihood.outcome == "real" else y
    one = np.ones(40)
    with session():
        theta = marginal.most_likely(likelihood, y, one, {})
        found = marginal.left_out(likelihood, theta, y, one, {})
        again = np.array(
            [
                marginal.log_densities(
                    likelihood,
                    marginal.most_likely(likelihood, np.delete(y, k), one[1:], {}),
                    *(y[k : k + 1], {}),
                )[0]
                for k in range(40)
            ]
        )
        inside = marginal.log_densities(likelihood, theta, y, {})
    assert found.mean() == pytest.approx(again.mean(), abs=0.1 * (inside - again).mean() + 1e-3)


def test_leaving_values_out_does_not_depend_on_their_unit():
    y, one = np.random.default_rng(1).normal(size=20), np.ones(20)
    losses = []
    for unit in (1.0, 1e3):
        with session():
            theta = marginal.most_likely(hm.Gaussian(), unit * y, one, {})
            inside = marginal.log_densities(hm.Gaussian(), theta, unit * y, {})
            losses.append(inside - marginal.left_out(hm.Gaussian(), theta, unit * y, one, {}))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


def test_rows_of_different_tables_are_never_one_cluster():
    rows = {"a": np.arange(5), "b": np.arange(3), "c": np.arange(10)}
    found = baselines.clusters(rows, {"a": 1, "b": 2, "c": 1})
    np.testing.assert_array_equal(found["a"], found["c"][:5])
    assert not set(found["b"]) & {*found["a"], *found["c"]}


def test_a_score_that_is_infinite_is_kept_as_unknown():
    table = baselines.tabulate(["a"], {"joint": {"a": np.array([-np.inf])}}, {"a": np.zeros(1)})
    assert table.loc["a", "joint"] == np.inf
    assert set(baselines.kept(table, "").table["a"][1:]) == {None}


def test_scores_are_those_of_the_models(model):
    X, held = rows(~train)
    found = model.compare_baselines(X, held)
    assert list(found.columns) == list(baselines.COLUMNS)
    for kind, of in (("joint", model), ("alone", model.alone_)):
        expected = of.nlpd(X, held)
        assert found[kind].to_dict() == pytest.approx(expected)
    seen = Y["count"][train].dropna()
    counts = held["count"].dropna()
    expected = -stats.poisson(seen.mean()).logpmf(counts).mean()
    assert found.loc["count", "constant"] == pytest.approx(expected, rel=1e-4)
    assert found.loc["count", "values"] == len(counts)
    np.testing.assert_allclose(found["over_constant"], found["constant"] - found["joint"])
    np.testing.assert_allclose(found["over_alone"], found["alone"] - found["joint"])
    gain = model.fitted.log_densities(X, held)["height"] - stats.norm(
        Y["height"][train].mean(), Y["height"][train].std(ddof=0)
    ).logpdf(held["height"])
    assert found.loc["height", "over_constant_se"] == pytest.approx(stats.sem(gain), rel=1e-3)


def test_what_beats_its_constant_and_what_does_not(model):
    """Gains of known mean and error: clear, unclear, clear but tiny, and none."""
    wave = np.tile([-1.0, 1.0], 50)
    gains = {
        "clear": 0.5 + wave,
        "unclear": 0.1 + wave,
        "tiny": 0.003 + 1e-3 * wave,
        "none": -0.5 + wave,
    }
    groups = {name: np.arange(100) for name in gains}
    zero = {name: np.zeros(100) for name in gains}
    found = baselines.tabulate(list(gains), {"joint": gains, "constant": zero}, groups)
    assert found.loc["clear", "over_constant_se"] == pytest.approx(stats.sem(wave))
    unclear, tiny, none = baselines.doubts(found)
    assert unclear.startswith("Output unclear does not clearly beat a constant: +0.100 ± 0.101")
    assert tiny.startswith("Output tiny beats a constant by too little to matter: +0.003")
    assert none.startswith("Output none is predicted worse than by a constant: -0.500 ± 0.101")
    found = model.compare_baselines(*rows(~train))
    assert found.loc["height", "over_constant"] > 0.5
    assert not any("height" in words for words in baselines.doubts(found))
    assert baselines.missing(model.fitted) == []


def test_standard_errors_count_groups_once():
    """Against the spread of the mean over many simulated tables."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 5)
    means: list[float] = []
    plain: list[float] = []
    grouped: list[float] = []
    both: list[float] = []
    for _ in range(300):
        gain = (generator.standard_normal(30) + 0.3)[groups] + 0.2 * generator.standard_normal(150)
        means.append(gain.mean())
        zero = {"a": np.zeros(150)}
        for by, errors in ((np.arange(150), plain), (groups, grouped)):
            table = baselines.tabulate(["a"], {"joint": {"a": gain}, "alone": zero}, {"a": by})
            errors.append(table["over_alone_se"]["a"])
        # The same gains for two outputs: their sum is as uncertain as twice one of them.
        two = {"a": gain, "b": gain}, {"a": np.zeros(150), "b": np.zeros(150)}
        table = baselines.tabulate(
            *(["a", "b"], dict(zip(("joint", "alone"), two, strict=True))),
            {"a": groups, "b": groups},
        )
        both.append(table["over_alone_se"]["global"])
    assert np.mean(grouped) == pytest.approx(np.std(means), rel=0.1)
    assert np.mean(plain) < 0.6 * np.std(means)
    np.testing.assert_allclose(np.array(both), 2.0 * np.array(grouped))


def test_groups_of_rows_come_from_labels(model):
    X, held = rows(~train)
    one = model.compare_baselines(X, held, by=np.arange(len(X)))
    pd.testing.assert_frame_equal(one, model.compare_baselines(X, held))
    few = model.compare_baselines(X, held, by=np.arange(len(X)) // 10)
    assert few.loc["height", "over_constant"] == one.loc["height", "over_constant"]
    assert few.loc["height", "over_constant_se"] != one.loc["height", "over_constant_se"]
    with pytest.raises(ValueError, match="by has 3 labels"):
        model.compare_baselines(X, held, by=["a", "b", "c"])


def test_what_is_not_known_is_said(model, tmp_path):
    few = hm.HetMOGP(LIKELIHOODS, latents=1, max_iter=1, progress=False).fit(*rows(train))
    found = few.compare_baselines(*rows(~train))
    assert found["alone"].isna().all()
    assert found["constant"].notna().all()
    (words,) = baselines.missing(few.fitted)
    assert "alone" in words
    apart = hm.independent(LIKELIHOODS, max_iter=1, progress=False).fit(*rows(train))
    assert (apart.compare_baselines(*rows(~train))["over_alone"] == 0.0).all()


def test_a_file_keeps_the_constants(model, tmp_path):
    model.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp").compare_baselines(*rows(~train))
    pd.testing.assert_frame_equal(again, model.compare_baselines(*rows(~train)))


def test_a_model_remembers_which_rows_were_held_out(tmp_path):
    X = pd.DataFrame({"t": t, "day": pd.date_range("2020-01-01", periods=N)})
    some = Y.where(pd.Series(train), axis=0)
    model = hm.HetMOGP(LIKELIHOODS, latents=1, max_iter=0, progress=False).fit(X, some)
    assert model.held_out(X) is None
    model.mark_held_out(X, ~train, "every other row")
    model.save(tmp_path / "m.hetmogp")
    again = hm.load(tmp_path / "m.hetmogp")
    X.astype({"day": str}).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(again.held_out(pd.read_csv(tmp_path / "x.csv")), ~train)
    assert again.fitted.record.held_out.how == "every other row"
    assert again.held_out(X.iloc[::-1]) is None  # the same rows in another order
    assert again.held_out(X.iloc[1:]) is None
    with pytest.raises(ValueError, match="120 values True or False"):
        model.mark_held_out(X, [1, 2, 3])


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_held_out_whole(seed):
    labels = pd.Series(np.repeat(list("abcdefghij"), np.arange(1, 11)), name="site")
    held = holdout.in_groups(labels, 0.3, seed)
    assert 0.1 < held.mean() < 0.5
    assert labels.groupby(labels).apply(lambda one: held[one.index].std() == 0).all()
    with pytest.raises(ValueError, match="'site' has 1 group;"):
        holdout.in_groups(labels[:1], 0.3, seed)


def test_what_sharing_is_worth_is_said_in_words_that_fit(model):
    rows = {"over_constant": 1.0, "over_constant_se": 0.1, "over_alone": 0.0, "over_alone_se": 0.0}
    assert baselines._over_alone(rows, True) == "; sharing makes no difference"
    assert baselines._over_alone(rows, False) == "; it shares nothing"
    rows |= {"over_alone": 0.0049, "over_alone_se": 0.001}
    assert "too small to matter (+0.005 ± 0.001)" in baselines._over_alone(rows, True)
    rows |= {"over_constant": 0.0049, "over_constant_se": 0.001}
    said = baselines._over_constant("a", "average", rows)
    assert str(said).endswith(", too little to matter")


def test_an_output_without_spread_beats_nothing():
    Y = {"wave": np.sin(9.0 * t), "flat": np.full(N, 5.0)}
    model = hm.HetMOGP(dict.fromkeys(Y, hm.Gaussian()), latents=1, max_iter=3, progress=False)
    with pytest.warns(UserWarning, match="output 'flat': it has one value only, 5: there is noth"):
        model.fit(t, Y)
    model.leave_one_out(t, Y)
    said = model.summary().sentences
    assert said["flat"] == "flat does not depend on the inputs, as far as the data show"
    assert said["wave"].startswith("wave beats its average by")


def test_an_interrupt_while_latents_are_chosen_decides_nothing(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sharing.Chooser, "_joint_that_pays", stop)
    model = hm.HetMOGP({name: hm.Gaussian() for name in "ab"}, progress=False)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model.fit(t[:20], {"a": t[:20], "b": f[:20]})
    summary = model.summary()
    assert summary.decision == "interrupted before sharing was tried: the outputs share nothing"
    assert summary.gains is None
    assert summary.shared is None
    assert "sharing" not in " ".join(summary.sentences.values())
