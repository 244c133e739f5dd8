"""What a rewrite would refuse for its calendar is said before it is begun."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from liquidlog.errors import LiquidlogError
from liquidlog.operations.judge import criteria_of, judge_plan
from liquidlog.table import Table
from support.repository import ROOT

_LIST: Final = {"type": "array", "elementType": "date", "containsNull": True}


def _struct(**kinds: object) -> dict[str, object]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in kinds.items()
    ]
    return {"type": "struct", "fields": fields}


SCHEMA: Final = _struct(
    id="long", d="date", t="timestamp", ds=_LIST, s=_struct(t="timestamp", i="long")
)


def table_of(tmp_path: Path, case: str, lows: Mapping[str, object]) -> Table:
    """A table of two copies of a recorded file, with these lowest values in the log."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "00000000-0000-0000-0000-000000000001",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(SCHEMA),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 1,
            }
        },
    ]
    for name in ("a.parquet", "b.parquet"):
        shutil.copy(ROOT / "fixtures" / "calendars" / case / "rows.parquet", tmp_path / name)
        stats = {"numRecords": 9, "minValues": lows, "maxValues": lows, "nullCount": {}}
        add: dict[str, object] = {
            "path": name,
            "partitionValues": {},
            "size": (tmp_path / name).stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        actions.append({"add": add})
    text = "\n".join(map(json.dumps, actions))
    (log / f"{0:020d}.json").write_text(text, encoding="utf-8")
    return Table.open(tmp_path)


OLD: Final[Mapping[str, object]] = {"d": "0001-01-01", "t": "0001-01-01T00:00:00.000Z"}


@pytest.mark.parametrize(
    ("case", "lows", "named"),
    [
        ("2.4.8-int96", OLD, "column t"),
        ("2.4.8-int96", {"d": "0001-01-01", "t": "2024-01-01T00:00:00.000Z"}, None),
        ("2.4.0-int96", {"d": "0001-01-01"}, "column d"),
        ("3.0.3-int96-corrected", OLD, "column t"),
        ("3.5.9-micros-paris", OLD, "Europe/Paris"),
        ("3.5.9-micros-legacy", OLD, None),
        ("3.5.9-micros-corrected", OLD, None),
    ],
)
def test_plans_and_doctor_say_which_files_would_be_refused(
    tmp_path: Path, case: str, lows: Mapping[str, object], named: str | None
) -> None:
    table = table_of(tmp_path, case, lows)
    notes = table.plan().notes
    found = [one for one in table.doctor() if one.name == "refused-dates"]
    if named is None:
        assert (notes, found) == ((), [])
        return
    assert len(notes) == 2
    assert all("would refuse" in note and named in note for note in notes)
    assert [(one.files, one.command) for one in found] == [(2, None)]
    assert named in found[0].detail
    assert str(tmp_path / "a.parquet") in notes[0]


def test_what_a_rewrite_refuses_is_what_the_plan_said(tmp_path: Path) -> None:
    table = table_of(tmp_path, "3.5.9-micros-paris", OLD)
    before = table.snapshot().version
    with pytest.raises(LiquidlogError, match="Europe/Paris"):
        table.optimize(executor="local")
    assert table.snapshot().version == before


def test_a_rewrite_that_would_be_refused_is_not_worth_it(tmp_path: Path) -> None:
    often: dict[str, Any] = {"readings_a_day": 1e9, "payback_days": 3000.0}
    (tmp_path / "read").mkdir()
    assert table_of(tmp_path / "read", "3.5.9-micros-legacy", OLD).judge(**often).best is not None
    (tmp_path / "refused").mkdir()
    table = table_of(tmp_path / "refused", "3.5.9-micros-paris", OLD)
    judged = table.judge(**often)
    assert (judged.best, judged.unmeasured) == (None, None)
    assert "a rewrite would refuse" in judged.reason
    assert "Europe/Paris" in judged.reason
    assert "and 1 more" in judged.reason
    plan = table.plan()
    criteria = criteria_of(table.opened, **often)
    option = judge_plan(table.opened, plan, criteria)
    assert option is not None
    assert not option.is_worth_it
    unread = judge_plan(table.opened, plan, replace(criteria, reads_rows=False))
    assert unread is not None
    assert unread.is_worth_it


def test_files_that_are_not_there_are_left_to_whoever_reads_them(tmp_path: Path) -> None:
    table = table_of(tmp_path, "2.4.8-int96", OLD)
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).unlink()
    assert table.plan().notes == ()
