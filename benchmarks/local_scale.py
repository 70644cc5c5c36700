"""Local latents at any size: a long series against a Kalman smoother, and what a step costs.

    python benchmarks/local_scale.py --rows 10000,100000,1000000 --local 1

A function with a Matern 3/2 covariance is seen with noise at random times. A model with a smooth
latent and local ones is learned from it by default steps. Its means and standard deviations are
compared with those of a Kalman smoother of all rows that knows the truth.
"""

import argparse
import resource
import time
import warnings
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import hetmogp as hm
from hetmogp.fitting.mini_batches import Run
from hetmogp.session import session

NOISE, SPACINGS = 0.5, 5.0  # of the values; the lengthscale, in mean distances of rows


def simulated(n, seed):
    """Times, and f there: the exact process, from one time to the next."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, n, n))
    A, Q = transitions(t)
    roots = np.linalg.cholesky(Q + 1e-14 * np.eye(2))
    noise = np.einsum("nij,nj->ni", roots, rng.standard_normal((n, 2)))

    def along(state, step):
        state = step[0] @ state + step[1]
        return state, state[0]

    with session():
        f = np.asarray(jax.lax.scan(along, jnp.zeros(2), (jnp.asarray(A), jnp.asarray(noise)))[1])
    return t, f, f + NOISE * rng.standard_normal(n)


def transitions(t):
    """The matrices that take (f, f') from each time to the next, and the noise they add."""
    rate = np.sqrt(3.0) / SPACINGS
    d = np.diff(t, prepend=-np.inf)
    d[0] = 1e6  # forgotten: the first state has the stationary covariance
    e = np.exp(-rate * d)
    A = np.array([[1.0 + rate * d, d], [-(rate**2) * d, 1.0 - rate * d]]) * e
    A = np.moveaxis(A, 2, 0)
    far = np.diag([1.0, rate**2])
    return A, far - A @ far @ np.swapaxes(A, 1, 2)


def smoothed(t, y):
    """Means and standard deviations of f at all times, given all values."""
    A, Q = transitions(t)

    def forwards(carry, step):
        m, P = carry
        A, Q, y = step
        ahead, spread = A @ m, A @ P @ A.T + Q
        gain = spread[:, 0] / (spread[0, 0] + NOISE**2)
        m = ahead + gain * (y - ahead[0])
        P = spread - jnp.outer(gain, spread[0])
        return (m, P), (m, P, ahead, spread)

    def backwards(carry, step):
        m, P = carry
        own, spread, A, ahead, wide = step
        gain = jnp.linalg.solve(wide, A @ spread).T
        m, P = own + gain @ (m - ahead), spread + gain @ (P - wide) @ gain.T
        return (m, P), (m[0], P[0, 0])

    with session():
        parts = tuple(map(jnp.asarray, (A, Q, y)))
        last, found = jax.lax.scan(forwards, (jnp.zeros(2), jnp.eye(2)), parts)
        m, P, ahead, wide = found
        steps = m[:-1], P[:-1], parts[0][1:], ahead[1:], wide[1:]
        _, (mean, var) = jax.lax.scan(backwards, last, steps, reverse=True)
    mean, var = np.append(mean, last[0][0]), np.append(var, last[1][0, 0])
    return mean, np.sqrt(var)


def compared(n, local, seed):
    """A line of results."""
    t, _, y = simulated(n, seed)
    seconds, steps, epochs = [], [], []
    advance = Run.advance

    def timed(self, feed, count):
        began = time.perf_counter()
        result = advance(self, feed, count)
        if type(self) is not Run:  # steps with local latents
            seconds.append(time.perf_counter() - began)
            steps.append(count)
            epochs.append(feed.epoch)
        return result

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    model = hm.HetMOGP({"y": hm.Gaussian()}, latents=1, inducing=20, local=local, progress=False)
    with patch.object(Run, "advance", timed):
        model.fit(t, y)
    whole = time.perf_counter() - began
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    each = np.median(np.array(seconds[1:]) / np.array(steps[1:]))
    some = np.arange(n) if n <= 100_000 else np.arange(0, n, n // 100_000)
    mean, var = (a[:, 0, 0] if a.ndim == 3 else a[:, 0] for a in model.parameter_functions(t[some]))
    exact, sd = (a[some] for a in smoothed(t, y))
    off, wide = np.abs(mean - exact) / sd, np.sqrt(var) / sd
    return (
        f"{n:,} rows, {local} local: fit {whole:.0f} s, {sum(steps)} steps of {1e3 * each:.1f} ms, "
        f"a pass of {epochs[-1]} steps {epochs[-1] * each:.1f} s, "
        f"{1024 * taken / n:,.0f} bytes a place; mean off by {np.median(off):.3f} sd in the median "
        f"({np.quantile(off, 0.95):.3f} in 95%), sd {np.median(wide):.3f} times the exact one "
        f"({np.quantile(wide, 0.05):.3f} to {np.quantile(wide, 0.95):.3f})"
    )


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--local", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for n in map(int, options.rows.split(",")):
        print(compared(n, options.local, options.seed), flush=True)


if __name__ == "__main__":
    main()
