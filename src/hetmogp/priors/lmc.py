"""The linear model of coregionalisation, and the prior in which nothing is shared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.linalg import block_diag

from ..kernels import Kernel
from .affine import Affine

__all__ = ["LMC", "Independent"]


class LMC(Affine):
    """f_j(x) = b_j + Σ_q Σ_i a_{jq}^i u_q^i(x), with `weights` the (J, ΣR_q) matrix of the a's.

    Attributes:
        mask: one if a weight may be learned, zero if it was dropped.
    """

    arrays: ClassVar[Mapping[str, str]] = {**Affine.arrays, "mask": "JR"}

    mask: Float[Array, "J R"]

    @classmethod
    def start(cls, centre: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> dict:
        """See `Prior.start`."""
        return {**super().start(centre, spread, noise), "mask": np.ones(noise.shape)}

    @property
    def W(self) -> Float[Array, "J R"]:  # noqa: N802
        """See `Affine.W`."""
        weights = self.weights
        if self.held.any():
            weights = jnp.where(self.held, 1.0, weights)
        return self.spread[:, None] * self.mask * weights

    @property
    def held(self) -> Bool[np.ndarray, " R"]:
        """Which latents have fixed weights, because their kernels have a scale."""
        return np.repeat([kernel.own_scale for kernel in self.kernels], self.ranks)

    @classmethod
    def together(cls, parts: Sequence["LMC"]) -> "LMC":
        """One model with all parameter functions and latents of models that share nothing."""
        first = parts[0]
        joined: dict[str, Any] = {
            name: jnp.concatenate([getattr(part, name) for part in parts])
            for name in ("constants", "centre", "spread")
        }
        blocks = {
            name: jnp.asarray(block_diag(*(np.asarray(getattr(part, name)) for part in parts)))
            for name in ("weights", "mask")
        }
        hyperpriors = [part.hyperprior for part in parts if part.hyperprior is not None]
        if hyperpriors:
            joined["hyperprior"] = replace(
                hyperpriors[0],
                constants=jnp.concatenate([one.constants for one in hyperpriors]),
                sizes=jnp.concatenate([one.sizes for one in hyperpriors]),
                kernels=sum((one.kernels for one in hyperpriors), ()),
            )
        return replace(
            first,
            **{**joined, **blocks},
            kernels=sum((part.kernels for part in parts), ()),
            ranks=sum((part.ranks for part in parts), ()),
            **_inducing(parts),
        )

    def with_latents(
        self,
        kernels: Sequence[Kernel],
        centres: Sequence[Kernel],
        weights: Float[np.ndarray, "J R"],
        mask: Float[np.ndarray, "J R"],
    ) -> Self:
        """The same parameter functions, made of other latents.

        Args:
            kernels: the kernels of the latents.
            centres: the centres of the priors of their numbers, if there are priors.
            weights: the weight of each parameter function on each latent.
            mask: which weights may be learned.
        """
        hyperprior = self.hyperprior
        if hyperprior is not None:
            hyperprior = replace(hyperprior, kernels=tuple(centres))
        return replace(
            self,
            kernels=tuple(kernels),
            ranks=(1,) * len(kernels),
            weights=jnp.asarray(weights),
            mask=jnp.asarray(mask),
            hyperprior=hyperprior,
        )

    def with_local(
        self,
        kernels: Sequence[Kernel],
        weights: Float[np.ndarray, "J R"],
        mask: Float[np.ndarray, "J R"],
    ) -> Self:
        """This prior with local latents added, whose kernels are fixed.

        Args:
            kernels: the kernels of the local latents.
            weights: the weight of each parameter function on each of them.
            mask: which of these weights may be learned.
        """
        return replace(
            self,
            kernels=(*self.kernels, *kernels),
            ranks=(*self.ranks, *(1,) * len(kernels)),
            weights=jnp.hstack([self.weights, jnp.asarray(weights)]),
            mask=jnp.hstack([self.mask, jnp.asarray(mask)]),
            local=len(kernels),
        )

    def in_use(self) -> Self:
        """This prior without the latents that no parameter function may use."""
        used = np.flatnonzero(np.asarray(self.mask).any(axis=0)).tolist()
        columns: dict[str, Any] = {
            name: jnp.asarray(np.asarray(getattr(self, name))[:, used])
            for name in ("weights", "mask")
        }
        return replace(self._latents(used), **columns)

    def of_functions(self, part: slice) -> Self:
        """See `Affine.of_functions`."""
        return self._rows(part).in_use()


def _inducing(parts: Sequence[LMC]) -> dict[str, Any]:
    """The inducing inputs of all latents of several models."""
    tables = [np.asarray(part.inducing_inputs) for part in parts]
    if all(np.array_equal(table, tables[0][:1]) for table in tables) and not parts[0].counts:
        return {}  # one set for all
    counts = sum((part.counts or part.widths for part in parts), ())
    room = [
        np.pad(table, ((0, max(counts) - len(table)), (0, 0)), "edge")
        for part in parts
        for table in part.tables
    ]
    return {"inducing_inputs": jnp.asarray(np.stack(room)), "counts": counts}


class Independent(Affine):
    """f_j(x) = b_j + a_j u_j(x): a latent for each parameter function (chained GPs)."""

    arrays: ClassVar[Mapping[str, str]] = {**Affine.arrays, "weights": "J1"}
    one_each: ClassVar[bool] = True

    weights: Float[Array, "J 1"]

    @classmethod
    def start(cls, centre: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> dict:
        """See `Prior.start`."""
        return {**super().start(centre, spread, noise), "weights": np.ones((len(centre), 1))}

    def of_functions(self, part: slice) -> Self:
        """See `Affine.of_functions`."""
        return self._rows(part)._latents(range(len(self.kernels))[part])

    @property
    def W(self) -> Float[Array, "J J"]:  # noqa: N802
        """See `Affine.W`."""
        return jnp.diag(self.spread * self.weights[:, 0])
