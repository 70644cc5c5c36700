"""A factorised q(u) at the inputs: the mean and variance of every latent, in one pass.

With A = L⁻¹ k(Z, X) they are

    mean = Aᵀ m,    variance = k(x, x) − |A|² + Aᵀ S A.

`Factorised.latents` computes exactly this. `marginals` computes the same without forming A. With

    α = L⁻ᵀ m    and    Ω = L⁻ᵀ (S − I) L⁻¹        (M × M work only)

they are Kᵀα and k(x, x) + Σ (Ω K) ∘ K for K = k(Z, X). The forward pass takes one product with K.
The backward pass takes one more, K diag(g) Kᵀ, for the gradients of the kernels and of q(u). That
is 4 M² N operations, where differentiating through A takes ten. The gradients with respect to m and
S, A r and A diag(g) Aᵀ, are all that a natural-gradient step needs.

Ω has entries as large as one over the jitter. Single precision cannot hold them, so A is used.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg import congruence, inverse_root, transposed, whiten
from ..priors import Latents, Matrices, copies

__all__ = ["condensed", "from_condensed", "marginals"]


def marginals(matrices: Matrices, mean: Float[Array, "R M"], cov: Float[Array, "R M M"]) -> Latents:
    """The marginals, from the kernels' matrices and the mean and covariance of each copy's v."""
    way = _one_pass if mean.dtype == jnp.float64 else _projected
    kernels = matrices.inducing, matrices.cross, matrices.variance
    u, variance = way(matrices.ranks, *kernels, mean, cov)
    return Latents(u.T, variance.T)


def _summed(a: Float[Array, "R ..."], ranks: tuple[int, ...]) -> Float[Array, "Q ..."]:
    """The transpose of `copies`."""
    if set(ranks) == {1}:
        return a
    return jax.ops.segment_sum(a, np.repeat(np.arange(len(ranks)), ranks), len(ranks))


def _projected(
    ranks: tuple[int, ...], Kzz: Array, Kzx: Array, variance: Array, m: Array, S: Array
) -> tuple[Float[Array, "R N"], Float[Array, "R N"]]:
    A = whiten(Kzz, Kzx)
    residual = jnp.maximum(variance - jnp.sum(A * A, axis=1), 0.0)
    A, residual = copies(A, ranks), copies(residual, ranks)
    explained = jnp.sum(A * jnp.einsum("rmk,rkn->rmn", S, A), axis=1)
    return jnp.einsum("rm,rmn->rn", m, A), residual + jnp.maximum(explained, 0.0)


def condensed(
    Kzz: Float[Array, "Q M M"],
    ranks: tuple[int, ...],
    m: Float[Array, "R M"],
    S: Float[Array, "R M M"],
) -> tuple[Float[Array, "R M"], Float[Array, "R M M"], Float[Array, "R M M"]]:
    """α = L⁻ᵀ m and Ω = L⁻ᵀ (S − I) L⁻¹ for every copy, and L⁻¹."""
    inverse = copies(inverse_root(Kzz), ranks)
    back = transposed(inverse)
    eye = jnp.eye(m.shape[1], dtype=m.dtype)
    return jnp.einsum("rij,rj->ri", back, m), congruence(back, S - eye), inverse


def from_condensed(
    alpha: Float[Array, "R M"],
    omega: Float[Array, "R M M"],
    K: Float[Array, "R M N"],
    variance: Float[Array, "R N"],
) -> tuple[Float[Array, "R N"], Float[Array, "R N"], Float[Array, "R M N"]]:
    """Kᵀα, k(x, x) + Σ (Ω K) ∘ K, and Ω K itself."""
    product = jnp.einsum("rmk,rkn->rmn", omega, K)
    spread = jnp.maximum(variance + jnp.sum(product * K, axis=1), 0.0)
    return jnp.einsum("rm,rmn->rn", alpha, K), spread, product


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _one_pass(
    ranks: tuple[int, ...], Kzz: Array, Kzx: Array, variance: Array, m: Array, S: Array
) -> tuple[Float[Array, "R N"], Float[Array, "R N"]]:
    return _forwards(ranks, Kzz, Kzx, variance, m, S)[0]


def _forwards(
    ranks: tuple[int, ...], Kzz: Array, Kzx: Array, variance: Array, m: Array, S: Array
) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    alpha, omega, inverse = condensed(Kzz, ranks, m, S)
    K = copies(Kzx, ranks)
    mean, spread, product = from_condensed(alpha, omega, K, copies(variance, ranks))
    return (mean, spread), (inverse, K, product, alpha, m, S)


def _backwards(
    ranks: tuple[int, ...], saved: tuple[Array, ...], slopes: tuple[Array, Array]
) -> tuple[Array, ...]:
    """With G = K diag(g) Kᵀ: dS = H = L⁻¹ G L⁻ᵀ, dm = L⁻¹ K r, dk(Z, X) = 2 Ω K diag(g) + α rᵀ and
    dk(Z, Z) = −sym(L⁻ᵀ Φ(C) L⁻¹), C = 2 (S − I) H + m dmᵀ, Φ the lower triangle with its diagonal
    halved.
    """  # noqa: D205
    inverse, K, product, alpha, m, S = saved
    r, g = slopes
    dK = 2.0 * product * g[:, None, :] + alpha[:, :, None] * r[:, None, :]
    dm = jnp.einsum("rij,rj->ri", inverse, jnp.einsum("rmn,rn->rm", K, r))
    dS = congruence(inverse, jnp.einsum("rmn,rkn->rmk", K * g[:, None, :], K))
    C = 2.0 * (jnp.einsum("rij,rjk->rik", S, dS) - dS) + m[:, :, None] * dm[:, None, :]
    phi = jnp.tril(C) - 0.5 * C * jnp.eye(m.shape[1], dtype=m.dtype)
    both = congruence(transposed(inverse), 0.5 * (phi + jnp.swapaxes(phi, 1, 2)))
    return *(_summed(a, ranks) for a in (-both, dK, g)), dm, dS


_one_pass.defvjp(_forwards, _backwards)
