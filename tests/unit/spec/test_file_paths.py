import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.errors import CorruptLogError
from liquidlog.spec import paths as paths_module
from liquidlog.spec.paths import (
    are_plain,
    canonical_path,
    canonical_paths,
    named_twice,
    names_in_table,
    normal_path,
    normal_paths,
)


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("a+b#c?d", "a+b#c?d"),
        ("a%23b%3Fc%25", "a#b?c%"),
        ("d=%C3%A9/x", "d=é/x"),
        ("x/../a", "a"),
        ("x/%2E%2E/a", "x/../a"),
        ("x/a/", "x/a/"),
        ("..a/.b", "..a/.b"),
        ("file:/d/x", "/d/x"),
        ("file:///d/x", "/d/x"),
        ("file:////d/x", "/d/x"),
        ("file:/d/q/../x", "/d/x"),
        ("file:///d/x%2520y/%23", "/d/x%20y/#"),
        ("%2Fd%2Fx", "/d/x"),
        ("file://host/d/x", "file://host/d/x"),
        ("//host/x", "//host/x"),
        ("s3://b/k%20/%25", "s3://b/k /%"),
        ("S3A://b/k", "s3a://b/k"),
        ("abfss://c@a.dfs/k//x", "abfss://c@a.dfs/k/x"),
        ("a:b/c", "a:b/c"),
        ("file%3A/d/x", "./file:/d/x"),
        ("s3%3A//b/k", "./s3:/b/k"),
        ("x/s3%3A//b", "x/s3:/b"),
        ("", ""),
    ],
)
def test_a_path_has_one_canonical_form(spelled: str, canonical: str) -> None:
    assert canonical_path(spelled) == canonical
    assert canonical_paths(pa.array(["z", spelled])).to_pylist() == ["z", canonical]


def test_bytes_that_are_no_text_are_refused() -> None:
    for read in (canonical_path, lambda path: canonical_paths(pa.array([path]))):
        with pytest.raises(CorruptLogError):
            read("x/a%FF")


_PATHS = st.lists(
    st.lists(
        st.sampled_from(
            [
                "file:",
                "s3:",
                "s3a:",
                "/",
                "//",
                ".",
                "..",
                "a",
                "a b",
                "é",
                "%20",
                "%2F",
                "%3A",
                ":",
            ]
        ),
        max_size=7,
    ).map("".join),
    max_size=8,
)


@given(paths=_PATHS, skipped=st.integers(0, 3), chunks=st.booleans())
def test_many_paths_are_as_each_alone(paths: list[str], skipped: int, *, chunks: bool) -> None:
    array = pa.array(paths, pa.string()).slice(min(skipped, len(paths)))
    given_paths = pa.chunked_array([array, array]) if chunks else array
    expected = [canonical_path(path) for path in given_paths.to_pylist()]
    assert canonical_paths(given_paths).to_pylist() == expected
    assert normal_paths(given_paths).to_pylist() == [
        normal_path(p) for p in given_paths.to_pylist()
    ]


def test_what_stands_across_the_steps_of_the_look_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths_module, "_LOOK_BYTES", 64)
    for spelled in ("%20", "//", "/./", "file:/x"):
        for shift in range(8):
            long = "x" * (64 - shift)
            found = canonical_paths(pa.array([long, spelled + "a"])).to_pylist()
            assert found == [long, canonical_path(spelled + "a")]


@pytest.mark.parametrize(
    ("uri", "paths", "twice"),
    [
        ("/t", ["a", "/t/a", "b", "/u/b"], ("a",)),
        ("/t", ["a", "/u/a", "/t/b", "t/a"], ()),
        ("/t/u", ["a", "../u/a", "../v/a"], ("a",)),
        ("/", ["t/a", "/t/a"], ("t/a",)),
        ("s3://b/t", ["a", "s3a://b/t/a"], ("a",)),
        ("s3://b/t", ["s3a://b/u/a", "s3://b/u/a"], ("s3://b/u/a",)),
        ("s3://b/t", ["a", "s3://b/u/a", "s3://b/u/a"], ()),
        ("/t", ["a+b", "a%2Bb", "c%20d", "c%20d"], ("a+b",)),
    ],
)
def test_a_file_named_in_two_ways_is_found(
    uri: str, paths: list[str], twice: tuple[str, ...]
) -> None:
    assert named_twice(pa.array(paths), uri) == twice


def test_a_file_of_the_table_has_its_name_however_it_is_named() -> None:
    paths = pa.array(["a b", "/t/u/c", "/t/uv", "../u/d", "../v/e", "s3a://b/f"])
    below = ["a b", "c", "/t/uv", "d", "../v/e", "s3a://b/f"]
    assert names_in_table(paths, "/t/u").to_pylist() == below
    assert names_in_table(paths, "s3://b").to_pylist()[-1] == "f"


@given(paths=_PATHS)
def test_plain_paths_are_canonical_as_they_stand_and_each_is_a_file(paths: list[str]) -> None:
    array = pa.array(sorted(set(paths)), pa.string())
    if are_plain(array):
        assert canonical_paths(array).equals(array)
        assert names_in_table(array, "/t").equals(array)
        assert named_twice(array, "/t") == ()
        assert not any(path.startswith("/") for path in array.to_pylist())


def test_names_that_engines_give_are_plain() -> None:
    name = "part-00000-2f0e3a4b-0000-4000-8000-5c1d2e3f4a5b-c000.snappy.parquet"
    assert are_plain(pa.array([name, f"x=1/{name}", f"aB/{name}", None]))
    for odd in ("a%20b", "/t/a", "./a", "a//b", "a/./b", "a/../b", "../a", "file:/a", "s3://b/a"):
        assert not are_plain(pa.array([name, odd]))
