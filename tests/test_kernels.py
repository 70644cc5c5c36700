"""Kernels against scikit-learn's, on standardised inputs and in the user's units."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import mixed_problem
from sklearn.gaussian_process import kernels as oracle

import hetmogp as hm
from hetmogp.session import session

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3))
Z = RNG.normal(size=(5, 3))
COLUMNS = ["lat", "lon", "day"]
ONES = np.ones(3)
ELLS = np.array([0.5, 1.0, 3.0])


@pytest.fixture(autouse=True)
def _float64():
    with session():
        yield


def periodic(ell, period):
    """scikit-learn's periodic kernel on one column at a time, multiplied over columns."""
    ell, period = np.broadcast_to(ell, 3), np.broadcast_to(period, 3)
    parts = [oracle.ExpSineSquared(e, p) for e, p in zip(ell, period, strict=True)]

    def product(A, B):
        return np.prod([k(A[:, [i]], B[:, [i]]) for i, k in enumerate(parts)], axis=0)

    return product


def on_scaled(kernel, ell):
    """An isotropic kernel of scikit-learn on inputs divided by the lengthscales."""
    return lambda A, B: kernel(A / ell, B / ell)


# name: (ours from lengthscales, the oracle from the same lengthscales)
FAMILIES = {
    "RBF": (hm.RBF, lambda ell: oracle.RBF(ell)),
    "Matern12": (hm.Matern12, lambda ell: oracle.Matern(ell, nu=0.5)),
    "Matern32": (hm.Matern32, lambda ell: oracle.Matern(ell, nu=1.5)),
    "Matern52": (hm.Matern52, lambda ell: oracle.Matern(ell, nu=2.5)),
    "RationalQuadratic": (
        lambda ell, **more: hm.RationalQuadratic(ell, alpha=0.7, **more),
        lambda ell: on_scaled(oracle.RationalQuadratic(1.0, alpha=0.7), ell),
    ),
    "Periodic": (
        lambda ell, **more: hm.Periodic(ell, period=1.7, **more),
        lambda ell: periodic(ell, 1.7),
    ),
    "Linear": (hm.Linear, lambda ell: on_scaled(oracle.DotProduct(sigma_0=0.0), ell)),
}
STATIONARY = [name for name in FAMILIES if name != "Linear"]
each_family = pytest.mark.parametrize("family", FAMILIES)


def combined():
    """Kernels built of others, each ready to be evaluated."""
    return {
        "sum": hm.RBF(ELLS) + hm.Matern12(0.8),
        "product": hm.RBF(ELLS) * hm.Linear(0.8),
        "nested": (hm.RBF(1.0, active_dims=0) + hm.Matern32(2.0)) * hm.Periodic(1.0, period=2.0),
    }


