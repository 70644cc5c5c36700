"""Where the processes of a group meet: the address of process 0 is found, checked and tried.

By default, JAX makes process 0 listen on every interface of its machine, ends the process if the
port is in use, and shares the port if the other program also uses JAX. Here process 0 listens only
on the address it was given, and a wrong address is an error before JAX is called.
"""

import errno
import os
import socket
import time
from importlib.util import find_spec
from typing import NamedTuple

from .jax_private import in_cluster

__all__ = ["Place", "place", "read", "refuse_taken"]

UNKNOWN = (
    "neither SLURM, Kubernetes nor mpirun was found: pass coordinator_address, num_processes and "
    "process_id, or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID"
)
REASONS = {
    errno.EADDRINUSE: "another program is using that port; choose another one for all processes",
    errno.EADDRNOTAVAIL: "that is not an address of this machine; if the others reach it through "
    "another one, name the one to listen on by coordinator_bind_address or by the variable "
    "JAX_COORDINATOR_BIND_ADDRESS",
    errno.EACCES: "only the administrator may use that port; choose one above 1023",
}


class Place(NamedTuple):
    """The place of a process in its group.

    Attributes:
        address: host and port of process 0.
        processes: the number of processes.
        process: the number of this process.
        method: the name of JAX's method to detect the cluster, if one was chosen.
    """

    address: str
    processes: int
    process: int
    method: str | None


def place(
    address: str | None,
    processes: int | None,
    process: int | None,
    method: str | None,
    patience: int,
) -> Place:
    """The place of this process: as given, else from the environment, else from the cluster.

    Args:
        address: host and port of process 0.
        processes: the number of processes.
        process: the number of this process.
        method: the name of JAX's method to detect the cluster.
        patience: seconds to wait for the cluster's answer.
    """
    address = address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    processes = _whole("num_processes", processes, "JAX_NUM_PROCESSES")
    process = _whole("process_id", process, "JAX_PROCESS_ID")
    if method is None and process is None and _under_mpirun():
        if find_spec("mpi4py") is None:
            raise ValueError("this looks like mpirun: install mpi4py, which finds the processes")
        method = "mpi4py"
    if method != "deactivate" and None in (address, processes, process):
        address, processes, process = in_cluster(address, processes, process, method, patience)
    if address is None or processes is None or process is None:
        raise ValueError(UNKNOWN)
    read(address)
    if processes < 1 or not 0 <= process < processes:
        raise ValueError(
            f"process_id is {process} and num_processes is {processes}: of n processes the first "
            "is number 0, the last n - 1"
        )
    return Place(address, processes, process, method)


def _whole(name: str, value: int | None, variable: str) -> int | None:
    """A whole number, given or from the environment."""
    if value is None:
        text = os.environ.get(variable)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{variable} must be a whole number, not {text!r}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value


def _under_mpirun() -> bool:
    sizes = (os.environ.get(name, "1") for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))
    return any(size not in ("", "1") for size in sizes) and "SLURM_JOB_ID" not in os.environ


def read(address: str) -> tuple[str, int]:
    """Host and port of an address such as 10.0.0.1:12345, node1:12345 or [::1]:12345."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or (":" in bare) != bracketed:
        raise ValueError(
            f"{address!r} is not host and port of process 0, as in 10.0.0.1:12345 or [::1]:12345"
        )
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError(f"{address!r} has no port from 1 to 65535, but {port!r}")
    return bare, int(port)


def refuse_taken(address: str, patience: float) -> None:
    """Raise an error if this process cannot listen on an address.

    Args:
        address: host and port.
        patience: seconds to wait until the host's name is known; in a cluster this may take time.
    """
    host, port = read(address)
    places = _resolved(host, port, time.monotonic() + patience)
    refused: list[OSError] = []
    for family, kind, protocol, _, where in places:
        try:
            with socket.socket(family, kind, protocol) as trial:
                # Connections of a program that ended stay for a minute and do not matter.
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(where)
        except OSError as error:
            refused.append(error)
    taken = [error for error in refused if error.errno == errno.EADDRINUSE]
    if taken or len(refused) == len(places):
        first = (taken or refused)[0]
        reason = REASONS.get(first.errno or 0, first.strerror)
        raise ValueError(f"process 0 cannot listen on {address}: {reason}")


def _resolved(host: str, port: int, deadline: float) -> list[tuple]:
    """The sockets' addresses that a host has."""
    while True:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            if time.monotonic() > deadline:
                raise ValueError(f"the host {host!r} of process 0 is unknown: {error}") from None
        time.sleep(1.0)
