"""Saved models: the same predictions to the last bit, and nothing but a model out of any file."""

import copy
import datetime
import decimal
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

import hetmogp as hm
from hetmogp import files
from hetmogp.storage import VERSION, ModelFileError, refuse_unsaveable

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
        + hm.Periodic(period=pd.Timedelta("1D") / 3, active_dims="when", fixed=("period",))
    )
    return hm.HetMOGP(
        EVERY,
        kernel=[kernel, hm.RationalQuadratic(ard=False)],
        latents=2,
        rank=[2, 1],
        inducing=8,
        max_iter=0,  # q(u) alone is quick, and all that is saved is there
        progress=False,
    ).fit(FRAME, VALUES)


@pytest.fixture(scope="module")
def small():
    return hm.HetMOGP([hm.Gaussian()], latents=1, inducing=5, max_iter=0, progress=False).fit(
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
    held = [model.kernels_[0].kernels[2] for model in (everything, again)]
    assert [kernel.period[0] for kernel in held] == [
        pd.Timedelta("1D") / 3 / pd.Timedelta("1D")
    ] * 2
    assert [kernel.fixed for kernel in held] == [("period",)] * 2
    assert list(again.feature_names_in_) == ["when", "site", "u"]
    assert os.listdir(tmp_path) == ["every.hetmogp"]  # nothing beside it


OLD = Path(__file__).parent / "saved"  # models of format 1, with what they predicted then


def as_before(model, facts, rtol):
    """Whether a model says what it said when it was saved."""
    X, given = facts["X"], facts["given"]
    if isinstance(X, dict):
        X = pd.DataFrame(X)
        X = X.assign(day=pd.to_datetime(X["day"])) if "day" in X else X
    pred = model.predict(X, given=given)
    assert list(pred) == list(facts["outputs"])
    found = [*model.parameter_functions(X), *model.latent_functions(X), model.elbo_]
    expected = [facts[name] for name in ("f", "cov", "u", "v", "elbo")]
    for name, then in facts["outputs"].items():
        for what, values in then.items():
            one = pred[name]
            found.append(one.quantile([0.1, 0.9]) if what == "quantile" else getattr(one, what))
            expected.append(values)
    for now, then in zip(found, expected, strict=True):
        if np.asarray(then).dtype.kind == "U":
            assert np.asarray(now).tolist() == then
        else:
            np.testing.assert_allclose(now, then, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["full_batch", "mini_batches", "single_precision"])
def test_models_of_format_1_are_read_and_saved_as_format_2(tmp_path, name):
    facts = json.loads((OLD / f"{name}.json").read_text())
    rtol = 1e-4 if name == "single_precision" else 1e-7
    path = tmp_path / "again.hetmogp"
    old = hm.load(OLD / f"{name}.hetmogp")
    assert old.q == "factorised"
    as_before(old, facts, rtol)
    old.save(path)
    for file, version in ((OLD / f"{name}.hetmogp", "1"), (path, "2")):
        with safe_open(file, framework="numpy") as held:
            assert held.metadata()["version"] == version
    as_before(hm.load(path), facts, rtol)


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


LEAVES = st.sampled_from(
    [
        hm.RBF(),
        hm.Matern32(lengthscale=0.3, ard=False),
        hm.RationalQuadratic(active_dims=(0,)),
        hm.Periodic(period=0.5, active_dims="a"),
        hm.Linear(active_dims=["b"]),
    ]
)
KERNELS = st.recursive(
    LEAVES,
    lambda parts: st.builds(
        lambda a, b, plus: a + b if plus else a * b, parts, parts, st.booleans()
    ),
    max_leaves=4,
)
OUTPUTS = [
    st.tuples(st.just(name), st.sampled_from(likelihoods))
    for name, likelihoods in {
        "real": [hm.Gaussian(), hm.HetGaussian(), hm.StudentT(df=4.0, weight="w")],
        "count": [hm.Poisson(exposure="w"), hm.NegativeBinomial(), hm.Binomial(9)],
        "kind": [hm.Categorical(), hm.Ordinal(["v", "u"])],
    }.items()
]
OPTIONS = st.fixed_dictionaries(
    {
        "kernel": st.none() | KERNELS | st.lists(st.none() | KERNELS, min_size=2, max_size=2),
        "rank": st.sampled_from([1, [2, 1]]),
        "inducing": st.sampled_from([None, 3, np.zeros((1, 2))]),
        "dtype": st.sampled_from(["float64", "float32"]),
        "prior": st.sampled_from(["lmc", "lmc", "independent"]),
        "method": st.sampled_from(["vem", "svi"]),
        "weight_scale": st.none() | st.floats(0.5, 2.0),
        "seed": st.integers(0, 2**31 - 1),
        "learn_inducing": st.booleans(),
        "max_iter": st.integers(0, 1),
    }
)


@settings(deadline=None, max_examples=3, derandomize=True)
@given(st.one_of(OUTPUTS), OPTIONS)
def test_a_round_trip_of_any_model_predicts_the_same(tmp_path_factory, output, options):
    X = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0) % 3})
    Y = pd.DataFrame({"real": np.sin(X["a"]), "count": np.arange(8) % 4, "w": 1.0 + X["b"]})
    Y["kind"] = ["u", "v"] * 4
    if options["prior"] == "independent":
        options |= {"kernel": None, "inducing": 3}  # one kernel for each parameter function
    model = hm.HetMOGP(dict([output]), latents=2, **options, progress=False).fit(X, Y)
    path = tmp_path_factory.mktemp("any") / "m"
    model.save(path)
    again = hm.load(path)
    assert repr(again.get_params()) == repr(model.get_params() | {"likelihoods": again.likelihoods})
    for name, then in model.predict(X).items():
        now = again.predict(X)[name]
        for moment in ("probabilities",) if name == "kind" else ("mean", "std"):
            same(getattr(now, moment), getattr(then, moment))
    again.save(path)
    hm.load(path)


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
        max_iter=0, progress=False,
    ).fit(x, np.sin(6 * x))  # fmt: skip
    model.save(tmp_path / "m")
    again = hm.load(tmp_path / "m")
    same(again.predict(x)["y0"].mean, model.predict(x)["y0"].mean)
    assert again.predict(x)["y0"].mean.dtype == np.float32
    same(np.squeeze(again.inducing), np.squeeze(inducing))


