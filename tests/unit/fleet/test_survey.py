"""A survey finds all tables, looks at each, ranks what is worth doing, and says why."""

import json
import os
import shutil
from pathlib import Path

import pytest

from liquidlog.errors import CorruptLogError, StorageError, UsageError
from liquidlog.fleet.upkeep import Fleet, FleetRequest, Pages, Surveyed, survey, surveyed
from liquidlog.local.workers import Workers
from liquidlog.report.page import page
from liquidlog.table import Table
from liquidlog.workload.form import Query
from support.commands import said
from support.lake import EAGER, ragged, rows, ticked
from support.repository import ROOT

HOSTILE = (
    "<script>alert(1)</script>",
    "a\nb\x1b[31m",
    "\u202egnp",
    "x" * 200,
    "é",
    "e\u0301",
    "-o",
)


def looked_at(root: Path, processes: int = 1, **more: object) -> Fleet:
    request = FleetRequest(prefixes=(str(root),), processes=processes, **more)  # type: ignore[arg-type]
    return survey(request)


def by_name(fleet: Fleet) -> dict[str, Surveyed]:
    return {Path(one.table).name: one for one in fleet.tables}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables worth a rewrite, large and small, in shape, empty, refused, broken."""
    root = tmp_path_factory.mktemp("lake")
    ragged(root / "large", files=12)
    ragged(root / "deep" / "small", files=5)
    Table.create(root / "one", schema=rows(0).schema, cluster_by=["x"]).append(rows(0))
    Table.create(root / "empty", schema=rows(0).schema)
    broken = ragged(root / "broken", files=2)
    next(Path(broken.uri, "_delta_log").glob("*1.json")).write_text("{")
    return root


def test_what_is_worth_it_comes_first_as_in_tick(lake: Path) -> None:
    fleet = looked_at(lake)
    found = by_name(fleet)
    assert {name: str(one.action) for name, one in found.items()} == {
        "large": "rewrite",
        "small": "rewrite",
        "one": "leave",
        "empty": "leave",
        "broken": "fail",
    }
    run = ticked(EAGER, f"{lake}/**", dry_run=True)
    worth = [one for one in run.tables if one.decision == "rewrite"]
    assert [one.table for one in fleet.tables[:2]] == [one.table for one in worth]
    for one, decided in zip(fleet.tables, worth, strict=False):
        assert decided.verdict is not None
        assert one.verdict == decided.verdict.document()
        assert one.reason == decided.reason
    paid = [one.worth["payback_queries"] for one in fleet.tables if one.worth is not None]
    assert paid == sorted(paid)
    assert fleet.tables[2].action == "fail"


def ended(request: FleetRequest, address: str, queries: tuple[Query, ...]) -> Surveyed:
    if address.endswith("large"):
        os._exit(9)
    return surveyed(request, address, queries)


def test_a_process_that_ends_takes_one_table_with_it(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Workers.submit

    def submit(self: object, _: object, *arguments: object, attempt: int) -> object:
        return original(self, ended, *arguments, attempt=attempt)  # type: ignore[arg-type]

    monkeypatch.setattr(Workers, "submit", submit)
    found = by_name(looked_at(lake, processes=2))
    assert found["large"].action == "fail"
    assert "a worker process ended" in found["large"].reason
    assert found["small"].action == "rewrite"
    assert len(found) == 5


def test_a_workload_is_asked_table_by_table(lake: Path, tmp_path: Path) -> None:
    workload = tmp_path / "w.jsonl"
    line = {"table": f"{lake}/large", "conjuncts": ["x = 500000"], "weight": 3.0, "first": None}
    line |= {"last": None, "observed": None, "ambiguous": False, "source": "sql"}
    workload.write_text(json.dumps(line) + "\n")
    found = by_name(looked_at(lake, workload=str(workload)))
    assert found["large"].action == "rewrite"
    assert found["large"].worth is not None
    assert str(workload) in found["large"].worth["candidate"]["command"]
    assert found["small"].action == "leave"
    assert found["small"].reason == f"Leave it: {workload} asks nothing of it."
    assert found["small"].depth_ratio == Table.open(lake / "deep" / "small").health().depth_ratio


def test_prefixes_are_tables_or_what_is_above_them(lake: Path) -> None:
    def found(*names: str) -> list[str]:
        request = FleetRequest(prefixes=tuple(f"{lake}/{name}" for name in names))
        return [
            f"{one.action} {one.table.removeprefix(f'{lake}/')}" for one in survey(request).tables
        ]

    assert found("large") == ["rewrite large"]
    assert found("deep") == ["rewrite deep/small"]
    assert found("deep", "deep/small", "d*/*") == ["rewrite deep/small"]
    assert found("nowhere") == ["fail " + str(lake / "nowhere").removeprefix(f"{lake}/")]
    with pytest.raises(UsageError):
        survey(FleetRequest(prefixes=()))


def test_hostile_names_make_plain_files_of_their_own(tmp_path: Path) -> None:
    ragged(tmp_path / "lake" / "t", files=2)
    for place, name in enumerate(HOSTILE):
        shutil.copytree(tmp_path / "lake" / "t", tmp_path / "lake" / str(place) / name)
    shutil.copytree(tmp_path / "lake" / "t", tmp_path / "lake" / "again" / "t")
    where = tmp_path / "pages"
    fleet = looked_at(tmp_path / "lake", pages=Pages(directory=str(where), render=page))
    names = {one.page for one in fleet.tables}
    assert len(names) == len(fleet.tables) == len(HOSTILE) + 2
    assert {path.name for path in where.iterdir()} == names
    assert all(name and name.isascii() and name[0].isalnum() for name in names)


def test_a_directory_that_cannot_be_made_is_told_before_anything(lake: Path) -> None:
    pages = Pages(directory=str(lake / "large" / "_delta_log" / f"{0:020d}.json"), render=page)
    with pytest.raises(StorageError):
        looked_at(lake, pages=pages)


def test_the_command(lake: Path, tmp_path: Path) -> None:
    status, out, err = said("fleet", str(lake), "--json")
    document = json.loads(out)
    assert (status, err) == (1, "")
    first = document["tables"][0]
    asked = "table files bytes depth_ratio action reason verdict"
    assert set(asked.split()) <= set(first)
    status, out, err = said("fleet", str(lake / "large"), "-o", str(tmp_path / "out"))
    assert (status, err) == (0, "")
    assert "1 table: 1 to rewrite" in out
    assert "    liquidlog optimize" in out
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".html", ".html"]
    assert said("fleet", str(lake / "large"), "--payback-days", "0")[0] == 2
    assert said("fleet")[0] == 2


def test_recorded_logs_of_every_kind_get_a_line(tmp_path: Path) -> None:
    logs, some = ROOT / "fixtures" / "logs", "*[0-9]_[b-du]*/table"
    pages = Pages(directory=str(tmp_path), render=page)
    fleet = survey(FleetRequest(prefixes=(f"{logs}/{some}",), pages=pages, processes=1))
    assert len(fleet.tables) == len(list(logs.glob(f"{some}/_delta_log")))
    failed = [one.error for one in fleet.tables if one.action == "fail"]
    assert {type(error) for error in failed} <= {CorruptLogError}
    assert all(one.reason for one in fleet.tables)
    unread = [one for one in fleet.tables if one.files is None]
    assert all(one.page is None and one.action != "rewrite" for one in unread)
