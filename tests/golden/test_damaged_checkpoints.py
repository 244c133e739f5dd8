"""A checkpoint that cannot be read gives way to an older one, or to commits; never to a guess."""

import shutil
from pathlib import Path

import pytest

from liquidlog.errors import CorruptLogError
from liquidlog.table import Table

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
WITH_SIDECARS = ["18_v2_checkpoint_json", "18_v2_checkpoint_parquet"]
CASES = [*WITH_SIDECARS, "17_checkpoint_multipart"]


@pytest.fixture(params=CASES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table = tmp_path / "table"
    shutil.copytree(LOGS / request.param / "table", table)
    return table / "_delta_log"


def checkpoint_files(log: Path) -> dict[int, list[Path]]:
    """Return the files of the log's checkpoints by version, the newest first, sidecars apart."""
    found: dict[int, list[Path]] = {}
    for path in sorted(log.glob("*.checkpoint.*"), reverse=True):
        found.setdefault(int(path.name[:20]), []).append(path)
    return found


def live(log: Path) -> list[str]:
    return list(Table.open(str(log.parent)).files()["path"].to_pylist())


def test_a_damaged_newest_checkpoint_gives_way_to_an_older_one(log: Path) -> None:
    before = live(log)
    versions = checkpoint_files(log)
    newest = max(versions)
    for path in versions[newest]:
        path.write_bytes(b"PAR1 cut off")
    if len(versions) > 1:
        assert live(log) == before
        return
    with pytest.raises(CorruptLogError) as error:
        live(log)
    assert "checkpoint" in error.value.detail


def test_without_any_readable_checkpoint_the_log_is_refused_naming_a_file(log: Path) -> None:
    sidecars = list(log.glob("_sidecars/*.parquet"))
    for path in [*sidecars, *(p for files in checkpoint_files(log).values() for p in files)]:
        if not sidecars or path in sidecars:
            path.unlink()
    with pytest.raises(CorruptLogError) as error:
        live(log)
    assert sidecars == [] or "_sidecars" in error.value.path


@pytest.mark.parametrize("log", WITH_SIDECARS, indirect=True)
def test_a_missing_sidecar_gives_way_to_an_older_checkpoint(log: Path) -> None:
    sidecars = sorted(log.glob("_sidecars/*.parquet"))
    before = live(log)
    sidecars[-1].unlink()
    assert live(log) == before
