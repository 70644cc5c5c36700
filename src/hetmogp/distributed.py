"""Several processes that fit one model together, on JAX's own distributed runtime.

Every process runs the same program. `initialize` makes them a group; from then on `fit` spreads the
rows over all devices of all processes. The rest of this file is what processes say to each other
beside the numbers of a step, which XLA's collectives reduce.
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

HEARTBEAT = 30  # seconds without a sign of life after which a process counts as dead
LATER = 3600  # seconds by which JAX is more patient than we are, or than it is by itself
PARTING = 3  # seconds that a process waits for the others at its end, once something has failed
FRAME = 512  # bytes that one exchange carries; longer messages take a second one
LONGEST = 2**32  # bytes of a message
LOST = re.compile("gloo|nccl|unavailable|connection|socket", re.IGNORECASE)
T = TypeVar("T")

_formed = False
_failed = False
_alone = False


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

    Process 0 listens on the coordinator's address, and on no other; `coordinator_bind_address` or
    JAX_COORDINATOR_BIND_ADDRESS name another. Anyone who reaches it can join: use it on networks
    that you trust.

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
    global _formed
    if jax.distributed.is_initialized():
        raise GroupError("initialize was called in this process before: it can be called once")
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
        others = "the others" if place is None else f"all {place.processes} processes"
        here = "" if listening is None else f"; this process listens on {listening}"
        raise GroupError(
            f"no group of processes was formed: {others} were waited for during "
            f"{initialization_timeout} s; see that all were started, with the same address of "
            f"process 0, and that they can reach its port{here}"
        )
    if trouble or place is None:
        give_up()
        raise GroupError(f"no group of processes was formed: {trouble[0]}") from trouble[0]
    try:
        came = jax.process_count()
    except RuntimeError as error:  # of gloo, where the name of this machine is unknown to itself
        give_up()
        raise GroupError(f"no group of processes was formed: {error}") from error
    _formed = True
    if came != place.processes:
        raise GroupError(f"a group of {place.processes} processes was asked for, and {came} came")


# -- leaving a group -------------------------------------------------------------------------------


@cache
def _leave_when_failed() -> None:
    """See to it, once, that a process does not wait at its end for others after its own error."""
    show = sys.excepthook

    def show_and_give_up(*error: Any) -> None:
        show(*error)
        give_up()

    sys.excepthook = show_and_give_up


def give_up() -> None:
    """Have this process end, when it does and as it does, without waiting for the others.

    JAX would have it wait for them at its end, while they may be waiting for it.
    """
    global _failed
    if not _failed:
        _failed = True
        atexit.unregister(jax_private.clean_up)
        atexit.register(_part)


def _part() -> None:
    """End a group in which something failed.

    If all processes come to their end within seconds they part as ever. If not, what JAX holds of
    the group is left to the operating system: to take it down in good order is to wait.
    """
    if jax_private.group().client is None or (_formed and _all_come()):
        jax_private.clean_up()
    else:  # never to be destroyed, which would wait
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(jax_private.held()))


def _all_come() -> bool:
    """Whether all processes come to their end within seconds."""
    group = jax_private.group()
    # Process 0 goes last: without it JAX ends the others at once, whatever they are doing.
    patience = PARTING if group.process_id else 2 * PARTING
    try:
        group.client.wait_at_barrier("hetmogp: the end", int(1000 * patience))
    except Exception:  # somebody did not, or cannot be asked
        return False
    return True


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
    """What each process has to say, in their order, at each of them.

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
        raise GroupError(f"a process has {longest:,} bytes to say, more than {LONGEST:,}")
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
            f"process {process} says what this one does not understand ({error}); see that all "
            "have the same version of hetmogp"
        ) from None


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
        give_up()
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
    troubles = [(k, *trouble) for k, trouble in enumerate(said) if trouble is not None]
    if not all(again for _, _, again in troubles):
        give_up()  # a program may catch the one's error, or that of the others, and not both
    if error is not None:
        raise error
    for k, text, again in troubles:
        raise (ValueError if again else GroupError)(f"process {k} failed: {text}")
    return value  # type: ignore[return-value]


def from_first(make: Callable[[], T]) -> T:
    """What process 0 makes by itself, or raises, at every process."""
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
