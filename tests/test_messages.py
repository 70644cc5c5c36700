"""Messages between processes: what is sent comes back as it was, and nothing in it is run."""

import json
import os
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from hetmogp import distributed, messages
from hetmogp.fitting.checkpoint import CheckpointError
from hetmogp.messages import MessageError, packed, unpacked

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
NESTED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | PLAIN, inner)
    ),
)


def same(a, b):
    """Equal, of the same types, and NaN where the other is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b or (a != a and b != b)


@given(NESTED)
def test_plain_values_come_back(value):
    assert same(unpacked(packed(value)), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,  # not in C order
        np.arange(10)[::3],
        np.zeros((0, 3), np.float32),
        np.asarray(2.5),
        np.asarray([True, False]),
        np.asarray([1, 255], np.uint8),
        np.asarray([np.nan, -np.inf, 5e-324]),
        np.float32(0.1),
        np.int64(-3),
        np.bool_(True),
    ],
    ids=repr,
)
def test_arrays_come_back(array):
    found = unpacked(packed({"a": (array, [array])}))
    assert same(found, {"a": (array, [array])})
    if isinstance(array, np.ndarray):
        found["a"][0][...] = 0  # it can be written to


def test_bytes_in_the_other_order_are_put_right():
    found = unpacked(packed(np.asarray([1.0, -2.5], ">f8")))
    np.testing.assert_array_equal(found, [1.0, -2.5])


FRAME = pd.DataFrame(
    {
        "number": [1.5, np.nan, -0.0],
        "whole": np.asarray([1, 2, 3], np.int32),
        "yes": [True, False, True],
        "text": ["ä", None, ""],
        "label": pd.Categorical(["a", None, "b"], ["b", "c", "a"], ordered=True),
        "when": pd.to_datetime(["2024-02-29", "NaT", "1969-01-01"]),
        "there": pd.to_datetime(["2024-02-29", "NaT", "1969-01-01"]).tz_localize("Europe/Berlin"),
        "span": pd.to_timedelta([1, None, 3], unit="h"),
        "nothing": [None, None, None],
    }
)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.iloc[[2, 0, 2]],  # with an index of its own
        FRAME.iloc[:0],
        pd.DataFrame(),
        pd.DataFrame({0: [1.0], 1: [2.0]}),
    ],
    ids=["mixed", "indexed", "no rows", "nothing", "numbered"],
)
def test_frames_come_back(frame):
    found, _ = unpacked(packed((frame, 1)))
    pd.testing.assert_frame_equal(found, frame)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        np.asarray([object()]),
        np.asarray(["text"]),
        np.asarray([1j]),
        np.asarray(["2024-01-01"], "datetime64[D]"),
        b"bytes",
        ValueError("an error"),
    ],
    ids=["object", "set", "objects", "texts", "complex", "dates", "bytes", "error"],
)
def test_what_is_no_plain_data_is_not_sent(value):
    with pytest.raises(TypeError, match="cannot send each other"):
        packed([value])


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def made(plan, **tensors):
    text = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
    return save({"plan": np.frombuffer(text, np.uint8), **tensors})


def arrow(table):
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_a_pickle_is_no_message(tmp_path):
    """Neither as it is, nor where an array or a frame is expected."""
    evil = pickle.dumps(Evil(tmp_path / "made"))
    code = np.frombuffer(evil, np.uint8)
    for message in (evil, made(evil), made({"frame": "0"}, **{"0": code})):
        with pytest.raises(MessageError):
            unpacked(message)
    assert unpacked(made({"array": "0"}, **{"0": code})).tobytes() == evil  # numbers as any other
    pickle.loads(evil)
    assert (tmp_path / "made").exists(), "it would have done it"


def offsets_out_of_bounds():
    """A text that begins far behind the last byte; only a full check finds it."""
    offsets = pa.py_buffer(np.asarray([0, 10**6, 1], np.int32))
    return arrow(
        pa.table({"a": pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a")])})
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff" * 40,
        packed([1.0])[:-1],
        save({"other": np.zeros(1)}),
        made(b"{"),
        made(b"[" * 100_000),
        made({}),
        made({"tuple": [], "dict": []}),
        made({"tuple": 3}),
        made({"dict": [[1]]}),
        made({"dict": [[["not", "hashable"], 1]]}),
        made({"array": "missing"}),
        made({"array": ["0"]}),
        made({"class": "os.system"}),
        made({"number": "0"}, **{"0": np.zeros(2)}),
        made({"frame": "0"}, **{"0": np.zeros(2)}),
        made({"array": "0"}, **{"0": np.zeros(2, np.complex64)}),
        made({"frame": "0"}, **{"0": np.frombuffer(b"ARROW1 and no more", np.uint8)}),
        made({"frame": "0"}, **{"0": arrow(pa.table({"a": [1.0]}))[:-60]}),
        made({"frame": "0"}, **{"0": offsets_out_of_bounds()}),
    ],
)
def test_bytes_that_are_no_message_are_an_error(message):
    with pytest.raises(MessageError):
        unpacked(message)


# -- errors ----------------------------------------------------------------------------------------


class OwnError(ValueError):
    def __init__(self, row, value):
        super().__init__(f"row {row}: {value}")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("bad"), ValueError, "bad"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
        (CheckpointError("used"), CheckpointError, "used"),
        (distributed.GroupError("gone"), distributed.GroupError, "gone"),
        (
            FileNotFoundError(2, "No such file", "x"),
            FileNotFoundError,
            "[Errno 2] No such file: 'x'",
        ),
        (OwnError(3, 0), ValueError, "OwnError: row 3: 0"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), ValueError, "UnicodeDecodeError: 'utf"),
        (np.linalg.LinAlgError("singular"), ValueError, "LinAlgError: singular"),
        (StopIteration("over"), RuntimeError, "StopIteration: over"),
        (type("ValueError", (Exception,), {})("not it"), RuntimeError, "ValueError: not it"),
    ],
    ids=repr,
)
def test_an_error_keeps_its_type_or_the_nearest_that_is_known(error, kind, said):
    found = messages.error_from(*unpacked(packed(messages.of_error(error))))
    assert type(found) is kind
    assert str(found).startswith(said)


def test_every_error_of_the_list_can_be_made():
    for name in messages.ERRORS:
        found = messages.error_from(name, "text")
        assert (type(found).__name__, str(found)) == (name, "text")
    assert type(messages.error_from("os.system", "text")) is RuntimeError
