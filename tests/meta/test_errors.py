"""All errors: their codes, their fields as documents, and their copies."""

import copy
import inspect
import json
import pickle
from collections.abc import Callable

import pytest

from liquidlog import errors
from liquidlog.errors import Conflict, LiquidlogError
from liquidlog.report.jsonable import render_json
from support.error_examples import CONFLICTS, EXAMPLES, SCHEMA_PROBLEMS
from support.repository import text

Copy = Callable[[LiquidlogError], LiquidlogError]


def _classes() -> dict[str, type[LiquidlogError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, LiquidlogError)
    }


def _conflict_classes(root: type[Conflict] = Conflict) -> set[type[Conflict]]:
    return {root}.union(*(_conflict_classes(child) for child in root.__subclasses__()))


def test_codes_are_unique() -> None:
    codes = [value.code for value in _classes().values()]
    assert sorted(codes) == sorted(set(codes))


def test_there_is_an_example_of_every_error_and_every_conflict() -> None:
    assert [type(example) for example in EXAMPLES] == list(_classes().values())
    # A dataclass with slots is made twice; the first one stays among the subclasses.
    names = {found.__name__ for found in _conflict_classes()} - {Conflict.__name__}
    assert {type(conflict).__name__ for conflict in CONFLICTS} == names
    assert len({conflict.kind for conflict in CONFLICTS}) == len(CONFLICTS)


def test_document_has_every_field() -> None:
    for error in EXAMPLES:
        document = json.loads(render_json({"error": error}))["error"]
        assert (document["code"], document["message"]) == (error.code, str(error))
        assert set(document) == {"code", "message", *error.fields}
        assert "arguments" not in document


def test_conflicts_are_documents_in_json() -> None:
    document = json.loads(render_json({"error": errors.CommitConflictError(6, CONFLICTS)}))["error"]
    first, *_, last = document["conflicts"]
    assert first == {
        "kind": "concurrent_delete_read",
        "message": str(CONFLICTS[0]),
        "version": 8,
        "paths": ["a.parquet", "b.parquet"],
    }
    assert last["group_id"] == 3
    assert last["conflict"]["kind"] == "metadata_changed"


def test_schema_problems_are_sentences_and_documents_in_json() -> None:
    document = json.loads(render_json({"error": errors.SchemaChangeError(SCHEMA_PROBLEMS)}))[
        "error"
    ]
    assert document["problems"] == [str(problem) for problem in SCHEMA_PROBLEMS]
    first, last = document["reasons"]
    assert first == {"kind": "column_exists", "message": document["problems"][0], "column": "x"}
    assert last == {
        "kind": "feature_missing",
        "message": document["problems"][1],
        "property": "delta.enableDeletionVectors",
        "feature": "deletionVectors",
    }


def test_the_schema_of_errors_names_every_kind_of_schema_problem() -> None:
    schema = json.loads(text("docs/reference/json/error.json"))
    kinds = schema["$defs"]["schema_problem"]["properties"]["kind"]["enum"]
    assert kinds == [kind.value for kind in errors.SchemaProblemKind]


def _pickled(error: LiquidlogError, protocol: int | None = None) -> LiquidlogError:
    again = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  our own bytes
    assert isinstance(again, LiquidlogError)
    return again


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, _pickled])
def test_errors_survive_copying_and_pickling(again: Copy) -> None:
    for error in EXAMPLES:
        error.add_note("seen while planning")
        _assert_same(again(error), error)


def _assert_same(one: LiquidlogError, other: LiquidlogError) -> None:
    assert type(one) is type(other)
    assert str(one) == str(other) == other.message
    assert vars(one) == vars(other)
    assert one.args == other.args
    assert (one.exit_status, one.document()) == (other.exit_status, other.document())
