"""Writing the predictor of a fitted model as a program that JAX alone can run.

The program is a function of a fixed number of input rows. All numbers of the model are part of it.
Quantiles are found as by `inversion`, but within the program.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as exporting
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from .. import __version__
from ..files import temporary_file
from ..fitted import Fitted
from ..likelihoods import Likelihood
from ..linalg import compiled
from ..predictive import distribution_function, moments, nodes
from ..priors import Prior
from ..session import session
from ..variational import Family
from . import predictor

__all__ = ["export"]

ROWS = 64  # at a time
DOUBLINGS = 100  # of a bracket, at most
TURNS = 100  # of a search, at most
CLOSE = 1e-9  # to a quantile, in standard deviations
SLACK = 4 * np.finfo(float).eps  # what rounding may take from a probability near one
MOST = 1.0 - SLACK / 8  # the largest probability that has a normal quantile


def export(
    fitted: Fitted,
    folder: str | os.PathLike,
    outputs: Sequence[str],
    quantiles: Sequence[float],
    platforms: Sequence[str] | None,
) -> Path:
    """Write a folder that predicts; see `HetMOGP.export`."""
    if fitted.posterior.near is not None:
        raise ValueError(
            "a model with local latents cannot be exported: its predictions search for the nearest "
            "places. Fit it with local=0, or ship hetmogp with the saved model"
        )
    for level in quantiles:
        if not 0.0 < level < 1.0:
            raise ValueError(f"quantile levels must lie strictly between 0 and 1, not {level}")
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file; an exported model is a folder")
    facts = {
        "hetmogp": __version__,
        "jax": jax.__version__,
        "dtype": fitted.dtype,
        "rows": ROWS,
        "quantiles": [float(level) for level in quantiles],
        "inputs": [
            {
                "name": column.name,
                "kind": column.kind,
                "levels": list(column.levels),
                "open": column.open,
            }
            for column in fitted.columns
        ],
        "outputs": {
            name: {
                "likelihood": repr(fitted.likelihoods[name]),
                "classes": list(fitted.likelihoods[name].levels)
                if fitted.likelihoods[name].labelled
                else [],
                "quantiles": _has_quantiles(fitted.likelihoods[name]),
            }
            for name in outputs
        },
    }
    with session(fitted.dtype):
        shape = jax.ShapeDtypeStruct((ROWS, len(fitted.columns)), jnp.dtype(fitted.dtype))
        program = jax.jit(_predictor(fitted, outputs, jnp.asarray(quantiles)))
        made = exporting.export(program, platforms=platforms and list(platforms))(shape)
        content = made.serialize()
    facts["sha256"] = hashlib.sha256(content).hexdigest()  # so that both are of one export
    files = {
        predictor.PROGRAM: bytes(content),
        predictor.FACTS: json.dumps(facts, indent=1, ensure_ascii=False).encode(),
        "predictor.py": Path(predictor.__file__).read_bytes(),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, written in files.items():
        with temporary_file(target / name) as partial:
            partial.write_bytes(written)
    return target


def _has_quantiles(likelihood: Likelihood) -> bool:
    usual = likelihood.outcome not in ("nominal", "circular") and not likelihood.labelled
    return bool(usual and likelihood.has_cdf)


def _predictor(fitted: Fitted, outputs: Sequence[str], levels: Array) -> Any:
    """A function from rows of inputs to the predictions of each output."""
    posterior = fitted.posterior
    prior, q, jitter = jax.tree.map(jnp.asarray, (posterior.prior, posterior.q, posterior.jitter))
    ready = _ready(prior, q, jitter)  # all that does not depend on the inputs
    centre, scale = map(jnp.asarray, fitted.scaling)

    def predictions(X: Float[Array, "n p"]) -> dict[str, dict[str, Array]]:
        latents = ready.latents(prior.matrices((X - centre) / scale, jitter))
        result = {}
        for name in outputs:
            likelihood = jax.tree.map(jnp.asarray, fitted.likelihoods[name]).at({})
            mean, factor = prior.factor(fitted.outputs[name].part, latents)
            result[name] = _of_output(likelihood, mean, factor, levels)
        return result

    return predictions


@compiled
def _ready(prior: Prior, q: Family, jitter: Array) -> Any:
    return q.ready(prior.matrices(prior.Z[0, :1], jitter).inducing, prior.smooth_ranks)


def _of_output(
    likelihood: Likelihood, mean: Array, factor: Array, levels: Array
) -> dict[str, Array]:
    """What is predicted of one output."""
    if likelihood.labelled:
        return {"probabilities": jax.vmap(lambda *f: _probabilities(likelihood, *f))(mean, factor)}
    centre, variance = jax.vmap(lambda *f: moments(likelihood, *f))(mean, factor)
    found = {"mean": centre, "std": jnp.sqrt(variance)}
    if _has_quantiles(likelihood) and len(levels):

        def each(mean: Array, factor: Array, centre: Array, std: Array) -> Array:
            return jax.vmap(lambda level: _quantile(likelihood, mean, factor, centre, std, level))(
                levels
            )

        found["quantiles"] = jax.vmap(each)(mean, factor, centre, found["std"])
    return found


def _probabilities(likelihood: Any, mean: Array, factor: Array) -> Array:
    f, weights = nodes(mean, factor)
    return weights @ jax.vmap(likelihood.probabilities)(f)


def _quantile(
    likelihood: Likelihood, mean: Array, factor: Array, centre: Array, std: Array, level: Array
) -> Array:
    """The smallest y with P(Y ≤ y) ≥ level."""
    low, high = likelihood.ends
    slack = jnp.where(level > 0.5, SLACK, 0.0)

    def upto(y: Array) -> Array:
        return distribution_function(likelihood, y, mean, factor) + slack

    if likelihood.discrete:

        def reached(y: Array) -> Array:
            return jnp.where(upto(jnp.floor(y)) >= level, 1.0, -1.0)

        at = jnp.where(jnp.isfinite(centre), jnp.clip(centre, low, high), 1.0)
        width = jnp.where(jnp.isfinite(std), std, 0.0) + 1.0
        ends = _bracket(reached, at - width, at + width, low - 1.0, high)
        return jnp.floor(_halved(reached, *ends))

    # On the scale on which the range is the whole line, in standard deviations from the mean.
    at, unit, back = _on_line(low, high, centre, std)
    below = upto(jnp.asarray(low, mean.dtype)) if low in likelihood.atoms else jnp.zeros(())
    last = jnp.nextafter(jnp.asarray(high, mean.dtype), jnp.asarray(low, mean.dtype))
    within = (upto(last) if high in likelihood.atoms else 1.0) - below
    share = (level - below) / within
    z = ndtri(jnp.clip(share, 1e-300, MOST))

    def above(x: Array) -> Array:
        p = (upto(back(at + unit * x)) - below) / within
        return ndtri(jnp.clip(p, 1e-300, MOST)) - z

    x = _root(above, *_bracket(above, z - 2.0, z + 2.0, -jnp.inf, jnp.inf))
    return jnp.where(share <= 0.0, low, jnp.where(share > 1.0, high, back(at + unit * x)))


def _bracket(f: Any, a: Array, b: Array, lowest: float, highest: float) -> tuple[Array, Array]:
    """Points where an increasing f is < 0 at the first and ≥ 0 at the second, if there are any."""

    def misses(state: Any) -> Array:
        a, b, _, n = state
        return ((f(a) >= 0.0) & (a > lowest) | (f(b) < 0.0) & (b < highest)) & (n < DOUBLINGS)

    def wider(state: Any) -> Any:
        a, b, width, n = state
        to_left, to_right = f(a) >= 0.0, f(b) < 0.0
        return (
            jnp.where(to_left, jnp.maximum(a - width, lowest), a),
            jnp.where(to_right, jnp.minimum(b + width, highest), b),
            2.0 * width,
            n + 1,
        )

    start = jnp.maximum(a, lowest), jnp.minimum(b, highest), jnp.maximum(b - a, 1.0), 0
    found = jax.lax.while_loop(misses, wider, start)
    return found[0], found[1]


def _halved(f: Any, a: Array, b: Array) -> Array:
    """The upper end of a bracket of an increasing step, halved until it is at most one half long.

    Then it holds at most one whole number.
    """

    def long(state: Any) -> Array:
        a, b, n = state
        return (b - a > 0.5) & (n < TURNS)

    def half(state: Any) -> Any:
        a, b, n = state
        middle = 0.5 * (a + b)
        there = f(middle) >= 0.0
        return jnp.where(there, a, middle), jnp.where(there, middle, b), n + 1

    return jax.lax.while_loop(long, half, (a, b, 0))[1]


def _root(f: Any, a: Array, b: Array) -> Array:
    """The root of an increasing function between two points, by Chandrupatla's method (1997)."""

    def unfinished(state: Any) -> Array:
        x1, f1, x2, *_, n = state
        return (jnp.abs(x2 - x1) > 2.0 * CLOSE) & (f1 != 0.0) & (n < TURNS)

    def turn(state: Any) -> Any:
        x1, f1, x2, f2, t, n = state
        x = x1 + t * (x2 - x1)
        fx = f(x)
        same = jnp.sign(fx) == jnp.sign(f1)
        x3, f3 = jnp.where(same, x1, x2), jnp.where(same, f1, f2)
        x2, f2 = jnp.where(same, x2, x1), jnp.where(same, f2, f1)
        x1, f1 = x, fx
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        inverse = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
        guess = f1 / (f2 - f1) * f3 / (f2 - f3)
        guess += (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
        least = jnp.minimum(CLOSE / jnp.maximum(jnp.abs(x2 - x1), CLOSE), 0.5)
        t = jnp.clip(jnp.where(inverse & jnp.isfinite(guess), guess, 0.5), least, 1.0 - least)
        return x1, f1, x2, f2, t, n + 1

    start = a, f(a), b, f(b), jnp.full_like(a, 0.5), 0
    x1, f1, x2, f2, *_ = jax.lax.while_loop(unfinished, turn, start)
    return jnp.where(jnp.abs(f1) <= jnp.abs(f2), x1, x2)


def _on_line(low: float, high: float, centre: Array, std: Array) -> tuple[Array, Array, Any]:
    """Where to look on the whole line, how far around it, and the way back to values."""
    if np.isfinite(low) and np.isfinite(high):
        length = high - low
        at = jnp.log((centre - low) / (high - centre))
        unit = std * length / ((centre - low) * (high - centre))
        return *_usual(at, unit), lambda t: low + length * jax.nn.sigmoid(t)
    if np.isfinite(low):
        unit = jnp.sqrt(jnp.log1p((std / (centre - low)) ** 2))
        at = jnp.log(centre - low)
        return *_usual(at, unit), lambda t: low + jnp.exp(jnp.minimum(t, 700.0))
    if np.isfinite(high):
        unit = jnp.sqrt(jnp.log1p((std / (high - centre)) ** 2))
        at = -jnp.log(high - centre)
        return *_usual(at, unit), lambda t: high - jnp.exp(jnp.minimum(-t, 700.0))
    return *_usual(centre, std), lambda t: t


def _usual(at: Array, unit: Array) -> tuple[Array, Array]:
    """Where to look and how far, if these are finite; otherwise 0 and 1 will do."""
    fine = jnp.isfinite(at) & jnp.isfinite(unit) & (unit > 0.0)
    return jnp.where(fine, at, 0.0), jnp.where(fine, unit, 1.0)
