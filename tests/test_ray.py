"""Fits on a Ray cluster, really started, of which a worker is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hetmogp as hm

TOKEN = f"hetmogp-{os.getpid()}-{time.time_ns()}"
OPTIONS = {"latents": 1, "inducing": 8, "batch_size": 60, "progress": False, "tol": 1e-9}
STEPS = 600

DRIVER = """
import sys
import hetmogp as hm
folder, steps = sys.argv[1:]
model = hm.HetMOGP({"a": hm.Gaussian()}, max_iter=int(steps), **OPTIONS)
table = hm.Table(f"{folder}/rows/*.parquet", inputs=["x"])
named = model.likelihoods
assert hm.ray.fit(model, table, num_workers=2, checkpoint=f"{folder}/kept", every=20) is model
assert model.likelihoods is named
print("bound", repr(model.elbo_), model.n_iter_)
""".replace("OPTIONS", repr(OPTIONS))


def workers():
    """The processes of workers of this test's own cluster."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if TOKEN.encode() in (process / "environ").read_bytes():
                name = (process / "cmdline").read_bytes()
                found += [int(process.name)] if b"RayTrainWorker" in name else []
        except OSError:  # it has ended, or is somebody else's
            continue
    return sorted(found)


def test_workers_are_counted_by_the_scaling_that_is_given(tmp_path, monkeypatch):
    """With a stand-in for Ray that starts nothing."""
    (tmp_path / "t.csv").write_text("x,a\n0,1\n1,2\n")
    table = hm.Table(tmp_path / "t.csv", inputs=["x"])
    model = hm.HetMOGP({"a": hm.Gaussian()})
    asked: dict[str, Any] = {}

    def trainer(work, *, train_loop_config, scaling_config, **_):
        asked.update(train_loop_config, scaling=scaling_config)
        return SimpleNamespace(fit=lambda: SimpleNamespace(return_value=model))

    config = SimpleNamespace(
        FailureConfig=SimpleNamespace, RunConfig=SimpleNamespace, ScalingConfig=SimpleNamespace
    )
    jax = SimpleNamespace(JaxConfig=SimpleNamespace, JaxTrainer=trainer)
    monkeypatch.setitem(sys.modules, "ray.train.v2.api.config", config)
    monkeypatch.setitem(sys.modules, "ray.train.v2.jax", jax)
    hm.ray.fit(model, table, scaling=SimpleNamespace(num_workers=3, use_gpu=False))
    assert asked["workers"] == asked["scaling"].num_workers == 3
    hm.ray.fit(model, table, num_workers=2)
    assert asked["workers"] == asked["scaling"].num_workers == 2
    with pytest.raises(TypeError, match="give num_workers or scaling"):
        hm.ray.fit(model, table)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found by /proc")
def test_a_fit_that_lost_a_worker_ends_where_it_would_have_ended(tmp_path):
    pytest.importorskip("ray")
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 5, 1000)
    frame = pd.DataFrame({"x": x, "a": np.sin(2 * x) + 0.3 * rng.standard_normal(1000)})
    (tmp_path / "rows").mkdir()
    for k in range(2):
        part = frame[500 * k : 500 * (k + 1)]
        part.to_parquet(tmp_path / "rows" / f"{k}.parquet", row_group_size=150)
    environment = {**os.environ, "HETMOGP_TEST": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}
    with open(tmp_path / "log", "w") as log:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path), str(STEPS)],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 200
        while len(list(tmp_path.glob("kept/*/*.checkpoint"))) < 2:
            assert driver.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        first = workers()
        os.kill(first[-1], signal.SIGKILL)
        reached = max(int(path.stem) for path in tmp_path.glob("kept/*/*.checkpoint"))
        assert reached < STEPS, "it was to be killed on its way"
        assert driver.wait(timeout=300) == 0, (tmp_path / "log").read_text()
    finally:
        driver.kill()
        driver.wait()
    printed = (tmp_path / "log").read_text()
    table = hm.Table(tmp_path / "rows", inputs=["x"], lanes=2)
    alone = hm.HetMOGP({"a": hm.Gaussian()}, max_iter=STEPS, **OPTIONS).fit(table)
    bound, steps = next(line.split()[1:] for line in printed.splitlines() if line[:5] == "bound")
    assert int(steps) == STEPS
    assert float(bound) == pytest.approx(alone.elbo_, rel=1e-9)
    assert len(first) == 2
    deadline = time.monotonic() + 30
    while workers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not workers()


def test_workers_that_are_alone_are_an_error(tmp_path):
    """As they would be without a word from Ray's trainer, on CPUs."""
    with pytest.raises(hm.distributed.GroupError, match="JAX knows of 1 process"):
        hm.ray._work({"workers": 2})


def test_what_would_fail_again_is_not_tried_again(tmp_path):
    pd.DataFrame({"x": [0.0], "a": [1.0]}).to_parquet(tmp_path / "one.parquet")
    model = hm.HetMOGP({"z": hm.Gaussian()}, progress=False)
    work = {"model": model, "source": [tmp_path / "one.parquet"], "table": {"inputs": ["x"]}}
    found = hm.ray._work({**work, "workers": 1, "options": {"every": None}})
    assert isinstance(found, ValueError)
    assert "no column 'z'" in str(found)


def test_without_ray_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train.v2.api.config", None)
    pd.DataFrame({"x": [0.0], "a": [1.0]}).to_parquet(tmp_path / "one.parquet")
    table = hm.Table(tmp_path, inputs=["x"])
    with pytest.raises(ImportError, match=r"hetmogp\[ray\]"):
        hm.ray.fit(hm.HetMOGP([hm.Gaussian()]), table, num_workers=1)
