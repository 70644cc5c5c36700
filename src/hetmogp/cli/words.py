"""Likelihoods and kernels in words: `steps:poisson:exposure=hours`, `rbf+periodic:period=7d`."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["kernel_from", "likelihood_from", "likelihood_names", "output_from"]


def _plain(name: str) -> str:
    """A name in any case, with or without hyphens."""
    return name.strip().lower().replace("_", "").replace("-", "")


def likelihood_names() -> dict[str, type]:
    """The likelihoods by their plain names."""
    from .. import likelihoods

    every = (getattr(likelihoods, name) for name in likelihoods.__all__)
    return {
        _plain(kind.__name__): kind for kind in every if _is_final(kind, likelihoods.Likelihood)
    }


def _is_final(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base) and not inspect.isabstract(kind)


def output_from(words: str, columns: Sequence[str] = ()) -> tuple[str, Any]:
    """`name[:likelihood[:option=value]...]` as a name and a likelihood, "auto" if none is given.

    Args:
        words: as above.
        columns: those there are; a name that has colons itself is recognised among them.
    """
    known = [column for column in columns if f"{words}:".startswith(f"{column}:")]
    name = max(known, key=len) if known else words.partition(":")[0]
    rest = [words[len(name) + 1 :]] if words[len(name) :] else []
    if not name:
        raise ValueError(f"--output {words!r} names no column; write name:likelihood")
    return name, likelihood_from(name, rest[0]) if rest else "auto"


def likelihood_from(output: str, words: str) -> Any:
    """A likelihood such as `poisson:exposure=hours`."""
    kind, *options = words.split(":")
    known = likelihood_names()
    if _plain(kind) == "auto" and not options:
        return "auto"
    if _plain(kind) not in known:
        names = ", ".join(sorted(k.__name__ for k in known.values()))
        raise ValueError(f"output {output!r}: there is no likelihood {kind!r}; there are {names}")
    return _made(known[_plain(kind)], options, f"output {output!r}")


def kernel_from(words: str) -> Any:
    """A kernel such as `matern32`, `rbf*linear` or `rbf + periodic:period=7d:active_dims=date`."""
    from .. import kernels

    if "(" in words or ")" in words:
        raise ValueError(
            f"--kernel {words!r}: parentheses are not understood; use Python for those"
        )
    every = (getattr(kernels, name) for name in kernels.__all__)
    known = {_plain(kind.__name__): kind for kind in every if _is_final(kind, kernels.Leaf)}
    total = None
    for term in words.split("+"):
        product = None
        for factor in term.split("*"):
            kind, *options = (word.strip() for word in factor.split(":"))
            if _plain(kind) not in known:
                names = ", ".join(sorted(k.__name__ for k in known.values()))
                raise ValueError(f"there is no kernel {kind!r}; there are {names}")
            kernel = _made(known[_plain(kind)], options, "--kernel")
            product = kernel if product is None else product * kernel
        total = product if total is None else total + product
    return total


def _made(kind: type, options: list[str], where: str) -> Any:
    """An object from its class and `option=value` words."""
    taken = [name for name in inspect.signature(kind).parameters if name != "self"]
    given: dict[str, Any] = {}
    for word in options:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{where}: {word!r} should be option=value")
        if name not in taken:
            raise ValueError(
                f"{where}: {kind.__name__} has no option {name!r}; it has {', '.join(taken)}"
            )
        given[name] = _value(name, value)
    try:
        return kind(**given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


LISTS: Mapping[str, type] = {"classes": list, "latent": tuple, "active_dims": tuple}


def _value(name: str, text: str) -> Any:
    """A number, True or False, a duration, text, or several of them separated by |."""
    if name in LISTS or "|" in text:
        return LISTS.get(name, list)(_one(name, part) for part in text.split("|"))
    return _one(name, text)


def _one(name: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if name in ("lengthscale", "period"):
        import pandas as pd

        try:
            return pd.Timedelta(re.sub(r"(?<=\d)\s*d$", "D", text))  # pandas wants its days large
        except ValueError:
            raise ValueError(
                f"{name}={text!r} is neither a number nor a duration such as 7d"
            ) from None
    return text