def test_a_dates_and_labels_frame_may_place_inducing_inputs(tmp_path):
    model = hm.HetMOGP(
        {"real": hm.Gaussian()}, latents=1, inducing=FRAME[::8], max_iter=0, progress=False
    )
    model.fit(FRAME, VALUES).save(tmp_path / "m")
    again = hm.load(tmp_path / "m")
    assert again.inducing["site"].tolist() == FRAME["site"][::8].tolist()
    again.fit(FRAME, VALUES)


# -- classes of one's own --------------------------------------------------------------------------


class Bump(hm.RBF):
    """A kernel that is not the package's."""


def test_custom_classes_are_named_and_passed(tmp_path):
    model = hm.HetMOGP(
        {"wind": Rayleigh()}, kernel=Bump(), latents=1, inducing=5, max_iter=0, progress=False
    ).fit(x, {"wind": 1.0 + x})
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"output 'wind' is a Rayleigh.*custom=\[Rayleigh\]"):
        hm.load(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"Bump.*custom=\[Bump\]"):
        hm.load(tmp_path / "m", custom=[Rayleigh])
    again = hm.load(tmp_path / "m", custom=[Rayleigh, Bump])
    same(again.predict(x)["wind"].mean, model.predict(x)["wind"].mean)


class Fussy(Rayleigh):
    """Whose constructor has come to want more since the model was saved."""

    def __init__(self, **options):
        raise RuntimeError("no longer like this\nat all")


def test_a_class_that_cannot_be_made_any_more_is_named(tmp_path):
    model = hm.HetMOGP({"wind": Rayleigh()}, latents=1, inducing=5, max_iter=0, progress=False)
    model.fit(x, {"wind": 1.0 + x}).save(tmp_path / "m")
    fussy = type("Rayleigh", (Fussy,), {})
    words = r"/m: output 'wind', Rayleigh, cannot be made: no longer like this at all$"
    with pytest.raises(ModelFileError, match=words) as caught:
        hm.load(tmp_path / "m", custom=[fussy])
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_options_of_numpy_are_saved_as_python_has_them(tmp_path):
    model = hm.HetMOGP(
        [hm.Gaussian()], kernel=[hm.Linear(centre=[0.5])], latents=np.int64(1), rank=[np.int64(2)],
        inducing=np.int64(4), tol=np.float64(0.1), prune=np.bool_(True), max_iter=0, progress=False,
    ).fit(x, x)  # fmt: skip
    model.save(tmp_path / "m")
    again = hm.load(tmp_path / "m")
    assert (again.rank, again.inducing, again.tol, again.prune) == ([2], 4, 0.1, True)
    same(again.predict(x)["y0"].mean, model.predict(x)["y0"].mean)


