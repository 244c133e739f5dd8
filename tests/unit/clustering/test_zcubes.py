from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.clustering.zcubes import cube_table, file_states, parse_zorder_by
from liquidlog.spec.schema import PrimitiveType
from support.snapshots import FileSpec, snapshot_of

LONG = PrimitiveType("long")
COLUMNS = (
    ClusteringColumn(("x",), ("col-x",), LONG),
    ClusteringColumn(("a b", "c"), ("col-ab", "col-c"), LONG),
)
TAG = '["x","`a b`.c"]'


def test_the_tag_holds_quoted_logical_names() -> None:
    assert parse_zorder_by(TAG) == ("x", "`a b`.c")


def test_tags_that_are_no_list_of_names_are_none() -> None:
    assert [parse_zorder_by(tag) for tag in ("x", "[]", "[1]", "{}", "")] == [None] * 5


def states(*files: FileSpec, min_cube_bytes: int = 100) -> list[str]:
    named = [FileSpec(**{**vars(file), "path": str(n)}) for n, file in enumerate(files)]
    found: list[str] = file_states(snapshot_of(named), COLUMNS, min_cube_bytes).to_pylist()
    return found


def file(**fields: object) -> FileSpec:
    return FileSpec(path="", **fields)  # type: ignore[arg-type]


def test_a_file_needs_both_tags_to_be_in_a_cube() -> None:
    assert states(
        file(),
        file(cube="a"),
        file(zorder_by=TAG),
        file(provider="liquid"),
        file(cube="b", zorder_by=TAG, size=1),
    ) == ["unclustered"] * 4 + ["partial"]


def test_a_cube_is_stable_from_the_minimum_on_by_logical_size() -> None:
    whole = file(cube="a", zorder_by=TAG, size=60)
    shrunk = file(cube="a", zorder_by=TAG, size=80, rows=10, deleted=5)
    unknown = file(cube="a", zorder_by=TAG, size=40, rows=None, deleted=5)
    assert states(whole, shrunk) == ["stable", "stable"]
    assert states(whole, shrunk, min_cube_bytes=101) == ["partial", "partial"]
    assert states(whole, unknown) == ["stable", "stable"]


def test_other_columns_other_order_and_broken_tags() -> None:
    tags = ('["`a b`.c","x"]', '["x"]', "not json", "[]")
    assert states(*(file(cube="a", zorder_by=tag) for tag in tags)) == ["other_columns"] * 4


def test_the_provider_decides_before_the_tags() -> None:
    assert states(
        file(provider="other"),
        file(provider="other", cube="a", zorder_by=TAG),
        file(provider="other", cube="a", zorder_by='["y"]'),
        file(cube="a", zorder_by=TAG),
    ) == ["other_provider"] * 3 + ["stable"]


def test_foreign_files_do_not_count_towards_a_cubes_size() -> None:
    mine = file(cube="a", zorder_by=TAG, size=60)
    foreign = file(cube="a", zorder_by=TAG, size=60, provider="other")
    assert states(mine, foreign) == ["partial", "other_provider"]


def test_the_cube_table_adds_up_and_names_the_unknown() -> None:
    files = [
        FileSpec(path="1", cube="b", zorder_by=TAG, size=60, provider="liquid", version=4),
        FileSpec(path="2", cube="b", zorder_by=TAG, size=60, deleted=5, version=3),
        FileSpec(path="3", cube="a", zorder_by='["y"]', size=7, rows=None, version=None),
        FileSpec(path="4", cube="a", size=9),
        FileSpec(path="5"),
    ]
    assert cube_table(snapshot_of(files), COLUMNS, 100).to_pylist() == [
        {
            "zcube_id": "a",
            "zorder_by": '["y"]',
            "provider": None,
            "files": 1,
            "size_bytes": 7,
            "logical_bytes": 7,
            "num_records": None,
            "state": "other_columns",
            "created_version": None,
        },
        {
            "zcube_id": "b",
            "zorder_by": TAG,
            "provider": "liquid",
            "files": 2,
            "size_bytes": 120,
            "logical_bytes": 90,
            "num_records": 20,
            "state": "partial",
            "created_version": 3,
        },
    ]


def test_a_table_without_files_has_no_states_and_no_cubes() -> None:
    assert states() == []
    assert cube_table(snapshot_of(), COLUMNS, 100).num_rows == 0
