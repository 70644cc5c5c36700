"""Gaussian sites: each observation's likelihood, approximated by a Gaussian factor on f.

Let r and G be the gradients of an observation's expected log-likelihood with respect to the mean
and the covariance of f. Its site has the precision −2G and the linear term r − 2Gμ. q(u) follows
from the sites in closed form (`Family.from_sites`). Moving the sites by a share ρ towards those of
the new q is a natural-gradient step.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..batch import Batch, Observations
from ..bound import Rules, Wide, at_observations, evaluate, is_wide
from ..linalg import compiled
from ..parameters import Parameters
from ..priors import Functions, Latents, Prior, Projection
from ..variational import Family, LatentSites, dominant

__all__ = [
    "ClassSites",
    "Sites",
    "Slopes",
    "along",
    "bound_and_slopes",
    "cautious",
    "flat_sites",
    "information",
    "promise",
    "q_from_sites",
    "sites_of_slopes",
]


class Sites(eqx.Module):
    """exp(linearᵀf − ½ fᵀ precision f) for every observation of one output.

    `metric` is the matrix that the family of q derives from `precision` to solve for the means.
    """

    linear: Float[Array, "n J"]
    metric: Float[Array, "n J J"]
    precision: Float[Array, "n J J"]

    def pull_back(self, prior: Prior, part: slice, seen: Observations) -> LatentSites:
        """The same sites, for the latents at the observations."""
        b = prior.values(part, jnp.zeros(sum(prior.ranks)))
        return LatentSites(
            prior.pull_back(part, self.linear - self.metric @ b),
            prior.pull_back_curvature(part, self.metric),
            prior.pull_back_curvature(part, self.precision),
        )


class ClassSites(eqx.Module):
    """Sites for outputs with more classes than latents, at a cost linear in the classes.

    With p the expected class probabilities, diag(p) − p pᵀ dominates the precision −2G of f. It
    serves as the metric, also while the mixing weights change. The precision of the latents differs
    from that metric. The difference is stored as a ratio for each latent if the latents are
    independent under q (`ratio`), and as a matrix otherwise (`rest`).
    """

    linear: Float[Array, "n J"]
    share: Float[Array, "n J"]  # p, times the weight of the observation
    ratio: Float[Array, "n R"] | None = None
    rest: Float[Array, "n R R"] | None = None
    pull: Float[Array, "n R"] | None = None  # the linear term that belongs to `rest`

    @classmethod
    def of_slopes(
        cls, prior: Prior, part: slice, here: Wide, slope: Wide, seen: Observations
    ) -> "ClassSites":
        """From the gradients: weight · (1[class] − p) for f, half the curvature for the latents."""
        weight = _weights(seen)[:, None]
        mean, r = here.latents.mean, slope.shift
        codes = jnp.arange(1, r.shape[1] + 1)
        share = jnp.maximum(weight * (seen.y[:, None] == codes) - r, 0.0)
        f = prior.values(part, mean)
        flat = cls(r + _class_metric_times(share, weight, f), share)
        metric = flat._metric(prior, part, weight)
        if slope.latents.cov.ndim == 2:
            along = jnp.diagonal(metric, axis1=1, axis2=2)
            ratio = -2.0 * slope.latents.cov / jnp.maximum(along, 1e-12)
            ratio = jnp.clip(jnp.where(along > 1e-12, ratio, 1.0), 0.0, 10.0)
            return cls(flat.linear, share, ratio=ratio)
        G = slope.latents.cov
        rest = -(G + jnp.swapaxes(G, 1, 2)) - metric
        return cls(flat.linear, share, rest=rest, pull=jnp.einsum("nrs,ns->nr", rest, mean))

    def _metric(self, prior: Prior, part: slice, weight: Float[Array, "n 1"]) -> Array:
        """diag(share) − share shareᵀ/weight, for the latents."""
        mean = prior.pull_back(part, self.share)
        square = mean[:, :, None] * mean[:, None, :] * _inverse(weight)[:, :, None]
        return prior.pull_back_curvature(part, self.share) - square

    def pull_back(self, prior: Prior, part: slice, seen: Observations) -> LatentSites:
        """The same sites, for the latents at the observations."""
        weight = _weights(seen)[:, None]
        b = prior.values(part, jnp.zeros(sum(prior.ranks)))
        linear = prior.pull_back(part, self.linear - _class_metric_times(self.share, weight, b))
        metric = self._metric(prior, part, weight)
        if self.ratio is not None:
            return LatentSites(linear, metric, self.ratio[:, :, None] * metric)
        assert self.rest is not None
        assert self.pull is not None
        return LatentSites(linear + self.pull, metric + self.rest, metric + self.rest)


def _inverse(weight: Array) -> Array:
    return jnp.where(weight > 0, 1.0 / jnp.where(weight > 0, weight, 1.0), 0.0)


def _class_metric_times(share: Array, weight: Float[Array, "n 1"], f: Array) -> Float[Array, "n J"]:
    """(diag(share) − share shareᵀ/weight) f."""
    return share * f - share * jnp.sum(share * f, axis=1, keepdims=True) * _inverse(weight)


def _weights(seen: Observations) -> Float[Array, " n"]:
    return jnp.where(seen.seen, seen.weight, 0.0) * seen.scale


def flat_sites(
    parameters: Parameters, batch: Batch, rules: Rules, family: type[Family]
) -> tuple[Sites | ClassSites, ...]:
    """Sites without information, so that q(u) is the prior."""
    R = sum(parameters.prior.ranks)
    result: list[Sites | ClassSites] = []
    for likelihood, seen in zip(parameters.likelihoods, batch.outputs, strict=True):
        n, J = seen.y.shape[0], len(likelihood.latent)
        nothing = jnp.asarray(np.zeros((n, J)))  # NumPy's zeros need no compilation
        if not is_wide(likelihood, R, rules):
            square = jnp.asarray(np.zeros((n, J, J)))
            result.append(Sites(nothing, square, square))
        elif family.diagonal:
            result.append(ClassSites(nothing, nothing, ratio=jnp.asarray(np.ones((n, R)))))
        else:
            zeros = [jnp.asarray(np.zeros(shape)) for shape in ((n, R, R), (n, R))]
            result.append(ClassSites(nothing, nothing, rest=zeros[0], pull=zeros[1]))
    return tuple(result)


def q_from_sites(
    family: type[Family],
    parameters: Parameters,
    sites: Sequence[Sites | ClassSites],
    projection: Projection,
    batch: Batch,
) -> Family:
    """q(u) given the sites."""
    return family.from_sites(projection, _at_rows(parameters, sites, batch))


def promise(
    parameters: Parameters,
    q: Family,
    sites: Sequence[Sites | ClassSites],
    target: Sequence[Sites | ClassSites],
    latents: Latents,
    projection: Projection,
    batch: Batch,
) -> Float[Array, ""]:
    """The approximate gain of the bound if the sites of q are replaced by the target."""
    now, then = (_at_rows(parameters, some, batch) for some in (sites, target))
    change = jax.tree.map(jnp.subtract, then, now)
    pull = change.linear - jnp.einsum("nrs,ns->nr", change.metric, latents.mean)
    return q.promise(projection, change._replace(linear=pull))


def _at_rows(
    parameters: Parameters, sites: Sequence[Sites | ClassSites], batch: Batch
) -> LatentSites:
    """The sum of the sites at each input row, in terms of the latents."""
    prior, N, R = parameters.prior, batch.X.shape[0], sum(parameters.prior.ranks)
    total = jnp.zeros((N, R + 2 * R * R))
    for part, site, seen in zip(parameters.slices, sites, batch.outputs, strict=True):
        flat = [a.reshape(len(a), -1) for a in site.pull_back(prior, part, seen)]
        total = total.at[seen.row].add(jnp.concatenate(flat, axis=1))
    linear, metric, precision = jnp.split(total, [R, R + R * R], axis=1)
    return LatentSites(linear, metric.reshape(N, R, R), precision.reshape(N, R, R))


@compiled
def information(
    parameters: Parameters, sites: Sequence[Sites | ClassSites], batch: Batch
) -> Float[Array, "N R"]:
    """The precision with which the data determine each latent at each row."""
    precision = _at_rows(parameters, sites, batch).precision
    return jnp.maximum(jnp.diagonal(precision, axis1=1, axis2=2), 0.0)


class Slopes(NamedTuple):
    """The part of the gradient of the bound at q(u) that comes from the likelihoods.

    Attributes:
        at: with respect to the marginals over which each output's expectations are taken.
        free: with respect to the learned constants of each likelihood.
    """

    at: tuple[Functions | Wide, ...]
    free: tuple[dict[str, Any], ...]


def bound_and_slopes(
    parameters: Parameters,
    q: Family,
    projection: Projection,
    batch: Batch,
    rules: Rules,
    latents: Latents | None = None,
) -> tuple[Float[Array, ""], tuple[Functions | Wide, ...], Slopes]:
    """The bound at q, the marginals over which expectations are taken, and its gradient.

    `latents` may supply the marginals of q at the rows.
    """
    latents = q.latents(projection) if latents is None else latents
    at = tuple(at_observations(parameters, latents, batch, rules))

    def bound(at, free):
        learned = eqx.tree_at(lambda p: [one.free for one in p.likelihoods], parameters, free)
        return evaluate(learned, q, projection, batch, rules, at=at).elbo

    free = [one.free for one in parameters.likelihoods]
    value, (slopes, constants) = jax.value_and_grad(bound, argnums=(0, 1))(at, free)
    return value, at, Slopes(slopes, tuple(constants))


def sites_of_slopes(
    parameters: Parameters, q: Family, at: Sequence[Functions | Wide], slopes: Slopes, batch: Batch
) -> tuple[Sites | ClassSites, ...]:
    """The sites after a full natural-gradient step from q."""
    sites: list[Sites | ClassSites] = []
    for part, here, slope, seen in zip(
        parameters.slices, at, slopes.at, batch.outputs, strict=True
    ):
        if isinstance(here, Functions):
            assert isinstance(slope, Functions)
            r, G = slope
            precision = -(G + jnp.swapaxes(G, 1, 2))
            metric = q.metric(precision)
            linear = r + jnp.einsum("njk,nk->nj", metric, here.mean)
            sites.append(Sites(linear, metric, precision))
        else:
            assert isinstance(slope, Wide)
            sites.append(ClassSites.of_slopes(parameters.prior, part, here, slope, seen))
    return tuple(sites)


def cautious(
    sites: Sequence[Sites | ClassSites], q: Family, at: Sequence[Functions | Wide]
) -> tuple[Sites | ClassSites, ...]:
    """The same step with positive semi-definite precisions, so that a q always follows.

    Far from the best q, a likelihood that is not log-concave may have other precisions. Where a
    full step no longer moves the means, this step does not move them either.
    """
    result: list[Sites | ClassSites] = []
    for site, here in zip(sites, at, strict=True):
        if isinstance(site, Sites) and isinstance(here, Functions):
            precision = dominant(site.precision)
            metric = q.metric(precision)
            move = jnp.einsum("njk,nk->nj", metric - site.metric, here.mean)
            site = Sites(site.linear + move, metric, precision)
        result.append(site)
    return tuple(result)


def along(
    slopes: Slopes,
    parameters: Parameters,
    q: Family,
    projection: Projection,
    batch: Batch,
    rules: Rules,
) -> Float[Array, ""]:
    """A function of the model whose gradient is that of the bound with q(u) held fixed.

    The gradients agree where the slopes were computed. The function is linear in the marginals, so
    the expectations need not be computed again.
    """
    at = tuple(at_observations(parameters, q.latents(projection), batch, rules))
    seen = at, tuple(one.free for one in parameters.likelihoods)
    products = jax.tree.map(lambda slope, value: jnp.sum(slope * value), tuple(slopes), seen)
    return sum(jax.tree.leaves(products), jnp.zeros(()))
