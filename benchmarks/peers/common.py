"""What the peers share: the model's terms that they do not have, and a loop that takes orders.

A peer is a process of its own (TensorFlow and PyTorch do not live well beside JAX) that reads one
order a line as JSON and answers with one line of JSON, so that rounds of measurements can alternate
between libraries. The model: D outputs, in turn Bernoulli (one parameter function) and HetGaussian
(two), Q latents with inducing inputs of their own, ARD squared exponentials, whitened.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / np.sqrt(2.0 * np.pi)


def columns(D: int) -> list[list[int]]:
    """The parameter functions of each output."""
    result, J = [], 0
    for d in range(D):
        size = 1 + d % 2
        result.append(list(range(J, J + size)))
        J += size
    return result


def problem(M: int, B: int, Q: int, p: int, D: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs, values, inducing inputs and mixing weights."""
    rng = np.random.default_rng(seed)
    J = columns(D)[-1][-1] + 1
    return {
        "X": rng.uniform(size=(B, p)),
        "Y": np.where(
            np.arange(D) % 2 == 0, rng.uniform(size=(B, D)) > 0.5, rng.standard_normal((B, D))
        ).astype(float),
        "Z": rng.uniform(size=(Q, M, p)),
        "W": rng.standard_normal((J, Q)),
        "lengthscale": np.full((Q, p), 0.3 * np.sqrt(p / 2.0)),
    }


def median_seconds(step: Callable[[], Any], repeats: int) -> float:
    """The median of some timed calls, after two that are not."""
    step()
    step()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def nlpd(mean: np.ndarray, variance: np.ndarray, flat: np.ndarray, price: np.ndarray) -> float:
    """Of a Bernoulli on the first function and a HetGaussian on the next two, independent ones."""
    f = mean[:, :1] + np.sqrt(variance[:, :1]) * NODES
    yes = (1.0 / (1.0 + np.exp(-f))) @ WEIGHTS
    g = mean[:, 2:3] + np.sqrt(variance[:, 2:3]) * NODES
    spread = variance[:, 1:2] + np.exp(g)
    density = np.exp(-0.5 * (price[:, None] - mean[:, 1:2]) ** 2 / spread) / np.sqrt(
        2.0 * np.pi * spread
    )
    return float(
        -np.mean(np.log(np.where(flat > 0.5, yes, 1.0 - yes))) - np.mean(np.log(density @ WEIGHTS))
    )


def serve(**orders: Callable[..., Any]) -> None:
    """Answer orders {"do": name, ...} until the end of the input."""
    for line in sys.stdin:
        order = json.loads(line)
        answer = orders[order.pop("do")](**order)
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
        print(json.dumps({"answer": answer, "peak_gb": peak}), flush=True)
