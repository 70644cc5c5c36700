"""Reading a saved model, without running anything found in the file."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .. import kernels, likelihoods
from ..columns import Column
from ..data import Scaling
from ..files import UnreadableFileError, read_numbers
from ..fitted import Fitted
from ..fitting import Options
from ..holdout import HeldOut
from ..inputs import restored
from ..kernels import Kernel
from ..likelihoods import Likelihood
from ..posterior import Posterior
from ..priors import PRIORS
from ..record import Record, Scored, Widths
from ..variational import FAMILIES, Neighbourhood
from .arrays import check_arrays
from .description import check_description
from .write import ALONE, VERSION, numbers_of

__all__ = ["ModelFileError", "Saved", "load"]


class ModelFileError(ValueError):
    """A file that holds no model this version can read."""


class Saved(NamedTuple):
    """What a file holds.

    Attributes:
        likelihoods: of each output, unfitted.
        options: the constructor's other arguments.
        fitted: the model.
        named_inputs: whether the inputs came with names.
    """

    likelihoods: dict[str, Likelihood]
    options: dict[str, Any]
    fitted: Fitted
    named_inputs: bool


def load(path: str | os.PathLike, custom: Iterable[type] = ()) -> Saved:
    """Read a model that was saved.

    Args:
        path: the file.
        custom: the classes of likelihoods and kernels that are not the package's own.
    """
    try:
        facts, tensors = read_numbers(Path(path), "model", VERSION)
    except UnreadableFileError as error:
        raise ModelFileError(str(error)) from None
    try:
        return _built(*_upgraded(facts, tensors), {kind.__name__: kind for kind in custom})
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


def _upgraded(
    facts: dict[str, Any], tensors: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A model of format 1 as one of format 2, which names its prior and its family of q."""
    if "q" in facts or not isinstance(facts.get("options"), dict):
        return facts, tensors
    prior = facts["options"].get("prior")
    weights = tensors.get("parameters.prior.weights")
    if prior == "independent" and weights is not None and weights.ndim == 2:
        tensors = {**tensors, "parameters.prior.weights": np.diagonal(weights)[:, None]}
        del tensors["parameters.prior.mask"]
    options = {"q": "factorised", **facts["options"]}
    return {**facts, "prior": prior, "q": "factorised", "options": options}, tensors


def _built(
    facts: dict[str, Any], tensors: dict[str, np.ndarray], custom: Mapping[str, type]
) -> Saved:
    check_description(facts)
    apart = {name: tensors[name] for name in tensors if name.startswith(ALONE)}
    tensors = {name: values for name, values in tensors.items() if name not in apart}
    columns = [
        Column(c["name"], c["kind"], tuple(c["levels"]), c["aware"], bool(c.get("open")))
        for c in facts["inputs"]
    ]
    unfitted = {
        output["name"]: _likelihood(output["name"], output["likelihood"], custom)
        for output in facts["outputs"]
    }
    skeleton = _skeleton(facts, unfitted, custom)
    places = numbers_of(skeleton)
    functions = sum(len(likelihood.latent) for likelihood in unfitted.values())
    _check_marginal(facts["fit"].get("marginal"), unfitted)
    check_arrays(tensors, places, columns, facts, functions)
    filled = jax.tree.unflatten(jax.tree.structure(skeleton), [tensors[name] for name in places])
    prior, fitted = filled["parameters"]["prior"], filled["parameters"]["likelihoods"]
    _check_widths(facts["fit"].get("widths"), prior.kernels, functions)
    options = _options(facts["options"], tensors, columns, custom)
    checked = Options(**options)
    inputs = [column.name for column in columns]
    for kernel in prior.kernels:
        kernel.check(inputs)
    given = checked.kernel if isinstance(checked.kernel, list) else [checked.kernel]
    for kernel in filter(None, given):
        kernel.check(inputs, fitted=False)
    by_name = dict(zip(sorted(unfitted), fitted, strict=True))
    alone = _alone(facts, tensors, apart, custom)
    return Saved(
        unfitted,
        options,
        Fitted(
            {name: by_name[name] for name in unfitted},
            columns,
            Scaling(tensors["scaling.centre"], tensors["scaling.scale"]),
            Posterior(prior, filled["q"], float(facts["fit"]["jitter"]), filled["near"]),
            _record(facts, tensors),
            checked.dtype,
            alone,
        ),
        facts["named_inputs"],
    )


