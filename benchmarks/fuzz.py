"""Structured mutations of data, model files, tables and command lines, for as long as one likes.

    python benchmarks/fuzz.py --seconds 600
    python benchmarks/fuzz.py --cases 20 --targets tables,commands --seed 7

A case passes when it ends in time with what it should: finite predictions, a table, or one clear
error. Anything else (another exception, a traceback, numbers that are not finite and no warning) is
printed with the seed that makes it again, and the exit code is 1. A case that hangs ends the run
with the place where it hangs.
"""

import argparse
import faulthandler
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from families import COLUMNS

import hetmogp as hm
from hetmogp.files import read_numbers, write_numbers
from hetmogp.storage import VERSION, ModelFileError

LIMIT = 180.0  # seconds that a case may take on busy cores, compiling included
ROWS = 16
WORDS = ("a", "b", "", "NA", "nan", "-1", "0", "1e400", "1.5", "2024-05-31", "<a href=x>", "x\ny")

DEFECT = "DEFECT"

Case = Callable[[np.random.Generator, Path], str]


class Defect(Exception):  # noqa: N818
    """Something that should not have happened, in words."""


# -- data ------------------------------------------------------------------------------------------


def values(kind: str, rng: np.random.Generator, scale: float, N: int = ROWS) -> np.ndarray:
    """N values in the support of a likelihood, of a size and in a pattern that may be unkind."""
    y = np.exp(rng.normal(size=N) * rng.choice([0.0, 1e-9, 0.3, 3.0]))  # from one value to many
    if rng.random() < 0.3:
        y[rng.integers(N)] *= 10.0 ** rng.uniform(-6, 6)
    if kind in ("Gaussian", "HetGaussian", "StudentT", "HetStudentT"):
        return scale * (y * rng.choice([-1.0, 1.0], N) + rng.choice([0.0, 1e3]))
    if kind in ("Beta", "LogitNormal", "ZeroOneInflatedBeta"):
        share = np.clip(y / (y + scale), 1e-12, 1 - 1e-12)
        ends = kind == "ZeroOneInflatedBeta" and rng.random() < 0.7
        return np.where(rng.random(N) < 0.4, rng.choice([0.0, 1.0], N), share) if ends else share
    if kind == "VonMises":
        return np.angle(np.exp(1j * scale * y))
    if kind in ("Bernoulli", "Binomial", "Categorical", "Ordinal"):
        most = {"Bernoulli": 2, "Binomial": 11, "Categorical": 4, "Ordinal": 5}[kind]
        codes = rng.integers(0, rng.integers(1, most + 1), N).astype(float)
        if kind in ("Categorical", "Ordinal"):
            codes[:2] = 0.0, 1.0  # which need two classes at least
        return codes
    if "Poisson" in kind or "Binomial" in kind:  # counts
        return np.where(rng.random(N) < rng.choice([0.0, 0.5, 0.95, 1.0]), 0.0, np.round(scale * y))
    return scale * y


def fitted(kind: str, y: np.ndarray, dtype: str = "float64", **options: Any) -> str:
    """Fit and predict one output: "finite", "warned", or "refused" before the fit."""
    outputs: dict[str, Any] = {"y": COLUMNS[kind].likelihood}
    model = hm.HetMOGP(outputs, latents=1, inducing=5, dtype=dtype, progress=False, **options)
    x = np.linspace(0.0, 1.0, len(y))
    what = f"{kind} in {dtype}, {np.nanmin(y):g} to {np.nanmax(y):g}"
    try:
        model.fit(x, {"y": y})
    except (ValueError, ArithmeticError) as error:
        if "'y'" not in str(error):
            raise Defect(f"{what}: the error names no output: {error}") from None
        if dtype == "float64":
            raise Defect(f"{what}: refused: {error}") from None
        return "refused"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pred = model.predict(np.array([-0.5, 0.3, 0.9, 3.0]))["y"]
        found = [pred.log_prob(np.resize(y[np.isfinite(y)], 4))]
        if kind == "Categorical":
            found.append(pred.probabilities)
        else:
            lower, upper = pred.interval(0.9)
            found += [pred.mean, pred.variance, lower, upper]
            if np.any(np.asarray(lower) > np.asarray(upper)):
                raise Defect(f"{what}: an interval from {lower} to {upper}")
        found.append(np.array(model.nlpd(x, {"y": y})["y"]))
    finite = all(np.isfinite(np.asarray(part, float)).all() for part in found)
    if not finite and not any("'y'" in str(one.message) for one in caught):
        raise Defect(f"{what}: not finite and no warning: {found}")
    return "finite" if finite else "warned"


def likelihoods(rng: np.random.Generator, folder: Path) -> str:
    """A fit of one output, of any size from 1e-12 to 1e12."""
    kind = str(rng.choice(list(COLUMNS)))
    y = values(kind, rng, 10.0 ** rng.uniform(-12, 12))
    if rng.random() < 0.3:
        y[rng.integers(2, ROWS, 4)] = np.nan
    dtype = "float64" if rng.random() < 0.8 else "float32"
    return fitted(kind, y, dtype, method="vem" if rng.random() < 0.8 else "svi", max_iter=30)


