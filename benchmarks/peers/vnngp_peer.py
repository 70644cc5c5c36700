"""GPyTorch's nearest-neighbour variational process (VNNGP) on London's flats.

    .venv-peers/bin/python benchmarks/peers/vnngp_peer.py train.csv test.csv

Both files have the columns longitude, latitude and flat. The inducing inputs are the distinct
places, the kernel is a Matern 3/2, and q is a product over places. The last line printed is JSON:
the negative log probability of each held-out value, and the seconds.
"""

import json
import sys
import time

import gpytorch
import numpy as np
import pandas as pd
import torch

PLACE = ["longitude", "latitude"]
NEIGHBOURS, BATCH, EPOCHS, RATE = 10, 512, 20, 0.02


class Model(gpytorch.models.ApproximateGP):
    """One latent function with a value at every place."""

    def __init__(self, places):
        q = gpytorch.variational.MeanFieldVariationalDistribution(len(places))
        strategy = gpytorch.variational.NNVariationalStrategy(
            *(self, places, q), k=NEIGHBOURS, training_batch_size=BATCH
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        matern = gpytorch.kernels.MaternKernel(1.5, ard_num_dims=2)
        self.covar_module = gpytorch.kernels.ScaleKernel(matern)
        matern.lengthscale = 0.05

    def forward(self, x):
        """The prior at some inputs."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main():
    """Fit, score and print."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    train, test = (pd.read_csv(path) for path in sys.argv[1:3])
    centre, scale = train[PLACE].mean(), train[PLACE].std()
    x, at = (torch.tensor(((t[PLACE] - centre) / scale).to_numpy()).float() for t in (train, test))
    y, held = (torch.tensor(t["flat"].to_numpy()).float() for t in (train, test))
    began = time.perf_counter()
    places, of_row = np.unique(x.numpy(), axis=0, return_inverse=True)
    model = Model(torch.tensor(places))
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(x))
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(places) + 1))
    for _ in range(EPOCHS):
        # A batch is some places; the bound weighs their rows as if they were drawn at random.
        for _ in range(-(-len(places) // BATCH)):
            optimiser.zero_grad()
            output = model(None)
            some = model.variational_strategy.current_training_indices.numpy()
            rows = np.concatenate([order[ends[i] : ends[i + 1]] for i in some])
            where = np.repeat(np.arange(len(some)), ends[some + 1] - ends[some])
            mean, var = output.mean[where], output.variance[where]
            spread = gpytorch.distributions.MultivariateNormal(mean, torch.diag_embed(var))
            loss = -bound(spread, y[rows])
            loss.backward()
            optimiser.step()
    seconds = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        p = likelihood(model(at)).mean.double().clamp(1e-9, 1 - 1e-9)
    score = -torch.where(held > 0, p.log(), (1 - p).log()).mean().item()
    lengthscale = model.covar_module.base_kernel.lengthscale.detach().ravel().tolist()
    print(json.dumps({"flat": score, "seconds": seconds, "lengthscale": lengthscale}))


if __name__ == "__main__":
    main()
