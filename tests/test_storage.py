"""Saved models: the same predictions to the last bit, and nothing but a model out of any file."""

import json
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

import hetmogp as hm
from hetmogp import files
from hetmogp.storage import ModelFileError

N = 40
x = np.linspace(0.0, 1.0, N)
rng = np.random.default_rng(0)


class Rayleigh(hm.Likelihood):
    links = {"scale": hm.exp}
    support = "a number > 0"

    def valid(self, y):
        return y > 0

    def log_prob(self, y, f):
        (scale,) = self.parameters(f)
        return jnp.log(y) - 2 * jnp.log(scale) - 0.5 * (y / scale) ** 2

    def mean(self, f):
        return jnp.sqrt(jnp.pi / 2) * self.parameters(f)[0]

    def variance(self, f):
        return (2 - jnp.pi / 2) * self.parameters(f)[0] ** 2


FRAME = pd.DataFrame(
    {
        "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N), "h"),
        "site": np.where(np.arange(N) % 2, "north", "süd"),
        "u": x,
    }
)
VALUES = pd.DataFrame(
    {
        "real": np.sin(6 * x),
        "yes": (x > 0.4).astype(float),
        "count": rng.poisson(3, N),
        "people": 2.0 + x,
        "grade": np.where(x > 0.6, "high", np.where(x > 0.3, "mid", "low")),
        "kind": rng.integers(0, 3, N),
        "life": rng.weibull(1.5, N) + 0.01,
        "died": rng.integers(0, 2, N),
        "gumbel": rng.gumbel(size=N),
        "w": 1.0,
    }
)
VALUES.loc[10:20, "yes"] = np.nan
EVERY = {
    "real": hm.StudentT(df=5.0),
    "yes": hm.Bernoulli("probit", weight="w"),
    "count": hm.NegativeBinomial(exposure="people"),
    "grade": hm.Ordinal(["low", "mid", "high"]),
    "kind": hm.Categorical(),
    "life": hm.Weibull(event="died", latent=("scale", "shape")),
    "gumbel": hm.from_distribution(
        dist.Gumbel, {"loc": "identity", "scale": "exp"}, latent=("loc",)
    ),
}


@pytest.fixture(scope="module")
def everything():
    kernel = (
        hm.RBF(active_dims="u") * hm.Category()
        + hm.Linear(active_dims="when")
        + hm.Periodic(period=pd.Timedelta("1D"), active_dims="when")
    )
    return hm.HetMOGP(
        EVERY,
        kernel=[kernel, hm.RationalQuadratic(ard=False)],
        latents=2,
        rank=[2, 1],
        inducing=8,
        max_iter=1,
        tol=0.1,
        progress=False,
    ).fit(FRAME, VALUES)


@pytest.fixture(scope="module")
def small():
    return hm.HetMOGP([hm.Gaussian()], latents=1, inducing=5, max_iter=1, progress=False).fit(
        x, np.sin(6 * x)
    )


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_round_trip_predicts_the_same_to_the_last_bit(everything, tmp_path):
    path = tmp_path / "every.hetmogp"
    everything.save(path)
    again = hm.load(path)
    assert everything.nlpd(FRAME, VALUES) == again.nlpd(FRAME, VALUES)
    given = {"people": 3.0}
    for model in (everything, again):
        pred = model.predict(FRAME, ["count", "gumbel"], given)
        found = [pred["count"].mean, pred["gumbel"].variance, *model.parameter_functions(FRAME)]
        if model is everything:
            expected = found
    for mine, other in zip(expected, found, strict=True):
        same(mine, other)
    for name in ("weights_", "constants_", "coregionalisation_", "history_", "input_range_"):
        same(getattr(everything, name), getattr(again, name))
    for name in (
        *("elbo_", "converged_", "n_iter_", "method_", "fit_seconds_", "n_observed_"),
        *("parameter_names_", "output_names_", "columns_", "n_features_in_"),
    ):
        assert getattr(everything, name) == getattr(again, name)
    assert list(map(repr, again.kernels_)) == list(map(repr, everything.kernels_))
    assert list(again.feature_names_in_) == ["when", "site", "u"]
    assert os.listdir(tmp_path) == ["every.hetmogp"]  # nothing beside it


def test_a_loaded_model_can_be_saved_again_as_it_was(everything, tmp_path):
    everything.save(tmp_path / "a")
    hm.load(tmp_path / "a").save(tmp_path / "b")
    found = []
    for path in (tmp_path / "a", tmp_path / "b"):
        with safe_open(path, framework="numpy") as file:
            found.append(file.metadata())
    assert found[0] == found[1]  # with the digest of all the rest


