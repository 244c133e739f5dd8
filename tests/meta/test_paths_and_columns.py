"""Every public function takes a path as text or as a Path, and one column without a list."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import liquidlog
import liquidspark
from liquidspark import tables

PATHS = frozenset({"uri", "table", "path", "location", "checkpoint", "identifier", "data"})
"""Names of parameters that are places."""

COLUMNS = frozenset({"columns", "cluster_by", "zorder_by", "bloom_filter", "prefix", "unset"})
"""Names of parameters that are columns, or properties, of which one is enough."""

NAMES = frozenset({("DeltaTableBuilder.tableName", "identifier")})
"""Names in a catalog."""


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public function, method and class by its name."""
    for module in (liquidlog, liquidspark, tables):
        for name in module.__all__:
            yield from members(name, getattr(module, name))


def members(name: str, found: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    if isinstance(found, ModuleType) or not callable(found):
        return
    if not inspect.isclass(found):
        yield name, found
        return
    if not issubclass(found, msgspec.Struct):  # documents, which are made by what is tested here
        yield name, found
    for method, value in inspect.getmembers(found, callable):
        if not method.startswith("_"):
            yield f"{name}.{method}", value


def parameters() -> Iterator[tuple[str, str, str]]:
    for name, function in public():
        try:
            signature = inspect.signature(function)
        except ValueError:  # a class that is written in C
            continue
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            if parameter.kind is parameter.VAR_KEYWORD and get_args(parameter.annotation):
                (settings,) = get_args(parameter.annotation)
                for setting, kind in get_type_hints(settings).items():
                    yield name, setting, inspect.formatannotation(kind)
                continue
            annotation = parameter.annotation
            text = (
                annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            )
            yield name, parameter.name, text


PLACES = [
    one
    for one in parameters()
    if one[1] in PATHS and one[:2] not in NAMES and not one[2].endswith((".Table", "Table | None"))
]
LISTS = [one for one in parameters() if one[1] in COLUMNS]


@pytest.mark.parametrize(("function", "parameter", "kind"), PLACES, ids=lambda one: one[:30])
def test_a_place_is_text_or_a_path(function: str, parameter: str, kind: str) -> None:
    assert "PathLike[str]" in kind, (function, parameter)


@pytest.mark.parametrize(("function", "parameter", "kind"), LISTS, ids=lambda one: one[:30])
def test_one_column_needs_no_list(function: str, parameter: str, kind: str) -> None:
    assert "str |" in kind, (function, parameter)


def test_the_names_are_those_that_functions_have() -> None:
    found = {parameter for _, parameter, _ in parameters()}
    assert PATHS - found == set()
    assert COLUMNS - found == set()
