"""How fast, beside GPflow and GPyTorch: one step, time to quality, growth, prediction, first use.

    python benchmarks/speed.py --out docs            # everything; about 20 minutes on two cores
    python benchmarks/speed.py --only step --sizes 100,500 --rounds 3

Peers run in their own environment (`make peers`; another interpreter with `--peers`), in processes
that wait for orders, so that each round of measurements visits every library in turn: ratios hold
on a busy machine where milliseconds do not. A library that is not there is skipped with a word. A
step is a bound, all gradients, and the updates: natural for q(u), Adam for the rest. Of the peers
the gradients alone are measured as well.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import draws
import jax
import jax.numpy as jnp
import numpy as np

import hetmogp as hm
from hetmogp import demo
from hetmogp.bound import Rules
from hetmogp.data import blocks
from hetmogp.experiments import london
from hetmogp.experiments.data import find
from hetmogp.fitting import svi
from hetmogp.fitting.mesh import mesh
from hetmogp.fitting.start import Beginning, initial_lengthscales, initial_parameters
from hetmogp.session import session
from hetmogp.tables import read
from hetmogp.variational import Factorised

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
SIZES_CPU = [(50, 500), (100, 500), (200, 500), (100, 2000), (500, 2000)]
SIZES_GPU = [(100, 500), (500, 2000), (1000, 10000), (2000, 20000)]
Seconds = float


class Peer:
    """Another library, in its own process."""

    def __init__(self, name: str, python: Path):
        self.name, self.python = name, python
        self.process = subprocess.Popen(
            [python, "-W", "ignore", f"{name}_peer.py"],
            cwd=HERE / "peers",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, do: str, **order: Any) -> dict[str, Any]:
        """Its answer, and its largest memory so far."""
        print(json.dumps({"do": do, **order}), file=self.process.stdin, flush=True)
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End its input, and with it the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def find_peers(python: Path) -> dict[str, Peer]:
    peers: dict[str, Peer] = {}
    if not python.exists():
        print(f"no peers: there is no {python} (`make peers` installs GPflow and GPyTorch there)")
        return peers
    for name in ("gpflow", "gpytorch"):
        there = subprocess.run(
            [python, "-c", f"import importlib.util as u; assert u.find_spec('{name}')"],
            capture_output=True,
        )
        if there.returncode == 0:
            peers[name] = Peer(name, python)
        else:
            print(f"{name} is not in {python}: skipped (`make peers` installs it)")
    return peers


# -- ours ------------------------------------------------------------------------------------------


def our_step(
    M: int, B: int, Q: int = 3, p: int = 2, D: int = 2, N: int | None = None, dtype: str = "float64"
):
    """A chunk of steps of the stochastic fit, ready to be timed: () -> seconds a step."""
    rng = np.random.default_rng(0)
    N = N or 20 * B
    X = rng.uniform(size=(N, p))
    likelihoods = {f"y{d:02}": hm.Bernoulli() if d % 2 == 0 else hm.HetGaussian() for d in range(D)}
    Y = {
        name: rng.uniform(size=N).round() if d % 2 == 0 else rng.standard_normal(N)
        for d, name in enumerate(likelihoods)
    }
    data = read(likelihoods, X, Y)
    groups, scaling = blocks(data)
    kernels = [hm.RBF(lengthscale=0.3 * np.sqrt(p / 2))] * Q
    Z = np.stack([scaling.apply(rng.uniform(size=(M, p))) for _ in range(Q)])
    beginning = Beginning(kernels, [1] * Q, Z, initial_lengthscales(Q, X))
    parameters = initial_parameters(data, beginning, scaling)
    data_on_device = jax.tree.map(jnp.asarray, groups)
    state = svi.init(parameters, Factorised, True, "adam", True)
    T = int(np.clip(2e10 / (Q * (4 * M**2 * B + 20 * M**3) + 2e7), 2, 50))
    if jax.default_backend() != "cpu":
        T = int(np.clip(T * 50, 5, 100))
    rows = (jnp.asarray(rng.integers(0, N, (T, B)), jnp.int32),)
    jitter = 1e-6 if dtype == "float64" else 1e-4
    numbers = svi.Numbers(*map(jnp.asarray, (0, T, jitter, 1.0, 0)))

    def run() -> Seconds:
        began = time.perf_counter()
        done = svi.chunk(
            *(state, parameters, data_on_device, rows, numbers, Rules()),
            optimiser="adam",
            devices=mesh(),
        )
        bounds = np.asarray(jax.block_until_ready(done)[1])
        assert np.isfinite(bounds).all()
        return (time.perf_counter() - began) / T

    return run


def gemm() -> float:
    """Operations per second of large matrix products."""
    n = 2000 if jax.default_backend() == "cpu" else 8192
    A = jnp.asarray(np.random.default_rng(0).uniform(size=(n, n)))
    product = jax.jit(lambda A: A @ A)
    jax.block_until_ready(product(A))
    began = time.perf_counter()
    jax.block_until_ready([product(A) for _ in range(4)])
    return 4 * 2.0 * n**3 / (time.perf_counter() - began)


def operations(M: int, B: int, Q: int = 3) -> float:
    """What a step is counted as, whatever is executed."""
    return Q * (4.0 * M**2 * B + 10.0 * M**3)


# -- what is measured ------------------------------------------------------------------------------


def step(peers: dict[str, Peer], sizes: list[tuple[int, int]], rounds: int) -> list[dict]:
    print("\nOne step, milliseconds (median of rounds); in brackets, how many times ours")
    print(f"{'M, batch':>12} {'ours':>8} {'% of gemm':>9}", end="")
    for name in peers:
        print(f" {name + ' gradients':>20} {name + ' step':>18}", end="")
    print()
    rows = []
    for M, B in sizes:
        ours = our_step(M, B)
        ours()
        seen: dict[str, list[float]] = {}
        for _ in range(rounds):
            seen.setdefault("gemm", []).append(gemm())
            seen.setdefault("ours", []).extend(ours() for _ in range(3))
            for name, peer in peers.items():
                for natural in (False, True):
                    order = {"M": M, "B": B, "Q": 3, "p": 2, "D": 2, "natural": natural}
                    took = peer("step", **order, repeats=5 if M < 500 else 3)["answer"]
                    key = f"{name} {'step' if natural else 'gradients'}"
                    seen.setdefault(key, []).append(took)
        row = {name: float(np.median(values)) for name, values in seen.items()}
        share = operations(M, B) / row["ours"] / row["gemm"]
        print(f"{f'{M}, {B}':>12} {1e3 * row['ours']:>8.2f} {100 * share:>8.0f}%", end="")
        for name in peers:
            for what, width in (("gradients", 12), ("step", 10)):
                took = row[f"{name} {what}"]
                print(f" {1e3 * took:>{width}.2f} ({took / row['ours']:.1f}x)", end="")
        print(flush=True)
        rows.append({"M": M, "batch": B, "share_of_gemm": share, **row})
    return rows


def growth(peers: dict[str, Peer], rounds: int) -> dict[str, list[dict]]:
    gpu = jax.default_backend() != "cpu"
    base = {"M": 100, "B": 500, "Q": 3, "p": 2, "D": 2}
    ways = {
        "N": [1_000, 10_000, 100_000, 1_000_000],
        "M": [50, 100, 200, 500, 1000],
        "Q": [1, 2, 3, 5, 10],
        "D": [2, 5, 10, 20, 50],
        "p": [1, 2, 10, 50, 255],
    }
    found: dict[str, list[dict]] = {}
    for what, values in ways.items():
        print(f"\nA step as {what} grows (ms; else M = 100, batches of 500, Q = 3, D = 2, p = 2)")
        found[what] = []
        for value in values:
            sizes: dict[str, Any] = base | {what: value}
            ours = our_step(**sizes)
            ours()
            row: dict[str, float] = {what: value, "ours": np.median([ours() for _ in range(3)])}
            for name, peer in peers.items():
                if what != "N" and not gpu:  # a peer's step does not see N
                    took = [
                        peer("step", **sizes, natural=True, repeats=3)["answer"]
                        for _ in range(rounds)
                    ]
                    row[name] = float(np.median(took))
            found[what].append(row)
            shown = [f"{name} {1e3 * took:.2f}" for name, took in row.items() if name != what]
            print(f"  {what} = {value:<8} {'  '.join(shown)}", flush=True)
    return found


def quality(peers: dict[str, Peer], seconds: float = 5.0) -> dict[str, Any]:
    """NLPD on London against training time, ours and theirs; then ten times longer, ours."""
    folder = os.environ.get("HETMOGP_DATA")
    sales = london.load(find(london.FILE, Path(folder) if folder else None))
    X, Y = sales[london.PLACE].to_numpy(), {n: sales[n].to_numpy() for n in london.LIKELIHOODS}
    order = np.random.RandomState(1).permutation(len(X))
    test, train = order[:1000], order[1000:]
    likelihoods = {"flat": hm.Bernoulli(), "log_price": hm.HetGaussian()}
    seen = {name: y[train] for name, y in Y.items()}
    unseen = {name: y[test] for name, y in Y.items()}

    def fit(steps: int) -> tuple[Seconds, float]:
        model = hm.HetMOGP(likelihoods, method="svi", max_iter=steps, tol=1e-12, progress=False)
        model.fit(X[train], seen)
        return model.fit_seconds_, model.nlpd(X[test], unseen)["global"]

    fit(100)
    short = min(fit(100)[0] for _ in range(2))
    per_step = (min(fit(500)[0] for _ in range(2)) - short) / 400
    steps = int(seconds / per_step) // 50 * 50
    result: dict[str, Any] = {"ms_per_step": 1e3 * per_step, "steps": steps, "ours": []}
    print(f"\nLondon: {1e3 * per_step:.2f} ms a step, so {steps} steps in {seconds:g} s")
    for n in (steps // 4, steps // 2, steps, 2 * steps, 4 * steps):
        _, nlpd = fit(n)
        result["ours"].append((n * per_step, nlpd))
        print(f"  ours       {n * per_step:>6.1f} s of training ({n} steps): NLPD {nlpd:.3f}")
    _, result["ten_times"] = fit(10 * steps)
    gap = result["ours"][2][1] - result["ten_times"]
    print(f"  ours, ten times longer: NLPD {result['ten_times']:.3f}; {gap:+.3f} at {seconds:g} s")

    start = our_start(X[train], seen, likelihoods)
    centre, scale = start.pop("centre"), start.pop("scale")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "london.npz"
        arrays: dict[str, Any] = {
            "X": (X[train] - centre) / scale,
            "Y": np.stack(list(seen.values()), axis=1),
            "X_test": (X[test] - centre) / scale,
            "Y_test": np.stack(list(unseen.values()), axis=1),
            **start,
        }
        np.savez(path, **arrays)
        for name, peer in peers.items():
            curve = peer("train", path=str(path), steps=1000, every=100, batch=500)["answer"]
            result[name] = curve
            for took, nlpd in (curve[0], curve[4], curve[-1]):
                print(f"  {name:<10} {took:>6.1f} s of training: NLPD {nlpd:.3f}", flush=True)
    return result


def our_start(X: np.ndarray, Y: dict[str, np.ndarray], likelihoods: dict) -> dict[str, np.ndarray]:
    """Where ours starts, for the peers to start there too; inputs standardised."""
    model = hm.HetMOGP(likelihoods, method="svi", max_iter=0, progress=False).fit(X, Y)
    scaling = model.fitted.scaling
    return {
        "centre": scaling.centre,
        "scale": scaling.scale,
        "Z": np.stack([scaling.apply(Z) for Z in model.inducing_inputs_]),
        "W": model.weights_,
        "b": model.constants_,
        "lengthscale": np.stack([k.lengthscale / scaling.scale for k in model.kernels_]),
    }


def gap() -> dict[str, float]:
    """The missing gap by full batches: seconds to convergence, compiled, and the NLPD reached."""
    problem = demo.simulate(0, demo.SHARING)
    demo.fit_both(problem, progress=False)
    joint, _ = demo.fit_both(problem, progress=False)
    found = {"seconds": joint.fit_seconds_, "nlpd": demo.nlpd_in_gap(joint, problem)}
    print(f"\nGap: converged in {found['seconds']:.2f} s at NLPD {found['nlpd']:.3f}")
    return found


PREDICT = """
import sys, time
import numpy as np, hetmogp as hm
N = int(sys.argv[1])
rng = np.random.default_rng(0)
X = rng.uniform(size=(2000, 2))
Y = {"b": rng.uniform(size=2000).round(), "h": rng.standard_normal(2000)}
model = hm.HetMOGP({"b": hm.Bernoulli(), "h": hm.HetGaussian()}, inducing=100, latents=3,
                   method="svi", max_iter=10, progress=False).fit(X, Y)
