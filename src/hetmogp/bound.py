"""The evidence lower bound of the heterogeneous multi-output Gaussian process.

    L = Σ_d Σ_n E_{q(f_d(x_n))}[log p(y_dn | f_d(x_n))] − KL(q(v) ‖ N(0, I))

The prior (`priors`) makes the parameter functions f_d of an output from the latents u. Their q(u)
at the rows follows from q(v), the distribution of the inducing variables (`variational`). Learning
maximises the sum of L and the log density of the hyperparameters. Every method of fitting calls
`evaluate`.

The parameter functions of one output share latents, so at an input they are correlated. With their
joint distribution L is a lower bound on the evidence; with the paper's product over parameter
functions (`joint=False`) it need not be.

If an output has more parameter functions than there are latents (a Categorical with many classes),
its expectation is taken over the latents. The result is the same, and the cost grows linearly with
the number of classes instead of quadratically.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .batch import Batch, Observations
from .likelihoods import Likelihood
from .parameters import Parameters
from .priors import Functions, Latents, Matrices, Projection
from .quadrature import Expectation, expect
from .variational import Family, Moments

__all__ = ["Bound", "Rules", "Wide", "at_observations", "evaluate", "is_wide"]

LARGEST_WIDE = 40_000  # rows times parameter functions at once; each takes some hundreds of points


class Rules(eqx.Module):
    """How the bound is evaluated.

    Attributes:
        joint: whether the parameter functions of one output keep their correlation.
        expectation: closed forms if there are any, or always quadrature, or Monte Carlo.
    """

    joint: bool = eqx.field(static=True, default=True)
    expectation: Expectation = eqx.field(static=True, default="auto")


class Wide(NamedTuple):
    """The latents of one output, and a shift of f_d that is zero: only its gradient is used."""

    shift: Float[Array, "n J"]
    latents: Latents


class Bound(NamedTuple):
    """The terms of the bound.

    Attributes:
        fit: the expected log-likelihood; on a mini-batch, an unbiased estimate of it.
        kl: KL(q(v) ‖ N(0, I)).
        log_density: the log density of the hyperparameters.
    """

    fit: Float[Array, ""]
    kl: Float[Array, ""]
    log_density: Float[Array, ""]

    @property
    def elbo(self) -> Float[Array, ""]:
        """L, the lower bound on the log evidence."""
        return self.fit - self.kl

    @property
    def log_joint(self) -> Float[Array, ""]:
        """The objective of learning: L plus the log density of the hyperparameters."""
        return self.fit - self.kl + self.log_density


def evaluate(
    parameters: Parameters,
    q: Family | Moments,
    view: Matrices | Projection,
    batch: Batch,
    rules: Rules,
    key: Array | None = None,
    at: Sequence[Functions | Wide] | None = None,
) -> Bound:
    """The bound of a model and a q on a batch.

    Args:
        parameters: the model.
        q: the distribution of the inducing variables.
        view: the prior's matrices at the batch's inputs, or their projection.
        batch: the data.
        rules: how to evaluate.
        key: the random key of the quasi-Monte Carlo points of this step.
        at: the distributions over which expectations are taken, if known. The gradients with
            respect to them give the sites of `fitting.sites`.
    """
    if at is None:
        at = at_observations(parameters, q.latents(view), batch, rules)
    fit = jnp.zeros(())
    for members in _alike(parameters, at, batch):
        if isinstance(at[members[0]], Functions):
            likelihoods, here, seen = (
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *(items[d] for d in members))
                for items in (parameters.likelihoods, at, batch.outputs)
            )
            expectation = jax.vmap(partial(_over_functions, rules=rules, key=key))(
                likelihoods, here, seen
            )
            each = jnp.where(seen.seen, seen.weight * expectation, 0.0)
            fit += jnp.sum(seen.scale * jnp.sum(each, axis=1))
        else:
            (d,) = members
            wide, seen = at[d], batch.outputs[d]
            assert isinstance(wide, Wide)
            expectation = _over_latents(parameters, d, wide, seen.y, rules, key)
            fit += seen.scale * jnp.sum(jnp.where(seen.seen, seen.weight * expectation, 0.0))
    return Bound(fit, q.kl(), parameters.log_density())


def _alike(parameters: Parameters, at: Sequence[Functions | Wide], batch: Batch) -> list[list[int]]:
    """Outputs whose expectations are the same program, so that it is compiled only once."""
    members: dict[Any, list[int]] = {}
    for d, (likelihood, here, seen) in enumerate(
        zip(parameters.likelihoods, at, batch.outputs, strict=True)
    ):
        trees = (likelihood, here, seen)
        shapes = tuple(
            (leaf.shape, leaf.dtype) for leaf in map(jnp.asarray, jax.tree.leaves(trees))
        )
        key = (jax.tree.structure(trees), shapes) if isinstance(here, Functions) else d
        members.setdefault(key, []).append(d)
    return list(members.values())


def _over_functions(
    likelihood: Likelihood, at: Functions, seen: Observations, rules: Rules, key: Array | None
) -> Float[Array, " n"]:
    """E[log p(y | f)] of each value of an output."""

    def one(y: Array, mean: Array, cov: Array, given: dict[str, Array]) -> Array:
        cov = cov if rules.joint else cov * jnp.eye(len(mean), dtype=cov.dtype)
        return likelihood.at(given).expectation(y, mean, cov, rules.expectation, key)

    return jax.vmap(one)(seen.y, *at, seen.given)


def _over_latents(
    parameters: Parameters, d: int, at: Wide, y: Array, rules: Rules, key: Array | None
) -> Float[Array, " n"]:
    """E[log p(y | f(u))] of output d, taken over its latents."""
    prior, part = parameters.prior, parameters.slices[d]
    likelihood = parameters.likelihoods[d]

    def one(row: tuple[Array, Array, Array, Array]) -> Array:
        y, shift, mean, cov = row
        return expect(
            lambda u: likelihood.log_prob(y, shift + prior.values(part, u)),
            *(mean, cov, rules.expectation, key),
        )

    values = (y, at.shift, at.latents.mean, at.latents.square())
    rows = max(1, LARGEST_WIDE // len(likelihood.latent))
    if len(y) <= rows:
        return jax.vmap(one)(values)
    return jax.lax.map(jax.checkpoint(one), values, batch_size=rows)  # recomputed for gradients


def at_observations(
    parameters: Parameters, latents: Latents, batch: Batch, rules: Rules
) -> list[Functions | Wide]:
    """The distribution for each output's expectations, from the latents at the batch's rows."""
    prior, N = parameters.prior, len(latents.mean)
    both = jnp.concatenate([latents.mean, latents.cov.reshape(N, -1)], axis=1)
    R = latents.mean.shape[1]
    result: list[Functions | Wide] = []
    for part, likelihood, seen in zip(
        parameters.slices, parameters.likelihoods, batch.outputs, strict=True
    ):
        mean, cov = jnp.split(both[seen.row], [R], axis=1)
        own = Latents(mean, cov.reshape(-1, *latents.cov.shape[1:]))
        if is_wide(likelihood, R, rules):
            shift = jnp.zeros((len(mean), len(likelihood.latent)), mean.dtype)
            result.append(Wide(shift, own))
        else:
            result.append(prior.functions(part, own))
    return result


def is_wide(likelihood: Likelihood, R: int, rules: Rules) -> bool:
    """Whether an output has more functions than latents, so that expectations are over latents."""
    return likelihood.softmax and len(likelihood.latent) > max(R, 2) and rules.joint
