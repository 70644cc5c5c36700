"""What a likelihood or a kernel is, is its own business: others ask, and never test its class."""

import ast
from pathlib import Path

import pytest

import hetmogp
from hetmogp import kernels, likelihoods

PACKAGE = Path(hetmogp.__file__).parent
KINDS = [
    kind
    for module in (likelihoods, kernels)
    for kind in map(module.__dict__.get, module.__all__)
    if isinstance(kind, type) and issubclass(kind, likelihoods.Likelihood | kernels.Kernel)
]
CLASSES = {kind.__name__ for kind in KINDS} - {"Likelihood", "Kernel"}
EACH = [getattr(kind, "arguments", {}) for kind in KINDS]
ARGUMENTS = {name for one in EACH if not isinstance(one, property) for name in one}


def others() -> dict[str, ast.Module]:
    """The modules of the package that are neither likelihoods nor kernels, by path."""
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    outside = [path for path in paths if path.parts[0] not in ("likelihoods", "kernels")]
    return {str(path): ast.parse((PACKAGE / path).read_text("utf-8")) for path in outside}


def compared_classes(tree: ast.AST) -> set[str]:
    """The classes that a module compares something with, but for those of other packages."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    tests = [
        call.args[1]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass")
    ]
    tests += [node.cls for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    return {name.id for test in tests for name in ast.walk(test) if isinstance(name, ast.Name)}


def literals(tree: ast.AST) -> set[str]:
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {value for value in values if isinstance(value, str)}


def test_nobody_else_tests_for_a_likelihood_or_a_kernel():
    assert {"Categorical", "Bernoulli", "Count", "Sum", "Category"} <= CLASSES
    found = {path: compared_classes(tree) & CLASSES for path, tree in others().items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_nobody_else_knows_what_comes_with_an_observation_by_its_name():
    assert {"event", "trials", "exposure"} <= ARGUMENTS
    found = {path: literals(tree) & ARGUMENTS for path, tree in others().items()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    ["isinstance(a, Sum)", "issubclass(a, Leaf | Sum)", "match a:\n    case Sum():\n        pass"],
)
def test_such_a_test_is_found(code):
    assert "Sum" in compared_classes(ast.parse(code))
    assert literals(ast.parse('given["event"]')) == {"event"}


def test_only_outputs_with_classes_have_classes():
    """Others ask for the attribute to tell a Categorical or an Ordinal from the rest."""
    assert hasattr(likelihoods.Categorical(["a", "b"]), "classes")
    assert hasattr(likelihoods.Ordinal([1, 2, 3]), "classes")
    for likelihood in (
        *(likelihoods.Gaussian(), likelihoods.NegativeBinomial(), likelihoods.Beta()),
        likelihoods.Bernoulli(),
    ):
        assert not hasattr(likelihood, "classes")
