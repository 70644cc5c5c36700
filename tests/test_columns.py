"""Inputs that are dates or labels: read as numbers, shown as what they were."""

from datetime import date, datetime, timedelta, timezone

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp.columns import Column, is_missing
from hetmogp.inputs import read_inputs, restored, split_inputs
from hetmogp.kernels import Category, suited

DAYS = ["2024-02-28", "2024-02-29", "2024-03-01T12:00"]
COUNTED = np.array([0.0, 1.0, 2.5]) + (date(2024, 2, 28) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    "column",
    [
        pd.to_datetime(pd.Series(DAYS), format="ISO8601"),
        pd.Series(DAYS),
        pd.Series(DAYS, dtype=object),
        np.array(DAYS, dtype="datetime64[m]"),
        [datetime(2024, 2, 28), datetime(2024, 2, 29), datetime(2024, 3, 1, 12)],
        pd.DatetimeIndex(DAYS),
    ],
    ids=["series", "text", "objects", "numpy", "list", "index"],
)
def test_every_form_of_a_date_is_counted_in_days(column):
    table, (found,) = read_inputs(column)
    np.testing.assert_array_equal(table[:, 0], COUNTED)
    assert (found.kind, found.unit, found.aware) == ("time", "days", False)
    back = restored(table, [found]).iloc[:, 0]
    assert [str(t) for t in back] == [str(pd.Timestamp(day)) for day in DAYS]


def test_time_zones_are_taken_into_account_and_remembered():
    there = timezone(timedelta(hours=5))
    aware = pd.DataFrame({"t": [datetime(2024, 1, 1, 5, tzinfo=there)]})
    table, columns = read_inputs(aware)
    assert table[0, 0] == (date(2024, 1, 1) - date(1970, 1, 1)).days  # midnight in UTC
    assert columns == [Column("t", "time", aware=True)]
    assert restored(table, columns)["t"][0] == pd.Timestamp("2024-01-01", tz="UTC")
    with pytest.raises(ValueError, match="'t' holds times without a time zone"):
        read_inputs(pd.DataFrame({"t": ["2024-01-01"]}), columns)


@pytest.mark.parametrize("moment", ["1900-01-01T00:00:00.000001", "2035-12-31T23:59:59.999999"])
def test_microseconds_come_back(moment):
    table, columns = read_inputs(pd.DataFrame({"t": [moment]}))
    assert restored(table, columns)["t"][0] == pd.Timestamp(moment)


def test_offsets_may_change_with_the_season():
    times = ["2024-03-30T12:00:00+01:00", "2024-03-31T12:00:00+02:00"]
    table, (column,) = read_inputs(pd.DataFrame({"t": times}))
    assert column.aware
    np.testing.assert_allclose(np.diff(table[:, 0]), 23 / 24)


@pytest.mark.parametrize("odd", ["31/01/2024", "31.1.2024", "1-2-24", "3,5"])
def test_what_may_be_a_date_or_a_number_is_no_label(odd):
    with pytest.raises(ValueError, match=f"row 1, column 't': '{odd}' is not clearly"):
        read_inputs(pd.DataFrame({"t": ["2024-01-30", odd, "2024-01-30"]}))


@pytest.mark.parametrize("ends", [("+01", "+02"), ("+0100", "+0200"), ("Z", "-01:00")])
def test_offsets_of_every_form_are_read(ends):
    times = [f"2024-03-{day} 12:00:00{end}" for day, end in zip((30, 31), ends, strict=True)]
    table, (column,) = read_inputs(pd.DataFrame({"t": times}))
    assert column.aware
    np.testing.assert_allclose(np.diff(table[:, 0]), 25 / 24 if "Z" in ends else 23 / 24)


def test_a_column_of_dates_has_no_other_text():
    with pytest.raises(ValueError, match="row 2, column 't': 'unknown' is not clearly"):
        read_inputs(pd.DataFrame({"t": ["2024-01-30", None, "unknown"]}))
    with pytest.raises(ValueError, match="'t' holds times with and without a time zone"):
        read_inputs(pd.DataFrame({"t": ["2024-01-30T00:00", "2024-01-30T00:00Z"]}))


