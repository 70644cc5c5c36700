"""Which likelihood suits an output: read its column, try what it admits, choose by held-out data.

`proposals` looks at the values alone and lists the likelihoods under which they are possible and
plausible. `discover` tries each of these on some of the rows, one output at a time and several
times, and compares the log density of the others.
"""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .baselines import compare
from .distributed import GroupError, alone, from_first
from .fitted import Fitted, fit
from .fitting import Options, Progress
from .inputs import restored
from .left_out import leave_one_out
from .likelihoods import Likelihood
from .proposals import FEWEST, Proposal, codes, propose, together
from .session import session
from .tables import RESERVED, names_from, observe, split, split_outputs
from .trials import cross_fitted, features

__all__ = ["Discovery", "Proposal", "choose", "discover", "no_better_than_constants", "propose"]

TRAIN, TEST = 500, 1000  # rows at most
MANY_CLASSES = 50
CHECK = 400  # rows that are fitted, and as many scored, to check a model
CHECKED = 100  # rows from which on some are held out for that
WORSE = 0.005  # nats per value, at least: how far behind a constant is worth a warning
NOTHING = 0.003  # nats per value that are no difference
CLOSE = 0.01  # how far behind a simpler likelihood may be, within two standard errors
CLEAR = 0.05  # how far behind a more fitting one may be, within two standard errors


