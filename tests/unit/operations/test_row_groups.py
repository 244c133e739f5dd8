"""Row groups that readers open: counted right, sampled in many files, null if unknown."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data import row_groups as data_row_groups
from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.row_group_bounds import read_row_groups
from liquidlog.errors import DataFileError, UsageError
from liquidlog.operations import row_groups
from liquidlog.operations.row_groups import (
    OpenedRowGroups,
    ReadersRowGroups,
    mean_opened,
    sample_files,
)
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.mapping import MappingMode
from liquidlog.spec.schema import Leaf, leaves
from liquidlog.table import Table
from support.commands import said

ROWS = 1_000
GROUP_ROWS = 100


@pytest.fixture(autouse=True)
def row_groups_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_row_groups, "ROW_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(data_row_groups, "_SCALES", (1,))


def table(path: Path, files: int = 3, **options: Any) -> Table:
    """Return a table of files of ten row groups each, all in the order of `x`."""
    schema = pa.schema([("x", pa.int64()), ("text", pa.string()), ("f", pa.float64())])
    made = Table.create(str(path / "t"), schema=schema, cluster_by="x", **options)
    for number in range(files):
        x = np.arange(number * ROWS, (number + 1) * ROWS)
        rows = {"x": x, "text": [f"{v:09d}" for v in x], "f": x * 1.0}
        made.append(pa.table(rows, schema=schema))
    return made


def stored_bytes(made: Table, row_group: int) -> list[int]:
    """Return the bytes of a row group's pages in each file."""
    sizes = []
    for path in made.files()["path"].to_pylist():
        group = pq.read_metadata(f"{made.uri}/{path}").row_group(row_group)
        columns = range(group.num_columns)
        sizes.append(sum(group.column(number).total_compressed_size for number in columns))
    return sizes


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_a_scan_counts_the_row_groups_that_may_match(tmp_path: Path, mapping: str) -> None:
    made = table(tmp_path, properties={"delta.columnMapping.mode": mapping})
    found = made.scan("x = 1234", row_groups=True).row_groups
    assert found is not None
    assert (found.files, found.files_sampled, found.total, found.opened) == (1, 1, 10, 1)
    assert found.bytes_opened in stored_bytes(made, 2)
    everything = made.scan("text is not null or f > 3", row_groups=True).row_groups
    assert everything is not None
    assert (everything.files, everything.total, everything.opened) == (3, 30, 30)
    assert everything.bytes_opened == sum(sum(stored_bytes(made, n)) for n in range(10))
    assert made.scan("x = 1234").row_groups is None


@pytest.mark.parametrize(
    ("where", "opened"),
    [
        ("x between 95 and 205", 3),
        ("text >= '000000850'", 22),
        ("text like '0000001%'", 1),
        ("f < 150", 2),
        ("f > 2750", 3),
        ("x in (5, 2999)", 30),
        ("x = 5 or x = 2999", 2),
        ("x is null", 0),
        ("x = -1", 0),
        ("x % 2 = 0", 30),
        ("not (x < 2500)", 5),
    ],
)
def test_predicates_open_row_groups_by_the_rules_for_files(
    tmp_path: Path, where: str, opened: int
) -> None:
    found = table(tmp_path).scan(where, row_groups=True)
    assert found.row_groups is not None
    assert found.row_groups.opened == opened
    (one,) = found.predicates
    assert one.row_groups is not None
    assert one.row_groups.opened == opened


def test_a_workload_has_the_mean_of_its_readers(tmp_path: Path) -> None:
    made = table(tmp_path)
    asked = (WeightedPredicate("x = 5", 3.0), WeightedPredicate("x >= 0", 1.0))
    found = made.scan(workload=asked, row_groups=True)
    assert found.row_groups is not None
    assert found.row_groups.opened == 0.75 * 1 + 0.25 * 30
    assert found.row_groups.total == 0.75 * 10 + 0.25 * 30
    assert found.row_groups.files_sampled == 3


