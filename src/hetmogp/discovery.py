"""Which likelihood suits an output: read its column, try what it admits, choose by held-out data.

`propose` looks at the values alone (type, support, ties, zeros, tails) and lists the likelihoods
under which they are possible and plausible. `discover` fits each of these to some of the rows, one
output at a time, and compares the log density of the others.
"""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import likelihoods as families
from .distributed import GroupError, alone, from_first
from .fitted import fit
from .fitting import Options, Progress
from .inputs import restored
from .kernels import RBF
from .likelihoods import Likelihood
from .session import session
from .tables import RESERVED, split, split_outputs

__all__ = ["Discovery", "Proposal", "choose", "discover", "propose", "small_fit"]

TRAIN, TEST = 500, 1000  # rows at most
INDUCING = 25
LARGEST_COUNT = 10_000  # larger whole numbers are taken for measurements
FEWEST = 20  # with fewer observed values candidates are not compared
FEW = 6  # so many different whole numbers may be the codes of classes
MANY_CLASSES = 50
CLOSE = 0.01  # nats per value: a simpler likelihood this near the best one is preferred

REAL = (families.Gaussian(), families.HetGaussian(), families.StudentT(), families.HetStudentT())
POSITIVE = (
    families.Exponential(),
    families.LogNormal(),
    families.Gamma(),
    families.Weibull(),
    families.LogLogistic(),
)


class Proposal(NamedTuple):
    """What a column looks like, in words, and the likelihoods it admits (none: not an output)."""

    seen: str
    candidates: tuple[Likelihood, ...]


def propose(column: Any) -> Proposal:
    """Read one column of values; missing ones are ignored."""
    series = column if isinstance(column, pd.Series) else pd.Series(column)
    values = series.dropna()
    if not len(values):
        return Proposal("no observed value", ())
    if isinstance(values.dtype, pd.CategoricalDtype):
        ordered = values.dtype.ordered
        present = [label for label in values.dtype.categories if (values == label).any()]
        return _labels(values, present if ordered else None)
    if pd.api.types.is_datetime64_any_dtype(values) or pd.api.types.is_timedelta64_dtype(values):
        return Proposal("dates or times, which are inputs rather than outputs", ())
    if any(isinstance(value, date | time | complex) for value in values):
        return Proposal("dates, times or complex numbers, which cannot be outputs", ())
    if any(isinstance(value, list | tuple | dict | set | np.ndarray) for value in values):
        return Proposal("collections, where an output has one value a row", ())
    if pd.api.types.is_bool_dtype(values):
        return Proposal("True and False", (families.Bernoulli(),))
    try:
        if any(isinstance(value, str) for value in values):
            raise ValueError
        numbers = values.to_numpy(dtype=float)
    except (TypeError, ValueError):
        return _labels(values)
    if not np.isfinite(numbers).all():
        return Proposal("infinite values", ())
    return _numbers(numbers)


def _labels(values: pd.Series, in_order: list[Any] | None = None) -> Proposal:
    distinct = values.nunique()
    if distinct == 1:
        return Proposal(f"one label only, {values.iloc[0]!r}", ())
    if distinct > min(MANY_CLASSES, len(values) / 3):
        return Proposal(f"{distinct} different labels: names or text rather than classes", ())
    if in_order:
        return Proposal(f"{distinct} classes in order", (families.Ordinal(in_order),))
    return Proposal(f"{distinct} classes without an order", (families.Categorical(),))


def _numbers(y: np.ndarray) -> Proposal:
    distinct, counts = np.unique(y, return_counts=True)
    low, high = distinct[0], distinct[-1]
    if len(distinct) == 1:
        return Proposal(f"one value only, {low:g}", ())
    if set(distinct) <= {0.0, 1.0}:
        return Proposal("0 and 1", (families.Bernoulli(),))
    if len(distinct) == len(y) == high - low + 1 and len(y) >= FEWEST:
        return Proposal(f"each of the numbers from {low:g} to {high:g} once: a row number", ())
    if len(distinct) == 2:
        return Proposal(f"two values, {low:g} and {high:g}", (families.Categorical(),))
    if np.all(y == np.floor(y)) and low >= 0 and high <= LARGEST_COUNT:
        return _whole(y, distinct, counts)
    return _continuous(y, distinct, counts)


