"""What JAX keeps to itself and this package needs: the one place to look at when JAX changes."""

from typing import Any

from jax._src import api, distributed, xla_bridge
from jax._src.clusters import ClusterEnv
from jax._src.xla_bridge import backends_are_initialized

__all__ = ["backends_are_initialized", "clean_up", "group", "held", "in_cluster"]

# What JAX does at the end of a process: it waits for the others of a group.
clean_up = api.clean_up


def group() -> Any:
    """What JAX holds of the group: this process's number, and its client of process 0."""
    return distributed.global_state


def held() -> list[Any]:
    """All that waits for other processes when it is destroyed."""
    state = distributed.global_state
    backends = xla_bridge._backends.values()
    return [state.client, state.service, state.preemption_sync_manager, *backends]


def in_cluster(
    address: str | None,
    processes: int | None,
    process: int | None,
    method: str | None,
    patience: int,
) -> tuple[str | None, int | None, int | None]:
    """What SLURM, Kubernetes or mpirun know of a group, where it was not given."""
    return ClusterEnv.auto_detect_unset_distributed_params(
        address, processes, process, [], method, patience
    )[:3]
