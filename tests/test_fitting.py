"""The E-step, natural gradients, gradients of the bound, and what reaches LAPACK."""

import re
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import JITTER, elbo, mixed_problem

import hetmogp as hm
from hetmogp.bound import Rules, evaluate
from hetmogp.data import blocks
from hetmogp.fitting import prune, svi, vem
from hetmogp.fitting.mesh import mesh
from hetmogp.fitting.sites import Sites, flat_sites
from hetmogp.fitting.start import initial_lengthscales
from hetmogp.linalg import whiten
from hetmogp.session import session
from hetmogp.variational import Coupled, Factorised, Moments, Natural

BOTH = pytest.mark.parametrize("family", [Factorised, Coupled], ids=lambda family: family.__name__)


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def random_sites(parameters, batch, seed):
    """Some positive definite sites: an arbitrary start."""
    rng = np.random.default_rng(seed)
    sites = []
    for likelihood, seen in zip(parameters.likelihoods, batch.outputs, strict=True):
        n, J = len(seen.y), len(likelihood.latent)
        C = rng.standard_normal((n, J, J))
        precision = jnp.asarray(C @ C.transpose(0, 2, 1) * rng.uniform(0, 2))
        precision = precision * seen.seen[:, None, None]
        linear = jnp.asarray(3 * rng.standard_normal((n, J))) * seen.seen[:, None]
        sites.append(Sites(linear, precision, precision))
    return tuple(sites)


@pytest.mark.parametrize(
    ("family", "Q"),
    [
        (Factorised, 1),
        (Coupled, 2),
        pytest.param(Factorised, 6, marks=pytest.mark.slow),
        pytest.param(Coupled, 6, marks=pytest.mark.slow),
    ],
)
def test_e_step_converges_from_any_start_and_never_falls(family, Q):
    _, batch, parameters = mixed_problem(Q)
    slope = jax.jit(jax.grad(lambda q: elbo(parameters, q, batch)))
    ends = []
    for start in range(3):
        sites = random_sites(parameters, batch, start) if start else None
        sites = sites or flat_sites(parameters, batch, Rules(), family)
        bounds = []
        for tolerance in (1e300, *np.geomspace(1e4, 1e-12, 17)):  # from no step at all to all
            problem = vem.Problem(batch, Rules(), family, tolerance)
            state = vem.settle(parameters, sites, problem, JITTER)
            sites, q = state.sites, state.q
            bounds.append(state.bound)
        assert np.all(np.diff(bounds) >= -1e-9)
        ends.append(bounds[-1])
        gradient = slope(q)
        assert float(jnp.abs(gradient.mean).max()) < 1e-4
        assert float(jnp.abs(jnp.triu(gradient.root)).max()) < 1e-4
    assert max(ends) - min(ends) < 1e-6


@BOTH
def test_natural_gradient_steps_reach_the_same_optimum(family):
    _, batch, parameters = mixed_problem(3)
    best = vem.init(parameters, vem.Problem(batch, Rules(), family, 1e-12), JITTER).bound
    matrices = parameters.prior.matrices(batch.X, JITTER)
    natural = Natural.at_prior(family, parameters.prior.widths)

    @jax.jit
    def step(natural):
        q = natural.moments()
        slope = jax.grad(lambda q: evaluate(parameters, q, matrices, batch, Rules()).fit)(q)
        return natural.step(q, slope, 0.2)

    for _ in range(300):
        natural = step(natural)
    assert float(elbo(parameters, natural.factors(), batch)) == pytest.approx(best, abs=1e-5)


def test_a_natural_step_keeps_the_precision_positive_definite_where_g_is_positive():
    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.standard_normal((1, 5, 30)))
    g = jnp.asarray(np.abs(rng.standard_normal((1, 30))) * 10)  # far from log-concave
    natural = Natural(jnp.zeros((1, 5)), jnp.eye(5)[None], Factorised)
    cov = jnp.einsum("rmn,rn,rkn->rmk", A, g, A)
    slope = Moments(jnp.zeros((1, 5)), cov, jnp.zeros(1), Factorised)
    for rho in (0.1, 0.5, 1.0):
        new = natural.step(natural.moments(), slope, rho)
        assert np.linalg.eigvalsh(np.asarray(new.precision[0])).min() > 0