def test_many_files_are_sampled_and_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table(tmp_path, files=9)
    everything = made.scan("x % 5 = 1", row_groups=True).row_groups
    monkeypatch.setattr(row_groups, "MOST_FOOTERS", 3)
    monkeypatch.setattr(sample_files, "__defaults__", (3,))
    sampled = made.scan("x % 5 = 1", row_groups=True).row_groups
    assert everything is not None
    assert sampled is not None
    assert (sampled.files, sampled.files_sampled) == (9, 3)
    assert everything.files_sampled == 9
    assert sampled.opened == pytest.approx(90, rel=0.02)
    assert sampled.bytes_opened == pytest.approx(everything.bytes_opened, rel=0.02)
    measured = made.health(row_groups=True).row_groups
    assert measured is not None
    assert (measured.files, measured.files_sampled) == (9, 3)
    assert measured.total == pytest.approx(90, rel=0.02)


def test_what_no_footer_says_is_unknown() -> None:
    opened = [np.array([True, False, False]), np.array([False, True, True])]
    assert sample_files(opened, 2).tolist() == [0, 2]
    assert sample_files(opened, 1).tolist() == [0]
    assert sample_files([], 5).tolist() == []
    known = OpenedRowGroups(files=1, files_sampled=1, total=3.0, opened=1.0, bytes_opened=9.0)
    none = OpenedRowGroups(files=2, files_sampled=0, total=None, opened=None, bytes_opened=None)
    mean = mean_opened(ReadersRowGroups(readers=(known, none), files_sampled=1), [0.5, 0.5])
    assert (mean.files, mean.total, mean.opened, mean.bytes_opened) == (1.5, None, None, None)


def test_nobody_opens_a_row_group_of_no_files(tmp_path: Path) -> None:
    found = table(tmp_path, files=0).scan("x = 1", row_groups=True).row_groups
    assert found == OpenedRowGroups(
        files=0, files_sampled=0, total=0.0, opened=0.0, bytes_opened=0.0
    )


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    made = table(tmp_path)
    for file in (tmp_path / "t").rglob("*.parquet"):
        file.unlink()
    made.scan("x = 5")
    with pytest.raises(DataFileError, match="does not exist"):
        made.scan("x = 5", row_groups=True)


def test_health_says_what_readers_of_one_value_open(tmp_path: Path) -> None:
    made = table(tmp_path)
    measured = made.health(row_groups=True).row_groups
    assert measured is not None
    assert measured.total == 30
    # A value is in one of thirty row groups, and in one of three files.
    assert measured.opened == pytest.approx(1.0, rel=0.1)
    total = sum(sum(stored_bytes(made, number)) for number in range(10))
    assert measured.bytes_opened == pytest.approx(total / 30, rel=0.1)
    sizes = made.files()["size_bytes"].to_pylist()
    assert measured.file_bytes_opened == pytest.approx(sum(sizes) / 3, rel=0.1)
    assert made.health().row_groups is None
    one = made.health(where="x = 5", row_groups=True).row_groups
    assert one is not None
    assert (one.files, one.total) == (1, 10)


