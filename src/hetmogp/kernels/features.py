"""Features of kernels: φ(x)ᵀφ(z) ≈ k(x, z), so that φ(x)ᵀw with normal w is a draw of a function.

A kernel is written as a sum of products of leaves (`Kernel.terms`), and each product has features
of its own. A single leaf may have a *basis*: finitely many features that represent it exactly, such
as straight lines (Linear), one per level (Category) or the waves of a Fourier series (Periodic).
Otherwise a stationary leaf has *frequencies*, drawn from its spectral density, and

    φ_h(x) = (cos ω_hᵀx, sin ω_hᵀx) √(v_h/Σv),

with v the weights of the frequencies. The frequencies of a product are sums of those of its leaves.
A leaf without frequencies multiplies each wave by a random combination of its basis, ψ(x)ᵀs with
random signs s, whose second moments are those of the leaf.

With H independent frequencies the error of k falls as 1/√H. They come from a scrambled Sobol
sequence instead, which is also unbiased and whose error, for few inputs, falls nearly as 1/H.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import qmc

from .base import Domain, Kernel

__all__ = ["Features", "FeaturesMissingError", "Level", "features"]

LEAST = 32  # the fewest frequencies of a term, however small its weight
SMALLEST = 2.0**-33  # half the distance between two numbers of a Sobol sequence


class FeaturesMissingError(ValueError):
    """A kernel with neither a basis nor frequencies."""


class Level(eqx.Module):
    """Random signs, one for each of H features at each level of some inputs.

    The signs of a level follow from its value, so the levels need not be known beforehand.

    Attributes:
        key: the random key of the signs.
        seen: which inputs each feature depends on, (H, d).
        dims: the inputs.
    """

    key: Array
    seen: Float[Array, "H d"]
    dims: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N H"]:
        """The product of the signs of the levels that a feature depends on."""
        grain = 1e4 * jnp.finfo(X.dtype).eps  # equal up to rounding, as in `Category`
        result = jnp.ones((len(X), len(self.seen)), X.dtype)
        for d, dim in enumerate(self.dims):
            whole = jnp.round(X[:, dim] / grain)
            low, high = jnp.mod(whole, 2.0**31), jnp.mod(jnp.floor(whole / 2.0**31), 2.0**31)
            key = jax.random.fold_in(self.key, d)

            def signs(a: Array, b: Array, key: Array = key) -> Array:
                own = jax.random.fold_in(jax.random.fold_in(key, a), b)
                return jax.random.rademacher(own, (len(self.seen),), X.dtype)

            here = jax.vmap(signs)(low.astype(jnp.uint32), high.astype(jnp.uint32))
            result *= jnp.where(self.seen[:, d] > 0, here, 1.0)
        return result


class _Mixed(eqx.Module):
    """ψ(x)ᵀs: a basis with random signs, for each of H features."""

    basis: Any
    signs: Float[Array, "G H"]

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N H"]:
        return self.basis(X) @ self.signs


class _Waves(eqx.Module):
    """(cos ωᵀx, sin ωᵀx) times an amplitude, each pair multiplied by the same factors."""

    frequencies: Float[Array, "H p"]
    amplitudes: Float[Array, " H"]
    factors: tuple[Any, ...]

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N F"]:
        phase = X @ self.frequencies.T
        scale = self.amplitudes
        for factor in self.factors:
            scale = scale * factor(X)
        return jnp.concatenate([jnp.cos(phase) * scale, jnp.sin(phase) * scale], axis=1)


class _Products(eqx.Module):
    """Every product of a feature of each basis."""

    bases: tuple[Any, ...]

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N F"]:
        result = jnp.ones((len(X), 1), X.dtype)
        for basis in self.bases:
            result = (result[:, :, None] * basis(X)[:, None, :]).reshape(len(X), -1)
        return result


class Features(eqx.Module):
    """φ: the features of all terms of a kernel, one term after another."""

    weights: Float[Array, " T"]
    terms: tuple[Any, ...]

    def __call__(self, X: Float[Array, "N p"]) -> Float[Array, "N F"]:
        """φ(x) of each row."""
        pairs = zip(self.weights, self.terms, strict=True)
        return jnp.concatenate([jnp.sqrt(w) * term(X) for w, term in pairs], axis=1)


def features(
    kernel: Kernel,
    n: int,
    p: int,
    levels: Mapping[int, np.ndarray],
    generator: np.random.Generator,
) -> Features:
    """Features of a kernel.

    Args:
        kernel: a kernel on standardised inputs.
        n: the approximate number of frequencies; a power of two.
        p: the number of inputs.
        levels: the values of inputs that are labels, by their positions.
        generator: the source of random numbers.
    """
    domain = Domain(p, levels, 2 * n)
    weights, terms = [], []
    for weight, leaves in kernel.terms():
        H = int(np.clip(2 ** round(np.log2(max(n * weight, 1.0))), min(LEAST, n), n))
        weights.append(weight)
        terms.append(_term(leaves, H, domain, generator))
    return Features(jnp.asarray(np.asarray(weights, float)), tuple(terms))


def _term(
    leaves: Sequence[Kernel], H: int, domain: Domain, generator: np.random.Generator
) -> eqx.Module:
    """The features of a product of leaves."""
    waves = [leaf for leaf in leaves if leaf.chances(domain.p)]
    if len(leaves) == 1 or not waves:
        bases = [leaf.basis(domain) for leaf in leaves]
        known = tuple(basis for basis in bases if basis is not None)
        if len(known) == len(leaves):
            sizes = [_size(basis, domain.p) for basis in known]
            if np.prod(sizes, dtype=float) <= domain.most:
                return known[0] if len(known) == 1 else _Products(known)
    others = [leaf for leaf in leaves if not leaf.chances(domain.p)]
    factors = tuple(_factor(leaf, H, domain, generator) for leaf in others)
    return _Waves(*_frequencies(waves, H, domain.p, generator), factors)


def _size(basis: Any, p: int) -> int:
    """How many features a basis has."""
    return basis(jnp.zeros((1, p))).shape[1]


def _frequencies(
    leaves: Sequence[Kernel], H: int, p: int, generator: np.random.Generator
) -> tuple[Float[Array, "H p"], Float[Array, " H"]]:
    """The sums of the frequencies of several leaves, zero if none, and the amplitudes."""
    total, weights = np.zeros((H, p)), np.ones(H)
    counts = [leaf.chances(p) for leaf in leaves]
    if counts:
        sequence = qmc.Sobol(sum(counts), scramble=True, rng=generator)
        uniforms = np.clip(sequence.random_base2(H.bit_length() - 1), SMALLEST, 1.0 - SMALLEST)
        parts = np.split(uniforms, np.cumsum(counts)[:-1], axis=1)
        for leaf, own in zip(leaves, parts, strict=True):
            waves, weight = leaf.frequencies(own, p)
            total, weights = total + waves, weights * weight
    return jnp.asarray(total), jnp.asarray(np.sqrt(weights / np.sum(weights)))


def _factor(leaf: Kernel, H: int, domain: Domain, generator: np.random.Generator) -> eqx.Module:
    """The factors by which a leaf without frequencies multiplies H waves."""
    own = leaf.signs(H, domain.p, generator)
    if own is not None:
        return own
    basis = leaf.basis(domain)
    if basis is None:
        raise FeaturesMissingError(
            f"functions cannot be drawn with the kernel {type(leaf).__name__}: it defines neither "
            "frequencies (Kernel.frequencies) nor a basis (Kernel.basis)"
        )
    signs = generator.choice([-1.0, 1.0], (_size(basis, domain.p), H))
    return _Mixed(basis, jnp.asarray(signs))
