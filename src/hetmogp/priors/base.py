"""A prior: latent functions in, parameter functions out.

The latents u are independent Gaussian processes, R_q copies of each kernel's, seen through their
inducing variables. A subclass defines how they make the parameter functions f of all outputs, and
no other module knows. The bound asks for f given the latents, and fitting pulls back to the latents
what the observations say about f.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..kernels import Kernel
from ..linalg import over_latents, whiten
from ..quadrature import root

__all__ = ["Functions", "Hyperprior", "Latents", "Matrices", "Prior", "Projection", "copies"]


class Latents(NamedTuple):
    """q(u) at each of n rows.

    Attributes:
        mean: the mean of each latent.
        cov: the variance of each latent, (n, R), if q makes them independent at a row; otherwise
            their covariance, (n, R, R).
    """

    mean: Float[Array, "n R"]
    cov: Float[Array, "n R"] | Float[Array, "n R R"]

    @property
    def variance(self) -> Float[Array, "n R"]:
        """The variance of each latent."""
        each = np.arange(self.mean.shape[1])
        return self.cov if self.cov.ndim == 2 else self.cov[:, each, each]

    def square(self) -> Float[Array, "n R R"]:
        """The covariance of the latents as a matrix, whatever q is."""
        if self.cov.ndim == 3:
            return self.cov
        return self.cov[:, :, None] * jnp.eye(self.cov.shape[1], dtype=self.cov.dtype)

    def beside(self, other: "Latents") -> "Latents":
        """These latents and others that are independent of them under q."""
        n, R = self.mean.shape
        S = other.mean.shape[1]
        upper = jnp.concatenate([self.square(), jnp.zeros((n, R, S), self.cov.dtype)], axis=2)
        lower = jnp.concatenate([jnp.zeros((n, S, R), self.cov.dtype), other.square()], axis=2)
        mean = jnp.concatenate([self.mean, other.mean], axis=1)
        return Latents(mean, jnp.concatenate([upper, lower], axis=1))

    def draws(self, noise: Float[Array, "k n R"]) -> Float[Array, "k n R"]:
        """Values of the latents from standard normal noise; rows are independent."""
        if self.cov.ndim == 2:
            return self.mean + jnp.sqrt(self.cov) * noise
        return self.mean + jnp.einsum("nrs,kns->knr", jax.vmap(root)(self.cov), noise)


class Functions(NamedTuple):
    """The parameter functions of one output at each of n rows: their mean and covariance."""

    mean: Float[Array, "n J"]
    cov: Float[Array, "n J J"]


class Projection(eqx.Module):
    """What the inducing variables of each copy of each latent say about the inputs X.

    Attributes:
        A: L⁻¹ k(Z, X), with L Lᵀ = k(Z, Z); zeros where a copy has fewer than M inducing inputs.
        residual: k(x, x) − |A|², the variance that they do not explain.
        widths: how many inducing inputs each copy has.
    """

    A: Float[Array, "R M N"]
    residual: Float[Array, "R N"]
    widths: tuple[int, ...] = eqx.field(static=True)

    def project(self) -> "Projection":
        """Itself; `Matrices.project` makes a projection from the kernels' matrices."""
        return self


class Matrices(eqx.Module):
    """The covariances of each latent that a batch needs.

    Attributes:
        inducing: k(Z, Z), with a jitter on its diagonal.
        cross: k(Z, X).
        variance: k(x, x).
        ranks: R_q, the number of copies of each latent.
        widths: how many inducing inputs each copy has.
    """

    inducing: Float[Array, "Q M M"]
    cross: Float[Array, "Q M N"]
    variance: Float[Array, "Q N"]
    ranks: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)

    def project(self) -> Projection:
        """Project the inputs onto each latent's inducing variables: Q solves, whatever J is."""
        first = np.cumsum(self.ranks) - self.ranks  # copy of each latent
        A = whiten(self.inducing, self.cross, [self.widths[copy] for copy in first])
        residual = jnp.maximum(self.variance - jnp.sum(A * A, axis=1), 0.0)
        return Projection(copies(A, self.ranks), copies(residual, self.ranks), self.widths)


