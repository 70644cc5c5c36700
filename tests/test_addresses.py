"""The address of process 0: what is wrong with it is said in one line, before JAX is asked."""

import socket

import pytest
from typer.testing import CliRunner

from hetmogp import addresses, distributed
from hetmogp.cli import app


@pytest.fixture
def taken():
    """A port on which another program listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1:12345", ("10.0.0.1", 12345)),
        ("node-1.cluster:1", ("node-1.cluster", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_read(address, expected):
    assert addresses.read(address) == expected


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "", ":12345", "::1", "fe80::1:12345", "http://a:1"]
)
def test_an_address_without_host_and_port_is_refused(address):
    with pytest.raises(ValueError, match=r"is not host and port of process 0, as in 10\.0\.0\.1:1"):
        addresses.read(address)


@pytest.mark.parametrize("port", ["", "abc", "0", "65536", "-1", "1.5", "¹"])
def test_a_bad_port_is_refused(port):
    with pytest.raises(ValueError, match="no port from 1 to 65535"):
        addresses.read(f"10.0.0.1:{port}")


def test_a_port_in_use_is_refused_and_a_free_one_is_left_free(taken):
    with pytest.raises(ValueError, match=f"listen on 127.0.0.1:{taken}: another program is using"):
        addresses.refuse_taken(f"127.0.0.1:{taken}", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for _ in range(2):
        addresses.refuse_taken(f"127.0.0.1:{port}", 0)


def test_a_port_that_another_jax_shares_is_in_use():
    """JAX asks for ports that programs may share, and two groups would mix."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ValueError, match="another program is using"):
            addresses.refuse_taken(f"127.0.0.1:{other.getsockname()[1]}", 0)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(
        ValueError, match=r"not an address of this machine.*coordinator_bind_address"
    ):
        addresses.refuse_taken("192.0.2.77:12345", 0)


def test_a_name_may_come_late(monkeypatch):
    known = socket.getaddrinfo
    asked = []

    def late(host, *arguments, **options):
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "not yet")
        return known("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(addresses.socket, "getaddrinfo", late)
    monkeypatch.setattr(addresses.time, "sleep", lambda seconds: None)
    addresses.refuse_taken("job-0.job:12345", 60)
    assert asked == ["job-0.job"] * 3
    asked.clear()
    with pytest.raises(ValueError, match=r"host 'job-0\.job' of process 0 is unknown: .*not yet"):
        addresses.refuse_taken("job-0.job:12345", -1)


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (("10.0.0.1", 2, 0), {}, "'10.0.0.1' is not host and port of process 0"),
        (("10.0.0.1:port", 2, 0), {}, "no port from 1 to 65535, but 'port'"),
        (("10.0.0.1:1234", 2, 2), {}, "process_id is 2 and num_processes is 2"),
        (("10.0.0.1:1234", 2, -1), {}, "process_id is -1 and num_processes is 2"),
        (("10.0.0.1:1234", 0, 0), {}, "num_processes is 0"),
        (("10.0.0.1:1234", 2.0, 0), {}, "num_processes must be a whole number, not 2.0"),
        (("10.0.0.1:1234", 2, "0"), {}, "process_id must be a whole number, not '0'"),
        ((), {"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES must be a whole number, not 'two'"),
        ((), {"JAX_PROCESS_ID": ""}, "JAX_PROCESS_ID must be a whole number, not ''"),
        ((), {"JAX_COORDINATOR_ADDRESS": "a:1"}, "neither SLURM, Kubernetes nor mpirun was found"),
    ],
)
def test_what_is_wrong_is_a_clear_group_error(monkeypatch, arguments, environment, said):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(distributed.GroupError) as raised:
        distributed.initialize(*arguments)
    assert str(raised.value).startswith("no group of processes was formed: ")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (["--coordinator", "127.0.0.1:{taken}"], {}, "another program is using that port"),
        (["--coordinator", "127.0.0.1"], {}, "is not host and port of process 0"),
        (["--coordinator", "127.0.0.1:1", "--process", "2"], {}, "process_id is 2"),
        ([], {"JAX_NUM_PROCESSES": "many"}, "JAX_NUM_PROCESSES must be a whole number"),
    ],
)
def test_the_command_says_it_in_one_line(tmp_path, taken, options, environment, said):
    data = tmp_path / "rows.csv"
    data.write_text("x,y\n0,1\n1,2\n")
    arguments = ["fit", str(data), "--inputs", "x", "--distributed"]
    if "JAX_NUM_PROCESSES" not in environment:
        arguments += ["--processes", "2"]
    if "--process" not in options:
        arguments += ["--process", "0"]
    arguments += [option.format(taken=taken) for option in options]
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("hetmogp: no group of processes was formed: ")
    assert said in line
    assert not result.stdout
