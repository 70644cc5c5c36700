"""For the site: examples in docstrings (>>>) are shown as code, wherever they stand."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*\n(?:\1\S.*\n?)*", re.MULTILINE)


def _fenced(found: re.Match[str]) -> str:
    indent = found[1]
    return f"{indent}```pycon\n{found[0].rstrip()}\n{indent}```\n"


class Doctests(griffe.Extension):
    """Puts every run of lines that begins with >>> between fences."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called once for each object that is read."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)
