"""From tables to batches: scaling, distinct rows, masks, and mini-batches that are unbiased."""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import elbo

import hetmogp as hm
from hetmogp.data import Scaling, blocks, full_batch, row_draws
from hetmogp.fitting import svi
from hetmogp.fitting.start import Beginning, initial_parameters
from hetmogp.rows import CHUNK, SIZES, padded, pieces, rowwise
from hetmogp.session import session
from hetmogp.tables import name_outputs, read
from hetmogp.variational import Factorised

nan = np.nan


def load(likelihoods, X, Y):
    return read(name_outputs(likelihoods, Y), X, Y)


# -- scaling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("offset", [0.0, -1.0, 1e3])
def test_scaling_standardises_and_comes_back(unit, offset):
    X = (np.random.default_rng(0).normal(size=(50, 3)) + offset) * unit
    scaling = Scaling.of(X)
    Z = scaling.apply(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(Z.std(axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(scaling.undo(Z), X, rtol=1e-12, atol=1e-12 * unit)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, 1e-8, -3.7])
def test_a_constant_column_becomes_exactly_zero(value):
    X = np.c_[np.full(7, value), np.arange(7.0)]
    scaling = Scaling.of(X)
    assert scaling.scale[0] == 1.0
    np.testing.assert_array_equal(scaling.apply(X)[:, 0], 0.0)
    np.testing.assert_array_equal(scaling.undo(scaling.apply(X))[:, 0], value)


def test_one_row_can_be_scaled():
    scaling = Scaling.of(np.array([[3.0, -1.0]]))
    np.testing.assert_array_equal(scaling.apply(np.array([[3.0, -1.0]])), [[0.0, 0.0]])


# -- the full batch --------------------------------------------------------------------------------


def seen_pairs(batch, scaling):
    """{(x, y)} of each output, in the user's units."""
    X = scaling.undo(np.asarray(batch.X))[:, 0]
    return [
        sorted(
            (round(float(X[row]), 6), float(y))
            for row, y, ok in zip(*map(np.asarray, (of.row, of.y, of.seen)), strict=True)
            if ok
        )
        for of in batch.outputs
    ]


def test_each_distinct_row_is_there_once_and_unobserved_rows_are_not():
    X = np.array([0.0, 1.0, 1.0, 2.0, 3.0])
    Y = np.array([[1.0, nan], [2.0, 5.0], [3.0, nan], [nan, 6.0], [nan, nan]])
    with session():
        batch, scaling = full_batch(load([hm.Gaussian(), hm.Poisson()], X, Y))
        rows = np.unique(scaling.undo(np.asarray(batch.X)).round(6))
        np.testing.assert_array_equal(rows, [0.0, 1.0, 2.0])
        assert len(np.unique(np.asarray(batch.outputs[0].row))) == 2
        assert seen_pairs(batch, scaling) == [
            [(0.0, 1.0), (1.0, 2.0), (1.0, 3.0)],
            [(1.0, 5.0), (2.0, 6.0)],
        ]


def test_inputs_repeated_per_output_are_projected_once():
    x, Y = np.linspace(0.0, 1.0, 40), np.ones((40, 3))
    outputs = [hm.Gaussian()] * 3
    with session():
        shared, _ = full_batch(load(outputs, x, Y))
        repeated, _ = full_batch(load(outputs, [x, x.copy(), x.copy()], Y))
        assert shared.X.shape == (40, 1)
        np.testing.assert_array_equal(shared.X, repeated.X)
        for one, other in zip(shared.outputs, repeated.outputs, strict=True):
            np.testing.assert_array_equal(one.row, other.row)


def test_different_inputs_meet_in_one_batch():
    X = [np.array([0.0, 1.0, 2.0]), np.array([2.0, 5.0])]
    with session():
        batch, scaling = full_batch(load([hm.Gaussian()] * 2, X, [[1.0, 2.0, 3.0], [4.0, 5.0]]))
        assert seen_pairs(batch, scaling) == [
            [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)],
            [(2.0, 4.0), (5.0, 5.0)],
        ]
        assert len(np.unique(np.asarray(batch.X))) == 4


