"""Tables on disk: every row once an epoch, in an order by the seed; fits, scores, predictions."""

import gzip
import itertools
import json
import resource
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import hetmogp as hm
from hetmogp import disk, distributed
from hetmogp.data import blocks
from hetmogp.fitting import JITTER, stream
from hetmogp.fitting.stream import StreamFeed
from hetmogp.session import session
from hetmogp.tables import read

LIKELIHOODS = {"a": hm.Gaussian(), "b": hm.Bernoulli(weight="w")}


def rows(N, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, N)
    found = pd.DataFrame(
        {
            "id": np.arange(N, dtype=float),
            "x": x,
            "a": np.sin(2 * x) + 0.3 * rng.standard_normal(N),
            "b": (rng.random(N) < 1 / (1 + np.exp(-3 * np.sin(2 * x)))).astype(float),
            "w": rng.integers(1, 3, N).astype(float),
        }
    )
    found.loc[rng.random(N) < 0.3, "a"] = np.nan
    return found


def written(folder, frame, sizes, group):
    """Parquet files of these sizes, in row groups."""
    ends = np.cumsum(sizes)
    assert ends[-1] == len(frame)
    for k, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
        part = pa.Table.from_pandas(frame.iloc[begin:end], preserve_index=False)
        pq.write_table(part, folder / f"{k}.parquet", row_group_size=group)
    return folder


@pytest.fixture
def small(monkeypatch):
    """Buffers of a hundred rows, and three steps at a time."""
    monkeypatch.setattr(stream, "LENGTHS", (3, 3))
    monkeypatch.setattr(disk, "BUFFER", 100)
    monkeypatch.setattr(disk, "FRAME", 60)


def one_of(monkeypatch, index, count):
    """Have the code take this process for one of several."""
    monkeypatch.setattr(distributed, "index", lambda: index)
    monkeypatch.setattr(distributed, "count", lambda: count)


def overheard(monkeypatch, everybody=False):
    """What this process tells its group: it hears itself alone, or all that was said so far."""
    said: list[Any] = []

    def gathered(mine):
        said.append(mine)
        return said if everybody else [mine]

    monkeypatch.setattr(distributed, "gathered", gathered)
    return said


def steps_of(table, frame, size, n, skip=0):
    """The ids of the rows of each of the next n steps of a process, which has the right values."""
    data = read(LIKELIHOODS, frame[["id"]], frame)
    (like,), scaling = blocks(data)
    found: list[np.ndarray] = []
    with session():
        feed = StreamFeed(table, data, like, scaling, size, 3, skip)
        try:
            while len(found) < n:
                now = min(2, n - len(found), feed.longest)
                (block,), (drawn,), first = feed.take(now)
                for t in range(first, first + now):
                    seen = np.asarray(drawn)[t] >= 0
                    ids = scaling.undo(np.asarray(block.X)[t][seen])[:, 0].round().astype(int)
                    there = frame.iloc[ids]
                    np.testing.assert_array_equal(np.asarray(block.y)[t][seen, 1], there["b"])
                    np.testing.assert_array_equal(np.asarray(block.weight)[t][seen, 1], there["w"])
                    found.append(ids)
            assert feed.taken == skip + n
        finally:
            feed.close()
    left = [feed._chunks._thread, *(lane._buffers._thread for lane in feed._lanes)]
    assert not any(thread.is_alive() for thread in left)
    return found, feed.epoch


FILES = [((255,), 23), ((37, 1, 212, 5), 23), ((100, 155), 500), ((8,), 8)]


@pytest.mark.parametrize(
    ("sizes", "group", "size", "processes"),
    [  # every pair of files and batch size, every pair of files and processes but one
        (*files, size, (1, 2, 3, 7)[(i + j) % 4])
        for i, files in enumerate(FILES)
        for j, size in enumerate((7, 50, 1000))
    ],
)
def test_every_row_comes_once_an_epoch(small, tmp_path, monkeypatch, sizes, group, size, processes):
    """Whatever the sizes of files and row groups; with more processes than row groups, too."""
    frame = rows(sum(sizes)).assign(a=1.0)
    table = hm.Table(written(tmp_path, frame, sizes, group), inputs=["id"])
    one_of(monkeypatch, 0, processes)
    epoch = steps_of(table, frame, size, 1)[1]
    found = []
    for k in range(processes):
        one_of(monkeypatch, k, processes)
        found.append(steps_of(table, frame, size, 2 * epoch)[0])
    for first in (0, epoch):
        seen = [ids for steps in found for ids in steps[first : first + epoch]]
        assert sorted(np.concatenate(seen)) == list(range(len(frame)))


