"""A family of approximate posteriors q(u), seen from outside.

u_q^i(Z_q) = L_q v_q^i, and q is a distribution of the whitened inducing variables v of all copies
of all latents. The bound asks it for the latents at some rows and for its divergence from the
prior. Fitting asks it for the member that follows from a Gaussian site at every row (full batches),
or for a natural-gradient step (mini-batches). Draws of functions begin with draws of v.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..priors import Latents, Matrices, Projection

__all__ = ["Family", "LatentSites"]


class LatentSites(NamedTuple):
    """A Gaussian site exp(linearᵀu − ½ uᵀ precision u) at each of N rows, for the latents there.

    Attributes:
        linear: its linear term, where `metric` takes the place of the precision.
        metric: the matrix that the means are solved with. It sets how fast they converge, and does
            not change their fixed point.
        precision: the matrix from which the covariances follow.
    """

    linear: Float[Array, "N R"]
    metric: Float[Array, "N R R"]
    precision: Float[Array, "N R R"]


class Family(eqx.Module):
    """A member of a family of q(v).

    Attributes:
        arrays: the arrays of a member by name, with their shapes: R copies of latents, M the most
            inducing inputs of one, K those of all of them together.
        diagonal: whether the latents at a row are independent.
    """

    arrays: ClassVar[Mapping[str, str]] = {}
    diagonal: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def at_prior(cls, widths: Sequence[int]) -> Self:
        """The prior itself; `widths` has the number of inducing inputs of each copy."""

    @classmethod
    @abstractmethod
    def from_sites(cls, projection: Projection, sites: LatentSites) -> Self:
        """The best member if each row has a Gaussian site instead of a likelihood."""

    def promise(self, projection: Projection, change: LatentSites) -> Float[Array, ""]:
        """Roughly what the bound gains if the sites change by this; infinite if it is not known.

        Args:
            projection: that of the rows.
            change: the change of the sites, with the linear term for latents minus their means.
        """
        return jnp.full((), jnp.inf)

    @staticmethod
    @abstractmethod
    def metric(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
        """The matrix that the means are solved with, from the precisions of sites on f."""

    @abstractmethod
    def latents(self, view: Matrices | Projection) -> Latents:
        """q(u) at the rows of the kernels' matrices or of a projection."""

    @abstractmethod
    def joint(
        self, projection: Projection, prior: Float[Array, "R N N"]
    ) -> Float[Array, "N R N R"]:
        """The covariance of the latents over N rows; `prior` is their covariance in the prior."""

    @abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q(v) ‖ N(0, I))."""

    @abstractmethod
    def draws(self, key: Array, n: int) -> Float[Array, "n K"]:
        """n draws of v."""

    @staticmethod
    @abstractmethod
    def apart(v: Float[Array, "n K"], widths: tuple[int, ...]) -> Float[Array, "n R M"]:
        """Draws of v for each copy of a latent, padded with zeros to M numbers."""

    def ready(
        self, inducing: Float[Array, "Q M M"], ranks: tuple[int, ...]
    ) -> "Family | eqx.Module":
        """An object with a faster `latents`: what does not depend on rows is computed once."""
        return self
