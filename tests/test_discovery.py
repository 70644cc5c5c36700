"""Finding likelihoods: what columns admit, how candidates are judged, and small whole runs."""

import json
import os
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import hetmogp as hm
from hetmogp import discovery
from hetmogp.cli import app
from hetmogp.discovery import no_better_than_constants, propose
from hetmogp.proposals import codes, together
from hetmogp.session import session

rng = np.random.default_rng(0)
N = 400
DATA = os.environ.get("HETMOGP_DATA")


def names(column):
    return [type(candidate).__name__ for candidate in propose(column).candidates]


REAL = ["Gaussian", "HetGaussian", "StudentT", "HetStudentT"]
COUNTS = ["Poisson", "NegativeBinomial"]
INFLATED = ["ZeroInflatedPoisson", "ZeroInflatedNegativeBinomial", "Hurdle"]
POSITIVE = ["Exponential", "LogNormal", "Gamma", "Weibull", "LogLogistic"]


RAIN = np.round(rng.gamma(0.8, 6.0, N), 1) + 0.1


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([0, 1, 1, 0, None], ["Bernoulli"]),
        ([True, False, True], ["Bernoulli"]),
        (["yes", "No", None, "YES"] * 5, ["Bernoulli"]),
        (["yes", "no", "perhaps"] * 5, ["Categorical"]),
        ([1, 2, 2, 1], ["Categorical"]),
        (["a", "b", None, "c"] * 5, ["Categorical"]),
        (pd.Categorical([1, 2, 3] * 5), ["Categorical"]),
        (pd.Categorical(["lo", "hi"] * 5, ["lo", "hi"], ordered=True), ["Ordinal"]),
        (rng.poisson(9.0, N) + 1, COUNTS),
        (rng.poisson(4.0, N), COUNTS + INFLATED),
        (rng.integers(1, 6, N), [*COUNTS, "Binomial", "Ordinal", "Categorical"]),
        (rng.normal(size=N), REAL),
        (300 + rng.normal(size=N), REAL),
        (rng.lognormal(size=N), POSITIVE),
        (rng.gamma(10.0, size=N), ["Gaussian", "HetGaussian", *POSITIVE[1:]]),
        (np.append(rng.lognormal(size=N), 0.0), ["Exponential", *REAL]),
        (rng.beta(2, 2, N), ["LogitNormal", "Beta"]),
        (np.append(rng.beta(2, 2, N), 1.0), ["ZeroOneInflatedBeta"]),
        (rng.uniform(-np.pi, np.pi, N), ["VonMises", *REAL]),
        (rng.integers(0, 10**6, N), [*POSITIVE]),
        ([np.nan] * 5, []),
        ([3.0] * 5, []),
        (["x"] * 5, []),
        ([f"id{i}" for i in range(200)], []),
        (pd.date_range("2020-01-01", periods=9), []),
        ([1.0, np.inf, 2.0], []),
        ([[1], [2], [3]], []),
        ([1j, 2j], []),
        ([date(2020, 1, 1)] * 3 + [date(2020, 1, 2)] * 3, []),
        (np.arange(100), []),
        (np.where(rng.uniform(size=N) < 0.57, 0.0, RAIN), ["Hurdle"] * 3),
        (np.round(rng.gamma(2.0, 1.0, N), 1), POSITIVE),  # rounded: 0.0 is no heap
        (25 * rng.integers(110, 250, N), ["Gaussian", "HetGaussian", *POSITIVE[1:]]),
        (rng.integers(18, 90, N), [*COUNTS, "Gaussian", "HetGaussian", *POSITIVE[1:]]),
        (["2020-01-01", "2020-01-02T03:04", None, "2021-05-06"] * 9, []),
    ],
)
def test_what_a_column_admits(column, expected):
    assert names(column) == expected


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([np.nan, None], "no observed value"),
        ([2.0, 2.0], "one value only, 2"),
        (pd.date_range("2020-01-01", periods=9), "dates or times, which are inputs"),
        (np.append(rng.beta(2, 2, 99), 1.0), "1.0% of them at an end"),
        (np.append(rng.normal(size=90), [-3.5] * 10), "10.0% of them exactly -3.5"),
        (rng.standard_t(1.5, 500), "long tails"),
        (rng.poisson(1.0, 500), "of them zero"),
        (np.round(rng.normal(size=500), 1), "rounded to 0.1"),
        (["2020-01-01", "2020-01-02"] * 9, "dates in text"),
        (["TRUE", "false"] * 9, "yes and no"),
        (np.maximum(rng.normal(size=500), -0.5), "as a limit would make (say lower="),
    ],
)
def test_what_was_seen_is_said(column, words):
    assert words in propose(column).seen


