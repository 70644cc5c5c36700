"""Saved models: one file of numbers and plain text, read without running anything found in it.

A `.hetmogp` file is a safetensors file. Its tensors are the numbers of the model, named by their
place in it ("parameters.prior.kernels.0.lengthscale"); its metadata holds the format's version, a
JSON description of everything that is not a number (outputs and likelihoods, inputs and their
units, kernels, options, how the fit went), and the SHA-256 of all of that. Classes are looked up by
name among the package's own, and among those the caller passes as `custom`; nothing is unpickled.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from . import __version__, kernels, likelihoods
from .bound import Parameters
from .columns import Column
from .data import Scaling
from .discovery import propose
from .files import UnreadableFileError, read_numbers, write_numbers
from .inputs import read_inputs, restored
from .kernels import Kernel
from .likelihoods import Classes, Likelihood, from_distribution
from .likelihoods.distribution import LINKS, FromDistribution
from .model import HetMOGP, Learned
from .model_rules import check_arrays, check_description, check_kernel, is_plain
from .priors import LMC
from .variational import Factors

__all__ = ["VERSION", "ModelFileError", "load", "refuse_unsaveable", "save"]

VERSION = 1
HELD = "a file can hold text, numbers and True or False: convert it to text"


class ModelFileError(ValueError):
    """A file that holds no model this version can read."""


# -- writing ---------------------------------------------------------------------------------------


def save(model: HetMOGP, path: str | os.PathLike) -> None:
    """Write a fitted model to a file, which is never half written.

    Args:
        model: a fitted model.
        path: where to; `.hetmogp` is the usual ending.
    """
    check_is_fitted(model, "elbo_")
    model._check_options()  # which may have been set since the fit
    learned = model._learned
    facts = {
        "hetmogp": __version__,
        "outputs": [
            {
                "name": name,
                "likelihood": _of_likelihood(name, model.likelihoods_[name]),
                "observed": int(model.n_observed_[name]),
            }
            for name in model.output_names_
        ],
        "inputs": [_of_column(column) for column in learned.columns],
        "named_inputs": hasattr(model, "feature_names_in_"),
        "kernels": [
            _plain(jax.tree.map(lambda _: 1.0, k)) for k in learned.parameters.prior.kernels
        ],
        "ranks": list(learned.parameters.prior.ranks),
        "options": _of_options(model),
        "fit": {
            "elbo": float(model.elbo_),
            "converged": bool(model.converged_),
            "interrupted": bool(model.interrupted_),
            "n_iter": int(model.n_iter_),
            "method": model.method_,
            "seconds": float(model.fit_seconds_),
            "sampled": model.n_sampled_,
            "jitter": float(learned.jitter),
        },
    }
    check_description(facts)  # so that what is written can be read
    tensors = {
        **_leaves({"parameters": learned.parameters, "q": learned.q}),
        "scaling.centre": learned.scaling.centre,
        "scaling.scale": learned.scaling.scale,
        "history": model.history_,
        "input_range": model.input_range_,
        **_inducing_tables(model),
    }
    write_numbers(path, "model", VERSION, facts, tensors)


def refuse_unsaveable(
    likelihoods: Mapping[str, Likelihood | str], X: pd.DataFrame, Y: pd.DataFrame
) -> None:
    """Complain of what `save` could not write after a fit, before it.

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
        found = propose(Y[name]).candidates if isinstance(likelihood, str) else (likelihood,)
        for one in found:
            _of_likelihood(name, one)
            if isinstance(one, Classes) and one.classes is None:
                of = Y[name].dtype
                known = of.categories if isinstance(of, pd.CategoricalDtype) else Y[name].dropna()
                _refuse_odd(f"output {name!r} has the class", known)


def _refuse_odd(what: str, labels: Iterable[Any]) -> None:
    """Complain of a label that a file cannot hold."""
    for label in labels:
        label = label.item() if isinstance(label, np.generic) else label
        if not is_plain(label):
            raise TypeError(f"{what} {label!r}, a {type(label).__name__}; {HELD}")


