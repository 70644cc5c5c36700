"""The command line: help without JAX, results on stdout, one clear line when something is wrong."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import hetmogp as hm
from hetmogp.cli import app, discover
from hetmogp.cli.files import read_table
from hetmogp.cli.holdout import chosen, only
from hetmogp.cli.words import kernel_from, output_from

COMMANDS = (
    *("aggregate", "demo", "discover", "draw", "experiment"),
    *("fit", "predict", "report", "score", "summary"),
)
rng = np.random.default_rng(0)
N = 60


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


# -- help ------------------------------------------------------------------------------------------


def test_help_is_there_within_a_second_and_does_not_import_jax():
    code = (
        "import sys; from typer.testing import CliRunner; from hetmogp.cli import app;"
        "out = CliRunner().invoke(app, ['--help']).output; print(out);"
        "assert not {'jax', 'pandas', 'numpy', 'matplotlib', 'plotly'} & set(sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert all(command in shown.stdout for command in COMMANDS)
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "hetmogp", "--help"], check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    assert min(taken) < 1.0  # the least of three: other tests are running


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    found = run(command, "--help")
    assert found.exit_code == 0
    assert f"hetmogp {command}" in found.output  # in an example: above, the program is "root"


def test_wrong_calls_are_told_apart_from_trouble(model):
    assert run("predict", model["model"]).exit_code == 2  # neither a file nor a grid
    assert "either a file with inputs or --grid" in run("predict", model["model"]).stderr
    assert run("report", model["model"], "--above", 3).exit_code == 2
    for words in (["london", "--fetch"], ["register", "--splits", 3], ["paris"]):
        assert run("experiment", *words).exit_code == 2


def test_version_and_wrong_calls():
    found = run("--version")
    assert found.exit_code == 0
    assert hm.__version__ in found.output
    assert run("fitt").exit_code == 2
    assert run("fit").exit_code == 2


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "likelihood"),
    [
        ("y", "'auto'"),
        ("y:auto", "'auto'"),
        ("y:bernoulli", "Bernoulli()"),
        ("y:Bernoulli:link=probit", "Bernoulli(link='probit')"),
        ("y:negative_binomial:exposure=people", "NegativeBinomial(exposure='people')"),
        ("y:binomial:trials=10", "Binomial(trials=10)"),
        ("y:student-t:df=4:weight=w", "StudentT(df=4, weight='w')"),
        ("y:ordinal:classes=low|mid|high", "Ordinal(classes=['low', 'mid', 'high'])"),
        ("y:categorical:classes=1|2", "Categorical(classes=[1, 2])"),
        ("y:weibull:event=died:latent=scale|shape", None),
    ],
)
def test_outputs_in_words(words, likelihood):
    name, found = output_from(words)
    assert name == "y"
    expected = likelihood or repr(hm.Weibull(event="died", latent=("scale", "shape")))
    assert repr(found) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("y:gauss", "no likelihood 'gauss'; there are Bernoulli"),
        ("y:count", "no likelihood 'count'; there are Bernoulli, Beta, Binomial, Categorical, Exp"),
        ("y:poisson:exposur=n", "Poisson has no option 'exposur'; it has exposure"),
        ("y:poisson:n", "'n' should be option=value"),
        ("y:gaussian:scale=-1", "scale=-1"),
        (":poisson", "names no column"),
    ],
)
def test_wrong_words_are_explained(words, message):
    with pytest.raises(ValueError, match=message):
        output_from(words)


def test_kernels_in_words():
    assert repr(kernel_from("matern32")) == "Matern32()"
    assert repr(kernel_from("rbf + periodic:period=7d:active_dims=date")) == repr(
        hm.RBF() + hm.Periodic(period=7.0, active_dims=("date",))
    )
    assert repr(kernel_from("rbf:ard=false*category")) == repr(hm.RBF(ard=False) * hm.Category())
    assert repr(kernel_from("Matern32() + Periodic()*RBF()")) == repr(
        hm.Matern32() + hm.Periodic() * hm.RBF()
    )
    assert repr(kernel_from("(rbf + linear) * category")) == repr(
        (hm.RBF() + hm.Linear()) * hm.Category()
    )
    assert repr(kernel_from("((rbf))*(matern12+(linear))")) == repr(
        hm.RBF() * (hm.Matern12() + hm.Linear())
    )
    several = repr(hm.RBF(active_dims=("speed (m/s)", "a")) + hm.Periodic(period=7.0))
    for words in (
        'RBF(active_dims=["speed (m/s)", "a"]) + Periodic(period=7d)',
        "RBF(active_dims=('speed (m/s)', 'a',)) + Periodic(period='7d')",
        "rbf:active_dims='speed (m/s)'|a + periodic : period = 7d",
    ):
        assert repr(kernel_from(words)) == several
    for words, message in (
        ("(rbf", "the end was found where \\) should be"),
        ("rbf)", "'\\)' was found where \\+ or \\* or the end should be"),
        ("rbf + ", "the end was found where a kernel should be"),
        ("rbf ** linear", "'\\*' was found where a kernel should be"),
        ("(rbf)(linear)", "'\\(' was found"),
        ("RBF(ard)", "'ard' should be option=value"),
        ("RBF(ard=false", "where \\) should be"),
        ("", "where a kernel should be"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel_from(words)
    for words, message in (("rbv", "no kernel 'rbv'"), ("rbf:period=1", "no option 'period'")):
        with pytest.raises(ValueError, match=message):
            kernel_from(words)
    with pytest.raises(ValueError, match="neither a number nor a duration"):
        kernel_from("periodic:period=weekly")


# -- from a table to predictions -------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    t = np.linspace(0, 1, N)
    table = pd.DataFrame(
        {
            "t": t,
            "height": np.sin(6 * t) + 0.1 * rng.standard_normal(N),
            "cases": rng.poisson(5 * np.exp(np.sin(6 * t))),
            "people": 5.0,
            "kind": np.where(t > 0.5, "late", "early"),
        }
    )
    table.loc[10:20, "cases"] = None
    table.to_csv(folder / "data.csv", index=False)
    table.to_parquet(folder / "data.parquet")
    return folder


FIT = ("--inducing", 8, "--latents", 1, "--max-iter", 0)


@pytest.fixture(scope="module")
def model(folder):
    found = run(
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "height:gaussian"),
        *("--output", "cases:poisson:exposure=people", "--holdout", 0.2, *FIT, "--json"),
    )
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_fit_says_what_it_learned_and_saves_it(model, folder):
    assert model["model"] == str(folder / "data.hetmogp")
    fitted = hm.load(model["model"])
    assert model["bound"] == fitted.elbo_
    assert model["outputs"]["cases"]["likelihood"] == "Poisson(exposure='people')"
    assert model["outputs"]["height"]["observed"] == fitted.n_observed_["height"] == 48
    assert model["correlation"]["height.mean"]["height.mean"] == 1.0
    held = model["holdout"]
    assert held["height"]["values"] == 12
    assert held["global"]["nlpd"] == pytest.approx(held["height"]["nlpd"] + held["cases"]["nlpd"])


def test_summary_says_again_what_fit_has_said(model, folder, tmp_path):
    words = ("--inputs", "t", "--output", "height:gaussian", "--model", tmp_path / "m", *FIT)
    said = run("fit", folder / "data.csv", *words).stdout
    assert said == run("summary", tmp_path / "m").stdout + f"\nmodel: {tmp_path / 'm'}\n"
    content = json.loads(run("summary", model["model"], "--json").stdout)
    assert content == {key: value for key, value in model.items() if key != "holdout"}


def test_outputs_are_named_alike_in_all_commands():
    commands: Any = typer.main.get_command(app)
    naming = set()
    for name, command in commands.commands.items():
        for option in command.params:
            if "output" in option.name:
                naming.add(name)
                assert option.opts == ["--output"]
                assert option.multiple
    assert naming == {"aggregate", "discover", "draw", "fit", "predict"}


def test_fit_prints_tables_for_people(folder, tmp_path):
    target = tmp_path / "m.hetmogp"
    found = run(
        *("fit", folder / "data.parquet", "--inputs", "t", "--output", "height:gaussian"),
        *("--model", target, "--kernel", "matern52", "--intervals", *FIT),
    )
    assert found.exit_code == 0, found.output
    words = ("height.mean", "Matern52(t ", "numbers of the kernels, with 90% intervals")
    for some in (*words, "each value left out in turn", "its average", f"model: {target}"):
        assert some in found.stdout
    assert not found.stdout.startswith("hetmogp:")
    assert type(hm.load(target).kernels_[0]) is hm.Matern52


def test_predict_takes_its_file_by_either_name(model, folder, tmp_path):
    pd.read_csv(folder / "data.csv")[:3].to_csv(tmp_path / "three.csv", index=False)
    plain = run("predict", model["model"], tmp_path / "three.csv")
    named = run("predict", model["model"], "--at", tmp_path / "three.csv")
    assert plain.stdout == named.stdout
    assert len(plain.stdout.splitlines()) == 4
    both = run("predict", model["model"], tmp_path / "three.csv", "--grid", 5)
    assert both.exit_code == 2


def test_score_agrees_with_the_model(model, folder):
    """On the rows that were held out, of the table that was fitted."""
    found = run("score", model["model"], folder / "data.csv", "--json")
    table, fitted = pd.read_csv(folder / "data.csv"), hm.load(model["model"])
    held = fitted.held_out(table)
    assert held.sum() == 12
    rest = table[held].reset_index(drop=True)
    scores = json.loads(found.stdout)
    nlpd = {name: row["nlpd"] for name, row in scores.items()}
    assert nlpd == pytest.approx(fitted.nlpd(rest, rest))
    assert scores == model["holdout"]
    beside = fitted.compare_baselines(rest, rest)
    gains = {name: row["over_constant"] for name, row in scores.items()}
    assert gains == pytest.approx(beside["over_constant"].to_dict())
    assert scores["cases"]["alone"] is None
    assert scores["cases"]["accuracy"] is None
    text = run("score", model["model"], folder / "data.csv").stdout
    assert text.startswith("12 of 60 rows, held out of the fit: 20% of the rows, at random\n")
    assert "gain over constant" in text
    assert "the outputs alone are not known" in text


def test_score_of_other_rows_takes_all_of_them(model, folder, tmp_path):
    table = pd.read_csv(folder / "data.csv").iloc[::-1]
    table.to_csv(tmp_path / "other.csv", index=False)
    scores = json.loads(run("score", model["model"], tmp_path / "other.csv", "--json").stdout)
    expected = hm.load(model["model"]).nlpd(table, table)
    assert {name: row["nlpd"] for name, row in scores.items()} == pytest.approx(expected)
    assert scores["cases"]["values"] == N - 11
    assert 0.7 < scores["height"]["coverage"] <= 1.0


def test_hold_outs_in_groups_and_after_a_limit(tmp_path):
    table = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=60), "k": np.arange(60)})
    table["site"] = np.array(list("abcdef"))[np.arange(60) % 6]
    table["y"] = np.sin(np.arange(60) / 9.0)
    table.to_csv(tmp_path / "t.csv", index=False)

    def held(*options):
        found = run(
            *("fit", tmp_path / "t.csv", "--inputs", "day,k", "--output", "y:gaussian", *FIT),
            *options,
        )
        assert found.exit_code == 0, found.output
        return hm.load(tmp_path / "t.hetmogp").held_out(table)

    by_site = held("--holdout", 0.3, "--by", "site")
    assert by_site.sum() == 20
    assert all(by_site[table["site"] == name].std() == 0 for name in "abcdef")
    np.testing.assert_array_equal(held("--holdout-after", "2020-02-10"), table["k"] > 40)
    np.testing.assert_array_equal(held("--holdout-after", "40"), table["k"] > 40)
    again = held("--holdout-after", "40", "--by", "k")
    np.testing.assert_array_equal(again, table["k"] > 40)
    assert not held().any()
    assert "fitted to these very rows" in run("score", *map(tmp_path.joinpath, FILES)).stdout


def test_intervals_of_mini_batches_are_a_warning_and_the_model_is_kept(folder, tmp_path):
    target = tmp_path / "m.hetmogp"
    found = run(
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "height:gaussian"),
        *("--model", target, "--method", "svi", "--intervals", *FIT[:4], "--max-iter", 2),
    )
    assert found.exit_code == 0, found.output
    assert "--intervals needs a fit on full batches" in found.stderr
    assert target.exists()


FILES = ("t.hetmogp", "t.csv")


def test_few_groups_held_out_are_warned_of():
    table = pd.DataFrame({"x": np.arange(60.0), "site": np.arange(60) % 18})
    with pytest.warns(UserWarning, match="only [1-4] of 18 groups of site are held out"):
        chosen(table, table, Path("t.csv"), 0.2, "site", None, 0)


def test_errors_about_inputs_name_the_file(tmp_path):
    rows = [f"{20 + k},{k}" for k in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["age,y", *rows, "27 y,3"]))
    found = run("fit", tmp_path / "t.csv", "--inputs", "age", "--output", "y:gaussian")
    assert found.exit_code == 1
    assert "t.csv, column 'age': row 30 has '27 y', which is not a number; the" in found.stderr
    assert "--labels age" in found.stderr


def test_a_date_after_which_rows_are_held_out_is_one(tmp_path, capsys):
    X = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=60)})
    with pytest.raises(typer.Exit):
        chosen(X, X, Path("t.csv"), 0.0, None, "June 2001", 0)
    assert "'June 2001' is not a date; write a date as 2001-06-01" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--by", "t"], "it goes with --holdout"),
        (["--holdout", 0.2, "--by", "nothing"], "has no column 'nothing'"),
        (["--holdout", 0.2, "--holdout-after", 3], "choose one of them"),
        (["--holdout-after", "2020-01-01"], "no input that holds dates or durations"),
        (["--holdout-after", "1", "--by", "height"], "no input 'height' that holds numbers"),
        (["--holdout", 0.001], "--holdout 0.001 is less than one row of the"),
        (["--holdout-after", "1e9"], "no row of"),
        (["--holdout-after", "-1e9"], "every row of"),
    ],
)
def test_hold_outs_that_make_no_sense_are_refused(folder, options, complaint):
    found = run("fit", folder / "data.csv", "--inputs", "t", "--output", "height", *options)
    assert found.exit_code == 1
    assert complaint in found.stderr
    assert found.stderr.count("\n") == 1


def test_predict_on_a_grid_and_at_a_table(model, folder, tmp_path):
    fitted = hm.load(model["model"])
    found = run("predict", model["model"], "--grid", 5, "--output", "height", "--interval", 0.5)
    grid = pd.read_csv(io.StringIO(found.stdout))
    assert list(grid.columns) == ["t", *(f"height_{c}" for c in ("mean", "std", "lower", "upper"))]
    begin, end = fitted.input_range_[:, 0]
    np.testing.assert_allclose(grid["t"], np.linspace(begin, end, 5))
    expected = fitted.predict(grid[["t"]]).to_frame(0.5)
    np.testing.assert_allclose(grid["height_upper"], expected["height_upper"], rtol=1e-9)

    target = tmp_path / "p.parquet"
    found = run("predict", model["model"], folder / "data.csv", "--out", target, "--json")
    assert json.loads(found.stdout)["rows"] == N
    table = pd.read_parquet(target)
    np.testing.assert_array_equal(table["cases_exposure"], 5.0)  # read from the file
    records = json.loads(run("predict", model["model"], "--grid", 2, "--json").stdout)
    assert [row["cases_exposure"] for row in records] == [1.0, 1.0]
    assert os.listdir(tmp_path) == ["p.parquet"]


def test_words_for_yes_and_no_are_ones_and_zeros(tmp_path):
    """In every command a file with words says what the same file with numbers says."""
    t = np.linspace(0, 1, N)
    rainy = rng.uniform(size=N) < t
    said = {}
    for kind, words in {"words": ("No", "YES"), "numbers": ("0", "1")}.items():
        data, model = tmp_path / f"{kind}.csv", tmp_path / f"{kind}.hetmogp"
        cells = ["" if k % 7 == 0 else words[int(yes)] for k, yes in enumerate(rainy)]
        pd.DataFrame({"t": t, "rain": cells}).to_csv(data, index=False)
        fit = ("fit", data, "--inputs", "t", "--output", "rain:bernoulli", "--holdout", 0.3, *FIT)
        commands = (
            (*fit, "--model", model, "--json"),
            ("score", model, data, "--json"),
            ("predict", model, data),
            ("report", model, "--data", data, "--out", tmp_path / f"{kind}.html", "--json"),
        )
        found = [run(*command) for command in commands]
        assert [one.exit_code for one in found] == [0] * 4, found[-1].output
        learned = json.loads(found[0].stdout)
        same = {key: learned[key] for key in ("bound", "outputs", "holdout")}
        said[kind] = [same, *(one.stdout for one in found[1:3])]
    assert said["words"] == said["numbers"]


def test_draw_writes_a_row_for_each_draw_and_input(model, folder, tmp_path):
    target = tmp_path / "draws.parquet"
    words = ("draw", model["model"], "--at", folder / "data.csv")
    found = run(*words, "-n", 7, "--seed", 3, "--out", target, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["rows"] == 7 * N
    table, data = pd.read_parquet(target), pd.read_csv(folder / "data.csv")
    assert list(table.columns) == ["draw", "t", "height", "cases"]
    fitted = hm.load(model["model"])
    expected = fitted.sample_y(data[["t"]], 7, 3, given={"people": 5.0})
    for name in ("height", "cases"):
        np.testing.assert_allclose(table[name].to_numpy().reshape(7, N), expected[name])
    np.testing.assert_allclose(table["t"], np.tile(data["t"], 7))


def test_aggregate_answers_for_groups(model, folder, tmp_path):
    words = ("aggregate", model["model"], "--at", folder / "data.csv", "--by", "kind")
    found = run(*words, "--output", "cases", "--how", "sum", "--above", 200, "-n", 200)
    assert found.exit_code == 0, found.output
    table, data = pd.read_csv(io.StringIO(found.stdout)), pd.read_csv(folder / "data.csv")
    assert table["kind"].tolist() == ["early", "late"]
    expected = hm.load(model["model"]).aggregate(
        *(data, "kind"), outputs="cases", how="sum", given={"people": 5.0}, n_samples=200, above=200
    )
    np.testing.assert_allclose(table.iloc[:, 1:], expected, rtol=1e-9)
    whole = json.loads(run(*words[:-2], "-n", 50, "--weights", "people", "--json").stdout)
    assert [row["rows"] for row in whole] == [N]


# -- files as they are found -----------------------------------------------------------------------


def test_rows_that_end_in_a_comma_do_not_shift_their_columns(tmp_path):
    (tmp_path / "t.csv").write_text("x,ozone,alert\n" + "1.0,2.5,0,\n" * 3)
    table = read_table(tmp_path / "t.csv")
    assert table["x"].tolist() == [1.0] * 3
    assert table["alert"].tolist() == [0] * 3


def test_only_what_stands_for_missing_is_missing(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nNone,1\nNA,\nnull,NaN\n")
    table = read_table(tmp_path / "t.csv")
    assert table["a"].tolist()[::2] == ["None", "null"]  # may well be labels
    assert table.isna().sum().tolist() == [1, 2]


@pytest.mark.parametrize("mark", [",", "."])
def test_semicolons_come_with_decimal_commas_or_points(tmp_path, mark):
    (tmp_path / "t.csv").write_text(f"x, m;y\n1{mark}5;a\n2{mark}5;b\n")
    assert read_table(tmp_path / "t.csv").to_dict("list") == {"x, m": [1.5, 2.5], "y": ["a", "b"]}


def test_compressed_files_are_read(tmp_path):
    for seed in range(20):
        frame = pd.DataFrame(np.random.default_rng(seed).normal(size=(9, 2)), columns=["a", "b"])
        frame.to_csv(tmp_path / "t.csv.gz", index=False)
        assert list(read_table(tmp_path / "t.csv.gz").columns) == ["a", "b"]


def test_rows_longer_than_the_header_are_refused(tmp_path):
    """As R writes them, with row names that have no name."""
    (tmp_path / "r.csv").write_text("t,y\n1,0.5,2.5\n2,0.6,2.6\n")
    found = run("fit", tmp_path / "r.csv", "--inputs", "t", "--output", "y:gaussian")
    assert found.exit_code == 1
    assert "more fields than its header has names" in found.stderr


def test_rows_held_out_keep_the_order_of_classes(tmp_path):
    grades = pd.Categorical(
        ["low", "mid", "low", "high"] * 10, ["low", "mid", "high"], ordered=True
    )
    table = pd.DataFrame({"t": np.linspace(0, 1, 40), "grade": grades})
    seen = only(table, ["grade"], np.arange(40) < 30)
    assert seen["grade"].dtype == table["grade"].dtype
    assert seen["grade"].notna().sum() == 30


def test_labels_of_whole_floats_are_whole(tmp_path):
    pd.DataFrame({"plot": [1.0, 2.0, np.nan]}).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", ["plot"])["plot"].tolist()[:2] == ["1", "2"]


def test_an_index_with_a_name_is_a_column(tmp_path):
    frame = pd.DataFrame({"y": [1.0]}, index=pd.Index(["2024-01-01"], name="date"))
    frame.to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet").columns) == ["date", "y"]


def test_a_column_name_may_have_colons():
    columns = ["temp", "temp:C"]
    assert output_from("temp:C:gaussian", columns)[0] == "temp:C"
    assert repr(output_from("temp:gaussian", columns)[1]) == "Gaussian()"
    assert output_from("temp:C", columns) == ("temp:C", "auto")


def test_labels_that_look_like_numbers(tmp_path):
    """Text in the fit stays text later; numbers may be said to be labels."""
    table = pd.DataFrame({"t": np.linspace(0, 1, 40), "plot": ["1", "2", "3a", "4"] * 10})
    table["y"] = np.sin(6 * table["t"])
    table["code"] = [1, 2] * 20
    table.to_csv(tmp_path / "t.csv", index=False)
    table[table["plot"] < "3"].to_csv(tmp_path / "new.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "--output", "y:gaussian", *FIT)
    assert run(*fit, "--inputs", "t,plot").exit_code == 0
    found = run("predict", tmp_path / "t.hetmogp", tmp_path / "new.csv", "--json")
    assert len(json.loads(found.stdout)) == 20
    found = run(*fit, "--inputs", "t,code", "--labels", "code")
    assert found.exit_code == 0, found.output
    assert hm.load(tmp_path / "t.hetmogp").columns_[1].levels == ("1", "2")


def test_a_folder_is_read_as_its_file_is(tmp_path):
    """Missing cells, labels that look like numbers and names with commas, in fits and after."""
    generator = np.random.default_rng(3)
    table = pd.DataFrame({"t, h": generator.uniform(0, 3, 80).round(3), "plot": [1, 2, 3, 4] * 20})
    table["kind"] = generator.choice(["a", "b", "", "NA"], 80)
    parts = tmp_path / "parts"
    parts.mkdir()
    table.to_csv(tmp_path / "t.csv", index=False)
    table[:30].to_csv(parts / "0.csv", index=False)
    table[30:].to_csv(parts / "1.csv", index=False, sep=";")
    options = ("--labels", "plot", "--output", "kind:categorical", *FIT)
    for data, name in ((tmp_path / "t.csv", "file"), (parts, "folder")):
        found = run("fit", data, "--inputs", "plot", *options, "--model", tmp_path / name)
        assert found.exit_code == 0, found.output
        model = hm.load(tmp_path / name)
        assert model.likelihoods_["kind"].classes == ("a", "b")
        assert model.columns_[0].levels == ("1", "2", "3", "4")
        one, many = (
            json.loads(run("score", tmp_path / name, at, "--json").stdout)["kind"]["nlpd"]
            for at in (tmp_path / "t.csv", parts)
        )
        assert many == pytest.approx(one)
        for at, out in ((tmp_path / "t.csv", "one.parquet"), (parts, "many.parquet")):
            assert run("predict", tmp_path / name, at, "--out", tmp_path / out).exit_code == 0
        pd.testing.assert_frame_equal(
            pd.read_parquet(tmp_path / "many.parquet"), pd.read_parquet(tmp_path / "one.parquet")
        )
    refused = run("fit", parts, "--inputs", "t, h", *options, "--model", tmp_path / "m")
    assert "has no column 'plot'; it has 't, h'\n" in refused.stderr


def test_a_table_may_come_through_a_pipe(model, folder, tmp_path):
    """As from /dev/stdin: it can be read once only."""
    os.mkfifo(tmp_path / "pipe")
    content = (folder / "data.csv").read_bytes()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content])
    writer.start()
    found = run("score", model["model"], tmp_path / "pipe")
    writer.join(timeout=30)
    assert found.stdout == run("score", model["model"], folder / "data.csv").stdout


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path, capsys):
    red = "\x1b[31mh\x9b\x07"
    t = np.linspace(0, 1, 30)
    pd.DataFrame({"t": t, red: np.sin(6 * t)}).to_csv(tmp_path / "t.csv", index=False)
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "t.csv").write_bytes((tmp_path / "t.csv").read_bytes())
    model = tmp_path / "t.hetmogp"
    shown = [
        run("fit", tmp_path / "t.csv", "--inputs", "t", "--output", f"{red}:gaussian", *FIT).output,
        run("score", model, tmp_path / "t.csv").output,
        run("score", model, parts).output,
        run("fit", tmp_path / "t.csv", "--inputs", "none").output,
        run("fit", parts, "--inputs", "none").output,
    ]
    assert red in run("predict", model, "--grid", 2).stdout  # for a program, as it is
    numbers = dict.fromkeys(("log_density", "behind", "error"), 0.5)
    row = {"output": red, "likelihood": "Gaussian()", "recommended": True, "reason": "it fits"}
    discover.show(pd.DataFrame([row | numbers]))
    shown.append(capsys.readouterr().out)
    for found in shown:
        assert r"\x1b[31mh\x9b\x07" in found
        assert not set("\x1b\x9b\x07") & set(found)


def test_rows_held_out_keep_their_labels_and_their_numbers(tmp_path):
    """A label or class that is only among the rows held out is known all the same."""
    table = pd.DataFrame({"t": np.linspace(0, 1, 40), "site": ["a"] * 39 + ["rare"]})
    table["y"], table["kind"] = 2 + np.sin(6 * table["t"]), ["u", "v"] * 19 + ["u", "w"]
    table.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("fit", tmp_path / "t.csv", "--inputs", "t,site", "--output", "y:gaussian", *FIT)
    for seed in range(20):  # one in which the last row is held out
        if np.random.default_rng(seed).permutation(40)[:16].max() == 39:
            break
    found = run(
        *arguments, "--output", "kind:categorical", "--holdout", 0.4, "--seed", seed, "--json"
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["holdout"]["kind"]["values"] == 16
    table.loc[30, "y"] = -3.5
    table.to_csv(tmp_path / "t.csv", index=False)
    for held in (0.0, 0.5):
        found = run(*arguments[:4], "--output", "y:gamma", "--holdout", held, "--seed", 1, *FIT)
        assert "output 'y', row 30: -3.5" in found.stderr


def test_results_are_whole_where_there_is_no_terminal(folder, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    found = run("discover", folder / "data.csv", "--inputs", "t", "--output", "kind")
    assert "Categorical() *" in found.stdout
    reason = "the best of them by 0.25 nats per held-out value, twice its standard error"
    rows = [
        {"output": name, "likelihood": f"{kind}(exposure='people')", "recommended": kind[0] == "P"}
        for name in ("cases", "deaths among them")
        for kind in ("Poisson", "ZeroInflatedNegativeBinomial")
    ]
    numbers = {"log_density": -2.5, "behind": 0.25, "error": np.nan, "reason": reason}
    discover.show(pd.DataFrame([row | numbers for row in rows]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == [
        *("output", "cases", "ZeroInflatedNegativeBinomial(exposure='people')"),
        *("deaths", "ZeroInflatedNegativeBinomial(exposure='people')"),
    ]
    for line in lines[1:3]:
        assert line.split("  ")[-1].strip() == reason
    assert "-2.500" in lines[1]


def test_links_are_followed_and_devices_written_to(model, tmp_path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("")
    link.symlink_to(real)
    assert run("predict", model["model"], "--grid", 2, "--out", link).exit_code == 0
    assert link.is_symlink()
    assert len(pd.read_csv(real)) == 2
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    assert run("predict", model["model"], "--grid", 2, "--out", pipe).exit_code == 0
    assert reader.communicate(timeout=30)[0].startswith("t,height_mean")
    assert not pipe.is_file()


def test_outputs_without_a_likelihood_are_discovered(folder, tmp_path):
    found = run(
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "kind", *FIT),
        *("--model", tmp_path / "m", "--json"),
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["outputs"]["kind"]["likelihood"].startswith("Categorical")


def test_an_interrupted_fit_is_saved_and_says_so(folder, tmp_path, monkeypatch):
    from hetmogp.fitting import vem

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(vem, "step", stop)
    found = run(
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "height:gaussian", *FIT),
        *("--model", tmp_path / "m", "--max-iter", 3),
    )
    assert found.exit_code == 130
    assert "warning: interrupted" in found.stderr
    fitted, table = hm.load(tmp_path / "m"), pd.read_csv(folder / "data.csv")
    assert fitted.interrupted_
    gain = fitted.compare_baselines(table[["t"]], table[["height"]])["over_constant"]["height"]
    last = found.stderr.splitlines()[-1]
    assert last == (
        f"hetmogp: interrupted: the model so far is in {tmp_path / 'm'}; its bound is "
        f"{fitted.elbo_:,.2f}. Over the best constants, on rows that were fitted, it gains height "
        f"{gain:+.3f} nats a value"
    )


def test_an_interrupt_before_there_is_a_model_says_that_none_was_written(
    folder, tmp_path, monkeypatch
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(hm.HetMOGP, "fit", stop)
    words = ("--inputs", "t", "--output", "height:gaussian", "--model", tmp_path / "m")
    found = run("fit", folder / "data.csv", *words)
    assert found.exit_code == 130
    assert found.stderr == "hetmogp: interrupted before a model was written\n"
    assert not (tmp_path / "m").exists()


def test_an_interrupted_process_is_not_taken_apart():
    """The compiler's threads may be at work, and a process that waits for them crashes."""
    code = (
        "import hetmogp.cli.application as a\n"
        "class Late:\n    def __del__(self): print('taken apart')\n"
        "late, app = Late(), a.Application()\n"
        "app.command()(lambda: a.interrupted('stopped'))\n"
        "app()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "hetmogp: stopped\n")


def test_rows_without_inputs_are_left_out_if_so_wished(folder, tmp_path):
    table = pd.read_csv(folder / "data.csv").drop(columns="cases")
    table.loc[[3, 7], "t"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    table.dropna(subset="t").to_csv(tmp_path / "whole.csv", index=False)
    named = ("--inputs", "t", "--output", "height:gaussian", *FIT)
    refused = run("fit", tmp_path / "t.csv", *named)
    assert refused.exit_code == 1
    assert "row 3, column 't': an input is missing, as in 2 of 60 rows" in refused.stderr
    drop = "--drop-missing-inputs"
    for data in ("t.csv", "whole.csv"):
        model = tmp_path / f"{data}.hetmogp"
        found = run("fit", tmp_path / data, *named, drop, "--model", model)
        assert found.exit_code == 0, found.output
        assert ("2 of 60 rows lack an input and are left out" in found.stderr) == (data == "t.csv")
    model = tmp_path / "t.csv.hetmogp"
    assert hm.load(model).elbo_ == hm.load(tmp_path / "whole.csv.hetmogp").elbo_
    for command in (["predict", model], ["score", model], ["draw", model, "--at"]):
        assert run(*command, tmp_path / "t.csv").exit_code == 1
        found = run(*command, tmp_path / "t.csv", drop)
        assert found.stdout == run(*command, tmp_path / "whole.csv").stdout
    (tmp_path / "none.csv").write_text("t,height\n,1\n,2\n")
    assert "every row lacks an input" in run("predict", model, tmp_path / "none.csv", drop).stderr
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "0.csv").write_text("t,height\n1,1\n,2\n")
    for words in (["fit", tmp_path / "parts", *named], ["score", model, tmp_path / "parts"]):
        assert "is for a single file" in run(*words, drop).stderr


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    from hetmogp.fitting import progress

    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress(True) as shown, progress.Progress(False) as hidden:
        for now[0] in np.arange(0.0, 3600.0, 1.0):
            shown.update("fitting", now[0] / 3600.0, -1234.5)
            hidden.update("fitting", 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "hetmogp: 10 s, fitting, 0%, bound -1,234.50",
        "hetmogp: 20 s, fitting, 1%, bound -1,234.50",
    ]
    seconds = [int(line.split()[1]) for line in lines]
    assert np.diff(seconds).max() == 300
    assert 15 < len(lines) < 25


# -- when something is wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "NONE", "--inputs", "t"], "there is no file"),
        (["fit", "FOLDER", "--inputs", "t"], "give files of one kind"),
        (["fit", "MODEL", "--inputs", "t"], "as a table"),
        (["fit", "BINARY", "--inputs", "t"], "as a table"),
        (["fit", "HEADER", "--inputs", "t"], "has no rows"),
        (["fit", "DATA", "--inputs", "time"], "has no column 'time'; it has 't', 'height'"),
        (["fit", "DATA", "--inputs", "t", "--output", "weight:gaussian"], "no column 'weight'"),
        (["fit", "DATA", "--inputs", "t", "--output", "t:gaussian"], "as an input and as an out"),
        (["fit", "DATA", "--inputs", "t", "--output", "height:gauss"], "no likelihood 'gauss'"),
        (["fit", "DATA", "--inputs", "t", "--output", "height:poisson"], "'height', row 0"),
        (["fit", "DATA", "--inputs", "t", "--output", "kind:gaussian"], "'early' is not a Gauss"),
        (["fit", "DATA", "--inputs", "cases", "--output", "height:gaussian"], "row 10, column"),
        (["fit", "DATA", "--inputs", "t", "--model", "NONE/m"], "cannot write"),
        (["fit", "DATA", "--inputs", "t", "--model", "FOLDER"], "it is a folder"),
        (["fit", "DATA", "--inputs", "t", "--kernel", "rbv"], "no kernel 'rbv'"),
        (["fit", "DATA", "--inputs", "t", "--kernel", "(rbf+linear*rbf"], "where ) should be"),
        (["fit", "DATA", "--inputs", "t", "--model", "DATA"], "it is a file to read from"),
        (["fit", "DATA", "--inputs", "t", "--output", "global"], "rename the column"),
        (["fit", "BAD", "--inputs", "t", "--output", "y:gaussian"], "row 1: 'n.d.' is not a Gauss"),
        (["predict", "MODEL", "DATA", "--out", "p.xlsx"], "written as .csv, .tsv or .parquet"),
        (["report", "MODEL", "--out", "MODEL"], "it is a file to read from"),
        (["predict", "NONE", "DATA"], "does not exist"),
        (["predict", "DATA", "DATA"], "not a hetmogp model"),
        (["predict", "MODEL", "OTHER"], "has no column 't'; the model was fitted on ['t']"),
        (["predict", "MODEL", "DATA", "--output", "depth"], "no output 'depth'"),
        (["predict", "MODEL", "DATA", "--out", "NONE/p.csv"], "cannot write"),
        (["score", "MODEL", "OTHER"], "column 't'"),
        (["draw", "MODEL", "--at", "OTHER"], "has no column 't'"),
        (["draw", "MODEL", "--at", "DATA", "-n", "9000000"], "take fewer with -n"),
        (["draw", "MODEL", "--at", "DATA", "--out", "p.xlsx"], "written as .csv, .tsv or .parquet"),
        (["aggregate", "MODEL", "--at", "DATA", "--by", "plot"], "no column 'plot'"),
        (["aggregate", "MODEL", "--at", "DATA", "--output", "depth"], "no output 'depth'"),
        (["report", "MODEL", "--out", "NONE/r.html"], "cannot write"),
        (["report", "MODEL", "--data", "OTHER"], "column 't'"),
        (["report", "MODEL", "--above", "hight=3"], "above names 'hight'"),
        (["demo", "--out", "DATA/demo"], "cannot write to"),
        (["fit", "CUT", "--inputs", "t"], "cut.csv.gz as a table: Truncated compressed stream"),
        (["fit", "GZIP", "--inputs", "t"], "no.csv.gz as a table"),
        (["fit", "UTF16", "--inputs", "t"], "it is text in UTF-16; save it in UTF-8"),
        (["fit", "EMPTY", "--inputs", "t"], "empty.csv as a table: it is empty"),
        (["fit", "TWICE", "--inputs", "t"], "it has 2 columns called 'y'"),
        (["fit", "DIFFERENT", "--inputs", "t"], "1.csv as a table: it has no column 'y'"),
        (["fit", "SHORT", "--inputs", "t"], "short.parquet as a table: it is damaged"),
        (["fit", "LISTS", "--inputs", "tags"], "column 'tags' holds several values in a cell"),
        (["fit", "LISTS", "--inputs", "t"], "column 'tags' holds several values in a cell"),
        (["discover", "LISTS", "--inputs", "t"], "column 'tags' holds several values in a cell"),
        (["fit", "LISTS", "--inputs", "t", "--output", "tags"], "'tags' holds several values"),
        (["predict", "MODEL", "LISTED"], "column 't' holds several values in a cell"),
        (["score", "MODEL", "LISTED"], "column 't' holds several values in a cell"),
        (["predict", "MODEL", "DATA", "--out", "FULL"], "/dev/full: No space left on device"),
        (["fit", "FULL", "--inputs", "t"], "where should the model of /dev/full be saved?"),
        (["fit", "ESCAPES", "--inputs", "t"], r"has no column 't'; it has '\x1b[31mt', 'y'"),
        (["score", "MODEL", "OTHERS"], "has no column 't'"),
    ],
)
def test_trouble_is_one_clear_line(model, folder, tmp_path, arguments, message):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "header.csv").write_text("t,height\n")
    (tmp_path / "bad.csv").write_text("t,y\n0,1.5\n1,n.d.\n2,3.5\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress((folder / "data.csv").read_bytes())[:-9])
    (tmp_path / "no.csv.gz").write_text("t,y\n0,1\n")
    (tmp_path / "utf16.csv").write_text("t,y\n0,1\n", encoding="utf-16")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "twice.csv").write_text("t,y,y\n0,1,2\n")
    (tmp_path / "escapes.csv").write_text("\x1b[31mt,y\n0,1\n")
    for name in ("different", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "different" / "0.csv").write_text("t,y\n0,1\n")
    (tmp_path / "different" / "1.csv").write_text("t,z\n0,1\n")
    (tmp_path / "others" / "0.csv").write_text("a,b\n0,1\n")
    lists = pd.DataFrame({"t": [0.0, 1.0], "tags": [[1, 2], [3]], "y": [1.0, 2.0]})
    lists.to_parquet(tmp_path / "lists.parquet")
    lists.assign(t=lists["tags"], height=0.0, cases=1, people=1).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "short.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-9])
    places = {
        "CUT": tmp_path / "cut.csv.gz",
        "GZIP": tmp_path / "no.csv.gz",
        "UTF16": tmp_path / "utf16.csv",
        "EMPTY": tmp_path / "empty.csv",
        "TWICE": tmp_path / "twice.csv",
        "ESCAPES": tmp_path / "escapes.csv",
        "DIFFERENT": tmp_path / "different",
        "OTHERS": tmp_path / "others",
        "SHORT": tmp_path / "short.parquet",
        "LISTS": tmp_path / "lists.parquet",
        "LISTED": tmp_path / "t.parquet",
        "FULL": "/dev/full",
        "DATA": folder / "data.csv",
        "MODEL": model["model"],
        "FOLDER": folder,
        "NONE": tmp_path / "none",
        "OTHER": tmp_path / "other.csv",
        "HEADER": tmp_path / "header.csv",
        "BINARY": tmp_path / "binary.csv",
        "BAD": tmp_path / "bad.csv",
    }
    given = []
    for argument in arguments:
        word, slash, rest = argument.partition("/")
        given.append(f"{places[word]}{slash}{rest}" if word in places else argument)
    found = run(*given)
    assert found.exit_code == 1, found.output
    assert message in found.stderr
    assert found.stderr.startswith("hetmogp: ")
    assert len(found.stderr.strip().splitlines()) == 1
    assert found.stdout == ""


