import multiprocessing
from pathlib import Path

import pytest

from liquidlog.errors import StorageError
from liquidlog.log.loader import open_store
from liquidlog.log.local_store import LocalTableStore
from liquidlog.spec.paths import LogFileKind, commit_name, parse_log_file

WRITERS = 4
KEYS = 25


def put_all(root: str, writer: int) -> list[int]:
    store = LocalTableStore(Path(root))
    content = str(writer).encode() * 50_000
    return [key for key in range(KEYS) if store.put_log_if_absent(commit_name(key), content)]


def test_each_version_is_won_by_exactly_one_process_and_is_whole(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(WRITERS) as pool:
        wins = pool.starmap(put_all, [(str(tmp_path), writer) for writer in range(WRITERS)])
    assert sorted(key for won in wins for key in won) == list(range(KEYS))
    store = LocalTableStore(tmp_path)
    for writer, won in enumerate(wins):
        for key in won:
            assert store.read_log(commit_name(key)) == str(writer).encode() * 50_000
    assert all(path.suffix == ".json" for path in (tmp_path / "_delta_log").iterdir())


def test_an_unwritable_target_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        LocalTableStore(tmp_path / "file").put_log_if_absent(commit_name(0), b"x")


def test_a_missing_log_is_none_and_a_missing_file_too(tmp_path: Path) -> None:
    store = LocalTableStore(tmp_path)
    assert store.list_log() is None
    assert store.read_log(commit_name(0)) is None
    assert store.file_facts("x") is None


def test_file_uris_and_paths_mean_the_same_place(tmp_path: Path) -> None:
    place = tmp_path / "a b#c"
    assert open_store(str(place)).uri == str(place)
    assert open_store(f"file://{tmp_path}/a%20b%23c").uri == str(place)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000012.json", LogFileKind.COMMIT),
        ("00000000000000000012.checkpoint.parquet", LogFileKind.CLASSIC_CHECKPOINT),
        (
            "00000000000000000012.checkpoint.0000000001.0000000002.parquet",
            LogFileKind.MULTIPART_CHECKPOINT,
        ),
        (
            "00000000000000000012.checkpoint.2b50c93e-7959-463a-a99b-b886d8a9b496.json",
            LogFileKind.V2_CHECKPOINT,
        ),
        ("12.json", None),
        ("000000000000000000012.json", None),
        ("00000000000000000012.json.tmp", None),
        ("00000000000000000012.crc", None),
        ("_last_checkpoint", None),
    ],
)
def test_log_file_names(name: str, kind: LogFileKind | None) -> None:
    parsed = parse_log_file(name, 1, 2)
    assert (None if parsed is None else (parsed.kind, parsed.version)) == (
        None if kind is None else (kind, 12)
    )


def test_a_file_that_goes_away_while_it_is_listed_does_not_hide_the_log(tmp_path: Path) -> None:
    store = LocalTableStore(tmp_path)
    store.put_log_if_absent(commit_name(0), b"x")
    (tmp_path / "_delta_log" / ".00000000000000000001.json.gone.tmp").symlink_to("nowhere")
    listed = store.list_log()
    assert listed is not None
    assert [file.name for file in listed] == [commit_name(0)]
