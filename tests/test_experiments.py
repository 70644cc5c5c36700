"""The paper's experiments, with fits cut short: what they report is what the models say."""

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import hetmogp as hm
from hetmogp import demo
from hetmogp.cli import app
from hetmogp.experiments import arrhythmia, behaviour, compare, data, gap, london

QUICK: dict[str, Any] = {"latents": 2, "inducing": 6, "max_iter": 1}


@pytest.fixture
def quick(monkeypatch):
    """Settings that fit next to nothing."""
    for module in (behaviour, london):
        monkeypatch.setattr(module, "SETTINGS", QUICK)
    monkeypatch.setattr(arrhythmia, "SETTINGS", QUICK)
    monkeypatch.setattr(gap, "SETTINGS", {**demo.SETTINGS, **QUICK})
    monkeypatch.setattr(demo, "SETTINGS", QUICK)
    monkeypatch.setenv("COLUMNS", "200")


def experiment(*arguments):
    found = CliRunner().invoke(app, ["experiment", *map(str, arguments)])
    assert found.exit_code == 0, found.output
    return found.stdout


def wrong(*arguments):
    """The line by which a command that cannot work ends."""
    found = CliRunner().invoke(app, ["experiment", *map(str, arguments)])
    assert found.exit_code == 1, found.output
    assert found.stderr.count("\n") == 1
    return found.stderr


# -- tables ----------------------------------------------------------------------------------------


def rows(case="a case", output="y", joint=(1.0, 2.0), alone=(1.5, 1.9), **more):
    return pd.DataFrame(
        [
            {
                **{"case": case, "split": split, "model": model, "output": output, "nlpd": nlpd},
                **{"seconds": 2.0, "converged": model == "joint", "workers": 2, "cores": 4},
                **more,
            }
            for model, values in (("joint", joint), ("independent", alone))
            for split, nlpd in enumerate(values)
        ]
    )


def test_differences_are_paired_by_split():
    shuffled = rows().sample(frac=1.0, random_state=0)
    (found,) = compare.paired(shuffled).loc[[("a case", "y")]].to_dict("records")
    assert found["difference mean"] == pytest.approx((-0.5 + 0.1) / 2)
    assert found["difference sd"] == pytest.approx(np.std([-0.5, 0.1], ddof=1))
    assert (found["better"], found["splits"]) == (1, 2)
    assert found["joint mean"] == pytest.approx(1.5)
    assert found["independent sd"] == pytest.approx(np.std([1.5, 1.9], ddof=1))


def test_a_page_has_the_papers_numbers_where_there_are_any():
    truth = {"case": "ours", "split": 0, "model": "truth", "output": "y", "nlpd": 0.25}
    table = pd.concat([rows("ours"), pd.DataFrame([truth]), rows("other")], ignore_index=True)
    text = compare.markdown(table, {"ours": {"y": ("12.5", "13.5")}}, "latents=3")
    ours, other = re.sub(" +", " ", text).split("**other**")
    assert "| output | truth | joint | independent | difference | better |" in ours
    assert "| y | 0.250 | 1.500 ± 0.707 | 1.700 ± 0.283 | -0.200 ± 0.424 | 1 of 2 |" in ours
    assert "12.5 | 13.5 |" in ours
    assert "paper" not in other
    assert "truth" not in other
    assert "Settings: `latents=3`." in text
    assert "joint 2.0, independent 2.0 (4 cores, 2 processes); 2 of 4 fits ended before" in ours


def test_only_what_is_between_the_marks_is_renewed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin gap -->\nold \\1\n<!-- end gap -->\nafter\n")
    compare.renew(page, "gap", "new \\1\n")
    assert page.read_text() == (
        "before\n<!-- begin gap -->\n\nnew \\1\n\n<!-- end gap -->\nafter\n"
    )
    with pytest.raises(ValueError, match=r"no marks <!-- begin london -->"):
        compare.renew(page, "london", "text")


