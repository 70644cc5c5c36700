"""Local latents against the truth: lengthscales and standard deviations on simulated places.

    python benchmarks/local_truth.py --places 2000

A function with a Matern 3/2 covariance is seen with noise at random places, in one and two
dimensions, with lengthscales of 1, 3 and 10 times the distance between neighbouring places; as a
real output and as a binary one. A model with one local latent is learned from it. Its lengthscale
is compared with the truth, and its standard deviations of f and of means over 20 neighbouring
places, for real outputs, with those of an exact process whose hyperparameters are the truth.
"""

import argparse
import warnings

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import hetmogp as hm
from hetmogp.session import session

NOISE = 0.5


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


def compared(n, p, spacings, kind, seed):
    """A line of results."""
    X, f, K, lengthscale = simulated(n, p, spacings, seed)
    rng = np.random.default_rng(seed + 1)
    binary = kind == "binary"
    y = (
        (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * f)))
        if binary
        else f + NOISE * rng.normal(size=n)
    )
    likelihood = hm.Bernoulli() if binary else hm.Gaussian()
    model = hm.HetMOGP({"y": likelihood}, latents=1, inducing=20, local=1, progress=False)
    model.fit(X, y.astype(float))
    found = np.ravel(model.kernels_[-1].lengthscale)
    words = (
        f"{kind}, {p} inputs, {spacings} spacings: lengthscale {np.mean(found / lengthscale):.2f}"
    )
    if not binary:
        gain = K @ np.linalg.inv(K + NOISE**2 * np.eye(n))
        cov = K - gain @ K
        sd = np.sqrt(model.parameter_functions(X)[1][:, 0, 0])
        ratios = []
        tree = cKDTree(X)
        with session():
            for i in range(0, n, 40):
                some = tree.query(X[i], 20)[1]
                table = model.fitted.scaling.apply(X[some])
                joint = model.fitted.posterior.joint(table)[1][:, 0, :, 0]
                ratios.append(np.sqrt(joint.sum() / cov[np.ix_(some, some)].sum()))
        words += f", sd of f {np.median(sd / np.sqrt(np.diag(cov))):.2f}"
        words += f", sd of 20-place means {np.median(ratios):.2f}"
    return words


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--places", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for kind in ("real", "binary"):
        for p in (1, 2):
            for spacings in (1, 3, 10):
                print(compared(options.places, p, spacings, kind, options.seed), flush=True)


if __name__ == "__main__":
    main()
