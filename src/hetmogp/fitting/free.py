"""The learned numbers of a model, unconstrained, and the way back."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..bound import Parameters

__all__ = ["Anchor", "free", "with_free"]

FEW = 20


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


class Anchor(eqx.Module):
    """The priors of what is learned by a point: of some outputs' constants, and of the weights.

    The likelihood of one value, or of one value repeated, grows without bound as noise vanishes.
    So an output with fewer than `FEW` values has a normal prior of width one, in their own units,
    on its constants, around its marginal fit; one value repeated n times has it n times over, and
    on its mixing weights too, around zero: such values say nothing of how functions vary, and some
    likelihoods (zeros that are sure) would let a weight grow for ever. Other outputs have none.
    Mixing weights else have a normal prior only where the user gave a width.
    """

    values: PyTree
    strength: tuple[float, ...] = eqx.field(static=True)  # one per output
    repeated: tuple[bool, ...] = eqx.field(static=True)  # whether all values are one
    weight_scale: float | None = eqx.field(default=None, static=True)

    @classmethod
    def none(cls, parameters: Parameters) -> "Anchor":
        """No prior at all."""
        D = len(parameters.likelihoods)
        return cls(free(parameters), (0.0,) * D, (False,) * D)

    @classmethod
    def of(
        cls, parameters: Parameters, observed: Sequence[np.ndarray], weight_scale: float | None
    ) -> "Anchor":
        """From the model that learning starts at and each output's observed values."""
        repeated = tuple(bool(np.ptp(y) == 0) for y in observed)
        strength = tuple(
            float(y.size if same else y.size < FEW)
            for y, same in zip(observed, repeated, strict=True)
        )
        return cls(free(parameters), strength, repeated, weight_scale)

    def log_prior(self, values: PyTree, slices: Sequence[slice]) -> Float[Array, ""]:
        """The log density of constants and weights, but for a constant."""
        total = jnp.zeros(())
        if self.weight_scale is not None:
            total -= 0.5 * jnp.sum(values["weights"] ** 2) / self.weight_scale**2
        for strength, repeated, part, now, then in zip(
            *(self.strength, self.repeated, slices),
            *(values["likelihoods"], self.values["likelihoods"]),
            strict=True,
        ):
            if strength:
                move = values["constants"][part] - self.values["constants"][part]
                others = (now[name] - then[name] for name in now)
                total -= 0.5 * strength * (jnp.sum(move**2) + sum(other**2 for other in others))
            if repeated:
                total -= 0.5 * strength * jnp.sum(values["weights"][part] ** 2)
        return total


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
