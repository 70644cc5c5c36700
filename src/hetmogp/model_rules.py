"""What a saved model must hold: one table of rules for its description, one for its arrays.

A file whose checksum is right may still have been made by hand. `storage.load` returns only what
has met every rule here. All of them raise a ValueError with the first thing that is wrong, in a
sentence.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from reprlib import Repr
from typing import Any, NamedTuple

import numpy as np

from .columns import Column
from .inputs import restored
from .kernels import Kernel, Leaf, Linear, Periodic, RationalQuadratic, Sum
from .tables import RESERVED

__all__ = ["check_arrays", "check_description", "check_kernel", "is_plain"]

DEEPEST = 32  # kernels within kernels
LARGEST = 1e300
_short = Repr()
_short.maxstring = _short.maxother = 60


class Rule(NamedTuple):
    """What a value should be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


# -- the description -------------------------------------------------------------------------------


def is_plain(value: Any) -> bool:
    """Whether a file can hold a value: text, a number, True, False or None."""
    if isinstance(value, str):
        return not re.search("[\ud800-\udfff]", value)  # halves of a character
    if isinstance(value, int | float):
        return abs(value) < 2**64 if isinstance(value, int) else bool(np.isfinite(value))
    return value is None


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value)) and all(map(_is_json, value.values()))
    return all(map(_is_json, value)) if isinstance(value, list | tuple) else is_plain(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < (2**63 if isinstance(value, int) else LARGEST)


def number(least: float, most: float = LARGEST) -> Rule:
    """A number within limits."""
    reach = f"from {least:g} to {most:g}" if most < LARGEST else f">= {least:g}"
    return Rule(f"a number {reach}", lambda v: _is_number(v) and least <= v <= most)


def whole(least: int) -> Rule:
    """A whole number that is large enough."""
    return Rule(
        f"a whole number >= {least}",
        lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v < 2**63,
    )


def one_of(*allowed: str) -> Rule:
    """One of a few words."""
    return Rule(f"one of {', '.join(allowed)}", lambda v: isinstance(v, str) and v in allowed)


def either(*rules: Rule) -> Rule:
    """What meets one of several rules."""
    words = " or ".join(rule.words for rule in rules)
    return Rule(words, lambda v: any(rule.holds(v) for rule in rules))


def listed(rule: Rule) -> Rule:
    """A list, empty or not."""
    return Rule(
        f"a list, of each {rule.words}",
        lambda v: isinstance(v, list | tuple) and all(map(rule.holds, v)),
    )


TEXT = Rule("text", lambda v: isinstance(v, str) and is_plain(v))
FLAG = Rule("true or false", lambda v: isinstance(v, bool))
NUMBER = Rule("a finite number", _is_number)
PLAIN = Rule("text, a finite number, true, false or null", is_plain)
NOTHING = Rule("null", lambda v: v is None)
SWITCH = Rule("true or false", lambda v: isinstance(v, bool | int) and v in (0, 1))
OBJECT = Rule("an object", lambda v: isinstance(v, dict))
NAMED = Rule("an object of plain values", lambda v: isinstance(v, dict) and _is_json(v))
POSITIVE = Rule("a positive number", lambda v: _is_number(v) and v > 0)
WHOLE = Rule("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool))


def _kernel(value: Any, deep: int = 0) -> dict[str, Any]:
    """The rules for a kernel, which may hold others."""
    if deep == DEEPEST:
        raise ValueError(f"its kernels are nested more than {DEEPEST} deep")
    fields = value if isinstance(value, dict) else {}
    rules = {name: KERNEL_FIELDS.get(name, ANYTHING) for name in fields}
    inner = partial(_kernel, deep=deep + 1)
    rules |= {name: inner for name, field in fields.items() if isinstance(field, dict)}
    return {**rules, **({"kernels": [inner]} if "kernels" in fields else {}), "kernel": TEXT}


ANYTHING = either(PLAIN, listed(PLAIN))  # a field of a class that is the user's own
POSITIVES = either(NOTHING, POSITIVE, listed(POSITIVE))
KERNEL_FIELDS: dict[str, Any] = {
    "lengthscale": POSITIVES,
    "period": POSITIVES,
    "alpha": POSITIVES,
    "weights": POSITIVES,
    "active_dims": either(NOTHING, listed(either(WHOLE, TEXT))),
    "ard": FLAG,
    "centre": either(NUMBER, listed(NUMBER)),
}


def _kernels(value: Any) -> Any:
    """The rules for the constructor's argument: one kernel, a list of them, or none."""
    if isinstance(value, list | tuple):
        return [_kernel_or_none]
    return _kernel_or_none(value)


def _kernel_or_none(value: Any) -> Any:
    return NOTHING if value is None else _kernel(value)


def _options(value: Any) -> dict[str, Any]:
    """The rules for the constructor's arguments; `HetMOGP` itself checks those not named here."""
    return {name: OPTIONS.get(name, PLAIN) for name in (value if isinstance(value, dict) else {})}


OPTIONS: dict[str, Any] = {
    "kernel": _kernels,
    "rank": either(whole(1), listed(whole(1))),
    "inducing": either(NOTHING, whole(1), one_of("tables")),
    **dict.fromkeys(("natural_gradients", "learn_inducing", "prune", "progress"), SWITCH),
}

# A dict stands for an object with these fields, a list for a list of at least one such thing, and a
# function for the rules that it finds to suit a value.
DESCRIPTION: dict[str, Any] = {
    "outputs": [
        {
            "name": TEXT,
            "likelihood": {"likelihood": TEXT, "options": NAMED},
            "observed": whole(0),
        }
    ],
    "inputs": [
        {
            "name": TEXT,
            "kind": one_of("number", "time", "duration", "category"),
            "levels": listed(PLAIN),
            "aware": FLAG,
        }
    ],
    "named_inputs": FLAG,
    "kernels": [_kernel],
    "ranks": [whole(1)],
    "options": _options,
    "fit": {
        "elbo": NUMBER,
        "converged": FLAG,
        "interrupted": FLAG,
        "n_iter": whole(0),
        "method": one_of("vem", "svi"),
        "seconds": number(0),
        "sampled": either(NOTHING, whole(0)),
        "jitter": number(1e-8, 1),
    },
}


def check_description(facts: Any) -> None:
    """Compare the description of a model with the rules, and its parts with each other.

    Raises:
        ValueError: with the first thing that is wrong, in a sentence.
    """
    _check(facts, DESCRIPTION, "")
    outputs, inputs = ([part["name"] for part in facts[key]] for key in ("outputs", "inputs"))
    _refuse_repeated("outputs", outputs)
    _refuse_repeated("inputs", inputs)
    if RESERVED in outputs:
        raise ValueError(f"an output is called {RESERVED!r}, which scores use")
    for column in facts["inputs"]:
        _refuse_repeated(f"levels of the input {_short.repr(column['name'])}", column["levels"])
        if (column["kind"] == "category") != bool(column["levels"]):
            raise ValueError(
                f"the input {_short.repr(column['name'])} is a {column['kind']} with "
                f"{len(column['levels'])} levels; categories have levels, other inputs have none"
            )
    if len(facts["ranks"]) != len(facts["kernels"]):
        raise ValueError(f"it has {len(facts['ranks'])} ranks for {len(facts['kernels'])} kernels")


def _check(value: Any, rule: Any, where: str) -> None:
    if callable(rule):
        rule = rule(value)
    if isinstance(rule, dict):
        _require(value, OBJECT, where)
        for name, part in rule.items():
            inner = f"{where}.{name}" if where else name
            if name in value:
                _check(value[name], part, inner)
            elif not (isinstance(part, Rule) and part.holds(None)):
                raise ValueError(f"{inner} is missing")
    elif isinstance(rule, list):
        _require(value, Rule("a list of one or more", _is_filled), where)
        for k, part in enumerate(value):
            _check(part, rule[0], f"{where}[{k}]")
    else:
        _require(value, rule, where)


def _is_filled(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0


def _require(value: Any, rule: Rule, where: str) -> None:
    if not rule.holds(value):
        what = where or "the description"
        raise ValueError(f"{what} is {_short.repr(value)}; it should be {rule.words}")


def _refuse_repeated(what: str, names: Sequence[Any]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{_short.repr(name)} is named {count} times among the {what}")


# -- the arrays ------------------------------------------------------------------------------------


FINITE = Rule("finite numbers", lambda a: bool(np.isfinite(a).all()))
ABOVE_ZERO = Rule("positive numbers", lambda a: bool((np.isfinite(a) & (a > 0)).all()))
SWITCHES = Rule("zeros and ones", lambda a: bool(np.isin(a, (0.0, 1.0)).all()))
RANGE = Rule("ends in order", lambda a: bool(np.isfinite(a).all() and (a[0] <= a[1]).all()))

# J parameter functions, R copies of latents, M inducing inputs of p numbers; Z is one or a set for
# each latent, n is any number.
ARRAYS = {
    "parameters.prior.weights": ("JR", FINITE),
    "parameters.prior.mask": ("JR", SWITCHES),
    "parameters.prior.constants": ("J", FINITE),
    "parameters.prior.centre": ("J", FINITE),
    "parameters.prior.spread": ("J", ABOVE_ZERO),
    "parameters.prior.inducing_inputs": ("ZMp", FINITE),
    "q.mean": ("RM", FINITE),
    "q.root": ("RMM", FINITE),
    "scaling.centre": ("p", FINITE),
    "scaling.scale": ("p", ABOVE_ZERO),
    "history": ("n", FINITE),
    "input_range": ("2p", RANGE),
}
OF_A_KERNEL = re.compile(r"parameters\.prior\.kernels\..*", re.DOTALL)
LEARNED = re.compile(r"parameters\.likelihoods\.\d+\.free\..*", re.DOTALL)


def check_arrays(
    arrays: Mapping[str, np.ndarray],
    places: Mapping[str, Any],
    columns: Sequence[Column],
    *,
    functions: int,
    ranks: Sequence[int],
    tables: bool,
) -> None:
    """Compare the arrays of a model with the rules, and with what its description has room for.

    Args:
        arrays: by name.
        places: the numbers of the model that was described, by name, not yet those of the file.
        columns: the inputs.
        functions: J.
        ranks: R_q of each latent.
        tables: whether the user placed inducing inputs, which are kept as well.
    """
    given = sum(name.startswith("inducing.") for name in arrays)
    if bool(given) != tables:
        raise ValueError(f"options.inducing does not tell of {given} tables of inducing inputs")
    placed = [f"inducing.{k}" for k in range(given)]
    _refuse_odd({*ARRAYS, *places, *placed}, arrays)
    sizes = {"J": functions, "R": sum(ranks), "p": len(columns), "2": 2}
    for name, (letters, rule) in ARRAYS.items():
        _check_array(name, arrays[name], letters, rule, sizes)
    if sizes["Z"] not in (1, len(ranks)) or sizes["M"] < 1:
        raise ValueError(
            f"it has {sizes['Z']} sets of {sizes['M']} inducing inputs for {len(ranks)} latents"
        )
    for name in placed:
        _check_array(name, arrays[name], "np", FINITE, {"p": len(columns)})
    with np.errstate(invalid="raise"):
        for name in ("input_range", *placed):
            restored(arrays[name], columns)  # refuses what no date and no label stands for
    for name in places.keys() - ARRAYS.keys():
        if OF_A_KERNEL.fullmatch(name):
            _require_numbers(name, arrays[name], ABOVE_ZERO)
        elif LEARNED.fullmatch(name):
            _check_array(name, arrays[name], "", FINITE, {})
        else:
            _require_same(name, arrays[name], np.asarray(places[name]))


def _refuse_odd(expected: set[str], found: Mapping[str, Any]) -> None:
    for name in sorted(expected ^ found.keys()):
        state = "is missing" if name in expected else "has no place in the model"
        raise ValueError(f"the array {_short.repr(name)} {state}")


def _check_array(
    name: str, array: np.ndarray, letters: str, rule: Rule, sizes: dict[str, int]
) -> None:
    """Compare an array with a shape, of which each letter stands for one size throughout."""
    fits = array.ndim == len(letters) and all(
        sizes.setdefault(letter, size) == size
        for letter, size in zip(letters, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
        raise ValueError(f"the array {name} has the shape {array.shape}, not ({wanted})")
    _require_numbers(name, array, rule)


def _require_numbers(name: str, array: np.ndarray, rule: Rule) -> None:
    if array.dtype not in (np.float64, np.float32):
        raise ValueError(
            f"the array {name} is of {array.dtype}; it should be of float64 or float32"
        )
    if not rule.holds(array):
        raise ValueError(f"the array {name} should hold {rule.words}")


def _require_same(name: str, array: np.ndarray, described: np.ndarray) -> None:
    """Compare a number that is not learned, such as one of trials, with the description's."""
    if described.dtype.kind == "f":
        _require_numbers(name, array, FINITE)
    if not np.array_equal(array, described.astype(array.dtype)):
        raise ValueError(f"the array {name} is not what the description says")


# Numbers that a kernel has once, and those that it may have once for each input that it sees.
ONCE = ((RationalQuadratic, "alpha"),)
PER_INPUT = ((Leaf, "lengthscale"), (Periodic, "period"), (Linear, "centre"))


def check_kernel(kernel: Kernel, inputs: Sequence[str], *, fitted: bool = True) -> None:
    """Compare a kernel with the inputs: which of them it sees, how many numbers it has.

    Args:
        kernel: one, which may hold others.
        inputs: their names.
        fitted: whether it was learned, or is where learning starts, and may name its inputs.
    """
    what, seen, parts = type(kernel).__name__, len(inputs), _parts(kernel)
    if isinstance(kernel, Leaf) and kernel.active_dims is not None:
        seen = len(kernel.active_dims)
        known = (*range(len(inputs)), *(() if fitted else (*range(-len(inputs), 0), *inputs)))
        if not seen or any(dim not in known for dim in kernel.active_dims):
            raise ValueError(f"a {what} sees {kernel.active_dims} of {len(inputs)} inputs")
    if fitted:
        for kind, name in (*ONCE, *PER_INPUT):
            values, most = getattr(kernel, name, None), 1 if (kind, name) in ONCE else seen
            fine = values is not None and np.shape(values) in ((), (1,), (most,))
            if isinstance(kernel, kind) and not fine:
                raise ValueError(f"the {name} of a {what} is not one number, nor {most}")
        if isinstance(kernel, Sum) and np.shape(kernel.weights) != (len(parts),):
            raise ValueError(f"a {what} of {len(parts)} has {np.size(kernel.weights)} weights")
    for part in parts:
        check_kernel(part, inputs, fitted=fitted)


def _parts(kernel: Kernel) -> list[Kernel]:
    """The kernels that a kernel holds."""
    fields = [getattr(kernel, field.name) for field in dataclasses.fields(kernel)]
    every = [part for value in fields for part in (value if isinstance(value, tuple) else [value])]
    return [part for part in every if isinstance(part, Kernel)]
