"""Several processes that fit one model together, on JAX's own distributed runtime.

Every process runs the same program. `initialize` forms a group of them; from then on `fit` spreads
the rows over all devices of all processes. XLA's collectives sum the numbers of a step. The rest of
this file is about the other messages between processes.
"""

import atexit
import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from . import addresses, jax_private, messages

__all__ = ["GroupError", "count", "index", "initialize"]

HEARTBEAT = 30  # seconds without a heartbeat after which a process counts as dead
LATER = 3600  # seconds added to JAX's own timeouts, so that ours apply first
PARTING = 3  # seconds that a process waits for the others at its end after a failure
FRAME = 512  # bytes that one exchange carries; longer messages take a second one
LONGEST = 2**32  # bytes of a message
LOST = re.compile("gloo|nccl|unavailable|connection|socket", re.IGNORECASE)
T = TypeVar("T")

_formed = False
_failed = False
_alone = False


class GroupError(ConnectionError):
    """No group of processes was formed, or one process of a group failed."""


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
    """Form a group of the processes of a job; call it once in each, before anything else.

    No arguments are needed under SLURM, in an indexed Kubernetes job (with `jax[k8s]`) or under
    `mpirun` (with mpi4py). Elsewhere, give the arguments or set the environment variables
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.

    Process 0 listens only on the coordinator's address, unless `coordinator_bind_address` or
    JAX_COORDINATOR_BIND_ADDRESS names another. Anyone who can reach the address can join, so use
    only networks that you trust.

    If a process dies, the others end after the heartbeat timeout. Start the job again with
    `fit(..., checkpoint=..., resume=True)` to resume it.

    Args:
        coordinator_address: host and port of process 0, as "10.0.0.1:12345".
        num_processes: the number of processes.
        process_id: the number of this process, from 0.
        cluster_detection_method: how to detect these three, if there are several ways.
        heartbeat_timeout_seconds: seconds without a heartbeat after which a process counts as
            dead.
        initialization_timeout: seconds to wait for the other processes.
        **options: other arguments of `jax.distributed.initialize`.

    Raises:
        GroupError: if no group was formed.
    """
    global _formed
    if jax.distributed.is_initialized():
        raise GroupError("initialize was already called in this process; call it only once")
    _leave_when_failed()
    place: addresses.Place | None = None
    listening = options.pop("coordinator_bind_address", None)
    trouble: list[Exception] = []

    def connect() -> None:
        nonlocal place, listening
        try:
            place = addresses.place(
                *(coordinator_address, num_processes, process_id),
                *(cluster_detection_method, initialization_timeout),
            )
            if place.process == 0:
                listening = (
                    listening or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or place.address
                )
                addresses.refuse_taken(listening, initialization_timeout / 2)
            jax.distributed.initialize(
                place.address,
                place.processes,
                place.process,
                cluster_detection_method=place.method,
                coordinator_bind_address=listening,
                heartbeat_timeout_seconds=heartbeat_timeout_seconds,
                initialization_timeout=initialization_timeout + LATER,
                # One process may have more to do at the end; the heartbeat shows that it is alive.
                **{"shutdown_timeout_seconds": LATER, **options},
            )
        except Exception as error:
            trouble.append(error)

    # In a thread, because after a timeout JAX ends the process without a Python exception.
    waiting = threading.Thread(target=connect, daemon=True)
    waiting.start()
    waiting.join(initialization_timeout)
    if waiting.is_alive():
        give_up()
        others = "the others" if place is None else f"all {place.processes} processes"
        here = "" if listening is None else f"; this process listens on {listening}"
        raise GroupError(
            f"no group of processes was formed: waited {initialization_timeout} s for {others}; "
            "check that all were started with the same address of process 0, and that they can "
            f"reach its port{here}"
        )
    if trouble or place is None:
        give_up()
        raise GroupError(f"no group of processes was formed: {trouble[0]}") from trouble[0]
    try:
        came = jax.process_count()
    except RuntimeError as error:  # from gloo, if this machine cannot resolve its own name
        give_up()
        raise GroupError(f"no group of processes was formed: {error}") from error
    _formed = True
    if came != place.processes:
        raise GroupError(f"expected a group of {place.processes} processes, but {came} joined")


# -- leaving a group -------------------------------------------------------------------------------


@cache
def _leave_when_failed() -> None:
    """Install, once, a hook: after an error of its own a process does not wait for the others."""
    show = sys.excepthook

    def show_and_give_up(*error: Any) -> None:
        show(*error)
        give_up()

    sys.excepthook = show_and_give_up


def give_up() -> None:
    """Make sure that this process, when it ends, does not wait for the others.

    By default JAX waits for them, and they may be waiting for this process.
    """
    global _failed
    if not _failed:
        _failed = True
        atexit.unregister(jax_private.clean_up)
        atexit.register(_part)