def test_a_loaded_model_is_an_estimator_with_its_options(everything, tmp_path):
    everything.save(tmp_path / "m")
    again = clone(hm.load(tmp_path / "m"))
    assert repr(again.likelihoods["count"]) == repr(EVERY["count"])
    assert again.likelihoods["kind"].classes == (0, 1, 2)
    options = everything.get_params()
    for name, value in again.get_params().items():
        if name not in ("likelihoods", "kernel"):
            assert value == options[name], name
    assert repr(again.kernel) == repr(everything.kernel)
    with pytest.raises(Exception, match="not fitted"):
        again.predict(FRAME)


def test_another_process_without_the_data_predicts_the_same(small, tmp_path):
    path = tmp_path / "m.hetmogp"
    small.save(path)
    code = (
        "import sys, hetmogp as hm; m = hm.load(sys.argv[1]);"
        "print(m.predict([0.25])['y0'].mean[0].hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True,
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == float(small.predict([0.25])["y0"].mean[0]).hex()


@pytest.mark.parametrize("inducing", [x[:4], [x[:4, None], x[4:8, None]]], ids=["one", "each"])
def test_inducing_inputs_and_float32_come_back(tmp_path, inducing):
    model = hm.HetMOGP(
        [hm.HetGaussian()], latents=2, inducing=inducing, learn_inducing=False, dtype="float32",
        max_iter=1, progress=False,
    ).fit(x, np.sin(6 * x))  # fmt: skip
    model.save(tmp_path / "m")
    again = hm.load(tmp_path / "m")
    same(again.predict(x)["y0"].mean, model.predict(x)["y0"].mean)
    assert again.predict(x)["y0"].mean.dtype == np.float32
    same(np.squeeze(again.inducing), np.squeeze(inducing))


def test_a_dates_and_labels_frame_may_place_inducing_inputs(tmp_path):
    model = hm.HetMOGP({"real": hm.Gaussian()}, inducing=FRAME[::8], max_iter=0, progress=False)
    model.fit(FRAME, VALUES).save(tmp_path / "m")
    again = hm.load(tmp_path / "m")
    assert again.inducing["site"].tolist() == FRAME["site"][::8].tolist()
    again.fit(FRAME, VALUES)


# -- classes of one's own --------------------------------------------------------------------------


class Bump(hm.RBF):
    """A kernel that is not the package's."""


def test_custom_classes_are_named_and_passed(tmp_path):
    model = hm.HetMOGP(
        {"wind": Rayleigh()}, kernel=Bump(), latents=1, inducing=5, max_iter=1, progress=False
    ).fit(x, {"wind": 1.0 + x})
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"output 'wind' is a Rayleigh.*custom=\[Rayleigh\]"):
        hm.load(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"Bump.*custom=\[Bump\]"):
        hm.load(tmp_path / "m", custom=[Rayleigh])
    again = hm.load(tmp_path / "m", custom=[Rayleigh, Bump])
    same(again.predict(x)["wind"].mean, model.predict(x)["wind"].mean)


def test_what_a_file_cannot_hold_is_said_when_saving(tmp_path, small):
    twice = hm.Link("twice", lambda f: 2 * f, lambda v: v / 2)
    for likelihood, message in (
        (
            hm.from_distribution(dist.Normal, {"loc": twice, "scale": "exp"}),
            "subclass of Likelihood",
        ),
        (hm.Categorical([(0, 1), (1, 0)]), "text, numbers"),
    ):
        y = [(0, 1), (1, 0)] * (N // 2) if "text" in message else np.sin(x)
        model = hm.HetMOGP({"y": likelihood}, latents=1, max_iter=0, progress=False)
        with pytest.raises(TypeError, match=message):
            model.fit(x, {"y": pd.Series(y)}).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="folder"):
        small.save(tmp_path / "folder" / "m")


def test_a_model_that_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        hm.HetMOGP([hm.Gaussian()]).save(tmp_path / "m")


# -- files that are not models ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.hetmogp"
    small.save(path)
    return path.read_bytes()


def refused(tmp_path, content, match="m.hetmogp"):
    (tmp_path / "m.hetmogp").write_bytes(content)
    with pytest.raises(ModelFileError, match=match):
        hm.load(tmp_path / "m.hetmogp")


