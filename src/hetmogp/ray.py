"""Fits on a Ray cluster: Ray starts the processes, and restarts them when one dies.

Needs the extra `hetmogp[ray]`.
"""

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
    num_workers: int | None = None,
    use_gpu: bool = False,
    max_failures: int = 3,
    scaling: Any = None,
    run: Any = None,
    **options: Any,
) -> "HetMOGP":
    """Fit a model with several processes that Ray starts, one per worker.

    When a worker dies, Ray restarts all of them, and they resume from the latest checkpoint.

    Args:
        model: the model to fit; it is also returned.
        table: the data, in files that every worker can read.
        num_workers: the number of workers.
        use_gpu: whether each worker has a GPU.
        max_failures: how many times the workers may be restarted.
        scaling: a `ray.train.ScalingConfig`, instead of `num_workers` workers of one CPU or GPU
            each and `use_gpu`.
        run: a `ray.train.RunConfig`, for names, storage and the like. It replaces `max_failures`.
        **options: `checkpoint` and `every`, as for `HetMOGP.fit`. The checkpoint is a folder that
            worker 0 can reach wherever Ray places it. If it already holds checkpoints of this fit,
            the fit resumes from them. Without it, a fit that lost a worker starts again.
    """
    try:
        from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
        from ray.train.v2.jax import JaxConfig, JaxTrainer
    except ImportError as error:
        raise ImportError(f'install "hetmogp[ray]" to fit on a Ray cluster ({error})') from error

    if (num_workers is None) == (scaling is None):
        raise TypeError("give num_workers or scaling, which has a number of its own, and not both")
    if scaling is None:
        scaling = ScalingConfig(num_workers=num_workers, use_gpu=use_gpu)
    use_gpu = scaling.use_gpu
    if options.get("checkpoint") is not None:
        options |= {"checkpoint": str(Path(options["checkpoint"]).resolve()), "resume": True}
    work = {
        "model": model,
        "source": [str(path.resolve()) for path in table.files],
        "table": {"inputs": table.inputs, "text": table.text, "lanes": table._lanes},
        "workers": scaling.num_workers,
        "options": options,
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
            jax_config=JaxConfig(use_gpu=True),  # without it no group is formed, not even on CPUs
            scaling_config=scaling,
            run_config=run,
        )
        result: Any = trainer.fit()
    answer = result.return_value
    if isinstance(answer, Exception):
        raise answer
    given = model.get_params(deep=False)
    model.__dict__.update({k: v for k, v in vars(answer).items() if k not in given})
    return model


def _work(work: dict[str, Any]) -> Any:
    """The task of each worker; the result of the first is reported."""
    if count() != work["workers"]:
        raise GroupError(
            f"Ray started {work['workers']} workers, but JAX knows of {count()} processes: set "
            "JAX_PLATFORMS to cpu or cuda in the workers' environment"
        )
    from .disk import Table

    try:
        return work["model"].fit(Table(work["source"], **work["table"]), **work["options"])
    except (ValueError, TypeError, ArithmeticError) as error:
        return error  # a restart would fail in the same way
