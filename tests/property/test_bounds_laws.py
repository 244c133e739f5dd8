"""The columnar reader of statistics gives what the exact reader gives, file by file."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.spec import bounds
from liquidlog.spec.bounds import exact_bounds
from liquidlog.spec.schema import DecimalType, Leaf, PrimitiveType, StructField, StructType, leaves
from support.plain_bounds import plain_bounds

NAMES = [
    "byte", "short", "integer", "long", "float", "double",
    "date", "timestamp", "timestamp_ntz", "string", "boolean",
]  # fmt: skip
SCHEMA = StructType(
    (
        *(StructField(name, PrimitiveType(name)) for name in NAMES),
        StructField("money", DecimalType(7, 2)),
        StructField("wide", DecimalType(38, 18)),
        StructField("s", StructType((StructField("i.n", PrimitiveType("long")),))),
    )
)
COLUMNS = list(leaves(SCHEMA))

RAW_VALUES = st.sampled_from(
    [
        "0", "-0", "1", "-1", "127", "128", "300", "32768", "2147483648", "9007199254740993",
        "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.0", "1.5", "-0.0",
        "1e3", "1E+2", "0.1", "1.1e-7", "1e400", "12345.67", "12345.678", "123456.7", "0.005",
        "99999999999999999999.999999999999999999", "0.000000000000000001", "0E-18", "1e-19",
        "null", "true", "false", "[]", "{}", "[1]", '{"i.n":3}', '{"i.n":null}',
        '"NaN"', '"Infinity"', '"-Infinity"', '"5"', '"1.5"', '""', '" 5"',
        '"2020-01-01"', '"0001-01-01"', '"9999-12-31"', '"+12020-01-01"', '"2020-02-30"',
        '"-0044-03-15"', '"2020-01-01T00:00:00.000Z"', '"2020-01-01T00:00:00.123456Z"',
        '"2020-01-01T00:00:00.000-08:00"', '"2020-01-01T00:00:00.000+05:30"',
        '"2020-01-01T00:00:00.123"', '"2020-01-01 00:00:00"', '"1500-01-01T00:00:00.000Z"',
        '"294247-01-10T04:00:54.775Z"', '"9999-12-31T23:59:59.999Z"', '"abc"',
        '"\\u00e9\\ud83c\\udf88"', '"é🎈"', '"\\""', '"a\\\\b"', '"\\n"', '"\\u0000"', '"\\ud800"',
    ]
)  # fmt: skip


@st.composite
def sections(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from([field.name for field in SCHEMA.fields]), max_size=4))
    return (
        "{"
        + ",".join(f"{json.dumps(name)}:{draw(RAW_VALUES)}" for name in dict.fromkeys(names))
        + "}"
    )


@st.composite
def documents(draw: st.DrawFn) -> str:
    parts = []
    for name in ("numRecords", "minValues", "maxValues", "nullCount", "tightBounds"):
        if draw(st.booleans()):
            value = (
                draw(RAW_VALUES) if name[0] in "nt" and name != "nullCount" else draw(sections())
            )
            parts.append(f'"{name}":{value}')
    return "{" + ",".join(parts) + "}"


def one(leaf: Leaf, section: str, value: str) -> str:
    nested = value
    for part in reversed(leaf.physical):
        nested = f"{{{json.dumps(part)}:{nested}}}"
    return f'{{"numRecords":3,"{section}":{nested}}}'


FILES = st.one_of(
    documents(),
    st.builds(
        one,
        st.sampled_from(COLUMNS),
        st.sampled_from(["minValues", "maxValues", "nullCount"]),
        RAW_VALUES,
    ),
    st.none(),
    st.sampled_from(
        ["", "{}", "{", "[]", "3", " {} ", "{} {}", "{}\n{}", '{\n"numRecords":2\n}', "null"]
    ),
)


def expected(files: list[str | None]) -> list[dict[str, Any]]:
    found = (exact_bounds(pa.array([file], pa.string()), COLUMNS) for file in files)
    return [plain_bounds(one)[0] for one in found]


@given(st.lists(FILES, min_size=1, max_size=12))
def test_columns_are_those_of_the_exact_reader(files: list[str | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_FEW_FILES", 1)
        found = bounds.parse_bounds(pa.array(files, pa.string()), COLUMNS)
    assert repr(plain_bounds(found)) == repr(expected(files))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "Inf", "-Inf"])
def test_a_number_that_json_does_not_have_makes_the_document_malformed(word: str) -> None:
    files = [f'{{"numRecords":3,"minValues":{{"double":{word}}}}}'] * 100
    found = bounds.parse_bounds(pa.array(files), COLUMNS)
    assert found.num_records.null_count == found.low(5).null_count == 100