def _leaves(tree: Any) -> dict[str, np.ndarray]:
    """The numbers of a tree, named by their place in it."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = jax.tree_util.keystr
    return {named(path, simple=True, separator="."): leaf for path, leaf in paths}


def _of_column(column: Column) -> dict[str, Any]:
    _refuse_odd(f"input {column.name!r} has the level", column.levels)
    return dataclasses.asdict(column)


def _plain(value: Any) -> Any:
    """A value as JSON has it: kernels by name and fields, arrays and numbers of NumPy as Python's.

    What JSON has nothing for is left as it is.
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
    options = dict(likelihood.options)
    where = f"output {name!r} ({likelihood!r})"
    if isinstance(likelihood, FromDistribution):
        distribution, links = options.pop("distribution"), options.pop("links")
        kind = distribution.__name__
        if _distribution(kind) is not distribution or set(links.values()) - set(LINKS.values()):
            raise TypeError(
                f"{where} uses a distribution or link that is not numpyro's or this package's, "
                "which a file cannot name; write it as a subclass of Likelihood"
            )
        options |= {"distribution": kind, "links": {n: link.name for n, link in links.items()}}
    for option, value in options.items():
        items = value if isinstance(value, list | tuple) else [value]
        if not isinstance(value, dict) and not all(map(is_plain, items)):
            raise TypeError(f"{where} has {option}={value!r}; {HELD}")
    return {"likelihood": type(likelihood).__name__, "options": options}


def _of_options(model: HetMOGP) -> dict[str, Any]:
    """The constructor's arguments, but for the likelihoods."""
    options = model.get_params(deep=False)
    del options["likelihoods"]
    inducing = options["inducing"]
    options["inducing"] = inducing if inducing is None or np.ndim(inducing) == 0 else "tables"
    return {name: _plain(value) for name, value in options.items()}


def _inducing_tables(model: HetMOGP) -> dict[str, np.ndarray]:
    """Inducing inputs that the user placed, as they were given."""
    if model.inducing is None or np.ndim(model.inducing) == 0:
        return {}
    try:
        tables = [read_inputs(model.inducing, model.columns_)[0]]
    except ValueError:  # one per latent
        tables = [read_inputs(table, model.columns_)[0] for table in model.inducing]
    return {f"inducing.{q}": table for q, table in enumerate(tables)}


# -- reading ---------------------------------------------------------------------------------------


def load(path: str | os.PathLike, custom: Iterable[type] = ()) -> HetMOGP:
    """Read a model that was saved. No training data is needed.

    Args:
        path: the file.
        custom: the classes of likelihoods and kernels that are not the package's own, should the
            model use any.

    Example:
        >>> import tempfile, numpy as np, hetmogp as hm
        >>> x = np.linspace(0, 1, 20)
        >>> model = hm.HetMOGP([hm.Gaussian()], latents=1, max_iter=1).fit(x, np.sin(x))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/sine.hetmogp")
        ...     again = hm.load(f"{folder}/sine.hetmogp")
        >>> bool((again.predict(x)["y0"].mean == model.predict(x)["y0"].mean).all())
        True
    """
    try:
        facts, tensors = read_numbers(Path(path), "model", VERSION)
    except UnreadableFileError as error:
        raise ModelFileError(str(error)) from None
    try:
        return _built(facts, tensors, {kind.__name__: kind for kind in custom})
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {_short(error)}") from error.__cause__
    except (
        *(KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError),
        ArithmeticError,
    ) as error:
        raise ModelFileError(f"{path} describes no model: {_short(error)}") from error


def _short(error: Exception) -> str:
    """What is wrong, in one line; a file may hold texts of any length."""
    return shorten(str(error), 400, placeholder=" …")


def _built(
    facts: dict[str, Any], tensors: dict[str, np.ndarray], custom: Mapping[str, type]
) -> HetMOGP:
    check_description(facts)
    names = [output["name"] for output in facts["outputs"]]
    columns = [
        Column(c["name"], c["kind"], tuple(c["levels"]), c["aware"]) for c in facts["inputs"]
    ]
    unfitted = {
        output["name"]: _likelihood(output["name"], output["likelihood"], custom)
        for output in facts["outputs"]
    }
    options = dict(facts["options"])
    room: Any = np.zeros(())
    prior = LMC(
        kernels=tuple(_kernel(kernel, custom) for kernel in facts["kernels"]),
        **dict.fromkeys(
            ("inducing_inputs", "weights", "constants", "centre", "spread", "mask"), room
        ),
        ranks=tuple(facts["ranks"]),
    )
    ordered = [_with_room(unfitted[name]) for name in sorted(names)]
    skeleton = {"parameters": Parameters(prior, tuple(ordered)), "q": Factors(room, room)}
    places = _leaves(skeleton)
    check_arrays(
        tensors,
        places,
        columns,
        functions=sum(len(likelihood.latent) for likelihood in ordered),
        ranks=facts["ranks"],
        tables=options.get("inducing") == "tables",
    )
    filled = jax.tree.unflatten(jax.tree.structure(skeleton), [tensors[name] for name in places])
    inputs = [column.name for column in columns]
    for kernel in filled["parameters"].prior.kernels:
        check_kernel(kernel, inputs)

    model = HetMOGP(unfitted, **_options(options, tensors, columns, custom))
    model._check_options()
    given = model.kernel if isinstance(model.kernel, list) else [model.kernel]
    for kernel in filter(None, given):
        check_kernel(kernel, inputs, fitted=False)
    scaling = Scaling(tensors["scaling.centre"], tensors["scaling.scale"])
    fit = facts["fit"]
    model._hold(
        Learned(names, columns, scaling, filled["parameters"], filled["q"], float(fit["jitter"]))
    )
    model.n_observed_ = {output["name"]: output["observed"] for output in facts["outputs"]}
    model.input_range_, model.history_ = tensors["input_range"], tensors["history"]
    model.elbo_, model.n_iter_ = float(fit["elbo"]), fit["n_iter"]
    model.converged_, model.interrupted_ = fit["converged"], fit["interrupted"]
    model.method_, model.fit_seconds_ = fit["method"], float(fit["seconds"])
    model.n_sampled_ = fit.get("sampled")
    if facts["named_inputs"]:
        model.feature_names_in_ = np.asarray([column.name for column in columns], dtype=object)
    return model


