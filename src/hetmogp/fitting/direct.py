"""The paper's way on the full batch: L-BFGS on everything, q(u) included, by plain gradients."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..batch import Batch
from ..bound import Bound, Rules, evaluate
from ..linalg import compiled
from ..parameters import Parameters
from ..variational import Blocks
from .lbfgs import maximise
from .vem import Problem, State

__all__ = ["init", "step"]

ITERATIONS = 50


def _bound(parameters: Parameters, q: Blocks, batch: Batch, jitter: Array, rules: Rules) -> Bound:
    view = parameters.prior.matrices(batch.X, jitter)
    return evaluate(parameters, q.lower(), view.project(), batch, rules)


@compiled
def _objective(
    learned: PyTree, parameters: Parameters, batch: Batch, jitter: Array, rules: Rules
) -> tuple[Float[Array, ""], PyTree]:
    def objective(learned: PyTree) -> Array:
        values, q = learned
        return _bound(parameters.with_free(values), q, batch, jitter, rules).log_joint

    return jax.value_and_grad(objective)(learned)


def init(parameters: Parameters, problem: Problem, jitter: float) -> State:
    """q(u) at the prior."""
    q = problem.family.at_prior(*parameters.prior.sizes)
    bound = compiled(_bound)(parameters, q, problem.batch, jnp.asarray(jitter), problem.rules)
    return State(parameters, (), q, float(bound.elbo), float(bound.log_joint))


def step(state: State, problem: Problem, jitter: float) -> State:
    """Some iterations of L-BFGS."""
    fixed = (state.parameters, problem.batch, jnp.asarray(jitter), problem.rules)
    (values, q), objective = maximise(
        lambda learned: _objective(learned, *fixed),
        (state.parameters.free(problem.learn_inducing), state.q),
        ITERATIONS,
    )
    moved = state.parameters.with_free(values)
    bound = objective - float(moved.log_density())
    return State(moved, (), q.lower(), bound, objective)