def test_every_candidate_accepts_its_column():
    for make in (
        lambda: rng.poisson(2.0, N),
        lambda: rng.integers(0, 5, N),
        lambda: rng.normal(size=N),
        lambda: rng.lognormal(size=N),
        lambda: rng.beta(2, 2, N),
        lambda: rng.uniform(-3.1, 3.1, N),
        lambda: np.r_[rng.beta(2, 2, N), 0.0, 1.0],
    ):
        column = make().astype(float)
        for candidate in propose(column).candidates:
            _, numbers = candidate.observe(column)
            assert candidate.valid(numbers).all(), candidate


def test_what_a_name_says():
    codes = rng.permutation(10_000)[:200]
    assert propose(codes, "patient_id").candidates == ()
    assert "identifiers" in propose(codes, "patient_id").seen
    assert "identifiers" in propose([f"a{i}" for i in codes], "id").seen
    assert propose(codes, "income").candidates != ()


def test_rounding_is_part_of_the_comparison_and_where_wide_of_the_recommendation():
    fine, wide = np.round(rng.normal(size=N), 1), np.round(rng.normal(size=N))
    assert propose(fine).step == 0.1
    assert repr(propose(fine).candidates[0]) == "Gaussian()"
    assert repr(propose(wide).candidates[0]) == "Gaussian(step=1)"
    assert propose(rng.normal(size=N)).step is None


def test_columns_that_belong_together_are_said_and_not_used():
    wet, n = rng.integers(0, 2, 60), rng.integers(1, 30, 60)
    frame = {
        "wet": pd.Series(wet),
        "amount": pd.Series(np.where(wet == 1, rng.gamma(2.0, size=60), np.nan)),
        "treated": pd.Series(n),
        "cured": pd.Series(rng.binomial(n, 0.8)),
        "days": pd.Series(rng.weibull(1.5, 60)),
        "died": pd.Series(rng.integers(0, 2, 60)),
    }
    said = together(frame)
    assert any("'amount' is missing exactly where 'wet' is 0" in one for one in said)
    assert any("Binomial(trials='treated')" in one and "'cured'" in one for one in said)
    assert any("Weibull(event='died')" in one and "'days'" in one for one in said)
    assert len(said) == 3


# -- judging ---------------------------------------------------------------------------------------


def judge(seen="some numbers", **scores):
    candidates = [getattr(hm, name)() for name in scores]
    return discovery._judge(discovery.Proposal(seen, tuple(candidates)), list(scores.values()))


def test_the_best_is_recommended_and_the_reason_said():
    best, rows = judge(Gaussian=np.full(50, -2.0), HetGaussian=np.full(50, -1.5))
    assert isinstance(best, hm.HetGaussian)
    assert [row["likelihood"] for row in rows] == ["HetGaussian()", "Gaussian()"]
    assert rows[0]["recommended"]
    assert "0.500 more than Gaussian()" in rows[0]["reason"]


def test_a_simpler_one_as_good_is_preferred():
    noise = rng.normal(size=500)
    best, rows = judge(Gaussian=noise, HetGaussian=noise + 0.004 + 0.1 * rng.normal(size=500))
    assert isinstance(best, hm.Gaussian)
    reason = next(row["reason"] for row in rows if row["recommended"])
    assert "as good as HetGaussian() and simpler" in reason
    best, _ = judge(Gaussian=noise, HetGaussian=noise + 0.02)
    assert isinstance(best, hm.HetGaussian)


def test_the_simpler_within_two_standard_errors():
    noise, gap = rng.normal(size=400), 0.009 + np.tile([-0.4, 0.4], 200)
    best, _ = judge(Gaussian=noise, HetGaussian=noise + gap)
    assert isinstance(best, hm.Gaussian)


def test_a_positive_column_prefers_a_positive_family_unless_the_difference_is_clear():
    noise = rng.normal(size=400)
    close = noise + 0.01 + np.tile([-0.3, 0.3], 200)
    best, _ = judge("positive numbers", Gaussian=close, Gamma=noise)
    assert isinstance(best, hm.Gamma)
    best, _ = judge("positive numbers", Gaussian=close + 0.3, Gamma=noise)
    assert isinstance(best, hm.Gaussian)


def test_what_cannot_be_fitted_is_not_recommended():
    best, rows = judge(Gaussian=None, HetGaussian=np.zeros(9))
    assert isinstance(best, hm.HetGaussian)
    assert len(rows) == 1
    best, rows = judge(Gaussian=None, HetGaussian=None)
    assert isinstance(best, hm.Gaussian)
    assert "to compare candidates" in rows[0]["reason"]


