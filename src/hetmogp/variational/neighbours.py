"""Local latents: a value at every place, tied to those of the nearest places.

The prior is the product of its conditionals on near places that come earlier (Vecchia),

    p(u) = Π_i N(u_i; a_iᵀ u_n(i), v_i),     a_i = K_nn⁻¹ k_ni,     v_i = k_ii − a_iᵀ k_ni,

and q(u) = Π_c N(m_c, S_c) has a Gaussian for each block of neighbouring places, all local latents
together. Both terms of the bound are then sums over places,

    KL = ½ Σ_i [log v_i + ((m_i − a_iᵀ m_n)² + wᵀ C w) / v_i] − ½ Σ_c log det S_c − ½ L R,

with w = (1, −a_i) and C the covariance of (u_i, u_n) under q, which is zero between blocks. For
given sites (λ, Λ) the best q of a block has

    S_c⁻¹ = Q_cc + Λ_c,     S_c⁻¹ m_c = λ_c − Q_c,rest m_rest,

where Q is the precision of the prior. With blocks of a single place this is the family of Wu,
Pleiss and Cunningham (2022), which is too sure wherever a latent reaches further than the next
place. What blocks leave out is added from time to time while q is learned (`deviations`), and
lengthscales are learned without q (`evidence`).

Small systems, many at once, are solved by array operations over all of them, because LAPACK must
not be given batches on a CPU.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..kernels import Kernel
from ..linalg import inverse_root, over_latents, transposed
from ..priors import Latents

__all__ = [
    "LEAST_OWN",
    "Conditional",
    "Neighbourhood",
    "Sites",
    "Surroundings",
    "surroundings",
    "with_own",
]

AT_ONCE = 4096  # places whose conditionals are computed together
FAR = 1.0  # the most that a mean moves in an update, in standard deviations of the prior
LEAST_OWN = 0.002  # the share of a latent's variance that is each place's own, at least


class Conditional(eqx.Module):
    """u at some inputs given its values at near places, for each local latent: N(aᵀ u_n, v)."""

    a: Float[Array, "R B K"]
    v: Float[Array, "R B"]

    def of(self, i: Int[Array, " n"]) -> "Conditional":
        """Those at some of the inputs."""
        return Conditional(self.a[:, i], self.v[:, i])

    def replaced(self, i: Int[Array, " n"], new: "Conditional") -> "Conditional":
        """The same with new ones at some of the inputs; numbers past the end are left out."""
        a = self.a.at[:, i].set(new.a, mode="drop")
        return Conditional(a, self.v.at[:, i].set(new.v, mode="drop"))


class Sites(eqx.Module):
    """exp(linearᵀu − ½ uᵀ precision u) at the places of some blocks."""

    linear: Float[Array, "B n R"]
    precision: Float[Array, "B n R R"]


class Surroundings(eqx.Module):
    """Some blocks and the conditionals that involve them; −1 marks an empty entry.

    Attributes:
        block: the blocks.
        members: their places.
        terms: the places whose conditionals involve members of the blocks.
        near: the places near to these.
    """

    block: Int[Array, " B"]
    members: Int[Array, "B n"]
    terms: Int[Array, "B T"]
    near: Int[Array, "B T K"]


class Neighbourhood(eqx.Module):
    """q of the local latents, with what it must know of the places.

    Attributes:
        at: where they are.
        block: the block of each place.
        slot: its number there.
        mean: of each local latent at each place.
        cov: of each block: that of latent r at slot k stands at r n + k. It takes most of the
            memory, so it is kept in float32.
        beyond: draws of how the blocks' conditional means deviate from the means together; see
            `deviations`.
        own: the share of each latent's variance that every place has to itself.
        neighbours: the number of places from which a new input is predicted.
    """

    at: Float[Array, "L p"]
    block: Int[Array, " L"]
    slot: Int[Array, " L"]
    mean: Float[Array, "L R"]
    cov: Float[Array, "C b b"]
    beyond: Float[Array, "S L R"]
    own: Float[Array, " R"]
    neighbours: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """n, how many places a block may have."""
        return self.cov.shape[1] // self.mean.shape[1]

    def at_places(self, i: Int[Array, " B"]) -> Latents:
        """The local latents at some of the places."""
        k = self.slot[i, None] + self.size * jnp.arange(self.mean.shape[1])
        cov = self.cov[self.block[i, None, None], k[:, :, None], k[:, None, :]]
        cov, apart = cov.astype(self.mean.dtype), self._beyond(i)
        return Latents(self.mean[i], cov + jnp.einsum("sbr,sbt->brt", apart, apart))

    def _beyond(self, i: Int[Array, "..."]) -> Float[Array, "S ... R"]:
        """Deviations at some places, scaled so that their products add up to a covariance."""
        draws = self.beyond[:, i].astype(self.mean.dtype)
        return draws / max(len(self.beyond), 1) ** 0.5

    def given(
        self,
        kernels: tuple[Kernel, ...],
        x: Float[Array, "B p"],
        near: Int[Array, "B K"],
    ) -> Conditional:
        """The conditional of each local latent at x given near places; −1 marks an empty entry."""
        cov, cross = surroundings(kernels, self.own, x, self.at[near], near >= 0)
        a = jnp.stack([_solved(K, k) for K, k in zip(cov, cross, strict=True)])
        v = 1.0 - jnp.sum(a * cross, axis=2)
        return Conditional(a, jnp.maximum(v, 0.5 * LEAST_OWN))

    def prior(self, kernels: tuple[Kernel, ...], near: Int[Array, "L K"]) -> Conditional:
        """The conditionals of all places, some thousands at a time, to save memory."""
        L = len(near)
        i = jnp.arange(-(-L // AT_ONCE) * AT_ONCE).reshape(-1, AT_ONCE) % L

        def some(i: Int[Array, " n"]) -> Conditional:
            return self.given(kernels, self.at[i], near[i])

        every = jax.lax.map(some, i)
        a, v = (jnp.swapaxes(part, 0, 1) for part in (every.a, every.v))
        R, K = len(kernels), near.shape[1]
        return Conditional(a.reshape(R, -1, K)[:, :L], v.reshape(R, -1)[:, :L])

    def _among(
        self, i: Int[Array, "B K"], j: Int[Array, "B M"], r: int, s: int
    ) -> Float[Array, "B K M"]:
        """The covariance of latent r at some places and latent s at others."""
        n = self.size
        rows, columns = (r * n + self.slot[i])[:, :, None], (s * n + self.slot[j])[:, None, :]
        cov = self.cov[self.block[i][:, :, None], rows, columns]
        cov = cov.astype(self.mean.dtype)
        cov = jnp.where(self.block[i][:, :, None] == self.block[j][:, None, :], cov, 0.0)
        cov += jnp.einsum("zbk,zbm->bkm", self._beyond(i)[..., r], self._beyond(j)[..., s])
        return jnp.where((i >= 0)[:, :, None] & (j >= 0)[:, None, :], cov, 0.0)

    def divergence(
        self, given: Conditional, i: Int[Array, " B"], near: Int[Array, "B K"]
    ) -> Float[Array, ""]:
        """The terms of the KL for some places, but for the entropy of q."""
        every = jnp.concatenate([i[:, None], near], axis=1)
        means = _at(self.mean, every)  # B K+1 R
        total = jnp.zeros(())
        for r in range(self.mean.shape[1]):
            w = with_own(given.a[r])
            off = jnp.einsum("bk,bk->b", w, means[:, :, r])
            square = off**2 + jnp.einsum("bk,bkl,bl->b", w, self._among(every, every, r, r), w)
            term = 0.5 * (jnp.log(given.v[r]) + square / given.v[r])
            total += jnp.sum(jnp.where(i >= 0, term, 0.0))
        return total

    def updated(
        self, given: Conditional, around: Surroundings, sites: Sites
    ) -> tuple[Float[Array, "B n R"], Float[Array, "B b b"], Float[Array, " B"]]:
        """The best means and covariances of some blocks given the others, and log det S of each.

        Args:
            given: the conditionals of all terms, one block after another.
            around: the blocks.
            sites: at their places.
        """
        members, terms = around.members, around.terms
        (B, n), T, R = members.shape, terms.shape[1], self.mean.shape[1]
        every = jnp.concatenate([terms[:, :, None], around.near], axis=2)  # B T K+1
        inside = (every >= 0) & (self.block[every] == around.block[:, None, None])
        slots = jnp.where(inside, self.slot[every], n)
        means, own = _at(self.mean, every), _at(self.mean, members)
        P, slopes = jnp.zeros((B, R, n, R, n), self.mean.dtype), []
        for r in range(R):
            w = with_own(given.a[r]).reshape(B, T, -1)
            inverse = jnp.where(terms >= 0, 1.0 / given.v[r].reshape(B, T), 0.0)
            parts = _in_slots(w, slots, n)
            off = jnp.einsum("btk,btk->bt", w, means[..., r])
            Q = jnp.einsum("btn,btm->bnm", parts * inverse[..., None], parts)
            P = P.at[:, r, :, r, :].set(Q)
            slopes.append(jnp.einsum("btn,bt->bn", parts, off * inverse))
        eye, there = jnp.eye(n, dtype=P.dtype), members >= 0
        empty = jnp.where(there, 0.0, 1.0)[:, :, None, None] * jnp.eye(R, dtype=P.dtype)
        P += jnp.einsum("bnrs,nm->brnsm", sites.precision + empty, eye)
        root = transposed(inverse_root(P.reshape(B, R * n, R * n)))  # S = root rootᵀ
        cov = jnp.einsum("bij,bkj->bik", root, root)
        log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
        pull = sites.linear - jnp.einsum("bnrs,bns->bnr", sites.precision, own)
        pull = jnp.where(there[..., None], pull - jnp.stack(slopes, axis=2), 0.0)
        step = jnp.einsum("bij,bj->bi", cov, jnp.swapaxes(pull, 1, 2).reshape(B, -1))
        step *= FAR / jnp.maximum(jnp.max(jnp.abs(step), axis=1, keepdims=True), FAR)
        return own + jnp.swapaxes(step.reshape(B, R, n), 1, 2), cov, log_det

    def latents(self, given: Conditional, near: Int[Array, "B K"]) -> Latents:
        """The local latents at inputs, from the places nearest to them."""
        mean = jnp.einsum("rbk,bkr->br", given.a, _at(self.mean, near))
        R = mean.shape[1]
        cov = [
            [
                jnp.einsum("bk,bkl,bl->b", given.a[r], self._among(near, near, r, s), given.a[s])
                for s in range(R)
            ]
            for r in range(R)
        ]
        own = given.v.T[:, :, None] * jnp.eye(R, dtype=mean.dtype)
        return Latents(mean, jnp.array(cov).transpose(2, 0, 1) + own)

    def draws(
        self,
        keys: Array,
        i: Int[Array, " U"],
        whose: Int[Array, " U"],
        blocks: Int[Array, " B"],
        n: int,
    ) -> Float[Array, "G U n R"]:
        """Draw n values for each of G keys at some places; a block's draws follow from its number.

        Args:
            keys: the source of all random numbers.
            i: the places.
            whose: the position of each place's block among `blocks`.
            blocks: the blocks of the places.
            n: how many draws for each key.
        """
        cov = self.cov[blocks].astype(self.mean.dtype)
        root = jnp.einsum("cij,ckj->cik", cov, inverse_root(cov))  # S L⁻ᵀ = L
        k = self.slot[i, None] + self.size * jnp.arange(self.mean.shape[1])

        def of_key(key: Array) -> Array:
            own = jax.vmap(lambda c: jax.random.fold_in(key, c))(blocks)
            noise = jax.vmap(lambda one: jax.random.normal(one, (n, cov.shape[1]), cov.dtype))(own)
            away = jnp.einsum("cij,cnj->cni", root, noise)
            across = jax.random.fold_in(key, len(self.cov))  # no block's number
            across = jax.random.normal(across, (n, len(self.beyond)), cov.dtype)
            together = jnp.einsum("ns,sur->unr", across, self._beyond(i))
            return self.mean[i][:, None] + away[whose[:, None], :, k].swapaxes(1, 2) + together

        return jax.lax.map(of_key, keys)

    def joint(
        self, given: Conditional, x: Float[Array, "N p"], near: Int[Array, "N K"]
    ) -> Float[Array, "N R N R"]:
        """The covariance of the local latents over N inputs.

        Given the places, different inputs are independent; equal ones have one value.
        """
        N, K = near.shape
        flat, R = near.reshape(1, N * K), self.mean.shape[1]
        same = jnp.all(x[:, None] == x, axis=2)
        rows = []
        for r in range(R):
            row = []
            for s in range(R):
                among = self._among(flat, flat, r, s).reshape(N, K, N, K)
                cov = jnp.einsum("nk,nkml,ml->nm", given.a[r], among, given.a[s])
                row.append(cov + (jnp.where(same, given.v[r], 0.0) if r == s else 0.0))
            rows.append(jnp.stack(row))
        return jnp.stack(rows).transpose(2, 0, 3, 1)


def surroundings(
    kernels: tuple[Kernel, ...],
    own: Float[Array, " R"],
    x: Float[Array, "B p"],
    z: Float[Array, "B K p"],
    there: Bool[Array, "B K"],
) -> tuple[Float[Array, "R B K K"], Float[Array, "R B K"]]:
    """The covariance of each latent among places near x, and with x; empty entries have one.

    A share of a latent's variance is each place's own: only an x at that very place has it too.
    The share is never zero: otherwise two places that nearly coincide, in different blocks, would
    hold each other where they are.
    """

    def of_one(kernel: Kernel, own: Array) -> tuple[Array, Array]:
        def one(x: Array, z: Array, there: Array) -> tuple[Array, Array]:
            z = z - x  # what is near stays apart, whatever the precision
            eye = jnp.eye(len(z), dtype=x.dtype) * jnp.where(there, own, 1.0)
            K = jnp.where(there[:, None] & there, (1.0 - own) * kernel.matrix(z, z), 0.0) + eye
            k = (1.0 - own) * kernel.matrix(jnp.zeros_like(x)[None], z)[0]
            k += own * jnp.all(z == 0.0, axis=1)
            return K, jnp.where(there, k, 0.0)

        return jax.vmap(one)(x, z, there)

    return over_latents(of_one, kernels, own)


def with_own(a: Float[Array, "B K"]) -> Float[Array, "B K+1"]:
    """(1, −a), of a place and those near to it."""
    return jnp.concatenate([jnp.ones((len(a), 1), a.dtype), -a], axis=1)


def _at(values: Float[Array, "L R"], i: Int[Array, "..."]) -> Float[Array, "... R"]:
    """values[i], and zero where i is −1."""
    return jnp.where((i >= 0)[..., None], values[i], 0.0)


def _in_slots(
    w: Float[Array, "B T K"], slots: Int[Array, "B T K"], n: int
) -> Float[Array, "B T n"]:
    """Each of the numbers in the slot it belongs to; slot n is outside.

    One sum of comparisons takes half the time of a product with an array of ones and zeros.
    """
    columns = [
        jnp.where(slots[..., k, None] == jnp.arange(n), w[..., k, None], 0.0)
        for k in range(w.shape[2])
    ]
    return sum(columns[1:], columns[0])


def _solved(K: Float[Array, "B k k"], b: Float[Array, "B k"]) -> Float[Array, "B k"]:
    """K⁻¹ b, by elimination in all matrices at once; they are positive definite."""
    n = K.shape[1]
    rest = jnp.concatenate([K, b[:, :, None]], axis=2)
    for j in range(n):
        row = rest[:, j, 1:] / rest[:, j, :1]
        own = (jnp.arange(n) == j)[:, None]
        rest = jnp.where(own, row[:, None], rest[:, :, 1:] - rest[:, :, :1] * row[:, None])
    return rest[:, :, 0]
