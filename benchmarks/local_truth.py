"""Local latents against the truth: lengthscales and standard deviations on simulated places.

    python benchmarks/local_truth.py --places 2000

A function with a Matern 3/2 covariance is seen with noise at random places, in one and two
dimensions, with lengthscales of 1, 3 and 10 times the distance between neighbouring places; as a
real output and as a binary one. A model with one local latent is learned from it, and the default
one. The lengthscale of the local latent is compared with the truth, and the standard deviations of
f and of means over 20 neighbouring places with those of an exact process whose hyperparameters are
the truth: in closed form for real outputs, by Hamiltonian Monte Carlo for binary ones. Where f is
the sum of a smooth part and a local one, their exact posterior correlation is printed first.
"""

import argparse
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import MCMC, NUTS
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import hetmogp as hm
from hetmogp.session import session

NOISE, SLOPE = 0.5, 2.0  # of real outputs; of binary ones, on the logistic scale


def matern(apart, lengthscale):
    """The Matern 3/2 covariance."""
    r = np.sqrt(3.0) * apart / lengthscale
    return (1.0 + r) * np.exp(-r)


def simulated(n, p, spacings, seed):
    """Places, f there, its covariance and its lengthscale."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, p))
    lengthscale = spacings * np.median(cKDTree(X).query(X, k=2)[0][:, 1])
    K = matern(cdist(X, X), lengthscale)
    f = np.linalg.cholesky(K + 1e-8 * np.eye(n)) @ rng.standard_normal(n)
    return X, f, K, lengthscale


def posterior(K, y, binary, seed):
    """The exact covariance of f given the values."""
    n = len(y)
    if not binary:
        return K - K @ np.linalg.solve(K + NOISE**2 * np.eye(n), K)
    root = jnp.asarray(np.linalg.cholesky(K + 1e-8 * np.eye(n)))

    def model():
        z = numpyro.sample("z", numpyro.distributions.Normal().expand([n]).to_event(1))
        f = numpyro.deterministic("f", root @ z)
        likelihood = numpyro.distributions.Bernoulli(logits=SLOPE * f)
        numpyro.sample("y", likelihood.to_event(1), obs=jnp.asarray(y))

    sampler = MCMC(NUTS(model), num_warmup=500, num_samples=2000, progress_bar=False)
    with session():
        sampler.run(jax.random.key(seed))
    return SLOPE**2 * np.cov(np.asarray(sampler.get_samples()["f"]), rowvar=False)


def ratios(model, X, cov):
    """How wide the model's f is at places, and its means over 20, beside what is exact."""
    sd = np.sqrt(model.parameter_functions(X)[1][:, 0, 0])
    tree, means = cKDTree(X), []
    with session():
        for i in range(0, len(X), 40):
            some = tree.query(X[i], 20)[1]
            table = model.fitted.scaling.apply(X[some])
            joint = model.fitted.posterior.joint(table)[1][:, 0, :, 0]
            means.append(np.sqrt(joint.sum() / cov[np.ix_(some, some)].sum()))
    return np.median(sd / np.sqrt(np.diag(cov))), np.median(means)


def entangled(n, p, spacings, seed):
    """How a smooth part of f and a local one correlate a posteriori, at a place and by means.

    Both have half the variance. The smooth part has ten times the lengthscale of the local one.
    """
    X, _, _, lengthscale = simulated(n, p, spacings, seed)
    apart = cdist(X, X)
    smooth, local = (0.5 * matern(apart, scale * lengthscale) for scale in (10.0, 1.0))
    inverse = np.linalg.inv(smooth + local + NOISE**2 * np.eye(n))
    own = [K - K @ inverse @ K for K in (smooth, local)]
    both = -smooth @ inverse @ local
    at = np.diag(both) / np.sqrt(np.diag(own[0]) * np.diag(own[1]))
    near, of_means = cKDTree(X), []
    for i in range(0, n, 40):
        some = np.ix_(*[near.query(X[i], 20)[1]] * 2)
        of_means.append(both[some].sum() / np.sqrt(own[0][some].sum() * own[1][some].sum()))
    return (
        f"{p} inputs, {spacings} spacings: the smooth and the local part correlate by "
        f"{np.median(at):.2f} at a place, by {np.median(of_means):.2f} in means over 20 places"
    )


def compared(n, p, spacings, kind, seed):
    """A line of results."""
    X, f, K, lengthscale = simulated(n, p, spacings, seed)
    rng = np.random.default_rng(seed + 1)
    binary = kind == "binary"
    y = (
        (rng.uniform(size=n) < 1 / (1 + np.exp(-SLOPE * f)))
        if binary
        else f + NOISE * rng.normal(size=n)
    ).astype(float)
    likelihood = hm.Bernoulli() if binary else hm.Gaussian()
    options = {"local": {"latents": 1, "inducing": 20, "local": 1}, "default": {}}
    cov = posterior(K, y, binary, seed)
    words = f"{kind}, {p} inputs, {spacings} spacings"
    for name, chosen in options.items():
        model = hm.HetMOGP({"y": likelihood}, progress=False, **chosen).fit(X, y)
        of_f, of_means = ratios(model, X, cov)
        words += f"; {name}: sd of f {of_f:.2f}, of 20-place means {of_means:.2f}"
        if name == "local":
            found = np.ravel(model.kernels_[-1].lengthscale)
            words += f", lengthscale {np.mean(found / lengthscale):.2f}"
    return words


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--places", type=int, default=2000)
    parser.add_argument("--kinds", default="real,binary")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for p in (1, 2):
        for spacings in (1, 3, 10):
            print(entangled(options.places, p, spacings, options.seed), flush=True)
    for kind in options.kinds.split(","):
        for p in (1, 2):
            for spacings in (1, 3, 10):
                print(compared(options.places, p, spacings, kind, options.seed), flush=True)


if __name__ == "__main__":
    main()
