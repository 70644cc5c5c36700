"""GPyTorch, measured: see `common`."""

import time

BEGAN = time.perf_counter()

import gpytorch  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from common import NODES, WEIGHTS, columns, median_seconds, nlpd, problem, serve  # noqa: E402

IMPORT = time.perf_counter() - BEGAN
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_default_dtype(torch.float64)


def tensor(a: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(a, device=DEVICE)


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, of: dict[str, np.ndarray], natural: bool):
        Q, M, p = of["Z"].shape
        kind = (
            gpytorch.variational.NaturalVariationalDistribution
            if natural
            else gpytorch.variational.CholeskyVariationalDistribution
        )
        inner = gpytorch.variational.VariationalStrategy(
            self, torch.as_tensor(of["Z"]), kind(M, batch_shape=torch.Size([Q]))
        )
        strategy = gpytorch.variational.LMCVariationalStrategy(
            inner, num_tasks=len(of["W"]), num_latents=Q, latent_dim=-1
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([Q]))
        self.covar_module = gpytorch.kernels.RBFKernel(ard_num_dims=p, batch_shape=torch.Size([Q]))
        self.covar_module.lengthscale = torch.as_tensor(of["lengthscale"])[:, None, :]
        strategy.lmc_coefficients.data = torch.as_tensor(of["W"]).T.contiguous()
        self.constant = torch.nn.Parameter(torch.zeros(len(of["W"])))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def bound(model: Model, X: torch.Tensor, Y: torch.Tensor, scale: float) -> torch.Tensor:
    q = model(X)
    mean, variance = q.mean + model.constant, q.variance
    total = 0.0
    nodes, weights = tensor(NODES), tensor(WEIGHTS)
    for d, part in enumerate(columns(Y.shape[1])):
        m, v, y = mean[:, part], variance[:, part], Y[:, d]
        if len(part) == 1:
            f = m + v.sqrt() * nodes
            total = total + ((y[:, None] * f - torch.nn.functional.softplus(f)) @ weights).sum()
        else:
            weight = torch.exp(-m[:, 1] + 0.5 * v[:, 1])
            square = (y - m[:, 0]) ** 2 + v[:, 0]
            total = total - 0.5 * (np.log(2 * np.pi) + m[:, 1] + weight * square).sum()
    return scale * total - model.variational_strategy.kl_divergence().sum()


def stepper(model: Model, draw, scale: float, N: int, natural: bool):
    if not natural:

        def gradients():
            model.zero_grad()
            X, Y = draw()
            value = bound(model, X, Y, scale)
            value.backward()
            return value

        return gradients
    ngd = gpytorch.optim.NGD(model.variational_parameters(), num_data=N, lr=0.03)
    adam = torch.optim.Adam(model.hyperparameters(), lr=0.01)

    def step():
        ngd.zero_grad()
        adam.zero_grad()
        X, Y = draw()
        loss = -bound(model, X, Y, scale) / N
        loss.backward()
        ngd.step()
        adam.step()
        return loss

    return step


def synchronise() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def step(M: int, B: int, Q: int, p: int, D: int, natural: bool, repeats: int) -> float:
    of = problem(M, B, Q, p, D)
    X, Y = tensor(of["X"]), tensor(of["Y"])
    model = Model(of, natural).to(DEVICE).train()
    one = stepper(model, lambda: (X, Y), 20.0, 20 * B, natural)

    def timed():
        one()
        synchronise()

    return median_seconds(timed, repeats)


def first(M: int, B: int) -> list[float]:
    """Seconds of the import, and of the first step."""
    of = problem(M, B, 3, 2, 2)
    X, Y = tensor(of["X"]), tensor(of["Y"])
    began = time.perf_counter()
    stepper(Model(of, True).to(DEVICE).train(), lambda: (X, Y), 20.0, 20 * B, True)()
    synchronise()
    return [IMPORT, time.perf_counter() - began]


def _predictions(model: Model, X: np.ndarray, rows: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    model.eval()
    means, variances = [], []
    with torch.no_grad():
        for i in range(0, len(X), rows):
            q = model(tensor(X[i : i + rows]))
            means.append((q.mean + model.constant).cpu().numpy())
            variances.append(q.variance.cpu().numpy())
    model.train()
    return np.concatenate(means), np.concatenate(variances)


def predict(N: int, M: int) -> float:
    model = Model(problem(M, 10, 3, 2, 2), False).to(DEVICE)
    X = np.random.default_rng(0).uniform(size=(N, 2))
    _predictions(model, X[:1024], 1024)
    began = time.perf_counter()
    _predictions(model, X, 1024)
    return time.perf_counter() - began


def train(path: str, steps: int, every: int, batch: int) -> list[tuple[float, float]]:
    """(training seconds, NLPD) after every so many steps."""
    data = np.load(path)
    X, Y = tensor(data["X"]), tensor(data["Y"])
    model = Model({k: data[k] for k in ("Z", "W", "lengthscale")}, True)
    model.constant.data = torch.as_tensor(data["b"])
    model = model.to(DEVICE).train()
    N = len(X)

    def draw():
        rows = torch.randint(0, N, (batch,), device=DEVICE)
        return X[rows], Y[rows]

    one, seconds, curve = stepper(model, draw, N / batch, N, True), 0.0, []
    one()
    for _ in range(0, steps, every):
        began = time.perf_counter()
        for _ in range(every):
            one()
        synchronise()
        seconds += time.perf_counter() - began
        curve.append((seconds, nlpd(*_predictions(model, data["X_test"], 1000), *data["Y_test"].T)))
    return curve


if __name__ == "__main__":
    serve(step=step, first=first, predict=predict, train=train)
