"""Many tables in an object store: found by globs and prefixes, surveyed, and kept in shape."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest

from liquidlog.fleet.finding import find_tables
from liquidlog.fleet.upkeep import Fleet, FleetRequest, Pages, survey
from liquidlog.report.page import page
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table
from support.emulators import SENTINEL, Emulator
from support.lake import EAGER, SCHEMA, rows, ticked

TABLES = ("a", "deep/c", "deep/er/d", "x[1]", "_hidden/e")


@pytest.fixture(scope="module")
def emulator(s3_emulator: Emulator) -> Emulator:
    return s3_emulator


@pytest.fixture(scope="module")
def lake(emulator: Emulator) -> str:
    """Five tables of three small files each below a prefix, and objects that are no tables."""
    root = f"{emulator.bucket}/{secrets.token_hex(6)}/lake"
    for name in TABLES:
        table = Table.create(
            f"{root}/{name}", schema=SCHEMA, cluster_by=["x"], storage_options=emulator.options
        )
        for number in range(3):
            table.append(rows(number))
    files = fsspec.filesystem(
        "s3",
        key="test",
        secret=SENTINEL,
        endpoint_url=emulator.options["AWS_ENDPOINT_URL"],
    )
    for name in ("file.txt", "nothing/part-0.parquet"):
        files.pipe_file(f"{root}/{name}", b"x")
    return root


def found(emulator: Emulator, lake: str, *names: str, below: bool = False) -> list[str]:
    wanted = [f"{lake}/{name}".rstrip("/") for name in names]
    options = StorageOptions.of(emulator.options)
    return [
        one.address.removeprefix(f"{lake}/") if one.problem is None else "?"
        for one in find_tables(wanted, (), options, below=below)
    ]


def surveyed(emulator: Emulator, *prefixes: str, **more: object) -> Fleet:
    options: Mapping[str, str] = emulator.options
    return survey(FleetRequest(prefixes=prefixes, storage_options=options, **more))  # type: ignore[arg-type]


def test_globs_and_prefixes(emulator: Emulator, lake: str) -> None:
    assert found(emulator, lake, "*") == ["a", "x[1]"]
    assert found(emulator, lake, "**") == ["a", "deep/c", "deep/er/d", "x[1]"]
    assert found(emulator, lake, "deep/**/?") == ["deep/c", "deep/er/d"]
    assert found(emulator, lake, "deep", "a", below=True) == ["deep/c", "deep/er/d", "a"]
    assert found(emulator, lake, "", below=True) == ["a", "deep/c", "deep/er/d", "x[1]"]
    assert found(emulator, lake, "nothing", "dee", "no*", below=True) == ["?", "?", "?"]


def test_a_survey_in_other_processes(emulator: Emulator, lake: str, tmp_path: Path) -> None:
    pages = Pages(directory=str(tmp_path), render=page)
    fleet = surveyed(emulator, f"{lake}/deep", f"{lake}/*", pages=pages, processes=2)
    assert [one.action for one in fleet.tables] == ["rewrite"] * 4
    assert {one.page for one in fleet.tables} == {path.name for path in tmp_path.iterdir()}
    for one in fleet.tables:
        table = Table.open(one.table, storage_options=emulator.options)
        assert one.files == table.detail()["numFiles"] == 3
    said_of = json.dumps(fleet.document())
    shown = "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    assert SENTINEL not in said_of + shown


def test_a_store_that_refuses_is_a_line(emulator: Emulator, lake: str) -> None:
    bucket = lake.replace("://", "://no-such-")
    fleet = surveyed(emulator, f"{bucket}/*", f"{lake}/a")
    assert [str(one.action) for one in fleet.tables] == ["rewrite", "fail"]
    assert fleet.exit_status == 1
    assert SENTINEL not in json.dumps(fleet.document())


def test_tick_keeps_what_a_glob_finds_in_shape(emulator: Emulator, lake: str) -> None:
    options, storage = emulator.options, StorageOptions.of(emulator.options)
    wanted = (f"{lake}/deep/**", f"{lake}/a")
    run = ticked(EAGER, *wanted, storage=storage, storage_options=options)
    assert [str(one.decision) for one in run.tables] == ["rewrite"] * 3
    again = ticked(EAGER, *wanted, storage=storage, storage_options=options)
    assert [str(one.decision) for one in again.tables] == ["leave"] * 3