def test_scores_found_before_a_failure_are_kept(tmp_path):
    """By processes that have little to import: scores are read from JSON, which the last is not."""
    scores = [json.dumps([{"case": "a case", "split": k, "nlpd": float(k)}]) for k in range(2)]
    tasks = [(text,) for text in (*scores, "the power went")]
    with pytest.raises(json.JSONDecodeError):
        compare.collect(json.loads, tasks, 2, tmp_path / "new" / "a.csv")
    kept = pd.read_csv(tmp_path / "new" / "a.csv")
    assert kept["split"].tolist() == [0, 1]
    assert (kept["workers"] == 2).all()


def test_a_score_is_that_of_the_fitted_model():
    problem = demo.simulate(0)
    test = {"binary": (problem.x_test, problem.y_test), "real": (problem.X["real"],) * 2}
    found, models = compare.fit_and_score(
        "a case", 3, demo.LIKELIHOODS, (problem.X, problem.Y), test, **QUICK
    )
    assert {name: model.prior for name, model in models.items()} == {
        "joint": "lmc",
        "independent": "independent",
    }
    table = pd.DataFrame(found).set_index(["model", "output"])["nlpd"]
    for name, model in models.items():
        for output, (X, y) in test.items():
            prediction = model.predict(X)[output]
            assert table[name, output] == pytest.approx(-np.mean(prediction.log_prob(y)))
        assert table[name, "global"] == pytest.approx(table[name, "binary"] + table[name, "real"])


# -- data ------------------------------------------------------------------------------------------


def test_a_missing_file_says_what_it_is_and_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.delenv("HETMOGP_DATA", raising=False)
    ways = ".*--data.*HETMOGP_DATA.*http"
    for name in data.SOURCES:
        for folder, why in (
            (tmp_path, f"{name} is not in {tmp_path}:"),
            (tmp_path / "no", f"there is no folder {tmp_path / 'no'}:"),
            (None, f"{name} is needed, and no folder of data was named:"),
        ):
            with pytest.raises(FileNotFoundError, match=why + ways):
                data.find(name, folder)
    assert wrong("behaviour", "--data", tmp_path).startswith("hetmogp: extrasensory")
    monkeypatch.setenv("HETMOGP_DATA", str(tmp_path / "elsewhere"))
    assert f"no folder {tmp_path / 'elsewhere'}" in wrong("london")
    (tmp_path / "page.md").touch()
    told = wrong("gap", "--page", tmp_path / "page.md")
    assert "page.md has no marks <!-- begin gap -->" in told


def minutes(rng, n=7 * 24 * 30):
    """A week of half the minutes, made up; the phone is not known a third of the time."""
    t = np.sort(rng.choice(7 * 24 * 60, n, replace=False)) / (7 * 24 * 60)
    home = (np.sin(14 * np.pi * t) > 0).astype(float)
    known = rng.random(n) > 1 / 3
    return pd.DataFrame(
        {
            "t_days": 7 * t,
            "at_home": home,
            "loc_log_diameter": home + rng.standard_normal(n),
            "phone_in_hand": np.where(known, (rng.random(n) < 0.3).astype(float), np.nan),
            "on_the_phone": np.where(known, 0.0, np.where(rng.random(n) < 0.1, 1.0, np.nan)),
        }
    )


def test_a_week_is_put_together_from_its_columns():
    table = minutes(np.random.default_rng(0)).assign(user="a")
    late = table.tail(3).assign(t_days=7.5)
    other = table.head(5).assign(user="b")
    week = behaviour.week(pd.concat([table, late, other]), "a")
    assert len(week) == len(table)
    assert week["t"].between(0, 1).all()
    phone = [
        1.0 if 1.0 in (hand, call) else hand
        for hand, call in zip(table["phone_in_hand"], table["on_the_phone"], strict=True)
    ]
    np.testing.assert_array_equal(week["phone"], phone)


