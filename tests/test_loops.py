"""Every loop that is not over a given collection ends: here they all are, and why they do."""

import ast
from pathlib import Path

import numpy as np
import pytest

import hetmogp as hm
from hetmogp.inversion import quantiles

SOURCE = Path(hm.__file__).parent
WAITS = "for as long as a reader waits: it looks every 0.1 s whether it is closed"
FOR_EVER = "a generator without an end, of which callers take as many items as they need"
# Each `while` and `while_loop` of the package by file and function, and what bounds its turns.
LOOPS = {
    ("addresses.py", "_resolved"): "a deadline",
    ("cli/formula.py", "_product"): "the words of a formula; each turn takes some",
    ("cli/formula.py", "_sum"): "the words of a formula; each turn takes some",
    ("data.py", "row_draws"): FOR_EVER,
    ("delimited.py", "last_byte"): "the length of the file",
    ("export/program.py", "_bracket"): "DOUBLINGS turns",
    ("export/program.py", "_halved"): "TURNS turns",
    ("export/program.py", "_root"): "TURNS turns",
    ("fitting/full_batch.py", "begin"): "five jitters, up to LARGEST_JITTER",
    ("fitting/apart.py", "run_apart"): "the outputs, once for each of five jitters",
    ("fitting/full_batch.py", "advance"): "max_iter rounds",
    ("rows.py", "pieces"): "the rows; each turn takes some",
    ("places.py", "_earlier"): "spans that double, in each a search that widens up to all",
    ("places.py", "_blocks"): "parts that become fewer, down to one",
    ("fitting/mini_batches.py", "climb"): "max_iter steps and five jitters",
    ("fitting/mini_batches.py", "final_bound"): "the batches of an epoch, at most LAST_LOOK",
    ("fitting/stream.py", "_put"): WAITS,
    ("fitting/stream.py", "next"): WAITS,
    ("fitting/stream.py", "_all_chunks"): FOR_EVER,
    ("fitting/stream.py", "_all_buffers"): FOR_EVER,
    ("fitting/stream.py", "step"): "the rows of a step; each turn takes some, or the epoch ends",
    ("fitting/inducing.py", "by_need"): "a threshold that grows until the budget is kept",
    ("fitting/choosing.py", "by_first"): "five jitters, up to LARGEST_JITTER",
    ("fitting/vem.py", "_best_q"): "E_STEPS turns, a step of 1e-4, or a gain below the tolerance",
    ("storage/read.py", "_options"): "the tensors of the file",
    ("variational/deviations.py", "solved"): "TURNS of conjugate gradients",
}


def found_in(path):
    """The functions of a file that hold a loop without a given number of turns."""

    def walk(node, function):
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef) else function
            called = getattr(child.func, "attr", "") if isinstance(child, ast.Call) else ""
            if isinstance(child, ast.While) or called == "while_loop":
                yield path.relative_to(SOURCE).as_posix(), function
            yield from walk(child, inside)

    return set(walk(ast.parse(path.read_text()), ""))


def test_every_loop_is_known():
    found = set().union(*(found_in(path) for path in SOURCE.rglob("*.py")))
    assert found == set(LOOPS)


def counts(mean, std, cdf, levels=(0.05, 0.5, 0.95)):
    return quantiles(hm.Poisson(), cdf, np.array(levels), np.array([mean]), np.array([std]))[:, 0]


@pytest.mark.parametrize("size", [1e3, 1e15, 1e27, 1e300])
def test_whole_numbers_end_where_floats_are_more_than_one_apart(size):
    """F(y) = 1 − e^(−y/size): the quantiles are known, to the precision of a float."""
    found = counts(size, size, lambda y, rows: -np.expm1(-np.maximum(y + 1, 0.0) / size))
    expected = -np.log1p(-np.array([0.05, 0.5, 0.95])) * size
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1.0)
    assert np.all(found == np.floor(found))


@pytest.mark.parametrize("mean", [0.0, 1e-300, 1e300, np.inf, np.nan])
@pytest.mark.parametrize("likelihood", [hm.Poisson(), hm.Gaussian(), hm.Gamma(), hm.Beta()])
def test_a_search_ends_from_any_start_and_for_any_function(likelihood, mean):
    """Where the distribution function says nothing, or nothing that makes sense, too."""
    for constant in (0.0, 0.5, 1.0, np.nan):
        turns: list[int] = []

        def cdf(y, rows, constant=constant, turns=turns):
            turns.append(len(y))
            return np.full(len(y), constant)

        found = quantiles(
            likelihood, cdf, np.array([0.3, 0.7]), np.array([mean]), np.array([np.nan])
        )
        assert found.shape == (2, 1)
        assert len(turns) < 400


def test_a_level_between_two_atoms_is_in_between():
    """A tenth of the values are 0 and a tenth are 1."""
    found = quantiles(
        hm.ZeroOneInflatedBeta(),
        lambda y, rows: np.where(y < 0, 0.0, np.where(y < 1, 0.1 + 0.8 * y, 1.0)),
        *(np.array([0.05, 0.5, 0.95]), np.array([0.5]), np.array([0.3])),
    )
    np.testing.assert_allclose(found[:, 0], [0.0, 0.5, 1.0], atol=1e-6)


def test_quantiles_of_different_levels_do_not_cross():
    noise = np.random.default_rng(0)

    def cdf(y, rows):  # as a single precision has it
        return np.clip(0.5 + 1e7 * (y - 1.0) + 1e-3 * noise.normal(size=len(y)), 0.0, 1.0)

    levels = np.linspace(0.4, 0.6, 9)[::-1]
    found = quantiles(hm.Gaussian(), cdf, levels, np.ones(1), np.full(1, 1e-7), 1e-5)
    assert np.all(np.diff(found[:, 0]) <= 0)
