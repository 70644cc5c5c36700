"""The E-step, natural gradients, gradients of the bound, and what reaches LAPACK."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hetmogp as hm
from hetmogp.bound import Rules, at_observations, elbo, expected_log_likelihood
from hetmogp.data import blocks, full_batch
from hetmogp.fitting import initial_lengthscales, initial_parameters, svi, vem
from hetmogp.fitting.free import Anchor, free, with_free
from hetmogp.fitting.mesh import mesh
from hetmogp.linalg import whiten
from hetmogp.marginals import marginals
from hetmogp.session import session
from hetmogp.tables import read
from hetmogp.variational import Natural, natural_step

JITTER = 1e-6


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def mixed_problem(Q=2, ranks=None, N=60, M=7, seed=0, scale=1.0):
    """Bernoulli, Poisson and HetGaussian over one input, with gaps."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 1.0, N)
    f = np.sin(6.0 * x)
    Y = {
        "b": (rng.uniform(size=N) < 1 / (1 + np.exp(-2 * f))).astype(float),
        "c": rng.poisson(np.exp(1 + 0.5 * f)).astype(float),
        "h": f + np.exp(0.5 * f - 1) * rng.standard_normal(N),
    }
    Y["b"][10:20] = np.nan
    Y["h"][0] = 6.0  # an outlier: the likelihood is not log-concave there
    data = read({"b": hm.Bernoulli(), "c": hm.Poisson(), "h": hm.HetGaussian()}, x, Y)
    batch, scaling = full_batch(data)
    Z = np.repeat(np.quantile(np.asarray(batch.X), np.linspace(0, 1, M))[None, :, None], Q, 0)
    parameters = initial_parameters(
        data.names,
        data.likelihoods,
        [y[~np.isnan(y)] for y in data.values],
        data.given,
        [hm.RBF()] * Q,
        ranks or [1] * Q,
        Z,
        initial_lengthscales(Q, np.asarray(batch.X)),
        [column.name for column in data.columns],
        scaling.scale,
        prior="lmc",
        seed=seed,
        restart=0,
    )
    return data, batch, parameters


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
        sites.append(vem.Sites(linear, precision, precision))
    return tuple(sites)


@pytest.mark.parametrize("Q", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_e_step_converges_from_any_start_and_never_falls(Q):
    _, batch, parameters = mixed_problem(Q)
    ends = []
    for start in range(3):
        sites = random_sites(parameters, batch, start) if start else None
        sites = sites or vem.flat_sites(parameters, batch, Rules())
        bounds = []
        for _ in range(400):  # with a huge tolerance each call takes exactly one accepted step
            sites, q, bound = vem.e_step(
                parameters, sites, batch, jnp.asarray(JITTER), Rules(), jnp.asarray(1e300)
            )
            bounds.append(float(bound))
        assert np.all(np.diff(bounds) >= -1e-9)
        ends.append(bounds[-1])
        gradient = jax.grad(lambda q: elbo(parameters, q, batch, JITTER, Rules()))(q)
        assert float(jnp.abs(gradient.mean).max()) < 1e-4
        assert float(jnp.abs(jnp.triu(gradient.root)).max()) < 1e-4
    assert max(ends) - min(ends) < 1e-6


def test_natural_gradient_steps_reach_the_same_optimum():
    _, batch, parameters = mixed_problem(3)
    best = vem.init(parameters, Anchor.none(parameters), batch, JITTER, Rules(), 1e-12).bound
    prior = parameters.prior
    R, M = sum(prior.ranks), prior.Z.shape[1]
    natural = Natural(jnp.zeros((R, M)), jnp.broadcast_to(jnp.eye(M), (R, M, M)))

    @jax.jit
    def step(natural):
        q = natural.moments()

        def ell(q):
            at = marginals(prior.matrices(batch.X, JITTER), prior.ranks, q)
            f = at_observations(parameters, *at, batch, Rules())
            return expected_log_likelihood(parameters, f, batch, Rules())

        slope = jax.grad(ell)(q)
        return natural_step(natural, q, slope.mean, slope.cov, 0.2)

    for _ in range(300):
        natural = step(natural)
    reached = float(elbo(parameters, natural.factors(), batch, JITTER, Rules()))
    assert reached == pytest.approx(best, abs=1e-5)


def test_a_natural_step_keeps_the_precision_positive_definite_where_g_is_positive():
    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.standard_normal((1, 5, 30)))
    g = jnp.asarray(np.abs(rng.standard_normal((1, 30))) * 10)  # far from log-concave
    natural = Natural(jnp.zeros((1, 5)), jnp.eye(5)[None])
    for rho in (0.1, 0.5, 1.0):
        slope = jnp.einsum("rmn,rn,rkn->rmk", A, g, A)
        new = natural_step(natural, natural.moments(), jnp.zeros((1, 5)), slope, rho)
        assert np.linalg.eigvalsh(np.asarray(new.precision[0])).min() > 0


