"""Lifetimes and limits without functions: the most likely constants are those of lifelines."""

import lifelines
import numpy as np
import pytest

import hetmogp as hm
from hetmogp import marginal
from hetmogp.session import session

N = 300


def constants(likelihood, y, **given):
    """The most likely parameters of an output, by name."""
    with session():
        theta = marginal.most_likely(likelihood, y, np.ones(len(y)), given)
    names = (*likelihood.latent, *sorted(likelihood.free))
    return {n: float(likelihood.links[n](t)) for n, t in zip(names, theta, strict=True)}


@pytest.fixture(scope="module")
def lifetimes():
    """Times, and whether each end was seen; watching ends at a time of its own."""
    rng = np.random.default_rng(0)
    times, watched = 2.0 * rng.weibull(1.4, N), rng.exponential(4.0, N)
    return np.minimum(times, watched), (times <= watched).astype(float)


FAMILIES = {
    "Exponential": (hm.Exponential, lambda p: {"rate": 1.0 / p["lambda_"]}),
    "Weibull": (hm.Weibull, lambda p: {"scale": p["lambda_"], "shape": p["rho_"]}),
    "LogNormal": (hm.LogNormal, lambda p: {"mean": p["mu_"], "scale": p["sigma_"]}),
    "LogLogistic": (hm.LogLogistic, lambda p: {"scale": p["alpha_"], "shape": p["beta_"]}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_right_censored_lifetimes(name, lifetimes):
    make, renamed = FAMILIES[name]
    times, seen = lifetimes
    assert 0.2 < 1 - seen.mean() < 0.5
    peer = getattr(lifelines, f"{name}Fitter")().fit(times, seen)
    assert constants(make(event="seen"), times, event=seen) == pytest.approx(
        renamed(peer.params_), rel=1e-3, abs=1e-3
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_interval_censored_lifetimes(name, lifetimes):
    """Visits every half year: the end lies between two of them, or after the last."""
    make, renamed = FAMILIES[name]
    times = lifetimes[0]
    low = np.floor(2 * times) / 2
    high = np.where(low >= 2.0, np.inf, low + 0.5)
    fitter = getattr(lifelines, f"{name}Fitter")()
    peer = fitter.fit_interval_censoring(low, high)
    ours = constants(
        make(lower="low", upper="high"),
        np.where(np.isinf(high), low, high),
        lower=np.where(low > 0, low, np.nan),
        upper=np.where(np.isinf(high), np.nan, high),
    )
    assert ours == pytest.approx(renamed(peer.params_), rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("upper", [None, 1.5])
def test_tobit(upper):
    """A normal number that is recorded down to one limit, or between two."""
    rng = np.random.default_rng(1)
    y = rng.normal(0.4, 1.2, N)
    seen = np.clip(y, -0.3, upper)
    low = np.where(seen <= -0.3, 0.0, np.exp(seen))
    high = np.exp(seen) if upper is None else np.where(seen >= upper, np.inf, np.exp(seen))
    peer = lifelines.LogNormalFitter().fit_interval_censoring(low, high).params_
    ours = constants(hm.Gaussian(lower=-0.3, upper=upper), seen)
    assert ours == pytest.approx({"mean": peer["mu_"], "scale": peer["sigma_"]}, rel=1e-3)
    assert abs(ours["mean"] - seen.mean()) > 0.03  # which a fit without the limit would give
