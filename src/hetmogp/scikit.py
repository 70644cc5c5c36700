"""scikit-learn's tools on one output: scorers, and what `check_estimator` is told to expect."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer

from .model import HetMOGP
from .prediction import Observed, OutputPrediction

__all__ = ["EXPECTED_FAILED_CHECKS", "Scorer", "scorer"]

_AN_OBJECT = "predict returns distributions; predict_mean returns numbers, and passes"
EXPECTED_FAILED_CHECKS = {
    "check_estimators_pickle": _AN_OBJECT,
    "check_fit_idempotent": _AN_OBJECT,
    "check_methods_sample_order_invariance": _AN_OBJECT,
    "check_methods_subset_invariance": _AN_OBJECT,
    "check_fit1d": "an X of one dimension is one input, as in every example here",
    "check_n_features_in_after_fitting": "it calls score(X, y=...); our argument is Y",
}
"""The checks of `check_estimator` that fail, and why, for its argument of that name."""

DENSITY = "log_density"


def scorer(metric: Any, output: str | None = None) -> "Scorer":
    """A scorer of one output, for `cross_val_score`, `GridSearchCV` and their like.

    Higher is better, as for all scorers. Values that were not observed are left out. So are those
    that are only known to lie beyond a limit, except that they count in "log_density". An output
    with classes, or of yes and no, is scored as a classifier: by its most probable class, or by its
    probabilities if the metric asks for them. Any other is scored as a regressor, by its mean.

    Args:
        metric: a name that scikit-learn knows, such as "r2", "neg_mean_absolute_error", "accuracy",
            "roc_auc" or "neg_log_loss"; or one of its scorers, as `make_scorer` gives; or
            "log_density", the mean log predictive density of the output.
        output: its name; it may be omitted if there is only one.

    Example:
        >>> import numpy as np, hetmogp as hm
        >>> from sklearn.model_selection import cross_val_score
        >>> x = np.linspace(0, 6, 40)
        >>> Y = np.stack([np.sin(x), np.sin(x) > 0], axis=1)
        >>> model = hm.HetMOGP([hm.Gaussian(), hm.Bernoulli()], latents=1, max_iter=5)
        >>> r2 = cross_val_score(model, x, Y, scoring=hm.scorer("r2", output="y0"), cv=2)
        >>> r2.shape
        (2,)
    """
    if isinstance(metric, str) and metric.lower() in ("nlpd", "neg_nlpd", "nll"):
        raise ValueError(f"{metric!r} is no metric; {DENSITY!r} is its negative, higher is better")
    if metric != DENSITY:
        get_scorer(metric)  # raises an error for a name that it does not know
    return Scorer(metric, output)


@dataclass(frozen=True)
class Scorer:
    """What `scorer` returns; call it with a fitted model, X and Y."""

    metric: Any
    output: str | None = None

    def __call__(self, model: HetMOGP, X: Any, Y: Any) -> float:
        """The score of the model at the observed values of the output."""
        name = self._name(model)
        observed = model.fitted.observe(model.fitted.read(X, Y)).get(name)
        if observed is not None and self.metric == DENSITY:
            return float(np.mean(observed.log_prob))
        exact = np.flatnonzero(observed.exact) if observed is not None else np.empty(0, int)
        if observed is None or not exact.size:
            known = "" if observed is None else " exactly known"
            raise ValueError(f"output {name!r} has no{known} observed value to score")
        return float(get_scorer(self.metric)(_one(observed), exact, observed.values[exact]))

    def _name(self, model: HetMOGP) -> str:
        names = list(model.output_names_)
        if self.output is None:
            if len(names) == 1:
                return names[0]
            raise ValueError(f"name one by output=; there are {', '.join(names)}")
        if self.output not in names:
            raise ValueError(f"no output {self.output!r}; there are {', '.join(names)}")
        return self.output


def _one(observed: Observed) -> BaseEstimator:
    """One output as scikit-learn's scorers know estimators; its X are rows of the prediction."""
    classes = bool(observed.prediction.likelihood.levels)
    return (_Classifier if classes else _Regressor)(observed.prediction)


class _Regressor(RegressorMixin, BaseEstimator):
    def __init__(self, prediction: OutputPrediction):
        self.prediction = prediction

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.prediction.mean[rows]


class _Classifier(ClassifierMixin, BaseEstimator):
    def __init__(self, prediction: OutputPrediction):
        self.prediction = prediction
        likelihood = prediction.likelihood
        labels = likelihood.decode(np.arange(len(likelihood.levels)))
        self.order = np.argsort(labels)  # scikit-learn's classes stand in order
        self.classes_ = labels[self.order]

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        return self.prediction.probabilities[rows][:, self.order]
