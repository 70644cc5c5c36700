"""Several processes, really started: the fit of one, killed ones, errors in one of them."""

import ipaddress
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp import addresses, distributed, messages
from hetmogp.files import read_numbers
from hetmogp.fitting import svi

HEARTBEAT = 6
PATIENCE = 240  # seconds for a group to do its work, however busy the machine is

WORKER = """
import sys
import numpy as np
import pandas as pd
import jax
import hetmogp as hm
from hetmogp.fitting import svi

jax.config.update("jax_disable_most_optimizations", True)
what, folder, count, index, port, heartbeat = sys.argv[1:]
if what == "steps" and count == "2":  # with two devices each, to which rows are sent
    jax.config.update("jax_num_cpu_devices", 2)
    svi._memory = lambda: 0.0
if int(count) > 1:
    hm.distributed.initialize(
        f"127.0.0.1:{port}", int(count), int(index), heartbeat_timeout_seconds=int(heartbeat)
    )
assert jax.process_count() == int(count)
assert jax.device_count() == {"1": 1, "2": 2 * (1 + (what == "steps")), "4": 4}[count]
inputs = ["x"]
table = hm.Table(f"{folder}/rows", inputs=inputs, lanes=4)
named = {"a": hm.Gaussian(), "b": hm.Bernoulli(weight="w")}
options = {"latents": 1, "inducing": 8, "batch_size": 60, "progress": False, "tol": 1e-9}
kept = {}

def recorded(chunk):
    def call(*arguments, **options):
        found = chunk(*arguments, **options)
        numbers = arguments[4]
        if float(np.asarray(numbers.pace)):  # not when it only measures
            first, n = (int(np.asarray(number)) for number in (numbers.first, numbers.n))
            bounds.extend(np.asarray(found[1])[first : first + n])
        return found
    return call

if what == "steps":
    svi.chunk = recorded(svi.chunk)
    frame = pd.concat([pd.read_parquet(path) for path in table.files], ignore_index=True)
    for name, data in {"memory": (frame[inputs], frame), "disk": (table,)}.items():
        bounds = []
        model = hm.HetMOGP(named, method="svi", max_iter=50, **options).fit(*data)
        kept |= {f"{name}.bounds": bounds, f"{name}.elbo": model.elbo_, f"{name}.W": model.weights_}
    if count != "4":  # which compiles four times over
        kept["nlpd"] = list(model.nlpd(table).values())
        model.predict(table, out=f"{folder}/predicted-{count}.parquet")
        few, one = frame[:60], {"b": named["b"]}
        full = hm.HetMOGP(one, method="vem", max_iter=2, **options).fit(few[inputs], few)
        kept["vem"] = full.weights_
        bounds = []
        near = hm.HetMOGP({"a": named["a"]}, local=1, max_iter=12, **options).fit(table)
        kept["local"] = near.predict(frame[inputs][:50])["a"].mean
else:
    model = hm.HetMOGP({"a": named["a"]}, max_iter=260, **options)
    model.fit(table, checkpoint=f"{folder}/kept", every=20, resume=True)
    kept = {"W": model.weights_, "elbo": model.elbo_, "history": model.history_,
            "Z": model.inducing_inputs_[0], "interrupted": model.interrupted_}
np.savez(f"{folder}/{what}-{count}-{index}.npz", **kept)
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Group:
    """Processes of one group, and what they print."""

    def __init__(self, processes):
        self.processes = processes

    @classmethod
    def of(cls, what, folder, count):
        port = free_port()
        arguments = ([what, folder, count, index, port, HEARTBEAT] for index in range(count))
        return cls([started([sys.executable, "-c", WORKER, *map(str, a)]) for a in arguments])

    def ended(self, within=PATIENCE):
        """What each has printed, once all have ended."""
        deadline = time.monotonic() + within
        return [
            p.communicate(timeout=max(deadline - time.monotonic(), 0.1))[0] for p in self.processes
        ]

    def succeeded(self):
        for process, printed in zip(self.processes, self.ended(), strict=True):
            assert process.returncode == 0, printed


RUNNING: list[subprocess.Popen] = []


@pytest.fixture(autouse=True, scope="module")
def compiled_once(tmp_path_factory):
    """All of these processes compile the same few programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        yield


