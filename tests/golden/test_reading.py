"""Every recorded log: what we read is what the reference engine says, or a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest

from liquidlog.errors import CorruptLogError, UnsupportedFeatureError, VersionNotFoundError
from liquidlog.operations.detail import detail
from liquidlog.snapshot import Snapshot, decoded_paths, deleted_rows, num_records
from liquidlog.table import Table
from support.recordings import digests, snapshot_facts

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
CASES = sorted(path.parent.name for path in LOGS.glob("*/expected.json"))

REFUSED = {
    "31_catalog_managed": ("catalogManaged",),
    "31_features_with_low_version": ("writerFeatures with writer version 5",),
    "31_reader_version_4": ("reader version 4",),
    "31_unknown_reader_feature": ("fancyFutureReaderThing",),
    "31_writer_version_8": ("writer version 8",),
}

# The engine reads 7.json and 21-digit names as commits; the protocol does not give them a meaning.
JUNK_NAMES = {"32_junk_short_number", "32_junk_long_number"}

# The engine believes a compacted file that lost the provider; we read the commits themselves.
COMPACTED = {"19_log_compaction"}

# The domain's configuration cannot be read: the log opens, DESCRIBE DETAIL does not.
BAD_DOMAIN = {"32_domain_bad_json"}

# The engine needs the sidecar; all commits are there, and say the same.
COMMITS_SUFFICE = {"32_sidecar_missing"}

# The engine's DESCRIBE DETAIL fails on a clustering column that is gone; we show it.
LOST_COLUMN = {"32_domain_unknown_column"}


def open_case(case: str) -> Table:
    return Table.open(str(LOGS / case / "table"))


def expectation(case: str) -> Any:
    return json.loads((LOGS / case / "expected.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_log_is_read_as_the_engine_reads_it_or_refused(case: str) -> None:
    expected = expectation(case)
    if case in REFUSED:
        with pytest.raises(UnsupportedFeatureError) as refusal:
            open_case(case).snapshot()
        assert refusal.value.features == REFUSED[case]
        return
    if case in JUNK_NAMES | LOST_COLUMN | COMMITS_SUFFICE:
        assert open_case(case).detail()["numFiles"] > 0
        return
    if not expected["opens"]:
        with pytest.raises(CorruptLogError):
            open_case(case).detail()
        return
    snapshot = open_case(case).snapshot()
    assert_files_agree(snapshot, expected, ignore_provider=case in COMPACTED)
    if case not in BAD_DOMAIN:
        assert_detail_agrees(snapshot, expected)


def assert_detail_agrees(snapshot: Snapshot, expected: Any) -> None:
    found = detail(snapshot)
    assert {name: found[name] for name in expected["detail"]} == expected["detail"]
    if expected["version"] is not None:
        assert snapshot.version == expected["version"]


def assert_files_agree(snapshot: Snapshot, expected: Any, *, ignore_provider: bool) -> None:
    if not expected["files"]:
        return
    live = snapshot.files
    found = {
        path: {
            "path": path,
            "size": size,
            "numRecords": records,
            "tags": json.loads(tags or "{}"),
            "clusteringProvider": provider,
            "deletedRows": deleted,
            "baseRowId": base,
        }
        for path, size, records, tags, provider, deleted, base in zip(
            live["path"].to_pylist(),
            live["size"].to_pylist(),
            num_records(live).to_pylist(),
            live["tags_json"].to_pylist(),
            live["clustering_provider"].to_pylist(),
            deleted_rows(live).to_pylist(),
            live["base_row_id"].to_pylist(),
            strict=True,
        )
    }
    theirs = {file["path"]: dict(file) for file in expected["files"]}
    if ignore_provider:
        for file in [*found.values(), *theirs.values()]:
            file.pop("clusteringProvider")
    assert found == theirs
    assert len(set(decoded_paths(live).to_pylist())) == len(found)


VERSIONS = [
    (path.parent.name, version, recorded)
    for path in sorted(LOGS.glob("*/versions.json"))
    for version, recorded in json.loads(path.read_text()).items()
]


def test_there_are_hundreds_of_recorded_versions() -> None:
    assert len([recorded for _, _, recorded in VERSIONS if recorded is not None]) > 300


@pytest.mark.parametrize(
    ("case", "version", "recorded"), VERSIONS, ids=[f"{case}@{v}" for case, v, _ in VERSIONS]
)
def test_every_recorded_version_is_read_as_the_engine_reads_it(
    case: str, version: str, recorded: dict[str, str] | None
) -> None:
    if recorded is None:
        with pytest.raises(VersionNotFoundError):
            open_case(case).snapshot(int(version))
        return
    facts = snapshot_facts(open_case(case).snapshot(int(version)))
    known = {"files"} if case in COMPACTED else set()
    found = digests(facts)
    assert {n: found[n] for n in found.keys() - known} == {
        n: recorded[n] for n in recorded.keys() - known
    }


@pytest.mark.parametrize("case", [c for c in CASES if expectation(c)["history"]])
def test_history_agrees_with_the_engine(case: str) -> None:
    expected = expectation(case)["history"]
    found = open_case(case).history()
    assert [row["version"] for row in found] == [row["version"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert {name: ours.get(name) for name in theirs} == theirs