def test_durations_come_back_from_text():
    columns = [Column("age", "duration")]
    table, _ = read_inputs(pd.DataFrame({"age": ["1 days 12:00:00", "0 days 06:00:00"]}), columns)
    np.testing.assert_array_equal(table[:, 0], [1.5, 0.25])
    with pytest.raises(ValueError, match=r"'age' holds labels such as 'old'; .* durations"):
        read_inputs(pd.DataFrame({"age": ["old"]}), columns)


def test_durations_and_periods():
    table, columns = read_inputs(pd.Series(pd.to_timedelta(["36h", "1D"]), name="age"))
    np.testing.assert_array_equal(table[:, 0], [1.5, 1.0])
    assert restored(table, columns)["age"][0] == pd.Timedelta("36h")
    months = pd.Series(pd.period_range("2024-01", periods=2, freq="M"))
    assert np.diff(read_inputs(months)[0][:, 0]) == [31.0]


def test_dates_of_the_fit_demand_dates_later():
    columns = [Column("when", "time")]
    with pytest.raises(ValueError, match=r"'when' holds numbers such as .*fitted on dates"):
        read_inputs(pd.DataFrame({"when": [3.0]}), columns)
    np.testing.assert_array_equal(read_inputs([DAYS[0]], columns)[0], COUNTED[:1, None])


def test_labels_become_positions_among_their_levels():
    sites = pd.DataFrame({"site": ["b", "a", "b"], "depth": [1, 2, 3]})
    table, columns = read_inputs(sites)
    np.testing.assert_array_equal(table, [[1.0, 1.0], [0.0, 2.0], [1.0, 3.0]])
    assert columns == [Column("site", "category", ("a", "b")), Column("depth")]
    assert restored(table, columns)["site"].tolist() == ["b", "a", "b"]


def test_a_pandas_categorical_keeps_its_levels_and_its_order():
    grades = pd.Categorical(["mid", "low"], categories=["low", "mid", "high"])
    table, (column,) = read_inputs(pd.DataFrame({"grade": grades}))
    np.testing.assert_array_equal(table[:, 0], [1.0, 0.0])
    assert column.levels == ("low", "mid", "high")
    read_inputs(pd.DataFrame({"grade": ["high"]}), [column])  # a level without data


def test_an_unknown_level_is_named_with_its_row():
    columns = [Column("site", "category", ("a", "b"))]
    with pytest.raises(ValueError, match=r"row 1, column 'site': 'c' is not one of the 2 levels"):
        read_inputs(pd.DataFrame({"site": ["a", "c"]}), columns)


def test_tables_of_different_outputs_share_their_levels():
    X = {"one": pd.DataFrame({"s": ["a", "b"]}), "two": pd.DataFrame({"s": ["c", "a"]})}
    tables = split_inputs(["one", "two"], X, None)
    assert tables["one"][1] == tables["two"][1] == [Column("s", "category", ("a", "b", "c"))]
    np.testing.assert_array_equal(tables["two"][0][:, 0], [2.0, 0.0])
    turned = {
        "one": pd.DataFrame({"s": ["a"], "t": [1.0]}),
        "two": pd.DataFrame({"t": [2.0], "s": "b"}),
    }
    np.testing.assert_array_equal(
        split_inputs(["one", "two"], turned, None)["two"][0], [[1.0, 2.0]]
    )
    mixed = {"one": pd.DataFrame({"s": ["a"]}), "two": pd.DataFrame({"s": [1.0]})}
    with pytest.raises(ValueError, match="'s' is a category for output 'one' and a number"):
        split_inputs(["one", "two"], mixed, None)


# -- the kernel of labels --------------------------------------------------------------------------


def test_the_correlation_of_two_levels_is_the_same_for_any_two():
    codes = np.array([[0.0], [1.0], [2.0], [1.0]])
    K = np.asarray(Category(lengthscale=0.5).matrix(jnp.asarray(codes), jnp.asarray(codes)))
    same = codes == codes.T
    np.testing.assert_allclose(K, np.where(same, 1.0, np.exp(-2.0)), rtol=1e-6)
    assert np.linalg.eigvalsh(K).min() > -1e-6
    several = np.asarray(Category([0.5, 2.0]).matrix(np.c_[codes, codes], np.c_[codes, codes]))
    np.testing.assert_allclose(several, np.where(same, 1.0, np.exp(-2.5)), rtol=1e-6)


