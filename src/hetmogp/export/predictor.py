"""Predicts with a model that hetmogp has exported: this file and the two beside it are enough.

It needs JAX, NumPy and flatbuffers, but neither hetmogp nor the data. If the folder is `weather`:

    from weather.predictor import predict
    predict({"day": [1.0, 2.5], "site": ["a", "b"]})["rain"]["mean"]
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

__all__ = ["Predictor", "predict"]

FACTS, PROGRAM = "facts.json", "program.bin"
DAY = 86_400_000_000.0  # microseconds


class Predictor:
    """A model in a folder.

    Attributes:
        facts: what the folder says of the model: inputs, outputs, levels of the quantiles.
    """

    def __init__(self, folder: str | Path):
        self.facts = json.loads((Path(folder) / FACTS).read_text(encoding="utf-8"))
        content = (Path(folder) / PROGRAM).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.facts["sha256"]:
            raise ValueError(
                f"{folder} holds parts of two exports, of which one was interrupted: export the "
                "model again"
            )
        self._run = jax.jit(export.deserialize(bytearray(content)).call)

    def predict(self, table: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
        """The outputs at new inputs.

        Args:
            table: a column for each input: numbers, labels, dates (of NumPy, or as text such as
                2024-05-31; in UTC where the model's have a time zone), or durations of NumPy.

        Returns:
            By output: "mean" and "std", and "quantiles" (levels by rows); or, of an output with
            classes, "probabilities" (rows by classes) and the most probable "class".
        """
        inputs = self.facts["inputs"]
        X = np.stack([_encoded(column, table) for column in inputs], axis=1)
        rows, results = self.facts["rows"], []
        with jax.enable_x64(self.facts["dtype"] == "float64"):
            for begin in range(0, max(len(X), 1), rows):
                part = X[begin : begin + rows]
                full = np.resize(part, (rows, len(inputs)))  # repeated to fill the program
                found, n = self._run(full.astype(self.facts["dtype"])), len(part)
                results.append(jax.tree.map(lambda a, n=n: np.asarray(a)[:n], found))
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *results)
        return {name: self._named(name, numbers) for name, numbers in whole.items()}

    def _named(self, name: str, numbers: dict[str, np.ndarray]) -> dict[str, Any]:
        classes = self.facts["outputs"][name]["classes"]
        if "quantiles" in numbers:
            numbers = {**numbers, "quantiles": numbers["quantiles"].T}
        if "probabilities" not in numbers:
            return dict(numbers)
        best = numbers["probabilities"].argmax(axis=1)
        return {**numbers, "class": [classes[k] for k in best]}


@cache
def _beside() -> Predictor:
    return Predictor(Path(__file__).parent)


def predict(table: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Predict with the model beside this file; see `Predictor.predict`."""
    return _beside().predict(table)


def _encoded(column: Mapping[str, Any], table: Mapping[str, Sequence[Any]]) -> np.ndarray:
    """A column of inputs as the numbers that the model knows."""
    name, kind = column["name"], column["kind"]
    if name not in table:
        raise KeyError(f"there is no column {name!r}; the model needs it")
    values = table[name]
    if kind == "number":
        numbers = np.asarray(values, float)
    elif kind == "category":
        codes = {level: float(code) for code, level in enumerate(column["levels"])}
        new = float(len(codes)) if column["open"] else np.nan
        numbers = np.array(
            [np.nan if _is_missing(value) else codes.get(value, new) for value in values], float
        )
    else:
        unit = "datetime64[us]" if kind == "time" else "timedelta64[us]"
        moments = np.asarray(values).astype(unit)
        numbers = np.where(np.isnat(moments), np.nan, moments.astype("int64") / DAY)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise ValueError(
            f"column {name!r}, row {bad[0]}: {list(values)[bad[0]]!r} is not a {kind} that the "
            "model knows"
        )
    return numbers


def _is_missing(value: Any) -> bool:
    """Whether a label is missing; pandas, which has marks of its own for that, is not needed."""
    return type(value).__name__ in ("NoneType", "NAType", "NaTType") or value != value
