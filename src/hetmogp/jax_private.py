"""All uses of private parts of JAX: the one place to check when JAX changes."""

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

# JAX's hook at the end of a process, which waits for the others of a group.
clean_up = api.clean_up

# Within `with keep_from(seconds)`, programs that took at least so long to compile are cached.
keep_from = config.persistent_cache_min_compile_time_secs


def has_cache() -> bool:
    """Whether JAX already has a cache that the user has set, or cannot have ours."""
    said = config.compilation_cache_dir.value is not None
    return said or not hasattr(compilation_cache, "_cache") or cache() is not None


def cache() -> Any:
    """The cache of compiled programs that JAX uses now."""
    return compilation_cache._cache


def set_cache(programs: Any) -> None:
    """Make JAX use another cache of compiled programs, or none.

    JAX's settings accept only a folder. It may read files there that are not complete, and limits
    its size only if a further package is installed.
    """
    compilation_cache._cache = programs


def group() -> Any:
    """JAX's state of the group: the number of this process, and its client of process 0."""
    return distributed.global_state


def held() -> list[Any]:
    """All objects whose destructors wait for other processes."""
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
    """The group as SLURM, Kubernetes or mpirun describe it, where it was not given."""
    return ClusterEnv.auto_detect_unset_distributed_params(
        address, processes, process, [], method, patience
    )[:3]
