"""The import graph is what docs/architecture.md says: layers, no cycles, imports at the top."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "hetmogp"
LAZY = ("__init__", "cli", "ray")  # public names, and what answers --help without JAX


def name_of(path: Path) -> str:
    """The module of a file, from the package on: "priors.lmc", or "priors" for its __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts if parts[-1] != "__init__" or len(parts) == 1 else parts[:-1])


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imports(name: str, path: Path) -> Iterator[tuple[str, bool]]:
    """The modules of the package that one imports, and whether it does so at the top."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            up = package.split(".") if package not in ("", "__init__") else []
            base = ".".join([*up[: len(up) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                target = inner if inner in MODULES else base or "__init__"
                if target != name:
                    yield target, node.col_offset == 0


GRAPH = {name: dict(imports(name, path)) for name, path in MODULES.items()}


def layers() -> dict[str, int]:
    """The layer of each module or package at the top, by the table of the page."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| [a-z ]+ \| (`.*`) \|$", page, re.MULTILINE)
    return {name: k for k, row in enumerate(rows) for name in re.findall(r"`(\w+)`", row)}


def test_every_module_has_one_layer():
    tops = {name.partition(".")[0] for name in MODULES} - {"__init__", "__main__"}
    assert tops == set(layers())


def test_a_module_imports_only_from_its_layer_or_above():
    known = layers()
    wrong = [
        f"{name} imports {target}"
        for name, targets in GRAPH.items()
        for target in targets
        if (here := known.get(name.partition(".")[0])) is not None
        and known.get(target.partition(".")[0], -1) > here
    ]
    assert not wrong


def test_no_two_modules_import_each_other():
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    # A package's __init__ gathers its own modules, which may name the package's neighbours.
    own = {
        name: {t for t in targets if not (t in packages and name.startswith(f"{t}."))}
        for name, targets in GRAPH.items()
    }
    list(TopologicalSorter(own).static_order())  # raises CycleError with the modules of a cycle


def test_imports_stand_at_the_top():
    late = [
        f"{name} imports {target} late"
        for name, targets in GRAPH.items()
        if name.partition(".")[0] not in LAZY
        for target, top in targets.items()
        if not top
    ]
    assert not late
