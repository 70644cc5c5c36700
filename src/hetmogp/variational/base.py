"""A family of approximate posteriors q(u), seen from outside.

u_q^i(Z_q) = L_q v_q^i, and q is a distribution of the whitened inducing variables v of all copies
of all latents. The bound asks it for the latents at some rows and for its divergence from the
prior. Fitting asks it for the member that a Gaussian site at every row makes (full batches), or for
a natural-gradient step (mini-batches). Draws of functions begin with draws of v.
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
        linear: its linear term, for `metric` in the place of the precision.
        metric: what sets the pace of the means; it leaves their fixed point alone.
        precision: what gives the covariances.
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
        """The prior itself, for copies of latents with so many inducing inputs each."""

    @classmethod
    @abstractmethod
    def from_sites(cls, projection: Projection, sites: LatentSites) -> Self:
        """The best member where each row has a Gaussian site instead of a likelihood."""

    def promise(self, projection: Projection, change: LatentSites) -> Float[Array, ""]:
        """About what the bound gains where the sites change so; infinite where that is not known.

        Args:
            projection: of the rows.
            change: of the sites; its linear term is for latents as they differ from their means.
        """
        return jnp.full((), jnp.inf)

    @staticmethod
    @abstractmethod
    def metric(precision: Float[Array, "n J J"]) -> Float[Array, "n J J"]:
        """What the means are solved with, from the precisions of sites on f."""

    @abstractmethod
    def latents(self, view: Matrices | Projection) -> Latents:
        """q(u) at the rows that the kernels' matrices, or a projection, are about."""

    @abstractmethod
    def joint(
        self, projection: Projection, prior: Float[Array, "R N N"]
    ) -> Float[Array, "N R N R"]:
        """The covariance of the latents over N rows, of which `prior` is the prior's."""

    @abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q(v) ‖ N(0, I))."""

    @abstractmethod
    def draws(self, key: Array, n: int) -> Float[Array, "n K"]:
        """n draws of v."""

    @staticmethod
    @abstractmethod
    def apart(v: Float[Array, "n K"], widths: tuple[int, ...]) -> Float[Array, "n R M"]:
        """Draws of v by copies of latents, with zeros where a copy has fewer than M."""

    def ready(
        self, inducing: Float[Array, "Q M M"], ranks: tuple[int, ...]
    ) -> "Family | eqx.Module":
        """What answers `latents` faster once all that does not depend on the rows is done."""
        return self