@each_family
@pytest.mark.parametrize("ell", [1.3, ELLS], ids=["one", "ard"])
def test_matrix_equals_sklearn(family, ell):
    ours, theirs = FAMILIES[family]
    np.testing.assert_allclose(ours(ell).matrix(X, Z), theirs(ell)(X, Z), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("family", STATIONARY)
def test_far_from_the_origin_keeps_its_digits(family):
    """Inputs such as years or map coordinates: distances must survive a large common offset."""
    ours, theirs = FAMILIES[family]
    np.testing.assert_allclose(
        ours(ELLS).matrix(X + 1e5, Z + 1e5), theirs(ELLS)(X + 1e5, Z + 1e5), rtol=1e-7
    )


def test_far_apart_points_are_uncorrelated_but_finite():
    far = np.array([[0.0], [1e6]])
    for kernel in (hm.RBF(1.0), hm.Matern12(1.0), hm.Matern32(1.0), hm.Matern52(1.0)):
        K = np.asarray(kernel.matrix(far, far))
        assert 0.0 <= K[0, 1] < 1e-70
        assert np.all(np.isfinite(jax.grad(lambda A, k=kernel: k.matrix(A, far).sum())(far)))


def test_rational_quadratic_tends_to_rbf():
    K = hm.RationalQuadratic(ELLS, alpha=1e7).matrix(X, Z)
    np.testing.assert_allclose(K, oracle.RBF(ELLS)(X, Z), rtol=1e-4)


def test_sum_has_normalised_weights():
    weighted = hm.Sum((hm.RBF(1.0), hm.Matern12(2.0), hm.Linear(3.0)), weights=[1.0, 2.0, 5.0])
    expected = (
        0.125 * oracle.RBF(1.0)(X, Z)
        + 0.25 * oracle.Matern(2.0, nu=0.5)(X, Z)
        + 0.625 * oracle.DotProduct(0.0)(X / 3, Z / 3)
    )
    np.testing.assert_allclose(weighted.matrix(X, Z), expected, rtol=1e-10)


def test_plus_shares_equally_and_keeps_unit_variance():
    triple = hm.RBF(1.0) + hm.Matern12(2.0) + hm.Matern52(0.5)
    expected = (
        oracle.RBF(1.0)(X, Z) + oracle.Matern(2.0, nu=0.5)(X, Z) + oracle.Matern(0.5, nu=2.5)(X, Z)
    ) / 3
    np.testing.assert_allclose(triple.matrix(X, Z), expected, rtol=1e-10)
    np.testing.assert_allclose(triple.diag(X), 1.0)


def test_plus_keeps_the_weights_of_a_weighted_sum():
    pair = hm.Sum((hm.RBF(1.0), hm.Matern12(2.0)), weights=[1.0, 3.0])
    inner = 0.25 * oracle.RBF(1.0)(X, Z) + 0.75 * oracle.Matern(2.0, nu=0.5)(X, Z)
    expected = 0.5 * inner + 0.5 * oracle.Matern(1.0, nu=2.5)(X, Z)
    np.testing.assert_allclose((pair + hm.Matern52(1.0)).matrix(X, Z), expected, rtol=1e-10)


def test_brackets_in_a_sum_make_no_difference():
    a, b, c, d = hm.RBF(1.0), hm.Matern12(2.0), hm.Matern52(0.5), hm.Matern32(1.5)
    for one, other in (((a + b) + c, a + (b + c)), (a + b + c + d, (a + b) + (c + d))):
        assert repr(one) == repr(other)
        np.testing.assert_allclose(other.matrix(X, Z), one.matrix(X, Z), rtol=1e-12)


def test_a_sum_inside_a_product_leans_towards_each_of_its_parts():
    """As where labels multiply the kernel of the other inputs."""
    product = (hm.RBF(1.0) + hm.Matern12(2.0)) * hm.Matern52(0.5)
    parts = oracle.RBF(1.0)(X, Z), oracle.Matern(2.0, nu=0.5)(X, Z)
    other = oracle.Matern(0.5, nu=2.5)(X, Z)
    first, second = product.leaning()
    for found, (most, least) in ((first, parts), (second, parts[::-1])):
        expected = (30.0 * most + least) / 31.0 * other
        np.testing.assert_allclose(found.matrix(X, Z), expected, rtol=1e-10)
    assert hm.Product((hm.RBF(), hm.Matern12())).leaning() == []


def test_product_equals_sklearn():
    product = hm.RBF(ELLS) * hm.Matern32(2.0) * hm.Linear(1.0)
    expected = oracle.RBF(ELLS) * oracle.Matern(2.0, nu=1.5) * oracle.DotProduct(0.0)
    np.testing.assert_allclose(product.matrix(X, Z), expected(X, Z), rtol=1e-10)


@pytest.mark.parametrize("name", [*FAMILIES, *combined()])
def test_diag_is_the_diagonal_and_the_matrix_is_psd(name):
    kernel = FAMILIES[name][0](ELLS) if name in FAMILIES else combined()[name]
    points = np.concatenate([X, X[:2], X[:1] + 1e-9])  # coincident and nearly so
    K = np.asarray(kernel.matrix(points, points))
    np.testing.assert_allclose(np.diag(K), kernel.diag(points), rtol=1e-7, atol=1e-14)
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(K).min() > -1e-7


@pytest.mark.parametrize("name", [*FAMILIES, *combined()])
def test_gradient_is_finite_and_right_at_coincident_points(name):
    """With respect to inputs and lengthscales, where a careless square root gives NaN."""

    def build(factor):
        if name in FAMILIES:
            return FAMILIES[name][0](ELLS * factor)
        return jax.tree.map(lambda leaf: leaf * factor, combined()[name])

    points = np.concatenate([X, X[:2]])

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1))
    def total(factor, A):
        return jnp.sum(build(factor).matrix(A, points))

    step = 1e-3
    slope = (total(1.0 + step, points)[0] - total(1.0 - step, points)[0]) / (2 * step)
    by_factor, by_input = total(1.0, points)[1]
    assert np.all(np.isfinite(by_input))
    np.testing.assert_allclose(by_factor, slope, rtol=1e-4, atol=1e-5)


# -- start: columns, lengthscales and units --------------------------------------------------------


