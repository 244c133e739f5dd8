"""Tables remember the settings of their layout: every verb honours them, and says who decided."""

import hashlib
import json
import shlex
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from liquidlog.errors import SchemaChangeError, UsageError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.operations.advise import import_workload, read_workload
from liquidlog.operations.planning import explain_together
from liquidlog.plan import decode_plan, encode_plan
from liquidlog.report.jsonable import policy_document
from liquidlog.table import Table
from liquidlog.workload.queries import encode_queries
from support.arrow_executor import execute
from support.commands import call, said
from support.copies import set_elsewhere
from support.table_rows import filters_in

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64())])


def rows(seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table([chance.permutation(4096), chance.permutation(4096)], schema=SCHEMA)


def made(path: Path, columns: tuple[str, ...] = ("x", "y"), **properties: str) -> Table:
    """Return a table of two files; `liquidlog.` goes before the names of the properties."""
    named = {f"liquidlog.{name}": value for name, value in properties.items()}
    table = Table.create(path / "t", schema=SCHEMA, cluster_by=columns, properties=named)
    table.append(rows(0))
    table.append(rows(1))
    return table


def deciders(table: Table, **options: Any) -> dict[str, tuple[Any, str]]:
    """Return the settings of a plan that are not by default: value, and property or option."""
    found = policy_document(table.plan(**options))
    return {
        name: (one["value"], one.get("property", one["from"]))
        for name, one in found.items()
        if one["from"] != "default"
    }


def test_a_table_without_clustering_columns_is_ordered_by_what_it_remembers(tmp_path: Path) -> None:
    table = made(tmp_path, (), zorderBy="y, X", strategy="overlap", curve="kd")
    assert [column.logical for column in table.plan().columns] == [("y",), ("x",)]
    assert deciders(table) == {"zorder_by": ((("y",), ("X",)), "liquidlog.zorderBy")}
    # delta-rs can still write it, and keeps what the table remembers.
    write_deltalake(table.uri, rows(2), mode="append")
    DeltaTable(table.uri).alter.add_columns([Field("z", PrimitiveType("long"))])
    assert table.detail()["properties"]["liquidlog.zorderBy"] == "y, X"


def test_states_of_cubes_are_by_the_remembered_size(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = table.plan()
    table.commit(plan, execute(plan))
    assert table.cubes()["state"].to_pylist() == ["partial"]
    table.set_properties({"liquidlog.minCubeSize": "1KiB"})
    assert table.cubes()["state"].to_pylist() == ["stable"]
    assert table.files()["state"].to_pylist() == ["stable"]
    now, shown = table.health(), table.overview().health
    assert now.stable_cube_count == 1
    assert now.depth_ratio is not None
    assert shown == replace(now, measured_at=shown.measured_at if shown else None)
    assert table.health(min_cube_size="1GiB").stable_cube_count == 0
    assert table.plan().groups == ()
    # At an earlier version the table remembered nothing.
    assert deciders(table, version=3) == {}
    assert len(explain_together(table.plan(), examples=3)) == 1


WRONG = {
    "liquidlog.strategy": "fast",
    "liquidlog.curve": "kdd",
    "liquidlog.minCubeSize": "big",
    "liquidlog.targetCubeSize": "-1",
    "liquidlog.maxFileSize": "12",
    "delta.targetFileSize": "0",
    "liquidlog.tolerance": "0.5",
    "liquidlog.zorderBy": "z",
}


def test_wrong_values_are_not_set(tmp_path: Path) -> None:
    table = made(tmp_path)
    for name, value in WRONG.items():
        with pytest.raises(SchemaChangeError) as refused:
            table.set_properties({name.upper() if name.startswith("delta") else name: value})
        (reason,) = refused.value.reasons
        assert (reason.kind, reason.property) == (Kind.PROPERTY_VALUE, name)
        for source in ({"schema": SCHEMA}, {"like": table}):
            with pytest.raises(UsageError, match=name):
                Table.create(tmp_path / "new", properties={name: value}, **source)
    assert not (tmp_path / "new").exists()
    assert table.snapshot().version == 2


def test_unknown_names_are_not_set_and_near_ones_are_told(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(SchemaChangeError, match=r"liquidlog\.maxFileSize") as refused:
        table.set_properties({"liquidlog.maxFilesSize": "1GiB"})
    assert refused.value.reasons[0].kind is Kind.PROPERTY_UNKNOWN
    with pytest.raises(UsageError, match=r"liquidlog\.curve"):
        Table.create(tmp_path / "new", schema=SCHEMA, properties={"liquidlog.curv": "kd"})


def test_unknown_names_of_other_engines_are_noted_and_can_be_removed(tmp_path: Path) -> None:
    table = made(tmp_path)
    set_elsewhere(table, {"liquidlog.later": "1", "liquidlog.Curve": "kd"})
    plan = table.plan()
    assert plan.policy.curve == "hilbert"
    assert [note.split()[3] for note in plan.notes] == ["liquidlog.later", "liquidlog.Curve"]
    assert "liquidlog.curve?" in plan.notes[1]
    assert call("plan", table.uri)[1]["notes"] == list(plan.notes)
    assert plan.notes[1] in said("plan", table.uri)[1]
    assert call("detail", table.uri)[1]["layoutNotes"] == list(plan.notes)
    found = [one for one in table.doctor() if one.name == "unknown-property"]
    assert len(found) == 2
    for one in found:
        assert one.command is not None
        assert call(*shlex.split(one.command)[1:])[0] == 0
    assert [one for one in table.doctor() if one.name == "unknown-property"] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_only_where_it_is_needed(name: str, tmp_path: Path) -> None:
    columns = () if name == "liquidlog.zorderBy" else ("x", "y")
    table = made(tmp_path, columns)
    also = {"liquidlog.strategy": "overlap"} if name == "liquidlog.tolerance" else {}
    set_elsewhere(table, {name: WRONG[name], **also})
    for verb in ("plan", "optimize"):
        status, _, error = call(verb, table.uri, *(("--dry-run",) if verb == "optimize" else ()))
        assert (status, error["error"]["property"]) == (2, name)
        assert error["error"]["value"] == WRONG[name]
        assert f'UNSET TBLPROPERTIES ("{name}")' in error["error"]["message"]
    needs_size = name == "liquidlog.minCubeSize"
    for verb in ("health", "files"):
        assert (call(verb, table.uri)[0] == 2) == needs_size
    for verb in ("detail", "history", "doctor", "checkpoint"):
        assert call(verb, table.uri)[0] == 0
    assert call("report", table.uri, "-o", str(tmp_path / "page.html"))[0] == 0
    table.append(rows(3))
    (finding,) = (one for one in table.doctor() if one.name == "wrong-property")
    assert name in finding.detail
    (note,) = table.detail()["layoutNotes"]
    assert repr(WRONG[name]) in note
    options: dict[str, dict[str, Any]] = {
        "liquidlog.zorderBy": {"zorder_by": "x"},
        "liquidlog.tolerance": {"tolerance": 1.5},
        "liquidlog.strategy": {"strategy": "cube"},
        "liquidlog.curve": {"curve": "kd"},
        "liquidlog.minCubeSize": {"min_cube_size": "1GiB"},
        "liquidlog.targetCubeSize": {"target_cube_size": "200GiB"},
    }
    assert table.plan(**options.get(name, {"max_file_size": "1MiB"})).groups
    assert finding.command is not None
    assert call(*shlex.split(finding.command)[1:])[0] == 0
    assert table.plan() is not None


@pytest.mark.parametrize(("name", "value"), [("curve", "kdd"), ("bloomFilter", "x, z")])
def test_a_wrong_value_is_refused_before_a_read(tmp_path: Path, name: str, value: str) -> None:
    table = made(tmp_path)
    set_elsewhere(table, {f"liquidlog.{name}": value})
    with pytest.raises(UsageError, match=rf"liquidlog\.{name}"):
        table.append("no such file", cluster=name == "curve")
    assert len([*Path(table.uri).glob("*.parquet")]) == 2


def test_plans_say_who_decided(tmp_path: Path) -> None:
    table = made(tmp_path, curve="kd")
    printed = call("plan", table.uri, "--max-file-size", "1MiB")[1]["policy"]
    assert printed["curve"] == {"value": "kd", "from": "property", "property": "liquidlog.curve"}
    assert printed["max_file_bytes"] == {"value": 1 << 20, "from": "option"}
    assert printed["strategy"] == {"value": "cube", "from": "default"}
    line = "settings: max_file_size 1.0 MiB (option), curve kd (liquidlog.curve)"
    assert line in said("plan", table.uri, "--max-file-size", "1MiB")[1]
    table.set_properties({"delta.parquet.compression.codec": "snappy"})
    assert deciders(table)["compression"] == ("snappy", "delta.parquet.compression.codec")
    assert deciders(table, compression="zstd")["compression"] == ("zstd", "option")


def test_saved_plans_have_values_and_those_of_earlier_releases_are_read(tmp_path: Path) -> None:
    plan = made(tmp_path, curve="kd").plan(max_file_size="1MiB")
    document = json.loads(encode_plan(plan))
    assert document["decided_by"] == {"curve": "liquidlog.curve", "max_file_bytes": "option"}
    del document["decided_by"], document["notes"]
    earlier = decode_plan(json.dumps(document).encode(), where="p.json")
    assert earlier.policy == plan.policy
    found = policy_document(earlier)
    assert found["curve"] == {"value": "kd", "from": "option"}
    assert found["full"]["from"] == found["strategy"]["from"] == "default"


def test_remembered_columns_follow_a_rename_and_are_not_dropped(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    schema = pa.schema([("x", pa.int64()), ("p", inner), ("z", pa.int64())])
    properties = {"delta.columnMapping.mode": "name", "liquidlog.zorderBy": "P.a, x"}
    table = Table.create(tmp_path / "t", schema=schema, properties=properties)
    table.rename_column("p", "q r")
    assert table.detail()["properties"]["liquidlog.zorderBy"] == "`q r`.a,x"
    table.rename_column("z", "w")
    table.rename_column("`q r`.a", "c")
    assert table.detail()["properties"]["liquidlog.zorderBy"] == "`q r`.c,x"
    assert [column.logical for column in table.plan().columns] == [("q r", "c"), ("x",)]
    for name in ("x", "`q r`.c", "`q r`"):
        with pytest.raises(SchemaChangeError) as refused:
            table.drop_column(name)
        assert [(one.kind, one.property) for one in refused.value.reasons] == [
            (Kind.COLUMN_IS_USED, "liquidlog.zorderBy")
        ]
    table.drop_column("w")
    set_elsewhere(table, {"liquidlog.zorderBy": "`x"})
    table.rename_column("x", "y")  # what is no list of columns stays as it is
    assert table.detail()["properties"]["liquidlog.zorderBy"] == "`x"


# Properties that name columns: Bloom filters of every file, a prefix, weights of columns.


def test_remembered_filters_are_in_every_file_and_follow_a_rename(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    properties = {"delta.columnMapping.mode": "name", "liquidlog.bloomFilter": "S"}
    table = Table.create(tmp_path / "t", schema=schema, properties=properties)
    table.rename_column("s", "name")
    assert table.detail()["properties"]["liquidlog.bloomFilter"] == "name"
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(5000)]
    table.append(pa.table({"x": pa.array(range(5000)), "name": names}))
    (path,) = table.files()["path"].to_pylist()
    (found,) = filters_in(str(tmp_path / "t" / path))
    (named,) = table.plan().writer_options.bloom_filters
    assert found.keys() == {*named}
    with pytest.raises(SchemaChangeError):
        table.drop_column("name")


def test_a_prefix_and_weights_are_in_plans_and_follow_a_rename(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
    properties = {
        "delta.columnMapping.mode": "name",
        "liquidlog.prefix": "A",
        "liquidlog.weights": "b=3, A=1",
    }
    table = Table.create(
        tmp_path / "t", schema=schema, properties=properties, cluster_by=["a", "b"]
    )
    planned = table.plan()
    assert planned.policy.prefix == (("a",),)
    assert planned.decided_by["prefix"] == "liquidlog.prefix"
    assert planned.readers is not None
    assert planned.readers.column_weights == (0.25, 0.75)
    assert table.plan(prefix="b").policy.prefix == (("b",),)
    table.rename_column("a", "the = one")
    remembered = table.detail()["properties"]
    assert remembered["liquidlog.prefix"] == "`the = one`"
    assert remembered["liquidlog.weights"] == "b=3,`the = one`=1"
    again = table.plan().readers
    assert again is not None
    assert again.column_weights == (0.25, 0.75)
    table.rename_column("c", "d")
    assert table.detail()["layout"]["weights"]["value"] == ["b=3", "`the = one`=1"]
    table.cluster_by(["b", "d"])
    with pytest.raises(UsageError, match=r"liquidlog\.prefix"):
        table.plan()
    with pytest.raises(UsageError, match=r"liquidlog\.weights"):
        table.plan(prefix="d")


def test_wrong_weights_are_not_set(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("a", pa.int64())]), cluster_by="a")
    for value in ("", "a", "a=", "a=x", "a=-1", "a=0", "a=1,", "a=1,a=2", "z=1"):
        with pytest.raises(UsageError, match=r"liquidlog\.weights"):
            table.set_properties({"liquidlog.weights": value})
    set_elsewhere(table, {"liquidlog.weights": "a=0"})
    with pytest.raises(UsageError, match=r"liquidlog\.weights"):
        table.plan()


# Redacted workloads: values that stand in for constants, and what nothing can stand in for.


ROWS = 4000


def rows_redacted(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    x = np.sort(random.integers(0, 100_000, ROWS)) // 4 + 25_000 * seed
    columns = {
        "x": (x, pa.int64()),
        "day": ((x // 100).astype(np.int32), pa.date32()),
        "at": (x * 1_000_000, pa.timestamp("us", "UTC")),
        "local": (x * 1_000_000, pa.timestamp("us")),
        "name": ([f"n{one:06}" if one % 5 else f"n{one:06}'s" for one in x], pa.string()),
        "f": (x / 4, pa.float64()),
        "price": ([Decimal(int(number) % 1000) for number in x], pa.decimal128(10, 2)),
        "flag": (x % 2 == 0, pa.bool_()),
        "s": ([{"n": int(number)} for number in x], pa.struct([("n", pa.int32())])),
    }
    arrays = [
        pa.array(values).cast(kind) if pa.types.is_temporal(kind) else pa.array(values, kind)
        for values, kind in columns.values()
    ]
    return pa.table(arrays, names=list(columns))


@pytest.fixture(scope="module")
def made_redacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("redacted") / "t"
    made = Table.create(path, schema=rows_redacted(0).schema)
    for seed in range(4):
        made.append(rows_redacted(seed))
    return path


@pytest.fixture
def table(made_redacted: Path, tmp_path: Path) -> Table:
    return Table.open(shutil.copytree(made_redacted, tmp_path / "t"))


def redacted(table: Table, tmp_path: Path, *wheres: str) -> str:
    sql = tmp_path / "queries.sql"
    sql.write_text("".join(f"SELECT * FROM `{table.uri}` WHERE {one};\n" for one in wheres))
    found = import_workload([str(sql)], tables=[table.uri], without_constants=True)
    path = tmp_path / "redacted.jsonl"
    path.write_bytes(encode_queries(found.queries))
    return str(path)


@pytest.mark.parametrize(
    "where",
    [
        "x = {}",
        "x IN ({}, {})",
        "day = DATE '2001-02-0{}'",
        "at = TIMESTAMP '2001-02-0{} 00:00:00Z'",
        "local <=> TIMESTAMP_NTZ '2001-02-0{} 00:00:00'",
        "name = 'n{}'",
        "f = {}.5",
        "price = {}.25",
        "s.n = {}",
        "{} = x AND flag",
        "x = {} AND name <> 'z'",
    ],
)
def test_a_value_of_the_table_stands_in_for_the_one_value_of_a_column(
    table: Table, tmp_path: Path, where: str
) -> None:
    path = redacted(table, tmp_path, *(where.replace("{}", str(n)) for n in range(1, 9)))
    workload = read_workload(path, table=table.uri)
    assert len(workload) == 8
    assert all(one.problem is None and one.has_stand_ins for one in workload)
    assert all("/* :q" in one.where for one in workload)
    found = table.scan(workload=workload)
    assert found.not_usable == ()
    # Values lie in one file each, or in two if there are two; and in all files, by turns.
    if not where.startswith(("price", "{}", "x IN")):
        assert [one.files for one in found.predicates] == [1] * 8
        assert found.files.num_rows == 4


@pytest.mark.parametrize(
    "where", ["x >= {}", "x BETWEEN {} AND 9", "name LIKE 'a{}%'", "x % {} = 0"]
)
def test_only_the_order_of_other_constants_is_known_and_that_is_said(
    table: Table, tmp_path: Path, where: str
) -> None:
    usable = "x = 1"
    path = redacted(table, tmp_path, usable, *(where.replace("{}", str(n)) for n in range(2, 5)))
    workload = read_workload(path, table=table.uri)
    found = table.scan(workload=workload)
    assert len(found.predicates) == 1
    assert len(found.not_usable) == len(workload) - 1
    for one in found.not_usable:
        assert "tells only the order of constants" in one.reason
        assert "without --redact" in one.reason
    alone = redacted(table, tmp_path, where.replace("{}", "3"))
    with pytest.raises(UsageError, match="import the workload without --redact"):
        table.scan(workload=read_workload(alone, table=table.uri))