# -- model files -----------------------------------------------------------------------------------


def _a_model(folder: Path) -> Path:
    """A model to spoil: saved once, then copied."""
    path = folder / "whole.hetmogp"
    if not path.exists():
        rng = np.random.default_rng(0)
        X = pd.DataFrame({"t": np.linspace(0, 1, 24), "plot": list("abc") * 8})
        Y = {"n": rng.poisson(3.0, 24), "k": list("uvwx") * 6, "y": rng.normal(size=24)}
        named = {"n": hm.Poisson(), "k": hm.Categorical(), "y": hm.HetGaussian()}
        hm.HetMOGP(named, latents=2, inducing=6, max_iter=1, progress=False).fit(X, Y).save(path)
    return path


def _mutated(node: Any, rng: np.random.Generator) -> Any:
    """A JSON tree with one of its places replaced, doubled or removed."""
    others = [None, -1, 0, 1e308, 10**40, "x" * 999, [], {}, True, node, [node, node], {"a": node}]
    if isinstance(node, dict) and node and rng.random() < 0.9:
        key = str(rng.choice(list(node)))
        if rng.random() < 0.1:
            return {k: v for k, v in node.items() if k != key}
        return {**node, key: _mutated(node[key], rng)}
    if isinstance(node, list) and node and rng.random() < 0.8:
        k = int(rng.integers(len(node)))
        return [*node[:k], _mutated(node[k], rng), *node[k + 1 :]]
    return others[rng.integers(len(others))]