def _whole(y: np.ndarray, distinct: np.ndarray, counts: np.ndarray) -> Proposal:
    low, high, zeros = int(distinct[0]), int(distinct[-1]), float(np.mean(y == 0))
    seen = f"whole numbers from {low} to {high}" + (f", {zeros:.1%} of them zero" if zeros else "")
    candidates: tuple[Likelihood, ...] = (families.Poisson(), families.NegativeBinomial())
    if zeros:
        candidates += (families.ZeroInflatedPoisson(), families.ZeroInflatedNegativeBinomial())
    # Counts thin out towards their largest value; scales of classes and of trials need not.
    piled = len(distinct) <= 2 * FEW and counts[-1] >= 0.25 * counts.max()
    if piled:
        seen += f", {counts[-1] / len(y):.0%} at the top"
        candidates += (families.Binomial(trials=high),)
    if piled or len(distinct) <= FEW:
        candidates += (families.Ordinal(), families.Categorical())
    return Proposal(seen, candidates)


def _continuous(y: np.ndarray, distinct: np.ndarray, counts: np.ndarray) -> Proposal:
    low, high = distinct[0], distinct[-1]
    most = int(np.argmax(counts))
    tied = counts[most] / len(y)
    ties = f", {tied:.1%} of them exactly {distinct[most]:g}" if tied > 0.05 else ""
    if low >= 0 and high <= 1:
        at_end = float(np.mean((y == 0) | (y == 1)))
        if at_end:
            seen = f"numbers from 0 to 1, {at_end:.1%} of them at an end"
            return Proposal(seen, (families.ZeroOneInflatedBeta(),))
        bounded: tuple[Likelihood, ...] = (families.LogitNormal(), families.Beta())
        narrow = high - low < 0.5
        return Proposal(
            f"numbers between 0 and 1{ties}", (*REAL[:2], *bounded) if narrow else bounded
        )
    kurtosis = float(np.mean((y - y.mean()) ** 4) / np.var(y) ** 2)
    tails = f", with long tails (kurtosis {kurtosis:.0f})" if kurtosis > 6 else ""
    if low > 0:
        variation = np.std(y) / np.mean(y)
        skew = float(np.mean((y - y.mean()) ** 3) / np.std(y) ** 3)
        seen = f"positive numbers, {low:g} to {high:g}{ties}"
        if variation < 0.15:
            return Proposal(f"{seen}, far from zero for their spread{tails}", REAL)
        if variation > 0.5 or skew > 1:
            return Proposal(f"{seen}, skewed (skewness {skew:.1f})", POSITIVE)
        return Proposal(seen, (*REAL[:2], *POSITIVE[1:]))
    if low == 0:
        zeros = float(np.mean(y == 0))
        return Proposal(f"numbers >= 0, {zeros:.1%} of them zero", (families.Exponential(), *REAL))
    seen = f"real numbers, {low:g} to {high:g}{ties}{tails}"
    if low >= -np.pi and high <= np.pi and high - low > 5.0:
        return Proposal(f"{seen}, as angles in radians have", (families.VonMises(), *REAL))
    return Proposal(seen, REAL)


