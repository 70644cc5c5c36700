"""Drop the mixing weights that do not pay for themselves.

A mixing weight is a point estimate. A weight that the data hardly support still changes
predictions, and where an output was not observed it changes them at random. So after a fit, every
weight whose absence would cost the bound less than one nat (Akaike's price of a parameter) is fixed
at zero.

Two latents may also do the work of one: if their kernels are equal, only the sum of their
coregionalisation matrices matters, and a coupled q does not penalise the second latent. So latents
are merged first.
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
    """Set idle weights to zero and fit q(u) again; return the state itself if none is idle.

    Latents that can replace each other are merged first, then weights are dropped. They are tried
    one by one, in order of increasing effect. Dropping stops before the bound has lost more than
    the price of the dropped weights. Each parameter function keeps at least one weight. If an
    output has more classes than there are latents, all its weights on one latent are tried
    together.
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
            loss = state.bound - refit(trial).bound
            if np.isfinite(loss):
                losses[group] = loss
    best, dropped = state, 0
    for group in sorted(losses, key=losses.__getitem__):
        first, last, _ = group
        trial = without(mask, group)
        if losses[group] >= price * (last - first) or not trial.any(axis=1).all():
            continue
        less = refit(trial)
        if not np.isfinite(less.bound):
            continue
        if state.bound - less.bound >= price * (dropped + last - first):
            break
        best, mask, dropped = less, trial, dropped + last - first
    return best


def merged(state: State, problem: Problem, jitter: float, price: float) -> State:
    """Merge latents, pair by pair, where that costs less than the price of the dropped weights.

    The stronger latent keeps its kernel and gets the best single column of weights for both.
    """
    which = attrgetter("prior.weights", "prior.mask")
    held = attrgetter("prior.held")(state.parameters)
    for pair in combinations(range(sum(state.parameters.prior.ranks)), 2):
        if held[list(pair)].any():
            continue
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
    """The weights that are dropped together: first and last parameter function, and latent."""
    held, groups = attrgetter("prior.held")(parameters), []
    R, free = mask.shape[1], np.flatnonzero(~held).tolist()
    for part, likelihood in zip(parameters.slices, parameters.likelihoods, strict=True):
        step = part.stop - part.start if is_wide(likelihood, R, rules) else 1
        for first in range(part.start, part.stop, step):
            groups += [(first, first + step, r) for r in free if mask[first, r] > 0]
    return groups
