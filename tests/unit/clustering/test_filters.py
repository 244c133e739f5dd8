"""Which columns can have Bloom filters, and what is said of those that cannot."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.clustering.columns import filtered_leaves
from liquidlog.errors import UsageError
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.arrow_executor import execute
from support.snapshots import snapshot_of
from support.table_rows import filters_in

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("Name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
        ("rate", pa.float64()),
        (
            "part",
            pa.struct([("code", pa.string()), ("tags", pa.list_(pa.struct([("x", pa.int8())])))]),
        ),
        ("tags", pa.map_(pa.string(), pa.int32())),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(
        str(tmp_path / "t"),
        schema=SCHEMA,
        cluster_by="id",
        properties={"delta.columnMapping.mode": "name"},
    )
    names = [sha256(str(row).encode()).hexdigest() for row in range(2_000)]
    rows = [{"id": row, "Name": name, "part": {"code": name[:1]}} for row, name in enumerate(names)]
    made.append(pa.Table.from_pylist(rows, SCHEMA))
    return made


def test_columns_are_found_in_the_spelling_of_the_schema(table: Table) -> None:
    snapshot = table.snapshot()
    found = filtered_leaves(snapshot.schema, [("name",), ("PART", "code"), ("price",), ("ID",)])
    assert [leaf.logical for leaf in found] == [("Name",), ("part", "code"), ("price",), ("id",)]
    plan = table.plan(bloom_filter=["name", "part.code"])
    assert plan.policy.bloom_filter == (("name",), ("part", "code"))
    assert plan.writer_options.bloom_filters == tuple(leaf.physical for leaf in found[:2])
    assert all(path[0].startswith("col-") for path in plan.writer_options.bloom_filters)


def test_rewritten_files_have_the_filters(table: Table) -> None:
    plan = table.plan(bloom_filter=["Name", "part.code"], full=True)
    table.commit(plan, execute(plan))
    (path,) = table.files()["path"].to_pylist()
    (found,) = filters_in(f"{table.uri}/{path}")
    assert found.keys() == {".".join(one) for one in plan.writer_options.bloom_filters}


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ("nope", ["there is no column nope; the columns are id, Name"]),
        ("nam", ["there is no column nam; did you mean Name?"]),
        ("flag", ["flag is of type boolean; a Bloom filter is for whole numbers"]),
        ("rate", ["rate is of type double, where 0.0 and -0.0 are equal"]),
        ("part", ["part is a struct; name one of its fields: part.code, part.tags"]),
        ("tags", ["tags is of type map<string,integer>"]),
        ("part.tags.x", ["part.tags.x lies inside part.tags, an array of many"]),
        (["id", "ID"], ["id is named more than once"]),
        (["flag", "nope", "rate"], ["flag is", "there is no column nope", "rate is"]),
    ],
)
def test_other_columns_are_refused(
    table: Table, columns: str | Sequence[str], problems: Sequence[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        table.plan(bloom_filter=columns)
    assert caught.value.message.startswith("bloom_filter: ")
    assert all(problem in caught.value.message for problem in problems), caught.value.message
    assert caught.value.fields["option"] == "bloom_filter"


def test_collated_columns_are_refused() -> None:
    collation: dict[str, Any] = {"__COLLATIONS": {"Name": "icu.UNICODE_CI"}}
    schema = StructType((StructField("Name", PrimitiveType("string"), metadata=collation),))
    with pytest.raises(UsageError, match="Name is a collated string"):
        filtered_leaves(snapshot_of([], schema=schema).schema, [("Name",)])


def test_no_columns_are_a_mistake(table: Table) -> None:
    with pytest.raises(UsageError):
        table.plan(bloom_filter=[])
    with pytest.raises(UsageError):
        table.plan(bloom_filter="")
