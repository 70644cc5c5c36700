"""The command line: help without JAX, results on stdout, one clear line when something is wrong."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import hetmogp as hm
from hetmogp.cli import app
from hetmogp.cli.words import kernel_from, output_from

pytestmark = pytest.mark.xdist_group("cli")  # its models are fitted once

COMMANDS = ("demo", "discover", "experiment", "fit", "predict", "report", "score")
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


@pytest.mark.parametrize("command", [*COMMANDS, ("experiment", "gap")])
def test_every_command_has_help_with_an_example(command):
    names = (command,) if isinstance(command, str) else command
    found = run(*names, "--help")
    assert found.exit_code == 0
    if command != "experiment":
        assert f"hetmogp {' '.join(names)}" in found.output.replace("Usage: ", "", 1)


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


FIT = ("--inducing", 8, "--latents", 1, "--max-iter", 3)


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


def test_fit_prints_tables_for_people(folder, tmp_path):
    target = tmp_path / "m.hetmogp"
    found = run(
        *("fit", folder / "data.parquet", "--inputs", "t", "--output", "height:gaussian"),
        *("--model", target, "--kernel", "matern52", *FIT),
    )
    assert found.exit_code == 0, found.output
    for words in ("height.mean", "Matern52(t ", "correlation of the parameter", f"model: {target}"):
        assert words in found.stdout
    assert not found.stdout.startswith("hetmogp:")
    assert type(hm.load(target).kernels_[0]) is hm.Matern52


def test_score_agrees_with_the_model(model, folder):
    found = run("score", model["model"], folder / "data.csv", "--json")
    table = pd.read_csv(folder / "data.csv")
    expected = hm.load(model["model"]).nlpd(table, table)
    scores = json.loads(found.stdout)
    assert {name: row["nlpd"] for name, row in scores.items()} == pytest.approx(expected)
    assert scores["cases"]["values"] == N - 11
    assert scores["cases"]["accuracy"] is None
    assert 0.7 < scores["height"]["coverage"] <= 1.0
    text = run("score", model["model"], folder / "data.csv").stdout.splitlines()
    assert len({len(line) for line in text}) == 1  # aligned


def test_predict_on_a_grid_and_at_a_table(model, folder, tmp_path):
    fitted = hm.load(model["model"])
    found = run("predict", model["model"], "--grid", 5, "--outputs", "height", "--interval", 0.5)
    grid = pd.read_csv(pd.io.common.StringIO(found.stdout))
    assert list(grid.columns) == ["t", *(f"height_{c}" for c in ("mean", "std", "lower", "upper"))]
    np.testing.assert_allclose(grid["t"], np.linspace(*fitted.input_range_[:, 0], 5))
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


def test_outputs_without_a_likelihood_are_discovered(folder, tmp_path):
    found = run(
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "kind", *FIT),
        *("--model", tmp_path / "m", "--json"),
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["outputs"]["kind"]["likelihood"].startswith("Categorical")


def test_an_interrupted_fit_is_saved_and_says_so(folder, tmp_path, monkeypatch):
    from hetmogp.fitting import run as loop

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.vem, "step", stop)
    found = run(
        *("fit", folder / "data.csv", "--inputs", "t", "--output", "height:gaussian", *FIT),
        *("--model", tmp_path / "m"),
    )
    assert found.exit_code == 130
    assert "warning: interrupted" in found.stderr
    assert hm.load(tmp_path / "m").interrupted_


# -- when something is wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "NONE", "--inputs", "t"], "there is no file"),
        (["fit", "FOLDER", "--inputs", "t"], "is a folder"),
        (["fit", "MODEL", "--inputs", "t"], "as a table"),
        (["fit", "BINARY", "--inputs", "t"], "as a table"),
        (["fit", "HEADER", "--inputs", "t"], "has no rows"),
        (["fit", "DATA", "--inputs", "time"], "has no column 'time'; it has t, height"),
        (["fit", "DATA", "--inputs", "t", "--output", "weight:gaussian"], "no column 'weight'"),
        (["fit", "DATA", "--inputs", "t", "--output", "t:gaussian"], "as an input and as an out"),
        (["fit", "DATA", "--inputs", "t", "--output", "height:gauss"], "no likelihood 'gauss'"),
        (["fit", "DATA", "--inputs", "t", "--output", "height:poisson"], "'height', row 0"),
        (["fit", "DATA", "--inputs", "t", "--output", "kind:gaussian"], "'early' is not a Gauss"),
        (["fit", "DATA", "--inputs", "cases", "--output", "height:gaussian"], "row 10, column"),
        (["fit", "DATA", "--inputs", "t", "--model", "NONE/m"], "cannot write"),
        (["fit", "DATA", "--inputs", "t", "--model", "FOLDER"], "it is a folder"),
        (["fit", "DATA", "--inputs", "t", "--kernel", "rbv"], "no kernel 'rbv'"),
        (["predict", "NONE", "DATA"], "does not exist"),
        (["predict", "DATA", "DATA"], "not a hetmogp model"),
        (["predict", "MODEL"], "either a file with inputs or --grid"),
        (["predict", "MODEL", "OTHER"], "has no column 't'; the model was fitted on ['t']"),
        (["predict", "MODEL", "DATA", "--outputs", "depth"], "no output 'depth'"),
        (["predict", "MODEL", "DATA", "--out", "NONE/p.csv"], "cannot write"),
        (["score", "MODEL", "OTHER"], "column 't'"),
        (["report", "MODEL", "--out", "NONE/r.html"], "cannot write"),
        (["report", "MODEL", "--data", "OTHER"], "column 't'"),
        (["demo", "--out", "DATA/demo"], "cannot write to"),
    ],
)
def test_trouble_is_one_clear_line(model, folder, tmp_path, arguments, message):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "header.csv").write_text("t,height\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    places = {
        "DATA": folder / "data.csv",
        "MODEL": model["model"],
        "FOLDER": folder,
        "NONE": tmp_path / "none",
        "OTHER": tmp_path / "other.csv",
        "HEADER": tmp_path / "header.csv",
        "BINARY": tmp_path / "binary.csv",
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
    assert set(typer.main.get_command(app).commands) == set(COMMANDS)


COUNT_HITS = """
import jax, numpy as np
from hetmogp.cli.application import _remember_compilations
_remember_compilations()
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event.endswith("cache_hits")))
import hetmogp as hm
x = np.linspace(0.0, 1.0, 30)
hm.HetMOGP([hm.Gaussian()], inducing=5, latents=1, max_iter=1, progress=False).fit(x, np.sin(6 * x))
print(sum(hits), jax.config.jax_compilation_cache_dir)
"""


def test_a_second_run_of_the_command_line_compiles_nothing_large_again(tmp_path):
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COUNT_HITS],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        hits, folder = done.stdout.split()
        assert folder == str(tmp_path / "hetmogp" / "xla")
        found.append(int(hits))
    assert found[0] == 0
    assert found[1] >= 2  # the E-step and the M-step at least
