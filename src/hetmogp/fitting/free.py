"""The learned numbers of a model, unconstrained, and the way back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..bound import Parameters

__all__ = ["free", "with_free"]


def free(parameters: Parameters, learn_inducing: bool = True) -> PyTree:
    """Everything that is learned besides q(u): kernels by their logarithms, the rest as it is."""
    prior = parameters.prior
    return {
        "kernels": jax.tree.map(jnp.log, prior.kernels),
        "inducing_inputs": prior.inducing_inputs if learn_inducing else None,
        "weights": prior.weights,
        "constants": prior.constants,
        "likelihoods": tuple(likelihood.free for likelihood in parameters.likelihoods),
    }


def with_free(parameters: Parameters, values: PyTree) -> Parameters:
    """The model with its learned numbers replaced."""

    def where(p: Parameters) -> list[Any]:
        return [
            p.prior.kernels,
            p.prior.weights,
            p.prior.constants,
            *(likelihood.free for likelihood in p.likelihoods),
            *([p.prior.inducing_inputs] if values["inducing_inputs"] is not None else []),
        ]

    new = [
        jax.tree.map(jnp.exp, values["kernels"]),
        values["weights"],
        values["constants"],
        *values["likelihoods"],
        *([values["inducing_inputs"]] if values["inducing_inputs"] is not None else []),
    ]
    return eqx.tree_at(where, parameters, new)
