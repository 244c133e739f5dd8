"""Files whose dates may be in the Julian calendar are read as Spark reads them, or refused."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from liquidlog.data.reader import DataFile
from liquidlog.errors import DataFileError
from liquidlog.spec.arrow import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Calendar,
    Stored,
    arrow_schema,
    delta_schema,
)

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "calendars"
CASES: Final = sorted(path.parent.name for path in FIXTURES.glob("*/expected.json"))
J, T, U = Calendar.JULIAN, Calendar.TODAYS, Calendar.UNKNOWN

DATES: Final = {
    "2.4.0-int96": U,
    "2.4.8-int96": J,
    "2.4.8-micros": J,
    "3.0.3-int96-corrected": T,
    "3.0.3-int96-legacy": J,
    "3.0.3-micros-corrected": T,
    "3.0.3-micros-legacy": J,
    "3.1.3-int96-corrected": T,
    "3.1.3-int96-legacy": T,
    "3.1.3-micros-legacy": J,
    "3.5.9-int96-legacy": T,
    "3.5.9-micros-corrected": T,
    "3.5.9-micros-legacy": J,
    "3.5.9-micros-paris": J,
    "3.5.9-millis-legacy": J,
}
TIMESTAMPS: Final = DATES | {
    "3.0.3-int96-corrected": J,
    "3.1.3-int96-legacy": J,
    "3.5.9-int96-legacy": J,
}
IN_UTC: Final = {"3.5.9-int96-legacy", "3.5.9-micros-legacy", "3.5.9-millis-legacy"}
"""Julian timestamps whose zone is said, and is UTC."""
SCHEMA: Final = delta_schema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.date32()),
            ("t", TIMESTAMP),
            ("ds", pa.list_(pa.date32())),
            ("s", pa.struct([("t", TIMESTAMP), ("i", pa.int64())])),
        ]
    )
)


def test_every_file_is_in_the_table_of_what_is_expected() -> None:
    assert sorted(DATES) == CASES
    int96 = {TIMESTAMPS[case] for case in CASES if "int96" in case}
    int64 = {TIMESTAMPS[case] for case in CASES if "int96" not in case}
    assert (int96, int64, set(DATES.values())) == ({J, T, U}, {J, T}, {J, T, U})


@pytest.mark.parametrize("case", CASES)
def test_the_rules_say_which_calendar(case: str) -> None:
    with DataFile.open(_path(case), schema=SCHEMA) as file:
        kinds = file.parquet.calendars.kinds
    stored = Stored.INT96 if "int96" in case else Stored.INT64
    assert (kinds[Stored.DATE], kinds[stored]) == (DATES[case], TIMESTAMPS[case])


@pytest.mark.parametrize("case", CASES)
def test_dates_are_those_that_spark_reads_or_refused(case: str) -> None:
    lists = _found(case, "ds")
    if DATES[case] is U:
        assert "the date 0000-12-30" in _found(case, "d")
        assert "the date 0000-12-30" in lists
        return
    days = _expected(case, "d")
    assert _found(case, "d") == days
    if DATES[case] is T:
        assert lists == [[day, day] for day in days]
    else:
        assert "in lists" in lists


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("column", ["t", "s"])
def test_timestamps_are_those_that_spark_reads_or_refused(case: str, column: str) -> None:
    found = _found(case, column)
    if TIMESTAMPS[case] is T or case in IN_UTC:
        assert found == _expected(case, "t")
    else:
        assert "timestamp 0000-12-" in found
        assert ("Europe/Paris" in found) == (case == "3.5.9-micros-paris")


@pytest.mark.parametrize("case", CASES)
def test_values_on_which_both_calendars_agree_are_read_whatever_the_footer_says(
    case: str, tmp_path: Path
) -> None:
    metadata = pq.read_metadata(_path(case)).metadata
    rows = _since_1900()
    path = tmp_path / "f.parquet"
    with pq.ParquetWriter(
        path, rows.schema, store_schema=False, use_deprecated_int96_timestamps="int96" in case
    ) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(metadata)
    with DataFile.open(str(path), schema=SCHEMA) as file:
        assert file.read().equals(rows)
        parts = file.read_in_parts([("d",), ("t",)], 0, max_rows=2)
        assert pa.concat_tables(parts).equals(rows.select(["d", "t"]))


def _path(case: str) -> str:
    return str(FIXTURES / case / "rows.parquet")


def _expected(case: str, column: str) -> list[date | None]:
    expected = json.loads((FIXTURES / case / "expected.json").read_text(encoding="utf-8"))
    parsed = date.fromisoformat if column == "d" else datetime.fromisoformat
    return [text and parsed(text) for text in expected["rows"][column]]


def _found(case: str, column: str) -> Any:
    """Return the values of a column, or why they are refused."""
    try:
        with DataFile.open(_path(case), schema=SCHEMA) as file:
            found = file.read([(column,)]).column(0)
    except DataFileError as error:
        return f"{error}"
    if column == "s":
        found = pc.struct_field(found, "t")
    return (found if column in {"d", "ds"} else found.cast(TIMESTAMP_NTZ)).to_pylist()


def _since_1900() -> pa.Table:
    """Return rows from the first value on that is the same in every zone of both calendars."""
    days = [timedelta(days=10_000 * number) for number in range(5)]
    first, instant = date(1900, 1, 1), datetime(1900, 1, 1, tzinfo=UTC)
    rows = [
        {
            "id": number,
            "d": first + later,
            "t": instant + later,
            "ds": [first, first + later],
            "s": {"t": instant + later, "i": number},
        }
        for number, later in enumerate(days)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(SCHEMA, physical=True))
