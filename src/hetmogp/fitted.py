"""A fitted model: what was learned, in the user's names and units, and what it answers."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from .columns import Column
from .data import Scaling
from .fitting import Checkpoints, Learned, Options, Progress, Source, grouped, learn
from .inputs import read_inputs
from .kernels import Kernel
from .likelihoods import Likelihood
from .marginal import most_likely
from .posterior import Posterior
from .prediction import Observed, Output, Prediction
from .priors import Functions, Latents
from .quadrature import standard_nodes
from .record import Record
from .session import session
from .tables import Dataset, argument_values, read, same_index

__all__ = ["Fitted", "fit"]


def fit(
    likelihoods: Mapping[str, Likelihood],
    X: Any,
    Y: Any,
    options: Options,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    source: Source | None = None,
) -> "Fitted":
    """Learn a model from data, within a session.

    Args:
        likelihoods: of each output, by name.
        X: the inputs, as for `HetMOGP.fit`.
        Y: the outputs, as for `HetMOGP.fit`.
        options: how to fit.
        progress: where to report, if anywhere.
        checkpoints: where to keep the fit on its way.
        source: where all rows are, if X and Y are a sample of them.
    """
    if source is not None:
        _refuse_missed(likelihoods, Y, source)
    data = grouped(read(likelihoods, X, Y), options)
    for likelihood in data.likelihoods:
        standard_nodes(len(likelihood.latent), options.expectation)  # refuses what cannot be done
    where = "" if source is None else ", in a sample of the rows"
    for name, doubt in data.doubts():
        warnings.warn(f"output {name!r}{where}: {doubt}", UserWarning, stacklevel=3)
    learned = learn(data, options, progress or Progress(False), checkpoints, source)
    record = replace(Record.of(learned, data), marginal=_marginal(data))
    if source is not None:
        observed = {name: source.observed[name] for name in data.names}
        record = replace(record, observed=observed, sampled=len(X))
    if not (record.converged or record.interrupted) and options.max_iter is None:
        warnings.warn(
            f"no convergence in {record.n_iter} iterations; raise max_iter, or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    # NumPy arrays keep their precision outside the session and pickle plainly.
    posterior, fitted = jax.tree.map(
        np.asarray, (learned.fit.posterior, learned.fit.parameters.likelihoods)
    )
    by_name = dict(zip(sorted(data.names), fitted, strict=True))
    result = Fitted(
        {name: by_name[name] for name in data.names},
        data.columns,
        learned.scaling,
        replace(posterior, jitter=float(posterior.jitter)),
        record,
        options.dtype,
    )
    return replace(result, alone=_alone(result, learned))


def _refuse_missed(likelihoods: Mapping[str, Likelihood], Y: pd.DataFrame, source: Source) -> None:
    """Raise an error for an output whose few values a sample of the rows has missed."""
    for name in likelihoods:
        if name in Y and source.observed[name] and Y[name].isna().all():
            raise ValueError(
                f"output {name!r} has {source.observed[name]:,} observed values in the table, none "
                f"of them in the {len(Y):,} rows sampled to start the fit: it is too rare for a "
                "Table. Fit the rows in memory, or leave it out"
            )


def _marginal(data: Dataset) -> dict[str, list[float]]:
    """The best constants of each output."""
    result = {}
    for name, likelihood, y, weight, given, seen in zip(
        *(data.names, data.likelihoods, data.values, data.weights, data.given, data.observed()),
        strict=True,
    ):
        own = {argument: column[seen] for argument, column in given.items()}
        result[name] = most_likely(likelihood, y[seen], weight[seen], own).tolist()
    return result


def _alone(fitted: "Fitted", learned: Learned) -> "Fitted | None":
    """The model in which the outputs share nothing, if one was fitted."""
    choice = learned.choice
    if choice is None:
        return None
    posterior = Posterior(choice.alone.prior.with_hyperprior(None), choice.alone_q, choice.jitter)
    numbers = jax.tree.map(np.asarray, (posterior, choice.alone.likelihoods))
    posterior, likelihoods = numbers
    by_name = dict(zip(sorted(fitted.likelihoods), likelihoods, strict=True))
    return replace(
        fitted,
        likelihoods={name: by_name[name] for name in fitted.likelihoods},
        posterior=replace(posterior, jitter=float(posterior.jitter)),
        record=replace(fitted.record, elbo=float(choice.own.sum()), shared=None, sharing=None),
    )


@dataclass(frozen=True)
class Fitted:
    """What a fitted model consists of.

    Attributes:
        likelihoods: the fitted likelihood of each output, in the user's order.
        columns: the inputs.
        scaling: how inputs are standardised for the posterior.
        posterior: what was learned. Its parameter functions follow the outputs sorted by name, so
            that the user's order changes nothing.
        record: how the fit went.
        dtype: the type of the numbers it computes with.
        alone: where latents were chosen, the model in which the outputs share nothing.
    """

    likelihoods: dict[str, Likelihood]
    columns: list[Column]
    scaling: Scaling
    posterior: Posterior
    record: Record
    dtype: str
    alone: "Fitted | None" = None

    @property
    def sharing(self) -> pd.DataFrame | None:
        """What each output gains from the others, in nats, where latents were chosen."""
        if self.record.sharing is None:
            return None
        rows = dict(self.record.sharing)
        total = rows.pop("")
        frame = pd.DataFrame(
            [*rows.values(), total],
            index=pd.Index([*rows, "all"], name="output"),
            columns=["alone", "joint"],
        )
        return frame.assign(gain=frame["joint"] - frame["alone"])

    @property
    def untried(self) -> bool:
        """Whether the user interrupted before it was known whether sharing pays."""
        chose = self.alone is not None and len(self.likelihoods) > 1
        return chose and self.record.interrupted and self.record.shared is None

    @cached_property
    def outputs(self) -> dict[str, Output]:
        """Each output's likelihood, and where its parameter functions stand in the posterior."""
        parts, end = {}, 0
        for name in sorted(self.likelihoods):
            begin, end = end, end + len(self.likelihoods[name].latent)
            parts[name] = slice(begin, end)
        return {name: Output(one, parts[name]) for name, one in self.likelihoods.items()}

    @property
    def places(self) -> np.ndarray:
        """Where the parameter functions, in the user's order, stand in the posterior."""
        return np.concatenate([np.r_[output.part] for output in self.outputs.values()])

    @property
    def parameter_names(self) -> list[str]:
        """The J parameter functions in the user's order, as "output.parameter"."""
        return [f"{name}.{f}" for name, one in self.likelihoods.items() for f in one.latent]

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernel of each latent, in the units of the inputs."""
        centre, scale = self.scaling
        return tuple(k.rescaled(scale, centre) for k in self.posterior.prior.kernels)

    @cached_property
    def coregionalisation(self) -> np.ndarray:
        """The matrices B_q, (Q, J, J), in the user's order of parameter functions."""
        places = self.places
        with session(self.dtype):
            return self.posterior.prior.coregionalisation()[:, places[:, None], places]

    @cached_property
    def sizes(self) -> np.ndarray:
        """The mean variance of each latent over its inducing inputs; one, if it is stationary."""
        prior = self.posterior.prior
        with session(self.dtype):
            pairs = zip(prior.smooth, prior.tables, strict=True)
            each = [kernel.diag(jnp.asarray(Z)) for kernel, Z in pairs]
            local = [1.0] * prior.local
            return np.array([float(jnp.mean(variance)) for variance in each] + local)

    def attributes(self) -> dict[str, Any]:
        """What a fitted estimator shows, by the name of the attribute."""
        prior, places = self.posterior.prior, self.places
        with session(self.dtype):
            tables, shown = prior.tables, prior.shown()
        return {
            "output_names_": list(self.likelihoods),
            "likelihoods_": self.likelihoods,
            "parameter_names_": self.parameter_names,
            "kernels_": self.kernels,
            "inducing_inputs_": [self.scaling.undo(Z) for Z in tables],
            "columns_": list(self.columns),
            "n_features_in_": len(self.columns),
            **{f"{name}_": value[places] for name, value in shown.items()},
            **self.record.attributes(),
        }

    # -- answers -------------------------------------------------------------------------------

    def latents(self, X: Any) -> Latents:
        """The latent functions at each row."""
        return self._latents(read_inputs(X, self.columns)[0])

    def _latents(self, table: np.ndarray) -> Latents:
        with session(self.dtype):
            return self.posterior.latents(self.scaling.apply(table))

    def functions(self, X: Any) -> Functions:
        """The parameter functions at each row, in the user's order."""
        table, _ = read_inputs(X, self.columns)
        with session(self.dtype):
            mean, cov = self.posterior.functions(self.scaling.apply(table))
        places = self.places
        return Functions(mean[:, places], cov[:, places[:, None], places])

    def predict(
        self,
        X: Any,
        outputs: str | Sequence[str] | None = None,
        given: Mapping[str, Any] | pd.DataFrame | None = None,
    ) -> Prediction:
        """Predictive distributions at new inputs; see `HetMOGP.predict`."""
        table, _ = read_inputs(X, self.columns)
        chosen, arguments = self.asked(X, len(table), outputs, given)
        index = X.index if isinstance(X, pd.DataFrame | pd.Series) else None
        return self._prediction(chosen, self._latents(table), arguments, index)

    def asked(
        self, X: Any, N: int, outputs: str | Sequence[str] | None, given: Any
    ) -> tuple[list[str], dict[str, dict[str, np.ndarray]]]:
        """The outputs that were asked for, and the arguments of each at N inputs X, checked."""
        if outputs is None:
            outputs = list(self.likelihoods)
        chosen = [outputs] if isinstance(outputs, str) else list(outputs)
        if not chosen:
            raise ValueError("outputs is empty: name some, or leave it out for all of them")
        for name in chosen:
            if name not in self.likelihoods:
                raise ValueError(f"no output {name!r}; there are {', '.join(self.likelihoods)}")
        return chosen, self._arguments(X, N, given)

    def predict_at(self, table: np.ndarray, outputs: Sequence[str] | None = None) -> Prediction:
        """Predictive distributions at inputs that are numbers already."""
        return self._prediction(outputs or list(self.likelihoods), self._latents(table), {})

    def _prediction(
        self,
        outputs: Sequence[str],
        latents: Latents,
        given: Mapping[str, Mapping[str, np.ndarray]],
        index: pd.Index | None = None,
    ) -> Prediction:
        chosen = {name: self.outputs[name] for name in outputs}
        return Prediction(self.posterior.prior, chosen, latents, given, index, self.dtype)

    def _arguments(self, X: Any, N: int, given: Any) -> dict[str, dict[str, np.ndarray]]:
        """The arguments of each output at N inputs X, from columns that the user gave."""
        if given is not None and not isinstance(given, Mapping | pd.DataFrame):
            raise TypeError(
                "given must be a dict from column names to a number or one number per row, or a "
                f"frame, not {type(given).__name__}"
            )
        table = {} if given is None else {str(key): given[key] for key in given}
        needed = {c for one in self.likelihoods.values() for c in dict(one.columns).values()}
        unknown = [] if isinstance(given, pd.DataFrame) else sorted(set(table) - needed)
        if unknown:
            known = f"those in use are {sorted(needed)}" if needed else "no output takes any"
            raise ValueError(f"given has {unknown[0]!r}, which no likelihood asks for; {known}")
        for name, one in self.likelihoods.items():
            for column in dict(one.columns).values():
                same_index(name, X, table.get(column), f"of {column!r} in given")
        return {
            name: {
                argument: argument_values(
                    *(name, argument, column, one.rules[argument]),
                    np.full(N, table[column]) if np.ndim(table[column]) == 0 else table[column],
                    N,
                )
                for argument, column in one.columns
                if column in table
            }
            for name, one in self.likelihoods.items()
        }

    def read(self, X: Any, Y: Any) -> Dataset:
        """Inputs and outputs, as for `HetMOGP.fit`, that suit this model."""
        return read(self.likelihoods, X, Y, self.columns)

    def observe(self, data: Dataset) -> dict[str, Observed]:
        """The observed values of each output that has any, with predictions at their inputs.

        Outputs that share their inputs share the latents there.
        """
        shared: dict[int, tuple[np.ndarray, Latents]] = {}
        result = {}
        for name, inputs, y, given in zip(
            *(data.names, data.inputs, data.values, data.given), strict=True
        ):
            rows = np.flatnonzero(~np.isnan(y))
            if not rows.size:
                continue
            if id(inputs) not in shared:
                same = [v for X, v in zip(data.inputs, data.values, strict=True) if X is inputs]
                needed = np.flatnonzero(~np.all(np.isnan(same), axis=0))
                shared[id(inputs)] = needed, self._latents(inputs[needed])
            needed, latents = shared[id(inputs)]
            at = np.searchsorted(needed, rows)
            own = Latents(latents.mean[at], latents.cov[at])
            here = {name: {argument: column[rows] for argument, column in given.items()}}
            prediction = self._prediction([name], own, here)[name]
            result[name] = Observed(prediction, y[rows], rows)
        return result

    def log_densities(self, X: Any, Y: Any) -> dict[str, np.ndarray]:
        """The log predictive density of every observed value, by output."""
        observed = self.observe(self.read(X, Y))
        return {
            name: observed[name].log_prob if name in observed else np.empty(0)
            for name in self.likelihoods
        }