def test_batches_are_the_same_for_as_many_lanes_by_any_number_of_processes(
    small, tmp_path, monkeypatch
):
    frame = rows(255).assign(a=1.0)
    table = hm.Table(written(tmp_path, frame, (100, 155), 23), inputs=["id"], lanes=6)
    alone, epoch = steps_of(table, frame, 24, 25)
    assert epoch == 11
    assert not np.array_equal(np.sort(alone[0]), np.sort(alone[epoch]))
    for processes in (2, 3, 6):
        found = []
        for k in range(processes):
            one_of(monkeypatch, k, processes)
            found.append(steps_of(table, frame, 24, 25)[0])
        for expected, *parts in zip(alone, *found, strict=True):
            np.testing.assert_array_equal(np.concatenate(parts), expected)
        later = steps_of(table, frame, 24, 6, skip=19)[0]
        assert all(map(np.array_equal, later, found[-1][19:]))
    one_of(monkeypatch, 0, 4)
    with pytest.raises(ValueError, match="6 lanes, which 4 processes"):
        steps_of(table, frame, 24, 1)


def test_processes_that_see_other_files_are_told(tmp_path, monkeypatch):
    table = hm.Table(written(tmp_path, rows(40), (20, 20), 20), inputs=["id"])
    other = hm.Table(tmp_path / "0.parquet", inputs=["id"])
    overheard(monkeypatch, everybody=True)
    other.agree()
    with pytest.raises(
        distributed.GroupError, match=r"40 rows in 2.*20 rows in 1 files.*process 0"
    ):
        table.agree()


def test_each_process_reads_its_own_row_groups(tmp_path, monkeypatch):
    table = hm.Table(written(tmp_path, rows(400), (200, 200), 50), inputs=["id"])
    numbers = [[unit.number for unit in table.section(k, 4)] for k in range(4)]
    assert numbers == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_the_sample_is_the_same_by_any_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SAMPLE", 100)
    table = hm.Table(written(tmp_path, rows(500), (203, 297), 70), inputs=["id"])
    whole = table.sample(["id", "a"], seed=1)
    monkeypatch.setattr(distributed, "together", lambda make: make())
    monkeypatch.setattr(table, "agree", lambda: None)
    parts = overheard(monkeypatch)
    for k in range(3):
        one_of(monkeypatch, k, 3)
        table.sample(["id", "a"], seed=1)
    pd.testing.assert_frame_equal(
        pd.concat([frame for frame, _ in parts], ignore_index=True), whole.rows
    )
    assert {name: sum(v[name] for _, v in parts) for name in ("id", "a")} == whole.values


def test_the_order_is_by_seed_and_epoch_and_can_be_taken_up(small, tmp_path):
    table = hm.Table(written(tmp_path, rows(255), (200, 55), 23), inputs=["x"])

    def order(seed, epoch, skip=0):
        frames = table.epoch(["id"], seed, epoch, skip)
        return np.concatenate([frame["id"].to_numpy() for frame in frames])

    np.testing.assert_array_equal(order(0, 0), order(0, 0))
    assert (order(0, 0) != order(0, 1)).any()
    assert (order(0, 0) != order(1, 0)).any()
    for skip in (0, 1, 99, 150, 254):
        np.testing.assert_array_equal(order(0, 3, skip), order(0, 3)[skip:])
    near = np.abs(np.diff(order(0, 0))) == 1
    assert near.mean() < 0.1, "rows that were neighbours are not any more"