def test_a_file_cut_anywhere_is_refused(saved, tmp_path):
    for end in (0, 1, 7, 8, 9, 100, len(saved) // 2, len(saved) - 1):
        refused(tmp_path, saved[:end])
    refused(tmp_path, saved + b"\0")


def test_any_flipped_bit_is_noticed(saved, tmp_path):
    generator = np.random.default_rng(1)
    header = 8 + int.from_bytes(saved[:8], "little")
    places = {
        *range(8),
        *generator.integers(8, header, 150),
        *generator.integers(header, len(saved), 50),
    }
    for place in places:
        damaged = bytearray(saved)
        damaged[place] ^= 1 << int(generator.integers(8))
        refused(tmp_path, bytes(damaged))


def test_an_oversized_header_is_refused_before_it_is_read(saved, tmp_path):
    for header in (2**62, 2**31, len(saved)):
        refused(tmp_path, header.to_bytes(8, "little") + saved[8:], "cut short")
    with open(tmp_path / "m.hetmogp", "wb") as file:  # a sparse file of 8 GB that takes no disk
        file.write((2**32).to_bytes(8, "little"))
        file.truncate(2**33)
    with pytest.raises(ModelFileError, match="cut short"):
        hm.load(tmp_path / "m.hetmogp")


def rewritten(saved, tmp_path, change, digest=True):
    """The file with its description changed, by default with a digest that is right again."""
    path = tmp_path / "m.hetmogp"
    path.write_bytes(saved)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(metadata, tensors)
    if digest:
        metadata["sha256"] = files._digest(metadata, "model", tensors)
    save_file(tensors, path, metadata)
    return path


def test_a_later_version_says_to_upgrade(saved, tmp_path):
    path = rewritten(saved, tmp_path, lambda m, _: m.update(version="2"))
    with pytest.raises(ModelFileError, match="upgrade hetmogp"):
        hm.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04" + b"zip" * 99, b"lat,lon\n1,2\n" * 9, b"\x80\x04\x95pickle" * 9]
)
def test_foreign_files_are_refused(tmp_path, content):
    refused(tmp_path, content)


def test_safetensors_of_others_and_missing_files(tmp_path):
    save_file({"a": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelFileError, match="not a hetmogp model"):
        hm.load(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        hm.load(tmp_path / "none.hetmogp")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        hm.load(tmp_path)


def changed(edit):
    def change(metadata, tensors):
        facts = json.loads(metadata["model"])
        edit(facts, tensors)
        metadata["model"] = json.dumps(facts)

    return change


@pytest.mark.parametrize(
    "edit",
    [
        lambda f, t: f.update(ranks=[10**12]),
        lambda f, t: f.update(ranks=[1, 1]),
        lambda f, t: f.update(kernels=[]),
        lambda f, t: f["kernels"][0].update(kernel="Kernel"),
        lambda f, t: f["kernels"][0].update(kernel="suited"),
        lambda f, t: f["outputs"][0]["likelihood"].update(likelihood="os.system"),
        lambda f, t: f["outputs"][0]["likelihood"].update(likelihood="from_distribution"),
        lambda f, t: f["outputs"][0]["likelihood"].update(
            likelihood="FromDistribution", options={"distribution": "constraints", "links": {}}
        ),
        lambda f, t: f["outputs"][0]["likelihood"]["options"].update(scale=-1.0),
        lambda f, t: f.pop("outputs"),
        lambda f, t: f["options"].update(unknown=1),
        lambda f, t: t.pop("q.mean"),
        lambda f, t: t.update({"parameters.extra": np.zeros(1)}),
        lambda f, t: t.update({"q.mean": t["q.mean"][:, :-1].copy()}),
        lambda f, t: t.update({"q.mean": t["q.mean"] * np.nan}),
        lambda f, t: t.update({"scaling.scale": t["scaling.scale"].astype(int)}),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(saved, tmp_path, edit):
    path = rewritten(saved, tmp_path, changed(edit))
    with pytest.raises(ModelFileError, match=r"m\.hetmogp"):
        hm.load(path)


def test_deep_nesting_is_refused(saved, tmp_path):
    for text in ("[" * 100_000, '{"a":' * 100_000):
        path = rewritten(saved, tmp_path, lambda m, _, text=text: m.update(model=text))
        with pytest.raises(ModelFileError, match="describes no model"):
            hm.load(path)


def test_a_wrong_digest_is_damage(saved, tmp_path):
    edit = changed(lambda f, t: f["fit"].update(elbo=0.0))
    path = rewritten(saved, tmp_path, edit, digest=False)
    with pytest.raises(ModelFileError, match="checksum"):
        hm.load(path)


def test_an_interrupted_write_keeps_the_file_that_was_there(small, saved, tmp_path, monkeypatch):
    path = tmp_path / "m.hetmogp"
    path.write_bytes(saved)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        small.save(path)
    assert path.read_bytes() == saved
    assert os.listdir(tmp_path) == ["m.hetmogp"]
