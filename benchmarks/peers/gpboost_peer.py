"""GPBoost on London's sales: Vecchia's approximation, a model for each output.

    .venv-peers/bin/python benchmarks/peers/gpboost_peer.py train.csv test.csv

Both files have the columns longitude, latitude, flat and log_price. The last line printed is JSON:
the negative log density of each output per held-out sale, and the seconds.
"""

import json
import sys
import time

import gpboost as gpb
import numpy as np
import pandas as pd
from scipy.stats import norm

PLACE = ["longitude", "latitude"]
NEIGHBOURS = 20


def fitted(train, name, likelihood):
    """A spatial model of one output."""
    model = gpb.GPModel(
        gp_coords=train[PLACE].to_numpy(),
        cov_function="matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=NEIGHBOURS,
        likelihood=likelihood,
        seed=1,
    )
    model.fit(y=train[name].to_numpy(), X=np.ones((len(train), 1)))
    return model


def scored(train, test):
    """Negative log densities, and seconds, of both outputs."""
    at = {"gp_coords_pred": test[PLACE].to_numpy(), "X_pred": np.ones((len(test), 1))}
    began = time.perf_counter()
    model = fitted(train, "flat", "bernoulli_logit")
    p = np.clip(model.predict(**at, predict_response=True)["mu"], 1e-12, 1 - 1e-12)
    flat = test["flat"].to_numpy()
    first = time.perf_counter() - began
    model = fitted(train, "log_price", "gaussian")
    pred = model.predict(**at, predict_var=True, predict_response=True)
    price = norm.logpdf(test["log_price"], pred["mu"], np.sqrt(pred["var"]))
    second = time.perf_counter() - began - first
    return {
        "flat": -float(np.mean(np.where(flat > 0, np.log(p), np.log1p(-p)))),
        "log_price": -float(np.mean(price)),
        "seconds": [first, second],
    }


if __name__ == "__main__":
    print(json.dumps(scored(*(pd.read_csv(path) for path in sys.argv[1:3]))))