def test_a_sample_is_not_drawn_with_the_users_own_random_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SAMPLE", 300)
    x = np.random.default_rng(0).random(1000)  # as somebody would simulate data
    frame = pd.DataFrame({"x": x, "y": np.where(x > 0.5, np.nan, 1.0)})
    table = hm.Table(written(tmp_path, frame, (1000,), 300), inputs=["x"])
    sample = table.sample(["x", "y"], seed=0)
    assert 240 < len(sample.rows) < 360
    assert sample.rows["x"].mean() == pytest.approx(0.5, abs=0.06)
    assert sample.values == {"x": 1000, "y": int((x <= 0.5).sum())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("table"), rows(6000), (2000, 2500, 1500), 700)


OPTIONS = {"latents": 1, "inducing": 12, "batch_size": 100, "max_iter": 300, "progress": False}


@pytest.fixture(scope="module")
def model(folder):
    table = hm.Table(folder, inputs=["x"])
    return hm.HetMOGP(LIKELIHOODS, **OPTIONS).fit(table)


def test_a_fit_from_disk_is_as_good_as_one_from_memory(model):
    frame, new = rows(6000), rows(2000, seed=2)
    same = hm.HetMOGP(LIKELIHOODS, method="svi", **OPTIONS).fit(frame[["x"]], frame)
    assert model.method_ == "svi"
    assert model.n_observed_ == same.n_observed_
    ours, theirs = model.nlpd(new[["x"]], new), same.nlpd(new[["x"]], new)
    for name in ("a", "b"):
        assert ours[name] == pytest.approx(theirs[name], abs=0.02)
    assert model.elbo_ == pytest.approx(same.elbo_, rel=0.02)


def test_scores_of_a_table_are_those_of_its_rows(small, model, folder):
    frame = rows(6000)
    expected = model.nlpd(frame[["x"]], frame)
    found = model.nlpd(hm.Table(folder, inputs=["x"]))
    assert found == pytest.approx(expected)


def test_predictions_are_written_row_by_row(small, model, folder, tmp_path):
    out = model.predict(hm.Table(folder, inputs=["x"]), out=tmp_path / "pred.parquet")
    found = pd.read_parquet(out)
    frame = rows(6000)
    np.testing.assert_array_equal(found["x"], frame["x"])
    expected = model.predict(frame[["x"]]).to_frame()
    np.testing.assert_allclose(
        found[expected.columns], expected, rtol=1e-6
    )  # quantiles are bisected
    with pytest.raises(ValueError, match=r"\.parquet"):
        model.predict(hm.Table(folder, inputs=["x"]), out=tmp_path / "pred.csv")
    with pytest.raises(TypeError, match="out="):
        model.predict(hm.Table(folder, inputs=["x"]))
    table = hm.Table(folder, inputs=["x"])
    with pytest.raises(TypeError, match="leave given out"):
        model.predict(table, given={"w": 1.0}, out=tmp_path / "pred.parquet")


def test_an_input_may_be_an_exposure_too(tmp_path):
    frame = rows(40)
    frame["n"] = frame["w"]
    kinds = {"n": hm.Poisson(exposure="w")}
    options = {"latents": 1, "max_iter": 0, "inducing": 5, "progress": False}
    model = hm.HetMOGP(kinds, **options).fit(frame[["x", "w"]], frame)
    written(tmp_path, frame, [40], 40)
    out = model.predict(hm.Table(tmp_path, inputs=["x", "w"]), out=tmp_path / "out.parquet")
    found, expected = pd.read_parquet(out), model.predict(frame[["x", "w"]], given=frame)
    np.testing.assert_array_equal(found["n_exposure"], frame["w"])
    np.testing.assert_allclose(found["n_mean"], expected["n"].mean)


