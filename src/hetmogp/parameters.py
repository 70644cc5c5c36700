"""The learned numbers of a model: its prior and its likelihoods, constrained and unconstrained."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .likelihoods import Likelihood
from .priors import Prior

__all__ = ["Anchor", "Parameters"]


class Anchor(eqx.Module):
    """A normal prior of the learned constants of a likelihood, around their initial values.

    Attributes:
        start: the initial values, by name.
        precision: the precision of the prior.
    """

    start: dict[str, Any]
    precision: Float[Array, ""]

    def log_density(self, free: dict[str, Any]) -> Float[Array, ""]:
        """The log density of the constants, up to an additive constant."""
        moves = [free[name] - self.start[name] for name in self.start]
        return -0.5 * self.precision * sum((move**2 for move in moves), jnp.zeros(()))


class Parameters(eqx.Module):
    """The model: everything that the bound depends on except q(u) and the data.

    Attributes:
        prior: the prior of the parameter functions.
        likelihoods: one per output.
        anchors: a prior of each likelihood's constants while learning, or None.
    """

    prior: Prior
    likelihoods: tuple[Likelihood, ...]
    anchors: tuple[Anchor | None, ...] = ()

    @property
    def slices(self) -> list[slice]:
        """The positions of each output's parameter functions among all J."""
        ends = np.cumsum([len(likelihood.latent) for likelihood in self.likelihoods])
        return [
            slice(int(end) - len(likelihood.latent), int(end))
            for end, likelihood in zip(ends, self.likelihoods, strict=True)
        ]

    def log_density(self) -> Float[Array, ""]:
        """The log density of all point estimates, up to a constant."""
        total = self.prior.log_density()
        for likelihood, anchor in zip(self.likelihoods, self.anchors, strict=False):
            if anchor is not None:
                total += anchor.log_density(likelihood.free)
        return total

    def free(self, learn_inducing: bool = True) -> PyTree:
        """Everything that is learned besides q(u): logarithms of kernels' numbers, and the rest.

        Fixed numbers of kernels are not part of it.
        """
        prior = self.prior
        return {
            **{name: getattr(prior, name) for name in prior.learned},
            "kernels": jax.tree.map(jnp.log, tuple(k.learned() for k in prior.kernels)),
            "inducing_inputs": prior.inducing_inputs if learn_inducing else None,
            "likelihoods": tuple(likelihood.free for likelihood in self.likelihoods),
        }

    def with_free(self, values: PyTree) -> "Parameters":
        """The model with its learned numbers replaced."""
        names = list(self.prior.learned)
        if values["inducing_inputs"] is not None:
            names.append("inducing_inputs")
        kernels = eqx.combine(jax.tree.map(jnp.exp, values["kernels"]), self.prior.kernels)
        new = [kernels, *(values[name] for name in names)]
        return eqx.tree_at(
            lambda p: [
                *(p.prior.kernels, *(getattr(p.prior, name) for name in names)),
                *(likelihood.free for likelihood in p.likelihoods),
            ],
            self,
            [*new, *values["likelihoods"]],
        )