@each_family
@pytest.mark.parametrize("dims", [(2, 0), ("day", "lat"), (-1, "lat"), np.array([2, 0])], ids=str)
def test_active_dims_by_position_and_name(family, dims):
    ours, theirs = FAMILIES[family]
    kernel = ours(1.3, active_dims=dims).start(ONES, COLUMNS, ONES)
    if family == "Periodic":
        sub = (oracle.ExpSineSquared(1.3, 1.7)(X[:, [i]], Z[:, [i]]) for i in (2, 0))
        expected = np.prod(list(sub), axis=0)
    else:
        expected = theirs(1.3)(X[:, [2, 0]], Z[:, [2, 0]])
    np.testing.assert_allclose(kernel.matrix(X, Z), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dim", [1, "lon", np.int64(1)])
def test_a_single_active_dim_needs_no_list(dim):
    kernel = hm.RBF(0.7, active_dims=dim).start(ONES, COLUMNS, ONES)
    np.testing.assert_allclose(
        kernel.matrix(X, Z), oracle.RBF(0.7)(X[:, [1]], Z[:, [1]]), rtol=1e-10
    )


def test_lengthscales_start_from_the_spread_of_their_own_columns():
    spread = np.array([0.5, 1.5, 4.0])
    ard = hm.RBF().start(spread, COLUMNS, ONES)
    some = hm.RBF(active_dims=("day", "lat")).start(spread, COLUMNS, ONES)
    one = hm.RBF(ard=False).start(spread, COLUMNS, ONES)
    np.testing.assert_allclose(ard.matrix(X, Z), oracle.RBF(spread)(X, Z), rtol=1e-10)
    np.testing.assert_allclose(
        some.matrix(X, Z), oracle.RBF([4.0, 0.5])(X[:, [2, 0]], Z[:, [2, 0]]), rtol=1e-10
    )
    np.testing.assert_allclose(one.matrix(X, Z), oracle.RBF(2.0)(X, Z), rtol=1e-10)


@each_family
@pytest.mark.parametrize("ard", [True, False])
def test_ard_decides_the_number_of_lengthscales(family, ard):
    kernel = FAMILIES[family][0](1.3, ard=ard).start(ONES, COLUMNS, ONES)
    assert np.size(kernel.lengthscale) == (3 if ard else 1)
    np.testing.assert_allclose(
        kernel.matrix(X, Z), FAMILIES[family][1](1.3)(X, Z), rtol=1e-10, atol=1e-14
    )


def test_a_periodic_kernel_can_share_its_lengthscale():
    """`ard=False` averages what the user gave, as for the other kernels."""
    kernel = hm.Periodic([1.0, 2.0, 3.0], period=1.7, ard=False).start(ONES, COLUMNS, ONES)
    np.testing.assert_allclose(kernel.matrix(X, Z), periodic(2.0, 1.7)(X, Z), rtol=1e-10)


SCALE, CENTRE = np.array([2.0, 30.0, 0.1]), np.array([51.5, -100.0, 0.4])
IN_USER_UNITS: dict[str, Any] = {
    **{name: (lambda ours=ours: ours(ELLS)) for name, (ours, _) in FAMILIES.items()},
    "isotropic": lambda: hm.RBF(1.5, ard=False),
    "from data": lambda: hm.Matern32(),
    "periods": lambda: hm.Periodic(0.9, period=[1.0, 24.0, 0.5]),
    "some columns": lambda: hm.Linear(2.0, active_dims=["day", "lon"]),
    "nested": lambda: hm.RBF(2.0) * (hm.Linear(3.0, active_dims=1) + hm.Periodic(period=7.0)),
}


@pytest.mark.parametrize("name", IN_USER_UNITS)
def test_rescaled_in_user_units_equals_the_standardised_kernel(name):
    """k(x, z) on raw inputs = k on (x − centre)/scale, and `start` undoes `rescaled`."""
    kernel = IN_USER_UNITS[name]().start(np.array([0.8, 1.0, 1.2]), COLUMNS, SCALE)
    raw_X, raw_Z = X * SCALE + CENTRE, Z * SCALE + CENTRE
    user = kernel.rescaled(SCALE, CENTRE)
    np.testing.assert_allclose(
        user.matrix(raw_X, raw_Z), kernel.matrix(X, Z), rtol=1e-8, atol=1e-12
    )
    np.testing.assert_allclose(user.diag(raw_X), kernel.diag(X), rtol=1e-8)


@pytest.mark.parametrize("family", STATIONARY)
def test_a_lengthscale_is_in_the_units_of_the_inputs(family):
    """A user's kernel, started on standardised inputs, is that kernel of the raw inputs."""
    ours, theirs = FAMILIES[family]
    kernel = ours(ELLS).start(ONES, COLUMNS, SCALE)
    np.testing.assert_allclose(
        kernel.matrix(X / SCALE, Z / SCALE), theirs(ELLS)(X, Z), rtol=1e-10, atol=1e-14
    )


def test_a_linear_kernel_is_centred_on_the_data():
    user = hm.Linear(ELLS).start(ONES, COLUMNS, SCALE).rescaled(SCALE, CENTRE)
    expected = oracle.DotProduct(0.0)((X - CENTRE) / ELLS, (Z - CENTRE) / ELLS)
    np.testing.assert_allclose(user.matrix(X, Z), expected, rtol=1e-10)


# -- numbers that are held -------------------------------------------------------------------------


def held_kernels():
    """A kernel that holds some of its numbers, none of which survives units by luck."""
    return hm.Sum(
        (
            hm.Periodic(period=1 / 3, fixed=("period",)) * hm.RBF(ard=False),
            hm.Matern32(np.pi, fixed="lengthscale"),
            hm.RationalQuadratic(alpha=0.1, fixed=["alpha"]),
        ),
        weights=[0.2, 0.3, 0.5],
        fixed=("weights",),
    )


def numbers_held(kernel):
    """Those numbers of a fitted kernel."""
    product, matern, rational = kernel.kernels
    return [product.kernels[0].period, matern.lengthscale, rational.alpha, *kernel.weights]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "vem"},
        {"method": "svi", "batch_size": 10},
        {"method": "vem", "natural_gradients": False, "dtype": "float32"},
    ],
    ids=["vem", "svi", "plain gradients"],
)
def test_what_is_held_is_the_same_to_the_bit_after_a_fit(options):
    x = np.linspace(0.0, 7.0, 30) / 3.0
    model = hm.HetMOGP(
        [hm.Gaussian()], kernel=held_kernels(), latents=1, inducing=5, max_iter=2, **options
    ).fit(x, np.sin(6.0 * x))
    kernel = model.kernels_[0]
    found = [float(np.ravel(number)[0]) for number in numbers_held(kernel)]
    assert found == [1 / 3, np.pi, 0.1, 0.2, 0.3, 0.5]
    assert repr(kernel).endswith("alpha=0.1, fixed=('alpha',)) with fixed weights")
    periodic, rbf = kernel.kernels[0].kernels
    start = held_kernels().start(np.ones(1), ["x"], np.ones(1)).kernels[0].kernels
    assert periodic.lengthscale != start[0].lengthscale
    assert rbf.lengthscale != start[1].lengthscale


