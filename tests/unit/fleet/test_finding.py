"""Tables are found by addresses and globs, each once; nothing inside a table is looked at."""

from pathlib import Path

import pytest

from liquidlog.errors import UsageError
from liquidlog.fleet.finding import find_tables
from liquidlog.storage.options import NO_OPTIONS

TABLES = ("a", "b", "deep/c", "deep/er/d", "deep/er/d/inner", "_hidden/e", ".hid/f", "odd [x]/g")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    for name in TABLES:
        (root / name / "_delta_log").mkdir(parents=True)
        (root / name / "_delta_log" / f"{0:020d}.json").write_text("{}")
    (root / "nothing" / "_delta_log").mkdir(parents=True)
    (root / "file").write_text("")
    (root / "deep" / "loop").symlink_to(root / "deep")
    return root


def found(lake: Path, *wanted: str, excluded: tuple[str, ...] = ()) -> list[str]:
    return [
        one.address.removeprefix(f"{lake}/") if one.problem is None else f"? {one.problem}"
        for one in find_tables(
            [f"{lake}/{name}" for name in wanted],
            [f"{lake}/{name}" for name in excluded],
            NO_OPTIONS,
        )
    ]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("a", ["a"]),
        ("missing", ["missing"]),
        ("*", ["a", "b"]),
        ("[!a]", ["b"]),
        ("?", ["a", "b"]),
        ("deep/*", ["deep/c"]),
        ("*/*", ["deep/c", "odd [x]/g"]),
        ("**", ["a", "b", "deep/c", "deep/er/d", "odd [x]/g"]),
        ("**/d", ["deep/er/d"]),
        ("deep/**", ["deep/c", "deep/er/d"]),
        ("deep/**/", ["deep/c", "deep/er/d"]),
        ("**/er/*", ["deep/er/d"]),
        ("deep/loop/*", ["deep/loop/c"]),
    ],
)
def test_what_a_glob_finds(lake: Path, glob: str, expected: list[str]) -> None:
    assert found(lake, glob) == expected


def test_each_table_is_found_once_in_the_order_asked_for(lake: Path) -> None:
    assert found(lake, "deep/c", "*", "**") == ["deep/c", "a", "b", "deep/er/d", "odd [x]/g"]


def test_what_matches_nothing_is_a_problem(lake: Path) -> None:
    (problem,) = found(lake, "x*")
    assert problem == f"? no table is at {lake}/x*"
    (problem,) = found(lake, "file/*")
    assert problem.startswith("? no table is at")


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        (("a",), ["b", "deep/c", "deep/er/d", "odd [x]/g"]),
        (("deep",), ["a", "b", "odd [x]/g"]),
        (("deep/*",), ["a", "b", "odd [x]/g"]),
        (("**/d",), ["a", "b", "deep/c", "odd [x]/g"]),
        (("[ab]", "odd*"), ["deep/c", "deep/er/d"]),
        (("ab", "dee"), ["a", "b", "deep/c", "deep/er/d", "odd [x]/g"]),
    ],
)
def test_excluded_tables_and_directories(
    lake: Path, excluded: tuple[str, ...], left: list[str]
) -> None:
    assert found(lake, "**", excluded=excluded) == left


def test_a_wildcard_in_a_bucket_is_refused() -> None:
    with pytest.raises(UsageError, match="bucket"):
        find_tables(["s3://buck*/x"], [], NO_OPTIONS)


def test_relative_globs_are_of_the_working_directory(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake / "deep")
    assert [one.address for one in find_tables(["*"], [], NO_OPTIONS)] == [f"{lake}/deep/c"]