class Discovery(dict[str, Likelihood]):
    """The recommended likelihood of every output that can be modelled, by name.

    Attributes:
        table: one row per output and candidate: the mean log density of held-out values, how far
            that is behind the best and its standard error, whether the candidate is recommended,
            and why. An output that cannot be modelled has one row without a likelihood.
        notes: columns that seem to belong together, and values that may be codes for missing
            ones, in words; nothing is done about them.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        likelihoods: Mapping[str, Likelihood],
        notes: Sequence[str] = (),
    ):
        super().__init__(likelihoods)
        self.table, self.notes = table, list(notes)

    @property
    def likelihoods(self) -> dict[str, Likelihood]:
        """The recommendations, as a dict for `HetMOGP`."""
        return dict(self)

    @property
    def left_out(self) -> dict[str, str]:
        """The outputs that cannot be modelled, and why."""
        rows = self.table[self.table["likelihood"] == ""]
        return dict(zip(rows["output"], rows["reason"], strict=True))

    def __repr__(self) -> str:
        shown = self.table.assign(
            recommended=np.where(self.table["recommended"], "*", ""),
            log_density=self.table["log_density"].map(_three),
            behind=self.table["behind"].map(_three),
            error=self.table["error"].map(_three),
        )
        text = (
            shown.drop(columns="reason").rename(columns={"recommended": ""}).to_string(index=False)
        )
        chosen = self.table[self.table["recommended"] | (self.table["likelihood"] == "")]
        reasons = [f"{row.output}: {row.reason}" for row in chosen.itertuples()]
        return "\n".join([text, "", *reasons, *self.notes])

    def _repr_html_(self) -> str:
        return self.table.to_html(index=False, na_rep="", float_format="{:.3f}".format)


def _three(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}" if abs(value) < 1e5 else f"{value:.1e}"


def discover(
    X: Any,
    Y: Any,
    *,
    outputs: str | Sequence[str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Discovery:
    """Find a likelihood for each column of Y.

    Each candidate is fitted four times, to 500 of at most 1,500 rows, and scored on the others.
    That takes about a second per candidate, most of it for compiling.

    Args:
        X: the inputs, as for `HetMOGP.fit`.
        Y: the outputs, as for `HetMOGP.fit`.
        outputs: the columns to look at; all by default.
        seed: of the choice of rows.
        progress: whether to show a progress bar in a terminal or notebook.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = np.linspace(0, 1, 80)
        >>> Y = {"on": (rng.uniform(size=80) < x).astype(int), "none": [np.nan] * 80}
        >>> found = discover(x, Y)
        >>> found.likelihoods, found.left_out
        ({'on': Bernoulli()}, {'none': 'no observed value'})
    """
    names = _names(Y)
    chosen = names if outputs is None else [outputs] if isinstance(outputs, str) else list(outputs)
    if not chosen:
        raise ValueError("Y has no column to look at" if outputs is None else "outputs is empty")
    for name in chosen:
        if name not in names:
            raise ValueError(f"Y has no column {name!r}; it has {', '.join(names)}")
    # Other columns of Y may come with these; they have no inputs of their own.
    raw, tables = split(chosen if isinstance(X, Mapping) else names, X, Y)
    proposals = {name: propose(raw[name], name) for name in chosen}
    if RESERVED in proposals:
        proposals[RESERVED] = Proposal("a name that scores use: rename the column", ())
    trials = [
        (name, candidate)
        for name, proposal in proposals.items()
        for candidate in proposal.candidates
        if len(proposal.candidates) > 1 and pd.Series(raw[name]).notna().sum() >= FEWEST
    ]
    densities: dict[str, list[np.ndarray | None]] = {name: [] for name in chosen}
    # Most of the time is the compiler's, so two fits at once pay; the session around them holds
    # BLAS to one thread until the last has ended.
    with Progress(progress) as bar, session(), alone(), ThreadPoolExecutor(2) as pool:
        scores = pool.map(
            lambda trial: _held_out(
                trial[1], proposals[trial[0]], tables[trial[0]], raw[trial[0]], seed
            ),
            trials,
        )
        try:
            for done, (name, candidate) in enumerate(trials):
                bar.update(f"{name} · {type(candidate).__name__}", done / len(trials))
                densities[name].append(next(scores))
        except BaseException:  # an interrupt waits for the fits under way, not for all
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    judged = {name: _judge(proposals[name], densities[name]) for name in chosen}
    rows = [{"output": name, **row} for name, (_, rows) in judged.items() for row in rows]
    likelihoods = {name: best for name, (best, _) in judged.items() if best is not None}
    return Discovery(pd.DataFrame(rows), likelihoods, _notes({n: raw[n] for n in chosen}))


def _notes(raw: Mapping[str, Any]) -> list[str]:
    """What columns say about each other, and which values may be codes."""
    columns = {name: pd.Series(one).reset_index(drop=True) for name, one in raw.items()}
    return codes(columns) + together(columns)


def choose(
    likelihoods: Any, X: Any, Y: Any, *, seed: int = 0, progress: bool = True
) -> tuple[Any, Discovery | None]:
    """The likelihoods of a model, "auto" replaced by what `discover` recommends.

    With several processes, the first compares the candidates and names the best. Each process
    makes the likelihoods of these names from its own columns.

    Args:
        likelihoods: as for `HetMOGP`.
        X: the inputs, as for `HetMOGP.fit`.
        Y: the outputs, as for `HetMOGP.fit`.
        seed: see `discover`.
        progress: see `discover`.

    Returns:
        The likelihoods, without the outputs that cannot be modelled, and what was found; the
        likelihoods themselves and None where "auto" is not among them.
    """
    if isinstance(likelihoods, list | tuple) and any(map(_is_auto, likelihoods)):
        likelihoods = dict(zip(names_from(Y, likelihoods), likelihoods, strict=True))
    wanted = likelihoods if isinstance(likelihoods, Mapping) else {}
    outputs = [str(name) for name, one in wanted.items() if _is_auto(one)]
    if not outputs and not _is_auto(likelihoods):
        return likelihoods, None
    table = from_first(
        lambda: discover(X, Y, outputs=outputs or None, seed=seed, progress=progress).table
    )
    columns, best = split_outputs(_names(Y), Y), table[table["recommended"]]
    recommended = {}
    for name, said in zip(best["output"], best["likelihood"], strict=True):
        candidates = {repr(one): one for one in propose(columns[name], name).candidates}
        if said not in candidates:
            raise GroupError(
                f"output {name!r} is {said} in process 0, but its values in this process do not "
                "allow that: all processes must be given the same X and Y"
            )
        recommended[name] = candidates[said]
    discovery = Discovery(table, recommended, _notes(columns))
    for name, why in discovery.left_out.items():
        warnings.warn(f"output {name!r} is left out: {why}", UserWarning, stacklevel=3)
    every = {str(name): one for name, one in wanted.items()} | recommended
    chosen = {name: one for name, one in every.items() if name not in discovery.left_out}
    if not chosen:
        raise ValueError(f"Y has no column that can be modelled: {discovery.left_out}")
    return chosen, discovery


def no_better_than_constants(
    likelihoods: Mapping[str, Likelihood], X: Any, Y: Any, options: Options, fitted: Fitted
) -> dict[str, float]:
    """The outputs that a model predicts worse than their constants would, and by how many nats.

    A small fit of the same model to some of the rows, drawn at random, is scored on others. With
    fewer than `CHECKED` rows, each value is left out in turn instead (`left_out`).

    Args:
        likelihoods: of each output of the model, by name.
        X: the inputs, as for `HetMOGP.fit`.
        Y: the outputs, as for `HetMOGP.fit`.
        options: of the model.
        fitted: the model.
    """
    _, tables = split(list(likelihoods), X, Y)
    N = min(len(table) for table, _ in tables.values())
    with alone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if N >= CHECKED:
            frame = _held_out_baselines(likelihoods, X, Y, options, _latents(options, fitted))
        elif fitted.record.method == "vem":
            frame = leave_one_out(fitted, X, Y, options.rules)
        else:
            frame = None
    if frame is None:
        return {}
    gains = frame.drop(index="global")[["over_constant", "over_constant_se"]].dropna()
    return {
        str(name): -gain
        for name, gain, error in gains.itertuples(name=None)
        if -gain > max(WORSE, error)
    }


def _latents(options: Options, fitted: Fitted) -> Any:
    """The number of latents as options name it, without those of effects and local ones."""
    if not options.chooses:
        return options.latents
    row = np.zeros((1, len(fitted.columns)))
    return sum(k.spanning(row) is None for k in fitted.posterior.prior.smooth) or "auto"


def _held_out_baselines(
    likelihoods: Mapping[str, Likelihood], X: Any, Y: Any, options: Options, latents: Any
) -> pd.DataFrame | None:
    """A small fit to some rows beside its baselines on others, for outputs that both have.

    None if no output has values in both.
    """
    names = list(likelihoods)
    raw, tables = split(names, X, Y)
    extra = [column for one in likelihoods.values() for column in one.extra_columns]
    if extra:  # then Y has columns by name
        raw |= split_outputs(extra, Y)
    series = {name: pd.Series(column).reset_index(drop=True) for name, column in raw.items()}
    order = {
        len(table): np.random.default_rng(options.seed).permutation(len(table))[: 2 * CHECK]
        for table, _ in tables.values()
    }

    def part(half: int) -> tuple[dict[str, pd.DataFrame], dict[str, list[Any]]]:
        """The first or the second half of the rows that were drawn."""
        rows = {name: np.array_split(order[len(tables[name][0])], 2)[half] for name in names}
        rows |= {c: rows[name] for name in names for c in likelihoods[name].extra_columns}
        values = {name: series[name].iloc[at].tolist() for name, at in rows.items()}
        return {name: restored(*tables[name]).iloc[rows[name]] for name in names}, values

    (some, known), (others, asked) = part(0), part(1)
    shared = len({id(table) for table, _ in tables.values()}) == 1
    kinds = {
        name: _with_labels(one, series[name])
        for name, one in likelihoods.items()
        if pd.Series(known[name]).notna().any() and pd.Series(asked[name]).notna().any()
    }
    if not kinds:
        return None
    small = replace(
        options,
        latents=latents,
        local=0,
        method="vem",
        inducing=min(25, min(map(len, known.values()))),
        learn_inducing=False,
        max_iter=8,
        prune=False,
        restarts=1,
        progress=False,
    )
    fitted = fit(kinds, some[names[0]] if shared else some, known, small)
    return compare(fitted, others[names[0]] if shared else others, asked)[0]


def _with_labels(likelihood: Likelihood, y: pd.Series) -> Likelihood:
    """A likelihood that knows all classes, of which some rows may not have every one."""
    if likelihood.labelled and not likelihood.levels:
        return likelihood.with_classes(sorted(set(y.dropna().tolist())))
    return likelihood


def _is_auto(likelihood: Any) -> bool:
    return isinstance(likelihood, str) and likelihood == "auto"


def _names(Y: Any) -> list[str]:
    if isinstance(Y, pd.DataFrame | Mapping):
        return [str(key) for key in (Y.columns if isinstance(Y, pd.DataFrame) else Y)]
    if isinstance(Y, pd.Series):
        return [str(Y.name) if Y.name is not None else "y0"]
    if isinstance(Y, list | tuple):
        D = (
            len(Y)
            if any(isinstance(column, list | tuple) or np.ndim(column) for column in Y)
            else 1
        )
    else:
        D = 1 if np.ndim(Y) == 1 else np.shape(Y)[1]
    return [f"y{d}" for d in range(D)]


def _held_out(
    candidate: Likelihood, proposal: Proposal, table: tuple[np.ndarray, list], y: Any, seed: int
) -> np.ndarray | None:
    """The log density of each value after small fits to others; None if a fit fails."""
    series = y if isinstance(y, pd.Series) else pd.Series(y)
    seen = np.flatnonzero(series.notna().to_numpy())
    rows = np.random.default_rng(seed).permutation(seen)[: TRAIN + TEST]
    candidate = _with_labels(candidate, series)
    step, width = proposal.step, 0.0
    if step is not None and not candidate.discrete:
        candidate, plain = candidate.rounded(step), candidate
        # A density, times the step, is about the probability that a rounded likelihood gives.
        width = np.log(step) if candidate is plain else 0.0
    X, columns = table
    with session():  # a session holds in its own thread only
        likelihood, numbers = observe("y", candidate, series.iloc[rows].tolist())
        phi = features(X[rows], columns, seed)
        scores = cross_fitted(likelihood, phi, numbers, TRAIN, seed)
    return None if scores is None else scores + width


def _judge(
    proposal: Proposal, tried: Sequence[np.ndarray | None]
) -> tuple[Likelihood | None, list[dict[str, Any]]]:
    """The recommendation for one output, and its rows of the table."""
    seen, candidates, _ = proposal

    def row(one: Likelihood | None, scores: Sequence[float] = (np.nan,) * 3, why: str = "") -> dict:
        said = "" if one is None else repr(one)
        numbers = dict(zip(("log_density", "behind", "error"), scores, strict=True))
        recommended = bool(why) and one is not None
        return {"likelihood": said, **numbers, "recommended": recommended, "reason": why}

    if not candidates:
        return None, [row(None, why=seen)]
    scored = [(c, d) for c, d in zip(candidates, tried, strict=False) if d is not None]
    if not scored:
        only = "" if len(candidates) == 1 else "; too few values, or too odd, to compare candidates"
        return candidates[0], [row(candidates[0], why=f"{seen}{only}")]
    means = [float(np.mean(density)) for _, density in scored]
    top = int(np.argmax(means))
    gaps = [scored[top][1] - density for _, density in scored]
    behind = [float(np.mean(gap)) for gap in gaps]
    errors = [float(np.std(gap) / np.sqrt(len(gap))) for gap in gaps]
    # Whole numbers are taken for counts, and positive numbers get a positive family, unless another
    # candidate is clearly better. Of those that are about as good, the simplest is recommended.
    whole, positive = candidates[0].discrete, seen.startswith("positive")
    odd = [not one.discrete if whole else positive and one.ends[0] != 0 for one, _ in scored]
    usual = [i for i in range(len(scored)) if not odd[i]]
    first = min(usual, key=behind.__getitem__, default=top)
    unclear = behind[first] <= min(CLEAR, max(NOTHING, 2.0 * errors[first]))
    pool = usual if usual and unclear else list(range(len(scored)))
    lead = min(pool, key=behind.__getitem__)
    near = [i for i in pool if _about_as_good(scored[lead][1] - scored[i][1])]
    pick = min(near, key=lambda i: (_parameters(scored[i][0]), behind[i]))
    ranking = sorted(range(len(scored)), key=behind.__getitem__)
    second = [i for i in ranking if i != pick][:1]
    why = f"{seen}; {means[pick]:.3f} nats per held-out value"
    if pick != top:
        why += f", as good as {scored[top][0]!r} and {'more fitting' if odd[top] else 'simpler'}"
    elif second:
        why += f", {behind[second[0]]:.3f} more than {scored[second[0]][0]!r}"
    if seen.startswith(("numbers >= 0", "whole numbers from 0")) and scored[pick][0].ends[0] < 0:
        why += "; it also allows values below zero, of which there are none"
    return scored[pick][0], [
        row(scored[i][0], (means[i], behind[i], errors[i]), why if i == pick else "")
        for i in ranking
    ]


def _about_as_good(gap: np.ndarray) -> bool:
    """Whether a gap in nats per value is small, and within two standard errors of zero."""
    error = float(np.std(gap) / np.sqrt(len(gap)))
    return float(np.mean(gap)) <= min(CLOSE, max(NOTHING, 2.0 * error))


def _parameters(likelihood: Likelihood) -> tuple[int, int]:
    """How many functions and constants a likelihood has to learn; classes come last, as equals."""
    if likelihood.labelled:
        return MANY_CLASSES, 0
    return len(likelihood.latent), len(likelihood.free)