def _class(name: str, base: type, module: Any, custom: Mapping[str, type], what: str) -> type:
    """A class by name, of the package or of the caller."""
    found = custom.get(name) or (getattr(module, name, None) if name in module.__all__ else None)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ModelFileError(
            f"{what} is a {name}, which is not part of hetmogp: define it as it was when the model "
            f"was saved, and call load(path, custom=[{name}])"
        )
    return found


def _made(what: str, kind: Any, *arguments: Any, **options: Any) -> Any:
    """What a class makes of what the file says; a class of the caller's may raise anything."""
    try:
        return kind(*arguments, **options)
    except Exception as error:
        raise ModelFileError(f"{what} cannot be made: {error}") from error


def _kernel(facts: Mapping[str, Any], custom: Mapping[str, type]) -> Kernel:
    fields = dict(facts)
    kind = _class(fields.pop("kernel"), Kernel, kernels, custom, "a kernel of the model")
    for name, value in fields.items():
        if isinstance(value, dict):
            fields[name] = _kernel(value, custom)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            fields[name] = tuple(_kernel(part, custom) for part in value)
        elif isinstance(value, list) and name == "centre":
            fields[name] = tuple(value)
    return _made(f"a kernel of the model, {kind.__name__},", kind, **fields)


def _likelihood(name: str, facts: Mapping[str, Any], custom: Mapping[str, type]) -> Likelihood:
    options = dict(facts["options"])
    if isinstance(options.get("latent"), list):
        options["latent"] = tuple(options["latent"])
    what = f"output {name!r}, {facts['likelihood']},"
    if facts["likelihood"] == "FromDistribution":
        kind, links = _distribution(options.pop("distribution")), options.pop("links")
        if kind is None:
            raise ModelFileError(f"output {name!r} is of no distribution of numpyro")
        return _made(what, from_distribution, kind, links, **options)
    kind = _class(facts["likelihood"], Likelihood, likelihoods, custom, f"output {name!r}")
    likelihood = _made(what, kind, **options)
    if not likelihood.latent:
        raise ModelFileError(f"output {name!r} has no parameter functions: name its classes")
    return likelihood


def _distribution(name: str) -> type | None:
    """A distribution of numpyro by its public name."""
    import numpyro.distributions as dist

    found = getattr(dist, name) if name in dist.__all__ else None
    return found if isinstance(found, type) and issubclass(found, dist.Distribution) else None


def _with_room(likelihood: Likelihood) -> Likelihood:
    """A likelihood with a number where each learned constant goes."""
    if not likelihood.free:
        return likelihood
    return eqx.tree_at(lambda of: of.free, likelihood, dict.fromkeys(likelihood.free, 0.0))


def _options(
    facts: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    columns: Sequence[Column],
    custom: Mapping[str, type],
) -> dict[str, Any]:
    options = dict(facts)
    kernel = options.get("kernel")
    if isinstance(kernel, list):
        options["kernel"] = [None if k is None else _kernel(k, custom) for k in kernel]
    elif kernel is not None:
        options["kernel"] = _kernel(kernel, custom)
    if options.get("inducing") == "tables":
        tables: list[Any] = []
        while f"inducing.{len(tables)}" in tensors:
            table = tensors[f"inducing.{len(tables)}"]
            numbers = all(column.kind == "number" for column in columns)
            tables.append(table if numbers else restored(table, columns))
        options["inducing"] = tables if len(tables) > 1 else tables[0]
    return options