def check_gradient(f, values, step=1e-5, tolerance=2e-5):
    """Central differences along random directions."""
    gradient = jax.grad(f)(values)
    leaves, structure = jax.tree.flatten(values)
    rng = np.random.default_rng(0)
    for _ in range(4):
        direction = [jnp.asarray(rng.standard_normal(leaf.shape)) for leaf in leaves]

        def moved(t, direction=direction):
            return jax.tree.unflatten(
                structure, [a + t * d for a, d in zip(leaves, direction, strict=True)]
            )

        numeric = (f(moved(step)) - f(moved(-step))) / (2 * step)
        exact = sum(
            jnp.sum(g * d) for g, d in zip(jax.tree.leaves(gradient), direction, strict=True)
        )
        assert float(exact) == pytest.approx(float(numeric), rel=tolerance, abs=tolerance)


def test_gradients_of_whitening_agree_with_finite_differences():
    rng = np.random.default_rng(0)
    C = rng.standard_normal((2, 4, 4))
    B, weights = (jnp.asarray(rng.standard_normal((2, 4, 3))) for _ in range(2))

    def f(values):
        C, B = values
        K = C @ jnp.swapaxes(C, 1, 2) + jnp.eye(4)
        return jnp.sum(weights * whiten(K, B) ** 2)

    check_gradient(jax.jit(f), (jnp.asarray(C), B))


