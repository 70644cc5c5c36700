"""Formulas of kernels: `(rbf + linear) * periodic:period=7d`, `Matern32() + Periodic(period=7)`.

sum      = product ("+" product)*
product  = factor ("*" factor)*
factor   = "(" sum ")" | one kernel, in words or as Python writes it
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["formula"]

# Marks, and what stands between them; marks within quotes or brackets do not count.
PIECES = re.compile(r"""[+*()]|(?:'[^']*'|"[^"]*"|\[[^\]]*\]|[^+*()'"\[])+|.""", re.DOTALL)
QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
BETWEEN = re.compile(r""",(?=(?:[^'"\[\]()]|'[^']*'|"[^"]*"|\[[^\]]*\]|\([^)]*\))*$)""")


def formula(text: str, one: Callable[[str, list[str]], Any]) -> Any:
    """The value of a formula.

    Args:
        text: the formula.
        one: what makes a kernel of a name and of words, each of them `option=value`.
    """
    pieces = [piece.strip() for piece in PIECES.findall(text) if piece.strip()]
    result, rest = _sum(text, pieces, one)
    if rest:
        raise ValueError(f"{text!r}: {_found(rest)} was found where + or * or the end should be")
    return result


def _found(rest: list[str]) -> str:
    return repr(rest[0]) if rest else "the end"


def _sum(text: str, pieces: list[str], one: Callable) -> tuple[Any, list[str]]:
    result, rest = _product(text, pieces, one)
    while rest[:1] == ["+"]:
        term, rest = _product(text, rest[1:], one)
        result = result + term
    return result, rest


def _product(text: str, pieces: list[str], one: Callable) -> tuple[Any, list[str]]:
    result, rest = _factor(text, pieces, one)
    while rest[:1] == ["*"]:
        factor, rest = _factor(text, rest[1:], one)
        result = result * factor
    return result, rest


def _factor(text: str, pieces: list[str], one: Callable) -> tuple[Any, list[str]]:
    if not pieces or pieces[0] in ("+", "*", ")"):
        raise ValueError(f"{text!r}: {_found(pieces)} was found where a kernel should be")
    first, *rest = pieces
    if first == "(":
        result, rest = _sum(text, rest, one)
        return result, _closed(text, rest)
    name, *words = _split(first)
    if rest[:1] == ["("]:
        inside, rest = _inside(text, rest[1:])
        words += [word for word in BETWEEN.split(inside) if word.strip()]
    return one(name.strip(), [_plain(word) for word in words]), rest


def _closed(text: str, rest: list[str]) -> list[str]:
    if rest[:1] != [")"]:
        raise ValueError(f"{text!r}: {_found(rest)} was found where ) should be")
    return rest[1:]


def _inside(text: str, pieces: list[str]) -> tuple[str, list[str]]:
    """What stands up to the closing parenthesis, and the rest."""
    depth, inside = 1, ""
    for k, piece in enumerate(pieces):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth == 0:
            return inside, pieces[k + 1 :]
        inside += piece
    raise ValueError(f"{text!r}: the end was found where ) should be")


def _split(words: str) -> Iterator[str]:
    """Words between colons; colons within quotes do not count."""
    yield from re.split(r""":(?=(?:[^'"]|'[^']*'|"[^"]*")*$)""", words)


def _plain(word: str) -> str:
    """`option=value` without spaces, quotes and brackets; several values joined by |."""
    option, equals, value = word.partition("=")
    value = value.strip()
    if value[:1] in ("[", "("):
        several = (part.strip() for part in value[1:-1].split(","))
        value = "|".join(part for part in several if part)
    return option.strip() + equals + QUOTED.sub(lambda found: found[1] or found[2] or "", value)
