"""The paper's way on the full batch: L-BFGS on everything, q(u) included, by plain gradients."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..bound import Parameters, Rules, elbo
from ..data import Batch
from ..linalg import compiled
from ..variational import Factors
from .free import Anchor, free, with_free
from .lbfgs import maximise
from .vem import State

__all__ = ["init", "step"]

ITERATIONS = 50


@compiled
def _objective(
    learned: PyTree,
    anchor: Anchor,
    parameters: Parameters,
    batch: Batch,
    jitter: Array,
    rules: Rules,
) -> tuple[Float[Array, ""], PyTree]:
    def objective(learned: PyTree) -> Array:
        values, q = learned
        q = Factors(q.mean, jnp.tril(q.root))
        bound = elbo(with_free(parameters, values), q, batch, jitter, rules)
        return bound + anchor.log_prior(values, parameters.slices)

    return jax.value_and_grad(objective)(learned)


def init(
    parameters: Parameters,
    anchor: Anchor,
    batch: Batch,
    jitter: float,
    rules: Rules,
    tolerance: float,
) -> State:
    """q(u) at the prior."""
    R, M = sum(parameters.prior.ranks), parameters.prior.inducing_inputs.shape[1]
    q = Factors(jnp.zeros((R, M)), jnp.broadcast_to(jnp.eye(M), (R, M, M)))
    bound = compiled(elbo)(parameters, q, batch, jnp.asarray(jitter), rules)
    return State(parameters, (), q, float(bound), float(bound), anchor)


def step(
    state: State,
    batch: Batch,
    jitter: float,
    rules: Rules,
    tolerance: float,
    learn_inducing: bool,
) -> State:
    """Some iterations of L-BFGS."""
    learned = (free(state.parameters, learn_inducing), state.q)
    (values, q), objective = maximise(
        lambda learned: _objective(
            learned, state.anchor, state.parameters, batch, jnp.asarray(jitter), rules
        ),
        learned,
        ITERATIONS,
    )
    q = Factors(q.mean, jnp.tril(q.root))
    bound = objective - float(state.anchor.log_prior(values, state.parameters.slices))
    return State(with_free(state.parameters, values), (), q, bound, objective, state.anchor)
