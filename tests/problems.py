"""The parts that fitting works with, for tests that look at them one by one."""

import numpy as np

import hetmogp as hm
from hetmogp.bound import Rules, evaluate
from hetmogp.data import full_batch
from hetmogp.fitting.start import Beginning, initial_lengthscales, initial_parameters
from hetmogp.tables import read

JITTER = 1e-6


def elbo(parameters, q, batch, jitter=JITTER, rules=None):
    """The bound of a model at some q(u), by the readable way: through a projection."""
    projection = parameters.prior.matrices(batch.X, jitter).project()
    return evaluate(parameters, q, projection, batch, rules or Rules()).elbo


def mixed_problem(Q=2, ranks=None, N=60, M=7, seed=0):
    """Bernoulli, Poisson and HetGaussian over one input, with gaps."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, N)
    f = np.sin(6.0 * x)
    Y = {
        "b": (rng.uniform(size=N) < 1 / (1 + np.exp(-2 * f))).astype(float),
        "c": rng.poisson(np.exp(1 + 0.5 * f)).astype(float),
        "h": f + np.exp(0.5 * f - 1) * rng.standard_normal(N),
    }
    Y["b"][10:20] = np.nan
    Y["h"][0] = 6.0  # an outlier: the likelihood is not log-concave there
    data = read({"b": hm.Bernoulli(), "c": hm.Poisson(), "h": hm.HetGaussian()}, x, Y)
    batch, scaling = full_batch(data)
    Z = np.repeat(np.quantile(np.asarray(batch.X), np.linspace(0, 1, M))[None, :, None], Q, 0)
    lengthscales = initial_lengthscales(Q, np.asarray(batch.X))
    beginning = Beginning([hm.RBF()] * Q, ranks or [1] * Q, Z, lengthscales)
    return data, batch, initial_parameters(data, beginning, scaling, seed=seed)
