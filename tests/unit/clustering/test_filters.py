"""Which columns can have Bloom filters, and what is said of those that cannot."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from liquidlog.clustering.columns import filtered_leaves
from liquidlog.errors import UsageError
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.table import Table

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


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    properties = {"delta.columnMapping.mode": "name"}
    path = tmp_path_factory.mktemp("t")
    return Table.create(path, schema=SCHEMA, cluster_by="id", properties=properties)


def test_columns_are_found_in_the_spelling_of_the_schema(table: Table) -> None:
    found = filtered_leaves(
        table.snapshot().schema, [("name",), ("PART", "code"), ("price",), ("ID",)]
    )
    assert [leaf.logical for leaf in found] == [("Name",), ("part", "code"), ("price",), ("id",)]
    plan = table.plan(bloom_filter=["name", "part.code"])
    assert plan.policy.bloom_filter == (("name",), ("part", "code"))
    assert plan.writer_options.bloom_filters == tuple(leaf.physical for leaf in found[:2])


REFUSED: dict[str | tuple[str, ...], Sequence[str]] = {
    "nope": ["there is no column nope; the columns are id, Name"],
    "nam": ["there is no column nam; did you mean Name?"],
    "flag": ["flag is of type boolean; a Bloom filter is for whole numbers"],
    "rate": ["rate is of type double, where 0.0 and -0.0 are equal"],
    "part": ["part is a struct; name one of its fields: part.code, part.tags"],
    "tags": ["tags is of type map<string,integer>"],
    "part.tags.x": ["part.tags.x lies inside part.tags, an array of many"],
    ("id", "ID"): ["id is named more than once"],
    ("flag", "nope", "rate"): ["flag is", "there is no column nope", "rate is"],
    "": [],
}


def test_other_columns_are_refused(table: Table) -> None:
    for columns, problems in REFUSED.items():
        with pytest.raises(UsageError) as caught:
            table.plan(bloom_filter=columns)
        assert caught.value.fields.get("option", "bloom_filter") == "bloom_filter"
        assert all(problem in caught.value.message for problem in problems), caught.value.message


def test_collated_columns_are_refused() -> None:
    collation = {"__COLLATIONS": {"Name": "icu.UNICODE_CI"}}
    schema = StructType((StructField("Name", PrimitiveType("string"), metadata=collation),))
    with pytest.raises(UsageError, match="Name is a collated string"):
        filtered_leaves(schema, [("Name",)])
