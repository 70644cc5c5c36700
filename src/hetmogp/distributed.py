"""Several processes that fit one model together, on JAX's own distributed runtime.

Every process runs the same program. `initialize` makes them a group; from then on `fit` spreads the
rows over all devices of all processes. The rest of this file is what processes say to each other
beside the numbers of a step, which XLA's collectives reduce.
"""

import atexit
import os
import pickle
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

__all__ = ["GroupError", "count", "index", "initialize"]

HEARTBEAT = 30  # seconds without a sign of life after which a process counts as dead
LATER = 3600  # seconds by which JAX is more patient than we are, or than it is by itself
MESSAGE = 512  # bytes that one exchange carries; longer messages take a second one
LOST = re.compile("gloo|nccl|unavailable|connection|socket", re.IGNORECASE)
T = TypeVar("T")

_failed = False
_alone = False
_hooks: list[Callable[..., Any]] = []  # what told of errors before


class GroupError(ConnectionError):
    """Processes did not become a group, or one of a group failed."""


# -- forming a group -------------------------------------------------------------------------------


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    cluster_detection_method: str | None = None,
    heartbeat_timeout_seconds: int = HEARTBEAT,
    initialization_timeout: int = 300,
    **options: Any,
) -> None:
    """Make the processes of a job one group; call it once in each, before anything else.

    Under SLURM, in an indexed job of Kubernetes (with `jax[k8s]`) and under `mpirun` (with mpi4py)
    nothing need be said. Elsewhere say it by arguments, or by the variables of the environment
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.

    A process that dies takes the others down after the heartbeat; start the job again with
    `fit(..., checkpoint=..., resume=True)` and it goes on.

    Args:
        coordinator_address: host and port of process 0, as "10.0.0.1:12345".
        num_processes: how many there are.
        process_id: which one this is, from 0.
        cluster_detection_method: how to find these three out, should several ways be possible.
        heartbeat_timeout_seconds: how long a process may be silent.
        initialization_timeout: seconds to wait for the others.
        **options: any other of `jax.distributed.initialize`.

    Raises:
        GroupError: where no group was formed.
    """
    if num_processes is None and "JAX_NUM_PROCESSES" in os.environ:
        num_processes = int(os.environ["JAX_NUM_PROCESSES"])
    if process_id is None and "JAX_PROCESS_ID" in os.environ:
        process_id = int(os.environ["JAX_PROCESS_ID"])
    if cluster_detection_method is None and process_id is None and _under_mpirun():
        if find_spec("mpi4py") is None:
            raise GroupError("this looks like mpirun: install mpi4py, by which processes are found")
        cluster_detection_method = "mpi4py"
    _leave_when_failed()
    trouble: list[Exception] = []

    def connect() -> None:
        try:
            jax.distributed.initialize(
                coordinator_address,
                num_processes,
                process_id,
                cluster_detection_method=cluster_detection_method,
                heartbeat_timeout_seconds=heartbeat_timeout_seconds,
                initialization_timeout=initialization_timeout + LATER,
                # One process may have more to do at the end; whether it lives the heartbeat tells.
                **{"shutdown_timeout_seconds": LATER, **options},
            )
        except Exception as error:
            trouble.append(error)

    # In a thread, because JAX ends a process that has waited too long without a word of Python.
    waiting = threading.Thread(target=connect, daemon=True)
    waiting.start()
    waiting.join(initialization_timeout)
    if waiting.is_alive():
        give_up()
        others = "the others" if num_processes is None else f"all {num_processes} processes"
        raise GroupError(
            f"no group of processes was formed: {others} were waited for during "
            f"{initialization_timeout} s; see that all were started, with the same address of "
            "process 0, and that they can reach its port"
        )
    if trouble:
        hint = (
            " Neither SLURM, Kubernetes nor mpirun was found: pass coordinator_address, "
            "num_processes and process_id, or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and "
            "JAX_PROCESS_ID"
        )
        unknown = isinstance(trouble[0], ValueError) and None in (num_processes, process_id)
        raise GroupError(
            f"no group of processes was formed: {trouble[0]}{hint if unknown else ''}"
        ) from trouble[0]
    came = jax.process_count()
    _leave_when_failed()  # once more: JAX has registered since what it does at the end
    if num_processes is not None and came != num_processes:
        raise GroupError(f"a group of {num_processes} processes was asked for, and {came} came")


