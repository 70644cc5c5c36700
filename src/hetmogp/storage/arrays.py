"""The rules for the arrays of a saved model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..columns import Column
from ..inputs import restored
from ..priors import PRIORS
from ..variational import FAMILIES
from .description import Rule, shortened

__all__ = ["check_arrays"]

FINITE = Rule("finite numbers", lambda a: bool(np.isfinite(a).all()))
ABOVE_ZERO = Rule("positive numbers", lambda a: bool((np.isfinite(a) & (a > 0)).all()))
SWITCHES = Rule("zeros and ones", lambda a: bool(np.isin(a, (0.0, 1.0)).all()))
RANGE = Rule("ends in order", lambda a: bool(np.isfinite(a).all() and (a[0] <= a[1]).all()))

# J parameter functions, R copies of latents, M inducing inputs of p numbers; Z is one or a set for
# each latent, n is any number. The prior and q have more of their own.
ARRAYS = {
    "parameters.prior.inducing_inputs": ("ZMp", FINITE),
    "scaling.centre": ("p", FINITE),
    "scaling.scale": ("p", ABOVE_ZERO),
    "history": ("n", FINITE),
    "input_range": ("2p", RANGE),
}
NUMBERED = Rule("whole numbers", lambda a: a.dtype == np.int32)
SHARES = Rule("shares above zero", lambda a: bool(((a > 0) & (a <= 1)).all()))
NEAR = {  # of L places in C blocks, with r local latents and D draws
    "near.at": ("Lp", FINITE),
    "near.block": ("L", NUMBERED),
    "near.slot": ("L", NUMBERED),
    "near.mean": ("Lr", FINITE),
    "near.cov": ("Cbb", FINITE),
    "near.beyond": ("DLr", FINITE),
    "near.own": ("r", SHARES),
}
SPECIAL = {"spread": ABOVE_ZERO, "mask": SWITCHES}  # all other arrays hold finite numbers
OF_A_KERNEL = re.compile(r"parameters\.prior\.kernels\..*", re.DOTALL)
LEARNED = re.compile(r"parameters\.likelihoods\.\d+\.free\..*", re.DOTALL)


def check_arrays(
    arrays: Mapping[str, np.ndarray],
    places: Mapping[str, Any],
    columns: Sequence[Column],
    facts: Mapping[str, Any],
    functions: int,
) -> None:
    """Compare the arrays of a model with the rules, and their sizes with its description.

    Args:
        arrays: by name.
        places: the numbers of the model as it was described, by name, before the file fills them.
        columns: the inputs.
        facts: the description, which was checked.
        functions: J.
    """
    rules, local = dict(ARRAYS), (facts.get("local") or {"latents": 0})["latents"]
    ranks = facts["ranks"][: len(facts["ranks"]) - local]
    if local:
        rules |= NEAR
    for name, shape in PRIORS[facts["prior"]].arrays.items():
        rules[f"parameters.prior.{name}"] = (shape, SPECIAL.get(name, FINITE))
    for name, shape in FAMILIES[facts["q"]].arrays.items():
        rules[f"q.{name}"] = (shape.replace("R", "S"), FINITE)  # of smooth latents alone
    tables = facts["options"].get("inducing") == "tables"  # placed by the user, and kept
    given = sum(name.startswith("inducing.") for name in arrays)
    if bool(given) != tables:
        raise ValueError(f"options.inducing does not match {given} tables of inducing inputs")
    placed = [f"inducing.{k}" for k in range(given)]
    _refuse_odd({*rules, *places, *placed}, arrays)
    sizes = {"J": functions, "p": len(columns), "1": 1, "2": 2}
    sizes |= {"R": sum(facts["ranks"]), "S": sum(ranks), "r": local}
    for name, (letters, rule) in rules.items():
        _check_array(name, arrays[name], letters, rule, sizes)
    if sizes["Z"] not in (1, len(ranks)) or sizes["M"] < 1:
        raise ValueError(
            f"it has {sizes['Z']} sets of {sizes['M']} inducing inputs for {len(ranks)} latents"
        )
    counts = facts.get("counts") or [sizes["M"]] * len(ranks)
    if max(counts) > sizes["M"]:
        raise ValueError(f"a latent has {max(counts)} of {sizes['M']} inducing inputs")
    coupled = sum(rank * count for rank, count in zip(ranks, counts, strict=True))
    if sizes.get("K", coupled) != coupled:
        raise ValueError(
            f"q couples {sizes['K']} numbers, but there are {sum(ranks)} copies of latents with "
            f"{coupled} inducing inputs in all"
        )
    if local:
        _check_blocks(arrays["near.block"], arrays["near.slot"], arrays["near.cov"], local)
    for name in placed:
        _check_array(name, arrays[name], "np", FINITE, {"p": len(columns)})
    with np.errstate(invalid="raise"):
        for name in ("input_range", *placed):
            restored(arrays[name], columns)  # refuses what no date and no label stands for
    for name in places.keys() - rules.keys():
        if OF_A_KERNEL.fullmatch(name):
            _require_numbers(name, arrays[name], ABOVE_ZERO)
        elif LEARNED.fullmatch(name):
            _check_array(name, arrays[name], "", FINITE, {})
        else:
            _require_same(name, arrays[name], np.asarray(places[name]))


def _check_blocks(block: np.ndarray, slot: np.ndarray, cov: np.ndarray, local: int) -> None:
    """Compare the blocks of places with the room that there is for them."""
    C, room = cov.shape[0], cov.shape[1] // local
    fits = cov.shape[1] == room * local and (block >= 0).all() and (block < C).all()
    if not (fits and (slot >= 0).all() and (slot < room).all()):
        raise ValueError(f"its places are not in {C} blocks of {room}")
    if len(np.unique(block.astype(np.int64) * room + slot)) != len(block):
        raise ValueError("two of its places have one slot of a block")


def _refuse_odd(expected: set[str], found: Mapping[str, Any]) -> None:
    for name in sorted(expected ^ found.keys()):
        state = "is missing" if name in expected else "has no place in the model"
        raise ValueError(f"the array {shortened(name)} {state}")


def _check_array(
    name: str, array: np.ndarray, letters: str, rule: Rule, sizes: dict[str, int]
) -> None:
    """Compare an array with a shape, of which each letter stands for one size throughout."""
    fits = array.ndim == len(letters) and all(
        sizes.setdefault(letter, size) == size
        for letter, size in zip(letters, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
        raise ValueError(f"the array {name} has the shape {array.shape}, not ({wanted})")
    _require_numbers(name, array, rule)


def _require_numbers(name: str, array: np.ndarray, rule: Rule) -> None:
    if rule is not NUMBERED and array.dtype not in (np.float64, np.float32):
        raise ValueError(
            f"the array {name} is of {array.dtype}; it should be of float64 or float32"
        )
    if not rule.holds(array):
        raise ValueError(f"the array {name} should hold {rule.words}")


def _require_same(name: str, array: np.ndarray, described: np.ndarray) -> None:
    """Compare a number that is not learned, such as one of trials, with the description's."""
    if described.dtype.kind == "f":
        _require_numbers(name, array, FINITE)
    if not np.array_equal(array, described.astype(array.dtype)):
        raise ValueError(f"the array {name} is not what the description says")