def test_of_a_number_every_value_is_a_level_whatever_its_unit():
    """A correlation has no unit: it starts, is learned and is shown as it was given."""
    ages = np.array([[41.02], [41.03], [41.02]])
    scale, centre = np.array([1e-3]), np.array([40.0])
    kernel = Category(0.5, active_dims="age").start(np.ones(1), ["age"], scale)
    standard = (ages - centre) / scale
    K = np.asarray(kernel.matrix(jnp.asarray(standard), jnp.asarray(standard)))
    np.testing.assert_allclose(K, np.where(ages == ages.T, 1.0, np.exp(-2.0)), rtol=1e-6)
    assert kernel.rescaled(scale, centre).in_words({"age": ""}) == "Category(age correlation 0.14)"


def test_kernels_see_the_inputs_they_are_made_for():
    names, labels = ["t", "site", "u"], [1]
    assert repr(suited(None, names, labels)) == repr(
        hm.RBF(active_dims=(0, 2)) * hm.Category(active_dims=(1,))
    )
    assert repr(suited(hm.Matern32() + hm.Category(), names, labels)) == repr(
        hm.Matern32(active_dims=(0, 2)) + hm.Category(active_dims=(1,))
    )
    assert repr(suited(None, ["site"], [0])) == repr(hm.Category(active_dims=(0,)))
    assert repr(suited(hm.RBF(), ["t"], [])) == "RBF()"
    with pytest.raises(ValueError, match="RBF is set on input 'site', which holds labels"):
        suited(hm.RBF(active_dims="site"), names, labels)
    by_time = hm.Category(active_dims=0)  # each time a level; the labels are still to be seen
    assert repr(suited(by_time, names, labels)) == repr(by_time * hm.Category(active_dims=(1,)))
    with pytest.raises(ValueError, match="Category is for inputs that are labels"):
        suited(hm.Category(), ["t"], [])


def test_durations_are_days_in_kernels():
    with pytest.raises(ValueError, match="numbers or durations, not '7D'"):
        hm.Periodic(period="7D")
    assert float(hm.RBF(lengthscale=pd.Timedelta("36h")).lengthscale) == 1.5
    assert float(hm.Periodic(period=timedelta(days=7)).period) == 7.0
    np.testing.assert_array_equal(hm.RBF([np.timedelta64(1, "h"), 2.0]).lengthscale, [1 / 24, 2.0])


# -- a model ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    day = np.tile(np.arange(40), 3)
    site = np.repeat(["north", "south", "west"], 40)
    level = np.where(site == "south", -1.5, 1.0) + np.sin(day / 6)
    X = pd.DataFrame({"day": pd.Timestamp("2024-03-01") + pd.to_timedelta(day, "D"), "site": site})
    Y = pd.DataFrame(
        {
            "level": level + 0.2 * rng.standard_normal(120),
            "wet": (rng.uniform(size=120) < 1 / (1 + np.exp(-2 * level))).astype(float),
        }
    )
    Y.loc[(site == "south") & (day > 20), "wet"] = np.nan
    return X, Y


@pytest.mark.parametrize("method", ["vem", "svi"])
def test_a_table_with_dates_and_labels_is_learned(table, method):
    X, Y = table
    model = hm.HetMOGP(
        {"level": hm.Gaussian(), "wet": hm.Bernoulli()},
        latents=2,
        inducing=20,
        method=method,
        max_iter={"vem": 8, "svi": 1500}[method],
        batch_size=60,
        progress=False,
    ).fit(X, Y)
    new = pd.DataFrame({"day": ["2024-03-30"] * 2, "site": ["north", "south"]})
    pred = model.predict(new)
    truth = np.sin(29 / 6) + np.array([1.0, -1.5])
    np.testing.assert_allclose(pred["level"].mean, truth, atol=0.35)
    assert pred["wet"].mean[0] > pred["wet"].mean[1] + 0.3  # unseen there, but the level was seen
    codes = {float(z) for Z in model.inducing_inputs_ for z in Z[:, 1]}
    assert codes <= {0.0, 1.0, 2.0}  # inducing inputs have levels, and keep them
    over_time, over_labels = zip(*(kernel.parts for kernel in model.kernels_), strict=True)
    days = [float(kernel.lengthscale[0]) for kernel in over_time]
    assert any(1.0 < length < 40.0 for length in days)  # another may be one level for each site
    assert all(isinstance(kernel, hm.Category) for kernel in over_labels)


