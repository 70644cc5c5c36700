"""What users may hand over, and what they are told when it is wrong."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import hetmogp as hm
from hetmogp.columns import Column
from hetmogp.inputs import read_inputs
from hetmogp.tables import name_outputs, observe, read

N = 6
x = np.linspace(0.0, 1.0, N)
real = np.array([0.5, -1.0, np.nan, 2.0, 0.0, 1.0])
count = np.array([3.0, 0.0, 1.0, np.nan, 2.0, 5.0])
PAIR = {"real": hm.Gaussian(), "count": hm.Poisson()}


def load(likelihoods, X, Y, columns=None):
    return read(name_outputs(likelihoods, Y), X, Y, columns)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Y", "names"),
    [
        (np.c_[real, count], ["y0", "y1"]),
        ([real, count], ["y0", "y1"]),
        ({"a": real, "b": count}, ["a", "b"]),
        (pd.DataFrame({"a": real, "b": count}), ["a", "b"]),
        (pd.DataFrame(np.c_[real, count]), ["0", "1"]),
    ],
)
def test_outputs_of_a_list_take_the_names_of_y(Y, names):
    assert load([hm.Gaussian(), hm.Poisson()], x, Y).names == names


def test_a_named_series_names_its_output():
    assert load([hm.Gaussian()], x, pd.Series(real, name="height")).names == ["height"]
    assert load([hm.Gaussian()], x, pd.Series(real)).names == ["y0"]


def test_one_likelihood_needs_no_list():
    assert list(name_outputs(hm.Gaussian())) == ["y0"]


def test_a_dict_of_likelihoods_names_array_columns_in_order():
    data = load(PAIR, x, np.c_[real, count])
    assert data.names == ["real", "count"]
    np.testing.assert_array_equal(data.values[1], count)


def test_other_columns_of_a_frame_are_ignored_when_outputs_are_named():
    frame = pd.DataFrame({"junk": ["text"] * N, "count": count, "real": real})
    data = load(PAIR, x, frame)
    assert data.names == ["real", "count"]
    np.testing.assert_array_equal(data.values[0], real)


def test_whole_number_names_find_their_columns():
    data = load({0: hm.Gaussian()}, x, pd.DataFrame({0: real, 1: count}))
    np.testing.assert_array_equal(data.values[0], real)


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "Y",
    [
        np.c_[real, count],
        [real, count],
        (real, count),
        [real.tolist(), count.tolist()],
        [real[:, None], count[:, None]],
        {"count": count, "real": real},
        {"count": pd.Series(count), "real": [0.5, -1.0, None, 2.0, 0.0, 1.0]},
        pd.DataFrame({"real": real, "count": pd.array([3, 0, 1, None, 2, 5], dtype="Int64")}),
        pd.DataFrame({"real": real, "count": np.array([3, 0, 1, None, 2, 5], dtype=object)}),
        pd.DataFrame({"real": real, "count": np.array([3, 0, 1, pd.NA, 2, 5], dtype=object)}),
        pd.DataFrame({"real": real, "count": pd.Categorical([3, 0, 1, None, 2, 5])}),
        pd.DataFrame({"real": real.astype(np.float32), "count": count.astype(np.float32)}),
    ],
)
def test_every_form_of_y_reads_the_same(Y):
    data = load(PAIR, x, Y)
    np.testing.assert_array_equal(data.values[0], real)
    np.testing.assert_array_equal(data.values[1], count)


@pytest.mark.parametrize(
    "y",
    [
        [True, False, None, True],
        np.array([1.0, 0.0, np.nan, 1.0]),
        np.array([True, False, None, True], dtype=object),
        pd.Series([True, False, None, True], dtype="boolean"),
        pd.Series([1, 0, pd.NA, 1], dtype="Int64"),
        pd.Series([True, False, pd.NA, True], dtype=object),
        pd.Series(pd.Categorical([True, False, None, True])),
    ],
)
def test_every_form_of_yes_and_no_reads_the_same(y):
    np.testing.assert_array_equal(observe("b", hm.Bernoulli(), y)[1], [1.0, 0.0, np.nan, 1.0])


def observed(likelihood, values) -> tuple[Any, np.ndarray]:
    return observe("c", likelihood, values)


@pytest.mark.parametrize("Y", [real, real[:, None], real.tolist(), pd.Series(real), [real]])
def test_one_dimension_serves_one_output(Y):
    np.testing.assert_array_equal(load([hm.Gaussian()], x, Y).values[0], real)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", "a", None, "c"], ("a", "b", "c")),
        (["b", "a", np.nan, "c"], ("a", "b", "c")),
        (np.array(["b", "a", "a", "c"]), ("a", "b", "c")),
        (np.array([2, 1, 1, 7]), (1, 2, 7)),
        (np.array([2.0, 1.0, np.nan, 7.0]), (1.0, 2.0, 7.0)),
        ([True, False, None, True], (False, True)),
        (pd.Series([2, 1, pd.NA, 7], dtype="Int64"), (1, 2, 7)),
        (pd.Series(["b", "a", pd.NA, "c"], dtype="string"), ("a", "b", "c")),
        (pd.Series(pd.to_datetime(["2021", "2020", "NaT", "2022"])), None),
        ([1, "a", None, "b"], (1, "a", "b")),
    ],
)
def test_categorical_labels_are_kept_by_name(labels, classes):
    likelihood, codes = observed(hm.Categorical(), labels)
    if classes is not None:
        assert likelihood.classes == classes
    seen = ~np.isnan(codes)
    back = likelihood.decode(codes[seen])
    expected = [label for label, ok in zip(labels, seen, strict=True) if ok]
    assert list(back) == expected, "labels changed on the way"


def test_a_pandas_categorical_fixes_classes_and_their_order():
    y = pd.Series(pd.Categorical(["low", "high", None], categories=["low", "mid", "high"]))
    likelihood, codes = observed(hm.Categorical(), y)
    assert likelihood.classes == ("low", "mid", "high")
    np.testing.assert_array_equal(codes, [0.0, 2.0, np.nan])


def test_given_classes_fix_the_reference_class():
    likelihood, codes = observed(hm.Categorical(classes=["z", "a"]), ["a", "z", "a"])
    assert likelihood.classes == ("z", "a")
    np.testing.assert_array_equal(codes, [1.0, 0.0, 1.0])


# -- inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X", [x, x[:, None], x.tolist(), x[:, None].tolist(), pd.Series(x), pd.DataFrame({"t": x})]
)
def test_every_form_of_one_input_reads_the_same(X):
    np.testing.assert_array_equal(read_inputs(X)[0], x[:, None])


@pytest.mark.parametrize(
    "column",
    [
        pd.array([0, 1, 2], dtype="Int64"),
        pd.array([False, True, True], dtype="boolean").astype("Int64"),
        np.array([0, 1, 2], dtype=object),
        np.array([False, True, True]),
    ],
)
def test_nullable_and_object_inputs_become_numbers(column):
    table, _ = read_inputs(pd.DataFrame({"t": column}))
    np.testing.assert_array_equal(table[:, 0], np.asarray(column, float))


def test_input_names_come_from_the_frame():
    assert read_inputs(pd.DataFrame({"lat": x, 7: x}))[1] == [Column("lat"), Column("7")]
    assert read_inputs(pd.Series(x, name="t"))[1] == [Column("t")]
    assert read_inputs(np.c_[x, x])[1] == [Column("x0"), Column("x1")]


def test_a_frame_is_put_in_the_order_of_the_fit():
    table, _ = read_inputs(
        pd.DataFrame({"b": x + 1, "a": x, "more": x}), columns=[Column("a"), Column("b")]
    )
    np.testing.assert_array_equal(table, np.c_[x, x + 1])


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_one_table_per_output_may_differ_in_length(kind):
    tables = [x[:, None], x[:4, None]]
    X = dict(zip(PAIR, tables, strict=True)) if kind is dict else kind(tables)
    data = load(PAIR, X, {"real": real, "count": count[2:]})
    assert [len(table) for table in data.inputs] == [6, 4]
    assert [len(y) for y in data.values] == [6, 4]


def test_one_table_per_output_may_be_one_dimensional():
    data = load(PAIR, [x, x[:4]], [real, count[2:]])
    assert [table.shape for table in data.inputs] == [(6, 1), (4, 1)]
    data = load(PAIR, {"real": x.tolist(), "count": x[:4].tolist()}, [real, count[2:]])
    assert [table.shape for table in data.inputs] == [(6, 1), (4, 1)]


def test_shared_inputs_are_one_array():
    data = load(PAIR, x, np.c_[real, count])
    assert data.inputs[0] is data.inputs[1]


# -- complaints ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "y", "words"),
    [
        (hm.Poisson(), [1.0, 2.0, -3.0], ["'age'", "row 2", "-3", "Poisson", "whole number >= 0"]),
        (hm.Poisson(), [1.0, 2.5, 3.0], ["'age'", "row 1", "2.5", "Poisson"]),
        (hm.Bernoulli(), [1.0, 1.5, 0.0], ["'age'", "row 1", "1.5", "0 or 1"]),
        (hm.Gamma(), [0.0, 1.0, 2.0], ["'age'", "row 0", "0 is not", "> 0"]),
        (hm.Exponential(), [0.0, 1.0, -2.0], ["'age'", "row 2", "-2", ">= 0"]),
        (hm.Beta(), [0.5, 0.1, 1.0], ["'age'", "row 2", "1 is not", "between 0 and 1"]),
        (hm.Beta(), [0.0, 0.1, 0.5], ["'age'", "row 0", "between 0 and 1"]),
        (hm.Gaussian(), [0.5, np.inf, 1.0], ["'age'", "row 1", "inf", "finite"]),
        (hm.Gaussian(), ["1", "2", "x"], ["'age'", "row 2", "'x'"]),
        (hm.Gaussian(), ["1", "2", "3"], ["'age'", "row 0", "'1'"]),
        (hm.Gaussian(), pd.Series([1.0, "two", 3.0], dtype=object), ["'age'", "row 1", "'two'"]),
        (hm.Bernoulli(), pd.Series(["yes", "no", "maybe"]), ["'age'", "row 2", "'maybe'", "yes"]),
        (hm.Bernoulli(), np.array(["yes", "no", ""]), ["'age'", "row 2", "''", "0 or 1"]),
        (hm.Bernoulli(), ["yes", 2, "no"], ["'age'", "row 1", "2 is not", "0 or 1"]),
        (hm.Gaussian(), pd.to_datetime(["2020", "2021", "2022"]), ["'age'", "row 0", "2020"]),
        (hm.Gaussian(), [1.0, {}, 2.0], ["'age'", "row 1", "{}"]),
        (hm.Categorical(), ["a", "a", None], ["'age'", "'a'", "classes="]),
        (hm.Categorical(classes=["a", "b"]), ["a", "b", "z"], ["'age'", "row 2", "'z'", "'b'"]),
        (hm.Gaussian(), np.ones((3, 2)), ["'age'", "(3, 2)"]),
    ],
)
def test_a_bad_value_is_named_with_output_and_row(likelihood, y, words):
    with pytest.raises(ValueError, match=r"output 'age'") as caught:
        observe("age", likelihood, y)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "y",
    [
        ["yes", "no", None, "no"],
        ["Yes ", " NO", np.nan, "No"],
        ["true", "False", pd.NA, "FALSE"],
        ["1", "0", None, "0"],
        [True, False, None, False],
        pd.array([True, False, None, False], dtype="boolean"),
        pd.Categorical(["yes", "no", None, "no"]),
        pd.Series(["yes", "no", None, "no"], dtype="string"),
    ],
)
def test_yes_and_no_may_be_words(y):
    likelihood, numbers = observe("age", hm.Bernoulli(), pd.Series(y))
    np.testing.assert_array_equal(numbers, [1.0, 0.0, np.nan, 0.0])
    assert likelihood.levels == (0, 1)


def test_further_bad_values_are_counted():
    with pytest.raises(ValueError, match=r"row 0: -1 .*\(and 2 more rows\)"):
        observe("n", hm.Poisson(), [-1.0, -2.0, 3.0, -4.0])


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.array([0.0, np.nan, 1.0]), ["X, row 1", "'x0'", "NaN", "1 row has such inputs, of 3"]),
        (np.array([[0.0, 1.0], [1.0, -np.inf]]), ["X, row 1", "'x1'", "inf"]),
        (pd.DataFrame({"lat": [0.0, None]}), ["X, row 1", "'lat'", "NaN"]),
        (pd.DataFrame({"lat": pd.array([0, None], dtype="Int64")}), ["X, row 1", "'lat'"]),
        (pd.DataFrame({"lat": np.array([0.0, None], dtype=object)}), ["X, row 1", "'lat'"]),
        (pd.DataFrame({"lat": [f"place {i}" for i in range(60)]}), ["'lat'", "'place 0'", "60"]),
        (pd.DataFrame({"lat": [1j, 2j]}), ["'lat'", "complex"]),
        (pd.DataFrame({"lat": ["north", None]}), ["X, row 1", "'lat'", "missing"]),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "NaT"])}), ["X, row 1", "'when'"]),
        (pd.DataFrame({"lat": [{"deg": 1}, {"deg": 2}]}), ["'lat'", "deg", "numbers"]),
        (np.ones((2, 1, 1)), ["(2, 1, 1)", "(N, p)"]),
        (np.ones((2, 0)), ["0 feature(s)", "minimum of 1"]),
        ([[1.0, 2.0], [3.0]], ["rows differ"]),
        (None, ["(N, p)"]),
    ],
)
def test_bad_inputs_are_named_with_row_and_column(X, words):
    with pytest.raises(ValueError, match="X") as caught:
        read_inputs(X)
    for word in words:
        assert word in str(caught.value)


def test_inputs_with_the_same_name_twice_are_refused():
    """By name, a later frame could not be put in order."""
    with pytest.raises(ValueError, match="lat"):
        read_inputs(pd.DataFrame(np.c_[x, x + 1], columns=["lat", "lat"]))


def test_bad_inputs_of_one_output_name_it():
    with pytest.raises(ValueError, match=r"inputs of 'count', row 0, column 'x0': NaN"):
        load(PAIR, [x, np.array([np.nan])], [real, [1.0]])


@pytest.mark.parametrize(
    ("X", "Y", "words"),
    [
        (x[:5], np.c_[real, count], ["'real'", "6 values", "5 rows"]),
        ([x, x], [real, count[:3]], ["'count'", "3 values", "6 rows"]),
        ([x], [real, count], ["list of 1", "2 outputs", "real, count"]),
        ({"real": x}, [real, count], ["none for 'count'"]),
        ([x, np.c_[x, x]], [real, count], ["'count'", "'x1'", "same inputs"]),
        (x, [real], ["list of 1", "2 outputs"]),
        (x, [real, count, count], ["list of 3", "2 outputs"]),
        (x, [[1.0, 2.0]] * N, ["list of 6", "one sequence per output"]),
        (x, real.tolist(), ["list of 6", "2 outputs"]),
        (x, real, ["(6, 1)", "(N, 2)"]),
        (x, np.ones((N, 3)), ["(6, 3)", "(N, 2)"]),
        (x, 3.0, ["()", "(N, 2)"]),
        (x, pd.DataFrame({"real": real}), ["no column 'count'", "it has real"]),
        (x, {"real": real, "counts": count}, ["no column 'count'", "real, counts"]),
        (x, np.c_[real, np.full(N, np.nan)], ["'count'", "no observed value"]),
        (
            pd.DataFrame({"t": x}),
            pd.DataFrame({"real": real, "count": count}, index=range(1, N + 1)),
            ["'real'", "index", "reset_index"],
        ),
    ],
)
def test_tables_that_do_not_match_are_refused(X, Y, words):
    with pytest.raises(ValueError, match=r"X|Y|output") as caught:
        load(PAIR, X, Y)
    for word in words:
        assert word in str(caught.value)


def test_a_frame_with_too_many_columns_for_a_list_of_likelihoods_is_refused():
    with pytest.raises(ValueError, match=r"3 columns \(a, b, c\) for 2 likelihoods"):
        name_outputs([hm.Gaussian(), hm.Poisson()], pd.DataFrame(np.ones((2, 3)), columns=[*"abc"]))


def test_a_column_name_used_twice_is_named():
    frame = pd.DataFrame(np.ones((N, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match=r"twice|duplicate|more than one"):
        load([hm.Gaussian(), hm.Gaussian()], x, frame)


def test_unequal_indexes_matter_per_output_too():
    shifted = pd.Series(real, index=range(1, N + 1))
    with pytest.raises(ValueError, match=r"'real'.*index"):
        load(PAIR, [pd.DataFrame({"t": x})] * 2, [shifted, count])


def test_columns_of_an_earlier_fit_are_demanded():
    with pytest.raises(ValueError, match="no column 'lat'"):
        read_inputs(pd.DataFrame({"lon": x}), columns=[Column("lat")])
    with pytest.raises(
        ValueError, match=r"2 features, but HetMOGP is expecting 1 features as input: \['lat'\]"
    ):
        read_inputs(np.c_[x, x], columns=[Column("lat")])


@pytest.mark.parametrize(
    ("likelihoods", "error", "words"),
    [
        ([hm.Gaussian], TypeError, ["'y0'", "Gaussian()", "parentheses"]),
        ({"a": hm.Poisson}, TypeError, ["'a'", "Poisson()", "parentheses"]),
        (["gaussian"], TypeError, ["'y0'", "'gaussian'", "not a likelihood"]),
        ("gaussian", TypeError, ["list such as", "'gaussian'"]),
        (None, TypeError, ["list such as", "None"]),
        ([], ValueError, ["at least one output"]),
        ({}, ValueError, ["at least one output"]),
        ({"global": hm.Gaussian()}, ValueError, ["'global'", "nlpd"]),
    ],
)
def test_bad_likelihoods_are_refused(likelihoods, error, words):
    with pytest.raises(error) as caught:
        name_outputs(likelihoods)
    for word in words:
        assert word in str(caught.value)


def test_the_reserved_name_is_refused_from_y_as_well():
    with pytest.raises(ValueError, match="'global'"):
        name_outputs([hm.Gaussian()], pd.DataFrame({"global": real}))


@pytest.mark.parametrize(
    ("likelihoods", "X", "Y"),
    [
        ([hm.Poisson()], x, -np.ones(N)),
        ([hm.Gaussian()], np.full(N, np.inf), real),
        ([hm.Gaussian()], x[:3], real),
        ([hm.Gaussian()], x, np.full(N, np.nan)),
        ([hm.Categorical()], x, ["a"] * N),
    ],
)
def test_fit_complains_before_any_computation(monkeypatch, likelihoods, X, Y):
    def never(*_):
        raise AssertionError("computed before checking")

    monkeypatch.setattr("hetmogp.fitted.learn", never)
    with pytest.raises(ValueError, match=r"row|rows|observed|classes"):
        hm.HetMOGP(likelihoods).fit(X, Y)


@pytest.mark.parametrize(
    ("word", "advice"),
    [("gaussian", "hm.Gaussian()"), ("Bernouli", "hm.Bernoulli()"), ("atuo", '"auto"')],
)
def test_a_word_in_the_place_of_a_likelihood_gets_advice(word, advice):
    with pytest.raises(TypeError) as error:
        name_outputs({"y": word})
    assert str(error.value) == f"output 'y': {word!r} is not a likelihood; write {advice}"


def test_no_rows_are_no_matter_of_weights():
    empty = pd.DataFrame({"x": [0.0], "y": [1.0]})[:0]
    with pytest.raises(ValueError, match=r"output 'y' has no observed value$"):
        read({"y": hm.Gaussian()}, empty[["x"]], empty[["y"]])


def test_texts_that_cannot_be_read_are_counted_and_recoding_is_advised():
    words = r"row 0: 'male' is not a Bernoulli .*recode two other values .*\(and 2 more rows\)"
    with pytest.raises(ValueError, match=words):
        observe("sex", hm.Bernoulli(), ["male", "female", None, "male"])


def test_complex_outputs_are_refused():
    with pytest.raises(ValueError, match="output 'y' holds complex numbers"):
        observe("y", hm.Gaussian(), pd.Series([1j, 2.0]))


def test_more_classes_than_a_third_of_the_values_are_doubted():
    notes = {"note": [f"text {k % 20}" for k in range(40)]}
    (doubt,) = read({"note": hm.Categorical()}, np.arange(40.0), notes).doubts()
    assert doubt[1].startswith("it has 20 classes for 40 values, so most are too rare")