# -- whole runs ------------------------------------------------------------------------------------

x = rng.uniform(0.0, 1.0, 300)


@pytest.fixture(scope="module")
def counted():
    y = rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(2 + np.sin(6 * x)))) + 1.0
    return hm.discover(x, {"n": y, "on": (x > 0.5).astype(int), "none": [np.nan] * 300})


def test_discover_finds_overdispersion(counted):
    assert isinstance(counted["n"], hm.NegativeBinomial)
    table = counted.table[counted.table["output"] == "n"].set_index("likelihood")
    assert table.loc["Poisson()", "behind"] > 0.1
    assert table.loc["NegativeBinomial()", "recommended"]
    assert np.isfinite(table["log_density"]).all()


def test_what_needs_no_choice_is_not_fitted(counted):
    assert repr(counted["on"]) == "Bernoulli()"
    assert counted.left_out == {"none": "no observed value"}
    assert list(counted) == ["n", "on"]
    text = repr(counted)
    assert "none: no observed value" in text
    assert "n: whole numbers from 1" in text
    assert "<table" in counted._repr_html_()


def test_auto_leaves_out_what_is_empty():
    Y = pd.DataFrame({"on": (x > 0.5).astype(int), "none": np.nan})
    model = hm.HetMOGP("auto", latents=1, inducing=8, max_iter=2, progress=False)
    with pytest.warns(UserWarning, match="output 'none' is left out: no observed value"):
        model.fit(x, Y)
    assert model.output_names_ == ["on"]
    assert isinstance(model.discovery_["on"], hm.Bernoulli)
    with (
        pytest.raises(ValueError, match="no column that can be modelled"),
        pytest.warns(UserWarning, match="left out"),
    ):
        hm.HetMOGP("auto").fit(x, Y[["none"]])


def test_auto_for_one_output_of_several():
    Y = {"a": np.sin(6 * x), "on": (x > 0.5).astype(int)}
    model = hm.HetMOGP({"a": hm.Gaussian(), "on": "auto"}, latents=1, inducing=8, max_iter=0)
    model.fit(x, Y)
    assert {name: repr(of) for name, of in model.likelihoods_.items()} == {
        "a": "Gaussian()",
        "on": "Bernoulli()",
    }


