"""Likelihoods and kernels in words: `steps:poisson:exposure=hours`, `rbf+periodic:period=7d`."""

import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from types import ModuleType
from typing import Any

from .. import __all__ as public
from .formula import formula

__all__ = ["kernel_from", "output_from"]

LISTS: Mapping[str, type] = {"classes": list, "latent": tuple, "active_dims": tuple}


def output_from(words: str, columns: Sequence[str] = ()) -> tuple[str, Any]:
    """`name[:likelihood[:option=value]...]` as a name and a likelihood, "auto" if none is given.

    Args:
        words: as above.
        columns: those there are; a name that has colons itself is recognised among them.
    """
    from .. import likelihoods

    known = [column for column in columns if f"{words}:".startswith(f"{column}:")]
    name = max(known, key=len) if known else words.partition(":")[0]
    if not name:
        raise ValueError(f"--output {words!r} names no column; write name:likelihood")
    likelihood = words[len(name) + 1 :]
    if words == name or _plain(likelihood) == "auto":
        return name, "auto"
    kinds = _kinds(likelihoods, likelihoods.Likelihood)
    return name, _likelihood(kinds, likelihood, f"output {name!r}")


def _likelihood(kinds: Mapping[str, type], words: str, where: str) -> Any:
    """A likelihood; one that has a part is followed by it, as in `hurdle:gamma:latent=rate`."""
    first, *rest = words.split(":")
    kind = kinds.get(_plain(first))
    if kind is None or "part" not in inspect.signature(kind).parameters:
        return _made("likelihood", kinds, words, where)
    own = list(takewhile(lambda word: "=" in word, rest))
    if len(own) == len(rest):
        raise ValueError(f"{where}: {words!r} should name its part too, such as {first}:gamma")
    part = _likelihood(kinds, ":".join(rest[len(own) :]), where)
    return _made("likelihood", kinds, ":".join([first, *own]), where, part=part)


def kernel_from(words: str) -> Any:
    """A kernel such as `matern32`, `(rbf + linear) * periodic:period=7d` or `RBF(ard=False)`."""
    from .. import kernels

    kinds = _kinds(kernels, kernels.Leaf)
    return formula(words, lambda name, own: _object("kernel", kinds, name, own, "--kernel"))


def _plain(name: str) -> str:
    """A name in any case, with or without hyphens."""
    return name.strip().lower().replace("_", "").replace("-", "")


def _kinds(module: ModuleType, base: type) -> dict[str, type]:
    """The public classes of a package that are not abstract, by their plain names."""
    every = (getattr(module, name) for name in module.__all__ if name in public)
    return {
        _plain(kind.__name__): kind
        for kind in every
        if isinstance(kind, type) and issubclass(kind, base) and not inspect.isabstract(kind)
    }


def _made(what: str, kinds: Mapping[str, type], words: str, where: str, **given: Any) -> Any:
    """An object from words between colons: the name of its class, and its options."""
    name, *options = words.split(":")
    return _object(what, kinds, name, options, where, **given)


def _object(
    what: str, kinds: Mapping[str, type], name: str, options: list[str], where: str, **given: Any
) -> Any:
    """An object from the name of its class and `option=value` words."""
    if _plain(name) not in kinds:
        names = ", ".join(sorted(kind.__name__ for kind in kinds.values()))
        raise ValueError(f"{where}: there is no {what} {name!r}; there are {names}")
    kind = kinds[_plain(name)]
    taken = _taken(kind)
    for word in options:
        option, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{where}: {word!r} should be option=value")
        if option not in taken:
            raise ValueError(
                f"{where}: {kind.__name__} has no option {option!r}; it has {', '.join(taken)}"
            )
        given[option] = _value(option, value)
    try:
        return kind(**given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _taken(kind: type) -> list[str]:
    """The options of a class; those of `**limits` by their names."""
    names: list[str] = []
    for name, parameter in inspect.signature(kind).parameters.items():
        every = parameter.kind is inspect.Parameter.VAR_KEYWORD
        names += getattr(kind, "common", ()) if every else [name]
    return names


def _value(option: str, text: str) -> Any:
    """A number, True or False, a duration, text, or several of them separated by |."""
    if option in LISTS or "|" in text:
        return LISTS.get(option, list)(_one(option, part) for part in text.split("|"))
    return _one(option, text)


def _one(option: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if option in ("lengthscale", "period"):
        import pandas as pd

        try:
            return pd.Timedelta(re.sub(r"(?<=\d)\s*d$", "D", text))  # pandas wants its days large
        except ValueError:
            raise ValueError(
                f"{option}={text!r} is neither a number nor a duration such as 7d"
            ) from None
    return text
