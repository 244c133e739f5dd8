"""Every recorded OPTIMIZE of the reference engine, planned here from the same log."""

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pytest

from liquidlog.clustering.change import optimize_metrics, planned_metrics
from liquidlog.log.loader import load_bounds, load_snapshot, open_store
from liquidlog.plan import GIB, ClusteringPlan, ClusteringPolicy, RewriteGroup, RewrittenGroup
from liquidlog.snapshot import Snapshot, decoded_paths
from support.plans import finished
from support.snapshots import planned, with_files

FIXTURES = Path(__file__).parents[2] / "fixtures" / "plans"


def _documents(fixtures: Path) -> dict[str, Any]:
    """Return what is recorded of each table, by its name."""
    return {
        found.parent.name: msgspec.json.decode(found.read_bytes())
        for found in sorted(fixtures.glob("*/expected.json"))
    }


CASES = _documents(FIXTURES)


def _in_order(snapshot: Snapshot, paths: list[str]) -> Snapshot:
    position = {path: row for row, path in enumerate(decoded_paths(snapshot.files).to_pylist())}
    return with_files(snapshot, snapshot.files.take(pa.array([position[p] for p in paths])))


def test_all_recorded_cases_are_there() -> None:
    assert len(CASES) == 21
    assert sum(len(document["plans"]) for document in CASES.values()) == 130


@pytest.mark.parametrize("case", CASES)
def test_plans_as_the_reference_engine_did(case: str, subtests: pytest.Subtests) -> None:
    snapshot, document = load_snapshot(open_store(str(FIXTURES / case))), CASES[case]
    for recorded in document["plans"]:
        policy = ClusteringPolicy(
            min_cube_bytes=recorded["min_cube_size"],
            target_cube_bytes=recorded["target_cube_size"],
            max_file_bytes=recorded["max_file_size"],
            full=recorded["full"],
        )
        with subtests.test(plan=recorded["name"]):
            made = planned(snapshot, policy)
            taken = sorted(file.path for group in made.groups for file in group.inputs)
            assert taken == sorted(document["files"][n] for n in recorded["removed"])
            check_counts(snapshot, made, recorded)
        with subtests.test(cubes=recorded["name"]):
            ordered = _in_order(snapshot, [document["files"][n] for n in recorded["scan_order"]])
            check_cubes(planned(ordered, policy), document["files"], recorded)


def check_cubes(made: ClusteringPlan, files: list[str], recorded: dict[str, Any]) -> None:
    formed = {
        tuple(sorted(file.path for file in group.inputs)): group.expected_outputs
        for group in made.groups
    }
    assert formed == {
        tuple(sorted(files[n] for n in cube["inputs"])): cube["expected_outputs"]
        for cube in recorded["cubes"]
    }
    assert len(made.skipped) == recorded["totalFilesSkipped"]


def check_counts(snapshot: Snapshot, made: ClusteringPlan, recorded: dict[str, Any]) -> None:
    finished = [_finished(made, group) for group in made.groups]
    found = optimize_metrics(snapshot, made, finished, commits=1)
    # The reference also counts an empty cube before a first file larger than a whole cube.
    counted = recorded["clusteringStats"]["numOutputZCubes"]
    written = len(recorded["cubes"])
    assert counted - written in {0, 1}
    assert found["clusteringStats"] == recorded["clusteringStats"] | {"numOutputZCubes": written}
    assert found.get("deletionVectorStats") == recorded["deletionVectorStats"]
    assert found["totalConsideredFiles"] == recorded["totalConsideredFiles"]
    assert found["totalFilesSkipped"] == recorded["totalFilesSkipped"]


def _finished(made: ClusteringPlan, group: RewriteGroup) -> RewrittenGroup:
    ids = {"plan_id": made.plan_id, "group_id": group.group_id}
    return finished(**ids, outputs=(), rows_read=0, rows_written=0)


# Every recorded OPTIMIZE of a partitioned table, planned here from the same log.


PARTITIONED = FIXTURES.with_name("partitions")
PARTITIONED_CASES = _documents(PARTITIONED)
SPELLINGS = "spellings"


def _plan_partitions(case: str, recorded: dict[str, Any]) -> tuple[Snapshot, ClusteringPlan]:
    store = open_store(str(PARTITIONED / case))
    snapshot = load_snapshot(store)
    policy = ClusteringPolicy(
        max_file_bytes=recorded.get("max_file_size", GIB),
        where=recorded.get("where"),
        zorder_by=tuple((name,) for name in recorded.get("zorder_by", ())),
    )
    return snapshot, planned(snapshot, policy, partial(load_bounds, store, snapshot))


def _groups(case: str, recorded: dict[str, Any]) -> set[frozenset[str]]:
    files = PARTITIONED_CASES[case]["files"]
    return {frozenset(files[n] for n in group["inputs"]) for group in recorded["groups"]}


def test_all_recorded_partitioned_cases_are_there() -> None:
    assert len(PARTITIONED_CASES) == 7
    assert sum(len(document["plans"]) for document in PARTITIONED_CASES.values()) == 32


@pytest.mark.parametrize("case", [case for case in PARTITIONED_CASES if case != SPELLINGS])
def test_plans_partitions_as_the_reference_engine_did(case: str, subtests: pytest.Subtests) -> None:
    for recorded in PARTITIONED_CASES[case]["plans"]:
        # Files below the size of outputs are small here always; the engine may have another size.
        if recorded.get("min_file_size", GIB) < recorded.get("max_file_size", GIB):
            continue
        with subtests.test(plan=recorded["name"]):
            snapshot, made = _plan_partitions(case, recorded)
            spelled = dict(
                zip(snapshot.paths().to_pylist(), snapshot.files["path"].to_pylist(), strict=True)
            )
            joined = {frozenset(spelled[file.path] for file in g.inputs) for g in made.groups}
            assert joined == _groups(case, recorded)
            assert len(made.groups) == recorded["metrics"]["numBins"]
            values = {msgspec.json.encode(g.partition_values, order="sorted") for g in made.groups}
            assert values == {
                msgspec.json.encode(msgspec.json.decode(text), order="sorted")
                for text in recorded["partition_values"]
            }
            check_partition_counts(snapshot, made, recorded)


def check_partition_counts(
    snapshot: Snapshot, made: ClusteringPlan, recorded: dict[str, Any]
) -> None:
    found = planned_metrics(snapshot, made, commits=1)
    assert {name: found[name] for name in recorded["metrics"]} == recorded["metrics"]
    assert found.get("deletionVectorStats") == recorded["deletionVectorStats"]
    if recorded["zOrderStats"] is not None:
        theirs = {k: v for k, v in recorded["zOrderStats"].items() if k != "mergedNumCubes"}
        assert found["zOrderStats"] == theirs


def test_joins_no_time_without_a_zone_with_one_that_has_a_zone() -> None:
    """The reference engine joins them by the zone of its session, UTC where it was recorded."""
    (recorded,) = PARTITIONED_CASES[SPELLINGS]["plans"]
    _, made = _plan_partitions(SPELLINGS, recorded)
    [whole] = _groups(SPELLINGS, recorded)
    joined = [sorted(group.inputs.columns["path"].to_pylist()) for group in made.groups]
    assert sorted(map(len, joined)) == [2, 2]
    assert sorted(unquote(path) for path in whole) == sorted(chain.from_iterable(joined))
    zones = [str(group.partition_values["ts"]).endswith("Z") for group in made.groups]
    assert sorted(zones) == [False, True]