def started(command, **options):
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )
    RUNNING.append(process)
    return process


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    left = [process for process in RUNNING if process.poll() is None]
    for process in left:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    RUNNING.clear()
    assert not left


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    N = 1500
    x = rng.uniform(0, 5, N)
    frame = pd.DataFrame(
        {
            "x": x,
            "a": np.where(rng.random(N) < 0.3, np.nan, np.sin(2 * x) + rng.normal(0, 0.3, N)),
            "b": (rng.random(N) < 1 / (1 + np.exp(-3 * np.sin(2 * x)))).astype(float),
            "w": rng.integers(1, 3, N).astype(float),
        }
    )
    (tmp_path / "rows").mkdir()
    for k, (begin, end) in enumerate(itertools.pairwise([0, 700, 710, N])):
        frame[begin:end].to_parquet(tmp_path / "rows" / f"{k}.parquet", row_group_size=333)
    return tmp_path


def checkpoints(folder):
    return sorted(folder.glob("kept/*/*.checkpoint"))


def until_kept(group, folder, more_than=1):
    """Wait until the fit is on its way."""
    deadline = time.monotonic() + PATIENCE
    while len(checkpoints(folder)) <= more_than:
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in group.processes), group.ended()
        time.sleep(0.005)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_two_and_four_processes_find_what_one_finds(folder, count, monkeypatch):
    monkeypatch.setattr(svi, "chunk", svi.chunk)  # as it is, after one process has run in this one
    monkeypatch.setattr(sys, "argv", ["", "steps", str(folder), *("1", "0", "0", "0")])
    exec(WORKER, {})
    Group.of("steps", folder, count).succeeded()
    found = {}
    for n in (1, count):
        each = [dict(np.load(folder / f"steps-{n}-{k}.npz")) for k in range(n)]
        for name, value in each[0].items():
            for other in each[1:]:
                np.testing.assert_array_equal(other[name], value, err_msg=name)
        found[n] = each[0]
    one = found[1]
    for where in ("memory", "disk"):
        assert one[f"{where}.bounds"].shape == (50,)
        assert np.ptp(one[f"{where}.bounds"]) > 1.0
    for name, value in found[count].items():
        rtol = 1e-7 if name in ("memory.W", "disk.W", "vem", "local") else 1e-9
        np.testing.assert_allclose(value, one[name], rtol=rtol, err_msg=name)
    assert len(list((folder / f"predicted-{count}.parquet").iterdir())) == count
    whole, parts = (pd.read_parquet(folder / f"predicted-{k}.parquet") for k in (1, count))
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-5)


@pytest.fixture
def uninterrupted(folder, tmp_path_factory):
    """What a group finds that nobody kills."""
    other = tmp_path_factory.mktemp("uninterrupted")
    (other / "rows").symlink_to(folder / "rows")
    Group.of("resumed", other, 2).succeeded()
    return dict(np.load(other / "resumed-2-0.npz"))


@pytest.mark.parametrize("victims", [(1,), pytest.param((1, 0), marks=pytest.mark.slow)])
def test_a_group_that_lost_a_process_is_taken_up_where_it_was(folder, uninterrupted, victims):
    """A worker is killed, then, in the group that goes on, the coordinator."""
    for killed in victims:
        group = Group.of("resumed", folder, 2)
        until_kept(group, folder, more_than=1)
        before = {path.stem for path in checkpoints(folder)}
        while {path.stem for path in checkpoints(folder)} == before:
            assert group.processes[0].poll() is None, group.ended()
            time.sleep(0.005)
        os.killpg(group.processes[killed].pid, signal.SIGKILL)
        began = time.monotonic()
        printed = group.ended(within=3 * HEARTBEAT)
        assert time.monotonic() - began < 2 * HEARTBEAT + 2
        assert group.processes[killed].returncode == -signal.SIGKILL
        assert group.processes[1 - killed].returncode not in (0, None), printed
        said = printed[1 - killed]
        assert "GroupError: another process" in said or "another task died" in said, said
        assert not (folder / "resumed-2-0.npz").exists(), "it was to be killed on its way"
    Group.of("resumed", folder, 2).succeeded()
    found = dict(np.load(folder / "resumed-2-0.npz"))
    for name, expected in uninterrupted.items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def test_a_file_that_goes_ends_all_processes_and_keeps_the_checkpoint(folder):
    group = Group.of("vanished", folder, 2)
    until_kept(group, folder)
    (folder / "rows" / "2.parquet").rename(folder / "elsewhere.parquet")
    printed = group.ended()
    assert [process.returncode for process in group.processes] == [1, 1], printed
    last = [text.strip().splitlines()[-1] for text in printed]
    owners = [k for k, line in enumerate(last) if line.startswith("OSError")]
    assert owners, printed
    for k, line in enumerate(last):
        assert "2.parquet can no longer be read" in line
        assert k in owners or f"process {owners[0]} failed: OSError" in line
    facts, _ = read_numbers(checkpoints(folder)[-1], "checkpoint", 1)
    assert facts["notes"]["iterations"] % 20 == 0