def copies(per_latent: Float[Array, "Q ..."], ranks: tuple[int, ...]) -> Float[Array, "R ..."]:
    """The arrays of each latent, repeated for each of its copies."""
    if set(ranks) == {1}:
        return per_latent
    return per_latent[np.repeat(np.arange(len(ranks)), ranks)]


class Hyperprior(eqx.Module):
    """Normal priors of the point estimates. They are weak: see `docs/inference.md`.

    Attributes:
        constants: the precision of each parameter function's constant, around its initial value;
            zero for no prior.
        sizes: the precision of each parameter function's size, the root of the sum of its squared
            weights, around zero.
        kernels: the centres of the priors of the logarithms of the kernels' numbers.
        width: the width of these priors.
    """

    constants: Float[Array, " J"]
    sizes: Float[Array, " J"]
    kernels: tuple[Kernel, ...] = ()
    width: Float[Array, ""] | float = 1.5

    def log_density(
        self,
        constants: Float[Array, " J"],
        squares: Float[Array, " J"],
        kernels: tuple[Kernel, ...],
    ) -> Float[Array, ""]:
        """The log density of constants, squared sizes and kernels, up to a constant."""
        total = jnp.sum(self.constants * constants**2) + jnp.sum(self.sizes * squares)
        for kernel, centre in zip(kernels, self.kernels, strict=False):
            pairs = jax.tree.map(lambda a, c: jnp.log(a / c), kernel.learned(), centre.learned())
            moves = jax.tree.leaves(pairs)
            total += sum((jnp.sum(move**2) for move in moves), jnp.zeros(())) / self.width**2
        return -0.5 * total