def test_a_fit_from_disk_is_taken_up(model, folder, tmp_path):
    table = hm.Table(folder, inputs=["x"])
    short = hm.HetMOGP(LIKELIHOODS, **{**OPTIONS, "max_iter": 130})
    short.fit(table, checkpoint=tmp_path, every=65)
    whole = hm.HetMOGP(LIKELIHOODS, **OPTIONS).fit(table, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(whole.weights_, model.weights_)
    assert whole.elbo_ == model.elbo_


@pytest.mark.parametrize("kind", ["arrow", "csv"])
def test_other_formats(tmp_path, kind):
    frame = rows(300)
    if kind == "csv":
        frame.to_csv(tmp_path / "rows.csv", index=False)
    else:
        pyarrow.feather.write_feather(frame, tmp_path / "rows.arrow")
    table = hm.Table(tmp_path / f"*.{kind}", inputs="x")
    assert len(table) == 300
    (found,) = table.frames(["id", "a"])
    np.testing.assert_array_equal(found["a"], frame["a"])


# -- columns that are the same in all files --------------------------------------------------------


def parquet(folder, *frames):
    for k, frame in enumerate(frames):
        if isinstance(frame, pd.DataFrame):
            frame.to_parquet(folder / f"{k}.parquet")
        else:
            pq.write_table(frame, folder / f"{k}.parquet")
    return folder


def whole(source, **options):
    return hm.Table(source, inputs=[], **options).whole()


def test_a_column_has_one_type_in_all_files(tmp_path):
    """Pandas writes whole numbers as such, but as floats where one of them is missing."""
    parquet(
        tmp_path,
        pd.DataFrame({"n": [1, 2], "c": pd.Categorical(["u", "v"]), "t": ["x", "y"]}),
        pd.DataFrame({"t": [None], "c": pd.Categorical(["w"]), "n": [np.nan]}),
    )
    found = whole(tmp_path)
    assert found["n"].dtype == float
    assert found["n"].tolist()[:2] == [1.0, 2.0]
    assert found["c"].tolist() == ["u", "v", "w"]
    assert found["t"].isna().tolist() == [False, False, True]
    (tmp_path / "1.parquet").unlink()
    assert whole(tmp_path)["n"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            pa.table({"x": [1.0]}),
            r"1\.parquet as a table: it has no column 'y', which .*0\.parquet",
        ),
        (
            pa.table({"x": [1.0], "y": [1], "z": [1]}),
            r"0\.parquet as a table: it has no column 'z'",
        ),
        (pa.table({"x": [1.0], "y": ["a"]}), r"1\.parquet as a table: .* y has incompatible types"),
        (pa.table([[1.0], [1], [1]], names=["x", "y", "y"]), "1.* it has 2 columns called 'y'"),
    ],
)
def test_files_with_other_columns_are_told(tmp_path, second, message):
    parquet(tmp_path, pa.table({"x": [1.0], "y": [1]}), second)
    with pytest.raises(ValueError, match=message):
        hm.Table(tmp_path, inputs=["x"])


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_cut_short_is_told(tmp_path, kind):
    write = pd.DataFrame.to_parquet if kind == "parquet" else pyarrow.feather.write_feather
    for k in range(2):
        write(rows(50), tmp_path / f"{k}.{kind}")
    path = tmp_path / f"1.{kind}"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=rf"cannot read .*1\.{kind} as a table"):
        hm.Table(tmp_path, inputs=["x"])


def test_an_index_of_pandas_is_a_column_if_it_has_a_name(tmp_path):
    stored = pd.DataFrame({"y": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="site"))
    counted = pd.DataFrame({"y": np.arange(6.0)}, index=pd.RangeIndex(3, 15, 2, name="t"))
    nameless = pd.DataFrame({"y": [1.0, 2.0]}, index=[7, 5])
    for k, (frame, columns) in enumerate(
        ((stored, ["site", "y"]), (counted, ["t", "y"]), (nameless, ["y"]))
    ):
        folder = tmp_path / str(k)
        folder.mkdir()
        frame.to_parquet(folder / "0.parquet", row_group_size=4)
        found = whole(folder)
        assert list(found) == columns
        expected = frame.reset_index(drop=frame.index.name is None)
        pd.testing.assert_frame_equal(found, expected)
        for name in columns:
            (alone,) = hm.Table(folder, inputs=[]).frames([name])
            pd.testing.assert_frame_equal(alone, expected[[name]])


@pytest.mark.parametrize(
    "notes",
    [
        *("{", "[]", "{}", '{"index_columns": 7}', '{"index_columns": ["none", null, 3]}'),
        '{"index_columns": [{"kind": "range", "name": "t"}]}',
        '{"index_columns": [{"kind": "range", "name": "y", "start": 0, "step": 1}]}',
    ],
)
def test_notes_of_pandas_that_make_no_sense_do_no_harm(tmp_path, notes):
    parquet(tmp_path, pa.table({"y": [1.0, 2.0]}).replace_schema_metadata({"pandas": notes}))
    assert whole(tmp_path).to_dict("list") == {"y": [1.0, 2.0]}


