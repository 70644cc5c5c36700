"""The rules for the description of a saved model.

A file whose checksum is right may still have been made by hand. `load` returns only what has met
every rule here and in `arrays`. All of them raise a ValueError with the first thing that is wrong,
in a sentence.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from reprlib import Repr
from typing import Any, NamedTuple

import numpy as np

from ..baselines import COLUMNS as COMPARED
from ..priors import PRIORS
from ..tables import RESERVED
from ..variational import FAMILIES

__all__ = ["Rule", "check_description", "is_plain", "shortened"]

DEEPEST = 32  # kernels within kernels
LARGEST = 1e300
_short = Repr()
_short.maxstring = _short.maxother = 60
shortened = _short.repr


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


def _some(value: Any) -> bool:
    return _is_filled(value) and all(map(POSITIVE.holds, value))


ANYTHING = either(PLAIN, listed(PLAIN))  # a field of a class that is the user's own
HELD = Rule(
    "a name with positive numbers",
    lambda v: isinstance(v, list | tuple) and len(v) == 2 and TEXT.holds(v[0]) and _some(v[1]),
)
POSITIVES = either(NOTHING, POSITIVE, listed(POSITIVE))
KERNEL_FIELDS: dict[str, Any] = {
    "lengthscale": POSITIVES,
    "period": POSITIVES,
    "alpha": POSITIVES,
    "weights": POSITIVES,
    "active_dims": either(NOTHING, listed(either(WHOLE, TEXT))),
    "ard": FLAG,
    "fixed": listed(either(TEXT, HELD)),
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


NAMES = either(TEXT, WHOLE)  # of inputs, or their numbers
OPTIONS: dict[str, Any] = {
    "kernel": _kernels,
    "rank": either(whole(1), listed(whole(1))),
    "latents": either(whole(1), one_of("auto")),
    "inducing": either(NOTHING, whole(1), one_of("tables", "auto")),
    **dict.fromkeys(("linear", "groups"), either(NOTHING, NAMES, listed(NAMES))),
    **dict.fromkeys(("natural_gradients", "learn_inducing", "prune", "progress"), SWITCH),
}

SHARING = Rule(
    "two bounds for each output",
    lambda v: isinstance(v, dict) and all(map(TEXT.holds, v)) and all(map(_is_pair, v.values())),
)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))


MARGINAL = Rule(
    "finite numbers for each output",
    lambda v: (
        isinstance(v, dict)
        and all(map(TEXT.holds, v))
        and all(_is_filled(one) and all(map(_is_number, one)) for one in v.values())
    ),
)
HELD_OUT = Rule(
    "what tells which rows were held out",
    lambda v: (
        isinstance(v, dict)
        and set(v) == {"how", "digest", "rows", "mask", "by"}
        and all(TEXT.holds(v[name]) for name in ("how", "digest", "mask"))
        and either(NOTHING, TEXT).holds(v["by"])
        and WHOLE.holds(v["rows"])
        and v["rows"] >= 0
    ),
)
WIDTHS = Rule(
    "standard deviations of the kernels' numbers and of correlations",
    lambda v: (
        isinstance(v, dict)
        and set(v) == {"kernels", "correlation"}
        and listed(number(0)).holds(v["kernels"])
        and listed(listed(number(0))).holds(v["correlation"])
    ),
)
SCORED = Rule(
    "scores of each output beside those of baselines",
    lambda v: (
        isinstance(v, dict)
        and set(v) == {"rows", "table"}
        and TEXT.holds(v["rows"])
        and isinstance(v["table"], dict)
        and all(map(TEXT.holds, v["table"]))
        and all(
            listed(either(NOTHING, NUMBER)).holds(one) and len(one) == len(COMPARED)
            for one in v["table"].values()
        )
    ),
)
LOCAL = Rule(
    "how many local latents and neighbours there are",
    lambda v: (
        isinstance(v, dict)
        and set(v) == {"latents", "neighbours"}
        and all(WHOLE.holds(one) and one > 0 for one in v.values())
    ),
)
OF_A_POSTERIOR = ("prior", "q", "kernels", "ranks", "counts", "local")


def _alone(value: Any) -> Any:
    """The rules for the model in which outputs share nothing, if there is one."""
    if value is None:
        return NOTHING
    return {"elbo": NUMBER, **{key: DESCRIPTION[key] for key in OF_A_POSTERIOR}}


# A dict stands for an object with these fields, a list for a list of at least one such thing. A
# function gives the rules that suit a value.
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
            "open": either(NOTHING, FLAG),
        }
    ],
    "named_inputs": FLAG,
    "prior": one_of(*PRIORS),
    "q": one_of(*FAMILIES),
    "kernels": [_kernel],
    "ranks": [whole(1)],
    "counts": either(NOTHING, listed(whole(1))),  # of inducing inputs, where latents differ
    "local": either(NOTHING, LOCAL),
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
        "shared": either(NOTHING, FLAG),
        "sharing": either(NOTHING, SHARING),
        "marginal": either(NOTHING, MARGINAL),
        "held_out": either(NOTHING, HELD_OUT),
        "widths": either(NOTHING, WIDTHS),
        "scored": either(NOTHING, SCORED),
    },
}


def check_description(facts: Any) -> None:
    """Compare the description of a model with the rules, and its parts with each other.

    Raises:
        ValueError: with the first thing that is wrong, in a sentence.
    """
    _check(facts, DESCRIPTION, "")
    _check(facts.get("alone"), _alone, "alone")
    outputs, inputs = ([part["name"] for part in facts[key]] for key in ("outputs", "inputs"))
    _refuse_repeated("outputs", outputs)
    _refuse_repeated("inputs", inputs)
    if RESERVED in outputs:
        raise ValueError(f"an output is called {RESERVED!r}, which scores use")
    for column in facts["inputs"]:
        _refuse_repeated(f"levels of the input {shortened(column['name'])}", column["levels"])
        if (column["kind"] == "category") != bool(column["levels"]):
            raise ValueError(
                f"the input {shortened(column['name'])} is a {column['kind']} with "
                f"{len(column['levels'])} levels; categories have levels, other inputs have none"
            )
    for one in (facts, facts.get("alone") or facts):
        if len(one["ranks"]) != len(one["kernels"]):
            raise ValueError(f"it has {len(one['ranks'])} ranks for {len(one['kernels'])} kernels")
        local = (one.get("local") or {"latents": 0})["latents"]
        smooth = len(one["kernels"]) - local
        if smooth < 1:
            raise ValueError(f"{local} of its {len(one['kernels'])} latents are local")
        counts = one.get("counts") or [1] * smooth
        if len(counts) != smooth:
            raise ValueError(f"it has {len(counts)} counts for {smooth} kernels")
    sharing = facts["fit"].get("sharing")
    if sharing is not None and set(sharing) != {*outputs, ""}:
        raise ValueError("fit.sharing is not about the outputs of the model")
    marginal = facts["fit"].get("marginal")
    if marginal is not None and set(marginal) != set(outputs):
        raise ValueError("fit.marginal is not about the outputs of the model")


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
        raise ValueError(f"{what} is {shortened(value)}; it should be {rule.words}")


def _refuse_repeated(what: str, names: Sequence[Any]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{shortened(name)} is named {count} times among the {what}")
