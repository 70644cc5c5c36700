"""What JAX keeps to itself and this package needs: the one place to look at when JAX changes."""

from typing import Any

from jax._src import api, compilation_cache, config, distributed, xla_bridge
from jax._src.clusters import ClusterEnv
from jax._src.xla_bridge import backends_are_initialized

__all__ = [
    "backends_are_initialized",
    "cache",
    "clean_up",
    "group",
    "has_cache",
    "held",
    "in_cluster",
    "keep_from",
    "set_cache",
]

# What JAX does at the end of a process: it waits for the others of a group.
clean_up = api.clean_up

# While `with keep_from(seconds)` lasts, programs that took as long to compile are kept.
keep_from = config.persistent_cache_min_compile_time_secs


def has_cache() -> bool:
    """Whether JAX keeps compiled programs already, where the user said, or cannot be told to."""
    said = config.compilation_cache_dir.value is not None
    return said or not hasattr(compilation_cache, "_cache") or cache() is not None


def cache() -> Any:
    """What JAX asks for compiled programs, and gives them to."""
    return compilation_cache._cache


def set_cache(programs: Any) -> None:
    """Have JAX ask something else for compiled programs, or nothing.

    Its settings know folders only, whose files it may read half written, and which it bounds only
    with a package that need not be there.
    """
    compilation_cache._cache = programs


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
