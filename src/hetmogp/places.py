"""Places: the distinct inputs at which local latents have values, their neighbours and blocks.

A local latent has a value at every place. Its prior is the product of its conditionals, each place
given its nearest ones among those before it (Vecchia). In one dimension places are ordered along
the line, so that a Markov process is exact; otherwise the order is random. Blocks are neighbouring
places whose values q holds together.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

__all__ = ["Places", "nearest"]


class Places(NamedTuple):
    """Places in the order of the prior, and their relations; −1 marks an empty entry.

    Attributes:
        at: where they are.
        near: the nearest ones among those before each, the nearest first.
        block: the block of each.
        slot: its position in that block.
        members: the places of each block.
        terms: the places whose conditionals involve a block: its members first, then the places
            that have a member near.
    """

    at: Float[np.ndarray, "L p"]
    near: Int[np.ndarray, "L K"]
    block: Int[np.ndarray, " L"]
    slot: Int[np.ndarray, " L"]
    members: Int[np.ndarray, "C n"]
    terms: Int[np.ndarray, "C T"]

    @classmethod
    def of(cls, X: Float[np.ndarray, "L p"], neighbours: int, size: int, seed: int) -> "Places":
        """The relations of distinct places.

        Args:
            X: the places.
            neighbours: the most near places of each.
            size: the most places of a block.
            seed: the seed of their order.
        """
        if X.shape[1] == 1:
            order = np.argsort(X[:, 0], kind="stable")
        else:
            order = np.random.default_rng(seed).permutation(len(X))
        at = np.ascontiguousarray(X[order])
        near = _earlier_along(len(at), neighbours) if X.shape[1] == 1 else _earlier(at, neighbours)
        members = _blocks(at, size)
        block, slot = np.empty(len(at), np.int32), np.empty(len(at), np.int32)
        there = members >= 0
        block[members[there]], slot[members[there]] = np.nonzero(there)
        return cls(at, near, block, slot, members, _terms(near, block, members))


def nearest(tree: cKDTree, X: Float[np.ndarray, "N p"], neighbours: int) -> Int[np.ndarray, "N K"]:
    """The places nearest to each row, the nearest first."""
    K = min(neighbours, tree.n)
    return tree.query(X, K, workers=-1)[1].reshape(len(X), K).astype(np.int32)


def _earlier_along(L: int, K: int) -> Int[np.ndarray, "L K"]:
    """The places before each on a line."""
    before = np.arange(L, dtype=np.int32)[:, None] - np.arange(1, K + 1, dtype=np.int32)
    return np.maximum(before, -1)


def _earlier(at: Float[np.ndarray, "L p"], K: int) -> Int[np.ndarray, "L K"]:
    """The K nearest among those before each place, exactly.

    Places are taken in spans, each as long as all spans before it. So half of the places up to the
    end of a span come before it, and among the 3 K nearest places there are mostly K earlier ones.
    If there are fewer, the search is widened.
    """
    L = len(at)
    near = np.full((L, K), -1, np.int32)
    begin = 0
    while begin < L:
        end = min(max(2 * begin, 4 * K), L)
        tree = cKDTree(at[:end])
        left, wide = np.arange(begin, end), 3 * K
        while left.size:
            wide = min(wide, end)
            found = tree.query(at[left], wide, workers=-1)[1].reshape(len(left), -1)
            earlier = found < left[:, None]
            rank = np.cumsum(earlier, axis=1)
            keep = earlier & (rank <= K)
            rows, columns = np.nonzero(keep)
            near[left[rows], rank[rows, columns] - 1] = found[rows, columns]
            enough = (rank[:, -1] >= np.minimum(K, left)) | (wide == end)
            left, wide = left[~enough], 2 * wide
        begin = end
    return near


def _blocks(at: Float[np.ndarray, "L p"], size: int) -> Int[np.ndarray, "C n"]:
    """Blocks of at most `size` neighbouring places, nearly equal: cut across the longest side."""
    whole = [(np.arange(len(at), dtype=np.int32), -(-len(at) // size))]
    done: list[np.ndarray] = []
    while whole:
        one, parts = whole.pop()
        if parts == 1:
            done.append(one)
            continue
        points = at[one]
        side = np.argmax(points.max(axis=0) - points.min(axis=0))
        order = np.argsort(points[:, side], kind="stable")
        cut = len(one) * (parts // 2) // parts
        whole += [(one[order[:cut]], parts // 2), (one[order[cut:]], parts - parts // 2)]
    result = np.full((len(done), max(map(len, done))), -1, np.int32)
    for c, one in enumerate(done):
        result[c, : len(one)] = one
    return result


def _terms(
    near: Int[np.ndarray, "L K"], block: Int[np.ndarray, " L"], members: Int[np.ndarray, "C n"]
) -> Int[np.ndarray, "C T"]:
    """The members of each block, then the places that have one near; padded to equal length."""
    place, column = np.nonzero(near >= 0)
    whose = block[near[place, column]]
    away = whose != block[place]
    pairs = np.unique(whose[away].astype(np.int64) * len(near) + place[away])
    whose, place = pairs // len(near), pairs % len(near)
    counts = np.bincount(whose, minlength=len(members))
    n = members.shape[1]
    result = np.full((len(members), n + max(int(counts.max(initial=0)), 1)), -1, np.int32)
    result[:, :n] = members
    first = np.cumsum(counts) - counts
    result[whose, n + np.arange(len(place)) - first[whose]] = place
    return result
