"""Every argument of the Python API: a text is one item, and a wrong value is a UsageError."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import liquidlog
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.table import Table
from liquidspark import execute, execute_groups
from support.arrow_executor import execute as rewritten
from support.repository import committed_files

NOT_TEXT = (5, 1.5, b"x", ["x"], {"x": "y"}, object())
NOT_TEXTS = (5, b"x", [None], [b"x"], ["x", None], {"x": 1}, {"x"}, [["x"]], object())
NOT_WHOLE = ("1", 1.5, True, -1, b"1", [1], object())
NOT_SIZE: tuple[object, ...] = ("big", b"1KiB", "-1", 0, "", [1], {}, object())
NOT_MAPPING = (5, "a=b", ["a"], [("a", "b")], {"a": 1}, {1: "a"}, {"a": None}, object())
NOT_OBJECT = (5, "plan.json", b"x", [1], object())
NOT_QUERIES = (5, "no/such.sql", b"x", [1], "", object())
_SOURCES = "Source | PathLike[str] | Sequence[Source | PathLike[str]]"
WRONG: Mapping[str, tuple[object, ...]] = {
    "str": NOT_TEXT,
    "str | None": NOT_TEXT,
    "str | PathLike[str]": (*NOT_TEXT, "", " ", "a\0b"),
    "str | PathLike[str] | None": (*NOT_TEXT, "", " ", "a\0b"),
    "str | datetime": NOT_TEXT,
    "str | Sequence[str]": NOT_TEXTS,
    "str | Sequence[str] | None": NOT_TEXTS,
    _SOURCES: (*NOT_TEXTS, [], ()),
    "int": NOT_WHOLE,
    "int | None": NOT_WHOLE,
    "int | Collection[int] | None": ("01", "0", [None], [7], 7, b"0", 1.5, object()),
    "float | None": ("1", True, b"1", [1], float("nan"), -1, object()),
    "int | str": NOT_SIZE,
    "int | str | None": NOT_SIZE,
    "Mapping[str, str]": NOT_MAPPING,
    "Mapping[str, str] | None": NOT_MAPPING,
    "Mapping[str, str] | Callable[[], Mapping[str, str]] | None": NOT_MAPPING,
    "Sequence[WeightedPredicate | str] | str | PathLike[str]": NOT_QUERIES,
    "Sequence[WeightedPredicate | str] | str | PathLike[str] | None": NOT_QUERIES,
    "ClusteringPlan": NOT_OBJECT,
    "ClusteringPlan | None": NOT_OBJECT,
    "RewriteResult": NOT_OBJECT,
    "StructType | Schema | None": NOT_OBJECT,
    "StructType | Schema": (*NOT_OBJECT, None),
    "Table | None": NOT_OBJECT,
    "StructType": NOT_OBJECT,
    "WritePlan": NOT_OBJECT,
    "WriteResult": NOT_OBJECT,
    "tuple[str, int] | None": (5, "job", ("job",), ("job", "1"), (1, "job"), object()),
    "Advice": NOT_OBJECT,
    "AdviceDocument | None": NOT_OBJECT,
    "ExecutorOptions": (*NOT_OBJECT, None, {"task_bytes": 1}),
}
"""Values that a parameter of this type must refuse."""
TRUSTED = (
    *("bool", "object", "Callable", "Iterable"),
    *("CommitReport", "Snapshot", "Prediction", "GroupWatch"),
)
"""Beginnings of types whose values are not looked at: flags, callbacks, sessions, what the API
returned."""
MIGRATING = ("migrate", "plan_migration")
"""Methods for tables that are partitioned."""
MAKING = ("open", "create")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arguments")


@pytest.fixture(scope="module")
def table(home: Path) -> Table:
    made = Table.create(
        home / "t",
        schema=pa.schema([("sx", pa.int64()), ("s", pa.string()), ("x", pa.int64())]),
        cluster_by=["s", "x"],
        properties={"delta.columnMapping.mode": "name"},
    )
    made.append(pa.table({"sx": [1], "s": ["a"], "x": [1]}))
    return made


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, function in inspect.getmembers(Table, callable):
        if not name.startswith("_") and name not in {"of", "opened"}:
            yield name, function
    yield "execute", execute
    yield "execute_groups", execute_groups


def parameters() -> Iterator[tuple[str, str, str]]:
    for name, function in functions():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in {"self", "spark"}:
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                (settings,) = get_args(parameter.annotation)
                for setting, kind in get_type_hints(settings).items():
                    yield name, setting, _annotation(kind)
            else:
                yield name, parameter.name, _annotation(parameter.annotation)


def _annotation(found: object) -> str:
    if isinstance(found, str):
        return found
    text = inspect.formatannotation(found)
    return re.sub(r"\b(?:(?:collections|liquid\w+|pyarrow)\.)?(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)


@pytest.fixture(scope="module")
def ready(table: Table, home: Path) -> dict[str, Any]:
    """Return values that every required parameter of these names takes."""
    plan = table.plan()
    return {
        "uri": home / "t",
        "schema": pa.schema([("x", pa.int64())]),
        "columns": ["x"],
        "cluster_by": ["x"],
        "partitioned": partitioned(home),
        "data": pa.table({"sx": [1], "s": ["a"], "x": [1]}),
        "dry_run": True,
        "where": "x = 1",
        "old": "x",
        "new": "y",
        "name": "sx",
        "properties": {"a": "b"},
        "timestamp": "2026-01-31",
        "plan": plan,
        "result": rewritten(plan),
        "workload": (WeightedPredicate("sx = 1"),),
        "version": 1,
        "report": None,
        "groups": None,
    }


def partitioned(home: Path) -> Table:
    """Return a new table that can be migrated."""
    where = home / f"new{len(list(home.iterdir()))}"
    rows = pa.table({"sx": [1], "s": [1], "x": [1], "day": [1]})
    write_deltalake(str(where), rows, partition_by=["day"])
    return Table.open(where)


def test_every_type_of_a_parameter_is_known() -> None:
    kinds = {kind for _, _, kind in parameters()}
    known = {kind for kind in kinds if kind in WRONG or kind.startswith(TRUSTED)}
    assert kinds - known == set()


def test_wrong_values_are_usage_errors(table: Table, ready: dict[str, Any]) -> None:
    cases = {(name, parameter, kind) for name, parameter, kind in parameters() if kind in WRONG}
    taken = [
        (name, parameter, wrong)
        for name, parameter, kind in sorted(cases)
        for wrong in WRONG[kind]
        if not _is_refused(table, ready, name, {parameter: wrong})
    ]
    assert taken == []
    assert len(cases) > 150


def _is_refused(table: Table, ready: dict[str, Any], name: str, given: dict[str, Any]) -> bool:
    (wrong,) = given.values()
    try:
        _call(table, ready, name, given)
    except UsageError as error:
        return type(wrong).__name__ != "object" or "object at 0x" not in error.message
    return False


def _call(table: Table, ready: dict[str, Any], name: str, given: dict[str, Any]) -> Any:
    function = dict(functions())[name]
    values: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        required = (
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        )
        if parameter.name == "dry_run" or (required and parameter.name in ready):
            values[parameter.name] = ready[parameter.name]
    if name == "scan" and "where" not in given:
        values["where"] = "x = 1" if "workload" not in given else None
    if name == "create" and not {"schema", "like"} & given.keys():
        values["schema"] = ready["schema"]
    if name == "create" and "uri" not in given:
        values["uri"] = Path(ready["uri"]).parent / "new"
    values.update(given)
    if name in {"drop_column", "fix"}:
        return getattr(table, name)(cast("str", values.pop("names")), **values)
    if name == "execute_groups":
        return list(function(None, **values))
    if name == "execute":
        return function(None, **values)
    own = ready["partitioned"] if name in MIGRATING else table
    return (getattr(Table, name) if name in MAKING else function.__get__(own))(**values)


def test_a_text_is_one_item(table: Table, ready: dict[str, Any], home: Path) -> None:
    """Letters of a name would be looked for one by one, and `s` and `x` are there."""
    kinds = {"str | Sequence[str]", "str | Sequence[str] | None"}
    lists = {(name, parameter) for name, parameter, kind in parameters() if kind in kinds}
    split = []
    for name, parameter in sorted(lists - {("set_properties", "unset")}):
        of = partitioned(home) if parameter == "zorder_by" else table
        needed = {"cluster_by": "x"} if name in MIGRATING else {}
        try:
            _call(of, ready, name, {**needed, parameter: "sxsx"})
        except LiquidlogError as error:
            if "sxsx" in error.message:
                continue
        split.append((name, parameter))
    assert not split, split
    assert len(lists) > 8


def test_a_path_is_one_source(table: Table, home: Path) -> None:
    path = home / "source.parquet"
    pq.write_table(pa.table({"sx": [1], "s": ["a"], "x": [1]}), path)
    for data in (path, str(path), [path], [str(path)]):
        assert table.append(data, dry_run=True).rows == 1
    assert Table.open(home / "t").detail() == Table.open(str(home / "t")).detail()


# What a user imports is public, is there, and is what documents import.


PUBLIC = (
    *("liquidlog", "liquidlog.errors", "liquidlog.plan", "liquidlog.table"),
    *("liquidspark", "liquidspark.tables"),
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    path
    for path in committed_files()
    if path.suffix == ".md" and "adr" not in path.parts and "fixtures" not in path.parts
]


def _imports(document: Path) -> set[tuple[str, str]]:
    """Return (module, name) of every import of ours in the Python blocks of a document."""
    trees = [ast.parse(block) for block in BLOCK.findall(document.read_text(encoding="utf-8"))]
    return {
        (node.module, name.name)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("liquid")
        for name in node.names
    }


def _public(name: str) -> set[str]:
    """Return the names that a module lists, or else those that it defines."""
    module = import_module(name)
    named = (each for each in vars(module).items() if not each[0].startswith("_"))
    own = {each for each, value in named if getattr(value, "__module__", name) == name}
    return set(getattr(module, "__all__", own))


def test_public_modules_have_what_they_list() -> None:
    for name in PUBLIC:
        assert [each for each in _public(name) if not hasattr(import_module(name), each)] == []


def test_documents_import_public_names_only() -> None:
    found = set[tuple[str, str]]().union(*map(_imports, DOCUMENTS))
    assert ("liquidlog", "Table") in found
    hidden = [
        (module, name)
        for module, name in found
        if module not in PUBLIC or name not in _public(module)
    ]
    assert hidden == []


@pytest.mark.parametrize("name", ["liquidlog", "liquidspark"])
def test_packages_show_their_public_names(name: str) -> None:
    module = import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert "__version__" in dir(module)


def test_modules_say_which_modules_are_public() -> None:
    said = re.findall(r"`(liquid[\w.]+)`", liquidlog.__doc__ or "")
    assert sorted({*said, "liquidlog"}) == sorted(PUBLIC)