def turned(many):
    """A wave that is upside down in the rows that the check holds out, and so misleads a fit."""
    fitted = np.random.default_rng(0).permutation(len(many))[: len(many) // 2]
    wave = -3 * np.sin(12 * many)
    wave[fitted] *= -0.3
    return wave


def test_auto_warns_of_an_output_that_is_worse_than_its_constant():
    Y = {"on": (x > 0.5).astype(int), "turned": turned(x)}
    kinds = {"on": "auto", "turned": hm.Gaussian()}
    with pytest.warns(UserWarning, match="nats per value worse than a constant would") as caught:
        hm.HetMOGP(kinds, latents=2, inducing=12, progress=False).fit(x, Y)
    assert [str(one.message).split(":")[0] for one in caught] == ["output 'turned'"]


def test_the_check_knows_what_comes_with_an_output():
    """Counts per exposure, and inputs of their own; the wave is one of the log rate."""
    time = rng.uniform(1.0, 3.0, 300)
    inputs = {"on": x, "cases": x[:240]}
    Y = {"on": (x > 0.5).astype(int), "hours": time[:240]}
    Y["cases"] = rng.poisson(time[:240] * np.exp(1.0 + 0.3 * turned(x[:240])))
    kinds = {"on": "auto", "cases": hm.Poisson(exposure="hours")}
    with pytest.warns(UserWarning, match="output 'cases': in a quick check"):
        hm.HetMOGP(kinds, latents=2, inducing=12, progress=False).fit(inputs, Y)


def test_few_rows_are_checked_by_leaving_each_value_out():
    """A model is worse than a constant where the data are not what it was fitted to."""
    few = np.linspace(0, 1, 60)
    Y = {"a": np.sin(6 * few), "b": np.cos(6 * few) + 0.1 * rng.normal(size=60)}
    kinds = {"a": hm.Gaussian(scale=0.3), "b": hm.Gaussian()}
    model = hm.HetMOGP(kinds, latents=2, inducing=8, progress=False).fit(few, Y)
    with session():
        fine = no_better_than_constants(kinds, few, Y, model._options(), model.fitted)
        other = {**Y, "a": -Y["a"]}
        worse = no_better_than_constants(kinds, few, other, model._options(), model.fitted)
    assert fine == {}
    assert list(worse) == ["a"]
    assert worse["a"] > 0.5


def test_the_check_takes_outputs_without_names():
    y = np.sin(6 * x)
    model = hm.HetMOGP([hm.Gaussian()], latents=1, max_iter=1, progress=False).fit(x, y)
    with session():
        worse = no_better_than_constants(
            {"y0": hm.Gaussian()}, x, y, model._options(), model.fitted
        )
    assert worse == {}


@pytest.mark.filterwarnings("ignore:.*it has one value only")
def test_the_check_needs_values_on_both_sides():
    y = np.full(len(x), np.nan)
    y[:2] = 1.0, 2.0
    y[np.random.default_rng(0).permutation(len(x))[: len(x) // 2]] = np.nan
    kinds, Y = {"a": hm.Gaussian()}, {"a": y}
    assert 0 < np.isfinite(y).sum() <= 2
    model = hm.HetMOGP(kinds, latents=1, max_iter=0, progress=False).fit(x, Y)
    with session():
        assert no_better_than_constants(kinds, x, Y, model._options(), model.fitted) == {}


def test_the_check_has_the_latents_that_the_user_named():
    """Each group has latents of its own, which `latents` and `rank` do not count."""
    X = pd.DataFrame({"x": x, "g": np.tile(["a", "b", "c"], len(x) // 3 + 1)[: len(x)]})
    Y = {"a": np.sin(6 * x) + 0.1 * rng.normal(size=len(x))}
    kinds = {"a": hm.Gaussian()}
    options = {"latents": 2, "rank": [1, 2], "groups": "g", "inducing": 8, "progress": False}
    model = hm.HetMOGP(kinds, max_iter=1, **options).fit(X, Y)
    with session():
        assert no_better_than_constants(kinds, X, Y, model._options(), model.fitted) == {}


def test_a_failed_check_does_not_lose_the_fit(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hetmogp.model.no_better_than_constants", interrupted)
    Y = {"on": (x > 0.5).astype(int)}
    model = hm.HetMOGP({"on": "auto"}, latents=1, inducing=8, restarts=1, progress=False)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, Y)
    assert model.predict([0.9])["on"].mean > 0.5

    def failed(*_):
        raise ValueError("too few values")

    monkeypatch.setattr("hetmogp.model.no_better_than_constants", failed)
    with pytest.warns(UserWarning, match="could not be compared with constants: too few values"):
        model.fit(x, Y)
    model.set_params(likelihoods={"on": hm.Bernoulli()}, max_iter=0).fit(x, Y)
    assert not hasattr(model, "discovery_")


def test_daily_rain_is_a_hurdle():
    """57% zeros, amounts rounded to 0.1: no density is compared with the zeros."""
    day = np.arange(600.0)
    wetness = np.cos(day / 58) + rng.logistic(size=600)
    amount = np.maximum(np.round(rng.gamma(0.8, 6.0, 600), 1), 0.1)
    rain = np.where(wetness > np.quantile(wetness, 0.57), amount, 0.0)
    assert np.mean(rain == 0) == pytest.approx(0.57, abs=0.001)
    found = hm.discover(day, {"rain": rain}, progress=False)
    assert isinstance(found["rain"], hm.Hurdle)
    assert "rounded to 0.1" in found.table["reason"].str.cat()


def test_few_values_are_not_compared():
    found = hm.discover([0.0, 1.0, 2.0], [3.2, 4.1, 5.5])
    assert isinstance(found["y0"], hm.Gaussian)
    assert "too few values" in found.table["reason"][0]


def test_a_misspelt_auto_is_an_error():
    with pytest.raises(TypeError, match="'z': 'poison' is not a likelihood"):
        hm.HetMOGP({"on": "auto", "z": "poison"}).fit(x, {"on": x > 0.5, "z": x})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hm.discover(x, {"a": x[:3]}), "output 'a' has 3 values but its inputs have 300"),
        (lambda: hm.discover(x, {"a": x}, outputs=["b"]), "Y has no column 'b'; it has a"),
        (lambda: hm.discover(x, {"a": x}, outputs="b"), "Y has no column 'b'; it has a"),
        (lambda: hm.discover(x, {}), "Y has no column to look at"),
        (lambda: hm.discover(x, {"a": x}, outputs=[]), "outputs is empty"),
        (
            lambda: hm.discover(pd.DataFrame({"x": x}), pd.DataFrame({"a": x}).iloc[::-1]),
            "the index of X and of Y differ",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.skipif(not DATA, reason="needs the folder of the experiments' data: HETMOGP_DATA")
def test_real_columns_admit_the_right_kinds():
    folder = Path(str(DATA))
    london = pd.read_csv(folder / "london2017.csv")
    assert all(names(london[c]) == ["Bernoulli"] for c in ("contract", "new", "type"))
    assert names(np.log(london["price"])) == REAL
    people = pd.read_parquet(folder / "extrasensory_3users.parquet")
    assert "Categorical" in names(people["activity"])
    assert names(people["n_labels_on"]) == COUNTS + INFLATED
    assert names(people["battery"]) == ["ZeroOneInflatedBeta"]
    assert names(people["loc_log_diameter"]) == REAL
    assert names(people["at_work"]) == []
    hearts = np.load(folder / "arrhythmia_p255.npz", allow_pickle=True)
    assert names(hearts["sex"]) == ["Bernoulli"]


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    frame = pd.DataFrame(
        {"t": x, "on": (x > 0.5).astype(int), "kind": ["a", "b"] * 150, "none": ""}
    )
    frame.to_csv(path, index=False)
    return path


def test_the_command_prints_a_table(table):
    found = CliRunner().invoke(app, ["discover", str(table), "--inputs", "t"])
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0].split()[:2] == ["output", "likelihood"]
    assert any("Bernoulli() *" in line and "0 and 1" in line for line in lines)
    assert any("none" in line and "no observed value" in line for line in lines)


def test_the_command_prints_json_and_reads_parquet(table, tmp_path):
    path = tmp_path / "data.parquet"
    pd.read_csv(table).to_parquet(path)
    found = CliRunner().invoke(
        app,
        ["discover", str(path), "--inputs", "t", "--output", "on", "--output", "kind", "--json"],
    )
    rows = json.loads(found.stdout)
    assert [(row["output"], row["likelihood"]) for row in rows] == [
        ("on", "Bernoulli()"),
        ("kind", "Categorical()"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv", "--inputs", "t"], "there is no file nowhere.csv"),
        (["DATA", "--inputs", "lat"], "has no column 'lat'; it has 't', 'on', 'kind', 'none'"),
        (["DATA", "--inputs", "t", "--output", "off"], "has no column 'off'"),
        (["DATA", "--inputs", ","], "no column was named"),
        (["DATA", "--inputs", "none"], "row 0, column 'none'"),
        (["EMPTY", "--inputs", "t"], "as a table"),
        (
            ["DATA", "--inputs", "t", "--output", "t", "--output", "on"],
            "'t' is named as an input and as an output",
        ),
        (["DATA", "--inputs", "t,on,kind,none"], "has no column beside the inputs"),
    ],
)
def test_the_command_fails_in_one_line(table, tmp_path, arguments, message):
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    given = [{"DATA": str(table), "EMPTY": str(empty)}.get(a, a) for a in arguments]
    found = CliRunner().invoke(app, ["discover", *given])
    assert found.exit_code == 1
    assert message in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_auto_in_a_list_is_that_of_a_dict():
    Y = pd.DataFrame({"a": x, "on": (x > 0.5).astype(int)})
    chosen, found = discovery.choose([hm.Gaussian(), "auto"], x, Y, progress=False)
    assert chosen == {"a": hm.Gaussian(), "on": hm.Bernoulli()}
    assert list(found or {}) == ["on"]


def test_the_command_fails_where_nothing_can_be_modelled(tmp_path):
    (tmp_path / "t.csv").write_text("t,one\n" + "".join(f"{k},5\n" for k in range(9)))
    found = CliRunner().invoke(app, ["discover", str(tmp_path / "t.csv"), "--inputs", "t"])
    assert found.exit_code == 1
    assert "one value only, 5" in found.stdout
    assert "no column of" in found.stderr


def test_half_numbers_with_many_zeros_admit_hurdles():
    counts = np.repeat([0.0, 1.0, 2.0, 3.0, 5.5], [40, 30, 20, 9, 1])
    assert hm.Hurdle(hm.Gamma(step=0.5)) in propose(counts).candidates


def test_what_allows_values_below_zero_says_so():
    proposal = propose(np.arange(60) / 7.0)
    assert proposal.seen.startswith("numbers >= 0")
    tried = [np.full(9, -1.0 - (one != hm.Gaussian())) for one in proposal.candidates]
    assert "allows values below zero, of which there are none" in str(
        discovery._judge(proposal, tried)
    )


def test_codes_for_missing_values_are_noted():
    y = pd.Series(np.linspace(3.0, 9.0, 40))
    y[[3, 7]] = -999
    (said,) = codes({"y": y, "fine": y.clip(3.0), "text": pd.Series(["a"] * 40)})
    assert said.startswith("'y' has -999 2 times, far from the rest")