@pytest.mark.parametrize("joint", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_of_the_bound_agree_with_finite_differences(joint):
    _, batch, parameters = mixed_problem(3, ranks=[1, 2, 1])
    rules = Rules(joint=joint)
    state = vem.init(parameters, Anchor.none(parameters), batch, JITTER, rules, 1e-3)
    plain = jax.jit(lambda v: elbo(with_free(parameters, v), state.q, batch, JITTER, rules))
    check_gradient(plain, free(parameters))

    def with_sites(values):
        moved = with_free(parameters, values)
        projection = moved.prior.project(batch.X, JITTER)
        q = vem.q_from_sites(moved, state.sites, projection, batch)
        return elbo(moved, q, batch, JITTER, rules)

    check_gradient(jax.jit(with_sites), free(parameters))
    value, _ = vem._objective(
        *(free(parameters), state.anchor, parameters, state.sites, batch),
        *(jnp.asarray(JITTER), rules),
    )
    assert float(value) == pytest.approx(state.bound, rel=1e-9)
    # At the E-step's optimum moving q along with the hyperparameters changes no gradient.
    tight = vem.init(parameters, Anchor.none(parameters), batch, JITTER, rules, 1e-13)
    _, moving = vem._objective(
        *(free(parameters), tight.anchor, parameters, tight.sites, batch),
        *(jnp.asarray(JITTER), rules),
    )
    held = jax.grad(lambda v: elbo(with_free(parameters, v), tight.q, batch, JITTER, rules))(
        free(parameters)
    )
    for a, b in zip(jax.tree.leaves(moving), jax.tree.leaves(held), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_rounds_of_vem_never_lower_the_bound():
    _, batch, parameters = mixed_problem(2)
    state = vem.init(parameters, Anchor.none(parameters), batch, JITTER, Rules(), 1e-4)
    for _ in range(4):
        new = vem.step(state, batch, JITTER, Rules(), 1e-4, True)
        assert new.objective >= state.objective
        state = new


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about CPUs; elsewhere batches are fine")
def test_no_batched_matrix_reaches_lapack_on_a_cpu():
    """Two batched LAPACK calls in flight on two cores hang for ever; every call must be single."""
    data, batch, parameters = mixed_problem(3)
    sites = vem.flat_sites(parameters, batch, Rules())
    jitter = jnp.asarray(JITTER)
    groups, _ = blocks(data)
    state = svi.init(parameters, True, "adam", True)
    rows = tuple(jnp.zeros((2, 8), jnp.int32) for _ in groups)
    anchor = Anchor.none(parameters)
    lowered = [
        vem.e_step.lower(parameters, sites, batch, jitter, Rules(), jitter),
        vem._objective.lower(
            *(free(parameters), anchor, parameters, sites, batch),
            *(jitter, Rules()),
        ),
        svi.chunk.lower(
            *(state, parameters, groups, rows, jnp.asarray(0), jnp.asarray(2), jitter, Rules()),
            optimiser="adam",
            pace=jnp.asarray(1.0),
            anchor=anchor,
            seed=jnp.asarray(0),
            devices=mesh(),
        ),
    ]
    for program in lowered:
        calls = [line for line in program.as_text().splitlines() if "@lapack" in line]
        calls += [line for line in program.as_text().splitlines() if "@blas" in line]
        assert calls
        for call in calls:
            matrices = re.findall(r"tensor<([0-9x]+)xf64>", call)
            assert matrices
            assert all(shape.count("x") <= 1 for shape in matrices), call


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
            {"a": hm.HetGaussian()}, method="svi", inducing=6, max_iter=25, progress=False
        ).fit(X, Y)
        found.append(model.weights_)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def lowered_step(Q, N, size=8):
    data, _, parameters = mixed_problem(Q, N=N)
    placed = jax.tree.map(jnp.asarray, blocks(data)[0])
    return svi.chunk.lower(
        *(svi.init(parameters, True, "adam", True), parameters, placed),
        tuple(jnp.zeros((2, size), jnp.int32) for _ in placed),
        *(jnp.asarray(0), jnp.asarray(2), jnp.asarray(JITTER), Rules()),
        optimiser="adam",
        pace=jnp.asarray(1.0),
        anchor=Anchor.none(parameters),
        seed=jnp.asarray(0),
        devices=mesh(),
    ).as_text()


def test_the_program_grows_neither_with_latents_nor_with_rows():
    """So the time to compile does not either, but for stacking and unstacking the kernels."""
    few, many, long = (
        len(lowered_step(*size).splitlines()) for size in ((3, 60), (12, 60), (3, 600))
    )
    assert long <= few * 1.01
    assert (many - few) / (12 - 3) < 0.04 * few  # lines a latent


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
    state: Any = svi.init(parameters, True, "adam", True)
    moments = state.q.moments()
    expected = 1 + sum(np.size(leaf) for leaf in jax.tree.leaves((state.free, moments)))
    for size in (8, 16):
        text = lowered_step(3, 60, size)
        shapes = re.findall(r"all_reduce.*?\) : \(tensor<([^>]*)>\)", text, re.DOTALL)
        sizes = [[int(n) for n in shape.split("x")[:-1]] for shape in shapes]
        assert sum(int(np.prod(shape)) for shape in sizes) == expected
    assert text.count("all_gather") == text.count("collective_permute") == 0


def test_a_step_is_compiled_once():
    rng = np.random.default_rng(2)
    X, Y = rng.uniform(size=(70, 1)), {"a": rng.standard_normal(70)}
    svi.chunk.clear_cache()
    hm.HetMOGP(
        {"a": hm.Gaussian()}, method="svi", inducing=5, batch_size=9, max_iter=70, progress=False
    ).fit(X, Y)
    assert svi.chunk._cache_size() == 1