def test_what_is_held_costs_the_optimiser_nothing():
    """It is no part of what is free, and stays as it is when that moves."""
    _, _, parameters = mixed_problem(Q=1, N=8, M=3)
    kernel = jax.tree.map(jnp.asarray, held_kernels().start(np.ones(1), ["x"], np.array([3.0])))
    begun = eqx.tree_at(lambda p: p.prior.kernels, parameters, (kernel,))
    free = begun.free()["kernels"]
    learned = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(free)]
    assert learned == [
        "[0].kernels[0].kernels[0].lengthscale",
        "[0].kernels[0].kernels[1].lengthscale",
        "[0].kernels[2].lengthscale",
    ]
    moved = begun.with_free(jax.tree.map(lambda value: value + 1.0, begun.free())).prior.kernels[0]
    np.testing.assert_array_equal(numbers_held(moved)[0], numbers_held(kernel)[0])
    assert numbers_held(moved)[1:] == numbers_held(kernel)[1:]
    np.testing.assert_allclose(
        moved.kernels[2].lengthscale, np.e * kernel.kernels[2].lengthscale, rtol=1e-14
    )


def test_units_do_not_change_the_last_digit_of_what_is_held():
    scales = RNG.uniform(0.1, 10.0, 50)
    there_and_back = [np.pi / scale * scale for scale in scales]
    assert any(number != np.pi for number in there_and_back)
    for scale in scales[:, None]:
        for kernel in (
            hm.RBF(np.pi, fixed=("lengthscale",)),
            hm.Periodic(np.pi, period=np.pi, fixed=("lengthscale", "period")),
        ):
            shown = kernel.start(np.ones(1), ["x"], scale).rescaled(scale, np.zeros(1))
            assert all(float(getattr(shown, name)[0]) == np.pi for name in shown.fixed)