def test_health_of_no_columns_has_no_row_groups(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(UsageError, match="row_groups has no effect"):
        made.health(row_groups=True)
    assert made.health("x", row_groups=True).row_groups is not None


def test_commands_say_it(tmp_path: Path) -> None:
    made = table(tmp_path)
    status, out, _ = said("scan", made.uri, "--where", "x = 5", "--row-groups")
    assert status == 0
    assert "row groups: 1 of 10, " in out
    status, out, _ = said("health", made.uri, "--row-groups")
    assert status == 0
    assert "one value, row groups: 1" in out


def bounds_of(path: Path, rows: pa.Table, schema: pa.Schema | None = None, **options: Any) -> Any:
    """Write a file; return the only row group's (low, high, nulls) by column of `schema`."""
    pq.write_table(rows, path, **options)
    wanted: list[Leaf] = list(leaves(delta_schema(schema or rows.schema)))
    with ParquetFile(str(path)) as file:
        found = read_row_groups(
            file,
            schema=delta_schema(schema or rows.schema),
            mapping=MappingMode.NONE,
            wanted=wanted,
        ).bounds
    return {
        ".".join(leaf.logical): tuple(
            ends[0].as_py()
            for ends in (found.low(number), found.high(number), found.null_count(number))
        )
        for number, leaf in enumerate(wanted)
    }


def test_nan_is_above_every_end_and_never_below(tmp_path: Path) -> None:
    rows = pa.table(
        {"f": [1.0, float("nan"), 2.0], "g": [float("nan")] * 3, "h": [None, 0.0, -0.0]}
    )
    found = bounds_of(tmp_path / "f", rows)
    assert found == {
        "f": (1.0, float("inf"), 0),
        "g": (None, None, 0),
        "h": (0.0, float("inf"), 1),
    }


def test_ends_are_those_of_the_values_in_every_type(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "a": pa.array([-5, 7], pa.int8()),
            "b": pa.array([10, -9], pa.int32()).cast(pa.date32()),
            "c": pa.array([10, -9]).cast(pa.timestamp("us", "UTC")),
            "d": pa.array([Decimal("-9.99"), Decimal("1.5")], pa.decimal128(38, 2)),
            "e": pa.array([Decimal("-9.99"), Decimal("1.5")], pa.decimal128(9, 2)),
            "s": pa.array(["ä", "z"]).dictionary_encode(),
            "l": pa.array([[1], [2, 3]]),
            "p": pa.array([{"x": 4, "y.z": "b"}, None]),
            "bool": pa.array([True, False]),
        }
    )
    for integers in (True, False):
        found = bounds_of(
            tmp_path / "f",
            rows,
            schema=pa.schema([_plain(child) for child in rows.schema]),
            store_decimal_as_integer=integers,
        )
        for name in "abcdes":
            values = sorted(
                rows[name].to_pylist(), key=lambda value: str(value) if name == "s" else value
            )
            assert found[name] == (min(values), max(values), 0)
        assert found["p.x"] == (4, 4, 1)
        assert found["p.y.z"] == ("b", "b", 1)
        assert found["l"] == (None, None, None)
        assert found["bool"] == (None, None, 0)


def _plain(child: pa.Field) -> pa.Field:
    is_encoded = isinstance(child.type, pa.DictionaryType)
    return child.with_type(child.type.value_type) if is_encoded else child


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        (pa.int32(), pa.int64(), (1, 2, 0)),
        (pa.int64(), pa.int32(), (None, None, 0)),
        (pa.int32(), pa.float64(), (None, None, 0)),
        (pa.int64(), pa.decimal128(20, 0), (None, None, 0)),
        (pa.timestamp("ns"), pa.timestamp("us"), (None, None, 0)),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), (None, None, 0)),
        (pa.large_string(), pa.string(), ("1", "2", 0)),
    ],
)
def test_ends_of_another_type_are_unknown_unless_they_are_the_same_values(
    tmp_path: Path, stored: pa.DataType, wanted: pa.DataType, expected: tuple[Any, ...]
) -> None:
    values = pa.array([1, 2]).cast(stored)
    schema = pa.schema([("x", wanted), ("other", pa.int64())])
    found = bounds_of(tmp_path / "f", pa.table({"x": values}), schema)
    assert found == {"x": expected, "other": (None, None, None)}


def test_a_file_without_statistics_says_nothing_one_in_another_calendar_what_is_the_same(
    tmp_path: Path,
) -> None:
    rows = pa.table({"x": [1, 2], "d": pa.array([-150_000, 2], pa.int32()).cast(pa.date32())})
    nothing = {"x": (None, None, None), "d": (None, None, None)}
    assert bounds_of(tmp_path / "f", rows, write_statistics=False) == nothing
    julian = rows.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    day = dt.date(1970, 1, 3)
    assert bounds_of(tmp_path / "f", julian) == {"x": (1, 2, 0), "d": (None, day, 0)}
