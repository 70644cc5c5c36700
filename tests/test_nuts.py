"""The coupled q against NUTS, hyperparameters held: means and standard deviations of f.

Slow: numpyro draws some thousands of samples of all whitened latents, for two problems.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

import hetmogp as hm
from hetmogp.bound import Rules
from hetmogp.data import Scaling, full_batch
from hetmogp.fitting import vem
from hetmogp.parameters import Parameters
from hetmogp.posterior import Posterior
from hetmogp.priors import LMC
from hetmogp.session import session
from hetmogp.tables import read
from hetmogp.variational import Coupled

JITTER = 1e-6
UNSCALED = Scaling(np.zeros(1), np.ones(1))

LENGTHSCALES = [0.15, 0.3]
# Bernoulli's and Poisson's function, then the mean and the log variance of HetGaussian.
WEIGHTS = {
    "shared": np.array([[1.0, 0.6], [0.5, -0.4], [0.8, 0.7], [0.3, -0.3]]),
    "nearly one latent": np.array([[1.2, 0.1], [0.6, 0.1], [0.9, 0.2], [0.4, 0.3]]),
}
CONSTANTS = np.array([0.2, 1.5, 0.0, -1.0])


def problem(weights, N=60):
    """Data drawn from a known model, with a gap in each output; Z at every input."""
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0.0, 1.0, N))
    K = [np.exp(-0.5 * ((x[:, None] - x) / ell) ** 2) + JITTER * np.eye(N) for ell in LENGTHSCALES]
    u = np.stack([np.linalg.cholesky(k) @ rng.standard_normal(N) for k in K])
    f = CONSTANTS[:, None] + weights @ u
    Y = {
        "a": (rng.uniform(size=N) < 1 / (1 + np.exp(-f[0]))).astype(float),
        "b": rng.poisson(np.exp(f[1])).astype(float),
        "c": f[2] + np.exp(0.5 * f[3]) * rng.standard_normal(N),
    }
    for d, name in enumerate(Y):
        Y[name][15 * d : 15 * d + 12] = np.nan
    likelihoods = {"a": hm.Bernoulli(), "b": hm.Poisson(), "c": hm.HetGaussian()}
    data = read(likelihoods, x, Y)
    numbers = {
        "kernels": tuple(hm.RBF(np.array([ell])) for ell in LENGTHSCALES),
        "inducing_inputs": x[None, :, None],
        "weights": weights,
        "mask": np.ones_like(weights),
        "constants": CONSTANTS,
        "centre": np.zeros(4),
        "spread": np.ones(4),
    }
    prior = LMC(**jax.tree.map(jnp.asarray, numbers), ranks=(1, 1))
    return Parameters(prior, tuple(data.likelihoods)), full_batch(data, UNSCALED)[0], x, Y, K


def sampled(weights, Y, K):
    """Draws of f at all rows, (samples, N, J), by NUTS on the whitened latents."""
    roots = jnp.asarray(np.stack([np.linalg.cholesky(k) for k in K]))
    seen = {name: np.flatnonzero(~np.isnan(y)) for name, y in Y.items()}

    def functions(v):
        return jnp.asarray(CONSTANTS) + jnp.einsum("rmk,...rk,jr->...mj", roots, v, weights)

    def model():
        v = numpyro.sample("v", dist.Normal(0, 1).expand(roots.shape[:2]).to_event(2))
        f = functions(v)
        a, b, c = (seen[name] for name in "abc")
        numpyro.sample("a", dist.Bernoulli(logits=f[a, 0]), obs=jnp.asarray(Y["a"][a]))
        numpyro.sample("b", dist.Poisson(jnp.exp(f[b, 1])), obs=jnp.asarray(Y["b"][b]))
        noise = dist.Normal(f[c, 2], jnp.exp(0.5 * f[c, 3]))
        numpyro.sample("c", noise, obs=jnp.asarray(Y["c"][c]))

    chains = MCMC(NUTS(model), num_warmup=500, num_samples=6000, progress_bar=False, num_chains=1)
    chains.run(jax.random.key(0))
    return np.asarray(functions(chains.get_samples()["v"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WEIGHTS))
def test_means_and_deviations_of_f_are_those_of_nuts(name):
    with session():
        weights = WEIGHTS[name]
        parameters, batch, x, Y, K = problem(weights)
        rules = Rules()
        state = vem.init(parameters, vem.Problem(batch, rules, Coupled, 1e-10), JITTER)
        mean, cov = Posterior(parameters.prior, state.q, JITTER).functions(x[:, None])
        draws = sampled(jnp.asarray(weights), Y, K)
    sd = draws.std(axis=0)
    off = np.abs(mean - draws.mean(axis=0)) / sd
    ratio = np.sqrt(np.diagonal(cov, axis1=1, axis2=2)) / sd
    print(f"\n{name}: means off by at most {off.max(axis=0)} sd, {off.mean(axis=0)} on average;")
    print(f"ratios of sd {ratio.min(axis=0)} to {ratio.max(axis=0)}")
    assert off.max() < 0.1
    assert ratio.min() > 0.9
    assert ratio.max() < 1.05