new = rng.uniform(size=(N, 2))
def both(X):
    pred = model.predict(X)
    for name in pred:
        pred[name].mean, pred[name].variance
    return pred
both(new[:20_000])
began = time.perf_counter(); pred = both(new); print(time.perf_counter() - began)
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) / 2**20)
began = time.perf_counter(); pred["h"].quantile(0.9); print(time.perf_counter() - began)
began = time.perf_counter(); pred["b"].quantile(0.9); print(time.perf_counter() - began)
"""


def prediction(peers: dict[str, Peer], N: int = 1_000_000) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, str(N)], capture_output=True, text=True, check=True
    )
    seconds, peak, quantile, count = map(float, done.stdout.split())
    found: dict[str, Any] = {
        "N": N,
        "ours": {"seconds": seconds, "peak_gb": peak, "quantile_s": [quantile, count]},
    }
    print(f"\n{N:,} predictions, M = 100, Q = 3")
    print(f"  ours       mean and variance of y, two outputs: {seconds:.1f} s, peak {peak:.2f} GB")
    print(f"             a quantile of HetGaussian {quantile:.1f} s, of Bernoulli {count:.1f} s")
    for name, old in peers.items():
        peer = Peer(name, old.python)  # a fresh one: memory is measured
        answer = peer("predict", N=N, M=100)
        peer.close()
        found[name] = {"seconds": answer["answer"], "peak_gb": answer["peak_gb"]}
        print(
            f"  {name:<10} mean and variance of f: {answer['answer']:.1f} s, "
            f"peak {answer['peak_gb']:.2f} GB",
            flush=True,
        )
    return found


def joint_draws(peers: dict[str, Peer]) -> dict[str, Any]:
    print(f"\n{draws.DRAWS:,} joint draws, three outputs, M = 100, Q = 3")
    found: dict[str, Any] = {
        kind: draws.apart(kind) for kind in ("functions", "observations", "scikit-learn")
    }
    if "gpflow" in peers:
        peer = Peer("gpflow", peers["gpflow"].python)  # a fresh one: memory is measured
        answer = peer("draw", N=draws.FEW, M=100, n=draws.DRAWS)
        peer.close()
        found["gpflow"] = {"seconds": answer["answer"], "peak_gb": answer["peak_gb"]}
        print(
            f"  GPflow, three functions at {draws.FEW:,} rows: {answer['answer']:.1f} s, "
            f"most memory {answer['peak_gb']:.2f} GB",
            flush=True,
        )
    return found


FIRST = """
import sys, time
began = time.perf_counter()
import hetmogp as hm; hm.HetMOGP
import numpy as np
imported = time.perf_counter() - began
rng = np.random.default_rng(0)
method, Q, N = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
X = rng.uniform(size=(N, 2))
Y = {"a": rng.uniform(size=N).round(), "b": rng.poisson(2.0, N), "c": rng.standard_normal(N)}
likelihoods = {"a": hm.Bernoulli(), "b": hm.Poisson(), "c": hm.HetGaussian()}
import jax
spent = {"trace": 0.0, "compile": 0.0}
def listen(event, seconds, **_):
    if event.endswith("backend_compile_duration"):
        spent["compile"] += seconds
    elif "trace" in event or "mlir" in event:
        spent["trace"] += seconds
