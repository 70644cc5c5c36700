"""What tells whether outputs should share: four criteria beside the truth on held-out rows.

Every task is fitted alone, and jointly with all weights free. Then each criterion says, from the
training rows, what sharing is worth, and held-out rows say what it was worth:

- price: what the bound has gained for each weight that the joint model has more, in nats;
- laplace: log evidence over all learned numbers, each weight with a standard normal prior;
- cavities: log densities of single values left out, by their sites, hyperparameters held;
- folds: the same of rows in five folds, for which the hyperparameters were learned again.

The tasks are simulated, outputs that share all, some, in two groups, or nothing; or cases of
tables, see `tables.py`.

    python benchmarks/criteria.py --out build/criteria.csv
    python benchmarks/criteria.py --tables FOLDER --cases meuse_random --splits 3,4,5
"""

import argparse
import csv
import os
import sys
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree

import hetmogp as hm
from hetmogp.batch import Batch
from hetmogp.bound import at_observations
from hetmogp.fitting import choosing, sharing
from hetmogp.fitting.alone import converged
from hetmogp.fitting.sites import Sites, bound_and_slopes, sites_of_slopes
from hetmogp.fitting.vem import _evaluated, settle
from hetmogp.predictive import log_density
from hetmogp.priors import Functions
from hetmogp.quadrature import root
from hetmogp.session import session

FOLDS = 5
STEP = 1e-3  # of finite differences, in units in which learned numbers are of order one
KINDS = ("all", "some", "two groups", "nothing")
FIELDS = (
    *("task", "n", "seed", "extra", "truth", "price", "laplace", "cavities", "folds"),
    *("default", "shared", "alone"),
)


# -- tasks -----------------------------------------------------------------------------------------


def simulated(kind, n, seed):
    """Six outputs over time, of which all, three, three and three, or none have common latents."""
    rng = np.random.default_rng([seed, n, KINDS.index(kind)])
    t = np.sort(rng.uniform(0.0, 1.0, 2 * n))
    K = np.exp(-0.5 * (t[:, None] - t) ** 2 / 0.08**2) + 1e-8 * np.eye(2 * n)
    draws = np.linalg.cholesky(K) @ rng.standard_normal((2 * n, 8))
    mixed = rng.standard_normal((6, 2))
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    first, second = draws[:, :2], draws[:, 2:4]
    own = draws[:, 2:8].T
    f = {
        "all": lambda d: first @ mixed[d],
        "some": lambda d: first @ mixed[d] if d % 2 == 0 else own[d],
        "two groups": lambda d: (first if d % 2 == 0 else second) @ mixed[d],
        "nothing": lambda d: own[d],
    }[kind]
    likelihoods, Y = {}, {}
    for d in range(6):
        value = f(d)
        if d < 2:
            likelihoods[f"g{d}"], Y[f"g{d}"] = (
                hm.Gaussian(),
                value + 0.4 * rng.standard_normal(2 * n),
            )
        elif d < 4:
            likelihoods[f"p{d}"], Y[f"p{d}"] = (
                hm.Poisson(),
                rng.poisson(np.exp(0.5 + value)).astype(float),
            )
        else:
            p = 1.0 / (1.0 + np.exp(-2.0 * value))
            likelihoods[f"b{d}"], Y[f"b{d}"] = hm.Bernoulli(), (rng.uniform(size=2 * n) < p) * 1.0
    train = rng.permutation(2 * n) < n
    return likelihoods, (t[train], _some(Y, train)), (t[~train], _some(Y, ~train))


def _some(Y, rows):
    return {name: values[rows] for name, values in Y.items()}


def from_table(cases, name, split):
    """A case of a table."""
    case = cases.CASES[name](split)
    return (
        case["likelihoods"],
        (case["X_train"], case["Y_train"]),
        (case["X_test"], case["Y_test"]),
    )


# -- criteria --------------------------------------------------------------------------------------


def laplace(state, problem, jitter):
    """The log evidence by a quadratic at the best numbers."""
    z = np.asarray(ravel_pytree(state.parameters.free(False))[0], float)
    is_weight, used = _weights_among(state.parameters)

    def slope(z):
        found = _evaluated(
            *(jnp.asarray(z), state.parameters, state.sites, state.sites, problem, jitter)
        )
        return np.asarray(found.gradient)

    each = np.flatnonzero(used)
    H = np.zeros((len(each), len(each)))
    for k, place in enumerate(each):
        move = np.zeros(len(z))
        move[place] = STEP
        H[k] = -(slope(z + move) - slope(z - move))[each] / (2.0 * STEP)
    H = 0.5 * (H + H.T) + np.diag(is_weight[each].astype(float))
    sizes = np.maximum(np.linalg.eigvalsh(H), 1e-3)
    prior = -0.5 * np.sum(z[is_weight & used] ** 2 + np.log(2.0 * np.pi))
    return (
        state.objective
        + prior
        + 0.5 * len(each) * np.log(2.0 * np.pi)
        - 0.5 * np.sum(np.log(sizes))
    )


def _weights_among(parameters):
    """Which of the learned numbers are weights, and which numbers are in use."""
    mask = np.asarray(parameters.prior.mask)
    none = jax.tree.map(lambda a: jnp.zeros(jnp.shape(a)), parameters.free(False))
    idle = [float(not column.any()) for column in mask.T]
    kernels = tuple(
        jax.tree.map(lambda a, of=of: jnp.full(jnp.shape(a), of), kernel)
        for of, kernel in zip(idle, none["kernels"], strict=True)
    )
    weights = none | {"weights": jnp.ones(mask.shape)}
    unused = none | {"weights": jnp.asarray(1.0 - mask), "kernels": kernels}
    return tuple(np.asarray(ravel_pytree(of)[0]) == k for of, k in ((weights, 1.0), (unused, 0.0)))