def _spoilt(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array of another kind, shape or content."""
    array = array.astype(float)
    which = int(rng.integers(6))
    if which == 0:
        return array.astype(rng.choice(["f4", "i8", "?"]))
    if which == 1:
        return array[..., None] if rng.random() < 0.5 else array.ravel()[: array.size // 2]
    if array.size:
        at = rng.integers(array.size)
        array.flat[at] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 1e-308])
    return array


def models(rng: np.random.Generator, folder: Path) -> str:
    """A model file with something changed, its checksum right or not."""
    whole, path = _a_model(folder), folder / "spoilt.hetmogp"
    if rng.random() < 0.3:  # bytes, so that the checksum is wrong
        raw = bytearray(whole.read_bytes())
        for _ in range(int(rng.integers(1, 5))):
            raw[int(rng.integers(len(raw)))] = int(rng.integers(256))
        path.write_bytes(raw[: int(rng.integers(len(raw)))] if rng.random() < 0.3 else raw)
    else:
        facts, tensors = read_numbers(whole, "model", VERSION)
        for _ in range(int(rng.integers(1, 3))):
            if rng.random() < 0.6:
                facts = _mutated(facts, rng)
            else:
                name = str(rng.choice(list(tensors)))
                tensors[name] = _spoilt(tensors[name], rng)
        try:
            write_numbers(path, "model", VERSION, facts, tensors)
        except (ValueError, TypeError):
            return "not written"
    began = time.perf_counter()
    try:
        model = hm.load(path)
    except ModelFileError:
        return "refused"
    finally:
        if time.perf_counter() - began > 10.0:
            raise Defect("loading took more than ten seconds")
    try:
        X = model.grid(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = model.predict(X).to_frame()
    except Exception as error:
        raise Defect(f"loaded, but {type(error).__name__}: {error}") from error
    return "loaded" if len(frame) == len(X) else "odd"


# -- tables ----------------------------------------------------------------------------------------


def _text(rng: np.random.Generator) -> bytes:
    """A table as somebody's program might have written it."""
    columns, rows = int(rng.integers(1, 5)), int(rng.integers(0, 30))
    separator, quote = rng.choice([",", ";", "\t"]), rng.choice(["", '"'])
    end = str(rng.choice(["\n", "\r\n"]))
    names = [str(rng.choice(["x", "y", "plot", "a b", "", "x"])) + str(c) for c in range(columns)]
    kinds = rng.integers(0, 3, columns)

    def cell(kind: int) -> str:
        if rng.random() < 0.15:
            return str(rng.choice(WORDS))
        number = f"{rng.normal() * 10.0 ** rng.integers(-3, 4):g}"
        return [number, str(rng.integers(0, 5)), str(rng.choice(["u", "v"]))][kind]

    lines = [separator.join(f"{quote}{n}{quote}" for n in names)]
    lines += [separator.join(cell(kind) for kind in kinds) for _ in range(rows)]
    raw = bytearray((end.join(lines) + end).encode(str(rng.choice(["utf-8", "utf-8", "utf-16"]))))
    for _ in range(int(rng.integers(0, 4)) if raw and rng.random() < 0.4 else 0):
        raw[int(rng.integers(len(raw)))] = int(rng.integers(256))
    return bytes(raw)


def tables(rng: np.random.Generator, folder: Path) -> str:
    """A text file, read by itself and as a folder of one: the same frame, or the same refusal."""
    path = folder / "part" / f"t{rng.choice(['.csv', '.tsv'])}"
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.iterdir():
        old.unlink()
    path.write_bytes(_text(rng))
    found = []
    for source in (path, path.parent):
        try:
            found.append(hm.Table(source, inputs=[]).whole())
        except (ValueError, OSError) as error:
            found.append(str(error))
    one, other = found
    if isinstance(one, str) != isinstance(other, str):
        raise Defect(f"the file gives {one!r}, its folder {other!r}")
    if isinstance(one, str):
        return "refused"
    pd.testing.assert_frame_equal(one, other)
    return "read"


# -- command lines ---------------------------------------------------------------------------------


def commands(rng: np.random.Generator, folder: Path) -> str:
    """A command with words that may be wrong: it ends with a code of its own and no traceback."""
    from typer.testing import CliRunner

    from hetmogp.cli import app

    model, data = _a_model(folder), folder / "data.csv"
    data.write_bytes(
        _text(rng) if rng.random() < 0.3 else b"t,plot,n,k,y\n0.1,a,1,u,0.5\n0.2,b,2,v,1\n"
    )
    spoilt = folder / "spoilt.hetmogp"
    names = [
        "t",
        "plot",
        "n",
        "k",
        "y",
        "t,plot",
        "",
        "no",
        "global",
        "\x1b[31m",
        "y:gaussian",
        "y:no",
    ]
    words = {
        "predict": [["--grid", "3"], ["--output", "n"], ["--interval", "2"], ["--json"]],
        "score": [["--interval", "0.5"], ["--json"], ["--interval", "x"]],
        "report": [["--out", str(folder / "r.html")], ["--out", str(folder / "no" / "r.html")]],
        "fit": [["--max-iter", "0"], ["--output", str(rng.choice(names))], ["--kernel", "rbf+"]],
        "discover": [["--output", str(rng.choice(names))], ["--json"]],
    }
    command = str(rng.choice(list(words), p=[0.4, 0.2, 0.05, 0.25, 0.1]))
    first = [model, spoilt, folder, folder / "no.file", data][int(rng.integers(5))]
    line = [command, str(data if command in ("fit", "discover") else first)]
    if command in ("fit", "discover"):
        line += ["--inputs", str(rng.choice(names))]
    if command == "fit":
        line += ["--max-iter", "0", "--output", "y:gaussian", "--model", str(folder / "f.hetmogp")]
    if command == "score" or (command == "predict" and rng.random() < 0.7):
        line.append(str(data))
    if command == "report" and rng.random() < 0.7:
        line += ["--data", str(data)]
    for option in words[command]:
        if rng.random() < 0.4:
            line += option
    done = CliRunner().invoke(app, line)
    said = " ".join(line)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise Defect(f"hetmogp {said}: {done.exception!r}") from done.exception
    if done.exit_code not in (0, 1, 2) or "Traceback" in done.output:
        raise Defect(f"hetmogp {said}: exit code {done.exit_code}: {done.output}")
    if done.exit_code == 1 and not done.output.strip():
        raise Defect(f"hetmogp {said}: failed without a word")
    return f"exit {done.exit_code}"


TARGETS: dict[str, Case] = {
    "likelihoods": likelihoods,
    "models": models,
    "tables": tables,
    "commands": commands,
}


def one(target: str, seed: int, number: int, folder: Path) -> str:
    """Run a case; returns how it ended, having printed what is wrong."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    try:
        rng = np.random.default_rng([seed, list(TARGETS).index(target), number])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TARGETS[target](rng, folder)
    except Exception as error:
        print(f"{target}, seed {seed}, case {number}: {error}", flush=True)
        if not isinstance(error, Defect):
            traceback.print_exc()
        return DEFECT
    finally:
        faulthandler.cancel_dump_traceback_later()


def main(seconds: float, cases: int | None, targets: list[str], seed: int) -> int:
    """Run as many cases of each target, or for as long; returns how many were defects."""
    ended: Counter[tuple[str, str]] = Counter()
    begun, spent, start = Counter[str](), dict.fromkeys(targets, 0.0), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        while spent:
            target = min(spent, key=spent.__getitem__)  # kinds of cases share the time evenly
            began = time.perf_counter()
            if begun[target] == cases or (cases is None and began - start > seconds):
                del spent[target]
                continue
            ended[target, one(target, seed, begun[target], Path(folder))] += 1
            begun[target] += 1
            spent[target] += time.perf_counter() - began
    for (target, outcome), n in sorted(ended.items()):
        print(f"{target:12s} {outcome:12s} {n:6d}")
    defects = sum(n for (_, outcome), n in ended.items() if outcome == DEFECT)
    print(f"{ended.total()} cases, {defects} defects")
    return defects


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--cases", type=int, default=None, help="so many of each, however long")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = options.targets.split(",")
    sys.exit(1 if main(options.seconds, options.cases, chosen, options.seed) else 0)
