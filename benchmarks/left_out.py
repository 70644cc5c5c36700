"""How good leave-one-out scores by cavities are: beside refits, one for each value left out.

A refit learns the hyperparameters again, as for a value that was never there. The other outputs at
the row of the value stay, as in `HetMOGP.leave_one_out`.

    python benchmarks/left_out.py --rows 40 --seeds 3
"""

import argparse
import warnings

import numpy as np
import pandas as pd

import hetmogp as hm


def simulated(rows, seed):
    """Four outputs that share one function of time."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, 1.0, rows))
    f = np.sin(9.0 * t)
    p = 1.0 / (1.0 + np.exp(-3.0 * f))
    Y = {
        "normal": f + 0.3 * rng.standard_normal(rows),
        "spread": f + np.exp(0.5 * f - 1.0) * rng.standard_normal(rows),
        "count": rng.poisson(np.exp(0.5 + f)).astype(float),
        "yes": (rng.uniform(size=rows) < p) * 1.0,
    }
    kinds = (hm.Gaussian(), hm.HetGaussian(), hm.Poisson(), hm.Bernoulli())
    return dict(zip(Y, kinds, strict=True)), t, pd.DataFrame(Y)


def refitted(likelihoods, t, Y, options):
    """The mean negative log density of each output's values, each left out of a fit of its own."""
    result = {}
    for name in Y:
        scores = []
        for n in range(len(t)):
            some = Y.copy()
            some.loc[n, name] = np.nan
            again = hm.HetMOGP(likelihoods, **options).fit(t, some)
            scores.append(again.predict(t[[n]])[name].log_prob(Y[name].iloc[[n]])[0])
        result[name] = -np.mean(scores)
    return result


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    options = {"latents": 2, "progress": False, "prune": False}
    for seed in range(chosen.seeds):
        likelihoods, t, Y = simulated(chosen.rows, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = hm.HetMOGP(likelihoods, **options).fit(t, Y)
            inside = model.nlpd(t, Y)
            found = model.leave_one_out(t, Y)["joint"]
            learned = refitted(likelihoods, t, Y, options)
        for name in Y:
            print(
                f"seed={seed} rows={chosen.rows} {name}: fitted {inside[name]:.3f} "
                f"cavities {found[name]:.3f} refits {learned[name]:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