def _part() -> None:
    """Leave a group in which something failed.

    If all processes end within seconds, they leave as usual. Otherwise the operating system cleans
    up JAX's resources, because an orderly shutdown would wait for the missing processes.
    """
    if jax_private.group().client is None or (_formed and _all_come()):
        jax_private.clean_up()
    else:  # keep a reference for ever: the destructor would wait
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(jax_private.held()))


def _all_come() -> bool:
    """Whether all processes reach their end within seconds."""
    group = jax_private.group()
    # Process 0 ends last: when it is gone, JAX ends the others at once.
    patience = PARTING if group.process_id else 2 * PARTING
    try:
        group.client.wait_at_barrier("hetmogp: the end", int(1000 * patience))
    except Exception:  # a process did not reach its end, or cannot be reached
        return False
    return True


# -- talking in a group ----------------------------------------------------------------------------


def count() -> int:
    """The number of processes."""
    return 1 if _alone else jax.process_count()


def index() -> int:
    """The number of this process."""
    return 0 if _alone else jax.process_index()


def devices() -> list[jax.Device]:
    """The devices of all processes, process by process."""
    return jax.local_devices()[:1] if _alone else jax.devices()


@contextmanager
def alone() -> Iterator[None]:
    """Work on one device of this process, without the other processes."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def gathered(value: T) -> list[T]:
    """Send a value to all processes; return the values of all, in the order of the processes.

    Args:
        value: plain data, as `messages.packed` takes it.
    """
    if count() == 1:
        return [value]
    message = messages.packed(value)
    frames = _exchanged(len(message).to_bytes(8, "little") + message[: FRAME - 8], FRAME)
    sizes = [int.from_bytes(frame[:8], "little") for frame in frames]
    longest = max(sizes)
    if longest > LONGEST:
        raise GroupError(f"a message of {longest:,} bytes is longer than {LONGEST:,}")
    if longest <= FRAME - 8:
        said = [frame[8:] for frame in frames]
    else:
        said = _exchanged(message, 2 ** (longest - 1).bit_length())  # few sizes: each is compiled
    return [_understood(k, text[:n]) for k, (text, n) in enumerate(zip(said, sizes, strict=True))]


def _understood(process: int, message: bytes) -> Any:
    try:
        return messages.unpacked(message)
    except messages.MessageError as error:
        give_up()
        raise GroupError(
            f"the message of process {process} cannot be read ({error}); check that all processes "
            "have the same version of hetmogp"
        ) from None


def _exchanged(message: bytes, room: int) -> list[bytes]:
    """Exchange messages of one size by a collective."""
    padded = np.zeros(room, np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    with in_touch():
        return [row.tobytes() for row in np.asarray(multihost_utils.process_allgather(padded))]


@contextmanager
def in_touch() -> Iterator[None]:
    """Context for a collective, whose most likely error is that another process has ended."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if count() == 1 or not LOST.search(str(error)):
            raise
        give_up()
        raise GroupError(
            f"another process of the group has ended or cannot be reached ({error}); start all "
            "processes again; with checkpoint= and resume=True a fit continues where it was"
        ) from error


def together(make: Callable[[], T]) -> T:
    """Call a function that may fail in one process only; if it does, all processes raise.

    An error that would occur again, such as a bad value, is a ValueError in all of them.
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
    troubles = [(k, *trouble) for k, trouble in enumerate(said) if trouble is not None]
    if not all(again for _, _, again in troubles):
        give_up()  # a program may catch the original error or this one, but not both
    if error is not None:
        raise error
    for k, text, again in troubles:
        raise (ValueError if again else GroupError)(f"process {k} failed: {text}")
    return value  # type: ignore[return-value]


def from_first(make: Callable[[], T]) -> T:
    """Call a function in process 0 only, and return or raise its result in every process."""
    if count() == 1:
        return make()
    value: Any = None
    error: BaseException | None = None
    if index() == 0:
        try:
            with alone():
                value = make()
            messages.packed(value)
        except (Exception, KeyboardInterrupt) as caught:
            value, error = None, caught
    value, trouble = gathered((value, None if error is None else messages.of_error(error)))[0]
    if error is not None:
        raise error
    if trouble is not None:
        raise messages.error_from(*trouble)
    return value


def numbers_of_first(tree: T) -> T:
    """Replace a tree of numbers by that of process 0, since processes may differ in rounding."""
    if count() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, from_first(lambda: list(map(np.asarray, leaves))))


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C was pressed, so that a group can stop together.

    A single process is interrupted as usual. A second Ctrl-C interrupts at once.
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
    except ValueError:  # not the main thread, so no signals arrive
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
