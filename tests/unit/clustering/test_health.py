import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering import health as measures
from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import (
    Health,
    KeyRanges,
    box_overlaps,
    is_crossed,
    is_measured,
    measure_health,
    parse_bar,
)
from liquidlog.errors import UsageError
from liquidlog.snapshot import Snapshot
from support.snapshots import FileSpec, bounds_of, snapshot_of

DEEP = [FileSpec(path=f"{n:02d}", bounds={"x": (0, n)}) for n in range(20)]


def health(snapshot: Snapshot, mask: pa.BooleanArray | None = None) -> Health:
    columns = clustering_state(snapshot).columns
    bounds = bounds_of(snapshot)([column.leaf for column in columns])
    return measure_health(snapshot, columns, bounds, min_cube_bytes=150, mask=mask)


def test_files_without_a_range_are_left_out_and_told() -> None:
    files = [
        FileSpec(path="1", bounds={"x": (1, 2)}),
        FileSpec(path="2", rows=None),
        FileSpec(path="3", nulls={"x": 10}),
        FileSpec(path="4", bounds={"x": (1, 2)}, deleted=1),
        FileSpec(path="5", cube="c", zorder_by=("y",)),
        FileSpec(path="6", provider="other"),
    ]
    found = health(snapshot_of(files))
    assert (found.total_file_count, found.columns[0].files_with_stats) == (6, 2)
    assert found.average_depth == 2.0
    assert [note.split(",")[0] for note in found.notes] == [
        "3 files are without statistics for x",
        "1 file is with only nulls in x",
        "1 file is clustered by other columns; only a full rewrite takes them",
        "1 file is clustered by another implementation; only a full rewrite takes them",
        "1 file is with deleted rows; the ranges may be wider than the live rows",
    ]


def test_tables_near_guardrails_are_told() -> None:
    for files, rows, said in (
        (799, 10, None),
        (800, 10, "1,000 files and 300,000,000 rows on F2 to F32, and counts"),
        (4_000, 10, "F2 to F32, and 5,000 files and 1,500,000,000 rows on F64 to F256, and"),
        (1, 240_000_000, "F2 to F32, and counts"),
    ):
        specs = [FileSpec(path=str(n), bounds={"x": (n, n)}, rows=rows) for n in range(files)]
        notes = [note for note in health(snapshot_of(specs)).notes if "Direct Lake" in note]
        assert len(notes) == (said is not None)
        assert said is None or said in notes[0]


def test_files_inside_one_prefix_are_told_because_their_depth_is_a_lie() -> None:
    start = "https://example.com/articles/202"
    ends = [
        *[(start, start + "\x7f")] * 2,  # cut: a character more than 32, and ranges may be apart
        ("a", start + "\x7f"),
        (start, start),  # whole: one value of exactly 32 characters
    ]
    files = [FileSpec(path=str(n), bounds={"s": pair}) for n, pair in enumerate(ends)]
    found = health(snapshot_of(files, cluster_by=[["s"]]))
    assert (found.columns[0].files_in_one_prefix, found.constant_file_count) == (2, 1)
    first, second = found.notes
    assert first.startswith("4 files are with bounds of s cut")
    assert second.startswith("2 files are with all values of s beginning with the same")
    shorter = snapshot_of(
        [FileSpec(path="1", bounds={"s": ("abcde", "abcde\x7f")})],
        cluster_by=[["s"]],
        configuration={"delta.dataSkippingStringPrefixLength": "5"},
    )
    assert health(shorter).columns[0].files_in_one_prefix == 1


def test_bars() -> None:
    for text, crossed in (
        ("average_depth>8", True),
        (" max_depth >= 20 ", True),
        ("max_depth > 20", False),
        ("total_file_count<20.5", True),
        ("x.overlap_ratio==1", True),
        ("`X`.max_depth<2", False),
    ):
        assert is_crossed(parse_bar(text), health(snapshot_of(DEEP))) is crossed


@pytest.mark.parametrize(
    "text",
    ["", "max_depth", "max_depth>", "max_depth>x", "nope>1", "notes>1", "x.nope>1", "columns>1"],
)
def test_bars_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bar(text)


@pytest.mark.parametrize(
    ("files", "cluster_by", "bar", "why"),
    [
        (DEEP, None, "average_depth > 8", "no clustering columns; name columns with --columns"),
        ([], [["x"]], "max_depth > 8", "there are no files"),
        ([FileSpec(path="1")], [["x"]], "x.average_depth>1", "1 of 1 files have no range"),
        (DEEP, [["x"]], "average_depth_within_cubes > 1", "no file is in a cube"),
    ],
)
def test_a_bar_about_what_is_not_measured_is_refused_with_the_reason(
    files: list[FileSpec], cluster_by: list[list[str]] | None, bar: str, why: str
) -> None:
    measured = health(snapshot_of(files, cluster_by=cluster_by))
    assert not is_measured(parse_bar(bar), measured)
    with pytest.raises(UsageError, match="is not measured") as refused:
        is_crossed(parse_bar(bar), measured)
    assert why in refused.value.message


def test_a_bar_about_another_column_is_refused() -> None:
    measured = health(snapshot_of(DEEP))
    assert is_crossed(parse_bar("x.max_depth>1"), measured)
    with pytest.raises(UsageError):
        is_crossed(parse_bar("y.max_depth>1"), measured)


def test_the_error_band_of_a_sample_holds_the_exact_number(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = []
    for seed, width in enumerate((300, 700, 200)):
        low = np.random.default_rng(seed).integers(0, 4_000, 4_000)
        columns.append(KeyRanges(lo=low, hi=low + width))
    columns[0].hi[:40] = 5_000  # some files span everything, as after an append of all keys
    exact = box_overlaps(columns)
    assert (exact.error, exact.files_measured) == (0.0, 4_000)
    monkeypatch.setattr(measures, "EXACT_FILES", 100)
    monkeypatch.setattr(measures, "SAMPLED_FILES", 400)
    inside = 0
    for seed in range(40):
        monkeypatch.setattr(measures, "_SEED", seed)
        sampled = box_overlaps(columns)
        assert sampled.files_measured == 400
        assert 0 < sampled.error < exact.average / 5
        inside += abs(sampled.average - exact.average) <= sampled.error
    assert inside >= 34
