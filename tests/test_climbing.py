"""What makes a climb short: curvature that was met before, steps that promise little, parts."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from problems import JITTER, mixed_problem
from scipy.stats import multivariate_normal

import hetmogp as hm
from hetmogp.bound import Rules
from hetmogp.fitting import vem
from hetmogp.fitting.apart import numbers_of, run_apart, share_nothing
from hetmogp.fitting.choice import in_use
from hetmogp.fitting.full_batch import run_vem
from hetmogp.fitting.lbfgs import maximise
from hetmogp.fitting.options import Options
from hetmogp.fitting.progress import Progress
from hetmogp.linalg import whiten
from hetmogp.session import session
from hetmogp.variational import Coupled


@pytest.fixture(autouse=True)
def in_double_precision():
    """As within a fit."""
    with session():
        yield


class Hill:
    """A quadratic function whose axes have very different lengths, and how often it was asked."""

    def __init__(self, n=12, seed=0):
        rng = np.random.default_rng(seed)
        turn = np.linalg.qr(rng.standard_normal((n, n)))[0]
        self.curvature = turn @ np.diag(np.geomspace(1e-2, 1e3, n)) @ turn.T
        self.top, self.asked = rng.standard_normal(n), 0

    def __call__(self, z):
        self.asked += 1
        slope = self.curvature @ (self.top - z)
        return np.asarray(-0.5 * (self.top - z) @ slope), slope


def test_a_second_climb_knows_the_curvature_that_the_first_met():
    hill = Hill()
    first = maximise(hill, np.zeros(12), 200, 1e-9)
    np.testing.assert_allclose(first.z, hill.top, atol=1e-3)
    assert first.reach is not None
    there = np.ones(12)  # elsewhere on the same hill, three times as high: more data
    higher, plain = Hill(), Hill()
    higher.curvature *= 3.0
    plain.curvature *= 3.0
    again = maximise(higher, there, 200, 1e-9, first.reach / 3.0)
    without = maximise(plain, there, 200, 1e-9)
    np.testing.assert_allclose(again.z, hill.top, atol=1e-3)
    assert higher.asked < 0.6 * plain.asked
    assert without.still
    assert again.still


def test_a_climb_that_starts_at_the_top_ends_at_once_and_keeps_what_it_knew():
    hill, reach = Hill(), np.eye(12)
    climbed = maximise(hill, hill.top, 50, 1e-3, reach)
    assert climbed.still
    assert hill.asked < 5
    assert climbed.reach is not None
    np.testing.assert_allclose(climbed.reach, reach)


def test_noise_in_the_last_digits_does_not_keep_a_climb_going():
    hill, rng = Hill(), np.random.default_rng(1)

    def noisy(z):
        value, slope = hill(z)
        return value + 1e-3 * rng.standard_normal(), slope

    climbed = maximise(noisy, np.zeros(12), 1000, 0.1)
    assert climbed.still
    assert hill.asked < 120
    assert hill(climbed.z)[0] > -1.0


def test_a_climb_does_not_leap_to_where_anything_is_promised():
    """Far off, a bound by quadrature may be of any height: it is not believed."""
    hill = Hill()

    def with_a_spike(z):
        value, slope = hill(z)
        return (value, slope) if np.abs(z).max() < 8 else (np.asarray(1e6), slope)

    reach = 1e4 * np.eye(12)  # which invites leaps
    climbed = maximise(with_a_spike, np.zeros(12), 200, 1e-6, reach, far=5.0)
    np.testing.assert_allclose(climbed.z, hill.top, atol=0.5)


@pytest.mark.parametrize("lengthscale", [0.5, 15.0, 200.0])
@pytest.mark.parametrize("listed", [False, True])
def test_a_cycle_is_found_from_any_start(lengthscale, listed):
    rng = np.random.default_rng(3)
    year = np.arange(120.0)
    y = np.sin(2 * np.pi * year / 11) + 0.3 * np.sin(2 * np.pi * year / 4.3)
    y = y + 0.2 * rng.standard_normal(120)
    kernel = hm.RBF(lengthscale=lengthscale)
    model = hm.HetMOGP({"y": hm.Gaussian()}, kernel=[kernel] if listed else kernel, progress=False)
    model.fit(year, {"y": y})
    assert 0.5 < float(model.kernels_[0].lengthscale[0]) < 5.0
    K = np.exp(-0.5 * (year[:, None] - year) ** 2 / 2.0**2) + 0.05 * np.eye(120)
    exact = multivariate_normal(np.full(120, y.mean()), K * y.var()).logpdf(y)
    assert model.elbo_ > exact - 3.0  # the evidence where a cycle is seen for what it is


def test_a_promise_is_what_the_next_step_gains():
    """Near the best q, where it decides whether that step is taken at all."""
    _, batch, parameters = mixed_problem(2)
    projection = parameters.prior.matrices(batch.X, JITTER).project()
    problem = vem.Problem(batch, Rules(), Coupled, 1e-12)
    best = vem.init(parameters, problem, JITTER)
    sites = tuple(
        eqx.tree_at(lambda s: s.linear, site, site.linear + 0.1 * jnp.sin(7.0 * site.linear))
        for site in best.sites
    )
    numbers = jnp.asarray(JITTER), jnp.asarray(1e300)
    given = vem._Given(batch, Rules(), *numbers, None, jnp.asarray(False))
    found = vem._best_q(parameters, sites, sites, projection, given, Coupled)
    left = best.bound - float(found.bound)
    assert 0.01 < left < 5.0
    assert float(found.promise) == pytest.approx(left, rel=0.3)


def test_whitening_by_widths_equals_whitening_each_by_itself():
    rng = np.random.default_rng(2)
    C, B = rng.standard_normal((3, 70, 70)), rng.standard_normal((3, 70, 5))
    K = C @ C.transpose(0, 2, 1) + 10 * np.eye(70)
    widths = (70, 3, 20)
    A = np.asarray(whiten(jnp.asarray(K), jnp.asarray(B), widths))
    for q, width in enumerate(widths):
        L = np.linalg.cholesky(K[q, :width, :width])
        np.testing.assert_allclose(A[q, :width], np.linalg.solve(L, B[q, :width]), atol=1e-10)
        assert not A[q, width:].any()


def apart_problem():
    """Three outputs, of which each has latents of its own: one, one and two."""
    _, batch, parameters = mixed_problem(4)
    own = jnp.asarray(np.eye(4))
    parameters = eqx.tree_at(lambda p: (p.prior.weights, p.prior.mask), parameters, (own, own))
    return parameters, vem.Problem(batch, Rules(), Coupled, 1e-4, learn_inducing=False)


def test_outputs_that_share_nothing_come_out_as_in_one_model():
    parameters, problem = apart_problem()
    assert share_nothing(parameters, problem)
    rest = Options(), (20, 1e-3), Progress(False)
    whole, apart = run_vem([parameters], problem, *rest), run_apart(parameters, problem, *rest)
    assert apart.bound == pytest.approx(whole.bound, abs=0.02)
    assert sum(apart.each) == pytest.approx(apart.bound)
    assert apart.converged
    # Its q is the best one of the whole model, and its history ends at the objective.
    again = vem.init(apart.parameters, problem._replace(tolerance=1e-8), apart.jitter)
    assert apart.bound == pytest.approx(again.bound, abs=1e-3)
    assert apart.history[-1] == pytest.approx(again.objective, abs=1e-3)
    assert isinstance(apart.q, Coupled)
    assert isinstance(again.q, Coupled)
    np.testing.assert_allclose(apart.q.mean, again.q.mean, atol=0.02)


def test_only_outputs_that_share_nothing_are_fitted_one_by_one():
    parameters, problem = apart_problem()
    tied = eqx.tree_at(lambda p: p.prior.mask, parameters, jnp.ones((4, 4)))
    assert not share_nothing(tied, problem)
    assert not share_nothing(parameters, problem._replace(learn_inducing=True))


def test_the_numbers_of_a_part_are_found_among_those_of_the_whole():
    parameters, _ = apart_problem()
    fewer = np.array(parameters.prior.mask)
    fewer[:, 1] = 0.0
    parameters = eqx.tree_at(lambda p: p.prior.mask, parameters, jnp.asarray(fewer))
    places = numbers_of(parameters, in_use)
    n = 4 * 4 + 4 + 4  # weights, constants, lengthscales
    assert len(places) == n - 4 - 1
    assert len(set(places)) == len(places)
