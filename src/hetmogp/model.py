"""HetMOGP, the estimator. It joins the other modules and computes nothing itself."""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, overload

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from . import distributed, forks
from .bound import Parameters, parameter_functions
from .columns import Column
from .data import Scaling
from .disk import Table
from .fitting import Checkpoints, Fit, Progress, Source, learn
from .inputs import grid, read_inputs, restored
from .kernels import Kernel
from .likelihoods import Likelihood
from .prediction import OutputPrediction, Prediction, latents_at
from .quadrature import Expectation, standard_nodes
from .session import session
from .summary import Summary
from .tables import Dataset, argument_values, name_outputs, read, same_index, split_outputs
from .variational import Factors

__all__ = ["HetMOGP", "independent"]

OPTIONS = {
    "prior": ("lmc", "independent"),
    "method": ("auto", "vem", "svi"),
    "bound": ("joint", "factorised"),
    "expectation": ("auto", "quadrature", "montecarlo"),
    "optimizer": ("adam", "adadelta"),
    "dtype": ("float64", "float32"),
}


class Learned(NamedTuple):
    """What a fitted model consists of, on standardised inputs, its outputs in order of their names.

    Attributes:
        names: the outputs, in the user's order.
        columns: the inputs.
        scaling: of the inputs.
        parameters: the model.
        q: q(u).
        jitter: what is added to the diagonals of k(Z, Z).
    """

    names: list[str]
    columns: list[Column]
    scaling: Scaling
    parameters: Parameters
    q: Factors
    jitter: float

    @property
    def order(self) -> list[str]:
        """The outputs as they stand in `parameters`, so that the user's order changes nothing."""
        return sorted(self.names)