def test_an_interrupt_of_one_process_stops_all_and_keeps_the_fit(folder):
    group = Group.of("interrupted", folder, 2)
    until_kept(group, folder)
    os.kill(group.processes[1].pid, signal.SIGINT)
    group.succeeded()
    found = [np.load(folder / f"interrupted-2-{k}.npz") for k in range(2)]
    assert all(one["interrupted"] for one in found)
    np.testing.assert_array_equal(found[0]["W"], found[1]["W"])


def test_the_command_line_finds_its_group_under_slurm(folder):
    target = folder / "model.hetmogp"
    slurm = {
        "SLURM_JOB_ID": str(free_port()),
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NTASKS": "2",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    command = [
        *(sys.executable, "-m", "hetmogp", "fit", str(folder / "rows")),
        *("--inputs", "x", "--output", "a:gaussian", "--latents", "1", "--inducing", "8"),
        *("--max-iter", "30", "--model", str(target), "--distributed"),
    ]
    group = Group(
        [
            started(
                command,
                env={**os.environ, **slurm, "SLURM_PROCID": str(k), "SLURM_LOCALID": str(k)},
            )
            for k in range(2)
        ]
    )
    printed = group.ended()
    assert [process.returncode for process in group.processes] == [0, 0], printed
    assert "started from a sample of 1,500 rows" in printed[0]
    assert "bound" not in printed[1], "one tells for all"
    assert hm.load(target).n_iter_ == 30


# -- what they say, where they listen, how they end ------------------------------------------------

TALK = """
import sys
import numpy as np
import pandas as pd
from hetmogp import distributed, messages
from hetmogp.discovery import choose
from hetmogp.fitting.checkpoint import CheckpointError

me, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.initialize(f"127.0.0.1:{port}", 2, me)
try:
    distributed.initialize(f"127.0.0.1:{port}", 2, me)
except distributed.GroupError as error:
    assert "already called in this process" in str(error)
assert not distributed._failed  # the group is as it was

frame = pd.DataFrame({"n": [me + 0.5], "t": pd.Categorical(["a"], ["b", "a"])})
long = np.full(2000, me, np.int32)
for k, (index, found, numbers) in enumerate(distributed.gathered((me, frame, {"long": long}))):
    assert index == k
    pd.testing.assert_frame_equal(found, frame.assign(n=k + 0.5))
    np.testing.assert_array_equal(numbers["long"], np.full(2000, k), strict=False)

class OddError(Exception):
    pass

def raising(error):
    raise error

for error, expected in [
    (CheckpointError("used"), CheckpointError),
    (KeyboardInterrupt(), KeyboardInterrupt),
    (OddError("odd"), RuntimeError if me else OddError),
]:
    try:
        distributed.from_first(lambda: raising(error))
    except expected as told:
        assert str(error) in str(told)
    else:
        raise AssertionError(error)
try:  # an object is not sent, and no process waits for it
    distributed.from_first(lambda: object())
except TypeError as error:
    assert "cannot send each other a object" in str(error)

Y = pd.DataFrame({"on": [0, 1] * 20, "size": pd.cut(np.linspace(0, 1, 40), 4)})
print("likelihoods", choose("auto", np.linspace(0, 1, 40), Y, progress=False)[0])

class Evil:
    def __reduce__(self):
        return open, (f"{folder}/made", "w")

if me == 1:
    import pickle
    messages.packed = pickle.dumps
try:
    distributed.gathered(Evil() if me else 0)
except distributed.GroupError as error:
    print("told", error)
"""


def test_processes_send_each_other_plain_data_only(tmp_path):
    port = str(free_port())
    script = [sys.executable, "-c", TALK]
    group = Group([started([*script, str(k), port, str(tmp_path)]) for k in range(2)])
    printed = group.ended()
    assert [process.returncode for process in group.processes] == [0, 0], printed
    first, second = (text.split("likelihoods ")[1].splitlines() for text in printed)
    assert first[0] == second[0]
    assert "'on': Bernoulli(), 'size': Ordinal(classes=[Interval(" in first[0]
    for lines in (first, second):
        assert lines[-1].startswith("told the message of process 1 cannot be read")
    assert not (tmp_path / "made").exists()


FAILING = """
import sys
from hetmogp import distributed

me, port = int(sys.argv[1]), sys.argv[2]
distributed.initialize(f"127.0.0.1:{port}", 3, me)

def own():
    if me == 0:
        raise OSError("the disk is full")

try:
    distributed.together(own)
except distributed.GroupError as error:
    print("caught", error)
    sys.exit(me - 1)
"""


