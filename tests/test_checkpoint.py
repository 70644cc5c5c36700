"""Checkpoints: a run that was killed and resumed ends, bit by bit, where it would have ended."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import hetmogp as hm
from hetmogp.fitting import Options, checkpoint, vem
from hetmogp.fitting.checkpoint import identity
from hetmogp.tables import read

SCRIPT = """
import sys
import numpy as np, hetmogp as hm
method, folder, every, out = sys.argv[1:]
rng = np.random.default_rng(0)
x = rng.uniform(0, 3, 400)
Y = {"a": np.sin(2 * x) + 0.3 * rng.standard_normal(400), "b": (rng.random(400) < 0.4) * 1.0}
Y["b"][:100] = np.nan
options = {"max_iter": 12} if method == "vem" else {"max_iter": 2000, "batch_size": 50}
model = hm.HetMOGP(
    {"a": hm.HetGaussian(), "b": hm.Bernoulli()}, method=method, latents=2, inducing=8,
    tol=1e-9, progress=False, **options
)
if folder:
    model.fit(x, Y, checkpoint=folder, every=int(every), resume=True)
else:
    model.fit(x, Y)
np.savez(out, W=model.weights_, b=model.constants_, elbo=model.elbo_, history=model.history_,
         Z=model.inducing_inputs_[0], n=model.n_iter_, mean=model.predict(x[:5])["a"].mean)
"""


def started(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(process):
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    return err


@pytest.mark.parametrize(
    ("method", "every"), [("svi", 70), pytest.param("vem", 1, marks=pytest.mark.slow)]
)
def test_a_killed_run_ends_where_it_would_have_ended(tmp_path, monkeypatch, method, every):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))  # once for all
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    whole = started(method, "", every, tmp_path / "whole.npz")
    kept = tmp_path / "kept"
    process = started(method, kept, every, tmp_path / "resumed.npz")
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(kept.rglob("*.checkpoint"))) > 1:
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.005)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, "it was to be killed on its way"
    finished(started(method, kept, every, tmp_path / "resumed.npz"))
    finished(whole)
    one, other = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "resumed.npz")
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


X = np.linspace(0.0, 3.0, 60)
Y = {"a": np.sin(2 * X), "b": (np.cos(X) > 0).astype(float)}


def fit(folder, y=Y, x=X, resume=True, every=None, **options):
    options = {"inducing": 6, "latents": 1, "max_iter": 2, "progress": False, **options}
    model = hm.HetMOGP({"a": hm.Gaussian(), "b": hm.Bernoulli()}, **options)
    return model.fit(x, y, checkpoint=folder, resume=resume, every=every)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    fit(folder, max_iter=5, tol=1e-12, prune=False)
    return folder


@pytest.fixture(autouse=True, scope="module")
def _short_rounds():
    """Rounds that end before the fit does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vem, "ITERATIONS", 2)
        yield


def copied(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_the_last_three_are_kept(folder):
    assert [int(path.stem) for path in sorted(folder.iterdir())] == [3, 4, 5]


def test_a_damaged_checkpoint_is_passed_over(folder, tmp_path):
    copied(folder, tmp_path)
    whole = fit(tmp_path, max_iter=5, tol=1e-12, prune=False)
    last = tmp_path / "000000005.checkpoint"
    last.write_bytes(last.read_bytes()[:-10])
    with pytest.warns(RuntimeWarning, match="000000005.*previous checkpoint"):
        again = fit(tmp_path, max_iter=5, tol=1e-12, prune=False)
    np.testing.assert_array_equal(again.weights_, whole.weights_)
    assert again.n_iter_ == 5
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    (tmp_path / "000000004.checkpoint").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="using the previous checkpoint"):
        again = fit(tmp_path, max_iter=5, tol=1e-12, prune=False)
    np.testing.assert_array_equal(again.weights_, whole.weights_)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"latents": 2}, "latents was 1, and is now 2"),
        ({"weight_scale": 1.0}, "weight_scale was None, and is now 1.0"),
        ({"kernel": hm.Matern32()}, "kernel was None"),
        ({"y": {**Y, "a": Y["a"] + 1e-9}}, "the values of 'a' was"),
        ({"x": X + 1e-9}, "the inputs of 'a' was"),
    ],
)
def test_another_fit_is_refused_with_the_difference(folder, change, match):
    with pytest.raises(hm.CheckpointError, match=match):
        fit(folder, **{"max_iter": 5, "tol": 1e-12, "prune": False, **change})


def test_kernels_differ_in_every_digit_of_their_numbers():
    data = read({"a": hm.Gaussian()}, X, {"a": Y["a"]})
    kernels = hm.RBF(0.12345678), hm.RBF(0.12348), [hm.RBF(), hm.RBF(0.12348)]
    words = [identity(data, Options(kernel=kernel))["kernel"] for kernel in kernels]
    assert words[0].endswith("with [0.12345678]")
    assert len(set(words)) == 3
    assert identity(data, Options(kernel=hm.RBF(0.12348)))["kernel"] == words[1]


def test_more_rounds_may_be_asked_for(folder, tmp_path):
    more = fit(copied(folder, tmp_path), max_iter=7, tol=1e-12, prune=False)
    assert more.n_iter_ == 7
    straight = fit(tmp_path / "new", max_iter=7, tol=1e-12, prune=False)
    np.testing.assert_array_equal(more.weights_, straight.weights_)


def test_a_folder_in_use_is_not_overwritten(folder):
    with pytest.raises(hm.CheckpointError, match=r"up to iteration 5.*resume=True"):
        fit(folder, resume=False)


def test_a_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    def write(path, *arguments):
        if int(path.stem) > 1:
            raise OSError(28, "No space left on device")
        full(path, *arguments)

    full = checkpoint.write_numbers
    monkeypatch.setattr(checkpoint, "write_numbers", write)
    with pytest.warns(RuntimeWarning, match="iteration 2: .*No space left.*continues"):
        model = fit(tmp_path, max_iter=2, tol=1e-12, prune=False)
    assert model.n_iter_ == 2
    assert [path.name for path in tmp_path.iterdir()] == ["000000001.checkpoint"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"every": 5}, "need a folder"),
        ({"resume": True}, "need a folder"),
        ({"checkpoint": "x", "every": 0}, "every must be"),
        ({"checkpoint": __file__}, "is a file"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        hm.HetMOGP([hm.Gaussian()], progress=False).fit(X, Y["a"], **arguments)


@pytest.mark.parametrize("skip", [0, 3, 4, 5, 11])
def test_rows_are_drawn_from_where_it_was(skip):
    from itertools import islice

    from hetmogp.data import row_draws

    whole = list(islice(row_draws(17, 5, 3, 1), 20))
    rest = list(islice(row_draws(17, 5, 3, 1, skip), 20 - skip))
    np.testing.assert_array_equal(whole[skip:], rest)
