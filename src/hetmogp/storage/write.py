"""Writing a fitted model to a file."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from .. import __version__
from ..columns import Column
from ..discovery import propose
from ..files import write_numbers
from ..fitted import Fitted
from ..inputs import read_inputs
from ..kernels import Kernel
from ..likelihoods import Likelihood
from ..priors import PRIORS
from ..variational import FAMILIES
from .description import check_description, is_plain

__all__ = ["ALONE", "VERSION", "numbers_of", "refuse_unsaveable", "save"]

VERSION = 2
ALONE = "alone."  # begins the names of the numbers of the model that shares nothing
HELD = "a file can hold text, numbers and True or False: convert it to text"


def save(
    fitted: Fitted, options: Mapping[str, Any], named_inputs: bool, path: str | os.PathLike
) -> None:
    """Write a fitted model to a file, which appears only once it is complete.

    Args:
        fitted: the model.
        options: the constructor's arguments, but for the likelihoods.
        named_inputs: whether the inputs came with names.
        path: where to; `.hetmogp` is the usual ending.
    """
    record = fitted.record
    facts = {
        "hetmogp": __version__,
        "outputs": [
            {
                "name": name,
                "likelihood": _of_likelihood(name, likelihood),
                "observed": int(record.observed[name]),
            }
            for name, likelihood in fitted.likelihoods.items()
        ],
        "inputs": [_of_column(column) for column in fitted.columns],
        "named_inputs": named_inputs,
        **_of_posterior(fitted),
        "options": _of_options(options),
        "fit": record.facts(),
    }
    tensors = _numbers(fitted)
    if fitted.alone is not None:
        facts["alone"] = {"elbo": fitted.alone.record.elbo, **_of_posterior(fitted.alone)}
        tensors |= {f"{ALONE}{name}": values for name, values in _numbers(fitted.alone).items()}
    check_description(facts)  # so that what is written can be read
    tensors = {
        **tensors,
        "scaling.centre": fitted.scaling.centre,
        "scaling.scale": fitted.scaling.scale,
        **record.arrays(),
        **_inducing_tables(options["inducing"], fitted.columns),
    }
    write_numbers(path, "model", VERSION, facts, tensors)


def _of_posterior(fitted: Fitted) -> dict[str, Any]:
    """What a prior and a q are, but for their numbers."""
    prior, near = fitted.posterior.prior, fitted.posterior.near
    return {
        "prior": _name(PRIORS, prior),
        "q": _name(FAMILIES, fitted.posterior.q),
        "kernels": [_plain(jax.tree.map(lambda _: 1.0, k)) for k in prior.kernels],
        "ranks": list(prior.ranks),
        "counts": list(prior.counts) or None,
        "local": {"latents": prior.local, "neighbours": near.neighbours} if near else None,
    }


def _numbers(fitted: Fitted) -> dict[str, np.ndarray]:
    """The numbers of a prior, of a q and of the likelihoods, by name."""
    in_order = tuple(fitted.likelihoods[name] for name in sorted(fitted.likelihoods))
    parameters = {"prior": fitted.posterior.prior, "likelihoods": in_order}
    numbers = {"parameters": parameters, "q": fitted.posterior.q, "near": fitted.posterior.near}
    return numbers_of(numbers)


def _name(kinds: Mapping[str, type], thing: Any) -> str:
    """What a class is called in the constructor's arguments."""
    names = [name for name, kind in kinds.items() if type(thing) is kind]
    if not names:
        raise TypeError(f"a file cannot hold a {type(thing).__name__}, only {list(kinds)}")
    return names[0]


def refuse_unsaveable(
    likelihoods: Mapping[str, Likelihood | str], X: pd.DataFrame, Y: pd.DataFrame
) -> None:
    """Raise an error, before a fit, for what `save` could not write after it.

    Args:
        likelihoods: by output; "auto" where one is to be found.
        X: the inputs.
        Y: has a column for each output.

    Raises:
        TypeError: where labels are neither text nor numbers, or a likelihood cannot be named.
    """
    for name, column in X.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            _refuse_odd(f"input {name!r} has the level", column.dtype.categories)
    for name, likelihood in likelihoods.items():
        automatic = isinstance(likelihood, str)
        candidates: Any = propose(Y[name], name).candidates if automatic else (likelihood,)
        for one in candidates:
            _of_likelihood(name, one)
            if one.labelled and not one.levels:
                kind, values = Y[name].dtype, Y[name].dropna()
                labels = kind.categories if isinstance(kind, pd.CategoricalDtype) else values
                _refuse_odd(f"output {name!r} has the class", labels)


def _refuse_odd(what: str, labels: Iterable[Any]) -> None:
    """Raise an error for a label that a file cannot hold."""
    for label in labels:
        label = label.item() if isinstance(label, np.generic) else label
        if not is_plain(label):
            raise TypeError(f"{what} {label!r}, a {type(label).__name__}; {HELD}")


def numbers_of(tree: Any) -> dict[str, np.ndarray]:
    """The numbers of a tree, named by their place in it."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = jax.tree_util.keystr
    return {named(path, simple=True, separator="."): leaf for path, leaf in paths}


def _of_column(column: Column) -> dict[str, Any]:
    _refuse_odd(f"input {column.name!r} has the level", column.levels)
    return dataclasses.asdict(column)


def _plain(value: Any) -> Any:
    """A value as JSON has it: kernels by name and fields, arrays and numbers of NumPy as Python's.

    What JSON cannot hold is left as it is.
    """
    if isinstance(value, Kernel):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kernel": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    return value


def _of_likelihood(name: str, likelihood: Likelihood) -> dict[str, Any]:
    """A likelihood by name and constructor options."""
    where = f"output {name!r} ({likelihood!r})"
    try:
        options = likelihood.plain_options()
    except TypeError as error:
        raise TypeError(f"{where} {error}") from None
    for option, value in options.items():
        items = value if isinstance(value, list | tuple) else [value]
        if not isinstance(value, dict) and not all(map(is_plain, items)):
            raise TypeError(f"{where} has {option}={value!r}; {HELD}")
    return {"likelihood": type(likelihood).__name__, "options": options}


def _of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    placed = {"inducing": "tables"} if _are_tables(options["inducing"]) else {}
    return {name: _plain(value) for name, value in {**options, **placed}.items()}


def _are_tables(inducing: Any) -> bool:
    return inducing is not None and np.ndim(inducing) > 0


def _inducing_tables(inducing: Any, columns: list[Column]) -> dict[str, np.ndarray]:
    """Inducing inputs that the user placed, as they were given."""
    if not _are_tables(inducing):
        return {}
    try:
        tables = [read_inputs(inducing, columns)[0]]
    except ValueError:  # one per latent
        tables = [read_inputs(table, columns)[0] for table in inducing]
    return {f"inducing.{q}": table for q, table in enumerate(tables)}