def test_options_that_were_made_wrong_after_the_fit_are_not_saved(small, tmp_path):
    wrong = copy.copy(small).set_params(latents="many")
    with pytest.raises(ValueError, match="latents must be a whole number"):
        wrong.save(tmp_path / "m")


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
        model = hm.HetMOGP({"y": likelihood}, latents=1, inducing=5, max_iter=0, progress=False)
        with pytest.raises(TypeError, match=message):
            model.fit(x, {"y": pd.Series(y)}).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="folder"):
        small.save(tmp_path / "folder" / "m")


DATES = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
PRICES = [decimal.Decimal("1.5"), decimal.Decimal("2.5")]


@pytest.mark.parametrize("labels", [DATES, PRICES, [b"a", b"b"], [(0, 1), (1, 0)]])
def test_what_a_file_cannot_hold_can_be_told_before_the_fit(labels):
    X = pd.DataFrame({"u": x})
    y = pd.Series(labels * (N // 2))
    for likelihood in (hm.Categorical(), hm.Ordinal(labels), "auto"):
        for values in (y, y.astype("category")):
            if likelihood == "auto" and values is y and labels in (DATES, [(0, 1), (1, 0)]):
                continue  # which are left out
            with pytest.raises(TypeError, match=r"output 'y' .*a file can hold text, numbers"):
                refuse_unsaveable({"y": likelihood}, X, pd.DataFrame({"y": values}))
    levels = X.assign(site=pd.Categorical(y))
    with pytest.raises(TypeError, match=r"input 'site' has the level .*a file can hold text"):
        refuse_unsaveable({"y": hm.Gaussian()}, levels, pd.DataFrame({"y": x}))


def test_what_a_file_can_hold_is_let_through():
    refuse_unsaveable(EVERY, FRAME, VALUES)
    refuse_unsaveable(dict.fromkeys(VALUES.columns, "auto"), FRAME, VALUES)
    prices = pd.DataFrame({"y": map(decimal.Decimal, x), "when": DATES * (N // 2)})
    refuse_unsaveable({"y": "auto", "when": "auto"}, FRAME, prices)  # numbers, and left out
    one_class = pd.DataFrame({"y": ["a"] * N})  # in the first of many files, say
    refuse_unsaveable({"y": hm.Categorical()}, FRAME, one_class)
    foreign = hm.from_distribution(type("Normal", (dist.Normal,), {}))
    with pytest.raises(TypeError, match="subclass of Likelihood"):
        refuse_unsaveable({"real": foreign}, FRAME, VALUES)


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
    path = rewritten(saved, tmp_path, lambda m, _: m.update(version=str(VERSION + 1)))
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


def put(*path, value):
    """A change of one fact."""

    def edit(facts, _):
        *above, last = path
        for key in above:
            facts = facts[key]
        facts[last] = value

    return edit


def shorter_factorised_mean(facts, tensors):
    """One latent's q is the same whether latents are coupled or not, but for its name."""
    facts["q"] = "factorised"
    tensors["q.mean"] = tensors["q.mean"][:, :4].copy()


LIKELIHOOD = ("outputs", 0, "likelihood")
KERNEL = ("kernels", 0)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (put("ranks", value=[10**12]), r"weights has the shape \(1, 1\), not \(1, 10{12}\)"),
        (put("ranks", value=[1, 1]), "2 ranks for 1 kernels"),
        (put("ranks", value=[0]), r"ranks\[0\] is 0; it should be a whole number >= 1"),
        (put("ranks", value=[-1]), "is -1; it should be"),
        (put("kernels", value=[]), "kernels is .*; it should be a list of one or more"),
        (put(*KERNEL, "kernel", value="Kernel"), "Kernel, cannot be made"),
        (put(*KERNEL, "kernel", value="suited"), "is a suited, which is not part of hetmogp"),
        (put(*KERNEL, "active_dims", value=[1]), r"uses the inputs \(1,\), and there are 1"),
        (put(*KERNEL, "active_dims", value=["x0"]), "uses the inputs"),
        (put(*KERNEL, "active_dims", value=[]), "uses the inputs"),
        (put(*KERNEL, "ard", value="yes"), "ard is 'yes'; it should be true or false"),
        (put(*KERNEL, "lengthscale", value=-1.0), "lengthscale is -1.0; it should be"),
        (put(*KERNEL, "fixed", value=["period"]), "a RBF can only fix lengthscale"),
        (put(*KERNEL, "fixed", value=[["lengthscale", [-1.0]]]), "should be a list, of each"),
        (put(*KERNEL, "fixed", value=[["lengthscale", [1.0] * 2]]), "has 2 fixed values of"),
        (put(*LIKELIHOOD, "likelihood", value="os.system"), "is not part of hetmogp"),
        (put(*LIKELIHOOD, "likelihood", value="from_distribution"), "is not part of hetmogp"),
        (put(*LIKELIHOOD, "options", "scale", value=-1.0), "scale=-1.0 is outside"),
        (put(*LIKELIHOOD, value={"likelihood": "Categorical", "options": {}}), "name its classes"),
        *(
            (
                put(
                    *LIKELIHOOD,
                    value={
                        "likelihood": "FromDistribution",
                        "options": {"distribution": name, "links": {}},
                    },
                ),
                "its distribution is not one of numpyro's",
            )
            for name in ("constraints", "Bernoulli", "__class__", "distribution", "kl_divergence")
        ),
        (lambda f, t: f.pop("outputs"), "outputs is missing"),
        (lambda f, t: f["outputs"].append(f["outputs"][0]), "'y0' is named 2 times among the outp"),
        (lambda f, t: f["inputs"].append(f["inputs"][0]), "'x0' is named 2 times among the inputs"),
        (put("outputs", 0, "name", value="global"), "called 'global'"),
        (put("outputs", 0, "name", value="\ud800"), "should be text"),
        (put("outputs", 0, "observed", value=-1), "observed is -1"),
        (put("inputs", 0, "kind", value="place"), "kind is 'place'; it should be one of number"),
        (put("inputs", 0, "kind", value="category"), "is a category with 0 levels"),
        (put("inputs", 0, "levels", value=["a"]), "is a number with 1 levels"),
        (put("inputs", 0, "levels", value=[["a"]]), "levels is"),
        (put("inputs", 0, "levels", value=["a", "a"]), "'a' is named 2 times among the levels"),
        (put("options", "unknown", value=1), "unknown"),
        (put("options", "latents", value="many"), "latents is 'many'; it should be a whole number"),
        (put("options", "seed", value=-1), "seed must be a whole number >= 0"),
        (put("options", "dtype", value="int8"), "dtype must be one of"),
        (put("options", "rank", value=0), "rank is 0"),
        (put("options", "inducing", value="tables"), "0 tables of inducing inputs"),
        (put("options", "inducing", value=-3), "inducing is -3"),
        (put("options", "prune", value="x"), "prune is 'x'; it should be true or false"),
        (put("options", "kernel", value=[1]), "should be an object"),
        (put("options", "kernel", value={"kernel": "RBF", "active_dims": ["no"]}), "uses the inp"),
        (put("fit", "jitter", value=-1e-6), "jitter is -1e-06; it should be a number from 1e-08"),
        (put("fit", "jitter", value=0.0), "jitter is 0.0"),
        (put("fit", "jitter", value=float("nan")), "NaN is not a finite number"),
        (put("fit", "elbo", value=float("inf")), "Infinity is not a finite number"),
        (put("fit", "method", value="mcmc"), "method is 'mcmc'; it should be one of vem, svi"),
        (put("fit", "n_iter", value=1.5), "n_iter is 1.5"),
        (put("q", value="diagonal"), "q is 'diagonal'; it should be one of factorised, coupled"),
        (put("prior", value="independent"), "array 'parameters.prior.mask' has no place"),
        (lambda f, t: f.pop("prior"), "prior is missing"),
        (shorter_factorised_mean, r"q.mean has the shape \(1, 4\), not \(1, 5\)"),
        (lambda f, t: t.pop("q.mean"), "array 'q.mean' is missing"),
        (lambda f, t: t.update({"parameters.extra": np.zeros(1)}), "has no place in the model"),
        (lambda f, t: t.update({"extra": np.zeros(1)}), "has no place in the model"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(saved, tmp_path, edit, words):
    path = rewritten(saved, tmp_path, changed(edit))
    with pytest.raises(ModelFileError, match=rf"(?s)m\.hetmogp.*{words}") as caught:
        hm.load(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("q.mean", lambda a: a[:, :-1], r"q.root has the shape \(1, 5, 5\), not \(1, 4, 4\)"),
        ("q.root", lambda a: np.full_like(a, np.inf), "should hold finite numbers"),
        ("parameters.prior.weights", lambda a: a * np.nan, "should hold finite numbers"),
        ("parameters.prior.mask", lambda a: a * 0.5, "should hold zeros and ones"),
        ("parameters.prior.spread", lambda a: -a, "should hold positive numbers"),
        ("parameters.prior.spread", lambda a: 0 * a, "should hold positive numbers"),
        ("parameters.prior.inducing_inputs", lambda a: a[:, :0], "1 sets of 0 inducing inputs"),
        ("parameters.prior.inducing_inputs", lambda a: a[:, :4], r"q couples 5 numbers.* with 4"),
        ("parameters.prior.inducing_inputs", lambda a: a.repeat(2, 0), "2 sets of 5"),
        ("parameters.prior.kernels.0.lengthscale", lambda a: -a, "should hold positive numbers"),
        ("parameters.prior.kernels.0.lengthscale", lambda a: a * np.nan, "positive numbers"),
        ("parameters.prior.kernels.0.lengthscale", lambda a: a.repeat(2), "be one number, or 1"),
        ("parameters.likelihoods.0.free.scale", lambda a: a * np.nan, "finite numbers"),
        ("parameters.likelihoods.0.free.scale", lambda a: a.reshape(1), r"\(1,\), not \(\)"),
        ("scaling.scale", lambda a: 0 * a, "should hold positive numbers"),
        ("scaling.scale", lambda a: np.ones(1, int), "is of int64; it should be of float64"),
        ("q.mean", lambda a: a.astype(np.float16), "is of float16"),
        ("q.mean", lambda a: a.astype(bool), "is of bool"),
        ("input_range", lambda a: a[::-1], "should hold ends in order"),
        ("input_range", lambda a: a[:1], r"\(1, 1\), not \(2, 1\)"),
        ("input_range", lambda a: a * np.nan, "should hold ends in order"),
        ("history", lambda a: a * np.nan, "should hold finite numbers"),
    ],
)
def test_arrays_that_make_no_model_are_refused(saved, tmp_path, name, change, words):
    path = rewritten(
        saved, tmp_path, lambda _, t: t.update({name: np.array(change(t[name]), order="C")})
    )
    with pytest.raises(ModelFileError, match=rf"m\.hetmogp.*{words}"):
        hm.load(path)


def test_a_date_that_no_calendar_has_is_refused(tmp_path):
    model = hm.HetMOGP({"real": hm.Gaussian()}, latents=1, inducing=4, max_iter=0, progress=False)
    model.fit(FRAME[["when"]], VALUES).save(tmp_path / "m")
    facts, tensors = files.read_numbers(tmp_path / "m", "model", VERSION)
    tensors["input_range"] = tensors["input_range"] + np.array([[0.0], [1e15]])
    files.write_numbers(tmp_path / "m", "model", VERSION, facts, tensors)
    with pytest.raises(ModelFileError, match="describes no model"):
        hm.load(tmp_path / "m")


def test_kernels_within_kernels_end_somewhere(saved, tmp_path):
    def nested(deep):
        kernel = {"kernel": "RBF", "lengthscale": 1.0}
        for _ in range(deep):
            kernel = {"kernel": "Product", "kernels": [kernel]}
        return kernel

    for deep in (40, 400):
        for place in (KERNEL, ("options", "kernel")):
            path = rewritten(saved, tmp_path, changed(put(*place, value=nested(deep))))
            with pytest.raises(ModelFileError, match="nested more than 32 deep"):
                hm.load(path)
    hm.load(rewritten(saved, tmp_path, changed(put("options", "kernel", value=nested(20)))))


# -- any change of any fact, of any array ----------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A small model with something of everything: its folder, description, arrays, predictions."""
    X, Y = FRAME[::3].reset_index(drop=True), VALUES[::3].reset_index(drop=True)
    kernel = hm.RBF(active_dims="u") * hm.Category() + hm.Linear(active_dims="when")
    periodic = hm.Periodic(period=0.5, active_dims="when", fixed=("period",))
    likelihoods = {name: EVERY[name] for name in ("count", "grade", "gumbel")}
    model = hm.HetMOGP(
        likelihoods,
        kernel=[kernel + periodic, hm.RationalQuadratic(ard=False)],
        latents=2,
        rank=[2, 1],
        inducing=X[::3],
        max_iter=0,
        progress=False,
    ).fit(X, Y)
    folder = tmp_path_factory.mktemp("mixed")
    model.save(folder / "m")
    return folder, *files.read_numbers(folder / "m", "model", VERSION)


def places(value, here=()):
    """Where everything in a description is."""
    yield here
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*here, key))


def loads_only_models(folder, facts, tensors, at=None):
    """Loading takes a moment, and ends with an error of one line or with a model that predicts."""
    path = folder / "changed"
    files.write_numbers(path, "model", VERSION, facts, tensors)
    began, model, said = time.perf_counter(), None, "one line"
    try:
        model = hm.load(path)
    except ModelFileError as error:
        said = str(error)
    assert time.perf_counter() - began < 5.0
    assert len(said.splitlines()) == 1
    if model is not None:
        found = list(model.parameter_functions(model.grid(2) if at is None else at))
        if at is not None:  # otherwise names may differ, by which predictions are compiled anew
            found += [output.std for output in model.predict(at).values()]
        assert all(np.isfinite(numbers).all() for numbers in found)


SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=60,
    derandomize=True,
)
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    0.5,
    1e-300,
    2**70,
    "x",
    "",
    [],
    {},
    [[1]],
    ["a", "a"],
    "\ud800",
]


@SETTINGS
@given(data=st.data())
def test_any_change_of_a_fact_is_refused_or_makes_another_model(mixed, data):
    folder, facts, tensors = mixed
    *above, last = data.draw(st.sampled_from([p for p in places(facts) if p]))
    facts = copy.deepcopy(facts)
    at = facts
    for key in above:
        at = at[key]
    odd = data.draw(st.sampled_from([*ODD, "nothing at all"]))
    if odd == "nothing at all":
        del at[last]
    else:
        at[last] = odd
    loads_only_models(folder, facts, tensors)


CHANGES = {
    "NaN": lambda a: a * np.nan,
    "infinite": lambda a: np.full_like(a, np.inf),
    "negative": lambda a: -a,
    "zero": lambda a: a * 0,
    "other": lambda a: a + 1,
    "int": lambda a: a.astype(int),
    "float16": lambda a: a.astype(np.float16),
    "float32": lambda a: a.astype(np.float32),
    "bool": lambda a: a.astype(bool),
    "deeper": lambda a: a[None],
    "flat": lambda a: a.reshape(-1),
    "turned": lambda a: a.T,
    "empty": lambda a: a.reshape(-1)[:0],
    "twice": lambda a: np.concatenate([a, a]) if a.ndim else np.stack([a, a]),
}


@SETTINGS
@given(data=st.data())
def test_any_change_of_an_array_is_refused_or_makes_another_model(mixed, data):
    folder, facts, tensors = mixed
    name = data.draw(st.sampled_from(sorted(tensors)))
    change = data.draw(st.sampled_from(sorted(CHANGES)))
    new = CHANGES[change](tensors[name])
    near = name != "scaling.centre"  # far from the data a count may be infinite
    loads_only_models(folder, facts, {**tensors, name: new}, at=FRAME[:5] if near else None)


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


def test_the_cost_of_loading_grows_with_the_size_of_the_file_and_no_faster(tmp_path):
    """20,000 classes in a megabyte, where J² numbers would take three gigabytes."""
    model = hm.HetMOGP({"y": hm.Categorical(["a", "b"])}, latents=1, inducing=4, max_iter=0)
    model.set_params(progress=False).fit(x, {"y": ["a", "b"] * (N // 2)}).save(tmp_path / "m")
    facts, tensors = files.read_numbers(tmp_path / "m", "model", VERSION)
    facts["outputs"][0]["likelihood"]["options"]["classes"] = list(range(20_000))
    facts["fit"]["marginal"]["y"] *= 19_999
    for name in ("weights", "mask", "constants", "centre", "spread"):
        key = f"parameters.prior.{name}"
        tensors[key] = np.repeat(tensors[key], 19_999, axis=0)
    files.write_numbers(tmp_path / "m", "model", VERSION, facts, tensors)
    began = time.perf_counter()
    assert len(hm.load(tmp_path / "m").parameter_names_) == 19_999
    assert time.perf_counter() - began < 5.0