def check_gradient(value_and_gradient, values, step=1e-5, tolerance=2e-5):
    """Central differences along random directions."""
    gradient = value_and_gradient(values)[1]
    leaves, structure = jax.tree.flatten(values)
    rng = np.random.default_rng(0)
    for _ in range(4):
        direction = [rng.standard_normal(leaf.shape) for leaf in leaves]

        def moved(t, direction=direction):
            new = [a + t * d for a, d in zip(map(np.asarray, leaves), direction, strict=True)]
            return value_and_gradient(jax.tree.unflatten(structure, map(jnp.asarray, new)))[0]

        numeric = (moved(step) - moved(-step)) / (2 * step)
        slopes = map(np.asarray, jax.tree.leaves(gradient))
        exact = sum(np.sum(g * d) for g, d in zip(slopes, direction, strict=True))
        assert float(exact) == pytest.approx(float(numeric), rel=tolerance, abs=tolerance)


def test_gradients_of_whitening_agree_with_finite_differences():
    rng = np.random.default_rng(0)
    C = rng.standard_normal((2, 4, 4))
    B, weights = (jnp.asarray(rng.standard_normal((2, 4, 3))) for _ in range(2))

    def f(values):
        C, B = values
        K = C @ jnp.swapaxes(C, 1, 2) + jnp.eye(4)
        return jnp.sum(weights * whiten(K, B) ** 2)

    check_gradient(jax.jit(jax.value_and_grad(f)), (jnp.asarray(C), B))


