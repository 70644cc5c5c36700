"""Fits on a Ray cluster: Ray starts the processes, and starts them again when one dies.

Needs the extra `hetmogp[ray]`.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .distributed import GroupError, count

if TYPE_CHECKING:
    from .disk import Table
    from .model import HetMOGP

__all__ = ["fit"]


def fit(
    model: "HetMOGP",
    table: "Table",
    *,
    num_workers: int,
    checkpoint: str | os.PathLike | None = None,
    every: int | None = None,
    use_gpu: bool = False,
    max_failures: int = 3,
    scaling: Any = None,
    run: Any = None,
) -> "HetMOGP":
    """Fit a model by several processes that Ray starts, one per worker.

    When a worker dies Ray starts all of them again, and they go on from the latest checkpoint.

    Args:
        model: is fitted, and returned.
        table: the data, in files that every worker can read.
        num_workers: how many.
        checkpoint: a folder to keep the fit in on its way, which worker 0 can reach wherever Ray
            places it. What it holds of this fit is gone on from. Without it a fit that lost a
            worker begins anew.
        every: how many steps lie between two checkpoints.
        use_gpu: whether each worker has a GPU.
        max_failures: how many times the workers are started again.
        scaling: a `ray.train.ScalingConfig`, instead of `num_workers` workers of one CPU or GPU.
        run: a `ray.train.RunConfig`, for names, storage and the like; `max_failures` is its own.
    """
    try:
        from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
        from ray.train.v2.jax import JaxConfig, JaxTrainer
    except ImportError as error:
        raise ImportError(f'install "hetmogp[ray]" to fit on a Ray cluster ({error})') from error

    work = {
        "model": model,
        "files": [str(path.resolve()) for path in table.files],
        "inputs": table.inputs,
        "text": table.text,
        "lanes": table._lanes,
        "workers": num_workers,
        "checkpoint": None if checkpoint is None else str(Path(checkpoint).resolve()),
        "every": every,
    }
    with TemporaryDirectory(prefix="hetmogp-ray-") as scratch:
        run = run or RunConfig(
            storage_path=scratch,
            failure_config=FailureConfig(max_failures=max_failures),
            worker_runtime_env={"env_vars": {"JAX_PLATFORMS": "cuda" if use_gpu else "cpu"}},
        )
        trainer = JaxTrainer(
            _work,
            train_loop_config=work,
            jax_config=JaxConfig(use_gpu=True),  # without it no group is formed, on CPUs either
            scaling_config=scaling or ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
            run_config=run,
        )
        result: Any = trainer.fit()
    found = result.return_value
    if isinstance(found, Exception):
        raise found
    given = model.get_params(deep=False)
    model.__dict__.update({k: v for k, v in vars(found).items() if k not in given})
    return model


def _work(work: dict[str, Any]) -> Any:
    """What each worker does; the first one's answer is passed on."""
    if count() != work["workers"]:
        raise GroupError(
            f"Ray started {work['workers']} workers, but JAX knows of {count()} processes: set "
            "JAX_PLATFORMS to cpu or cuda in the workers' environment"
        )
    from .disk import Table

    kept = work["checkpoint"]
    try:
        table = Table(work["files"], inputs=work["inputs"], text=work["text"], lanes=work["lanes"])
        return work["model"].fit(
            table, checkpoint=kept, every=work["every"], resume=kept is not None
        )
    except (ValueError, TypeError, ArithmeticError) as error:
        return error  # it would be the same another time