def test_hidden_hours_are_hidden_for_one_output_at_a_time():
    rng = np.random.default_rng(1)
    week = behaviour.week(minutes(rng).assign(user="a"), "a")
    train, test = behaviour.in_blocks(week, rng)
    assert len(train) == behaviour.TRAIN
    for name, part in test.items():
        assert part[name].notna().all()
        hidden = behaviour.hidden_hours(part["t"])
        assert all(end - begin <= behaviour.WIDTH for begin, end in hidden)
        assert 1 <= len(hidden) <= behaviour.BLOCKS
        for begin, end in hidden:
            here = train[train["t"].between(begin, end)]
            assert here[name].isna().all()
            others = here[[other for other in behaviour.LIKELIHOODS if other != name]]
            pd.testing.assert_frame_equal(others, week.loc[here.index, others.columns])
            assert len(here) > 5
    nothing = week.assign(home=np.nan)
    with pytest.raises(ValueError, match="'home'"):
        behaviour.in_blocks(nothing, rng)


def test_minutes_at_random_are_new_ones():
    rng = np.random.default_rng(2)
    week = behaviour.week(minutes(rng).assign(user="a"), "a")
    train, test = behaviour.at_random(week, rng)
    for name, part in test.items():
        assert not set(part.index) & set(train.index)
        assert part[name].notna().all()


def sales(rng, n=1500):
    return pd.DataFrame(
        {
            "latitude": rng.uniform(51.3, 51.7, n),
            "longitude": rng.uniform(-0.5, 0.3, n),
            "price": np.exp(rng.normal(13.0, 0.7, n)).round(),
            "type": rng.integers(0, 2, n),
        }
    )


def test_an_output_is_hidden_in_whole_cells(tmp_path):
    table = sales(np.random.default_rng(0))
    table.to_csv(tmp_path / london.FILE, index=False)
    _, train, scored = london.divide(london.load(tmp_path / london.FILE), "flat", 0)
    where = london.cells(train[london.PLACE])
    hidden = train["flat"].isna()
    assert len(set(where[hidden])) == len(set(where)) // 3
    assert not set(where[hidden]) & set(where[~hidden]), "a cell is hidden as a whole"
    assert train["log_price"].notna().all()
    places, values = scored["flat"]
    assert set(places.index) <= set(train.index[hidden])
    np.testing.assert_array_equal(values, table["type"].loc[places.index])
    assert train["log_price"].mean() == pytest.approx(0.0, abs=1e-9)


def heart(rng, n=80, p=4):
    X = rng.standard_normal((n, p))
    return X, {
        "sex": (X[:, 0] + 0.3 * rng.standard_normal(n) > 0).astype(float),
        "log_age": 3.0 + X[:, 1] + 0.1 * rng.standard_normal(n),
    }


def test_training_validation_and_test_sets_are_a_partition():
    parts = arrhythmia.divide(452, 3)
    assert [len(part) for part in parts] == [271, 90, 91]
    assert sorted(np.concatenate(parts)) == list(range(452))


def test_the_regressions_find_what_is_linear():
    X, Y = heart(np.random.default_rng(0), n=400)
    found = arrhythmia.regressions(X, Y, 0)
    noise = 0.5 * np.log(2 * np.pi * np.e) + np.log(0.1)  # the entropy of the true noise
    assert found["log_age"] == pytest.approx(noise, abs=0.15)
    assert found["sex"] < 0.3
    assert found["global"] == pytest.approx(found["sex"] + found["log_age"])


def test_the_kernel_is_chosen_by_the_validation_set():
    table = pd.concat(
        [
            rows("ARD", "global", (1.0, 2.0), (3.0, 4.0), validation=0.5),
            rows("one lengthscale", "global", (9.0, 8.0), (7.0, 6.0), validation=0.4),
        ],
        ignore_index=True,
    )
    table.loc[(table["model"] == "joint") & (table["split"] == 1), "validation"] = [0.1, 0.2]
    picked = arrhythmia.chosen(table).set_index(["model", "split"])["nlpd"]
    assert picked.to_dict() == {
        **{("joint", 0): 9.0, ("joint", 1): 2.0},
        **{("independent", 0): 7.0, ("independent", 1): 6.0},
    }


def test_openmls_table_is_tidied():
    table = pd.DataFrame(
        {
            "age": [0, 30, 61],
            "sex": ["1", "0", "1"],
            "same": [2.0, 2.0, 2.0],
            "holes": [1.0, np.nan, 3.0],
            "wave": [0.1, 0.2, 0.3],
            "class": ["1", "2", "1"],
        }
    )
    X, Y = arrhythmia.tidy(table)
    np.testing.assert_array_equal(X, [[0.1], [0.2], [0.3]])
    np.testing.assert_array_equal(Y["sex"], [1.0, 0.0, 1.0])
    np.testing.assert_allclose(Y["log_age"], np.log([1.0, 31.0, 62.0]))