def test_an_unwritable_folder_is_noticed_before_the_fit(folder, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    found = run("fit", folder / "data.csv", "--inputs", "t", "--model", tmp_path / "m")
    assert "not writable" in found.stderr


def test_documented_commands_exist():
    group: Any = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)


def test_a_fit_is_kept_and_taken_up(folder, tmp_path):
    arguments = (
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "height:gaussian", *FIT),
        *("--max-iter", 2),
    )
    kept = ("--model", tmp_path / "m.hetmogp", "--checkpoint", tmp_path / "kept", "--resume")
    assert run(*arguments, *kept).exit_code == 0
    assert list((tmp_path / "kept").glob("*.checkpoint"))
    other = run(*arguments, *kept, "--seed", 5)
    assert other.exit_code == 1
    assert "seed was 0, and is now 5" in other.output


def test_many_files_are_one_table(folder, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    table = pd.read_parquet(folder / "data.parquet")
    table[:25].to_parquet(parts / "0.parquet")
    table[25:].to_parquet(parts / "1.parquet")
    model = tmp_path / "parts.hetmogp"
    fitted = run("fit", parts, "--inputs", "t", "--output", "height:gaussian", *FIT, "--json")
    assert fitted.exit_code == 0, fitted.output
    scores = json.loads(run("score", model, parts / "*.parquet", "--json").stdout)
    refused = run("score", model, parts / "*.parquet", "--interval", "0.5")
    assert refused.exit_code == 1
    assert "--interval is for a single file" in refused.stderr
    again = hm.load(model)
    expected = again.nlpd(table[["t"]], table[["height"]])
    assert scores["height"]["nlpd"] == pytest.approx(expected["height"])
    found = run("predict", model, parts, "--out", tmp_path / "out.parquet")
    assert found.stdout == f"60 rows: {tmp_path / 'out.parquet'}\n"
    mean = pd.read_parquet(tmp_path / "out.parquet")["height_mean"]
    np.testing.assert_allclose(mean, again.predict(table[["t"]])["height"].mean)
    single = tmp_path / "data[1].csv"  # as browsers name a second download
    single.write_bytes((folder / "data.csv").read_bytes())
    assert run("score", model, single).exit_code == 0
    for arguments, message in (
        (("predict", model, parts), "--out"),
        (("fit", parts, "--inputs", "t", "--holdout", 0.2), "--holdout is for a single file"),
        (("fit", parts / "*.parquet", "--inputs", "t"), "--model"),
        (("fit", tmp_path / "none*", "--inputs", "t", "--model", model), "not a file, folder"),
    ):
        refused = run(*arguments)
        assert refused.exit_code == 1
        assert message in refused.stderr
