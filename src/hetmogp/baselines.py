"""A model beside two baselines: the same outputs alone, and the best constant of each.

All scores are mean negative log predictive densities of a value (NLPD), as `HetMOGP.nlpd` has
them. A difference is the mean, over the same values, of how many nats the joint model is better. It
has a standard error, in which values of one row (or of one group of rows) count as one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from .fitted import Fitted
from .marginal import log_densities
from .mixing import mixing
from .prediction import Observed
from .record import Scored
from .session import session
from .tables import Dataset

__all__ = [
    "COLUMNS",
    "clusters",
    "compare",
    "compare_on",
    "constant_densities",
    "doubts",
    "flat_outputs",
    "kept",
    "missing",
    "sentences",
    "shown",
    "tabulate",
]

BASELINES = ("alone", "constant")
COLUMNS = (
    *("values", "joint", "alone", "constant"),
    *("over_alone", "over_alone_se", "over_constant", "over_constant_se"),
)
SURE = 2.0  # standard errors by which an output has to beat its constant
NONE = 5e-4  # nats a value: less is no difference
WORTH = 0.005  # nats a value, at least: less is of no use to anybody

Densities = Mapping[str, np.ndarray]


def compare(fitted: Fitted, X: Any, Y: Any, by: Any = None) -> tuple[pd.DataFrame, str]:
    """The joint model beside its baselines on some data, and which rows these are, in words.

    See `HetMOGP.compare_baselines`.
    """
    data = fitted.read(X, Y)
    return compare_on(fitted, data, fitted.observe(data), by), _rows_in_words(fitted, data)


def _rows_in_words(fitted: Fitted, data: Dataset) -> str:
    """Which rows were scored, as far as the model knows."""
    table, observed = data.inputs[0], data.observed()
    if not all(X is table for X in data.inputs):
        return f"{sum(int(seen.sum()) for seen in observed):,} values given to compare_baselines"
    scored = np.any(observed, axis=0)
    n = f"{scored.sum():,} rows"
    marked = fitted.record.held_out
    held = None if marked is None else marked.at(table)
    if held is None or marked is None:
        return f"{n} given to compare_baselines"
    if not held[scored].any():
        return f"{n} that were fitted"
    if held[scored].all():
        return f"{n} held out of the fit: {marked.how}" if marked.how else f"{n} held out"
    return f"{n}, of which {held[scored].sum():,} were held out of the fit"


def compare_on(
    fitted: Fitted, data: Dataset, observed: Mapping[str, Observed], by: Any = None
) -> pd.DataFrame:
    """The same on data that were read, where the joint model has predicted already."""
    densities = {"joint": {name: one.log_prob for name, one in observed.items()}}
    alone = alone_of(fitted)
    if alone is not None:
        apart = observed if alone is fitted else alone.observe(data)
        densities["alone"] = {name: one.log_prob for name, one in apart.items()}
    if fitted.record.marginal is not None:
        densities["constant"] = constant_densities(fitted, observed)
    rows = {name: one.rows for name, one in observed.items()}
    shared = {name: id(X) for name, X in zip(data.names, data.inputs, strict=True)}
    return tabulate(list(fitted.likelihoods), densities, clusters(rows, shared, by))


def alone_of(fitted: Fitted) -> Fitted | None:
    """The model in which outputs share nothing, if it is known; a single output shares nothing."""
    by_itself = len(fitted.likelihoods) == 1 and fitted.alone is None
    if by_itself or type(fitted.posterior.prior).one_each:
        return fitted
    return fitted.alone


def constant_densities(fitted: Fitted, observed: Mapping[str, Observed]) -> dict[str, np.ndarray]:
    """The log density of each value by the best constants of its output."""
    marginal = fitted.record.marginal
    assert marginal is not None
    with session(fitted.dtype):
        return {
            name: log_densities(
                *(fitted.likelihoods[name], np.asarray(marginal[name])),
                *(one.numbers, one.prediction.given),
            )
            for name, one in observed.items()
        }


def clusters(
    rows: Mapping[str, np.ndarray], tables: Mapping[str, int], by: Any = None
) -> dict[str, np.ndarray]:
    """What counts as one in standard errors: a number for each value of each output.

    Args:
        rows: of each output, where its values stand in their table.
        tables: of each output, which table that is.
        by: a label for each row, where groups of rows belong together.
    """
    if by is not None:
        codes = pd.factorize(np.asarray(by, dtype=object), use_na_sentinel=False)[0]
        for name, at in rows.items():
            if at.size and at.max() >= len(codes):
                raise ValueError(
                    f"by has {len(codes)} labels, but output {name!r} has a row {at.max()}"
                )
        return {name: codes[at] for name, at in rows.items()}
    order = {table: k for k, table in enumerate(dict.fromkeys(tables.values()))}
    apart = 1 + max((int(at.max(initial=-1)) for at in rows.values()), default=-1)
    return {name: order[tables[name]] * apart + at for name, at in rows.items()}


def tabulate(
    names: list[str], densities: Mapping[str, Densities], groups: Mapping[str, np.ndarray]
) -> pd.DataFrame:
    """The table of `compare` from the log densities of the values.

    Args:
        names: the outputs.
        densities: "joint", "alone" and "constant", as far as they are known, by output.
        groups: of each output what counts as one, a number for each value.
    """
    frame = pd.DataFrame(np.nan, index=pd.Index([*names, "global"], name="output"), columns=COLUMNS)
    joint = densities["joint"]
    for name in names:
        frame.loc[name, "values"] = len(joint.get(name, ()))
        for kind, values in densities.items():
            if len(values.get(name, ())):
                frame.loc[name, kind] = -np.mean(values[name])
    seen = [name for name in names if len(joint.get(name, ()))]
    for kind in (kind for kind in BASELINES if kind in densities):
        gains = {name: joint[name] - densities[kind][name] for name in seen}
        for name in seen:
            frame.loc[name, f"over_{kind}"] = np.mean(gains[name])
            frame.loc[name, f"over_{kind}_se"] = _error([gains[name]], [groups[name]])
        if len(seen) == len(names):
            every = [gains[name] for name in names], [groups[name] for name in names]
            frame.loc["global", f"over_{kind}_se"] = _error(*every)
    sums = [column for column in COLUMNS if not column.endswith("_se")]
    frame.loc["global", sums] = frame.loc[names, sums].sum(skipna=False)
    return frame.astype({"values": int})


def _error(gains: list[np.ndarray], groups: list[np.ndarray]) -> float:
    """The standard error of a sum of means, values of one group being one draw.

    With z_g = Σ_d Σ_{n in g} (gain_dn − mean_d) / N_d and G groups, its square is G/(G−1) Σ_g z_g²;
    for one output and a group a value this is the sample variance over N.
    """
    parts = [(gain - gain.mean()) / len(gain) for gain in gains]
    _, group = np.unique(np.concatenate(groups), return_inverse=True)
    z = np.bincount(group, np.concatenate(parts))
    G = len(z)
    return float(np.sqrt(G / (G - 1) * np.sum(z * z))) if G > 1 else float("nan")


def missing(fitted: Fitted) -> list[str]:
    """Which baselines are not known, and why, in words."""
    words = []
    if alone_of(fitted) is None:
        words.append(
            "the outputs alone are not known: latents='auto' fits them too; otherwise "
            "hetmogp.independent does"
        )
    if fitted.record.marginal is None:
        words.append("the constants are not known: the model was saved by an earlier version")
    return words


def doubts(frame: pd.DataFrame) -> Iterator[str]:
    """Which outputs do not beat their constants, a sentence each."""
    for name, row in frame.drop(index="global").iterrows():
        gain, error = row["over_constant"], row["over_constant_se"]
        if gain < -SURE * error:
            yield (
                f"Output {name} is predicted worse than by a constant: {gain:+.3f} ± {error:.3f} "
                "nats a value. The inputs may say nothing about it."
            )
        elif SURE * error < gain < WORTH:
            yield (
                f"Output {name} beats a constant by too little to matter: {gain:+.3f} ± "
                f"{error:.3f} nats a value. The inputs say next to nothing about it."
            )
        elif gain < max(WORTH, SURE * error):
            yield (
                f"Output {name} does not clearly beat a constant: {gain:+.3f} ± {error:.3f} nats a "
                "value. The inputs may say little about it, or the rows are too few to tell."
            )


def kept(frame: pd.DataFrame, rows: str) -> Scored:
    """The table as a model keeps it.

    Args:
        frame: of `compare` or of `leave_one_out`.
        rows: which rows it is about, in words.
    """
    numbers = frame[list(COLUMNS)].astype(float).to_numpy().tolist()
    table = {
        str(name): [value if np.isfinite(value) else None for value in row]  # JSON has no inf
        for name, row in zip(frame.index, numbers, strict=True)
    }
    return Scored(rows, table)


def flat_outputs(fitted: Fitted) -> set[str]:
    """The outputs that do not depend on the inputs: all of their functions are flat."""
    known, owner = mixing(fitted), _owners(fitted)
    if len(known.used) > len(known.mixed):  # slopes, which every function has
        return set()
    return {name for name in fitted.likelihoods if known.flat[owner == name].all()}


def _owners(fitted: Fitted) -> np.ndarray:
    """The output of each parameter function."""
    return np.array([name for name, one in fitted.likelihoods.items() for _ in one.latent])


def sentences(fitted: Fitted) -> dict[str, str]:
    """For each output, by how much it beats its constant and what sharing is worth, in words.

    They come from the latest table of baselines or, without one, from the bounds by which latents
    were chosen.
    """
    scored, gains = fitted.record.scored, fitted.sharing
    if scored is None and not (fitted.record.shared and len(fitted.likelihoods) > 1):
        return {}
    correlation, owner, flat = mixing(fitted).correlation, _owners(fitted), flat_outputs(fitted)
    result = {}
    for name, likelihood in fitted.likelihoods.items():
        own = owner == name
        if name in flat:
            result[name] = f"{name} does not depend on the inputs, as far as the data show"
        elif scored is not None and name in scored.table:
            row = dict(zip(COLUMNS, scored.table[name], strict=True))
            average = "frequencies" if likelihood.levels else "average"
            words = _over_constant(name, average, row)
            if words is not None:
                shares = bool(correlation[own][:, ~own].any())
                several = len(fitted.likelihoods) > 1 and not fitted.untried
                result[name] = words + (_over_alone(row, shares) if several else "")
        elif scored is None and gains is not None:
            gain = gains["gain"].to_dict()[name]
            result[name] = f"{name}: sharing is worth {gain:,.1f} nats in all, by the bounds"
    return result


def _over_constant(name: str, average: str, row: Mapping[str, float | None]) -> str | None:
    gain, error = row["over_constant"], row["over_constant_se"]
    if gain is None or error is None:
        return None
    much = f"{_rounded(abs(gain), error)} nats a value"
    if gain >= max(WORTH, SURE * error):
        return f"{name} beats its {average} by {much}"
    if gain < -SURE * error:
        return f"{name} is predicted worse than by its {average}, by {much}"
    if gain > SURE * error:
        return f"{name} beats its {average} by {much}, too little to matter"
    return f"{name} does not clearly beat its {average}: {_rounded(gain, error, '+')} nats a value"


def _over_alone(row: Mapping[str, float | None], shares: bool) -> str:
    gain, error = row["over_alone"], row["over_alone_se"]
    if gain is None or error is None:
        return ""
    if not shares:
        return "; it shares nothing"
    if gain >= max(WORTH, SURE * error):
        over, doubt = row["over_constant"] or 0.0, row["over_constant_se"] or 0.0
        beats = over >= max(WORTH, SURE * doubt)
        if beats and gain > over:
            return f"; alone it would not: sharing is worth {_rounded(gain, error)}"
        return f"; sharing is worth {_rounded(gain, error)}{' of that' * beats}"
    if max(abs(gain), error) < NONE:
        return "; sharing makes no difference"
    if abs(gain) < WORTH and abs(gain) > SURE * error:
        return f"; sharing makes a difference too small to matter ({_rounded(gain, error, '+')})"
    if gain < -SURE * error:
        return f"; sharing costs it {_rounded(-gain, error)}"
    return f"; sharing makes no clear difference ({_rounded(gain, error, '+')})"


def _rounded(value: float, error: float, sign: str = "") -> str:
    """A number with its standard error, both with as many digits as the error is known to."""
    digits = 2 if error >= 0.0095 else 3
    return f"{value:{sign}z.{digits}f} ± {error:.{digits}f}"  # z: no minus before zero


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """The table as text, with baselines that are known."""
    known = [kind for kind in BASELINES if frame[kind].notna().any()]
    table = frame[["values", "joint", *known]].copy()
    for column in ("joint", *known):
        table[column] = [_number(value, "{:.3f}") for value in frame[column]]
    for kind in known:
        gains = zip(frame[f"over_{kind}"], frame[f"over_{kind}_se"], strict=True)
        table[f"gain over {kind}"] = [
            f"{_number(gain, '{:+.3f}')} ± {_number(error, '{:.3f}')}" if gain == gain else ""
            for gain, error in gains
        ]
    return table


def _number(value: float, form: str) -> str:
    return "" if value != value else form.format(value)
