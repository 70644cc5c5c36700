"""Dropping mixing weights that do not pay for themselves.

A mixing weight is a point estimate: one that the data hardly asks for still moves predictions, and
where an output was not observed it moves them at random. So after a fit every weight whose absence
would cost the bound less than one nat (Akaike's price of a parameter) is set to zero for good.
"""

from operator import attrgetter

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..bound import Parameters, Rules
from ..data import Batch
from .vem import State, settle

__all__ = ["without_idle_weights"]

PRICE = 1.0  # nats per weight


def without_idle_weights(
    state: State, batch: Batch, jitter: float, rules: Rules, tolerance: float
) -> State:
    """The state with idle weights masked and q(u) found again; itself if none is idle.

    Weights are tried one by one, from the smallest effect on; dropping stops before the bound has
    lost more than the price of what was dropped. Each parameter function keeps a weight.
    """

    def refit(mask: np.ndarray) -> State:
        parameters: Parameters = eqx.tree_at(
            attrgetter("prior.mask"), state.parameters, jnp.asarray(mask)
        )
        return settle(parameters, state.sites, state.anchor, batch, jitter, rules, tolerance)

    mask = np.asarray(attrgetter("prior.mask")(state.parameters))
    losses = {}
    for j, r in np.argwhere(mask > 0):
        trial = mask.copy()
        trial[j, r] = 0.0
        if trial[j].any():
            losses[j, r] = state.bound - refit(trial).bound
    best, dropped = state, 0
    for j, r in sorted(losses, key=losses.__getitem__):
        trial = mask.copy()
        trial[j, r] = 0.0
        if losses[j, r] >= PRICE or not trial[j].any():
            continue
        found = refit(trial)
        if not state.bound - found.bound < PRICE * (dropped + 1):
            break
        best, mask, dropped = found, trial, dropped + 1
    return best