def test_processes_end_as_they_would_when_one_has_failed():
    """Even the first, without which JAX ends the others."""
    port = str(free_port())
    group = Group([started([sys.executable, "-c", FAILING, str(k), port]) for k in range(3)])
    printed = group.ended()
    assert [process.returncode for process in group.processes] == [1, 0, 1], printed
    assert printed[0].strip().endswith("OSError: the disk is full")
    for text in printed[1:]:
        assert "caught process 0 failed: OSError: the disk is full" in text


LOST = """
import os
import signal
import sys
from hetmogp import distributed

me, port = int(sys.argv[1]), sys.argv[2]
distributed.initialize(f"127.0.0.1:{port}", 2, me)
distributed.PARTING = 0.5
distributed.gathered(me)
if me == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    distributed.gathered(me)
except distributed.GroupError as error:
    print("caught", error)
"""


def test_a_process_that_lost_another_ends_as_it_would():
    port = str(free_port())
    group = Group([started([sys.executable, "-c", LOST, str(k), port]) for k in range(2)])
    printed = group.ended()
    assert [process.returncode for process in group.processes] == [0, -signal.SIGKILL], printed
    assert "caught another process of the group has ended" in printed[0]


ALONE = """
import sys
from hetmogp import distributed

how, address = sys.argv[1:]
try:
    distributed.initialize(address, 2, 0, initialization_timeout=1)
except distributed.GroupError as error:
    if how == "uncaught":
        raise
    print("caught", error)
if how == "three":
    raise SystemExit(3)
"""


def test_a_process_that_waited_in_vain_ends_as_it_would():
    codes = {"uncaught": 1, "caught": 0, "three": 3}
    group = Group(
        [started([sys.executable, "-c", ALONE, how, f"127.0.0.1:{free_port()}"]) for how in codes]
    )
    printed = group.ended(within=60)
    assert [process.returncode for process in group.processes] == list(codes.values()), printed
    for text in printed:
        assert "waited 1 s for all 2 processes" in text
        assert "this process listens on 127.0.0.1:" in text


LISTENING = """
import os
import sys
from pathlib import Path
from hetmogp import distributed

address, bound = sys.argv[1:]
options = {"coordinator_bind_address": bound} if bound else {}
known = (address, 1, 0) if address else ()
distributed.initialize(*known, **options)
mine = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
for table in ("tcp", "tcp6"):
    for line in Path("/proc/net", table).read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
            print("listens", fields[1])
"""