def _under_mpirun() -> bool:
    sizes = (os.environ.get(name, "1") for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))
    return any(size not in ("", "1") for size in sizes) and "SLURM_JOB_ID" not in os.environ


def _leave_when_failed() -> None:
    """See to it that a process ends at once on an error.

    JAX would have it wait at its end for the others, which are waiting for it.
    """
    if sys.excepthook is not _told:
        _hooks.append(sys.excepthook)
        sys.excepthook = _told
    atexit.unregister(_leave)
    atexit.register(_leave)  # last, so that it runs before what JAX has registered


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _hooks[-1](kind, error, trace)
    give_up()


def _leave() -> None:
    if _failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def give_up() -> None:
    """Have this process end, when it does, without waiting for the others."""
    global _failed
    _failed = True


# -- talking in a group ----------------------------------------------------------------------------


def count() -> int:
    """How many processes there are."""
    return 1 if _alone else jax.process_count()


def index() -> int:
    """Which one this is."""
    return 0 if _alone else jax.process_index()


def devices() -> list[jax.Device]:
    """Those of all processes, process by process."""
    return jax.local_devices()[:1] if _alone else jax.devices()


@contextmanager
def alone() -> Iterator[None]:
    """Work on one device, without the other processes."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def gathered(value: T) -> list[T]:
    """What each process has to say, in their order, at each of them."""
    if count() == 1:
        return [value]
    message = pickle.dumps(value)
    frames = _exchanged(len(message).to_bytes(8, "little") + message[: MESSAGE - 8], MESSAGE)
    sizes = [int.from_bytes(frame[:8], "little") for frame in frames]
    longest = max(sizes)
    if longest <= MESSAGE - 8:
        return [pickle.loads(f[8 : 8 + n]) for f, n in zip(frames, sizes, strict=True)]
    room = 2 ** (longest - 1).bit_length()  # few sizes: each is compiled
    return [
        pickle.loads(frame[:size])
        for frame, size in zip(_exchanged(message, room), sizes, strict=True)
    ]


def _exchanged(message: bytes, room: int) -> list[bytes]:
    """Messages of one size, by a collective."""
    padded = np.zeros(room, np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    with in_touch():
        return [row.tobytes() for row in np.asarray(multihost_utils.process_allgather(padded))]


@contextmanager
def in_touch() -> Iterator[None]:
    """Around a collective: what goes wrong there is most likely a process that is gone."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if count() == 1 or not LOST.search(str(error)):
            raise
        raise GroupError(
            f"another process of the group has ended or cannot be reached ({error}); start all of "
            "them again, and a fit with a checkpoint and resume=True goes on from there"
        ) from error


def together(make: Callable[[], T]) -> T:
    """Call something that may fail in one process alone: if it does, all of them raise.

    What would fail again (a bad value) is a ValueError everywhere.
    """
    if count() == 1:
        return make()
    value, error = None, None
    try:
        value = make()
    except Exception as caught:
        error = caught
    again = isinstance(error, ValueError | TypeError | ArithmeticError)
    said = gathered(None if error is None else (f"{type(error).__name__}: {error}", again))
    if error is not None:
        raise error
    for k, trouble in enumerate(said):
        if trouble is not None:
            raise (ValueError if trouble[1] else GroupError)(f"process {k} failed: {trouble[0]}")
    return value  # type: ignore[return-value]


def from_first(make: Callable[[], T]) -> T:
    """What process 0 makes by itself, or raises, at every process."""
    if count() == 1:
        return make()
    value: Any = None
    error: BaseException | None = None
    told: BaseException | None = None
    if index() == 0:
        try:
            with alone():
                value = make()
            pickle.dumps(value)
        except (Exception, KeyboardInterrupt) as caught:
            error, told = caught, _sendable(caught)
            value = None
    value, told = gathered((value, told))[0]
    if error is not None:
        raise error
    if told is not None:
        raise told
    return value


def _sendable(error: BaseException) -> BaseException:
    """The error, or one that says as much and can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def numbers_of_first(tree: T) -> T:
    """A tree of numbers with those of process 0, where processes may differ by rounding."""
    if count() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, from_first(lambda: list(map(np.asarray, leaves))))


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, to be asked now and then, so that a group can stop together.

    A process alone is interrupted as ever. The second Ctrl-C is no question any more.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if count() == 1:
        yield lambda: False
        return
    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread, where no signal arrives
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