def test_a_held_lengthscale_is_that_of_each_input():
    """Though its inputs have other scales, and it would be one number were it learned."""
    kernel = hm.RBF(2.0, ard=False, fixed=("lengthscale",)).start(ONES, COLUMNS, SCALE)
    expected = oracle.RBF(2.0)(X * SCALE, Z * SCALE)
    np.testing.assert_allclose(kernel.matrix(X, Z), expected, rtol=1e-10, atol=1e-14)
    assert kernel.rescaled(SCALE, CENTRE).lengthscale.tolist() == [2.0] * 3
    each = hm.Periodic(ELLS, period=0.7, fixed=("lengthscale", "period"), ard=False)
    shown = each.start(ONES, COLUMNS, SCALE).rescaled(SCALE, CENTRE)
    assert shown.lengthscale.tolist() == ELLS.tolist()
    assert shown.period.tolist() == [0.7] * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hm.Periodic(period=1.0, fixed=("phase",)), "'phase'.*lengthscale, period"),
        (lambda: hm.RBF(fixed=("lengthscale",)), r"no value.*RBF\(lengthscale=\.\.\., fixed="),
        (lambda: hm.Linear(1.0, fixed=("centre",)), "a Linear can only fix lengthscale"),
        (lambda: hm.Sum((hm.RBF(), hm.RBF()), fixed=("weights",)), "'weights', which has no val"),
        (lambda: hm.Sum((hm.RBF(1.0),), fixed=("lengthscale",)), "can only fix weights"),
        (lambda: hm.RBF(1.0, fixed=True), r"names such as \('lengthscale',\), not True"),
    ],
)
def test_only_numbers_with_a_value_can_be_held(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hours",
    [np.array([24, 36], "m8[h]"), [np.timedelta64(24, "h"), np.timedelta64(36, "h")]],
    ids=["array", "list"],
)
def test_durations_are_counted_in_days(hours):
    np.testing.assert_allclose(hm.RBF(hours).lengthscale, [1.0, 1.5])
    with pytest.raises(ValueError, match="positive and finite"):
        hm.RBF(0 * hours if isinstance(hours, np.ndarray) else [np.timedelta64("NaT")])


@pytest.mark.parametrize("bad", [[1.0, 2.0, 3.0], 1.0, [[1.0, 2.0]], [1.0]], ids=repr)
def test_every_kernel_of_a_sum_has_one_weight(bad):
    kernel = hm.Sum((hm.RBF(), hm.Linear()), weights=bad)
    with pytest.raises(ValueError, match="must be 2 numbers, one for each kernel, not"):
        kernel.start(ONES, COLUMNS, ONES)
    with pytest.raises(ValueError, match="must be 2 numbers, one for each kernel, not"):
        kernel.check(COLUMNS, fitted=False)


@pytest.mark.parametrize(
    "bad",
    [0.0, -1.0, np.nan, np.inf, [1.0, -2.0], np.array([0.0]), np.float32(-1), -1, np.int64(-1)],
    ids=repr,
)
@pytest.mark.parametrize(
    "make",
    [
        lambda v: hm.RBF(v),
        lambda v: hm.RationalQuadratic(alpha=v),
        lambda v: hm.Periodic(period=v),
        lambda v: hm.Sum((hm.RBF(), hm.RBF()), weights=v),
    ],
    ids=["lengthscale", "alpha", "period", "weights"],
)
def test_hyperparameters_must_be_positive_and_finite(make, bad):
    with pytest.raises(ValueError, match="positive and finite"):
        make(bad)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (hm.RBF(active_dims="height"), "height.*lat"),
        (hm.RBF(active_dims=["lat", "height"]), "height"),
        (hm.RBF(active_dims=3), "input 3.*3 inputs"),
        (hm.RBF(active_dims=-4), "input -4"),
        (hm.RBF([1.0, 2.0]), "2 lengthscales for 3 inputs"),
        (hm.RBF([1.0, 2.0], active_dims=0), "2 lengthscales for 1 inputs"),
        (hm.Periodic([1.0, 2.0], period=1.0), "2 lengthscales for 3 inputs"),
        (hm.Periodic(period=[1.0, 2.0]), "2 periods for 3 inputs"),
        (hm.Linear([1.0, 2.0]), "2 lengthscales for 3 inputs"),
        (hm.RBF() + hm.RBF(active_dims="height"), "height"),
        (hm.RBF() * hm.RBF(active_dims=7), "input 7"),
    ],
    ids=repr,
)
def test_columns_and_lengthscales_must_fit_the_inputs(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel.start(ONES, COLUMNS, ONES)
