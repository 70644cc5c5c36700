"""How a fitted model mixes its latents: which of them count, and how the functions correlate.

Not every correlation says something. A parameter function without spread has none, and two
functions that have one latent in common and no other are correlated by ±1 whatever the data say.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .fitted import Fitted

__all__ = ["Mixing", "mixing"]

FLAT = 0.02  # of its unit: a parameter function that varies less is constant
EXACT = 1e-6  # of its variance: with less than this from other latents, a function has one alone
IDLE = 0.01  # of a parameter function's variance: a latent that adds less to all of them is unused


class Mixing(NamedTuple):
    """The latents and parameter functions of a model; J functions in the user's order.

    Attributes:
        variance: of each function, from latents other than slopes.
        flat: whether a function has no spread to speak of.
        used: the latents that count, slopes among them.
        mixed: those of them that weights mix: all but slopes.
        shares: the share of each function's variance that comes from each of `mixed`.
        correlation: of the functions at one input; zero for a flat one.
        constructed: the sign of a correlation that is ±1 by construction, zero elsewhere.
    """

    variance: Float[np.ndarray, " J"]
    flat: Bool[np.ndarray, " J"]
    used: list[int]
    mixed: list[int]
    shares: Float[np.ndarray, "J Q"]
    correlation: Float[np.ndarray, "J J"]
    constructed: Int[np.ndarray, "J J"]


def mixing(fitted: Fitted) -> Mixing:
    """What is mixed in a fitted model."""
    prior, kernels = fitted.posterior.prior, fitted.kernels
    free = [q for q, kernel in enumerate(kernels) if not kernel.own_scale]
    B = (fitted.coregionalisation * fitted.sizes[:, None, None])[free]
    each = np.diagonal(B, axis1=1, axis2=2).T  # (J, Q)
    variance = each.sum(axis=1)
    unit = np.asarray(getattr(prior, "spread", np.ones(len(variance))), float)[fitted.places]
    flat = np.sqrt(variance) < FLAT * unit
    shares = each / np.where(flat, np.inf, variance)[:, None]
    counts = np.any(shares >= IDLE, axis=0)
    mixed = [q for q, counted in zip(free, counts.tolist(), strict=True) if counted]
    size = np.where(flat, np.inf, np.sqrt(np.maximum(variance, 1e-300)))
    correlation = B.sum(axis=0) / np.outer(size, size)
    np.fill_diagonal(correlation, 1.0)

    some = shares[:, counts]
    single = np.array([prior.ranks[q] == 1 for q in mixed], bool)
    main = some.argmax(axis=1) if mixed else np.zeros(len(flat), int)
    most = some.max(axis=1, initial=0.0) >= (1.0 - EXACT) * some.sum(axis=1)
    alone = ~flat & most & (single[main] if mixed else False)
    same = alone[:, None] & alone & (main[:, None] == main)
    constructed = np.where(same, np.sign(correlation), 0.0).astype(int)
    np.fill_diagonal(constructed, 0)
    used = sorted([*mixed, *(q for q, kernel in enumerate(kernels) if kernel.own_scale)])
    return Mixing(variance, flat, used, mixed, some, correlation, constructed)