def addressed(text):
    """The address of a line of /proc/net/tcp or tcp6, in which words of four bytes are reversed."""
    host, port = text.split(":")
    raw = bytes.fromhex(host)
    ordered = b"".join(raw[k : k + 4][::-1] for k in range(0, len(raw), 4))
    found = ipaddress.ip_address(ordered)
    return str(getattr(found, "ipv4_mapped", None) or found), int(port, 16)


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are found by /proc")
def test_process_0_listens_where_it_is_asked_to_and_nowhere_else():
    ports = [free_port() for _ in range(4)]
    in_slurm = 65536 - 2**12 + ports[3] % 2**12
    slurm = {"SLURM_JOB_ID": str(ports[3]), "SLURM_STEP_NODELIST": "127.0.0.1"}
    slurm |= {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    cases = [
        ((f"127.0.0.1:{ports[0]}", ""), {}, ports[0], {"127.0.0.1"}),
        ((f"localhost:{ports[1]}", ""), {}, ports[1], {"127.0.0.1", "::1"}),
        ((f"127.0.0.1:{ports[2]}", f"0.0.0.0:{ports[2]}"), {}, ports[2], {"0.0.0.0", "::"}),
        (("", ""), slurm, in_slurm, {"127.0.0.1"}),
    ]
    group = Group(
        [
            started([sys.executable, "-c", LISTENING, *arguments], env={**os.environ, **extra})
            for arguments, extra, _, _ in cases
        ]
    )
    for printed, (_, _, port, allowed) in zip(group.ended(within=60), cases, strict=True):
        lines = [line.split()[1] for line in printed.splitlines() if line.startswith("listens")]
        found = {host for host, there in map(addressed, lines) if there == port}
        assert found, printed
        assert found <= allowed, printed


# -- in this process -------------------------------------------------------------------------------


@pytest.fixture
def no_cluster(monkeypatch):
    """JAX's own way to form a group, which says what it was told."""
    told: dict[str, Any] = {}

    def initialize(address, processes, process, **options):
        told.update(options, address=address, processes=processes, process=process)

    monkeypatch.setattr(distributed.jax.distributed, "initialize", initialize)
    return told


def test_without_a_cluster_it_is_said_what_to_give(no_cluster):
    with pytest.raises(distributed.GroupError, match=r"coordinator_address.*JAX_NUM_PROCESSES"):
        hm.distributed.initialize()
    assert not no_cluster


def test_too_late_is_told():
    np.asarray(distributed.jax.numpy.zeros(1) + 1)  # JAX is in use
    with pytest.raises(distributed.GroupError, match="before any JAX calls"):
        hm.distributed.initialize(f"127.0.0.1:{free_port()}", 2, 0)


@pytest.mark.parametrize(
    ("environment", "method"),
    [
        ({"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "mpi4py"),
        ({"PMI_SIZE": "4"}, "mpi4py"),
        ({"OMPI_COMM_WORLD_SIZE": "4", "SLURM_JOB_ID": "7"}, None),
    ],
)
def test_what_is_known_of_the_group_is_passed_on(monkeypatch, no_cluster, environment, method):
    address = f"127.0.0.1:{free_port()}"

    def in_cluster(coordinator, n, k, chosen, patience):
        assert chosen == method
        return coordinator or address, n or 1, k or 0

    monkeypatch.setattr(addresses, "in_cluster", in_cluster)
    monkeypatch.setattr(addresses, "find_spec", lambda name: name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    hm.distributed.initialize()
    assert (no_cluster["address"], no_cluster["processes"], no_cluster["process"]) == (
        address,
        1,
        0,
    )
    assert no_cluster["cluster_detection_method"] == method
    assert no_cluster["coordinator_bind_address"] == address
    assert no_cluster["heartbeat_timeout_seconds"] == 30


@pytest.fixture
def two(monkeypatch):
    """Two processes, of which the other says what it is given to say."""
    monkeypatch.setattr(distributed, "count", lambda: 2)

    def speaking(message, size=None):
        size = len(message) if size is None else size

        def exchanged(mine, room):
            whole = message if room > distributed.FRAME else size.to_bytes(8, "little") + message
            return [one[:room].ljust(room, b"\0") for one in (mine, whole)]

        monkeypatch.setattr(distributed, "_exchanged", exchanged)

    return speaking


@pytest.mark.parametrize(
    ("mine", "other"), [(1, 2), ("short", "long" * 1000), ("long" * 1000, "short"), ((), "x" * 494)]
)
def test_messages_of_any_length_arrive(two, mine, other):
    two(messages.packed(other))
    assert distributed.gathered(mine) == [mine, other]


def test_a_message_that_cannot_be_is_refused(two):
    two(b"", size=2**60)
    with pytest.raises(distributed.GroupError, match="message of 1,152,921,504,606,846,976 bytes"):
        distributed.gathered(1)
    two(b"no message")
    with pytest.raises(distributed.GroupError, match="message of process 1 cannot be read"):
        distributed.gathered(1)


def test_another_process_than_the_first_does_not_listen(no_cluster):
    with pytest.raises(
        distributed.GroupError, match="expected a group of 2 processes, but 1 joined"
    ):
        hm.distributed.initialize("of.another.machine:1234", 2, 1)
    assert no_cluster["coordinator_bind_address"] is None


def test_the_environment_says_where_to_listen(no_cluster, monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", f"127.0.0.1:{free_port()}")
    hm.distributed.initialize("of.another.machine:1234", 1, 0)
    assert no_cluster["coordinator_bind_address"].startswith("127.0.0.1")


def test_a_group_that_did_not_form_is_an_error(monkeypatch):
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(distributed.jax.distributed, "initialize", lambda *_, **__: None)
    with pytest.raises(
        distributed.GroupError, match="expected a group of 2 processes, but 1 joined"
    ):
        hm.distributed.initialize(address, 2, 0)
    monkeypatch.setattr(distributed.jax.distributed, "initialize", lambda *_, **__: time.sleep(5))
    with pytest.raises(distributed.GroupError, match="waited 1 s for all 2 processes"):
        hm.distributed.initialize(address, 2, 0, initialization_timeout=1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setattr(addresses, "find_spec", lambda name: None)
    with pytest.raises(distributed.GroupError, match="install mpi4py"):
        hm.distributed.initialize()


def test_a_machine_that_does_not_know_its_own_name_is_told(no_cluster, monkeypatch):
    def unknown():
        raise RuntimeError("Unable to initialize backend 'cpu': gloo")

    monkeypatch.setattr(distributed.jax, "process_count", unknown)
    with pytest.raises(distributed.GroupError, match="no group of processes was formed: Unable"):
        hm.distributed.initialize(f"127.0.0.1:{free_port()}", 1, 0)
