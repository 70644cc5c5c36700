"""The chosen model, the model that shares nothing, and what each output gains."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..parameters import Parameters
from ..priors import LMC
from ..tables import Dataset
from ..variational import Family
from .alone import Candidates
from .options import Options
from .start import initial_parameters

__all__ = ["Choice", "in_use"]


class Choice(NamedTuple):
    """The result of choosing what outputs share.

    Attributes:
        chosen: the chosen model, perhaps with unused latents.
        q: q(u) of the chosen model.
        alone: the model in which outputs share nothing.
        alone_q: q(u) of that model.
        jitter: added to the diagonals of k(Z, Z) in both models.
        own: the bound of each output fitted alone.
        together: for each output, L(all) − L(all but it) in the joint model.
        joint: the bound of the joint model.
        shared: whether the joint model was chosen.
        rows: the standardised inputs of the rows that were used.
        information: the precision with which the data determine each latent of `chosen` that is in
            use, at each row.
        alone_information: the same for `alone`.
        reach: the inverse curvature of the hyperparameters of `chosen` that are in use, scaled to
            all values; see `lbfgs`.
        alone_reach: the same for `alone`.
        interrupted: whether the user interrupted; then nothing is shared.
        final: whether nothing is left to learn: `chosen` has all rows and inducing inputs.
    """

    chosen: Parameters
    q: Family
    alone: Parameters
    alone_q: Family
    jitter: float
    own: np.ndarray
    together: np.ndarray
    joint: float
    shared: bool
    rows: np.ndarray
    information: np.ndarray
    alone_information: np.ndarray
    reach: np.ndarray | None = None
    alone_reach: np.ndarray | None = None
    interrupted: bool = False
    final: bool = False

    @property
    def parameters(self) -> Parameters:
        """The model that was chosen."""
        return in_use(self.chosen)

    def packed(self, candidates: Candidates) -> tuple[list, list[np.ndarray], dict[str, Any]]:
        """The choice as plain lists and arrays for other processes; kernels as their places."""
        models = [self.chosen, self.alone]
        places = [
            ([candidates.place(k) for k in model.prior.kernels], model.prior.counts)
            for model in models
        ]
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((models, self.q, self.alone_q))]
        trees = ("chosen", "q", "alone", "alone_q")
        rest = {name: value for name, value in self._asdict().items() if name not in trees}
        return places, leaves, rest

    @classmethod
    def unpacked(
        cls,
        packed: tuple[list, list[np.ndarray], dict[str, Any]],
        data: Dataset,
        candidates: Candidates,
        options: Options,
        family: type[Family],
    ) -> "Choice":
        """The choice from the result of `packed`."""
        places, leaves, rest = packed
        models = []
        for kernels, counts in places:
            beginning = candidates.beginning(kernels)
            models.append(
                initial_parameters(
                    *(data, beginning._replace(counts=tuple(counts)), candidates.scaling),
                    prior=options.prior,
                    hyperpriors=options.hyperpriors is not None,
                )
            )
        like = models, family.at_prior([1]), family.at_prior([1])
        arrays = [jnp.asarray(leaf) for leaf in leaves]
        (chosen, alone), q, alone_q = jax.tree.unflatten(jax.tree.structure(like), arrays)
        return cls(chosen, q, alone, alone_q, **rest)


def in_use(parameters: Parameters) -> Parameters:
    """The model without unused latents."""
    if not isinstance(parameters.prior, LMC):
        return parameters
    return replace(parameters, prior=parameters.prior.in_use())
