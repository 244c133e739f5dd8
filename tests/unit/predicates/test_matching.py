import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.predicates.literals import Session
from liquidlog.predicates.matching import every_row_matches, may_match
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from support.one_file import matches
from support.snapshots import FileSpec, bounds_of, snapshot_of, with_files


@pytest.mark.parametrize(
    "predicate",
    [
        "i = 6",
        "6 = i",
        "i < 1",
        "1 > i",
        "i > 5",
        "i >= 5.5",
        "i BETWEEN 6 AND 9",
        "i IN (6, 7, NULL)",
        "i IN (NULL)",
        "i <=> 9",
        "NULL <=> i",
        "i IS NOT DISTINCT FROM 6",
        "NOT (i IS DISTINCT FROM 6)",
        "CAST(i AS BIGINT) = 9",
        "CAST((i) AS BIGINT) IN (9, 10)",
        "i IS NULL",
        "NOT i IS NOT NULL",
        "NOT i <= 5",
        "i NOT BETWEEN 1 AND 5",
        "i = '7'",
        "i = NULL",
        "i > 99999999999999999999",
        "i = 3 AND i = 9",
        "i = 8 OR i = 9",
        "NOT (i < 9 OR flag)",
        "FALSE",
        "NULL",
        "f > 1.5000001",
        "f = -1",
        "n > 2.50",
        "s < 'bar'",
        's > "foo"',
        "s IN ('fop', 'z')",
        "s LIKE 'z%'",
        "s LIKE 'a%'",
        "s LIKE 'ba%' AND i = 9",
        "s LIKE 'baa'",
        "s LIKE 'foo2%bar'",
        "startswith(s, 'fop')",
        "s LIKE 'z_%'",
        "s LIKE 'a%b%c'",
        "s <=> 'zzz'",
        "d = '2024-02-01'",
        "d > DATE '2024-01-31'",
        "CAST('2023-12-31' AS DATE) >= d",
        "t > '2024-01-01 12:00:01Z'",
        "t > '2024-01-02 06:00:00.001'",
        "t > TIMESTAMP '2024-01-01T14:00:01+02:00'",
        "t < DATE '2023-12-31'",
        "z < '2024-01-01 00:00:00'",
        "`a.b` <> 1",
        "`A.B` != 1",
        "NOT `a.b` = 1",
        "f(i) = 1 AND i = 9",
    ],
)
def test_files_without_a_matching_row_are_ruled_out(predicate: str) -> None:
    assert matches(predicate) == [False]


@pytest.mark.parametrize(
    "predicate",
    [
        "i = 1",
        "i = 5",
        "i <> 3",
        "i = 2.5",
        "i >= 4.5",
        "i < 1e3",
        "i IS NOT NULL",
        "NOT i = 3",
        "NOT i IN (1, 5)",
        "TRUE",
        "n >= 2.5",
        "n < 1.2500000000000000000001",
        "t <= '2024-01-01'",
        "t >= '2024-01-01 12:00:00.0005'",
        # Not decided by statistics, or not understood.
        "flag",
        "flag IS NULL",
        "c = 'a'",
        "i = f",
        "f(i) = 1",
        "i + 1 = 90",
        # As the reference engine: the span of the list counts, and NOT IN never does.
        "i IN (0, 7)",
        "i NOT IN (1, 2, 3, 4, 5)",
        "s LIKE 'f%'",
        "s LIKE 'baz%'",
        "s LIKE '%z'",
        "s LIKE '%'",
        "s NOT LIKE 'bar%'",
        "s NOT LIKE 'z%'",
        "s ILIKE 'Z%'",
        "NOT s LIKE 'z%'",
        "c LIKE 'z%'",
        "NOT i <=> 9",
        "i <=> st.x",
        "i <=> 3",
        "CAST(i AS SMALLINT) = 9",
        "CAST(i AS STRING) = '9'",
        "i BETWEEN SYMMETRIC 9 AND 2",
        "i = 9 AND st.x = 1",
        "s > 90",
        "d > '2024-2-30'",
        "d > TIMESTAMP '2030-01-01 00:00:00'",
        "z > '2030-01-01 00:00:00Z'",
        "st.x = 4",
        "st IS NULL",
        "i IN (SELECT 9)",
        "f = 1e400",
    ],
)
def test_files_that_may_match_stay(predicate: str) -> None:
    assert matches(predicate) == [True]


def test_files_without_statistics_always_stay() -> None:
    assert matches("i > 100 AND s = 'x'", FileSpec(path="1", rows=None)) == [True]
    assert matches("i > 100", FileSpec(path="1", bounds={"s": ("a", "b")})) == [True]


def test_a_column_of_nulls_matches_is_null_only() -> None:
    nulls = FileSpec(path="1", nulls={"i": 10})
    assert matches("i IS NULL", nulls) == [True]
    assert matches("i IS NOT NULL", nulls) == [False]
    assert matches("i = 1", nulls) == [False]
    assert matches("NOT i = 1", nulls) == [False]


