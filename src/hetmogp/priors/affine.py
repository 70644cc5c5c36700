"""Parameter functions that are affine in the latents: f(x) = b + W u(x)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..quadrature import root
from .base import Functions, Hyperprior, Latents, Prior

__all__ = ["Affine"]


class Affine(Prior):
    """f(x) = b + W u(x), with u the ΣR_q latent functions.

    Each parameter function has its own unit (`centre`, `spread`), so the learned numbers are of
    order one whatever the scale of the data.

    Attributes:
        weights: the learned part of W, in units of `spread`; a subclass says how it enters.
        constants: the learned part of b, in units of `spread`.
        centre: where b starts.
        spread: the unit of each parameter function.
        hyperprior: the prior of the point estimates, while they are learned.
    """

    arrays: ClassVar[Mapping[str, str]] = {
        **{"weights": "JR", "constants": "J"},
        **{"centre": "J", "spread": "J"},
    }
    learned: ClassVar[tuple[str, ...]] = ("weights", "constants")

    weights: Float[Array, "J R"]
    constants: Float[Array, " J"]
    centre: Float[Array, " J"]
    spread: Float[Array, " J"]
    hyperprior: Hyperprior | None = eqx.field(default=None, kw_only=True)

    @classmethod
    def start(cls, centre: np.ndarray, spread: np.ndarray, noise: np.ndarray) -> dict:
        """See `Prior.start`: each function starts with its own latent and small other weights."""
        J, R = noise.shape
        own = np.arange(R) == np.arange(J)[:, None] % max(R, 1)
        numbers = {"constants": np.zeros(J), "centre": centre, "spread": spread}
        return {"weights": own + 0.3 * noise, **numbers}

    @property
    @abstractmethod
    def W(self) -> Float[Array, "J R"]:  # noqa: N802
        """The mixing weights a, one column per copy of a latent."""

    @property
    def b(self) -> Float[Array, " J"]:
        """The constant of each parameter function."""
        return self.centre + self.spread * self.constants

    def values(self, part: slice, u: Float[Array, "... R"]) -> Float[Array, "... J"]:
        """See `Prior.values`."""
        return self.b[part] + u @ self.W[part].T

    def functions(self, part: slice, latents: Latents) -> Functions:
        """Mean b + W μ_u and covariance W C_u Wᵀ, C_u diagonal or full."""
        W, mean = self.W[part], self.values(part, latents.mean)
        J, R = W.shape
        if latents.cov.ndim == 2:
            pairs = (W[:, None, :] * W).reshape(J * J, R)
            return Functions(mean, (latents.cov @ pairs.T).reshape(-1, J, J))
        half = (latents.cov.reshape(-1, R) @ W.T).reshape(-1, R, J)  # C_u Wᵀ
        cov = (jnp.swapaxes(half, 1, 2).reshape(-1, R) @ W.T).reshape(-1, J, J)
        return Functions(mean, cov)

    def factor(self, part: slice, latents: Latents) -> tuple[Array, Array]:
        """F = W diag(√v_u), or from a triangular root of the smaller of cov f and C_u.

        See `Prior.factor`.
        """
        W = self.W[part]
        if latents.cov.ndim == 2:
            return self.values(part, latents.mean), W * jnp.sqrt(latents.cov)[:, None, :]
        if W.shape[0] <= W.shape[1]:
            mean, cov = self.functions(part, latents)
            return mean, jax.vmap(root)(cov)
        return self.values(part, latents.mean), W @ jax.vmap(root)(latents.cov)

    def pull_back(self, part: slice, slope: Float[Array, "n J"]) -> Float[Array, "n R"]:
        """See `Prior.pull_back`."""
        return slope @ self.W[part]

    def pull_back_curvature(
        self, part: slice, curvature: Float[Array, "n J J"] | Float[Array, "n J"]
    ) -> Float[Array, "n R R"]:
        """See `Prior.pull_back_curvature`: Wᵀ Λ W."""
        W = self.W[part]
        J, R = W.shape
        if curvature.ndim == 2:
            pairs = (W[:, :, None] * W[:, None, :]).reshape(J, R * R)
        else:
            pairs = (W[:, None, :, None] * W[None, :, None, :]).reshape(J * J, R * R)
        return (curvature.reshape(len(curvature), -1) @ pairs).reshape(-1, R, R)

    def joint(self, cov: Float[Array, "N R N R"]) -> Float[Array, "N J N J"]:
        """See `Prior.joint`."""
        return jnp.einsum("jr,nrms,ks->njmk", self.W, cov, self.W)

    def log_density(self) -> Float[Array, ""]:
        """See `Prior.log_density`."""
        if self.hyperprior is None:
            return jnp.zeros(())
        squares = jnp.sum((self.W / self.spread[:, None]) ** 2, axis=1)
        return self.hyperprior.log_density(self.constants, squares, self.kernels)

    def with_hyperprior(self, hyperprior: Hyperprior | None) -> Self:
        """See `Prior.with_hyperprior`."""
        return replace(self, hyperprior=hyperprior)

    @abstractmethod
    def of_functions(self, part: slice) -> Self:
        """The prior of some of the parameter functions, with the latents that they may use."""

    def _rows(self, part: slice) -> Self:
        """The prior of some of the parameter functions."""
        hyperprior = self.hyperprior
        if hyperprior is not None:
            hyperprior = replace(
                hyperprior,
                constants=_some(hyperprior.constants, part),
                sizes=_some(hyperprior.sizes, part),
            )
        rows: dict[str, Any] = {name: _some(getattr(self, name), part) for name in self.arrays}
        return replace(self, **rows, hyperprior=hyperprior)

    def _latents(self, used: Sequence[int]) -> Self:
        """The prior with some of the latents, one copy each."""
        kept, hyperprior = self, self.hyperprior
        if len(self.inducing_inputs) > 1 or self.counts:
            counts = tuple(self.counts[r] for r in used) if self.counts else ()
            Z = np.asarray(self.inducing_inputs)[list(used)]
            kept = self.with_inducing(Z[:, : max(counts)] if counts else Z, counts)
        if hyperprior is not None and hyperprior.kernels:
            hyperprior = replace(hyperprior, kernels=tuple(hyperprior.kernels[r] for r in used))
        kernels = tuple(self.kernels[r] for r in used)
        return replace(kept, kernels=kernels, ranks=(1,) * len(kernels), hyperprior=hyperprior)

    def coregionalisation(self) -> Float[np.ndarray, "Q J J"]:
        """B_q = A_q A_qᵀ."""
        ends = np.cumsum(self.ranks)[:-1]
        return np.stack([A @ A.T for A in np.split(np.asarray(self.W), ends, axis=1)])

    def shown(self) -> dict[str, np.ndarray]:
        """See `Prior.shown`."""
        return {"weights": np.asarray(self.W), "constants": np.asarray(self.b)}


def _some(rows: Float[Array, "J ..."], part: slice) -> Float[Array, "k ..."]:
    """Some rows, by NumPy, so that nothing is compiled."""
    return jnp.asarray(np.asarray(rows)[part])