class HetMOGP(BaseEstimator):
    """A heterogeneous multi-output Gaussian process.

    Every parameter of every output's likelihood is a latent function of the inputs; all of them mix
    the same few latent Gaussian processes, so that a well-observed output informs the others.

    Args:
        likelihoods: one per output, as a list or as a dict by output name. "auto", for all or as an
            entry of the dict, lets `discover` choose.
        kernel: of the latents; one for all, or a list of one per latent. RBF by default.
        latents: Q, the number of latent processes. Those not needed end with weights near zero.
        rank: R_q, how many copies of each latent are mixed; one number or one per latent.
            `latents=1, rank=R` is the intrinsic coregionalisation model.
        inducing: how many inducing inputs (at most 100 by default); or where they are, as an array
            shared by the latents or a list of one per latent.
        prior: "lmc", or "independent" for one process per parameter function.
        method: "vem" (full batches), "svi" (mini-batches), or "auto" by the size of the data.
        bound: "joint", or "factorised" for the paper's product over parameter functions.
        expectation: "auto" uses closed forms where there are any; "quadrature" and "montecarlo"
            never do.
        batch_size: rows per output in a mini-batch.
        optimizer: "adam" or "adadelta", for mini-batches.
        natural_gradients: False learns q(u) by the same optimiser as the rest, as the paper did.
        learn_inducing: whether inducing inputs move.
        prune: with "vem", drop mixing weights that gain the bound less than one nat each, so that
            outputs share only what the data asks for.
        weight_scale: the width of a normal prior on the mixing weights, in units of each parameter
            function's typical spread (one on the scale of log odds and of logarithms, that of the
            values for a mean); None for no prior. Long runs of ones and of zeros are fitted best
            by weights without limit, which makes predictions overconfident; 1 keeps them sober.
        max_iter: the most rounds ("vem", 100) or steps ("svi", 5000). With "vem", 0 keeps the
            hyperparameters where they start and only finds q(u).
        tol: nats per observed value; a round ("vem", 1e-5) or a window of steps ("svi", 5e-4) that
            gains less is the sign of convergence.
        restarts: how many starts to try; the best bound is kept. One by default: in trials on the
            paper's problem all starts ended at the same bound.
        dtype: "float64" or "float32".
        seed: everything random follows from it.
        progress: whether to show a progress bar in a terminal or notebook.

    Attributes:
        elbo_: the evidence lower bound reached.
        history_: the bound after each round, or its mean over each window of steps. (Outputs with
            fewer than 20 values, or one repeated, add a prior on their constants to it, and
            `weight_scale` one on the weights.)
        converged_: whether the convergence rule was met.
        n_iter_: rounds or steps taken.
        method_: "vem" or "svi".
        discovery_: with "auto", what `discover` found.
        output_names_: the outputs, in order.
        likelihoods_: the fitted likelihoods by output name; `.constants` of each has what was
            learned besides functions, such as a noise scale.
        parameter_names_: the J parameter functions, as "output.parameter".
        kernels_: the Q fitted kernels, in the units of the inputs.
        weights_: the mixing weights W, (J, ΣR_q).
        constants_: the constants b, (J,).
        coregionalisation_: the matrices B_q, (Q, J, J).
        inducing_inputs_: Q arrays (M, p), in the units of the inputs.
        columns_: the inputs by name, and whether they are numbers, dates (in days) or labels.
        input_range_: the smallest and largest observed inputs, (2, p).
        n_features_in_: p, the number of inputs.
        n_observed_: how many values of each output were observed.
        n_sampled_: of a `Table`, how many rows the fit started from: scaling, inducing inputs,
            first constants and lengthscales, and `input_range_`, are theirs. None otherwise.

    Example:
        >>> import numpy as np
        >>> import hetmogp as hm
        >>> x = np.linspace(0.0, 1.0, 60)
        >>> Y = {"height": np.sin(6 * x), "high": (np.sin(6 * x) > 0).astype(float)}
        >>> Y["high"][20:40] = np.nan
        >>> model = hm.HetMOGP({"height": hm.Gaussian(), "high": hm.Bernoulli()}, latents=1)
        >>> pred = model.fit(x, Y).predict([0.1, 0.4, 0.7])
        >>> pred["high"].mean.round().tolist()
        [1.0, 1.0, 0.0]
    """

    def __init__(
        self,
        likelihoods: Any,
        *,
        kernel: Kernel | Sequence[Kernel] | None = None,
        latents: int = 3,
        rank: int | Sequence[int] = 1,
        inducing: Any = None,
        prior: Literal["lmc", "independent"] = "lmc",
        method: Literal["auto", "vem", "svi"] = "auto",
        bound: Literal["joint", "factorised"] = "joint",
        expectation: Expectation = "auto",
        batch_size: int = 500,
        optimizer: Literal["adam", "adadelta"] = "adam",
        natural_gradients: bool = True,
        learn_inducing: bool = True,
        prune: bool = True,
        weight_scale: float | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        restarts: int | None = None,
        dtype: Literal["float64", "float32"] = "float64",
        seed: int = 0,
        progress: bool = True,
    ):
        self.likelihoods = likelihoods
        self.kernel = kernel
        self.latents = latents
        self.rank = rank
        self.inducing = inducing
        self.prior = prior
        self.method = method
        self.bound = bound
        self.expectation = expectation
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.natural_gradients = natural_gradients
        self.learn_inducing = learn_inducing
        self.prune = prune
        self.weight_scale = weight_scale
        self.max_iter = max_iter
        self.tol = tol
        self.restarts = restarts
        self.dtype = dtype
        self.seed = seed
        self.progress = progress

    # -- learning ----------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        Y: Any = None,
        *,
        checkpoint: str | os.PathLike | None = None,
        every: int | None = None,
        resume: bool = False,
    ) -> Self:
        """Learn from data.

        Args:
            X: the inputs, (N, p), as an array or frame shared by all outputs, or a list or dict of
                one per output. Columns may be numbers, dates or labels. Or a `Table`, which has the
                outputs too.
            Y: the outputs, (N, D), as an array or frame, or a list or dict of one sequence per
                output. NaN, None and NA mean "not observed".
            checkpoint: a folder to keep the fit in on its way, the last three times; what was
                killed can then be taken up again, and ends where it would have ended.
            every: how many rounds ("vem", 1) or steps ("svi", 500) lie between two checkpoints.
            resume: go on from the latest checkpoint in the folder, if there is any.
        """
        forks.refuse()
        began = time.perf_counter()
        self._check_options()
        checkpoints = _checkpoints(checkpoint, every, resume)
        X, Y, source = self._sampled(X, Y)
        named = name_outputs(self._chosen(X, Y), Y)
        data = read(named, X, Y)
        if source is not None:
            source = Source(source.table, {name: source.observed[name] for name in named})
        for likelihood in data.likelihoods:
            standard_nodes(len(likelihood.latent), self.expectation)  # refuses what cannot be done
        for name, doubt in data.doubts():
            warnings.warn(f"output {name!r}: {doubt}", UserWarning, stacklevel=2)
        with session(self.dtype), Progress(self._shows) as progress:
            fit, scaling, self.method_ = learn(data, self, progress, checkpoints, source)
            self._keep(data, fit, scaling)
        self.n_sampled_ = None if source is None else len(X)
        if source is not None:
            self.n_observed_ = source.observed
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if isinstance(X, pd.DataFrame):
            self.feature_names_in_ = np.asarray([c.name for c in data.columns], dtype=object)
        self.fit_seconds_ = time.perf_counter() - began
        return self

    @property
    def _shows(self) -> bool:
        """Whether this process shows progress: of several only one does."""
        return self.progress and distributed.index() == 0

    def _sampled(self, X: Any, Y: Any) -> tuple[Any, Any, Source | None]:
        """X and Y themselves, or of a sample of the rows of a Table."""
        if not isinstance(X, Table):
            if Y is None:
                raise TypeError("fit needs X and Y, or a Table, which holds both")
            return X, Y, None
        if Y is not None:
            raise TypeError("a Table holds inputs and outputs: leave Y out")
        columns = X.columns
        if isinstance(self.likelihoods, Mapping):
            of = [one for one in self.likelihoods.values() if isinstance(one, Likelihood)]
            wanted = {
                *X.inputs,
                *map(str, self.likelihoods),
                *(c for one in of for c in one.beside),
            }
            columns = [name for name in columns if name in wanted]
        with Progress(self._shows) as bar:
            what = f"sampling {len(X):,} rows"
            sample = X.sample(columns, self.seed, lambda done: bar.update(what, done))
        rows = sample.rows
        return rows[X.inputs], rows.drop(columns=X.inputs), Source(X, sample.values)

    def _chosen(self, X: Any, Y: Any) -> Any:
        """The likelihoods, those that are to be found ("auto") found by `discover`."""
        wanted = self.likelihoods
        if isinstance(wanted, str) and wanted == "auto":
            outputs = None
        elif isinstance(wanted, Mapping) and any(
            isinstance(of, str) and of == "auto" for of in wanted.values()
        ):
            outputs = [str(n) for n, of in wanted.items() if isinstance(of, str) and of == "auto"]
        else:
            return wanted
        from .discovery import Discovery, _names, discover, propose  # it fits models itself

        # Process 0 compares candidates and names the best; what they are each sees in its columns.
        table = distributed.from_first(
            lambda: discover(X, Y, outputs=outputs, seed=self.seed, progress=self.progress).table
        )
        columns, best = split_outputs(_names(Y), Y), table[table["recommended"]]
        likelihoods = {}
        for name, said in zip(best["output"], best["likelihood"], strict=True):
            named = {repr(of): of for of in propose(columns[name]).candidates}
            if said not in named:
                raise distributed.GroupError(
                    f"output {name!r} is {said} for process 0, which it cannot be for this one: "
                    "all processes must be given the same X and Y"
                )
            likelihoods[name] = named[said]
        self.discovery_ = found = Discovery(table, likelihoods)
        for name, why in found.left_out.items():
            warnings.warn(f"output {name!r} is left out: {why}", UserWarning, stacklevel=3)
        if outputs is None:
            chosen = dict(found)
        else:
            every = {str(name): found.get(str(name), of) for name, of in wanted.items()}
            chosen = {name: of for name, of in every.items() if name not in found.left_out}
        if not chosen:
            raise ValueError(f"Y has no column that can be modelled: {found.left_out}")
        return chosen

    def _check_options(self) -> None:
        for option, allowed in OPTIONS.items():
            value = getattr(self, option)
            if value not in allowed:
                raise ValueError(f"{option} must be one of {list(allowed)}, not {value!r}")
        least_of = {"latents": 1, "batch_size": 1, "seed": 0, "max_iter": 0, "restarts": 1}
        for option, least in least_of.items():
            value = getattr(self, option)
            if value is None and option in ("max_iter", "restarts"):
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise ValueError(f"{option} must be a whole number >= {least}, not {value!r}")
        for option in ("tol", "weight_scale"):
            value = getattr(self, option)
            real = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not (real and 0 < value < np.inf):
                raise ValueError(f"{option} must be a positive number, not {value!r}")

    def _keep(self, data: Dataset, fit: Fit, scaling: Scaling) -> None:
        """Store what was learned and how it went."""
        # NumPy arrays keep their precision outside the session and pickle plainly.
        parameters, q = jax.tree.map(np.asarray, (fit.parameters, fit.q))
        self._hold(Learned(data.names, data.columns, scaling, parameters, q, fit.jitter))
        seen = dict(zip(data.names, data.observed(), strict=True))
        rows = [X[s] for X, s in zip(data.inputs, seen.values(), strict=True)]
        self.n_observed_ = {name: int(s.sum()) for name, s in seen.items()}
        self.input_range_ = np.stack(
            [
                np.min([X.min(axis=0) for X in rows], axis=0),
                np.max([X.max(axis=0) for X in rows], axis=0),
            ]
        )
        self.elbo_ = fit.bound
        self.history_ = np.asarray(fit.history)
        self.converged_ = fit.converged
        self.interrupted_ = fit.interrupted
        self.n_iter_ = fit.iterations
        if not (fit.converged or fit.interrupted) and self.max_iter is None:
            warnings.warn(
                f"no convergence in {fit.iterations} iterations; raise max_iter, or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _hold(self, learned: Learned) -> None:
        """Show what was learned, in the user's order and units."""
        self._learned = learned
        names, scaling, prior = learned.names, learned.scaling, learned.parameters.prior
        slices = dict(zip(learned.order, learned.parameters.slices, strict=True))
        fitted = dict(zip(learned.order, learned.parameters.likelihoods, strict=True))
        f = np.concatenate([np.r_[slices[name]] for name in names])
        self.output_names_ = list(names)
        self.likelihoods_ = {name: fitted[name] for name in names}
        self.parameter_names_ = [f"{n}.{p}" for n in names for p in fitted[n].latent]
        self.weights_ = np.asarray(prior.W)[f]
        self.constants_ = np.asarray(prior.b)[f]
        self.__dict__.pop("coregionalisation_", None)  # of an earlier fit
        self.kernels_ = tuple(k.rescaled(scaling.scale, scaling.centre) for k in prior.kernels)
        self.inducing_inputs_ = [scaling.undo(Z) for Z in np.asarray(prior.Z)]
        self.columns_ = list(learned.columns)
        self.n_features_in_ = len(learned.columns)

    @cached_property
    def coregionalisation_(self) -> np.ndarray:
        """The matrices B_q, (Q, J, J), made when first asked for: J may be large."""
        check_is_fitted(self, "elbo_")
        ends = np.cumsum(self._learned.parameters.prior.ranks)[:-1]
        return np.stack([A @ A.T for A in np.split(self.weights_, ends, axis=1)])

    # -- prediction --------------------------------------------------------------------------------

    def _fitted(self) -> tuple[Parameters, Factors]:
        check_is_fitted(self, "elbo_")
        return jax.tree.map(jnp.asarray, (self._learned.parameters, self._learned.q))

    def _latents_at(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        parameters, q = self._fitted()
        return latents_at(parameters, q, self._learned.jitter, self._learned.scaling.apply(X))

    @overload
    def predict(
        self,
        X: Any,
        outputs: str | Sequence[str] | None = ...,
        given: Mapping[str, Any] | pd.DataFrame | None = ...,
        *,
        out: None = ...,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        X: Table,
        outputs: str | Sequence[str] | None = ...,
        given: None = ...,
        *,
        out: str | os.PathLike,
    ) -> Path: ...

    def predict(
        self,
        X: Any,
        outputs: str | Sequence[str] | None = None,
        given: Mapping[str, Any] | pd.DataFrame | None = None,
        *,
        out: str | os.PathLike | None = None,
    ) -> Prediction | Path:
        """Predictive distributions at new inputs.

        Args:
            X: the inputs, (N, p); a frame must have the columns of the fit. Or a `Table`, whose
                predictions are written to `out`.
            outputs: the outputs to predict; all of them by default.
            given: the columns that likelihoods take beside their outputs, by name: a number for
                all rows or one per row, such as `{"population": 1000}`. What is not given is one:
                a rate per unit of exposure, a proportion of one trial. A `Table` has its own.
            out: for a `Table`, the Parquet file to write inputs and predictions to (a folder of
                them by several processes); its path is what is returned then.
        """
        check_is_fitted(self, "elbo_")
        if isinstance(X, Table) != (out is not None):
            raise TypeError("out= is where the predictions of a Table go, and a Table needs it")
        if out is not None:
            from .bulk import predict  # it predicts part by part, so it needs this class

            return predict(self, X, outputs, out)
        table, _ = read_inputs(X, self.columns_)
        chosen = [outputs] if isinstance(outputs, str) else list(outputs or self.output_names_)
        for name in chosen:
            if name not in self.likelihoods_:
                raise ValueError(f"no output {name!r}; there are {', '.join(self.output_names_)}")
        index = X.index if isinstance(X, pd.DataFrame | pd.Series) else None
        same_index(chosen[0], X, given, "of given")
        return self._predict(table, chosen, self._given(given, len(table)), index)

    def _given(self, given: Any, N: int) -> dict[str, dict[str, np.ndarray]]:
        """The arguments of each output at N inputs, from columns that the user gave."""
        if given is not None and not isinstance(given, Mapping | pd.DataFrame):
            raise TypeError(
                "given must be a dict from column names to a number or one number per row, or a "
                f"frame, not {type(given).__name__}"
            )
        table = {} if given is None else {str(key): given[key] for key in given}
        needed = {c for of in self.likelihoods_.values() for c in dict(of.columns).values()}
        unknown = [] if isinstance(given, pd.DataFrame) else sorted(set(table) - needed)
        if unknown:
            known = f"those in use are {sorted(needed)}" if needed else "no output takes any"
            raise ValueError(f"given has {unknown[0]!r}, which no likelihood asks for; {known}")
        result = {}
        for name, of in self.likelihoods_.items():
            result[name] = {
                argument: argument_values(
                    *(name, argument, column, of.arguments[argument]),
                    np.full(N, table[column]) if np.ndim(table[column]) == 0 else table[column],
                    N,
                )
                for argument, column in of.columns
                if column in table
            }
        return result

    def _predict(
        self,
        table: np.ndarray,
        outputs: Sequence[str],
        given: Mapping[str, Mapping[str, np.ndarray]],
        index: pd.Index | None = None,
    ) -> Prediction:
        with session(self.dtype):
            parameters, _ = self._fitted()
            latents = self._latents_at(table)
            return Prediction(
                parameters, self._learned.order, outputs, latents, given, index, self.dtype
            )

    def parameter_functions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (N, J) and covariance (N, J, J) of the parameter functions at each row.

        In the order of `parameter_names_`, before their links.
        """
        check_is_fitted(self, "elbo_")
        table, _ = read_inputs(X, self.columns_)
        with session(self.dtype):
            mean, variance = self._latents_at(table)
            f, cov = parameter_functions(
                *map(jnp.asarray, (self.weights_, self.constants_, mean, variance))
            )
            return np.asarray(f), np.asarray(cov)

    def latent_functions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent functions at each row, both (N, ΣR_q)."""
        check_is_fitted(self, "elbo_")
        table, _ = read_inputs(X, self.columns_)
        with session(self.dtype):
            return self._latents_at(table)

    # -- scoring -----------------------------------------------------------------------------------

    def _read(self, X: Any, Y: Any) -> Dataset:
        """Inputs and outputs, as for `fit`, that suit this model."""
        check_is_fitted(self, "elbo_")
        return read(self.likelihoods_, X, Y, self.columns_)

    def _at_observations(
        self, data: Dataset
    ) -> dict[str, tuple[OutputPrediction, np.ndarray, np.ndarray]]:
        """Of each output with any: its prediction at its observed values, those, and their rows."""
        result = {}
        for name, inputs, y, given in zip(
            data.names, data.inputs, data.values, data.given, strict=True
        ):
            seen = ~np.isnan(y)
            if seen.any():
                here = {argument: column[seen] for argument, column in given.items()}
                prediction = self._predict(inputs[seen], [name], {name: here})[name]
                values = prediction.likelihood.decode(y[seen])
                result[name] = prediction, values, np.flatnonzero(seen)
        return result

    def _log_densities(self, X: Any, Y: Any) -> dict[str, np.ndarray]:
        """The log predictive density of every observed value, by output."""
        found = self._at_observations(self._read(X, Y))
        return {
            name: found[name][0].log_prob(found[name][1]) if name in found else np.empty(0)
            for name in self.output_names_
        }

    def nlpd(self, X: Any, Y: Any = None) -> dict[str, float]:
        """Negative log predictive density: the mean over observed values, per output.

        "global" is the sum over the outputs. An output with nothing observed has NaN. X may be a
        `Table`, which has the outputs too.
        """
        if isinstance(X, Table):
            from .bulk import nlpd

            check_is_fitted(self, "elbo_")
            return nlpd(self, X)
        densities = self._log_densities(X, Y)
        found = {n: float(-np.mean(d)) if d.size else float("nan") for n, d in densities.items()}
        return {**found, "global": sum(found.values())}

    def score(self, X: Any, Y: Any) -> float:
        """The mean log predictive density over all observed values; higher is better."""
        densities = np.concatenate(list(self._log_densities(X, Y).values()))
        if not densities.size:
            raise ValueError("Y has no observed value to score")
        return float(np.mean(densities))

    def grid(self, n: int = 100) -> pd.DataFrame:
        """Inputs to predict at: n values per input over the range of the data, and every label."""
        check_is_fitted(self, "elbo_")
        return restored(grid(self.columns_, self.input_range_, n), self.columns_)

    # -- showing and keeping -----------------------------------------------------------------------

    def summary(self) -> Summary:
        """Outputs, parameter functions, latents and what they share, as tables; print it."""
        check_is_fitted(self, "elbo_")
        return Summary(self)

    def _repr_html_(self) -> str:
        """In notebooks: the summary once fitted, scikit-learn's diagram before."""
        return self.summary()._repr_html_() if hasattr(self, "elbo_") else estimator_html_repr(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted model to one file, which `hetmogp.load` reads; see `storage`."""
        from .storage import save  # it rebuilds models, so it needs this class

        save(self, path)


def independent(likelihoods: Any, **options: Any) -> HetMOGP:
    """The baseline: one Gaussian process per parameter function, nothing shared (chained GPs).

    Takes the arguments of `HetMOGP`; `latents` and `rank` have no meaning here.
    """
    return HetMOGP(likelihoods, **{**options, "prior": "independent"})


def _checkpoints(
    folder: str | os.PathLike | None, every: int | None, resume: bool
) -> Checkpoints | None:
    """Where a fit is to be kept on its way, from the arguments of `fit`."""
    if folder is None:
        if every is not None or resume:
            raise ValueError("every and resume are about checkpoints: name a folder by checkpoint=")
        return None
    if every is not None and (not isinstance(every, Integral) or every < 1):
        raise ValueError(f"every must be a whole number >= 1, not {every!r}")
    return Checkpoints(Path(folder), every, resume)