def _check_marginal(
    marginal: Mapping[str, Sequence[float]] | None, unfitted: Mapping[str, Likelihood]
) -> None:
    """Compare the numbers of constants with those that each likelihood has."""
    for name, constants in (marginal or {}).items():
        wanted = len(unfitted[name].latent) + len(unfitted[name].free)
        if len(constants) != wanted:
            raise ValueError(f"fit.marginal has {len(constants)} constants of {name}, not {wanted}")


def _check_widths(
    widths: Mapping[str, Any] | None, kernels: Sequence[Kernel], functions: int
) -> None:
    """Compare the numbers of widths with those of kernels and parameter functions."""
    if widths is None:
        return
    learned = jax.tree.leaves([kernel.learned() for kernel in kernels])
    numbers = sum(np.size(leaf) for leaf in learned)
    if len(widths["kernels"]) != numbers:
        raise ValueError(
            f"fit.widths has {len(widths['kernels'])} numbers of kernels, not {numbers}"
        )
    shape = np.shape(widths["correlation"])
    if shape != (functions, functions):
        raise ValueError(f"fit.widths has correlations of shape {shape} for {functions} functions")


def _alone(
    facts: dict[str, Any],
    tensors: dict[str, np.ndarray],
    apart: dict[str, np.ndarray],
    custom: Mapping[str, type],
) -> Fitted | None:
    """The model in which outputs share nothing, if the file has one; the rest is the same."""
    own = facts.get("alone")
    if own is None:
        if apart:
            raise ValueError("it has numbers of a model that is not described")
        return None
    fit = {**facts["fit"], "elbo": own["elbo"], "shared": None, "sharing": None}
    fit |= {"widths": None, "scored": None}
    kept = {k: v for k, v in tensors.items() if not k.startswith(("parameters.", "q.", "near."))}
    numbers = {**kept, **{name.removeprefix(ALONE): values for name, values in apart.items()}}
    return _built({**facts, **own, "fit": fit, "alone": None}, numbers, custom).fitted


def _record(facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Record:
    fit = dict(facts["fit"])
    fit |= {name: float(fit[name]) for name in ("elbo", "jitter", "seconds")}
    fit |= {name: tensors[name] for name in ("history", "input_range")}
    if fit.get("held_out") is not None:
        fit["held_out"] = HeldOut(**fit["held_out"])
        _ = fit["held_out"].held  # refuses what marks no rows
    for name, kind in (("widths", Widths), ("scored", Scored)):
        if fit.get(name) is not None:
            fit[name] = kind(**fit[name])
    observed = {output["name"]: output["observed"] for output in facts["outputs"]}
    known = {field.name for field in dataclasses.fields(Record)}
    return Record(observed=observed, **{k: v for k, v in fit.items() if k in known})


def _skeleton(
    facts: Mapping[str, Any], unfitted: Mapping[str, Likelihood], custom: Mapping[str, type]
) -> dict[str, Any]:
    """The model that is described, with a place for each number."""
    room: Any = np.zeros(())
    kind: Any = PRIORS[facts["prior"]]
    family: Any = FAMILIES[facts["q"]]
    local = facts.get("local")
    near = None
    if local:
        names = ("at", "block", "slot", "mean", "cov", "beyond", "own")
        near = Neighbourhood(**dict.fromkeys(names, room), neighbours=local["neighbours"])
    prior = kind(
        kernels=tuple(_kernel(kernel, custom) for kernel in facts["kernels"]),
        **dict.fromkeys(("inducing_inputs", *kind.arrays), room),
        ranks=tuple(facts["ranks"]),
        counts=tuple(facts.get("counts") or ()),
        local=local["latents"] if local else 0,
    )
    likelihoods = tuple(_with_room(unfitted[name]) for name in sorted(unfitted))
    parameters = {"prior": prior, "likelihoods": likelihoods}
    q = family(**dict.fromkeys(family.arrays, room))
    return {"parameters": parameters, "q": q, "near": near}


def _class(name: str, base: type, module: Any, custom: Mapping[str, type], what: str) -> type:
    """A class by name, of the package or of the caller."""
    kind = custom.get(name) or (getattr(module, name, None) if name in module.__all__ else None)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ModelFileError(
            f"{what} is a {name}, which is not part of hetmogp: define it as it was when the model "
            f"was saved, and call load(path, custom=[{name}])"
        )
    return kind


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
    kind: Any = _class(facts["likelihood"], Likelihood, likelihoods, custom, f"output {name!r}")
    likelihood = _made(what, kind.from_plain_options, **options)
    if not likelihood.latent:
        raise ModelFileError(f"output {name!r} has no parameter functions: name its classes")
    return likelihood


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