def test_lists_are_no_inputs_but_do_no_harm_beside_them(tmp_path):
    x = np.linspace(0, 3, 50)
    tags = [[1, 2]] * 50
    parquet(tmp_path, pa.table({"x": x, "tags": tags, "y": np.sin(x)}))
    options = {**OPTIONS, "max_iter": 2}
    model = hm.HetMOGP({"y": hm.Gaussian()}, **options).fit(hm.Table(tmp_path, inputs=["x"]))
    assert model.n_observed_ == {"y": 50}
    with pytest.raises(ValueError, match=r"column 'tags' holds .* such as array\(\[1, 2\]\)"):
        hm.HetMOGP({"y": hm.Gaussian()}, **options).fit(hm.Table(tmp_path, inputs=["tags"]))


# -- labels that look like numbers -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_that_look_like_numbers_are_the_same_from_a_folder(tmp_path, kind):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.uniform(0, 3, 90), "plot": [1.0, 2.0, 3.0] * 30})
    frame["y"] = np.sin(frame["x"]) + frame["plot"]
    if kind == "csv":
        frame.astype({"plot": int})[:40].to_csv(tmp_path / "0.csv", index=False)
        frame.astype({"plot": int})[40:].to_csv(tmp_path / "1.csv", index=False)
    else:
        parquet(tmp_path, frame[:40], frame[40:].astype({"plot": int}))
    table = hm.Table(tmp_path, inputs=["x", "plot"], text=["plot", "no such column"])
    assert table.whole()["plot"].tolist() == ["1", "2", "3"] * 30
    model = hm.HetMOGP({"y": hm.Gaussian()}, **{**OPTIONS, "max_iter": 5}).fit(table)
    assert model.columns_[1].levels == ("1", "2", "3")
    text = frame.assign(plot=frame["plot"].astype(int).astype(str))
    assert model.nlpd(table) == pytest.approx(model.nlpd(text[["x", "plot"]], text))
    out = model.predict(table, out=tmp_path.with_suffix(".parquet"))
    assert pd.read_parquet(out)["plot"].tolist() == ["1", "2", "3"] * 30


def test_what_processes_tell_each_other_of_a_sample_is_plain(tmp_path, monkeypatch):
    """Frames that survive Arrow, and whole numbers that survive JSON."""
    text = "x,yes,word,none\n1,True,a,\n2,,NA,\n3,False,b,\n"
    (tmp_path / "t.csv").write_text(text * 1 + text.split("\n", 1)[1] * 9)
    table = hm.Table(tmp_path, inputs=["x"])
    said = overheard(monkeypatch)
    sample = table.sample(table.columns, seed=0)
    agreed, (frame, values) = said
    assert json.loads(json.dumps([agreed, values])) == [agreed, values]
    assert values == {"x": 30, "yes": 20, "word": 20, "none": 0} == sample.values
    again = pa.Table.from_pandas(frame).to_pandas()
    pd.testing.assert_frame_equal(again, frame)
    monkeypatch.setattr(distributed, "gathered", lambda mine: [mine, (pd.DataFrame(), values)])
    monkeypatch.setattr(table, "agree", lambda: None)
    assert (table.sample(table.columns, seed=0).rows.dtypes == frame.dtypes).all()


# -- files that are there, or not ------------------------------------------------------------------


