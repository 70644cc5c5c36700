"""Warnings for the reader of a report, in words."""

from collections.abc import Iterator
from itertools import chain

import jax.numpy as jnp
import numpy as np
import pandas as pd

from ..fitting import JITTER
from ..kernels import Kernel
from ..model import HetMOGP
from ..session import session

__all__ = ["notes"]

FEW_VALUES = 20
CROWDED = 0.9999  # correlation of neighbouring inducing inputs above which half would do
SPARSE = 0.5  # and below which there are too few of them
APART = 0.1  # correlation with other outputs below which nothing is shared


def notes(model: HetMOGP, scores: pd.DataFrame | None = None, level: float = 0.9) -> list[str]:
    """Warnings about a fitted model, each a sentence or two.

    Args:
        model: a fitted model.
        scores: from `scoring.evaluate`, where there is data.
        level: of the coverage in `scores`.
    """
    return [
        *_about_the_fit(model),
        *_about_inducing_inputs(model),
        *_about_sharing(model),
        *(() if scores is None else _about_coverage(scores, level)),
    ]


def _about_the_fit(model: HetMOGP) -> Iterator[str]:
    jitter = model.fitted.record.jitter
    if model.interrupted_:
        after = f"after {model.n_iter_} iterations"
        yield f"The fit was interrupted {after}; the bound would still rise."
    elif not model.converged_:
        yield (
            f"The fit has not converged: it stopped at {model.n_iter_} iterations. Raise max_iter; "
            "until then intervals and lengthscales are provisional."
        )
    if jitter > 10 * JITTER[model.dtype]:
        yield (
            f"A jitter of {jitter:g} was needed to factorise the covariance of the inducing "
            "inputs; fewer inducing inputs would be safer."
        )
    for name, n in model.n_observed_.items():
        if n < FEW_VALUES:
            yield f"Output {name} has only {n} observed values, so results about it are uncertain."


def _about_inducing_inputs(model: HetMOGP) -> Iterator[str]:
    """Whether neighbouring inducing inputs repeat each other, or leave holes between them."""
    prior = model.fitted.posterior.prior
    used = model.summary().shares.columns
    labels = {j for j, column in enumerate(model.columns_) if column.kind == "category"}
    for q, (kernel, Z) in enumerate(zip(prior.smooth, prior.tables, strict=True)):
        if len(Z) < 3 or f"u{q}" not in used:
            continue
        seen = (leaf.active_dims or range(Z.shape[1]) for leaf in kernel.leaves)
        if labels.issuperset(chain.from_iterable(seen)):
            continue  # a function of labels alone; its inducing inputs are the labels
        nearest = np.median(_nearest(kernel, Z, model.dtype))
        if nearest > CROWDED:
            yield (
                f"The inducing inputs of latent u{q} are crowded: half of the {len(Z)} are "
                f"correlated by more than {CROWDED} with a neighbour. Half as many would fit as "
                "well and faster."
            )
        elif nearest < SPARSE:
            yield (
                f"The inducing inputs of latent u{q} are sparse for its lengthscale: half of the "
                f"{len(Z)} are correlated by less than {SPARSE} with any other. It may have finer "
                "structure than they can show; raise inducing."
            )


def _nearest(kernel: Kernel, Z: np.ndarray, dtype: str) -> np.ndarray:
    """The largest correlation of each inducing input with another."""
    with session(dtype):
        z = jnp.asarray(Z)
        K, scale = np.asarray(kernel.matrix(z, z), float), np.asarray(kernel.diag(z), float)
    unit = np.sqrt(np.maximum(scale, 1e-30))
    correlation = K / np.outer(unit, unit)
    np.fill_diagonal(correlation, -np.inf)
    return correlation.max(axis=1)


def _about_sharing(model: HetMOGP) -> Iterator[str]:
    if len(model.output_names_) < 2:
        return
    if model.fitted.untried:
        yield "The fit was interrupted before sharing was tried: the outputs share nothing."
        return
    if model.prior == "independent":
        yield "Nothing is shared: the model has one process per parameter function (independent)."
        return
    little = {name: most for name, most in model.summary().sharing.items() if most < APART}
    if not little:
        return
    if len(little) == len(model.output_names_):
        most = max(little.values())
        yield (
            "No output gains anything from the others: parameter functions of different outputs "
            f"are correlated by at most {most:.2f}. A model of each output alone would predict "
            "the same."
        )
        return
    for name, most in little.items():
        yield (
            f"Output {name} gains nothing from the others: its parameter functions are "
            f"correlated with theirs by at most {most:.2f}. A model of this output alone would "
            "predict the same."
        )


def _about_coverage(scores: pd.DataFrame, level: float) -> Iterator[str]:
    """Whether intervals hold clearly fewer values than they should."""
    for name, row in scores.iterrows():
        n, share = row["values"], row["coverage"]
        if n >= 30 and share < level - 3 * np.sqrt(level * (1 - level) / n):
            yield (
                f"Intervals of {name} are too narrow: {share:.0%} of the values lie in the "
                f"{level:.0%} intervals."
            )
