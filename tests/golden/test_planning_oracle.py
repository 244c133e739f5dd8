"""Every recorded OPTIMIZE of the reference engine, planned here from the same log."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pytest

from liquidlog.clustering.outcome.change import optimize_metrics, planned_metrics
from liquidlog.clustering.planning.planner import plan
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.log.statistics import load_bounds
from liquidlog.plan import GIB, ClusteringPlan, ClusteringPolicy, RewriteGroup, RewrittenGroup
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


# Every recorded OPTIMIZE of a partitioned table, planned here from the same log.


FIXTURES_PARTITION_ORACLE = Path(__file__).parents[2] / "fixtures" / "partitions"


@dataclass(frozen=True)
class PartitionCase:
    directory: Path
    files: list[str]
    recorded: dict[str, Any]

    @property
    def policy(self) -> ClusteringPolicy:
        return ClusteringPolicy(
            max_file_bytes=self.recorded.get("max_file_size", GIB),
            where=self.recorded.get("where"),
            zorder_by=tuple((name,) for name in self.recorded.get("zorder_by", ())),
        )

    @property
    def can_be_asked_for(self) -> bool:
        """Whether there is one size: files below that of outputs are small, here always."""
        small_bytes = self.recorded.get("min_file_size", GIB)
        return bool(small_bytes >= self.recorded.get("max_file_size", GIB))

    @property
    def groups(self) -> set[frozenset[str]]:
        return {
            frozenset(self.files[number] for number in group["inputs"])
            for group in self.recorded["groups"]
        }

    def planned(self) -> tuple[Snapshot, ClusteringPlan]:
        store = open_store(str(self.directory))
        snapshot = load_snapshot(store)
        numbers = count()
        made = plan(
            snapshot,
            self.policy,
            new_id=lambda: f"id-{next(numbers)}",
            bounds_of=partial(load_bounds, store, snapshot),
        )
        return snapshot, made


def _load_cases_partition_oracle() -> Iterator[Any]:
    for expected in sorted(FIXTURES_PARTITION_ORACLE.glob("*/expected.json")):
        document = msgspec.json.decode(expected.read_bytes())
        for recorded in document["plans"]:
            case = PartitionCase(expected.parent, document["files"], recorded)
            yield pytest.param(case, id=f"{expected.parent.name}-{recorded['name']}")


CASES_PARTITION_ORACLE = list(_load_cases_partition_oracle())
SPELLINGS = "spellings"
EXACT = [
    case
    for case in CASES_PARTITION_ORACLE
    if case.values[0].directory.name != SPELLINGS and case.values[0].can_be_asked_for
]


def test_all_recorded_cases_are_there_partition_oracle() -> None:
    assert len(list(FIXTURES_PARTITION_ORACLE.glob("*/expected.json"))) == 7
    assert len(CASES_PARTITION_ORACLE) == 32


@pytest.mark.parametrize("case", EXACT)
def test_joins_the_files_that_the_reference_engine_joined(case: PartitionCase) -> None:
    snapshot, made = case.planned()
    spelled = dict(
        zip(snapshot.paths().to_pylist(), snapshot.files["path"].to_pylist(), strict=True)
    )
    found = {frozenset(spelled[file.path] for file in group.inputs) for group in made.groups}
    assert found == case.groups
    assert len(made.groups) == case.recorded["metrics"]["numBins"]


@pytest.mark.parametrize("case", EXACT)
def test_gives_outputs_the_partition_values_of_the_reference_engine(case: PartitionCase) -> None:
    _, made = case.planned()
    found = {msgspec.json.encode(group.partition_values, order="sorted") for group in made.groups}
    values = [msgspec.json.decode(text) for text in case.recorded["partition_values"]]
    assert found == {msgspec.json.encode(value, order="sorted") for value in values}


@pytest.mark.parametrize("case", EXACT)
def test_counts_what_the_reference_engine_counted_partition_oracle(case: PartitionCase) -> None:
    snapshot, made = case.planned()
    found = planned_metrics(snapshot, made, commits=1)
    recorded = case.recorded["metrics"]
    assert {name: found[name] for name in recorded} == recorded
    assert found.get("deletionVectorStats") == case.recorded["deletionVectorStats"]
    zorder = case.recorded["zOrderStats"]
    if zorder is not None:
        assert found["zOrderStats"] == {
            name: value for name, value in zorder.items() if name != "mergedNumCubes"
        }


def test_joins_no_time_without_a_zone_with_one_that_has_a_zone() -> None:
    """The reference engine joins them by the zone of its session, UTC where it was recorded."""
    [case] = [
        one.values[0] for one in CASES_PARTITION_ORACLE if one.values[0].directory.name == SPELLINGS
    ]
    _, made = case.planned()
    [whole] = case.groups
    joined = [sorted(group.inputs.columns["path"].to_pylist()) for group in made.groups]
    assert sorted(map(len, joined)) == [2, 2]
    assert sorted(unquote(path) for path in whole) == sorted(chain.from_iterable(joined))
    zones = [str(group.partition_values["ts"]).endswith("Z") for group in made.groups]
    assert sorted(zones) == [False, True]
