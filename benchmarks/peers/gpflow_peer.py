"""GPflow, measured: see `common`."""

import os
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
BEGAN = time.perf_counter()

import gpflow  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from common import NODES, WEIGHTS, columns, median_seconds, nlpd, problem, serve  # noqa: E402

IMPORT = time.perf_counter() - BEGAN


def build(of: dict[str, np.ndarray]) -> gpflow.models.SVGP:
    Q, M, _ = of["Z"].shape
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.SquaredExponential(lengthscales=ell) for ell in of["lengthscale"]],
        W=of["W"],
    )
    inducing = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(Z) for Z in of["Z"]]
    )
    return gpflow.models.SVGP(
        kernel,
        gpflow.likelihoods.Gaussian(),  # not used: the expectations are written out below
        inducing_variable=inducing,
        q_mu=np.zeros((M, Q)),
        q_sqrt=np.tile(np.eye(M), (Q, 1, 1)),
        whiten=True,
        mean_function=gpflow.functions.Constant(np.zeros(len(of["W"]))),
    )


def bound(model: gpflow.models.SVGP, X: tf.Tensor, Y: tf.Tensor, scale: float) -> tf.Tensor:
    mean, variance = model.predict_f(X)
    total = tf.zeros((), tf.float64)
    for d, part in enumerate(columns(Y.shape[1])):
        m, v, y = tf.gather(mean, part, axis=1), tf.gather(variance, part, axis=1), Y[:, d]
        if len(part) == 1:
            f = m + tf.sqrt(v) * tf.constant(NODES)
            inner = y[:, None] * f - tf.nn.softplus(f)
            total += tf.reduce_sum(tf.linalg.matvec(inner, tf.constant(WEIGHTS)))
        else:
            weight = tf.exp(-m[:, 1] + 0.5 * v[:, 1])
            square = (y - m[:, 0]) ** 2 + v[:, 0]
            total += tf.reduce_sum(-0.5 * (np.log(2 * np.pi) + m[:, 1] + weight * square))
    return scale * total - model.prior_kl()


def stepper(model, draw, scale, natural):
    """One step as its users write it: gradients of all, or a natural step and one of Adam."""
    everything = model.trainable_variables
    if not natural:

        @tf.function
        def gradients():
            X, Y = draw()
            with tf.GradientTape() as tape:
                value = bound(model, X, Y, scale)
            return value, tape.gradient(value, everything)

        return gradients
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    adam, natgrad = tf.optimizers.Adam(0.01), gpflow.optimizers.NaturalGradient(gamma=0.03)
    rest = model.trainable_variables
    adam.build(rest)

    @tf.function
    def step():
        X, Y = draw()
        natgrad.minimize(lambda: -bound(model, X, Y, scale), [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape() as tape:
            loss = -bound(model, X, Y, scale)
        adam.apply_gradients(zip(tape.gradient(loss, rest), rest, strict=True))
        return loss

    return step


def step(M: int, B: int, Q: int, p: int, D: int, natural: bool, repeats: int) -> float:
    of = problem(M, B, Q, p, D)
    X, Y = tf.constant(of["X"]), tf.constant(of["Y"])
    one = stepper(build(of), lambda: (X, Y), 20.0, natural)

    def timed():
        result = one()
        float(result[0] if isinstance(result, tuple) else result)

    return median_seconds(timed, repeats)


def first(M: int, B: int) -> list[float]:
    """Seconds of the import, and of the first step."""
    of = problem(M, B, 3, 2, 2)
    X, Y = tf.constant(of["X"]), tf.constant(of["Y"])
    began = time.perf_counter()
    stepper(build(of), lambda: (X, Y), 20.0, True)()
    return [IMPORT, time.perf_counter() - began]


def predict(N: int, M: int) -> float:
    model = build(problem(M, 10, 3, 2, 2))
    X = np.random.default_rng(0).uniform(size=(N, 2))
    f = tf.function(model.predict_f)
    f(tf.constant(X[:4096]))
    began = time.perf_counter()
    parts = [f(tf.constant(X[i : i + 4096])) for i in range(0, N, 4096)]
    np.concatenate([m.numpy() for m, _ in parts]), np.concatenate([v.numpy() for _, v in parts])
    return time.perf_counter() - began


def draw(N: int, M: int, n: int) -> float:
    """Seconds of joint draws of three functions, from the covariance over all rows."""
    model = build(problem(M, 10, 3, 2, 2))
    X = tf.constant(np.random.default_rng(0).uniform(size=(N, 2)))

    @tf.function
    def draws():
        return model.predict_f_samples(X, n, full_cov=True, full_output_cov=False)

    draws().numpy()
    began = time.perf_counter()
    draws().numpy()
    return time.perf_counter() - began


def train(path: str, steps: int, every: int, batch: int) -> list[tuple[float, float]]:
    """(training seconds, NLPD) after every so many steps; compiling is not counted."""
    data = np.load(path)
    X, Y = tf.constant(data["X"]), tf.constant(data["Y"])
    model = build({k: data[k] for k in ("Z", "W", "lengthscale")})
    model.mean_function.c.assign(data["b"])
    N = X.shape[0]

    def draw():
        rows = tf.random.uniform((batch,), 0, N, tf.int32)
        return tf.gather(X, rows), tf.gather(Y, rows)

    one, seconds, curve = stepper(model, draw, N / batch, True), 0.0, []
    one()
    for _ in range(0, steps, every):
        began = time.perf_counter()
        for _ in range(every):
            loss = one()
        float(loss)
        seconds += time.perf_counter() - began
        m, v = model.predict_f(tf.constant(data["X_test"]))
        curve.append((seconds, nlpd(m.numpy(), v.numpy(), *data["Y_test"].T)))
    return curve


if __name__ == "__main__":
    serve(step=step, first=first, predict=predict, draw=draw, train=train)
