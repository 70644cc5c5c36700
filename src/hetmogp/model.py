"""HetMOGP, the estimator. It joins the other modules and computes nothing itself."""

import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from . import baselines, bulk, distributed, effects, forks, laplace, left_out, storage
from .discovery import choose, no_better_than_constants
from .disk import Table
from .export import export
from .fitted import Fitted, fit
from .fitting import Checkpoints, Options, Progress, Source
from .holdout import HeldOut
from .inputs import grid, read_inputs, restored
from .kernels import Kernel
from .likelihoods import Likelihood
from .prediction import Prediction
from .quadrature import Expectation
from .questions import Questions
from .session import session
from .summary import Summary
from .tables import name_outputs

__all__ = ["HetMOGP", "independent", "load"]


class HetMOGP(Questions, BaseEstimator):
    """A heterogeneous multi-output Gaussian process.

    Every parameter of every output's likelihood is a latent function of the inputs; all of them mix
    the same few latent Gaussian processes, so that a well-observed output informs the others.

    Args:
        likelihoods: one per output, as a list or as a dict by output name. "auto", for all or as an
            entry of the dict, lets `discover` choose.
        kernel: of the latents; one for all, or a list of one per latent. RBF by default.
        latents: Q, the number of latent processes. "auto" fits each output alone and all together,
            and keeps what pays: either nothing is shared, or there are as many latents as needed,
            over all inputs or over groups of them. `sharing_` says what each output gains.
        local: the number of local latents, which have a value at every place, for detail that
            inducing inputs blur. "auto" tries one for each parameter function, three at most, on
            tables of at least 500 distinct inputs of which up to four are numbers or dates, and
            keeps them if they pay; 0 has none.
        rank: R_q, how many copies of each latent are mixed; one number or one per latent.
            `latents=1, rank=R` is the intrinsic coregionalisation model.
        linear: inputs, by name or position, that act on every parameter function as a straight line
            and in no other way. `effects_` has the slopes.
        groups: inputs, by name or position, whose values each have a random intercept, such as
            patients, sites or years. They act in no other way. `intercepts_` has the intercepts; a
            value that was not in the fit is predicted from the prior.
        inducing: how many inducing inputs; or where they are, as an array shared by the latents or
            a list of one per latent. "auto" takes all distinct rows where they are few; else, on
            full batches, those that the latents need most, and on mini-batches as many for each
            latent as a step can afford.
        prior: "lmc", or "independent" for one process per parameter function.
        method: "vem" (full batches), "svi" (mini-batches), or "auto" by the size of the data.
        bound: "joint", or "factorised" for the paper's product over parameter functions.
        q: "coupled", one Gaussian over all latents, or "factorised", the paper's product over them,
            whose variances are too wide where outputs share latents and whose bound is lower.
            "auto" couples on full batches; on mini-batches it does not, as a step would cost the
            cube of the number of all inducing variables.
        expectation: "auto" uses closed forms where there are any; "quadrature" and "montecarlo"
            never do.
        batch_size: rows per output in a mini-batch.
        optimizer: "adam" or "adadelta", for mini-batches.
        natural_gradients: False learns q(u) by the same optimiser as the rest, as the paper did.
        learn_inducing: whether inducing inputs move. Those at all rows never do, nor do those that
            "auto" places for full batches.
        prune: with "vem" and a number of latents, drop mixing weights that gain the bound less than
            one nat each, so that outputs share only what the data asks for.
        weight_scale: the width of the prior of each parameter function's size, in units of its
            typical spread (for a mean, that of the values; on the scale of log odds and of
            logarithms, one); None for the usual width, 3. Long runs of ones or zeros are fitted
            best by functions that grow without limit, and predictions become overconfident; 1 keeps
            them moderate.
        hyperpriors: "auto" has weak priors of lengthscales, sizes and noise; None has none, for
            maximum likelihood.
        max_iter: the most rounds ("vem", 100) or steps ("svi", 5000) of the fit itself; the choice
            of latents has limits of its own. With "vem", 0 keeps the hyperparameters where they
            start and only finds q(u).
        tol: nats per observed value (5e-4); the fit has converged when ten iterations of a round
            ("vem") or a window of steps ("svi") gain less.
        restarts: how many starts to try, each with other weights and lengthscales; the one with the
            best bound is kept. By default full batches try short and long lengthscales, and each
            part of a sum of kernels, for a few iterations, and continue from the best; mini-batches
            have one start.
        dtype: "float64" or "float32".
        seed: the seed of all random numbers.
        progress: whether to show a progress bar in a terminal or notebook.

    Attributes:
        elbo_: the evidence lower bound reached.
        history_: the objective after each round (the bound plus the log density of the
            hyperparameters' priors), or the mean bound over each window of steps.
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
        inducing_inputs_: an array (M_q, p) for each latent that is not local, in the units of the
            inputs.
        columns_: the inputs by name, and whether they are numbers, dates (in days) or labels.
        input_range_: the smallest and largest observed inputs, (2, p).
        n_features_in_: p, the number of inputs.
        n_observed_: how many values of each output were observed.
        n_sampled_: for a `Table`, how many of its rows were sampled to start the fit. Scaling,
            inducing inputs, first constants and lengthscales, and `input_range_` come from them.
            None otherwise.

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
        latents: int | Literal["auto"] = "auto",
        local: int | Literal["auto"] = "auto",
        rank: int | Sequence[int] = 1,
        linear: str | int | Sequence[str | int] | None = None,
        groups: str | int | Sequence[str | int] | None = None,
        inducing: Any = "auto",
        prior: Literal["lmc", "independent"] = "lmc",
        method: Literal["auto", "vem", "svi"] = "auto",
        bound: Literal["joint", "factorised"] = "joint",
        q: Literal["auto", "coupled", "factorised"] = "auto",
        expectation: Expectation = "auto",
        batch_size: int = 500,
        optimizer: Literal["adam", "adadelta"] = "adam",
        natural_gradients: bool = True,
        learn_inducing: bool = True,
        prune: bool = True,
        weight_scale: float | None = None,
        hyperpriors: Literal["auto"] | None = "auto",
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
        self.local = local
        self.rank = rank
        self.linear = linear
        self.groups = groups
        self.inducing = inducing
        self.prior = prior
        self.method = method
        self.bound = bound
        self.q = q
        self.expectation = expectation
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.natural_gradients = natural_gradients
        self.learn_inducing = learn_inducing
        self.prune = prune
        self.weight_scale = weight_scale
        self.hyperpriors = hyperpriors
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
            checkpoint: a folder for checkpoints, of which the last three are kept. A fit that was
                killed can be resumed from them, with the result of an uninterrupted one.
            every: how many rounds ("vem", 1) or steps ("svi", 500) lie between two checkpoints.
            resume: continue from the latest checkpoint in the folder, if there is one.
        """
        forks.refuse()
        began = time.perf_counter()
        options = self._options()
        checkpoints = _checkpoints(checkpoint, every, resume)
        X, Y, source = self._sampled(X, Y)
        likelihoods, discovery = choose(
            self.likelihoods, X, Y, seed=self.seed, progress=self.progress
        )
        named = name_outputs(likelihoods, Y)
        with session(self.dtype), Progress(self._shows) as progress:
            fitted = fit(named, X, Y, options, progress, checkpoints, source)
            seconds = time.perf_counter() - began
            for name in ("discovery_", "feature_names_in_"):  # of an earlier fit
                self.__dict__.pop(name, None)
            if isinstance(X, pd.DataFrame):
                self.feature_names_in_ = np.asarray([c.name for c in fitted.columns], dtype=object)
            self._show(replace(fitted, record=replace(fitted.record, seconds=seconds)))
            if discovery is not None:
                self.discovery_ = discovery
                if source is None:
                    self._warn_of_weak(named, X, Y, options, fitted)
        return self

    def _warn_of_weak(
        self, named: Mapping[str, Likelihood], X: Any, Y: Any, options: Options, fitted: Fitted
    ) -> None:
        """Warn of outputs chosen by "auto" that are predicted worse than by their constants."""
        short = options.max_iter is not None or fitted.record.interrupted
        if distributed.index() != 0 or short:
            return
        try:
            worse = no_better_than_constants(named, X, Y, options, fitted)
        except (ValueError, ArithmeticError) as error:  # the fit itself is complete
            words = f"the outputs could not be compared with constants: {error}"
            warnings.warn(words, UserWarning, stacklevel=3)
            return
        flat = baselines.flat_outputs(fitted)
        for name, gap in worse.items():
            if name in flat:
                continue  # it is a constant, and only the small fit is worse
            warnings.warn(
                f"output {name!r}: in a quick check (a small fit of the model, scored on other "
                "rows; on few rows, each value left out in turn) it is predicted "
                f"{gap:.3f} nats per value worse than a constant would. The inputs may say "
                "nothing about it, or the other outputs may harm its predictions: fit it alone, or "
                "leave it out",
                UserWarning,
                stacklevel=3,
            )

    def _options(self) -> Options:
        """The constructor's arguments, checked."""
        arguments = self.get_params(deep=False)
        return Options(**{k: v for k, v in arguments.items() if k != "likelihoods"})

    @property
    def _shows(self) -> bool:
        """Whether this process shows progress: of several only one does."""
        return self.progress and distributed.index() == 0

    def _sampled(self, X: Any, Y: Any) -> tuple[Any, Any, Source | None]:
        """X, Y and None; for a Table, those of a sample of its rows, and where all rows are."""
        if not isinstance(X, Table):
            if Y is None:
                raise TypeError("fit needs X and Y, or a Table, which holds both")
            return X, Y, None
        if Y is not None:
            raise TypeError("a Table holds inputs and outputs: leave Y out")
        columns = X.columns
        if isinstance(self.likelihoods, Mapping):
            known = [one for one in self.likelihoods.values() if isinstance(one, Likelihood)]
            extra = [column for one in known for column in one.extra_columns]
            wanted = {*X.inputs, *map(str, self.likelihoods), *extra}
            columns = [name for name in columns if name in wanted]
        with Progress(self._shows) as bar:
            what = f"sampling {len(X):,} rows"
            sample = X.sample(columns, self.seed, lambda done: bar.update(what, done))
        rows = sample.rows
        return rows[X.inputs], rows.drop(columns=X.inputs), Source(X, sample.values)

    def _show(self, fitted: Fitted) -> None:
        """Show what was learned as attributes, in the user's order and units."""
        self._fitted = fitted
        for name, value in fitted.attributes().items():
            setattr(self, name, value)

    @property
    def fitted(self) -> Fitted:
        """What was learned, for code that goes beyond the attributes."""
        check_is_fitted(self, "elbo_")
        return self._fitted

    @property
    def sharing_(self) -> pd.DataFrame:
        """What each output gains from the others, in nats; after a fit with `latents="auto"`.

        There is a row for each output, and one for "all". `alone` is the bound of the output's own
        model; `joint` is what the output adds to the bound of the joint model, with hyperparameters
        held; `gain` is their difference. On mini-batches all are bounds on a sample of at most
        1,000 rows. On full batches of more rows, the gain of a joint model that was not kept is
        that of such a sample, scaled up.
        """
        sharing = self.fitted.sharing
        if sharing is None:
            raise AttributeError(
                'sharing_ exists only after a fit with latents="auto" that has tried sharing'
            )
        return sharing

    @property
    def alone_(self) -> "HetMOGP":
        """The model in which the outputs share nothing: a baseline that is fitted already."""
        alone = self.fitted.alone
        if alone is None:
            raise AttributeError('alone_ exists only after a fit with latents="auto"')
        model = HetMOGP(**self.get_params(deep=False))
        model._show(alone)
        return model

    @property
    def coregionalisation_(self) -> np.ndarray:
        """The matrices B_q, (Q, J, J), made when first asked for: J may be large."""
        return self.fitted.coregionalisation

    @property
    def effects_(self) -> pd.DataFrame:
        """The slopes of the inputs named in `linear`, before the link, with their uncertainty.

        A row per parameter function and input: output, parameter, input, the posterior mean and
        standard deviation (sd) of the slope, and an interval of probability 0.9 (lower, upper).
        Slopes are per unit of the input, or per day where it holds dates.
        """
        return effects.slopes(self.fitted)

    @property
    def intercepts_(self) -> pd.DataFrame:
        """The intercepts of the inputs named in `groups`, before the link, with their uncertainty.

        A row per parameter function, input and level, with the columns of `effects_`.
        """
        return effects.intercepts(self.fitted)

    # -- prediction --------------------------------------------------------------------------------

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
                all rows or one per row, such as `{"population": 1000}`. A column that is not given
                is taken to be one: then predictions are rates per unit of exposure, or proportions
                of one trial. For a `Table` they are read from the table itself.
            out: for a `Table`, the Parquet file to write inputs and predictions to (with several
                processes, a folder of such files); its path is returned.
        """
        fitted = self.fitted
        if isinstance(X, Table) != (out is not None):
            raise TypeError("out= names the file to write for a Table, and goes with nothing else")
        if out is not None:
            if given is not None:
                raise TypeError(
                    "a Table holds the columns that come with its outputs: leave given out"
                )
            return bulk.predict(fitted, X, outputs, out)
        return fitted.predict(X, outputs, given)

    def predict_mean(
        self,
        X: Any,
        outputs: str | Sequence[str] | None = None,
        given: Mapping[str, Any] | pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """The mean of each output at new inputs, as a frame with a column for each.

        For a yes/no output it is the probability of yes; for an output with classes, the most
        probable class. The arguments are those of `predict`.
        """
        return self.fitted.predict(X, outputs, given).means()

    def parameter_functions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (N, J) and covariance (N, J, J) of the parameter functions at each row.

        In the order of `parameter_names_`, before their links.
        """
        mean, cov = self.fitted.functions(X)
        return np.asarray(mean), np.asarray(cov)

    def latent_functions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent functions at each row, both (N, ΣR_q)."""
        latents = self.fitted.latents(X)
        return np.asarray(latents.mean), np.asarray(latents.variance)

    # -- scoring -----------------------------------------------------------------------------------

    def nlpd(self, X: Any, Y: Any = None) -> dict[str, float]:
        """Negative log predictive density: the mean over observed values, per output.

        "global" is the sum over the outputs. An output with nothing observed has NaN. X may be a
        `Table`, which has the outputs too.
        """
        if isinstance(X, Table):
            return bulk.nlpd(self.fitted, X)
        densities = self.fitted.log_densities(X, Y)
        scores = {n: float(-np.mean(d)) if d.size else float("nan") for n, d in densities.items()}
        return {**scores, "global": sum(scores.values())}

    def score(self, X: Any, Y: Any) -> float:
        """The mean log predictive density over all observed values; higher is better."""
        densities = np.concatenate(list(self.fitted.log_densities(X, Y).values()))
        if not densities.size:
            raise ValueError("Y has no observed value to score")
        return float(np.mean(densities))

    def compare_baselines(self, X: Any, Y: Any, by: Any = None) -> pd.DataFrame:
        """Compare the model with the same outputs alone, and with the best constant of each.

        All are mean negative log predictive densities of a value, as those of `nlpd`: lower is
        better, and the last row, "global", is the sum over the outputs. Data that were not fitted
        give an honest answer; `leave_one_out` needs none. The table is kept with the model, and
        `summary` says it in a sentence for each output.

        Args:
            X: the inputs, as for `fit`.
            Y: the outputs, as for `fit`.
            by: a label for each row of X, if rows of one label were held out together. In the
                standard errors the rows of one label count as one.

        Returns:
            values: how many were observed.
            joint: NLPD of this model.
            alone: NLPD of `alone_`; NaN where it is not known. On mini-batches it was fitted to
                a sample of the rows, as `sharing_` was.
            constant: NLPD of the best constants of each output in the data fitted.
            over_alone, over_constant: how many nats per value the model is better than each.
            over_alone_se, over_constant_se: the standard errors of these differences.
        """
        table, rows = baselines.compare(self.fitted, X, Y, by)
        self._keep(scored=baselines.kept(table, rows))
        return table

    def _keep(self, **facts: Any) -> None:
        """Keep what was found out after the fit with the model."""
        self._fitted = replace(self._fitted, record=replace(self._fitted.record, **facts))

    def leave_one_out(self, X: Any, Y: Any) -> pd.DataFrame:
        """The table of `compare_baselines`, each value predicted from all others, without refits.

        The site of a value is removed from q(u); the other outputs at its row remain. The
        hyperparameters are those of all values, so the scores are a little too good, most of all on
        tables of a few dozen rows or with many outputs. This needs a fit on full batches. The table
        is kept with the model, as that of `compare_baselines` is.

        Args:
            X: the inputs that were fitted.
            Y: the outputs that were fitted.
        """
        table = left_out.leave_one_out(self.fitted, X, Y, self._options().rules)
        self._keep(scored=baselines.kept(table, "each value left out in turn, without refits"))
        return table

    def mark_held_out(self, X: Any, rows: Any, how: str = "", by: str | None = None) -> Self:
        """Record, in the model, which rows of a table were held out of the fit.

        Reports and scores of the same table then keep them apart from the rows that were fitted.

        Args:
            X: the inputs of the whole table.
            rows: whether each row was held out.
            how: how they were chosen, in words.
            by: the column whose groups were held out whole, if any.
        """
        table, _ = read_inputs(X, self.fitted.columns)
        self._keep(held_out=HeldOut.of(table, rows, how, by))
        return self

    def held_out(self, X: Any) -> np.ndarray | None:
        """Which rows were kept from the fit; None where X is not the table that was marked."""
        marked = self.fitted.record.held_out
        return None if marked is None else marked.at(read_inputs(X, self.fitted.columns)[0])

    def grid(self, n: int = 100) -> pd.DataFrame:
        """Inputs to predict at: n values per input over the range of the data, and every label."""
        check_is_fitted(self, "elbo_")
        return restored(grid(self.columns_, self.input_range_, n), self.columns_)

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn is told: inputs may be labels, and there may be several outputs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.multi_output = True
        return tags

    def intervals(self, X: Any, Y: Any) -> pd.DataFrame:
        """How well lengthscales and correlations are determined: 90% intervals, by Laplace.

        They come from the curvature of the bound and of the hyperparameters' priors where learning
        ended. That takes two E-steps for each hyperparameter: seconds on hundreds of rows, about as
        long as the fit on thousands. Inducing inputs are held, and dropped weights are taken to be
        zero. So the intervals are somewhat too narrow, most of all those of correlations
        (docs/inference.md has measurements). They are kept with the model, and `summary` shows
        them. A model fitted on mini-batches has none.

        Args:
            X: the inputs that were fitted.
            Y: the outputs that were fitted.

        Returns:
            A row for each number of a kernel in use, as `Summary.lengthscales`: latent, kernel,
            input, number, value, lower, upper, flat. The ends of the correlations' intervals are
            `correlation_lower` and `correlation_upper` of `summary`.
        """
        options = self._options()
        with Progress(self._shows) as bar:
            widths = laplace.widths(
                *(self.fitted, X, Y, options.rules, options.weight_scale),
                options.hyperpriors is not None,
                lambda done: bar.update("intervals", done),
            )
        self._keep(widths=widths)
        return self.summary().lengthscales

    # -- showing and keeping -----------------------------------------------------------------------

    def summary(self) -> Summary:
        """Outputs, parameter functions, latents and what they share, as tables; print it.

        After `compare_baselines` or `leave_one_out` it says in a sentence what the inputs and the
        other outputs are worth to each output; after `intervals`, how well lengthscales and
        correlations are determined.
        """
        return Summary(self.fitted)

    def _repr_html_(self) -> str:
        """In notebooks: the summary once fitted, scikit-learn's diagram before."""
        return self.summary()._repr_html_() if hasattr(self, "elbo_") else estimator_html_repr(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted model to one file, which `hetmogp.load` reads; see `storage`."""
        arguments = self._options().items()  # which may have been set since the fit
        storage.save(self.fitted, arguments, hasattr(self, "feature_names_in_"), path)

    def export(
        self,
        folder: str | os.PathLike,
        outputs: str | Sequence[str] | None = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        platforms: Sequence[str] | None = None,
    ) -> Path:
        """Write a folder that predicts by itself: JAX, NumPy and flatbuffers are all it needs.

        It holds a program (`jax.export`), what inputs and outputs are called, and `predictor.py`,
        a loader of one page. With the folder `weather` on Python's path,

            from weather.predictor import predict
            predict({"day": [1.0, 2.5]})["rain"]["mean"]

        gives means, standard deviations and quantiles of each output, or the probabilities of its
        classes. JAX runs a program of an earlier version for at least six months.

        It cannot do everything that `predict` can. It has no densities, samples, functions or
        quantiles at other levels. Exposures and numbers of trials are taken to be one. Angles, and
        likelihoods without a distribution function, have no quantiles. Models with local latents
        cannot be exported.

        Args:
            folder: the folder to write; it is created if it does not exist.
            outputs: the outputs; all of them by default.
            quantiles: the levels of the quantiles.
            platforms: the platforms to run on, such as ("cpu", "cuda"); that of this process by
                default.
        """
        chosen, _ = self.fitted.asked(None, 0, outputs, None)
        return export(self.fitted, folder, chosen, quantiles, platforms)


def independent(likelihoods: Any, **options: Any) -> HetMOGP:
    """The baseline: one Gaussian process per parameter function, nothing shared (chained GPs).

    Takes the arguments of `HetMOGP`; `latents` and `rank` have no meaning here.
    """
    return HetMOGP(likelihoods, **{**options, "prior": "independent"})


def load(path: str | os.PathLike, custom: Iterable[type] = ()) -> HetMOGP:
    """Read a model that was saved. No training data is needed.

    Args:
        path: the file.
        custom: the classes of likelihoods and kernels that are not the package's own, if the model
            uses any.

    Example:
        >>> import tempfile, numpy as np, hetmogp as hm
        >>> x = np.linspace(0, 1, 20)
        >>> model = hm.HetMOGP([hm.Gaussian()], latents=1, max_iter=1).fit(x, np.sin(x))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/sine.hetmogp")
        ...     again = hm.load(f"{folder}/sine.hetmogp")
        >>> bool((again.predict(x)["y0"].mean == model.predict(x)["y0"].mean).all())
        True
    """
    saved = storage.load(path, custom)
    model = HetMOGP(saved.likelihoods, **saved.options)
    model._show(saved.fitted)
    if saved.named_inputs:
        names = [column.name for column in saved.fitted.columns]
        model.feature_names_in_ = np.asarray(names, dtype=object)
    return model


def _checkpoints(
    folder: str | os.PathLike | None, every: int | None, resume: bool
) -> Checkpoints | None:
    """The folder of checkpoints, from the arguments of `fit`."""
    if folder is None:
        if every is not None or resume:
            raise ValueError("every and resume need a folder for checkpoints: give checkpoint=")
        return None
    if every is not None and (not isinstance(every, Integral) or every < 1):
        raise ValueError(f"every must be a whole number >= 1, not {every!r}")
    return Checkpoints(Path(folder), every, resume)
