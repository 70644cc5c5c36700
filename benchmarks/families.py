"""Every likelihood with a smooth truth to simulate from, for the calibration and discovery runs.

Two smooth functions of one input are mixed into the parameter functions of each family; a second
output, Gaussian, mixes the same two.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hetmogp as hm
from hetmogp.session import session


class Family(NamedTuple):
    """A likelihood as a user would write it, and the truth behind its data.

    Attributes:
        likelihood: what is fitted.
        truth: the same with its constants fixed at their true values.
        b: the constants of the parameter functions.
        W: how they mix the two smooth functions.
        beside: the columns that come with the output, from a generator and the number of rows.
    """

    likelihood: hm.Likelihood
    truth: hm.Likelihood
    b: tuple[float, ...]
    W: tuple[tuple[float, float], ...]
    beside: Callable[[np.random.Generator, int], dict[str, np.ndarray]] = lambda rng, n: {}


def _ordinal(gaps: tuple[float, ...]) -> hm.Likelihood:
    import equinox as eqx

    of = hm.Ordinal(classes=list(range(len(gaps) + 2)))
    free = {f"gap{k}": float(np.log(gap)) for k, gap in enumerate(gaps, start=1)}
    return eqx.tree_at(lambda of: of.free, of, free, is_leaf=lambda x: isinstance(x, dict))


def _exposure(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {"exposure": rng.uniform(0.5, 3.0, n)}


def _trials(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {"trials": rng.integers(1, 15, n).astype(float)}


ONE, TWO = ((1.0, 0.5),), ((1.0, 0.5), (-0.4, 0.7))
THREE = ((1.0, 0.5), (-0.8, 1.0), (0.9, -0.7))
FAMILIES = {
    "Gaussian": Family(hm.Gaussian(), hm.Gaussian(scale=0.5), (0.3,), ONE),
    "HetGaussian": Family(hm.HetGaussian(), hm.HetGaussian(), (0.3, -1.5), TWO),
    "StudentT": Family(hm.StudentT(), hm.StudentT(scale=0.4, df=3.0), (0.3,), ONE),
    "HetStudentT": Family(hm.HetStudentT(), hm.HetStudentT(df=4.0), (0.3, -1.0), TWO),
    "Bernoulli": Family(hm.Bernoulli(), hm.Bernoulli(), (0.2,), ((1.5, 0.8),)),
    "Binomial": Family(
        hm.Binomial(trials="trials"), hm.Binomial(trials="trials"), (0.6,), ONE, _trials
    ),
    "Categorical": Family(
        hm.Categorical(), hm.Categorical(classes=[0, 1, 2, 3]), (0.2, -0.3, 0.1), THREE
    ),
    "Ordinal": Family(hm.Ordinal(), _ordinal((1.0, 0.8, 1.2)), (1.2,), ((1.5, 0.8),)),
    "Poisson": Family(
        hm.Poisson(exposure="exposure"), hm.Poisson(exposure="exposure"), (1.0,), ONE, _exposure
    ),
    "NegativeBinomial": Family(
        hm.NegativeBinomial(), hm.NegativeBinomial(concentration=2.0), (1.5,), ONE
    ),
    "ZeroInflatedPoisson": Family(
        hm.ZeroInflatedPoisson(), hm.ZeroInflatedPoisson(), (1.3, -0.8), TWO
    ),
    "ZeroInflatedNegativeBinomial": Family(
        hm.ZeroInflatedNegativeBinomial(),
        hm.ZeroInflatedNegativeBinomial(concentration=3.0),
        (1.8, -0.8),
        TWO,
    ),
    "Hurdle(Gamma)": Family(
        hm.Hurdle(hm.Gamma()),
        hm.Hurdle(hm.Gamma()),
        (1.0, 0.5, 0.2),
        ((0.5, 0.3), (-0.4, 0.6), (0.9, -0.7)),
    ),
    "Hurdle(NegativeBinomial)": Family(
        hm.Hurdle(hm.NegativeBinomial()),
        hm.Hurdle(hm.NegativeBinomial(concentration=3.0)),
        (1.8, -0.3),
        TWO,
    ),
    "Gaussian (limits)": Family(
        hm.Gaussian(lower=-0.5, upper=1.5), hm.Gaussian(scale=0.5), (0.3,), ONE
    ),
    "LogNormal (limit)": Family(hm.LogNormal(lower=1.0), hm.LogNormal(scale=0.6), (0.5,), ONE),
    "Gaussian (rounded)": Family(hm.Gaussian(step=1.0), hm.Gaussian(scale=0.5), (0.3,), ONE),
    "Exponential": Family(hm.Exponential(event="event"), hm.Exponential(), (0.2,), ONE),
    "Gamma": Family(hm.Gamma(), hm.Gamma(), (1.0, 0.5), ((0.5, 0.3), (-0.4, 0.6))),
    "LogNormal": Family(hm.LogNormal(event="event"), hm.LogNormal(scale=0.6), (0.5,), ONE),
    "Weibull": Family(hm.Weibull(event="event"), hm.Weibull(shape=1.7), (0.5,), ONE),
    "LogLogistic": Family(hm.LogLogistic(event="event"), hm.LogLogistic(shape=3.0), (0.5,), ONE),
    "Beta": Family(hm.Beta(), hm.Beta(), (0.2, 2.0), TWO),
    "LogitNormal": Family(hm.LogitNormal(), hm.LogitNormal(scale=0.6), (0.2,), ONE),
    "ZeroOneInflatedBeta": Family(
        hm.ZeroOneInflatedBeta(),
        hm.ZeroOneInflatedBeta(concentration=6.0, one=0.6),
        (0.2, -1.5),
        TWO,
    ),
    "VonMises": Family(hm.VonMises(), hm.VonMises(), (0.5, 0.5), ((2.0, 1.0), (-1.0, 2.0))),
}
# The same as plain columns, with nothing beside them, for `discover`.
COLUMNS = {
    **FAMILIES,
    "Binomial": Family(hm.Binomial(trials=10), hm.Binomial(trials=10), (1.5,), ONE),
    "Poisson": Family(hm.Poisson(), hm.Poisson(), (1.0,), ONE),
    "Exponential": Family(hm.Exponential(), hm.Exponential(), (0.2,), ONE),
    "LogNormal": Family(hm.LogNormal(), hm.LogNormal(scale=0.6), (0.5,), ONE),
    "Weibull": Family(hm.Weibull(), hm.Weibull(shape=1.7), (0.5,), ONE),
    "LogLogistic": Family(hm.LogLogistic(), hm.LogLogistic(shape=3.0), (0.5,), ONE),
}
for partly in ("Gaussian (limits)", "LogNormal (limit)", "Gaussian (rounded)"):
    del COLUMNS[partly]  # which values alone do not tell
CENSORED = 0.3  # the share of lifetimes whose end is not seen


class Sample(NamedTuple):
    """Rows of simulated data.

    Attributes:
        x: the inputs.
        y: the output.
        other: the output that shares its latents.
        twin: another draw of y.
        beside: what comes with y.
        log_density: of y under the truth.
    """

    x: np.ndarray
    y: np.ndarray
    other: np.ndarray
    twin: np.ndarray
    beside: dict[str, np.ndarray]
    log_density: np.ndarray


def smooth(x: np.ndarray) -> np.ndarray:
    """The two functions behind everything, (N, 2)."""
    return np.stack([np.sin(7.0 * x) + 0.3 * np.cos(17.0 * x), np.cos(5.0 * x + 1.0)], axis=1)


def simulate(family: Family, n: int, seed: int) -> Sample:
    """N rows from the truth."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, n)
    u = smooth(x)
    f = np.asarray(family.b) + u @ np.asarray(family.W).T
    beside = family.beside(rng, n)
    with session():
        y, log_density = _draw(family.truth, jax.random.key(seed), jnp.asarray(f), beside)
        twin, _ = _draw(family.truth, jax.random.key(seed + 10**6), jnp.asarray(f), beside)
    other = 0.8 * u[:, 0] - 0.5 * u[:, 1] + 0.3 * rng.standard_normal(n)
    return Sample(x, np.asarray(y), other, np.asarray(twin), beside, np.asarray(log_density))


@jax.jit
def _draw(truth: hm.Likelihood, key: Any, f: Any, beside: dict) -> Any:
    def one(key, f, given):
        of = truth.at(given)
        y = of.sample(key, f)
        return y, of.log_prob(y, f)

    return jax.vmap(one)(jax.random.split(key, len(f)), f, beside)


def censor(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Times seen and events: watching ends at a time of its own, for `CENSORED` of them too early.

    That time is a multiple of another draw at the same input, so that it does not depend on y.
    """
    end = np.quantile(sample.y / sample.twin, 1.0 - CENSORED) * sample.twin
    return np.minimum(sample.y, end), (sample.y <= end).astype(float)
