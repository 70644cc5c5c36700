"""q(u): a Gaussian over the whitened inducing variables of every copy of every latent.

u_q^i(Z_q) = L_q v_q^i, and q(v_q^i) = N(m, S), independent over (q, i) as in the paper. Three ways
lead to the same fixed point m = A r, S⁻¹ = I − 2 A diag(g) Aᵀ, where r and g are the gradients of
the expected log-likelihood with respect to the latents' marginal means and variances:

- `natural_step`: a stochastic natural-gradient step, from a mini-batch;
- `posterior`: from a Gaussian *site* for each observation, all at once (full batches);
- plain gradients of m and of the triangular root of S: the paper's way.

A q coupled over latents would be another class beside `Factors`, with its own `marginals`.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .linalg import whiten
from .priors import Projection

__all__ = ["Factors", "Natural", "kl", "marginals", "natural_step", "posterior"]


class Factors(eqx.Module):
    """q(v_q^i) = N(m, S) for every copy of every latent, S = root rootᵀ, root triangular."""

    mean: Float[Array, "R M"]
    root: Float[Array, "R M M"]


class Natural(eqx.Module):
    """The same by its natural parameters: precision P = S⁻¹ and P m."""

    linear: Float[Array, "R M"]
    precision: Float[Array, "R M M"]

    def factors(self) -> Factors:
        """Means and roots, by one Cholesky factorisation per copy."""
        eye = jnp.broadcast_to(jnp.eye(self.linear.shape[1]), self.precision.shape)
        inverse = whiten(self.precision, eye)  # S = inverseᵀ inverse
        return Factors(
            jnp.einsum("rkm,rkl,rl->rm", inverse, inverse, self.linear),
            jnp.swapaxes(inverse, 1, 2),
        )


def marginals(
    projection: Projection, q: Factors
) -> tuple[Float[Array, "N R"], Float[Array, "N R"]]:
    """Mean and variance of every latent at every input: Aᵀm and k(x,x) − |A|² + AᵀSA."""
    A, residual = projection
    mean = jnp.einsum("rmn,rm->nr", A, q.mean)
    spread = jnp.einsum("rmk,rmn->rkn", q.root, A)
    return mean, (residual + jnp.sum(spread * spread, axis=1)).T


def kl(q: Factors) -> Float[Array, ""]:
    """Σ KL(N(m, S) ‖ N(0, I))."""
    mahalanobis = jnp.sum(q.mean**2)
    trace = jnp.sum(q.root**2)
    diagonal = jnp.sum(q.root * jnp.eye(q.root.shape[1], dtype=q.root.dtype), axis=2)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.abs(diagonal)))
    return 0.5 * (mahalanobis + trace - q.mean.size - log_det)


def natural_step(
    natural: Natural,
    q: Factors,
    A: Float[Array, "R M N"],
    r: Float[Array, "R N"],
    g: Float[Array, "R N"],
    rho: float | Array,
) -> Natural:
    """A natural-gradient step of size ρ for every copy of every latent.

    P ← (1 − ρ) P + ρ (I − 2 A diag(g) Aᵀ) and m ← m + ρ P⁻¹ (A r − m). Where a likelihood is not
    log-concave g may be positive; the term ½ρ² Δ P⁻¹ Δ keeps P positive definite without moving the
    fixed point, where Δ = 0.

    Args:
        natural: q by its natural parameters.
        q: the same q by means and roots.
        A: the projections of the batch.
        r: ∂E/∂(mean of each latent) at each row of the batch.
        g: ∂E/∂(variance of each latent) at each row of the batch.
        rho: the size of the step, at most one.
    """
    eye = jnp.eye(A.shape[1], dtype=A.dtype)
    target = eye - 2.0 * jnp.einsum("rmn,rn,rkn->rmk", A, g, A)
    delta = natural.precision - target
    half = jnp.einsum("rmk,rml->rkl", q.root, delta)  # Δ S Δ = halfᵀ half
    curb = 0.5 * rho**2 * jnp.einsum("rkm,rkl->rml", half, half)
    precision = natural.precision - rho * delta + curb
    precision = 0.5 * (precision + jnp.swapaxes(precision, 1, 2))
    pull = jnp.einsum("rmn,rn->rm", A, r) - q.mean
    return Natural(jnp.einsum("rmk,rk->rm", precision, q.mean) + rho * pull, precision)


def posterior(
    A: Float[Array, "R M N"],
    linear: Float[Array, "N R"],
    metric: Float[Array, "N R R"],
    precision: Float[Array, "N R"],
) -> Factors:
    """q(v) from a Gaussian site at every input, exp(linearᵀu − ½ uᵀ metric u).

    The means of all latents are solved for *together*, since every observation ties them; taken one
    latent at a time they converge only slowly, or not at all. The covariances are those of the
    best factorised q: one block per copy, from the diagonal `precision`.
    """
    R, M, _ = A.shape
    P = jnp.einsum("rmn,nrs,skn->rmsk", A, metric, A).reshape(R * M, R * M)
    P = 0.5 * (P + P.T) + jnp.eye(R * M, dtype=A.dtype)
    pull = jnp.einsum("rmn,nr->rm", A, linear).reshape(R * M)
    inverse = whiten(P[None], jnp.eye(R * M, dtype=A.dtype)[None])[0]
    mean = inverse.T @ (inverse @ pull)

    eye = jnp.broadcast_to(jnp.eye(M, dtype=A.dtype), (R, M, M))
    blocks = jnp.einsum("rmn,nr,rkn->rmk", A, precision, A)
    root = jnp.swapaxes(whiten(eye + 0.5 * (blocks + jnp.swapaxes(blocks, 1, 2)), eye), 1, 2)
    return Factors(mean.reshape(R, M), root)
