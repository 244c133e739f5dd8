"""Advice on small tables: what is recommended, and when a table is best left alone."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from msgspec import structs

from liquidlog.advice import Advice, decode_advice, encode_advice
from liquidlog.errors import ClusteringColumnError, DocumentError, UsageError
from liquidlog.foresee.rows import rows_of
from liquidlog.log.loader import open_store
from liquidlog.predicates.workload import Recorded, WeightedPredicate, Workload
from liquidlog.spec.schema import leaves
from liquidlog.table import Table
from support.arrow_executor import execute
from support.deleted import commit_vectors, write_vector
from support.repository import ROOT

SIZE = 4096
ROWS = 1000
SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("twin", pa.int64()),
        ("kind", pa.string()),
        ("day", pa.date32()),
        ("at", pa.struct([("n", pa.int64())])),
        ("flag", pa.bool_()),
    ]
)


def rows(seed: int, count: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    x = random.integers(0, 100_000, count)
    day = np.datetime64("2026-01-01") + random.integers(0, 90, count)
    columns = [
        pa.array(x),
        pa.array(random.integers(0, 100_000, count)),
        pa.array(x + 3),
        pa.array(random.choice(["a", "b", "c"], count).tolist()),
        pa.array(day, pa.date32()),
        pa.StructArray.from_arrays([pa.array(random.integers(0, 1000, count))], names=["n"]),
        pa.array(random.integers(0, 2, count) == 1),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def appended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("appended") / "t"
    made = Table.create(path, schema=SCHEMA)
    for seed in range(12):
        made.append(rows(seed))
    return path


@pytest.fixture
def table(appended: Path, tmp_path: Path) -> Table:
    return Table.open(shutil.copytree(appended, tmp_path / "t"))


def asked(*wheres: str, times: bool = True) -> Workload:
    return tuple(
        WeightedPredicate(where, recorded=Recorded(last_ms=number) if times else None)
        for number, where in enumerate(wheres)
    )


def points(column: str, count: int = 30) -> Sequence[str]:
    return [f"{column} = {(number * 7919) % 100_000}" for number in range(count)]


def names(advice: Advice) -> list[str]:
    assert advice.best is not None
    return [".".join(path) for path in advice.best.candidate.columns]


def test_a_table_is_clustered_by_what_is_asked_for_as_predicted(table: Table) -> None:
    workload = asked(*(one for pair in zip(points("x"), points("y"), strict=True) for one in pair))
    advice = table.advise(workload, max_file_size=SIZE)
    assert advice.is_recommended
    assert names(advice) == ["x", "y"]
    assert advice.current.read_share > 0.9
    assert table.apply_advice(advice, dry_run=True) == (13, 14)
    assert table.snapshot().version == 12
    assert table.apply_advice(advice) == (13, 14)
    assert table.apply_advice(advice) == ()
    plan = table.plan(advice=decode_advice(encode_advice(advice), where="advice"))
    assert sum(group.expected_outputs for group in plan.groups) == advice.best.files  # type: ignore[union-attr]
    table.commit(plan, execute(plan))
    found = table.scan(workload=workload)
    # The executor of tests cuts files evenly; Spark's chooses where.
    predicted = (advice.best.read_share + advice.best.older_read_share) / 2  # type: ignore[union-attr]
    assert found.bytes_read / found.total_bytes == pytest.approx(predicted, rel=0.4)
    again = table.advise(workload, max_file_size=SIZE)
    assert not again.is_recommended


def test_the_printed_commands_plan_the_advised_layout(table: Table) -> None:
    workload = asked(
        *[f"kind = 'a' AND x BETWEEN {n * 900} AND {n * 900 + 500}" for n in range(40)]
    )
    advice = table.advise(workload, max_file_size=SIZE)
    best = advice.recommended
    assert best is not None
    assert advice.protocol_change is not None
    assert "clustering" in advice.protocol_change.added
    table.apply_advice(advice)
    plan = table.plan(full=True)
    if not best.candidate.is_fitted:
        assert advice.commands[-1] == f"liquidlog optimize {table.uri} --full"
    assert plan.policy.max_file_bytes == SIZE
    assert tuple(column.logical for column in plan.columns) == best.candidate.columns
    assert [best.candidate.columns[one] for one in plan.prefix] == list(best.candidate.prefix)
    assert plan.curve == best.candidate.curve.value


@pytest.mark.parametrize(
    "other",
    [lambda x: x + 3, lambda x: -x, lambda x: x // 500],
    ids=["shifted", "reversed", "coarser"],
)
def test_two_columns_of_one_order_are_not_advised_together(
    tmp_path: Path, other: Callable[[np.ndarray], np.ndarray]
) -> None:
    made = Table.create(tmp_path / "t", schema=SCHEMA)
    for seed in range(4):
        some = rows(seed)
        twin = pa.array(other(some["x"].to_numpy()))
        made.append(some.set_column(2, "twin", twin))
    twins = [one.replace("x", "twin") for one in points("x", 60)]
    advice = made.advise(asked(*points("x"), *twins, *points("y"), times=False), max_file_size=SIZE)
    sets = {frozenset(path[0] for path in one.candidate.columns) for one in advice.candidates}
    assert {"x"} in sets
    assert {"twin"} in sets
    assert {"x", "y"} in sets
    assert not any({"x", "twin"} <= some for some in sets)


def test_where_queries_drift_the_layout_serves_the_older_and_the_newest(table: Table) -> None:
    advice = table.advise(asked(*points("x", 70), *points("y", 30)), max_file_size=3 * SIZE)
    assert advice.is_recommended
    assert sorted(names(advice)) == ["x", "y"]
    assert advice.best is not None
    assert not advice.best.candidate.is_fitted
    assert max(advice.best.read_share, advice.best.older_read_share) < 0.5
    assert any("the best for older and newest queries together" in note for note in advice.notes)
    assert any("queries have changed" in note for note in advice.notes)


def test_queries_that_no_layout_helps_leave_the_table_alone(table: Table) -> None:
    for where in ("x IS NULL", "flag", "lower(kind) = 'a'"):
        advice = table.advise(asked(where), max_file_size=SIZE)
        assert not advice.is_recommended
        assert advice.reason


def test_only_named_columns_are_tried(table: Table) -> None:
    workload = asked(*points("x"), *points("y"), times=False)
    advice = table.advise(workload, columns="y", max_file_size=SIZE)
    assert names(advice) == ["y"]
    assert {one.candidate.columns for one in advice.candidates} == {(("y",),)}
    advice = table.advise(workload, max_columns=1, max_file_size=SIZE)
    assert len(names(advice)) == 1
    with pytest.raises(ClusteringColumnError, match="flag"):
        table.advise(workload, columns="flag")


def test_an_empty_table_and_one_file_are_left_alone(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    advice = made.advise(asked("x = 1"))
    assert (advice.is_recommended, advice.best) == (False, None)
    assert advice.document()["current"]["read_share"] == 0
    made.append(rows(0, 10))
    advice = made.advise(asked("x = 1"))
    assert not advice.is_recommended


def test_no_usable_predicate_is_an_error_and_some_are_set_aside(table: Table) -> None:
    with pytest.raises(UsageError, match="none of 2 predicates"):
        table.advise(asked("nope = 1", "neither = 2"))
    with pytest.raises(UsageError, match="no predicate"):
        table.advise(())
    advice = table.advise(asked("x = 1", "nope = 2"), max_file_size=SIZE)
    assert [one.where for one in advice.not_usable] == ["nope = 2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_columns": 5}, "at most 4"),
        ({"max_columns": 0}, "max_columns"),
        ({"min_gain": -1}, "min_gain"),
        ({"queries_per_day": 0}, "above 0"),
        ({"max_file_size": 1}, "at least"),
    ],
)
def test_wrong_ones_are_refused(table: Table, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table.advise(asked("x = 1"), **arguments)  # type: ignore[arg-type]


def test_a_high_bar_leaves_the_table_alone(table: Table) -> None:
    workload = asked(*points("x"))
    assert table.advise(workload, max_file_size=SIZE).is_recommended
    assert not table.advise(workload, max_file_size=SIZE, min_gain=1).is_recommended
    late = table.advise(workload, max_file_size=SIZE, payback_days=1e-6)
    assert "pay back only after" in late.reason


def test_rows_are_made_up_where_files_cannot_be_read(table: Table) -> None:
    path = table.snapshot().paths()[0].as_py()
    (Path(table.uri) / path).unlink()
    advice = table.advise(asked(*points("x")), max_file_size=SIZE)
    assert advice.sample == "statistics"
    assert any("made up from statistics" in note for note in advice.notes)
    assert names(advice) == ["x"]


def test_scans_are_held_against_what_was_observed(table: Table) -> None:
    total = table.snapshot().size_bytes
    seen = WeightedPredicate("x >= 0", 3, recorded=Recorded(last_ms=1, files=3, bytes=total))
    half = WeightedPredicate("y >= 0", 1, recorded=Recorded(last_ms=2, files=3, bytes=total // 2))
    found = table.advise((seen, half)).backtest
    assert (found.scans, found.median_error) == (4, 0.0)
    assert found.predicted_bytes == 4 * total
    assert found.scans_on_their_version == 0
    assert "the log does not tell" in found.notes[0]


def test_scans_are_predicted_on_the_files_that_the_table_had_then(table: Table) -> None:
    then, now = table.snapshot(11), table.snapshot()
    seen = [
        WeightedPredicate(
            "x >= 0", recorded=Recorded(last_ms=one.timestamp_ms, bytes=one.size_bytes)
        )
        for one in (then, now)
    ]
    found = table.advise(tuple(seen)).backtest
    if then.timestamp_ms != now.timestamp_ms:
        assert (found.median_error, found.scans_on_their_version) == (0.0, 2)


def test_advice_for_other_tables_or_columns_is_refused(table: Table, tmp_path: Path) -> None:
    advice = table.advise(asked(*points("x")), max_file_size=SIZE)
    saved = decode_advice(encode_advice(advice), where="advice")
    with pytest.raises(UsageError, match="not clustered; apply it first with cluster-by"):
        table.plan(advice=saved)
    table.cluster_by("y")
    with pytest.raises(UsageError, match="clustered by y; apply it first"):
        table.plan(advice=saved)
    other = Table.create(str(tmp_path / "other"), schema=SCHEMA)
    with pytest.raises(UsageError, match="the advice is for the table"):
        other.plan(advice=saved)
    with pytest.raises(UsageError, match="the advice is for the table"):
        other.apply_advice(advice)
    table.apply_advice(advice)
    with pytest.raises(UsageError, match="the advice determines max_file_size"):
        table.plan(advice=saved, max_file_size="1GiB")
    with pytest.raises(UsageError, match="recommends no other layout"):
        table.plan(advice=structs.replace(saved, recommended=None, fitted_to=None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "is not JSON"),
        ("{}", "is not advice"),
        ('{"kind": "liquidlog advice", "format_version": 99}', "of format 99"),
        ('{"kind": "liquidlog advice", "format_version": 1}', "is not advice as"),
    ],
)
def test_other_documents_are_refused(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        decode_advice(text.encode(), where="a.json")


def test_rows_of_a_partitioned_table_have_their_partitions_values(tmp_path: Path) -> None:
    uri = str(tmp_path / "parted")
    for seed in range(6):
        write_deltalake(uri, rows(seed).drop_columns(["at"]), partition_by=["kind"], mode="append")
    advice = Table.open(uri).advise(asked(*points("x")), max_file_size=SIZE)
    assert advice.is_recommended
    assert advice.commands == ()
    assert any("partitioned by kind" in note for note in advice.notes)
    wheres = [f"kind = 'a' AND x = {n * 997}" for n in range(30)]
    advice = Table.open(uri).advise(asked(*wheres), max_file_size=SIZE)
    assert advice.sample == "rows"
    assert {path for one in advice.candidates for path in one.candidate.columns} == {
        ("x",),
        ("kind",),
    }
    kinds = [one for one in advice.candidates if one.candidate.columns == (("kind",),)]
    assert min(one.read_share for one in kinds) == pytest.approx(1 / 3, abs=0.1)
    with pytest.raises(ClusteringColumnError, match="partitioned"):
        Table.open(uri).apply_advice(advice)


def test_deleted_rows_are_not_sampled(tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    table = Table.create(tmp_path, schema=SCHEMA, cluster_by=["x"], properties=properties)
    table.append(rows(0))
    (path,) = table.files()["path"].to_pylist()
    x = pq.read_table(tmp_path / path)["x"].to_numpy()
    gone = np.flatnonzero(x >= 50_000).tolist()
    vector = structs.replace(
        write_vector(tmp_path / "gone.bin", gone).descriptor,
        storage_type="p",
        path_or_inline_dv=(tmp_path / "gone.bin").as_uri(),
    )
    commit_vectors(tmp_path, {path: vector})
    snapshot = table.snapshot()
    read = rows_of(open_store(table.uri), snapshot, [next(leaves(snapshot.schema))], outputs=1)
    assert read.is_read
    (found,) = read.samples
    assert len(found) == int((x < 50_000).sum())
    assert pc.max(found.columns[0].values).as_py() < 50_000


def test_files_that_only_other_columns_would_join_are_no_gain_of_these(tmp_path: Path) -> None:
    """OPTIMIZE leaves files in order alone: two small ones stay two until the columns change."""
    table = Table.create(tmp_path / "t", schema=SCHEMA, cluster_by=["x"])
    table.append(rows(0))
    half = table.snapshot().size_bytes // 2
    table.optimize(executor="local", max_file_size=half)
    assert table.files().num_rows == 2
    advice = table.advise(asked(*points("x", 5), "kind = 'a'", "flag", "kind = 'b'"))
    assert not advice.is_recommended
    assert "a full rewrite by the present columns saves" in advice.reason


def test_a_table_z_ordered_by_others_is_clustered_by_asked_columns(table: Table) -> None:
    workload = asked(*points("y"))
    table.set_properties({"liquidlog.zorderBy": "x,day"})
    plan = table.plan(max_file_size=SIZE)
    table.commit(plan, execute(plan))
    advice = table.advise(workload, max_file_size=SIZE)
    assert advice.is_recommended
    assert names(advice) == ["y"]
    assert advice.current.read_share > 0.9
    assert advice.unset == ("liquidlog.zorderBy",)
    assert any("UNSET TBLPROPERTIES" in command for command in advice.commands)
    table.apply_advice(advice)
    assert not [one for one in table.doctor() if "zorderBy" in one.detail]


def test_a_table_that_delta_spark_partitioned_and_z_ordered_is_read_as_its_log_says() -> None:
    """Rows are made up from statistics: the log is all that there is of this table."""
    table = Table.open(str(ROOT / "fixtures" / "logs" / "24_partitioned_zorder" / "table"))
    files = table.snapshot().files
    sizes, places = files["size"].to_pylist(), files["partition_values_json"].to_pylist()
    share = sum(size for size, place in zip(sizes, places, strict=True) if '"p0"' in place)
    advice = table.advise(
        asked(*[f"p = 'p0' AND x >= 0 OR p = 'p0' AND {one}" for one in points("x")])
    )
    assert advice.sample == "statistics"
    assert advice.current.read_share == pytest.approx(share / sum(sizes))
    assert advice.commands == ()
    assert {path[0] for path in advice.columns} == {"p", "x"}
