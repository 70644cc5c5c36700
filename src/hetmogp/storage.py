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
from typing import Any

import equinox as eqx
import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from . import __version__, kernels, likelihoods
from .bound import Parameters
from .columns import Column
from .data import Scaling
from .files import UnreadableFileError, read_numbers, write_numbers
from .inputs import read_inputs, restored
from .kernels import Kernel
from .likelihoods import Likelihood, from_distribution
from .likelihoods.distribution import LINKS, FromDistribution
from .model import HetMOGP, Learned
from .priors import LMC
from .variational import Factors

__all__ = ["VERSION", "ModelFileError", "load", "save"]

VERSION = 1
PLAIN = (str, int, float, bool, type(None))


class ModelFileError(ValueError):
    """A file that holds no model this version can read."""


# -- writing ---------------------------------------------------------------------------------------


def save(model: HetMOGP, path: str | os.PathLike) -> None:
    """Write a fitted model to a file: beside it first, then renamed, so that none is half written.

    Args:
        model: a fitted model.
        path: where to; `.hetmogp` is the usual ending.
    """
    check_is_fitted(model, "elbo_")
    learned = model._learned
    facts = {
        "hetmogp": __version__,
        "outputs": [
            {
                "name": name,
                "likelihood": _of_likelihood(name, model.likelihoods_[name]),
                "observed": model.n_observed_[name],
            }
            for name in model.output_names_
        ],
        "inputs": [_of_column(column) for column in learned.columns],
        "named_inputs": hasattr(model, "feature_names_in_"),
        "kernels": [
            _of_kernel(jax.tree.map(lambda _: 1.0, k)) for k in learned.parameters.prior.kernels
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
    tensors = {
        **_leaves("parameters", learned.parameters),
        **_leaves("q", learned.q),
        "scaling.centre": learned.scaling.centre,
        "scaling.scale": learned.scaling.scale,
        "history": model.history_,
        "input_range": model.input_range_,
        **_inducing_tables(model),
    }
    write_numbers(path, "model", VERSION, facts, tensors)


def _leaves(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    """The numbers of a tree, named by their place in it."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = jax.tree_util.keystr
    return {f"{prefix}.{named(path, simple=True, separator='.')}": leaf for path, leaf in paths}


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a value."""
    return isinstance(value, PLAIN) and not (isinstance(value, float) and not np.isfinite(value))


def _of_column(column: Column) -> dict[str, Any]:
    for level in column.levels:
        if not _is_plain(level):
            raise TypeError(
                f"input {column.name!r} has the level {level!r}, a {type(level).__name__}; a file "
                "can hold text, numbers and True or False"
            )
    return dataclasses.asdict(column)


def _of_kernel(kernel: Kernel) -> dict[str, Any]:
    """A kernel by name and fields, numbers as lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, Kernel):
            return _of_kernel(value)
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return np.asarray(value).tolist() if isinstance(value, np.ndarray | jax.Array) else value

    fields = {f.name: plain(getattr(kernel, f.name)) for f in dataclasses.fields(kernel)}
    return {"kernel": type(kernel).__name__, **fields}


def _of_likelihood(name: str, likelihood: Likelihood) -> dict[str, Any]:
    """A likelihood by name and constructor options."""
    options = dict(likelihood.options)
    where = f"output {name!r} ({likelihood!r})"
    if isinstance(likelihood, FromDistribution):
        import numpyro.distributions as dist

        distribution, links = options.pop("distribution"), options.pop("links")
        kind = distribution.__name__
        if getattr(dist, kind, None) is not distribution or set(links.values()) - set(
            LINKS.values()
        ):
            raise TypeError(
                f"{where} uses a distribution or link that is not numpyro's or this package's, "
                "which a file cannot name; write it as a subclass of Likelihood"
            )
        options |= {"distribution": kind, "links": {n: link.name for n, link in links.items()}}
    for option, value in options.items():
        items = value if isinstance(value, list | tuple) else [value]
        if not isinstance(value, dict) and not all(map(_is_plain, items)):
            raise TypeError(
                f"{where} has {option}={value!r}; a file can hold text, numbers and True or False"
            )
    return {"likelihood": type(likelihood).__name__, "options": options}


def _of_options(model: HetMOGP) -> dict[str, Any]:
    """The constructor's arguments, but for the likelihoods."""
    options = model.get_params(deep=False)
    del options["likelihoods"]
    kernel, inducing = options["kernel"], options["inducing"]
    if isinstance(kernel, Kernel):
        options["kernel"] = _of_kernel(kernel)
    elif kernel is not None:
        options["kernel"] = [None if k is None else _of_kernel(k) for k in kernel]
    options["inducing"] = inducing if inducing is None or np.ndim(inducing) == 0 else "tables"
    plain = {}
    for name, value in options.items():
        plain[name] = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return plain


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
        raise ModelFileError(f"{path}: {error}") from None
    except (
        *(KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError),
        ArithmeticError,
    ) as error:
        raise ModelFileError(f"{path} describes no model: {error}") from error


def _built(
    facts: Mapping[str, Any], tensors: dict[str, np.ndarray], custom: Mapping[str, type]
) -> HetMOGP:
    names = [output["name"] for output in facts["outputs"]]
    order = sorted(names)
    columns = [
        Column(c["name"], c["kind"], tuple(c["levels"]), c["aware"]) for c in facts["inputs"]
    ]
    unfitted = {
        output["name"]: _likelihood(output["name"], output["likelihood"], custom)
        for output in facts["outputs"]
    }
    room: Any = np.zeros(())
    prior = LMC(
        kernels=tuple(_kernel(kernel, custom) for kernel in facts["kernels"]),
        **dict.fromkeys(
            ("inducing_inputs", "weights", "constants", "centre", "spread", "mask"), room
        ),
        ranks=tuple(facts["ranks"]),
    )
    skeleton = Parameters(prior, tuple(_with_room(unfitted[name]) for name in order))
    parameters = _filled("parameters", skeleton, tensors)
    q = _filled("q", Factors(room, room), tensors)
    scaling = Scaling(tensors["scaling.centre"], tensors["scaling.scale"])
    _check_shapes(parameters, q, scaling, len(columns))

    model = HetMOGP(unfitted, **_options(facts["options"], tensors, columns, custom))
    fit = facts["fit"]
    model._hold(Learned(names, columns, scaling, parameters, q, float(fit["jitter"])))
    model.n_observed_ = {output["name"]: int(output["observed"]) for output in facts["outputs"]}
    model.input_range_, model.history_ = tensors["input_range"], tensors["history"]
    model.elbo_, model.n_iter_ = float(fit["elbo"]), int(fit["n_iter"])
    model.converged_, model.interrupted_ = bool(fit["converged"]), bool(fit["interrupted"])
    model.method_, model.fit_seconds_ = fit["method"], float(fit["seconds"])
    sampled = fit.get("sampled")
    model.n_sampled_ = None if sampled is None else int(sampled)
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


def _kernel(facts: Mapping[str, Any], custom: Mapping[str, type]) -> Kernel:
    fields = dict(facts)
    kind = _class(fields.pop("kernel"), Kernel, kernels, custom, "a kernel of the model")
    for name, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            fields[name] = tuple(_kernel(part, custom) for part in value)
        elif isinstance(value, list) and name == "centre":
            fields[name] = tuple(value)
    return kind(**fields)


def _likelihood(name: str, facts: Mapping[str, Any], custom: Mapping[str, type]) -> Likelihood:
    options = dict(facts["options"])
    if isinstance(options.get("latent"), list):
        options["latent"] = tuple(options["latent"])
    if facts["likelihood"] == "FromDistribution":
        import numpyro.distributions as dist

        kind = getattr(dist, options.pop("distribution"))
        if not (isinstance(kind, type) and issubclass(kind, dist.Distribution)):
            raise ModelFileError(f"output {name!r}: {kind!r} is not a distribution of numpyro")
        return from_distribution(kind, options.pop("links"), **options)
    kind = _class(facts["likelihood"], Likelihood, likelihoods, custom, f"output {name!r}")
    return kind(**options)


def _with_room(likelihood: Likelihood) -> Likelihood:
    """A likelihood with a number where each learned constant goes."""
    if not likelihood.free:
        return likelihood
    return eqx.tree_at(lambda of: of.free, likelihood, dict.fromkeys(likelihood.free, 0.0))


def _filled(prefix: str, tree: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """The tree with its numbers replaced by those of the file, none missing and none left over."""
    places = _leaves(prefix, tree)
    stored = {name for name in tensors if name.startswith(f"{prefix}.")}
    odd = sorted(stored ^ set(places))
    if odd:
        verb = "lacks" if odd[0] in places else "has no place for"
        raise ModelFileError(f"what it describes {verb} {odd[0]!r}")
    return jax.tree.unflatten(jax.tree.structure(tree), [tensors[name] for name in places])


def _check_shapes(parameters: Parameters, q: Factors, scaling: Scaling, p: int) -> None:
    prior = parameters.prior
    assert isinstance(prior, LMC)
    J = sum(len(likelihood.latent) for likelihood in parameters.likelihoods)
    Q, R = len(prior.kernels), sum(prior.ranks)
    shape = prior.inducing_inputs.shape
    M = shape[1] if len(shape) == 3 else -1
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "weights": (prior.weights, (J, R)),
        "mask": (prior.mask, (J, R)),
        "constants": (prior.constants, (J,)),
        "centre": (prior.centre, (J,)),
        "spread": (prior.spread, (J,)),
        "inducing inputs": (prior.inducing_inputs, (1 if shape[:1] == (1,) else Q, M, p)),
        "means of q(u)": (q.mean, (R, M)),
        "roots of q(u)": (q.root, (R, M, M)),
        "centre of the inputs": (scaling.centre, (p,)),
        "scale of the inputs": (scaling.scale, (p,)),
    }
    for what, (array, wanted) in expected.items():
        if array.shape != wanted or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ModelFileError(f"the {what} are no finite numbers of shape {wanted}")
    if len(prior.ranks) != Q:
        raise ModelFileError(f"there are {len(prior.ranks)} ranks for {Q} kernels")


def _options(
    facts: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    columns: Sequence[Column],
    custom: Mapping[str, type],
) -> dict[str, Any]:
    options = dict(facts)
    kernel = options["kernel"]
    if isinstance(kernel, list):
        options["kernel"] = [None if k is None else _kernel(k, custom) for k in kernel]
    elif kernel is not None:
        options["kernel"] = _kernel(kernel, custom)
    if options["inducing"] == "tables":
        tables: list[Any] = []
        while f"inducing.{len(tables)}" in tensors:
            table = tensors[f"inducing.{len(tables)}"]
            numbers = all(column.kind == "number" for column in columns)
            tables.append(table if numbers else restored(table, columns))
        options["inducing"] = tables if len(tables) > 1 else tables[0]
    return options