@pytest.mark.parametrize(
    ("family", "joint"),
    [
        (Factorised, True),
        (Coupled, True),
        pytest.param(Factorised, False, marks=pytest.mark.slow),
        pytest.param(Coupled, False, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_the_bound_agree_with_finite_differences(family, joint):
    _, batch, parameters = mixed_problem(3, ranks=[1, 2, 1])
    rules = Rules(joint=joint)
    problem = vem.Problem(batch, rules, family, 1e-3)
    state = vem.init(parameters, problem, JITTER)
    values = parameters.free()

    @jax.jit
    def q_held(values, q):
        return jax.value_and_grad(
            lambda values: elbo(parameters.with_free(values), q, batch, rules=rules)
        )(values)

    check_gradient(lambda values: q_held(values, state.q), values)
    # The profile's gradient is that of the bound with the best q held, and of its own values.
    tight = problem._replace(tolerance=1e-13)
    state = vem.init(parameters, tight, JITTER)
    unravel = ravel_pytree(values)[1]

    def profile(values):
        z = ravel_pytree(values)[0]
        found = vem._evaluated(z, parameters, state.sites, state.sites, tight, JITTER)
        return found.objective, unravel(found.gradient)

    found, (value, held) = profile(values), q_held(values, state.q)
    density = jax.grad(lambda values: parameters.with_free(values).log_density())(values)
    for a, b, c in zip(*map(jax.tree.leaves, (found[1], held, density)), strict=True):
        np.testing.assert_allclose(a, b + c, rtol=1e-4, atol=1e-4)
    assert float(found[0]) == pytest.approx(float(value + parameters.log_density()), rel=1e-9)
    check_gradient(profile, values)


@BOTH
def test_rounds_of_vem_never_lower_the_bound(family):
    _, batch, parameters = mixed_problem(2)
    problem = vem.Problem(batch, Rules(), family, 1e-4)
    state = vem.init(parameters, problem, JITTER)
    for _ in range(4):
        new = vem.step(state, problem, JITTER)
        assert new.objective >= state.objective
        state = new


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about CPUs; elsewhere batches are fine")
@BOTH
def test_no_batched_matrix_reaches_lapack_on_a_cpu(family):
    """Two batched LAPACK calls in flight on two cores hang for ever; every call must be single."""
    _, batch, parameters = mixed_problem(3)
    sites = flat_sites(parameters, batch, Rules(), family)
    jitter = jnp.asarray(JITTER)
    given = vem._Given(batch, Rules(), jitter, jitter, None, jnp.asarray(False))
    lowered = [
        vem._profile.lower(
            *(ravel_pytree(parameters.free())[0], parameters, sites, sites, given),
            family=family,
            learn_inducing=True,
        ),
        lowered_step(3, 60, family=family),
    ]
    for program in lowered:
        calls = [line for line in program.as_text().splitlines() if "@lapack" in line]
        calls += [line for line in program.as_text().splitlines() if "@blas" in line]
        assert calls
        for call in calls:
            matrices = re.findall(r"tensor<([0-9x]+)xf64>", call)
            assert matrices
            assert all(shape.count("x") <= 1 for shape in matrices), call


def test_a_weight_whose_absence_cannot_be_computed_is_kept_and_others_are_dropped(monkeypatch):
    """The bound is made up here: what each weight is worth, in nats."""
    worth = np.array([[np.nan, 5.0], [0.1, 5.0], [5.0, 0.2], [5.0, 5.0]])
    _, batch, parameters = mixed_problem(2)
    problem, mask_of = vem.Problem(batch, Rules(), Coupled, 1e-4), attrgetter("prior.mask")
    nothing: Any = None

    def settled(moved, *_):
        mask = np.asarray(mask_of(moved))
        bound = -worth[mask == 0].sum() if mask.any(axis=0).all() else -1e9  # not merged
        return vem.State(moved, (), nothing, bound, bound)

    monkeypatch.setattr(prune, "settle", settled)
    state = vem.State(parameters, (), nothing, 0.0, 0.0)
    kept = prune.without_idle_weights(state, problem, JITTER).parameters
    np.testing.assert_array_equal(mask_of(kept), [[1, 1], [0, 1], [1, 0], [1, 1]])


def test_streamed_data_give_the_fit_that_resident_data_give(monkeypatch):
    """Row for row the same, whether the data lie on the device or are sent; but for rounding."""
    rng = np.random.default_rng(0)
    X = [rng.uniform(size=(150, 2)), rng.uniform(size=(90, 2))]
    Y = {"a": rng.standard_normal(150), "b": rng.poisson(2.0, 90)}
    found = []
    for resident in (0.5, 0.0):
        monkeypatch.setattr(svi, "RESIDENT", resident)
        monkeypatch.setattr(svi, "_memory", lambda: 2.0**30)
        monkeypatch.setattr(svi, "SENT", 5000)  # a few steps at a time
        monkeypatch.setattr(svi, "LONGEST", 7)
        model = hm.HetMOGP(
            {"a": hm.Gaussian(), "b": hm.Poisson()},
            method="svi",
            latents=2,
            inducing=8,
            batch_size=20,
            max_iter=30,
            progress=False,
        ).fit(X, Y)
        assert model.n_iter_ == 30
        found.append((model.elbo_, model.weights_, *model.inducing_inputs_))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_the_length_of_a_chunk_changes_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    X, Y = rng.uniform(size=(100, 1)), {"a": rng.standard_normal(100)}
    found = []
    for longest in (500, 3):
        monkeypatch.setattr(svi, "LONGEST", longest)
        model = hm.HetMOGP(
            {"a": hm.HetGaussian()},
            method="svi",
            latents=1,
            inducing=6,
            max_iter=25,
            progress=False,
        ).fit(X, Y)
        found.append(model.weights_)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def lowered_step(Q, N, size=8, family=Factorised):
    data, _, parameters = mixed_problem(Q, N=N)
    placed = jax.tree.map(jnp.asarray, blocks(data)[0])
    return svi.chunk.lower(
        *(svi.init(parameters, family, True, "adam", True), parameters, placed),
        tuple(jnp.zeros((2, size), jnp.int32) for _ in placed),
        svi.Numbers(*map(jnp.asarray, (0, 2, JITTER, 1.0, 0))),
        Rules(),
        optimiser="adam",
        devices=mesh(),
    )


def test_the_program_grows_neither_with_latents_nor_with_rows():
    """So the time to compile does not either, but for stacking and unstacking the kernels."""
    few, many, long = (
        len(lowered_step(*size).as_text().splitlines()) for size in ((3, 60), (12, 60), (3, 600))
    )
    assert long <= few * 1.01
    assert (many - few) / (12 - 3) < 0.06 * few  # lines a latent, and its products with others


def test_lengthscales_of_mini_batches_start_at_what_the_inducing_inputs_resolve():
    """A row of a fine grid is on average a quarter of their spacing from the nearest of them."""
    X = np.linspace(0.0, 10.0, 100_001)[:, None]
    Z = np.linspace(0.0, 10.0, 11)[:, None]
    np.testing.assert_allclose(
        initial_lengthscales(3, X, Z), 0.25 * np.array([2 / 3, 4 / 3, 8 / 3]), rtol=1e-2
    )
    spread = initial_lengthscales(3, X)
    np.testing.assert_allclose(spread, [0.15, np.sqrt(0.15 * 0.8), 0.8])
    np.testing.assert_array_equal(initial_lengthscales(3, X, X), spread)  # every row is one
    assert initial_lengthscales(1, X, Z) == pytest.approx(1 / 3, rel=1e-2)


def test_with_many_inputs_no_start_takes_all_rows_for_unrelated():
    """In 200 dimensions rows are far apart; a short lengthscale would never be left again."""
    X = np.random.default_rng(0).standard_normal((150, 200))
    apart = np.sort(np.linalg.norm(X[:, None] - X[None], axis=-1), axis=1)[:, 1]
    shortest = initial_lengthscales(3, X)[0]
    assert shortest == pytest.approx(np.median(apart))
    assert np.exp(-0.5 * (np.median(apart) / shortest) ** 2) > 0.5
    y = X[:, :20].sum(axis=1) / 4
    model = hm.independent([hm.Gaussian(), hm.Gaussian()], kernel=hm.RBF(ard=False), inducing=100)
    model.set_params(learn_inducing=False, max_iter=5, progress=False).fit(X, np.c_[y, y])
    assert np.abs(model.weights_).max(axis=1).min() > 0.3  # both outputs found what there is


def test_devices_add_up_one_number_and_the_gradients():
    """Whatever the size of a batch: this is all that several devices send each other in a step."""
    parameters = mixed_problem(3)[2]
    state: Any = svi.init(parameters, Factorised, True, "adam", True)
    moments = state.q.moments()
    expected = 1 + sum(np.size(leaf) for leaf in jax.tree.leaves((state.free, moments)))
    for size in (8, 16):
        text = lowered_step(3, 60, size).as_text()
        shapes = re.findall(r"all_reduce.*?\) : \(tensor<([^>]*)>\)", text, re.DOTALL)
        sizes = [[int(n) for n in shape.split("x")[:-1]] for shape in shapes]
        assert sum(int(np.prod(shape)) for shape in sizes) == expected
    assert text.count("all_gather") == text.count("collective_permute") == 0


def test_a_step_is_compiled_once():
    rng = np.random.default_rng(2)
    X, Y = rng.uniform(size=(70, 1)), {"a": rng.standard_normal(70)}
    svi.chunk.clear_cache()
    hm.HetMOGP(
        {"a": hm.Gaussian()},
        method="svi",
        latents=1,
        inducing=5,
        batch_size=9,
        max_iter=70,
        progress=False,
    ).fit(X, Y)
    assert svi.chunk._cache_size() == 1
