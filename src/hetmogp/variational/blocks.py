"""Gaussian q(v) in independent blocks, by roots, by moments and by natural parameters.

`Factorised` has a block for each copy of each latent, `Coupled` one block for all of them. Three
ways lead to the same fixed point m = A r, S⁻¹ = I − 2 A diag(g) Aᵀ, where r and g are the gradients
of the expected log-likelihood with respect to the latents' marginal means and covariances:

- `Natural.step`: a stochastic natural-gradient step, from a mini-batch;
- `Family.from_sites`: from a Gaussian *site* for each observation, all at once (full batches);
- plain gradients of m and of the triangular root of S: the paper's way.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import inverse_root, transposed
from ..priors import Latents, Matrices, Projection
from .base import Family

__all__ = ["Blocks", "Moments", "Natural"]


class Blocks(Family):
    """q(v) = Π_b N(m_b, S_b), B blocks of K numbers.

    Attributes:
        mean: m of each block.
        root: S = root rootᵀ, triangular: upper if it comes from a precision, lower if plain
            gradients learn it (`lower`).
    """

    mean: Float[Array, "B K"]
    root: Float[Array, "B K K"]

    @classmethod
    @abstractmethod
    def of_moments(cls, view: Matrices | Projection, mean: Array, cov: Array) -> Latents:
        """q(u) at rows, from the means and covariances of the blocks."""

    @property
    def log_det(self) -> Float[Array, " B"]:
        """log det S of each block."""
        diagonal = jnp.sum(self.root * jnp.eye(self.root.shape[1], dtype=self.root.dtype), axis=2)
        return 2.0 * jnp.sum(jnp.log(jnp.abs(diagonal)), axis=1)

    @property
    def cov(self) -> Float[Array, "B K K"]:
        """S of each block."""
        return jnp.einsum("rmk,rlk->rml", self.root, self.root)

    def kl(self) -> Float[Array, ""]:
        """See `Family.kl`."""
        return _kl(self.mean, jnp.sum(self.root**2), self.log_det)

    def draws(self, key: Array, n: int) -> Float[Array, "n B*K"]:
        """See `Family.draws`."""
        noise = jax.random.normal(key, (n, *self.mean.shape), self.mean.dtype)
        return (self.mean + jnp.einsum("bkl,nbl->nbk", self.root, noise)).reshape(n, -1)

    def lower(self) -> Self:
        """The same q with lower triangular roots, the form that plain gradients learn."""
        return type(self)(self.mean, jnp.tril(self.root))

    def moments(self) -> "Moments":
        """The same q by its means and covariances."""
        return Moments(self.mean, self.cov, self.log_det, type(self))


class Moments(eqx.Module):
    """A Gaussian q by means, covariances and log det S."""

    mean: Float[Array, "B K"]
    cov: Float[Array, "B K K"]
    log_det: Float[Array, " B"]
    family: type[Blocks] = eqx.field(static=True)

    def latents(self, view: Matrices | Projection) -> Latents:
        """See `Family.latents`."""
        return self.family.of_moments(view, self.mean, self.cov)

    def kl(self) -> Float[Array, ""]:
        """See `Family.kl`."""
        trace = jnp.sum(self.cov * jnp.eye(self.cov.shape[1], dtype=self.cov.dtype))
        return _kl(self.mean, trace, self.log_det)


class Natural(eqx.Module):
    """A Gaussian q by its natural parameters: precision P = S⁻¹ and P m."""

    linear: Float[Array, "B K"]
    precision: Float[Array, "B K K"]
    family: type[Blocks] = eqx.field(static=True)

    @classmethod
    def at_prior(cls, family: type[Blocks], widths: Sequence[int]) -> "Natural":
        """The prior itself; its precision and its root are the identity."""
        q = family.at_prior(widths)
        return cls(q.mean, q.root, family)

    @classmethod
    def of(cls, q: Blocks) -> "Natural":
        """The same q by its natural parameters."""
        half = inverse_root(q.cov)
        precision = jnp.einsum("rki,rkj->rij", half, half)
        return cls(jnp.einsum("rij,rj->ri", precision, q.mean), precision, type(q))

    def factors(self) -> Blocks:
        """Means and roots, by one Cholesky factorisation per block."""
        root = transposed(inverse_root(self.precision))  # S = root rootᵀ
        half = jnp.einsum("rkm,rk->rm", root, self.linear)
        return self.family(jnp.einsum("rmk,rk->rm", root, half), root)

    def moments(self) -> Moments:
        """Means and covariances."""
        return self.factors().moments()

    def step(self, q: Moments, slope: Moments, rho: float | Array) -> "Natural":
        """A natural-gradient step of size ρ for every block.

        P ← (1 − ρ) P + ρ (I − 2 A diag(g) Aᵀ) and m ← m + ρ P⁻¹ (A r − m). Where a likelihood is
        not log-concave, g may be positive. The term ½ρ² Δ P⁻¹ Δ keeps P positive definite and
        leaves the fixed point, where Δ = 0, unchanged.

        Args:
            q: the same q by means and covariances.
            slope: the gradients of the expected log-likelihood with respect to the means and the
                covariances, A r and A diag(g) Aᵀ.
            rho: the size of the step, at most one.
        """
        eye = jnp.eye(q.mean.shape[1], dtype=q.mean.dtype)
        delta = self.precision - eye + 2.0 * slope.cov
        product = jnp.einsum("rij,rjk->rik", q.cov, slope.cov)  # the gradient computes it as well
        S_delta = eye - q.cov + 2.0 * product
        curb = 0.5 * rho**2 * jnp.einsum("rij,rjk->rik", delta, S_delta)
        precision = self.precision - rho * delta + curb
        precision = 0.5 * (precision + jnp.swapaxes(precision, 1, 2))
        linear = jnp.einsum("rmk,rk->rm", precision, q.mean) + rho * (slope.mean - q.mean)
        return Natural(linear, precision, self.family)


def _kl(mean: Array, trace: Array, log_det: Array) -> Float[Array, ""]:
    """Σ KL(N(m, S) ‖ N(0, I)) over the blocks."""
    mahalanobis = jnp.sum(mean**2)
    return 0.5 * (mahalanobis + trace - mean.size - jnp.sum(log_det))
