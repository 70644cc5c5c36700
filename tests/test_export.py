"""A model that was exported, run without the package, against `predict`."""

import json
import subprocess
import sys
from pathlib import Path

import flatbuffers
import numpy as np
import pandas as pd
import pytest

import hetmogp as hm

N = 40
LEVELS = (0.05, 0.5, 0.95)
ALONE = """
import json, sys
sys.path[:0] = sys.argv[1:]
from weather.predictor import predict
found = predict(json.load(sys.stdin))
assert not {"hetmogp", "pandas", "equinox"} & set(sys.modules)
print(json.dumps(found, default=lambda one: one.tolist()))
"""


@pytest.fixture(scope="module")
def weather():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 5.0, N))
    site = rng.choice(["hill", "valley"], N)
    f = np.sin(t) + (site == "hill")
    X = pd.DataFrame({"day": pd.Timestamp("2024-05-31") + pd.to_timedelta(t, "D"), "site": site})
    Y = pd.DataFrame(
        {
            "rain": np.where(rng.uniform(size=N) < 0.4, 0.0, np.exp(f)),
            "storms": rng.poisson(np.exp(f)),
            "sky": rng.choice(["clear", "grey", "fog"], N),
        }
    )
    kinds = {
        "rain": hm.Hurdle(hm.LogNormal()),
        "storms": hm.Poisson(),
        "sky": hm.Categorical(),
    }
    options = {"latents": 2, "inducing": 8, "max_iter": 1, "progress": False}
    return hm.HetMOGP(kinds, **options).fit(X, Y), X


def test_the_program_alone_predicts_what_the_model_does(weather, tmp_path):
    model, X = weather
    assert model.export(tmp_path / "weather", quantiles=LEVELS) == tmp_path / "weather"
    new = pd.concat([X] * 2)[: N + 30].reset_index(drop=True)  # more rows than one call takes
    table = {"day": new["day"].astype(str).tolist(), "site": new["site"].tolist()}
    ran = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            ALONE,
            str(tmp_path),
            str(Path(flatbuffers.__file__).parents[1]),
        ],
        input=json.dumps(table),
        capture_output=True,
        text=True,
        check=True,
    )
    found, expected = json.loads(ran.stdout), model.predict(new)
    for name in ("rain", "storms"):
        one = expected[name]
        np.testing.assert_allclose(found[name]["mean"], one.mean, rtol=1e-9)
        np.testing.assert_allclose(found[name]["std"], one.std, rtol=1e-9)
        quantiles = one.quantile(LEVELS)
        np.testing.assert_allclose(found[name]["quantiles"], quantiles, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        found["sky"]["probabilities"], expected["sky"].probabilities, atol=1e-9
    )
    assert found["sky"]["class"] == expected.means()["sky"].tolist()


def test_what_cannot_be_exported_is_refused(weather, tmp_path):
    model, _ = weather
    with pytest.raises(ValueError, match="no output 'snow'"):
        model.export(tmp_path / "m", outputs="snow")
    with pytest.raises(ValueError, match="strictly between 0 and 1, not 1"):
        model.export(tmp_path / "m", quantiles=[1])
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="an exported model is a folder"):
        model.export(tmp_path / "file")


def test_unknown_inputs_are_refused_by_row(weather, tmp_path):
    model, X = weather
    folder = model.export(tmp_path / "m", outputs="storms", quantiles=[])
    from hetmogp.export.predictor import Predictor

    small = Predictor(folder)
    table = {"day": X["day"].to_numpy()[:3], "site": ["hill", "sea", "hill"]}
    with pytest.raises(ValueError, match="column 'site', row 1: 'sea'"):
        small.predict(table)
    with pytest.raises(KeyError, match="no column 'site'"):
        small.predict({"day": table["day"]})
    table["site"] = ["hill"] * 3
    assert small.predict(table)["storms"].keys() == {"mean", "std"}


def test_parts_of_two_exports_are_told(weather, tmp_path):
    model, _ = weather
    from hetmogp.export.predictor import PROGRAM, Predictor

    one, two = (model.export(tmp_path / n, outputs=n, quantiles=[]) for n in ("storms", "sky"))
    (one / PROGRAM).write_bytes((two / PROGRAM).read_bytes())
    with pytest.raises(ValueError, match="parts of two exports"):
        Predictor(one)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_label_is_no_new_level(missing):
    from hetmogp.export.predictor import _encoded

    column = {"name": "who", "kind": "category", "levels": ["a", "b"], "open": True}
    np.testing.assert_array_equal(_encoded(column, {"who": ["b", "new"]}), [1.0, 2.0])
    with pytest.raises(ValueError, match=r"column 'who', row 1: .* is not a category"):
        _encoded(column, {"who": ["b", missing]})
