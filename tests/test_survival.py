"""Right-censored lifetimes: the survival function is recovered; ignoring censoring is worse."""

import numpy as np
import pytest

import hetmogp as hm

rng = np.random.default_rng(1)
N = 500


def truth(x, t):
    """S(t) of log-logistic lifetimes whose median varies with the input."""
    return 1.0 / (1.0 + (t / np.exp(0.5 + np.sin(6.0 * x))) ** 3.0)


@pytest.fixture(scope="module")
def error():
    """Mean |S − truth| with the censoring known, and with it ignored."""
    x = rng.uniform(0.0, 1.0, N)
    median = np.exp(0.5 + np.sin(6.0 * x))
    ends = median * np.exp(rng.logistic(size=N) / 3.0)
    watch = median * np.exp(rng.logistic(size=N) / 3.0)  # independent of the end, given the input
    watch *= np.quantile(ends / watch, 0.7)
    Y = {"time": np.minimum(ends, watch), "ended": (ends <= watch).astype(int)}
    assert 0.25 < 1 - Y["ended"].mean() < 0.35
    at, times = np.linspace(0.02, 0.98, 60), np.array([0.3, 0.8, 1.5, 3.0, 6.0])
    found = {}
    for label, likelihood in {
        "known": hm.LogLogistic(event="ended"),
        "ignored": hm.LogLogistic(),
    }.items():
        model = hm.HetMOGP({"time": likelihood}, latents=1, inducing=20, progress=False).fit(x, Y)
        S = model.predict(at)["time"].survival(times)
        found[label] = np.abs(S - truth(at, times[:, None])).mean()
    return found


def test_survival_is_recovered_under_censoring(error):
    assert error["known"] < 0.03


def test_ignoring_censoring_is_visibly_worse(error):
    assert error["ignored"] > 0.03
    assert error["ignored"] > 2 * error["known"]