# -- the commands ----------------------------------------------------------------------------------


def test_gap(quick, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- begin gap --><!-- end gap -->")
    found = json.loads(
        experiment("gap", "--splits", 1, "--out", tmp_path / "out", "--page", page, "--json")
    )
    table = pd.DataFrame(found).set_index(["case", "model"])["nlpd"]
    for case, weights in gap.WEIGHTS.items():
        problem = demo.simulate(0, weights)
        assert table[case, "truth"] == pytest.approx(problem.nlpd_of_truth)
        joint, _ = demo.fit_both(problem, progress=False)
        assert table[case, "joint"] == pytest.approx(demo.nlpd_in_gap(joint, problem))
    assert "40.51" in page.read_text()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"gap.csv", "gap_paper.png", "gap_sharing.png"}


@pytest.mark.slow
def test_behaviour(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(behaviour, "PEOPLE", 1)
    monkeypatch.setattr(behaviour, "TRAIN", 100)
    monkeypatch.setattr(behaviour, "CASES", behaviour.CASES[2:])
    minutes(np.random.default_rng(3)).assign(user="a").to_parquet(tmp_path / behaviour.FILE)
    shown = experiment("behaviour", "--splits", 1, "--data", tmp_path, "--out", tmp_path / "out")
    assert "**person 1, hours hidden, day-periodic kernel**\n" in shown
    assert (tmp_path / "out" / "behaviour.png").stat().st_size > 10_000


@pytest.mark.slow
def test_london(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(london, "TEST", 100)
    monkeypatch.setattr(london, "HIDDEN", ("",))
    monkeypatch.setattr(london, "PRICES", london.PRICES[1:])
    rng = np.random.default_rng(4)
    sales(rng, 600).to_csv(tmp_path / london.FILE, index=False)
    shown = experiment("london", "--splits", 1, "--data", tmp_path, "--out", tmp_path / "out")
    assert "16.44 ± 0.01" in shown
    assert (tmp_path / "out" / "london.png").stat().st_size > 10_000
    many = sales(rng, 1100)
    many.assign(year=2016, new_build=many.pop("type")).to_parquet(tmp_path / london.REGISTER)
    monkeypatch.setattr(london, "SETTINGS", {"inducing": 6, "method": "svi", "batch_size": 100})
    page = tmp_path / "page.md"
    page.write_text("<!-- begin register --><!-- end register -->")
    found = json.loads(experiment("register", "--data", tmp_path, "--page", page, "--json"))
    assert [row["rows"] for row in found] == [500, 1000]
    assert [row["steps"] for row in found] == [5, 10]
    assert "| 2015 to 2018 | StudentT | 1,000 | 10 |" in re.sub(" +", " ", page.read_text())


@pytest.mark.slow
def test_arrhythmia(quick, tmp_path):
    X, Y = heart(np.random.default_rng(5))
    ages = np.expm1(Y["log_age"])
    np.savez(tmp_path / arrhythmia.FILE, X=X, sex=Y["sex"], age=ages)
    found = json.loads(
        experiment("arrhythmia", "--splits", 1, "--data", tmp_path, "--out", tmp_path, "--json")
    )
    table = pd.DataFrame(found).set_index(["case", "model", "output"])["nlpd"]
    assert set(table.index.unique("case")) == {*arrhythmia.CASES, arrhythmia.CHOSEN}
    train, _, test = arrhythmia.divide(len(X), 0)
    model = hm.HetMOGP(
        arrhythmia.LIKELIHOODS, kernel=hm.RBF(ard=True), progress=False, **QUICK
    ).fit(X[train], {name: y[train] for name, y in Y.items()})
    scores = model.nlpd(X[test], {name: y[test] for name, y in Y.items()})
    for output, value in scores.items():
        assert table["ARD", "joint", output] == pytest.approx(value)
    assert (tmp_path / "arrhythmia.png").is_file()
