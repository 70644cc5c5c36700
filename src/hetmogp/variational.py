"""q(u): a Gaussian over the whitened inducing variables of every copy of every latent.

u_q^i(Z_q) = L_q v_q^i, and q(v_q^i) = N(m, S), independent over (q, i) as in the paper. Three ways
lead to the same fixed point m = A r, S⁻¹ = I − 2 A diag(g) Aᵀ, where r and g are the gradients of
the expected log-likelihood with respect to the latents' marginal means and variances:

- `natural_step`: a stochastic natural-gradient step, from a mini-batch;
- `posterior`: from a Gaussian *site* for each observation, all at once (full batches);
- plain gradients of m and of the triangular root of S: the paper's way.

A q coupled over latents would be another class beside `Factors`, with its own marginals.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .linalg import inverse_root, transposed, whiten

__all__ = ["Factors", "Moments", "Natural", "kl", "natural_step", "posterior"]


class Factors(eqx.Module):
    """q(v_q^i) = N(m, S) for every copy of every latent, S = root rootᵀ, root triangular."""

    mean: Float[Array, "R M"]
    root: Float[Array, "R M M"]

    @property
    def log_det(self) -> Float[Array, " R"]:
        """log det S of each."""
        diagonal = jnp.sum(self.root * jnp.eye(self.root.shape[1], dtype=self.root.dtype), axis=2)
        return 2.0 * jnp.sum(jnp.log(jnp.abs(diagonal)), axis=1)


class Moments(eqx.Module):
    """The same by mean and covariance, and log det S."""

    mean: Float[Array, "R M"]
    cov: Float[Array, "R M M"]
    log_det: Float[Array, " R"]

    @classmethod
    def of(cls, q: Factors) -> "Moments":
        """S and its determinant from its root."""
        return cls(q.mean, jnp.einsum("rmk,rlk->rml", q.root, q.root), q.log_det)


class Natural(eqx.Module):
    """The same by its natural parameters: precision P = S⁻¹ and P m."""

    linear: Float[Array, "R M"]
    precision: Float[Array, "R M M"]

    def factors(self) -> Factors:
        """Means and roots, by one Cholesky factorisation per copy."""
        root = transposed(inverse_root(self.precision))  # S = root rootᵀ
        half = jnp.einsum("rkm,rk->rm", root, self.linear)
        return Factors(jnp.einsum("rmk,rk->rm", root, half), root)

    def moments(self) -> Moments:
        """Means and covariances."""
        return Moments.of(self.factors())


def kl(q: Factors | Moments) -> Float[Array, ""]:
    """Σ KL(N(m, S) ‖ N(0, I))."""
    mahalanobis = jnp.sum(q.mean**2)
    if isinstance(q, Factors):
        trace = jnp.sum(q.root**2)
    else:
        trace = jnp.sum(q.cov * jnp.eye(q.cov.shape[1], dtype=q.cov.dtype))
    return 0.5 * (mahalanobis + trace - q.mean.size - jnp.sum(q.log_det))


def natural_step(
    natural: Natural,
    q: Moments,
    slope_mean: Float[Array, "R M"],
    slope_cov: Float[Array, "R M M"],
    rho: float | Array,
) -> Natural:
    """A natural-gradient step of size ρ for every copy of every latent.

    P ← (1 − ρ) P + ρ (I − 2 A diag(g) Aᵀ) and m ← m + ρ P⁻¹ (A r − m). Where a likelihood is not
    log-concave g may be positive; the term ½ρ² Δ P⁻¹ Δ keeps P positive definite without moving the
    fixed point, where Δ = 0.

    Args:
        natural: q by its natural parameters.
        q: the same q by means and covariances.
        slope_mean: the gradient of the expected log-likelihood with respect to m, A r.
        slope_cov: and with respect to S, A diag(g) Aᵀ.
        rho: the size of the step, at most one.
    """
    eye = jnp.eye(q.mean.shape[1], dtype=q.mean.dtype)
    delta = natural.precision - eye + 2.0 * slope_cov
    product = jnp.einsum("rij,rjk->rik", q.cov, slope_cov)  # the gradient has formed it as well
    S_delta = eye - q.cov + 2.0 * product
    curb = 0.5 * rho**2 * jnp.einsum("rij,rjk->rik", delta, S_delta)
    precision = natural.precision - rho * delta + curb
    precision = 0.5 * (precision + jnp.swapaxes(precision, 1, 2))
    pull = slope_mean - q.mean
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
