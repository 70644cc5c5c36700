"""The evidence of local latents' kernels, with the sites held.

The sites exp(λ_iᵀu_i − ½ u_iᵀΛ_i u_i) stand for what the data says of the local latents at each
place. With them held, the evidence of the kernels is ∫ p(u) Π_i site_i(u_i) du. Vecchia's
approximation takes it place by place,

    log Z = Σ_i log ∫ site_i(u_i) p(u_i | sites of the near places before i) du_i,

a sum over places, so a sample of places gives its gradient without bias. It does not involve q. A q
of blocks loses less where lengthscales are short, so its bound prefers short ones whatever the
truth. Where q is exact, both have the same gradient (Adam, Chang, Khan and Solin, 2021).

With K the prior covariance of the near places' latents, k that with u_i, and Γ Γᵀ = Λ,

    B = I + Γᵀ K Γ,    mean of u_i = kᵀ(λ − Γ B⁻¹ Γᵀ K λ),    covariance = k_ii − kᵀ Γ B⁻¹ Γᵀ k,

which needs no inverse of Λ: it is zero at a place without values.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..kernels import Kernel
from ..linalg import inverse_root
from .neighbours import Sites, surroundings
from .semidefinite import semi_root

__all__ = ["evidence", "evidence_of_all"]

AT_ONCE = 1024  # places whose terms are computed together


def evidence(
    kernels: tuple[Kernel, ...],
    own: Float[Array, " R"],
    at: Float[Array, "L p"],
    i: Int[Array, " B"],
    near: Int[Array, "B K"],
    sites: Sites,
) -> Float[Array, " B"]:
    """The terms of the log evidence of some places.

    Args:
        kernels: of the local latents.
        own: the share of each latent's variance that every place has to itself.
        at: where the places are.
        i: the places.
        near: the places near to each that come before it; −1 marks an empty entry.
        sites: at the near places, and last at each place itself.
    """
    (B, K), R = near.shape, len(kernels)
    cov, cross = surroundings(kernels, own, at[i], at[near], near >= 0)
    there = (near >= 0)[..., None]
    linear = jnp.where(there, sites.linear[:, :-1], 0.0)
    precision = jnp.where(there[..., None], sites.precision[:, :-1], 0.0)
    root = semi_root(precision.reshape(B * K, R, R)).reshape(B, K, R, R)

    lifted = jnp.einsum("bkrs,rbkl,blrt->bkslt", root, cov, root).reshape(B, K * R, K * R)
    whitener = inverse_root(jnp.eye(K * R, dtype=at.dtype) + lifted)
    seen = jnp.einsum("rbkl,blr->bkr", cov, linear)
    pulled = jnp.einsum("bkrs,bkr->bks", root, seen).reshape(B, K * R)
    towards = jnp.einsum("bkrs,rbk->bksr", root, cross).reshape(B, K * R, R)
    T = jnp.einsum("bij,bjr->bir", whitener, towards)
    mean = jnp.einsum("rbk,bkr->br", cross, linear)
    mean -= jnp.einsum("bir,bij,bj->br", T, whitener, pulled)
    left = jnp.eye(R, dtype=at.dtype) - jnp.einsum("bir,bis->brs", T, T)
    return _met(mean, left, Sites(sites.linear[:, -1:], sites.precision[:, -1:]))


def evidence_of_all(
    kernels: tuple[Kernel, ...],
    own: Float[Array, " R"],
    at: Float[Array, "L p"],
    near: Int[Array, "L K"],
    sites: Sites,
) -> Float[Array, ""]:
    """log Z: the sum over all places.

    Args:
        kernels: of the local latents.
        own: the share of each latent's variance that every place has to itself.
        at: where the places are.
        near: the places near to each that come before it; −1 marks an empty entry.
        sites: at each place, (L, R) and (L, R, R).
    """
    L = len(at)
    every = jnp.arange(-(-L // AT_ONCE) * AT_ONCE).reshape(-1, AT_ONCE)

    def some(i: Int[Array, " B"]) -> Array:
        there, i = i < L, jnp.minimum(i, L - 1)
        those = jnp.concatenate([near[i], i[:, None]], axis=1)
        around = Sites(sites.linear[those], sites.precision[those])
        return jnp.sum(jnp.where(there, evidence(kernels, own, at, i, near[i], around), 0.0))

    return jnp.sum(jax.lax.map(some, every))


def _met(mean: Float[Array, "B R"], cov: Float[Array, "B R R"], sites: Sites) -> Float[Array, " B"]:
    """log ∫ site(u) N(u; mean, cov) du."""
    linear, precision = sites.linear[:, 0], sites.precision[:, 0]
    root = semi_root(precision)
    inner = jnp.einsum("brs,brt,btu->bsu", root, cov, root)
    X = inverse_root(jnp.eye(inner.shape[1], dtype=inner.dtype) + inner)
    rest = linear - jnp.einsum("brs,bs->br", precision, mean)
    along = jnp.einsum("brs,bs->br", cov, rest)
    taken = jnp.einsum("bij,brj,br->bi", X, root, along)
    plain = jnp.sum(linear * mean, axis=1) - 0.5 * jnp.einsum("br,brs,bs->b", mean, precision, mean)
    quadratic = 0.5 * (jnp.sum(rest * along, axis=1) - jnp.sum(taken**2, axis=1))
    return plain + quadratic + jnp.sum(jnp.log(jnp.diagonal(X, axis1=1, axis2=2)), axis=1)