@pytest.mark.parametrize("n", [1, 7, 8, 9, 40, 100, 1000, 12345])
def test_padding_repeats_the_last_row_and_stays_small(n):
    values = np.arange(2.0 * n).reshape(n, 2)
    longer = padded(values)
    np.testing.assert_array_equal(longer[:n], values)
    np.testing.assert_array_equal(longer[n:], np.tile(values[-1], (len(longer) - n, 1)))
    assert n <= len(longer) <= max(8, 1.125 * n + 8)


# -- mini-batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("N", "size"), [(10, 3), (10, 5), (10, 10), (1, 1), (7, 6)])
def test_every_row_is_drawn_once_an_epoch(N, size):
    batches = math.ceil(N / size)
    drawn = list(itertools.islice(row_draws(N, size, seed=0, block=0), 3 * batches))
    assert all(len(rows) == size for rows in drawn)
    for epoch in range(3):
        rows = np.concatenate(drawn[epoch * batches : (epoch + 1) * batches])
        assert sorted(rows[rows >= 0]) == list(range(N))
        assert np.sum(rows < 0) == batches * size - N
        assert np.all(rows[:N] >= 0), "only the last batch is ragged"


def first_epochs(seed, block):
    return np.concatenate(list(itertools.islice(row_draws(20, 5, seed, block), 8)))


def test_draws_follow_from_the_seed_alone():
    np.testing.assert_array_equal(first_epochs(3, 0), first_epochs(3, 0))
    assert not np.array_equal(first_epochs(3, 0), first_epochs(4, 0))
    assert not np.array_equal(first_epochs(3, 0), first_epochs(3, 1))
    assert not np.array_equal(first_epochs(3, 0)[:20], first_epochs(3, 0)[20:])


def test_blocks_group_outputs_that_share_inputs():
    x, z = np.arange(5.0), np.arange(4.0)
    Y = [[1.0, nan, 3.0, nan, 5.0], [1.0, 2.0, 3.0, 4.0], [9.0, nan, nan, 8.0, 7.0]]
    with session():
        groups, _ = blocks(load([hm.Gaussian()] * 3, [x, z, x.copy()], Y))
        assert [group.members for group in groups] == [(0, 2), (1,)]
        assert groups[0].X.shape == (4, 1), "the row observed by neither is left out"
        seen = np.asarray(groups[0].seen)
        np.testing.assert_array_equal(seen, [[1, 1], [1, 0], [0, 1], [1, 1]])
        assert np.isfinite(np.asarray(groups[0].y)).all()


def model_for(data, scaling, M=6):
    """A start and some q(u) that is neither the prior nor the optimum."""
    rng = np.random.default_rng(1)
    Z = np.repeat(np.linspace(-1.5, 1.5, M)[None, :, None], 2, axis=0)
    beginning = Beginning([hm.RBF(), hm.Matern32()], [1, 2], Z, np.array([0.15, 0.8]))
    parameters = initial_parameters(data, beginning, scaling)
    root = 0.5 * np.eye(M) + 0.1 * np.tril(rng.normal(size=(3, M, M)))
    return parameters, Factorised(jnp.asarray(rng.normal(size=(3, M))), jnp.asarray(root))