def test_days_since_some_date_give_the_same_predictions(table):
    X, Y = table
    counted = X.assign(day=(X["day"] - pd.Timestamp("2024-01-01")) / pd.Timedelta("1D"))
    options = {"latents": 1, "inducing": 10, "max_iter": 2, "progress": False}
    found = [
        hm.HetMOGP({"level": hm.Gaussian()}, **options).fit(x, Y).predict(x)["level"].mean
        for x in (X, counted)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_discovery_reads_dates_and_labels(table):
    X, Y = table
    found = hm.discover(X, Y, outputs=["wet"], progress=False)
    assert list(found) == ["wet"]


@pytest.mark.parametrize("cell", [[1, 2], np.array([1.0, 2.0]), np.array([]), {"a": 1}, (1,)])
def test_several_values_in_a_cell_are_no_input(cell):
    assert not is_missing(cell)
    column = pd.Series([cell, cell], dtype=object)
    with pytest.raises(ValueError, match="column 'tags' holds several values in a cell, such as"):
        read_inputs(pd.DataFrame({"tags": column}))


@pytest.mark.parametrize(
    "value", [None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32("nan")]
)
def test_what_is_missing(value):
    assert is_missing(value)


def test_labels_that_were_not_in_the_fit_have_a_name_of_their_own():
    column = Column("site", "category", ("a", "b"), open=True)
    codes = column.encode(pd.Series(["b", "z", "a", "y"]), "X")
    assert list(column.decode(codes)) == ["b", "a new level", "a", "a new level"]
    assert list(column.decode(codes[[0, 2]]).categories) == ["a", "b"]


@pytest.mark.parametrize("kind", ["time", "duration"])
def test_a_column_without_values_is_missing_and_not_of_another_kind(kind):
    columns = [Column("t", kind)]
    assert len(read_inputs(pd.DataFrame({"t": []}), columns)[0]) == 0
    with pytest.raises(ValueError, match="row 0, column 't': the value is missing"):
        read_inputs(pd.DataFrame({"t": [None, None]}), columns)


def test_complex_inputs_are_refused_in_predictions_too():
    with pytest.raises(ValueError, match="X, column 'x0' holds complex numbers"):
        read_inputs(np.array([1j, 2.0]), [Column("x0")])


def test_inputs_of_each_output_may_be_named_by_numbers():
    tables = split_inputs(["0", "1"], {0: [1.0, 2.0], 1: [3.0]}, None)
    assert [len(table) for table, _ in tables.values()] == [2, 1]
    model = hm.HetMOGP({0: hm.Gaussian(), 1: hm.Gaussian()}, latents=1, max_iter=0, progress=False)
    model.fit({0: [1.0, 2.0, 4.0], 1: [3.0, 5.0]}, {0: [1.0, 0.0, 2.0], 1: [2.0, 1.0]})
    assert model.n_observed_ == {"0": 3, "1": 2}


def test_a_stray_text_does_not_turn_numbers_into_labels():
    age = pd.Series(range(20, 60)).astype(str)
    age[7] = "27 y"
    with pytest.raises(ValueError, match=r"row 7 has '27 y', .* the other 39 values are. Correct"):
        read_inputs(pd.DataFrame({"age": age}))
    with pytest.raises(ValueError, match="'age': row 7 has '27 y', which is not a number"):
        read_inputs(pd.DataFrame({"age": age}), [Column("age")])


@pytest.mark.parametrize("codes", [["1a", "2b", "3"] * 9, ["1", "2", "3", "other"] * 9])
def test_codes_and_a_few_numbered_labels_remain_labels(codes):
    assert read_inputs(pd.DataFrame({"code": codes}))[1][0].kind == "category"


def test_errors_about_inputs_say_what_is_missing_and_how_to_mend_time_zones():
    with pytest.raises(ValueError, match="row 1, column 's': the value is missing; 1 row"):
        read_inputs(pd.DataFrame({"s": ["a", None]}))
    with pytest.raises(ValueError, match=r'in the fit they had none. In UTC: .dt.tz_convert\("UTC'):
        read_inputs(pd.DataFrame({"t": pd.to_datetime(["2024-01-30T00Z"])}), [Column("t", "time")])
    with pytest.raises(ValueError, match=r"holds numbers such as 3.0; the model"):
        read_inputs(pd.DataFrame({"t": [3.0]}), [Column("t", "time")])
    with pytest.raises(ValueError, match="X is a single value, 2024-01-30 00:00:00; give a list"):
        read_inputs(pd.Timestamp("2024-01-30"))
