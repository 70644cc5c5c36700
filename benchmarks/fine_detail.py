"""London's sales with and without local latents: scores, seconds and a map of some streets.

    python benchmarks/fine_detail.py --splits 5 --out docs/images/london_local.png
    python benchmarks/fine_detail.py --task hidden --splits 5
    python benchmarks/fine_detail.py --task register

The tasks: whole sales left out; an output hidden in a third of the cells of the map, beside models
that share nothing; prices with heavy tails; and the four years of the register. The data are those
of the experiments, in the folder HETMOGP_DATA. GPBoost and GPyTorch's VNNGP are measured beside it
where `make peers` has installed them.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import hetmogp as hm
from hetmogp.experiments import london
from hetmogp.experiments.data import find

CENTRE = {"longitude": (-0.16, -0.06), "latitude": (51.49, 51.55)}
MODELS = {"smooth": {"local": 0, "inducing": 100}, "default": {}}
HEAVY = {**london.LIKELIHOODS, "log_price": hm.HetStudentT()}
PYTHON, PEERS = Path(".venv-peers/bin/python"), Path(__file__).parent / "peers"


def compared(split, path):
    """The models of a split, and a row of results for each."""
    _, train, tests = london.divide(london.load(path), "", split)
    X, Y = train[london.PLACE], train[list(london.LIKELIHOODS)]
    at = tests["flat"][0]
    held = pd.DataFrame({name: values.to_numpy() for name, (_, values) in tests.items()})
    models = {}
    for name, options in MODELS.items():
        began = time.perf_counter()
        model = hm.HetMOGP(london.LIKELIHOODS, progress=False, **options).fit(X, Y)
        seconds = time.perf_counter() - began
        models[name] = model
        scores = model.nlpd(at.reset_index(drop=True), held)
        lower, upper = model.predict(at)["log_price"].interval(0.9)
        inside = np.mean((held["log_price"] >= lower) & (held["log_price"] <= upper))
        words = ", ".join(f"{key} {value:.3f}" for key, value in scores.items())
        print(f"split {split} {name}: {words}, in 90%: {inside:.2f}, {seconds:.0f} s", flush=True)
    if PYTHON.exists():
        test = at.assign(**held.set_index(at.index))
        peers = {"GPBoost": "gpboost_peer.py"}
        if split == 0:
            peers["VNNGP"] = "vnngp_peer.py"
        for name, script in peers.items():
            print(f"split {split} {name}: {peer(script, train, test)}", flush=True)
    return models, train


def hidden(split, path):
    """Joint and alone where an output is hidden in a third of the cells, a line for each output."""
    for name in london.LIKELIHOODS:
        _, train, tests = london.divide(london.load(path), name, split)
        X, Y = train[london.PLACE], train[list(london.LIKELIHOODS)]
        at, held = (table.reset_index(drop=True) for table in tests[name])
        words = []
        for word, make in (("joint", hm.HetMOGP), ("alone", hm.independent)):
            began = time.perf_counter()
            model = make(london.LIKELIHOODS, progress=False).fit(X, Y)
            score = -np.mean(model.predict(at)[name].log_prob(held))
            words.append(f"{word} {score:.3f} in {time.perf_counter() - began:.0f} s")
        print(f"split {split}, {name} hidden: {', '.join(words)}", flush=True)


def heavy(split, path):
    """Prices with heavy tails."""
    _, train, tests = london.divide(london.load(path), "", split)
    at = tests["flat"][0].reset_index(drop=True)
    held = pd.DataFrame({name: values.to_numpy() for name, (_, values) in tests.items()})
    model = hm.HetMOGP(HEAVY, progress=False).fit(train[london.PLACE], train[list(HEAVY)])
    scores = model.nlpd(at, held)
    print(f"split {split} HetStudentT: " + ", ".join(f"{k} {v:.3f}" for k, v in scores.items()))


def register(path):
    """The four years."""
    table = pd.read_parquet(path)
    table = table[london.PLACE].assign(
        new_build=table["new_build"].astype(float), log_price=np.log(table["price"])
    )
    table["log_price"] = (table["log_price"] - table["log_price"].mean()) / table["log_price"].std()
    rows = np.random.RandomState(0).permutation(len(table))
    test, train = table.iloc[rows[: london.TEST]], table.iloc[rows[london.TEST :]]
    for price in (hm.HetGaussian(), hm.StudentT()):
        likelihoods = {"new_build": hm.Bernoulli(), "log_price": price}
        began = time.perf_counter()
        model = hm.HetMOGP(likelihoods, progress=False)
        model.fit(train[london.PLACE], train[list(likelihoods)])
        seconds = time.perf_counter() - began
        scores = model.nlpd(test[london.PLACE], test[list(likelihoods)])
        words = ", ".join(f"{key} {value:.3f}" for key, value in scores.items())
        print(f"register, {type(price).__name__}: {words}, {seconds:.0f} s", flush=True)


def peer(script, train, test):
    """What another package gives on the same sales, in words."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("train.csv", "test.csv")]
        for path, table in zip(paths, (train, test), strict=True):
            table.to_csv(path, index=False)
        command = list(map(str, (PYTHON, PEERS / script, *paths)))
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    seconds = " and ".join(f"{one:.0f}" for one in np.atleast_1d(found.pop("seconds")))
    scores = ", ".join(f"{k} {v:.3f}" for k, v in found.items() if np.ndim(v) == 0)
    return f"{scores}, {seconds} s"


def drawn(models, train, out):
    """Maps of the probability that a sale is of a flat, of the middle of the city."""
    (west, east), (south, north) = CENTRE.values()
    lon, lat = np.meshgrid(np.linspace(west, east, 160), np.linspace(south, north, 150))
    grid = pd.DataFrame({"longitude": lon.ravel(), "latitude": lat.ravel()})
    near = train[train["longitude"].between(west, east) & train["latitude"].between(south, north)]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    titles = {"smooth": "smooth latents alone", "default": "with local latents"}
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        p = model.predict(grid)["flat"].mean.reshape(lon.shape)
        mesh = ax.pcolormesh(lon, lat, p, vmin=0, vmax=1, cmap="viridis", shading="nearest")
        colours = np.where(near["flat"] > 0, "black", "white")
        ax.scatter(near["longitude"], near["latitude"], s=4, c=colours, linewidths=0)
        ax.set(title=titles[name], xlabel="longitude (degrees)", aspect=1.6)
    axes[0].set_ylabel("latitude (degrees)")
    figure.colorbar(mesh, ax=axes, label="probability that a sale is of a flat")
    figure.savefig(out, dpi=110)


def main():
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=["sales", "hidden", "heavy", "register"], default="sales")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("london_local.png"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = Path(os.environ.get("HETMOGP_DATA", "."))
    if options.task == "register":
        return register(find(london.REGISTER, data))
    path = find(london.FILE, data)
    for split in range(options.splits):
        if options.task != "sales":
            {"hidden": hidden, "heavy": heavy}[options.task](split, path)
            continue
        models, train = compared(split, path)
        if split == 0:
            drawn(models, train, options.out)


if __name__ == "__main__":
    main()