def test_nan_counts_as_the_largest_number() -> None:
    file = FileSpec(path="1", bounds={"f": (1.0, "NaN")})
    assert matches("f > 1e300", file) == [True]
    assert matches("f < 1", file) == [False]
    assert matches("f >= 1", file) == [True]


def test_answers_are_in_the_files_order() -> None:
    files = [FileSpec(path=str(n), bounds={"i": (10 * n, 10 * n + 9)}) for n in range(3)]
    assert matches("i BETWEEN 15 AND 20", *files) == [False, True, True]


@pytest.mark.parametrize(
    "predicate",
    ["", "i = ", "i = 1; i = 2", "SELECT 1", "'open", "nope = 1", "f(st.nope) = 1", "a.b = 1"],
)
def test_text_that_is_no_condition_on_the_table_is_refused(predicate: str) -> None:
    with pytest.raises(UsageError):
        matches(predicate)


def test_all_unknown_columns_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        matches("p = 1 AND `q r` = 2 AND i = 1")
    assert caught.value.fields["columns"] == ["p", "`q r`"]


PARTITIONED = StructType(
    (
        StructField("p", PrimitiveType("integer")),
        StructField("day", PrimitiveType("date")),
        StructField("flag", PrimitiveType("boolean")),
        StructField("i", PrimitiveType("integer")),
    )
)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("p = 3", [True, False, False]),
        ("P IN (1, 5)", [False, True, False]),
        ("p NOT IN (3, 4)", [False, True, False]),
        ("p IS NULL", [False, False, True]),
        ("NOT p = 5", [True, False, False]),
        ("p IS NOT NULL AND i = 7", [True, True, False]),
        ("day < '2024-02-01'", [True, False, False]),
        ("day IS NULL OR p = 3", [True, False, False]),
        ("flag", [True, True, True]),
    ],
)
def test_partition_values_decide_alone(predicate: str, expected: list[bool]) -> None:
    files = [FileSpec(path=str(n), bounds={"i": (5 * n, 9)}) for n in range(2)]
    files.append(FileSpec(path="2", bounds={"i": (8, 9)}))
    snapshot = snapshot_of(
        files, schema=PARTITIONED, partition_columns=("p", "day", "flag"), cluster_by=None
    )
    texts = [
        '{"p":"3","day":"2024-01-31","flag":"true"}',
        '{"p":"5","day":"2024-02-01","flag":"false"}',
        '{"p":null,"day":"not a day","flag":""}',
    ]
    column = pa.array(texts).dictionary_encode()
    number = snapshot.files.schema.get_field_index("partition_values_json")
    live = snapshot.files.set_column(number, "partition_values_json", column)
    snapshot = with_files(snapshot, live)
    if "day" in predicate:
        expected = [*expected[:2], "IS NULL" not in predicate]
    assert may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist() == expected


def test_nulls_are_less_than_what_no_integer_reaches() -> None:
    schema = StructType((StructField("l", PrimitiveType("long")),))
    file = FileSpec(path="a", rows=3, nulls={"l": 3})
    snapshot = snapshot_of([file], schema=schema, cluster_by=None)
    for predicate, may in (
        ("l <= 9223372036854775807.001", True),
        ("l > -99999999999999999999", True),
        ("NOT (l > 99999999999999999999)", True),
        ("l > 99999999999999999999", False),
        ("l <= 9223372036854775807", False),
    ):
        assert may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist() == [may], predicate


def test_instants_that_may_become_texts_rule_out_nothing() -> None:
    schema = StructType((StructField("t", PrimitiveType("timestamp")),))
    day = "2024-11-03T06:30:00Z"
    file = FileSpec(path="a", rows=1, bounds={"t": (day, day)}, nulls={"t": 0})
    snapshot = snapshot_of([file], schema=schema, cluster_by=None)
    # Both are shown as 01:30:00 in New York.
    where = "t IN ('2024-03-10', CAST('2024-11-03 05:30:00+00:00' AS TIMESTAMP))"
    assert may_match(snapshot, where, bounds_of(snapshot)).to_pylist() == [True]


def test_nothing_is_proved_by_a_condition_with_a_half_that_may_fail() -> None:
    schema = StructType((StructField("i", PrimitiveType("integer")),))
    file = FileSpec(path="a", rows=1, bounds={"i": (200, 300)}, nulls={"i": 0})
    snapshot = snapshot_of([file], schema=schema, cluster_by=None)
    for where, proved in (
        ("NOT (i BETWEEN ' -127.5' AND 100)", False),
        ("NOT (i BETWEEN -127 AND 100)", True),
        ("i > 5 OR length('a') = 1", False),
    ):
        found = every_row_matches(snapshot, where, bounds_of(snapshot), Session(for_rows=True))
        assert found.tolist() == [proved], where
