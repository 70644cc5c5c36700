"""The paper's method on the full batch: L-BFGS with plain gradients, on q(u) as on the rest."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..batch import Batch
from ..bound import Bound, Rules, evaluate
from ..linalg import compiled
from ..parameters import Parameters
from ..variational import Blocks
from .lbfgs import maximise
from .vem import Problem, State, Watch

__all__ = ["init", "step"]

ITERATIONS = 50


def _bound(parameters: Parameters, q: Blocks, batch: Batch, jitter: Array, rules: Rules) -> Bound:
    view = parameters.prior.matrices(batch.X, jitter)
    return evaluate(parameters, q.lower(), view.project(), batch, rules)


def _learned(parameters: Parameters, q: Blocks, learn_inducing: bool) -> tuple[Array, Callable]:
    """The learned numbers as one vector, and the function that restores them."""
    return ravel_pytree((parameters.free(learn_inducing), q))


def _objective(
    z: Float[Array, " n"],
    parameters: Parameters,
    q: Blocks,
    batch: Batch,
    jitter: Array,
    rules: Rules,
    learn_inducing: bool,
) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    unravel = _learned(parameters, q, learn_inducing)[1]

    def objective(z: Array) -> Array:
        values, q = unravel(z)
        return _bound(parameters.with_free(values), q, batch, jitter, rules).log_joint

    return jax.value_and_grad(objective)(z)


_compiled_bound = compiled(_bound)
_compiled_objective = compiled(_objective, static=("learn_inducing",))


def init(parameters: Parameters, problem: Problem, jitter: float) -> State:
    """q(u) at the prior."""
    q = problem.family.at_prior(parameters.prior.widths)
    bound = _compiled_bound(parameters, q, problem.batch, jnp.asarray(jitter), problem.rules)
    return State(parameters, (), q, float(bound.elbo), float(bound.log_joint))


def step(state: State, problem: Problem, jitter: float, watch: Watch | None = None) -> State:
    """Take some iterations of L-BFGS; `watch` is called with the bound at the end."""
    assert isinstance(state.q, Blocks)
    fixed = (state.parameters, state.q, problem.batch, jnp.asarray(jitter), problem.rules)
    learn = problem.learn_inducing
    begin, unravel = _learned(state.parameters, state.q, learn)
    z = maximise(
        lambda z: _compiled_objective(jnp.asarray(z, begin.dtype), *fixed, learn_inducing=learn),
        np.asarray(begin),
        ITERATIONS,
    ).z
    values, q = unravel(jnp.asarray(z, begin.dtype))
    moved = state.parameters.with_free(values)
    bound = _compiled_bound(moved, q, *fixed[2:])
    if watch is not None:
        watch(float(bound.elbo))
    return State(moved, (), q.lower(), float(bound.elbo), float(bound.log_joint))