def cavities(state, problem, jitter):
    """The sum of the log densities of values whose own sites are taken away."""
    parameters, batch = state.parameters, problem.batch
    projection = parameters.prior.matrices(batch.X, jnp.asarray(jitter)).project()
    _, at, slopes = bound_and_slopes(parameters, state.q, projection, batch, problem.rules)
    sites = sites_of_slopes(parameters, state.q, at, slopes, batch)
    total = 0.0
    for likelihood, here, site, seen in zip(
        parameters.likelihoods, at, sites, batch.outputs, strict=True
    ):
        assert isinstance(here, Functions)
        assert isinstance(site, Sites)
        precision = jnp.linalg.inv(here.cov)
        left = precision - site.precision
        sizes, axes = jnp.linalg.eigh(left)
        sizes = jnp.maximum(sizes, 1e-6)  # where the site holds all there is to know
        cov = jnp.einsum("nij,nj,nkj->nik", axes, 1.0 / sizes, axes)
        linear = jnp.einsum("nij,nj->ni", precision, here.mean) - site.linear
        total += _densities(likelihood, seen, Functions(jnp.einsum("nij,nj->ni", cov, linear), cov))
    return total


def _densities(likelihood, seen, at):
    def one(y, mean, cov, given):
        return log_density(likelihood.at(given), y, mean, root(cov))

    each = jax.vmap(one)(seen.y, at.mean, at.cov, seen.given)
    return jnp.sum(jnp.where(seen.seen, each, 0.0))


def folds(state, problem, jitter, seed=0):
    """The sum of the log densities of rows, a fold at a time."""
    batch = problem.batch
    fold = np.random.default_rng(seed).integers(0, FOLDS, len(batch.X))
    total = 0.0
    for k in range(FOLDS):
        kept = _only(batch, fold != k)
        rest = problem._replace(batch=kept)
        found = converged(settle(state.parameters, state.sites, rest, jitter), rest, jitter)
        projection = found.parameters.prior.matrices(batch.X, jnp.asarray(jitter)).project()
        out = _only(batch, fold == k)
        at = at_observations(found.parameters, found.q.latents(projection), out, problem.rules)
        for likelihood, seen, here in zip(
            found.parameters.likelihoods, out.outputs, at, strict=True
        ):
            total += float(_densities(likelihood, seen, here))
    return total


def _only(batch, rows):
    outputs = tuple(
        eqx.tree_at(lambda o: o.seen, one, one.seen & jnp.asarray(rows)[one.row])
        for one in batch.outputs
    )
    return Batch(batch.X, outputs)


# -- one task --------------------------------------------------------------------------------------


def measured(likelihoods, train, test, with_folds):
    """What each criterion says of sharing, and what held-out rows say."""
    scored = [name for name in likelihoods if pd.notna(pd.Series(test[1][name])).any()]

    def total(model):
        scores = model.nlpd(*test)
        return sum(scores[name] for name in scored)

    caught = []
    joint_of = sharing.Chooser._joint

    def spy(chooser, apart):
        given = chooser.problem, chooser.jitter
        joint = converged(joint_of(chooser, apart), *given)
        caught.append((converged(apart, *given), joint, *given))
        return joint

    with (  # all weights, whatever they cost
        patch.object(sharing.Chooser, "_joint", spy),
        patch.object(sharing, "PRICE", -1e6),
        patch.object(choosing, "PRICE", -1e6),
    ):
        forced = hm.HetMOGP(likelihoods, progress=False).fit(*train)
    default = hm.HetMOGP(likelihoods, progress=False).fit(*train)
    alone = total(forced.alone_)
    apart, joint, problem, jitter = caught[-1]
    extra = sharing.weights(joint.parameters) - sharing.weights(apart.parameters)
    with session():
        row = {
            "extra": extra,
            "price": (joint.objective - apart.objective) / extra,
            **{
                name: of(joint, problem, jitter) - of(apart, problem, jitter)
                for name, of in (("laplace", laplace), ("cavities", cavities))
            },
            "folds": np.nan,
        }
        if with_folds:
            row["folds"] = folds(joint, problem, jitter) - folds(apart, problem, jitter)
    return row | {
        "truth": total(forced) - alone,
        "default": total(default) - alone,
        "alone": alone,
        "shared": default.summary().shared,
    }


def main():
    """Measure, print and write a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", default=os.environ.get("HETMOGP_TABLES"))
    parser.add_argument("--cases", default="")
    parser.add_argument("--splits", default="3,4,5")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", default="60,200")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/criteria.csv"))
    chosen = parser.parse_args()
    tasks = []
    if chosen.cases:
        sys.path.insert(0, chosen.tables)
        cases = import_module("cases")
        for name in chosen.cases.split(","):
            for split in map(int, chosen.splits.split(",")):
                tasks.append((name, split, partial(from_table, cases, name, split)))
    else:
        for kind in chosen.kinds.split(","):
            for n in map(int, chosen.rows.split(",")):
                for seed in range(chosen.first, chosen.first + chosen.seeds):
                    tasks.append((kind, seed, partial(simulated, kind, n, seed)))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with chosen.out.open("w", newline="") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for name, seed, make in tasks:
            likelihoods, train, test = make()
            n = len(train[0])
            row = {"task": name, "n": n, "seed": seed}
            row |= measured(likelihoods, train, test, with_folds=n <= 200)
            writer.writerow(row)
            file.flush()
            print(" ".join(f"{k}={_short(v)}" for k, v in row.items()), flush=True)


def _short(value):
    return f"{value:.3f}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