class Discovery(dict[str, Likelihood]):
    """The recommended likelihood of every output that can be modelled, by name.

    Attributes:
        table: one row per output and candidate: the mean log density of held-out values, how much
            less than the best that is with its standard error, whether it is the recommendation and
            why. An output that cannot be modelled has one row without a likelihood.
    """

    def __init__(self, table: pd.DataFrame, likelihoods: Mapping[str, Likelihood]):
        super().__init__(likelihoods)
        self.table = table

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
        return "\n".join([text, "", *reasons])

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

    At most 500 rows are fitted and 1,000 others scored, so it takes seconds per candidate, most of
    them for compiling.

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
    raw, tables = split(names, X, Y)
    frames = {name: restored(*tables[name]) for name in chosen}
    proposals = {name: propose(raw[name]) for name in chosen}
    if RESERVED in proposals:
        proposals[RESERVED] = Proposal("a name that scores use: rename the column", ())
    trials = [
        (name, candidate)
        for name, (_, candidates) in proposals.items()
        for candidate in candidates
        if len(candidates) > 1 and pd.Series(raw[name]).notna().sum() >= FEWEST
    ]
    densities: dict[str, list[np.ndarray | None]] = {name: [] for name in chosen}
    # Most of the time is the compiler's, so two fits at once pay; the session around them holds
    # BLAS to one thread until the last has ended.
    with Progress(progress) as bar, session(), alone(), ThreadPoolExecutor(2) as pool:
        scores = pool.map(
            lambda trial: _held_out(trial[1], frames[trial[0]], raw[trial[0]], seed), trials
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
    return Discovery(pd.DataFrame(rows), likelihoods)


def choose(
    likelihoods: Any, X: Any, Y: Any, *, seed: int = 0, progress: bool = True
) -> tuple[Any, Discovery | None]:
    """The likelihoods of a model, "auto" replaced by what `discover` recommends.

    Of several processes the first compares candidates and names the best; what they are each sees
    in its own columns.

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
        candidates = {repr(one): one for one in propose(columns[name]).candidates}
        if said not in candidates:
            raise GroupError(
                f"output {name!r} is {said} for process 0, which it cannot be for this one: "
                "all processes must be given the same X and Y"
            )
        recommended[name] = candidates[said]
    discovery = Discovery(table, recommended)
    for name, why in discovery.left_out.items():
        warnings.warn(f"output {name!r} is left out: {why}", UserWarning, stacklevel=3)
    every = {str(name): one for name, one in wanted.items()} | recommended
    chosen = {name: one for name, one in every.items() if name not in discovery.left_out}
    if not chosen:
        raise ValueError(f"Y has no column that can be modelled: {discovery.left_out}")
    return chosen, discovery


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


def _held_out(likelihood: Likelihood, X: pd.DataFrame, y: Any, seed: int) -> np.ndarray | None:
    """The log density of each held-out value after a small fit; nothing where the fit fails."""
    series = y if isinstance(y, pd.Series) else pd.Series(y)
    seen = np.flatnonzero(series.notna().to_numpy())
    shuffled = np.random.default_rng(seed).permutation(seen)
    train = shuffled[: min(TRAIN, max(1, int(0.6 * len(shuffled))))]
    test = shuffled[len(train) :][:TEST]
    if likelihood.labelled and not likelihood.levels:
        likelihood = likelihood.with_classes(sorted(set(series.iloc[seen].tolist())))
    rows, values = X.iloc[train], {"y": series.iloc[train].tolist()}
    try:
        with session():  # one is of its thread alone
            fitted = fit({"y": likelihood}, rows, values, small_fit(likelihood, rows, seed))
        density = fitted.predict(X.iloc[test])["y"].log_prob(series.iloc[test].tolist())
    except ArithmeticError:
        return None
    return density if np.isfinite(density).all() else None


def small_fit(likelihood: Likelihood, X: pd.DataFrame | np.ndarray, seed: int = 0) -> Options:
    """How each candidate is fitted: one process per parameter function, three for many."""
    table = pd.DataFrame(X)
    many = table.select_dtypes(["number", "datetime", "datetimetz", "timedelta"]).shape[1] > 3
    return Options(
        kernel=RBF(ard=False) if many else None,
        prior="independent" if len(likelihood.latent) <= 3 else "lmc",
        prune=False,
        inducing=min(INDUCING, len(table.drop_duplicates())),
        learn_inducing=False,
        method="vem",
        q="factorised",
        max_iter=10,
        tol=1e-4,
        seed=seed,
        progress=False,
    )


def _judge(
    proposal: Proposal, densities: Sequence[np.ndarray | None]
) -> tuple[Likelihood | None, list[dict[str, Any]]]:
    """The recommendation for one output, and its rows of the table."""
    seen, candidates = proposal

    def row(one: Likelihood | None, scores: Sequence[float] = (np.nan,) * 3, why: str = "") -> dict:
        said = "" if one is None else repr(one)
        numbers = dict(zip(("log_density", "behind", "error"), scores, strict=True))
        recommended = bool(why) and one is not None
        return {"likelihood": said, **numbers, "recommended": recommended, "reason": why}

    if not candidates:
        return None, [row(None, why=seen)]
    scored = [(c, d) for c, d in zip(candidates, densities, strict=False) if d is not None]
    if not scored:
        only = "" if len(candidates) == 1 else "; too few values, or too odd, to compare candidates"
        return candidates[0], [row(candidates[0], why=f"{seen}{only}")]
    means = [float(np.mean(density)) for _, density in scored]
    top = int(np.argmax(means))
    gaps = [scored[top][1] - density for _, density in scored]
    behind = [float(np.mean(gap)) for gap in gaps]
    errors = [float(np.std(gap) / np.sqrt(len(gap))) for gap in gaps]
    near = [i for i in range(len(scored)) if behind[i] <= min(CLOSE, 2.0 * errors[i])]
    pick = min(near, key=lambda i: (_parameters(scored[i][0]), behind[i]))
    ranking = sorted(range(len(scored)), key=behind.__getitem__)
    second = [i for i in ranking if i != pick][:1]
    why = f"{seen}; {means[pick]:.3f} nats per held-out value"
    if pick != top:
        why += f", as good as {scored[top][0]!r} and simpler"
    elif second:
        why += f", {behind[second[0]]:.3f} more than {scored[second[0]][0]!r}"
    return scored[pick][0], [
        row(scored[i][0], (means[i], behind[i], errors[i]), why if i == pick else "")
        for i in ranking
    ]


def _parameters(likelihood: Likelihood) -> tuple[int, int]:
    """How many functions and constants a likelihood has to learn; classes come last, as equals."""
    if likelihood.labelled:
        return MANY_CLASSES, 0
    return len(likelihood.latent), len(likelihood.free)
