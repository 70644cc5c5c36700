"""The evidence lower bound of the heterogeneous multi-output Gaussian process.

    L = Σ_d Σ_n E_{q(f_d(x_n))}[log p(y_dn | f_d(x_n))] − Σ_q Σ_i KL(q(v_q^i) ‖ N(0, I))

with f = b + W u the parameter functions (`priors`), q(v) the inducing variables (`variational`) and
log p(y | f) the likelihoods. The parameter functions of one output share latents, so at an input
they are correlated: q(f_d) = N(b_d + W_d μ_u, W_d diag(v_u) W_dᵀ). With that joint L is a lower
bound on the evidence; with the paper's product over parameter functions (`joint=False`) it need not
be.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data import Batch
from .likelihoods import Likelihood
from .priors import Prior
from .quadrature import Expectation
from .variational import Factors, kl, marginals

__all__ = ["Parameters", "Rules", "elbo", "expected_log_likelihood", "parameter_functions"]


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


def expected_log_likelihood(
    likelihoods: Sequence[Likelihood],
    f: Sequence[tuple[Float[Array, "n J"], Float[Array, "n J J"]]],
    batch: Batch,
    rules: Rules,
    key: Array | None = None,
) -> Float[Array, ""]:
    """Σ_d Σ_n E[log p(y_dn | f_d)], given the mean and covariance of f_d at each observation."""
    total = jnp.zeros(())
    for likelihood, (mean, cov), seen in zip(likelihoods, f, batch.outputs, strict=True):
        if not rules.joint:
            cov = cov * jnp.eye(cov.shape[-1], dtype=cov.dtype)
        expectation = jax.vmap(
            lambda y, m, C, of=likelihood: of.expectation(y, m, C, rules.expectation, key)
        )(seen.y, mean, cov)
        total += seen.scale * jnp.sum(jnp.where(seen.seen, expectation, 0.0))
    return total


def at_observations(
    parameters: Parameters,
    mean: Float[Array, "N R"],
    variance: Float[Array, "N R"],
    batch: Batch,
) -> list[tuple[Float[Array, "n J"], Float[Array, "n J J"]]]:
    """q(f_d) at every observation of every output, from the latents' marginals at the rows."""
    W, b = parameters.prior.W, parameters.prior.b
    both = jnp.concatenate([mean, variance], axis=1)
    return [
        parameter_functions(W[d], b[d], *jnp.split(both[seen.row], 2, axis=1))
        for d, seen in zip(parameters.slices, batch.outputs, strict=True)
    ]


def elbo(
    parameters: Parameters,
    q: Factors,
    batch: Batch,
    jitter: float | Array,
    rules: Rules,
    key: Array | None = None,
) -> Float[Array, ""]:
    """The bound L; on a mini-batch, an unbiased estimate of it."""
    mean, variance = marginals(parameters.prior.project(batch.X, jitter), q)
    f = at_observations(parameters, mean, variance, batch)
    return expected_log_likelihood(parameters.likelihoods, f, batch, rules, key) - kl(q)
