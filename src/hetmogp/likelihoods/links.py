"""Links: maps from the values of parameter functions to parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

__all__ = ["Link", "exp", "identity", "logistic"]


class Link(NamedTuple):
    """A map from a parameter function's value to the parameter's domain, and back."""

    name: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Any], Any]  # for numbers, in NumPy

    def __call__(self, f: Array) -> Array:
        """The parameter at f."""
        return self.forward(f)


def _same(value: Any) -> Any:
    return value


def _exp(f: Array) -> Array:
    return jnp.exp(f)


def _sigmoid(f: Array) -> Array:
    return jax.nn.sigmoid(f)


def _logit(p: Any) -> Any:
    return np.log(p) - np.log1p(-p)


# Functions of this module, by name, so that likelihoods that hold links can be pickled.
identity = Link("identity", _same, _same)
exp = Link("exp", _exp, np.log)
logistic = Link("logistic", _sigmoid, _logit)
