import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering.zcubes import membership
from liquidlog.simulation.imagined import ImaginedFiles, with_imagined
from liquidlog.snapshot import FILES_SCHEMA, decoded_paths
from support.snapshots import FileSpec, snapshot_of


def two_files(zcube_id: pa.Array | None = None) -> ImaginedFiles:
    return ImaginedFiles(
        paths=pa.array(["c", "d"]),
        size_bytes=np.array([30, 40]),
        num_records=pa.array([3, None], pa.int64()),
        zcube_id=zcube_id,
    )


def test_imagined_files_follow_those_that_are_kept() -> None:
    snapshot = snapshot_of([FileSpec(path="a", cube="1", zorder_by=["x"]), FileSpec(path="b")])
    after = with_imagined(snapshot, pa.array([True, False]), [two_files()])
    assert after.files.schema == FILES_SCHEMA
    assert decoded_paths(after.files).to_pylist() == ["a", "c", "d"]
    assert after.size_bytes == 100 + 30 + 40
    assert membership(after.files, ()).in_cube.tolist() == [True, False, False]
    assert after.files["num_records"].to_pylist() == [10, 3, None]
    assert snapshot.files.num_rows == 2


def test_files_of_unknown_cubes_are_not_put_into_a_table() -> None:
    with pytest.raises(ValueError, match="cube"):
        with_imagined(snapshot_of(), pa.array([], pa.bool_()), [two_files(pa.array(["1", None]))])
