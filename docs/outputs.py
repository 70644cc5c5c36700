"""Put what the code of a page prints under each block: `make outputs`, or with names of pages.

The blocks of a page run top to bottom as one script, in a temporary folder. A figure that the code
saves as NAME.png and that the page shows as images/NAME.png is copied there. `tests/test_docs.py`
checks that the output shown is still what the code prints, except for numbers, whose last digits
differ by machine.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

BEGIN = '```text title="Output"\n'
BLOCK = re.compile(
    rf"(?P<code>```python\n(?P<source>.*?)```\n)(?:\n{BEGIN}(?P<shown>.*?)```\n)?", re.DOTALL
)
FIGURE = re.compile(r"\]\(images/([^)]+\.png)\)")
NUMBER = re.compile(r"[-−+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def printed(page: Path) -> list[str]:
    """What each block of a page prints; the figures that the page shows are kept."""
    page, text = page.resolve(), page.read_text()
    names: dict = {}
    found = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in BLOCK.finditer(text):
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(block["source"], names)
                found.append(out.getvalue())
            for name in written(page, Path(folder)):
                shutil.copy(name, page.parent / "images")
        finally:
            os.chdir(before)
    return found


def written(page: Path, folder: Path) -> list[str]:
    """The figures in a folder that a page shows."""
    return [name for name in FIGURE.findall(page.read_text()) if (folder / name).exists()]


def shown(page: Path) -> list[str | None]:
    """The output that a page shows under each block; None where it shows none."""
    return [block["shown"] for block in BLOCK.finditer(page.read_text())]


def without_numbers(text: str) -> list[str]:
    """The words of an output; numbers, rules and spaces may differ between machines."""
    return re.sub(r"[-\s]+", " ", NUMBER.sub("#", text)).split()


def with_outputs(page: Path) -> str:
    """The text of a page with what its code prints under each block."""
    outputs = iter(printed(page))

    def block(found: re.Match[str]) -> str:
        lines = "\n".join(line.rstrip() for line in next(outputs).strip("\n").splitlines())
        return found["code"] + (f"\n{BEGIN}{lines}\n```\n" if lines.strip() else "")

    return BLOCK.sub(block, page.read_text())


if __name__ == "__main__":
    mpl.use("agg")
    docs = Path(__file__).parent
    for name in sys.argv[1:]:
        page = docs / name
        page.write_text(with_outputs(page))