jax.monitoring.register_event_duration_secs_listener(listen)
model = hm.HetMOGP(likelihoods, inducing=20, latents=Q, method=method, max_iter=1, progress=False)
began = time.perf_counter(); model.fit(X, Y); first = time.perf_counter() - began
again = time.perf_counter(); model.fit(X, Y); second = time.perf_counter() - again
print(imported, first, second, spent["trace"], spent["compile"])
"""


def first_use(peers: dict[str, Peer], rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    print("\nFirst use: import, then a first fit of one iteration (three outputs), seconds")
    ways = [
        ("svi", 3, 2000),
        ("svi", 10, 2000),
        ("svi", 3, 200_000),
        ("vem", 3, 200),
        ("vem", 10, 200),
    ]
    for method, Q, N in ways:
        times = []
        for _ in range(rounds):
            done = subprocess.run(
                [sys.executable, "-c", FIRST, method, str(Q), str(N)],
                capture_output=True,
                text=True,
                check=True,
            )
            times.append([float(word) for word in done.stdout.split()])
        imported, first, second, trace, compiling = np.median(times, axis=0)
        found[f"{method} Q={Q} N={N}"] = {
            "import": imported,
            "first_less_second": first - second,
            "tracing": trace,
            "compiling": compiling,
        }
        print(
            f"  {method}, Q = {Q}, N = {N}: import {imported:.1f}, first fit less the second "
            f"{first - second:.1f} (tracing {trace:.1f}, compiling {compiling:.1f})",
            flush=True,
        )
    for name, peer in peers.items():
        imported, first = peer("first", M=20, B=200)["answer"]
        found[name] = {"import": imported, "first_step": first}
        print(f"  {name}: import {imported:.1f}, first step {first:.1f}", flush=True)
    return found


def draw(found: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    labels = {"ours": "hetmogp", "gpflow": "GPflow", "gpytorch": "GPyTorch"}
    sizes = [f"{row['M']}\n{row['batch']}" for row in found["step"]]
    names = [
        "ours",
        *(f"{n} step" for n in ("gpflow", "gpytorch") if f"{n} step" in found["step"][0]),
    ]
    for k, name in enumerate(names):
        at = np.arange(len(sizes)) + 0.27 * (k - 1)
        took = [1e3 * row[name] for row in found["step"]]
        axes[0].bar(at, took, 0.25, label=labels[name.split()[0]])
    axes[0].set_xticks(range(len(sizes)), sizes)
    axes[0].set(yscale="log", xlabel="inducing inputs, and rows of a batch", ylabel="one step (ms)")
    axes[0].legend()
    for name, rows in found["growth"].items():
        x = np.array([row[name] for row in rows], float)
        y = np.array([row["ours"] for row in rows])
        axes[1].plot(x / x[0], y / y[0], marker="o", label=f"{name}, from {x[0]:g}")
    axes[1].set(
        xscale="log", yscale="log", xlabel="times its first value", ylabel="step time, relative"
    )
    axes[1].legend(title="hetmogp: growing")
    for name in ("ours", "gpflow", "gpytorch"):
        if name in found["quality"]:
            curve = np.array(found["quality"][name])
            axes[2].plot(curve[:, 0], curve[:, 1], marker="o", label=labels[name])
    end = found["quality"]["ten_times"]
    axes[2].axhline(end, color="grey", linestyle=":", label="hetmogp, ten times longer than 5 s")
    axes[2].set(xscale="log", xlabel="seconds of training", ylabel="London, test NLPD (nats)")
    axes[2].set_xticks(ticks := [1, 2, 5, 10, 20], map(str, ticks), minor=False)
    axes[2].set_xticks([], minor=True)
    low, high = axes[2].get_ylim()
    axes[2].set_ylim(low, high + 0.35 * (high - low))  # room for the legend
    axes[2].legend(loc="upper right", fontsize="small")
    figure.savefig(path, dpi=130)


def main(only: list[str], python: Path, sizes: list, rounds: int, out: Path | None) -> None:
    gpu = jax.default_backend() != "cpu"
    peers = find_peers(python)
    found: dict[str, Any] = {
        "backend": jax.default_backend(),
        "cores": len(os.sched_getaffinity(0)),
    }
    parts = {
        "step": lambda: step(peers, sizes or (SIZES_GPU if gpu else SIZES_CPU), rounds),
        "growth": lambda: growth(peers, rounds),
        "gap": gap,
        "quality": lambda: quality(peers),
        "prediction": lambda: prediction(peers),
        "draws": lambda: joint_draws(peers),
        "first": lambda: first_use(peers, rounds),
    }
    try:
        for name in only or parts:
            with session():
                found[name] = parts[name]()
    finally:
        for peer in peers.values():
            peer.close()
    if out:
        name = "performance_gpu" if gpu else "performance"
        path = out / f"{name}.json"
        if only and path.exists():  # the parts not measured this time stay
            found = json.loads(path.read_text()) | found
        path.write_text(json.dumps(found, indent=1) + "\n")
        if {"step", "growth", "quality"} <= set(found):
            draw(found, out / "images" / f"{name}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts to run; all by default")
    parser.add_argument("--sizes", nargs="*", default=[], help="of the step, such as 100,500")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peers", type=Path, default=HERE.parent / ".venv-peers" / "bin" / "python"
    )
    parser.add_argument("--out", type=Path, help="a folder for the JSON and the figure")
    options = parser.parse_args()
    wanted = [tuple(int(n) for n in size.split(",")) for size in options.sizes]
    main(options.only, options.peers.absolute(), wanted, options.rounds, options.out)