class Prior(eqx.Module):
    """Independent latents, and how they make the parameter functions.

    In the methods, `part` is the slice of the J parameter functions that belong to one output.

    Attributes:
        arrays: the arrays of a prior besides its inducing inputs, by name, with their shapes: J
            parameter functions, R copies of latents.
        learned: those arrays that are learned without a transformation.
        one_each: whether each parameter function has exactly one latent, used by no other function.
        kernels: k_q, one per latent.
        inducing_inputs: Z_q, one per latent, or a single one (Q = 1) that all latents share.
        ranks: R_q, the number of copies of each latent.
        counts: M_q, how many rows of Z_q are inducing inputs, from the first on; empty if all are.
            Smooth latents need few, and latents over one input at most as many as it has
            values.
        local: the number of local latents, which come last. They have a value at every place
            instead of inducing inputs.
    """

    arrays: ClassVar[Mapping[str, str]] = {}
    learned: ClassVar[tuple[str, ...]] = ()
    one_each: ClassVar[bool] = False

    kernels: tuple[Kernel, ...]
    inducing_inputs: Float[Array, "Q M p"]
    ranks: tuple[int, ...] = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True, default=(), kw_only=True)
    local: int = eqx.field(static=True, default=0, kw_only=True)

    @classmethod
    @abstractmethod
    def start(
        cls,
        centre: Float[np.ndarray, " J"],
        spread: Float[np.ndarray, " J"],
        noise: Float[np.ndarray, "J R"],
    ) -> dict[str, np.ndarray]:
        """The initial `arrays`.

        Args:
            centre: a good constant value of each parameter function.
            spread: how much each is expected to vary.
            noise: standard normal numbers, to tell the latents apart.
        """

    @abstractmethod
    def values(self, part: slice, u: Float[Array, "... R"]) -> Float[Array, "... J"]:
        """The parameter functions for given values u of the latents."""

    @abstractmethod
    def functions(self, part: slice, latents: Latents) -> Functions:
        """The parameter functions for Gaussian latents."""

    @abstractmethod
    def factor(self, part: slice, latents: Latents) -> tuple[Array, Array]:
        """The same as a mean and a factor F with few columns, where the covariance is F Fᵀ."""

    @abstractmethod
    def pull_back(self, part: slice, slope: Float[Array, "n J"]) -> Float[Array, "n R"]:
        """A gradient with respect to u, from the gradient with respect to f."""

    @abstractmethod
    def pull_back_curvature(
        self, part: slice, curvature: Float[Array, "n J J"] | Float[Array, "n J"]
    ) -> Float[Array, "n R R"]:
        """The second derivatives with respect to u, from those with respect to f.

        Args:
            part: which parameter functions.
            curvature: a matrix for each row, or only its diagonal if it is diagonal.
        """

    @abstractmethod
    def joint(self, cov: Float[Array, "N R N R"]) -> Float[Array, "N J N J"]:
        """The covariance of all parameter functions over N rows, from that of the latents."""

    @abstractmethod
    def log_density(self) -> Float[Array, ""]:
        """The log density of the point estimates of this prior, up to a constant."""

    def with_hyperprior(self, hyperprior: Hyperprior | None) -> Self:
        """This prior with priors of its point estimates for `log_density`, or without."""
        return self

    @abstractmethod
    def coregionalisation(self) -> Float[np.ndarray, "Q J J"]:
        """The covariance of the parameter functions due to each latent, which has unit variance."""

    def shown(self) -> dict[str, np.ndarray]:
        """The arrays that users see, by name, with a row for each parameter function."""
        return {}

    def with_inducing(
        self, inputs: Float[np.ndarray, "Q M p"], counts: tuple[int, ...] = ()
    ) -> Self:
        """This prior with other inducing inputs."""
        Z = jnp.asarray(inputs, dtype=float)
        return replace(self, inducing_inputs=Z, counts=tuple(counts))  # messages have lists

    @property
    def sizes(self) -> tuple[int, int]:
        """R, the number of copies of latents, and M, the most inducing inputs of one."""
        return sum(self.smooth_ranks), self.inducing_inputs.shape[1]

    @property
    def smooth_ranks(self) -> tuple[int, ...]:
        """The number of copies of each latent that has inducing inputs."""
        return self.ranks[: len(self.ranks) - self.local]

    @property
    def smooth(self) -> tuple[Kernel, ...]:
        """The kernels of latents that have inducing inputs."""
        return self.kernels[: len(self.kernels) - self.local]

    @property
    def nearby(self) -> tuple[Kernel, ...]:
        """The kernels of latents that have a value at every place."""
        return self.kernels[len(self.kernels) - self.local :]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many inducing inputs each copy of each latent has."""
        ranks = self.smooth_ranks
        counts = self.counts or (self.inducing_inputs.shape[1],) * len(ranks)
        return tuple(M for M, rank in zip(counts, ranks, strict=True) for _ in range(rank))

    @property
    def tables(self) -> list[Float[np.ndarray, "M p"]]:
        """The inducing inputs of each latent, without padding."""
        counts = self.counts or (self.inducing_inputs.shape[1],) * len(self.smooth)
        return [np.asarray(Z)[:M] for Z, M in zip(self.Z, counts, strict=True)]

    @property
    def Z(self) -> Float[Array, "Q M p"]:  # noqa: N802
        """The inducing inputs of each latent; rows beyond its count are padding."""
        return jnp.broadcast_to(
            self.inducing_inputs, (len(self.smooth), *self.inducing_inputs.shape[1:])
        )

    def matrices(self, X: Float[Array, "N p"], jitter: float | Array) -> Matrices:
        """The covariances of each latent among its inducing inputs and between them and X."""

        def of_one(kernel: Kernel, Z: Float[Array, "M p"]) -> tuple[Array, Array, Array]:
            Kzz = kernel.matrix(Z, Z)
            scale = jnp.maximum(jnp.mean(kernel.diag(Z)), 1e-30)  # one, except for a Linear kernel
            Kzz = Kzz + jitter * scale * jnp.eye(Z.shape[0], dtype=Z.dtype)
            return Kzz, kernel.matrix(Z, X), kernel.diag(X)

        Kzz, Kzx, variance = over_latents(of_one, self.smooth, self.Z)
        if self.counts:  # the padding is white noise that nothing depends on
            M = Kzz.shape[1]
            used = np.arange(M) < np.array(self.counts)[:, None]
            Kzz = jnp.where(used[:, :, None] & used[:, None, :], Kzz, jnp.eye(M, dtype=Kzz.dtype))
            Kzx = jnp.where(used[:, :, None], Kzx, 0.0)
        return Matrices(Kzz, Kzx, variance, self.smooth_ranks, self.widths)
