"""The evidence lower bound of the heterogeneous multi-output Gaussian process.

    L = Σ_d Σ_n E_{q(f_d(x_n))}[log p(y_dn | f_d(x_n))] − Σ_q Σ_i KL(q(v_q^i) ‖ N(0, I))

with f = b + W u the parameter functions (`priors`), q(v) the inducing variables (`variational`) and
log p(y | f) the likelihoods. The parameter functions of one output share latents, so at an input
they are correlated: q(f_d) = N(b_d + W_d μ_u, W_d diag(v_u) W_dᵀ). With that joint L is a lower
bound on the evidence; with the paper's product over parameter functions (`joint=False`) it need not
be.

An output with more parameter functions than there are latents (a Categorical of many classes) has
its expectation taken over the latents themselves, f = b_d + W_d u: the same number, at a cost that
grows with the number of classes and not with its square.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data import Batch
from .likelihoods import Categorical, Likelihood
from .marginals import by_projection
from .priors import Prior
from .quadrature import Expectation, expect
from .variational import Factors, kl

__all__ = [
    "Functions",
    "Latents",
    "Parameters",
    "Rules",
    "at_observations",
    "elbo",
    "expected_log_likelihood",
    "is_wide",
    "parameter_functions",
]


LARGEST_WIDE = 40_000  # rows times parameter functions at once, each at some hundreds of points


class Parameters(eqx.Module):
    """The model itself: everything the bound depends on but q(u) and the data."""

    prior: Prior
    likelihoods: tuple[Likelihood, ...]

    @property
    def slices(self) -> list[slice]:
        """Where each output's parameter functions stand among all J."""
        ends = np.cumsum([len(likelihood.latent) for likelihood in self.likelihoods])
        return [
            slice(int(end) - len(likelihood.latent), int(end))
            for end, likelihood in zip(ends, self.likelihoods, strict=True)
        ]


class Rules(eqx.Module):
    """How the bound is evaluated.

    Attributes:
        joint: whether the parameter functions of one output keep their correlation.
        expectation: closed forms where there are any, or always quadrature, or Monte Carlo.
    """

    joint: bool = eqx.field(static=True, default=True)
    expectation: Expectation = eqx.field(static=True, default="auto")


def parameter_functions(
    W: Float[Array, "J R"],
    b: Float[Array, " J"],
    mean: Float[Array, "n R"],
    variance: Float[Array, "n R"],
) -> tuple[Float[Array, "n J"], Float[Array, "n J J"]]:
    """q(f) at each input: mean b + W μ_u and covariance W diag(v_u) Wᵀ."""
    J, R = W.shape
    pairs = (W[:, None, :] * W).reshape(J * J, R)
    return b + mean @ W.T, (variance @ pairs.T).reshape(-1, J, J)


class Functions(NamedTuple):
    """q(f_d) at the observations of one output."""

    mean: Float[Array, "n J"]
    cov: Float[Array, "n J J"]


class Latents(NamedTuple):
    """q(u) at the observations of one output, and a shift of f_d, zero but for its gradient."""

    shift: Float[Array, "n J"]
    mean: Float[Array, "n R"]
    variance: Float[Array, "n R"]


def is_wide(likelihood: Likelihood, R: int, rules: Rules) -> bool:
    """Whether the expectations of an output are taken over the R latents, these being fewer."""
    many = len(likelihood.latent) > max(R, 2)
    return isinstance(likelihood, Categorical) and many and rules.joint


def at_observations(
    parameters: Parameters,
    mean: Float[Array, "N R"],
    variance: Float[Array, "N R"],
    batch: Batch,
    rules: Rules,
) -> list[Functions | Latents]:
    """What each output's expectations are taken over, from the latents' marginals at the rows."""
    W, b = parameters.prior.W, parameters.prior.b
    both = jnp.concatenate([mean, variance], axis=1)
    result: list[Functions | Latents] = []
    for d, likelihood, seen in zip(
        parameters.slices, parameters.likelihoods, batch.outputs, strict=True
    ):
        m, v = jnp.split(both[seen.row], 2, axis=1)
        if is_wide(likelihood, W.shape[1], rules):
            result.append(Latents(jnp.zeros((len(m), len(likelihood.latent)), m.dtype), m, v))
        else:
            result.append(Functions(*parameter_functions(W[d], b[d], m, v)))
    return result


def expected_log_likelihood(
    parameters: Parameters,
    at: Sequence[Functions | Latents],
    batch: Batch,
    rules: Rules,
    key: Array | None = None,
) -> Float[Array, ""]:
    """Σ_d Σ_n E[log p(y_dn | f_d)], given what `at_observations` found."""
    W, b = parameters.prior.W, parameters.prior.b
    total = jnp.zeros(())
    for d, likelihood, here, seen in zip(
        parameters.slices, parameters.likelihoods, at, batch.outputs, strict=True
    ):
        if isinstance(here, Functions):

            def over_functions(y, m, C, given, of=likelihood):
                C = C if rules.joint else C * jnp.eye(len(m), dtype=C.dtype)
                return of.at(given).expectation(y, m, C, rules.expectation, key)

            expectation = jax.vmap(over_functions)(seen.y, *here, seen.given)
        else:

            def over_latents(row, of=likelihood, W=W[d], b=b[d]):
                y, shift, m, v = row
                return expect(
                    lambda u: of.log_prob(y, b + shift + W @ u),
                    *(m, jnp.diag(v), rules.expectation, key),
                )

            rows = max(1, LARGEST_WIDE // len(likelihood.latent))
            if len(seen.y) <= rows:
                expectation = jax.vmap(over_latents)((seen.y, *here))
            else:  # some rows at a time, and once more for the gradient
                expectation = jax.lax.map(
                    jax.checkpoint(over_latents), (seen.y, *here), batch_size=rows
                )
        total += seen.scale * jnp.sum(jnp.where(seen.seen, seen.weight * expectation, 0.0))
    return total


def elbo(
    parameters: Parameters,
    q: Factors,
    batch: Batch,
    jitter: float | Array,
    rules: Rules,
    key: Array | None = None,
) -> Float[Array, ""]:
    """The bound L; on a mini-batch, an unbiased estimate of it."""
    mean, variance = by_projection(parameters.prior.project(batch.X, jitter), q)
    at = at_observations(parameters, mean, variance, batch, rules)
    return expected_log_likelihood(parameters, at, batch, rules, key) - kl(q)