def check_unbiased(data, size, steps, monkeypatch):
    groups, scaling = blocks(data)
    parameters, q = model_for(data, scaling)
    whole, _ = full_batch(data, scaling)
    bound = eqx.filter_jit(elbo)
    expected = float(bound(parameters, q, whole))
    for resident in (0.5, 0.0):  # of the memory: on the device, and streamed
        monkeypatch.setattr(svi, "RESIDENT", resident)
        monkeypatch.setattr(svi, "_memory", lambda: 2.0**30)
        feed = svi.Feed(groups, size, seed=5)
        assert feed.resident == (resident > 0)
        placed, rows, _ = feed.take(steps)
        batches = [
            svi.mini_batch([svi._at(b, jnp.asarray(i)) for b in placed], tuple(t[i] for t in rows))
            for i in range(steps)
        ]
        found = [float(bound(parameters, q, batch)) for batch in batches]
        assert np.ptp(found) > 1e-3 * abs(expected), "the batches are the same: it proves nothing"
        np.testing.assert_allclose(np.mean(found), expected, rtol=1e-9)


def test_the_mean_over_an_epoch_is_the_full_bound(monkeypatch):
    rng = np.random.default_rng(0)
    N = 23
    Y = np.c_[rng.normal(size=N), rng.poisson(3.0, N), rng.normal(size=N)]
    Y[rng.uniform(size=Y.shape) < 0.4] = nan
    Y[4] = nan
    x = rng.uniform(size=N).round(1)  # with duplicates
    with session():
        data = load([hm.Gaussian(), hm.Poisson(), hm.HetGaussian()], x, Y)
        kept = int((~np.isnan(Y)).any(axis=1).sum())
        assert kept % 5, "the last batch should be ragged"
        check_unbiased(data, 5, math.ceil(kept / 5), monkeypatch)


def test_the_mean_is_the_full_bound_with_different_inputs_as_well(monkeypatch):
    rng = np.random.default_rng(0)
    X = [rng.uniform(size=13), rng.uniform(size=8)]
    with session():
        data = load([hm.Gaussian(), hm.Poisson()], X, [rng.normal(size=13), rng.poisson(3.0, 8)])
        check_unbiased(data, 5, 3 * 2, monkeypatch)


def test_padding_is_no_row_of_the_data():
    """k-means must not see a row as often as padding repeats it, nor may sizes count it."""
    x = np.linspace(0.0, 1.0, 65)
    with session():
        batch, scaling = full_batch(read({"y": hm.Gaussian()}, x, {"y": np.sin(x)}))
    assert len(batch.X) > 65
    np.testing.assert_allclose(scaling.undo(batch.observed)[:, 0], x)


# -- rows in pieces --------------------------------------------------------------------------------


@given(st.integers(0, 20_000), st.sampled_from([32, 256, CHUNK, 5000]), st.booleans())
def test_pieces_cover_all_rows_in_few_sizes(n, most, few):
    parts = list(pieces(n, most, few=few))
    covered = np.concatenate([np.r_[rows] for rows, _ in parts] or [np.empty(0, int)])
    np.testing.assert_array_equal(covered, np.arange(n))
    sizes = {size for _, size in parts}
    assert sizes <= {*SIZES, most}
    assert max(sizes, default=0) <= most
    least = min(SIZES[0 if few else 1], most)
    for rows, size in parts:
        assert size >= rows.stop - rows.start
        assert size == least or size <= 2 * (rows.stop - rows.start)


def test_a_function_of_rows_sees_few_shapes_and_gives_every_row():
    shapes = set()

    def doubled(column, given):
        shapes.add(column.shape)
        return 2.0 * column + given["w"]

    for n in (0, 1, 7, 60, 100, 130, 300, 777):
        column, w = np.arange(float(n)), np.ones(n)
        np.testing.assert_array_equal(rowwise(doubled, column, {"w": w}), 2.0 * column + 1.0)
    assert shapes == {(8,), (64,), (512,)}


@pytest.mark.parametrize("n", [0, 3])
def test_whole_numbers_stay_whole_however_few_rows_there_are(n):
    """They may be positions in a table."""
    table = jnp.arange(10.0)
    rows = np.arange(n, dtype=np.int32)
    np.testing.assert_array_equal(rowwise(lambda at: table[at], rows), np.arange(float(n)))
