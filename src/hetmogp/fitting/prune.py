"""Dropping mixing weights that do not pay for themselves.

A mixing weight is a point estimate: one that the data hardly asks for still moves predictions, and
where an output was not observed it moves them at random. So after a fit every weight whose absence
would cost the bound less than one nat (Akaike's price of a parameter) is set to zero for good.

Two latents may also do the work of one: with equal kernels only the sum of their coregionalisation
matrices counts, and a coupled q charges nothing for the second. So latents are merged first.
"""

from itertools import combinations
from operator import attrgetter

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..bound import Rules, is_wide
from ..parameters import Parameters
from .vem import Problem, State, settle

__all__ = ["merged", "without_idle_weights"]

PRICE = 1.0  # nats per weight


def without_idle_weights(
    state: State, problem: Problem, jitter: float, price: float = PRICE
) -> State:
    """The state with idle weights masked and q(u) found again; itself if none is idle.

    Latents that can stand for each other are merged, then weights are dropped. They are tried one
    by one, from the smallest effect on; dropping stops before the bound has lost more than the
    price of what was dropped. Each parameter function keeps a weight. An output with more classes
    than there are latents has all its weights on a latent tried as one.
    """
    state = merged(state, problem, jitter, price)

    def refit(mask: np.ndarray) -> State:
        parameters: Parameters = eqx.tree_at(
            attrgetter("prior.mask"), state.parameters, jnp.asarray(mask)
        )
        return settle(parameters, state.sites, problem, jitter)

    def without(mask: np.ndarray, group: tuple[int, int, int]) -> np.ndarray:
        first, last, r = group
        trial = mask.copy()
        trial[first:last, r] = 0.0
        return trial

    mask = np.asarray(attrgetter("prior.mask")(state.parameters))
    losses = {}
    for group in _groups(state.parameters, mask, problem.rules):
        trial = without(mask, group)
        if trial.any(axis=1).all():
            losses[group] = state.bound - refit(trial).bound
    best, dropped = state, 0
    for group in sorted(losses, key=losses.__getitem__):
        first, last, _ = group
        trial = without(mask, group)
        if losses[group] >= price * (last - first) or not trial.any(axis=1).all():
            continue
        less = refit(trial)
        if not state.bound - less.bound < price * (dropped + last - first):
            break
        best, mask, dropped = less, trial, dropped + last - first
    return best


def merged(state: State, problem: Problem, jitter: float, price: float) -> State:
    """The state with latents merged, pair by pair, where that costs less than it drops.

    The stronger one keeps its kernel and takes the best single column for both.
    """
    which = attrgetter("prior.weights", "prior.mask")
    for pair in combinations(range(sum(state.parameters.prior.ranks)), 2):
        weights, mask = map(np.array, which(state.parameters))
        weights *= mask
        first, second = np.linalg.norm(weights[:, pair], axis=0)
        keep, drop = pair if first >= second else pair[::-1]
        if not weights[:, drop].any():
            continue
        columns, sizes, _ = np.linalg.svd(weights[:, [keep, drop]], full_matrices=False)
        weights[:, keep], weights[:, drop] = sizes[0] * columns[:, 0], 0.0
        fewer = mask.copy()
        fewer[:, keep], fewer[:, drop] = mask[:, pair].max(axis=1), 0.0
        moved = eqx.tree_at(which, state.parameters, (jnp.asarray(weights), jnp.asarray(fewer)))
        trial = settle(moved, state.sites, problem, jitter)
        if state.bound - trial.bound < price * (mask.sum() - fewer.sum()):
            state = trial
    return state


def _groups(parameters: Parameters, mask: np.ndarray, rules: Rules) -> list[tuple[int, int, int]]:
    """Which weights stand or fall together: first and last parameter function, and latent."""
    R, groups = mask.shape[1], []
    for part, likelihood in zip(parameters.slices, parameters.likelihoods, strict=True):
        step = part.stop - part.start if is_wide(likelihood, R, rules) else 1
        for first in range(part.start, part.stop, step):
            groups += [(first, first + step, r) for r in range(R) if mask[first, r] > 0]
    return groups
