"""What processes of a group send each other: plain data as bytes, of which nothing is ever run.

A message is a safetensors file in memory. Its tensor "plan" is the value itself as JSON, with these
in place of what JSON cannot hold unchanged:

    {"tuple": [...]}, {"dict": [[key, value], ...]}      a tuple, a dict,
    {"array": "0"}, {"number": "1"}, {"frame": "2"}      the tensor of that name.

Frames are Arrow streams. Types and sizes are checked on reading, so a forged message is an error
or, at worst, gives wrong numbers.
"""

import json
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as bytes_of

__all__ = ["MessageError", "error_from", "of_error", "packed", "unpacked"]

PLAN = "plan"
NUMBERS = "biuf"  # kinds of NumPy's: bool, int, unsigned, float

# The errors that keep their type on the way to another process, and where they are defined.
BUILTIN = (
    *("ValueError", "TypeError", "RuntimeError", "NotImplementedError", "ImportError"),
    *("ArithmeticError", "OverflowError", "ZeroDivisionError", "FloatingPointError", "MemoryError"),
    *("OSError", "FileNotFoundError", "FileExistsError", "PermissionError", "IsADirectoryError"),
    *("NotADirectoryError", "ConnectionError", "TimeoutError", "KeyboardInterrupt"),
)
ERRORS = {
    **dict.fromkeys(BUILTIN, "builtins"),
    "GroupError": "hetmogp.distributed",
    "CheckpointError": "hetmogp.fitting.checkpoint",
    "NotPositiveDefiniteError": "hetmogp.fitting.fit",
    "UnreadableFileError": "hetmogp.files",
    "ModelFileError": "hetmogp.storage.read",
}


class MessageError(ValueError):
    """The bytes are not a message."""


# -- writing ---------------------------------------------------------------------------------------


def packed(value: Any) -> bytes:
    """A value as bytes.

    Args:
        value: None, bools, numbers, text, arrays of numbers and frames, and tuples, lists and dicts
            of these.
    """
    tensors: dict[str, np.ndarray] = {}

    def kept(array: np.ndarray) -> str:
        name = str(len(tensors))
        tensors[name] = np.array(array, order="C")
        return name

    def plan(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic) and not isinstance(value, float | str):
            if value.dtype.kind not in NUMBERS:
                raise TypeError(f"processes cannot send each other an array of {value.dtype}")
            kind = "array" if isinstance(value, np.ndarray) else "number"
            return {kind: kept(np.asarray(value))}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list):
            return list(map(plan, value))
        if type(value) is tuple:
            return {"tuple": list(map(plan, value))}
        if isinstance(value, dict):
            return {"dict": [[plan(key), plan(item)] for key, item in value.items()]}
        if isinstance(value, pd.DataFrame):
            return {"frame": kept(_of_frame(value))}
        raise TypeError(f"processes cannot send each other a {type(value).__name__}")

    text = json.dumps(plan(value)).encode()
    return bytes_of({**tensors, PLAN: np.frombuffer(text, np.uint8)})


def _of_frame(frame: pd.DataFrame) -> np.ndarray:
    rows = pa.RecordBatch.from_pandas(frame)  # a Table without rows would lose its labels
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    return np.frombuffer(stream.getvalue(), np.uint8)


# -- reading ---------------------------------------------------------------------------------------


def unpacked(message: bytes) -> Any:
    """The value that was packed.

    Raises:
        MessageError: if the bytes are not a message.
    """
    try:
        tensors = tensors_of(message)
        return _value(json.loads(tensors[PLAN].tobytes()), tensors)
    except Exception as error:  # of safetensors, JSON, Arrow or pandas: not a message
        raise MessageError(f"{type(error).__name__}: {error}") from None


def _value(plan: Any, tensors: dict[str, np.ndarray]) -> Any:
    if isinstance(plan, list):
        return [_value(item, tensors) for item in plan]
    if not isinstance(plan, dict):
        return plan
    ((kind, inner),) = plan.items()
    if kind == "tuple" and isinstance(inner, list):
        return tuple(_value(item, tensors) for item in inner)
    if kind == "dict" and isinstance(inner, list):
        return {_value(key, tensors): _value(item, tensors) for key, item in inner}
    array = tensors[inner]
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"an array of {array.dtype}")
    if kind == "array":
        return array.copy()  # a copy, because the message's bytes are read-only
    if kind == "number" and array.shape == ():
        return array[()]
    if kind == "frame" and array.dtype == np.uint8 and array.ndim == 1:
        rows = pa.ipc.open_stream(pa.py_buffer(array)).read_next_batch()
        rows.validate(full=True)  # by default Arrow does not check lengths and offsets
        return rows.to_pandas()
    raise ValueError(f"{kind!r} is none of the kinds of values")


# -- errors ----------------------------------------------------------------------------------------


def of_error(error: BaseException) -> tuple[str, str]:
    """An error as the name of its type and its message.

    A type that is not in the list is replaced by its nearest base class that is, or by
    RuntimeError, and the message begins with its own name.
    """
    for kind in type(error).__mro__:
        name = kind.__name__
        if ERRORS.get(name) == kind.__module__:
            own = "" if kind is type(error) else f"{type(error).__name__}: "
            return name, f"{own}{error}"
    return "RuntimeError", f"{type(error).__name__}: {error}"


def error_from(name: str, text: str) -> BaseException:
    """The error from its name and message."""
    if name not in ERRORS:
        return RuntimeError(f"{name}: {text}")
    return getattr(import_module(ERRORS[name]), name)(text)
