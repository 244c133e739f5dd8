"""Every recorded OPTIMIZE of the reference engine, planned here from the same log."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from liquidlog.clustering.outcome.metrics import optimize_metrics
from liquidlog.clustering.planning.planner import plan
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RewriteGroup, RewrittenGroup
from liquidlog.snapshot import Snapshot, decoded_paths
from support.snapshots import with_files

FIXTURES = Path(__file__).parents[2] / "fixtures" / "plans"


@dataclass(frozen=True)
class OracleCase:
    directory: Path
    files: list[str]
    recorded: dict[str, Any]

    @property
    def policy(self) -> ClusteringPolicy:
        return ClusteringPolicy(
            min_cube_bytes=self.recorded["min_cube_size"],
            target_cube_bytes=self.recorded["target_cube_size"],
            max_file_bytes=self.recorded["max_file_size"],
            full=self.recorded["full"],
        )

    def paths(self, positions: list[int]) -> list[str]:
        return [self.files[position] for position in positions]


def _load_cases() -> Iterator[Any]:
    for expected in sorted(FIXTURES.glob("*/expected.json")):
        document = msgspec.json.decode(expected.read_bytes())
        for number, recorded in enumerate(document["plans"]):
            case = OracleCase(expected.parent, document["files"], recorded)
            yield pytest.param(case, id=f"{expected.parent.name}-{number}-{recorded['name']}")


CASES = list(_load_cases())


def _plan(snapshot: Snapshot, policy: ClusteringPolicy) -> ClusteringPlan:
    numbers = count()
    return plan(snapshot, policy, new_id=lambda: f"id-{next(numbers)}")


def _in_order(snapshot: Snapshot, paths: list[str]) -> Snapshot:
    position = {path: row for row, path in enumerate(decoded_paths(snapshot.files).to_pylist())}
    return with_files(snapshot, snapshot.files.take(pa.array([position[p] for p in paths])))


def test_all_recorded_cases_are_there() -> None:
    assert len(list(FIXTURES.glob("*/expected.json"))) == 21
    assert len(CASES) == 130


@pytest.mark.parametrize("case", CASES)
def test_takes_the_files_that_the_reference_engine_took(case: OracleCase) -> None:
    snapshot = load_snapshot(open_store(str(case.directory)))
    made = _plan(snapshot, case.policy)
    taken = sorted(file.path for group in made.groups for file in group.inputs)
    assert taken == sorted(case.paths(case.recorded["removed"]))


@pytest.mark.parametrize("case", CASES)
def test_forms_the_cubes_that_the_reference_engine_formed(case: OracleCase) -> None:
    snapshot = load_snapshot(open_store(str(case.directory)))
    ordered = _in_order(snapshot, case.paths(case.recorded["scan_order"]))
    made = _plan(ordered, case.policy)
    formed = {
        tuple(sorted(file.path for file in group.inputs)): group.expected_outputs
        for group in made.groups
    }
    assert formed == {
        tuple(sorted(case.paths(cube["inputs"]))): cube["expected_outputs"]
        for cube in case.recorded["cubes"]
    }
    assert len(made.skipped) == case.recorded["totalFilesSkipped"]


@pytest.mark.parametrize("case", CASES)
def test_counts_what_the_reference_engine_counted(case: OracleCase) -> None:
    snapshot = load_snapshot(open_store(str(case.directory)))
    made = _plan(snapshot, case.policy)
    finished = [_finished(made, group) for group in made.groups]
    found = optimize_metrics(snapshot, made, finished, commits=1)
    recorded = case.recorded["clusteringStats"]
    # The reference also counts an empty cube before a first file larger than a whole cube.
    counted = recorded["numOutputZCubes"]
    written = len(case.recorded["cubes"])
    assert counted - written in {0, 1}
    assert found["clusteringStats"] == recorded | {"numOutputZCubes": written}
    assert found.get("deletionVectorStats") == case.recorded["deletionVectorStats"]
    assert found["totalConsideredFiles"] == case.recorded["totalConsideredFiles"]
    assert found["totalFilesSkipped"] == case.recorded["totalFilesSkipped"]


def _finished(made: ClusteringPlan, group: RewriteGroup) -> RewrittenGroup:
    return RewrittenGroup(
        plan_id=made.plan_id,
        group_id=group.group_id,
        run="0" * 12,
        outputs=(),
        rows_read=0,
        rows_written=0,
        checksum_read="",
        checksum_written="",
        seconds=0.0,
    )
