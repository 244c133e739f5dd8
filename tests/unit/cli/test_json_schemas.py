"""Every document that `--json` prints is one of its schema in docs/reference/json."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from liquidlog.cli.main import cli
from support.json_documents import documents
from support.repository import ROOT

SCHEMAS = {path.stem: path for path in (ROOT / "docs" / "reference" / "json").glob("*.json")}


def _schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SCHEMAS[name].read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Mapping[str, Any]]]:
    """Return real documents of every verb."""
    home = tmp_path_factory.mktemp("documents")
    with chdir(home):
        return documents(home)


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema in it that stands for a value."""
    yield schema
    children: list[Any] = [*schema.get("properties", {}).values()]
    children += schema.get("patternProperties", {}).values()
    children += schema.get("$defs", {}).values()
    children += (schema[key] for key in ("items", "additionalProperties", "else") if key in schema)
    for child in children:
        if isinstance(child, dict):
            yield from _parts(child)


def test_every_verb_that_has_json_has_a_schema() -> None:
    with_json = {
        name
        for name, command in cli.commands.items()
        if any("--json" in option.opts for option in command.params)
    }
    # sql prints the documents of other verbs, and its own of ALTER TABLE.
    others = {"error", "alter", "cubes", "explain"}
    assert set(SCHEMAS) == {*with_json, *others} - {"sql"}


def test_documents_are_of_their_schema(
    printed: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    wrong = [
        f"{name} {error.json_path}: {error.message}"
        for name in SCHEMAS
        for document in printed[name]
        for error in Draft202012Validator(_schema(name)).iter_errors(document)
    ]
    assert wrong == []
    assert [name for name in SCHEMAS if not printed[name]] == []


def test_schemas_are_valid_and_describe_every_field() -> None:
    for name in SCHEMAS:
        Draft202012Validator.check_schema(_schema(name))
    undescribed = [
        (name, field)
        for name in SCHEMAS
        for part in _parts(_schema(name))
        for field, value in part.get("properties", {}).items()
        if not value.get("description", value.get("$ref"))
    ]
    assert undescribed == []


def test_every_object_says_which_fields_it_may_have() -> None:
    for name in SCHEMAS:
        for part in _parts(_schema(name)):
            kinds = part.get("type", ())
            if "object" in ([kinds] if isinstance(kinds, str) else kinds):
                assert "additionalProperties" in part or "else" in part, (name, part)


def test_every_field_of_a_schema_occurs(
    printed: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    unseen = {
        name: missing
        for name in SCHEMAS
        if (missing := set(_fields(_schema(name))) - set(_seen(printed[name])))
    }
    assert unseen == {}


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    for part in _parts(schema):
        yield from part.get("properties", {})


def _seen(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from _seen(child)