def test_a_folder_may_hold_text_of_all_kinds(tmp_path):
    (tmp_path / "0.csv").write_text("x;y\n1;2,5\n")
    (tmp_path / "1.TSV").write_text("y\tx\n3\t4\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"x,y\n5,6\n"))
    (tmp_path / "README.txt").write_text("what this is")
    (tmp_path / "folder.csv").mkdir()
    for hidden in (".ipynb_checkpoints", "_old"):
        (tmp_path / hidden / "deeper").mkdir(parents=True)
        (tmp_path / hidden / "deeper" / "0.csv").write_text("x;y\n7;8\n")
    assert whole(tmp_path)["x"].tolist() == [1, 4, 5]
    twice = [tmp_path / "0.csv", tmp_path / "folder.csv" / ".." / "0.csv"]
    with pytest.raises(ValueError, match=r"0\.csv is listed 2 times"):
        hm.Table(twice, inputs=["x"])
    with pytest.raises(FileNotFoundError, match="an empty list"):
        hm.Table([], inputs=["x"])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        hm.Table([tmp_path / "none.parquet"], inputs=["x"])
    with pytest.raises(ValueError, match="has no column 'z'"):
        next(hm.Table(tmp_path, inputs=["x"]).frames(["z"]))


def test_a_full_disk_names_the_predictions(model, folder, tmp_path):
    out = tmp_path / "predicted.parquet"
    table = hm.Table(folder, inputs=["x"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"predicted\.parquet"):
            model.predict(table, out=out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_goes_or_changes_is_told(small, tmp_path):
    frame = rows(500)
    written(tmp_path, frame, (250, 250), 50)
    (tmp_path / ".7.partial.2.parquet").write_bytes(b"unfinished")
    table = hm.Table(tmp_path, inputs=["x"])
    kept = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(kept[: len(kept) // 2])
    with pytest.raises(OSError, match=r"1\.parquet"):
        hm.HetMOGP(LIKELIHOODS, **OPTIONS).fit(table)
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(OSError, match=r"1\.parquet"):
        hm.HetMOGP(LIKELIHOODS, **OPTIONS).fit(table)


@pytest.mark.parametrize(
    ("source", "inputs", "match"),
    [
        ("nothing/*.parquet", ["x"], "not a file, folder or pattern"),
        ("*.parquet", ["y"], "no column 'y'"),
        ("*", ["x"], "files of one kind"),
    ],
)
def test_tables_that_make_no_sense_are_refused(tmp_path, monkeypatch, source, inputs, match):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, rows(20), (20,), 20)
    (tmp_path / "notes.txt").touch()
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        hm.Table(source, inputs=inputs)


def test_a_table_without_rows_is_refused(tmp_path):
    rows(1)[:0].to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="has no rows"):
        hm.Table(tmp_path, inputs=["x"])


def test_wrong_uses_are_told(folder):
    table = hm.Table(folder, inputs=["x"])
    with pytest.raises(TypeError, match="leave Y out"):
        hm.HetMOGP(LIKELIHOODS).fit(table, [1.0])
    with pytest.raises(TypeError, match="a Table"):
        hm.HetMOGP(LIKELIHOODS).fit([1.0])
    with pytest.raises(ValueError, match="all rows in memory"):
        hm.HetMOGP(LIKELIHOODS, method="vem").fit(table)


def test_an_output_that_the_sample_missed_is_said_to_be_rare(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SAMPLE", 20)
    frame = rows(2000)
    frame["a"] = np.where(np.arange(2000) < 4, 1.0, np.nan)
    table = hm.Table(written(tmp_path, frame, [2000], 500), inputs=["x"])
    with pytest.raises(ValueError, match="'a' has 4 observed values in the table, none of them in"):
        hm.HetMOGP(LIKELIHOODS, **OPTIONS).fit(table)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_epoch_that_ends_in_a_batch_not_full_is_fine_with_any_likelihood(small, tmp_path, dtype):
    """Where there is no row a gradient at zero, which is infinite for some, must not be taken."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.uniform(0, 3, 130), "y": rng.gamma(2.0, 1.0, 130)})
    table = hm.Table(written(tmp_path, frame, (130,), 40), inputs=["x"], lanes=2)
    model = hm.HetMOGP(
        {"y": hm.Gamma()}, latents=1, inducing=5, batch_size=50, max_iter=9, dtype=dtype,
        progress=False,
    ).fit(table)  # fmt: skip
    assert np.isfinite(model.elbo_)
    assert model.fitted.record.jitter == JITTER[dtype], "no step had to be taken again"
    assert model.weights_.dtype == np.dtype(dtype)


def test_a_bad_value_is_named_by_its_file_and_row(small, model, tmp_path):
    frame = rows(300)
    frame.loc[217, "b"] = 3.0
    written(tmp_path, frame, (100, 200), 30)
    table = hm.Table(tmp_path, inputs=["x"])
    place = r"1\.parquet, from row 90 on: output 'b', row 27: 3 is not"
    with pytest.raises(ValueError, match=place):
        model.nlpd(table)
