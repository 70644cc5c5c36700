"""Names and labels of users, made safe to print."""

import re

__all__ = ["UNPRINTABLE", "printable"]

# Control characters, which can change a terminal; line separators; marks that change the direction
# of text; halves of surrogate pairs, which cannot be encoded.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""One line of text in which such characters are written as escapes.

    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    return UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)
