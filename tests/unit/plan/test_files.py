"""A plan's files in columns read like a tuple of structs, from memory as from a document."""

import json
import pickle

import pytest

from liquidlog.errors import DocumentError
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    InputFiles,
    PlannedDeletionVector,
    SkippedFile,
    SkippedFiles,
    SkipReason,
    decode_plan,
    encode_plan,
)
from support.plans import make_plan, schema_json_of

VECTOR = PlannedDeletionVector(
    storage_type="u", path_or_inline_dv="abc", offset=None, size_bytes=2, cardinality=3
)
FILES = (
    InputFile(path="a", size_bytes=10, num_records=7, deletion_vector=VECTOR),
    InputFile(path="b c", size_bytes=20, base_row_id=5, default_row_commit_version=1),
    InputFile(path="d", size_bytes=30),
)
LEFT = tuple(SkippedFile(path=reason.value, size_bytes=1, reason=reason) for reason in SkipReason)


def test_files_in_columns_read_like_a_tuple() -> None:
    inputs = InputFiles.of(FILES)
    assert tuple(inputs) == FILES
    assert (len(inputs), inputs.size_bytes) == (3, 60)
    assert (inputs[0], inputs[-1]) == (FILES[0], FILES[-1])
    assert tuple(inputs[1:]) == FILES[1:]
    assert tuple(inputs[::-2]) == FILES[::-2]
    assert FILES[1] in inputs
    assert (inputs.named("b c"), inputs.named("x")) == (InputFiles.of(FILES[1:2]), InputFiles.of())
    assert inputs.named(None) == inputs != InputFiles.of(FILES[::-1])
    assert hash(InputFiles.of(FILES)) == hash(inputs) != hash(inputs[1:])
    assert inputs != FILES
    assert pickle.loads(pickle.dumps(inputs)) == inputs  # noqa: S301  our own
    with pytest.raises(IndexError):
        inputs[3]


def test_every_reason_to_skip_is_kept() -> None:
    skipped = SkippedFiles.of(LEFT)
    assert tuple(skipped) == LEFT
    assert all(type(file.reason) is SkipReason for file in skipped)


def test_files_survive_their_document(plan: ClusteringPlan) -> None:
    again = decode_plan(encode_plan(plan), where="plan")
    assert again == plan
    assert tuple(again.groups[0].inputs) == FILES


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size_bytes", "10"),
        ("size_bytes", 1 << 70),
        ("path", None),
        ("deletion_vector", {"storage_type": "u"}),
    ],
)
def test_a_document_with_a_broken_file_is_refused(
    plan: ClusteringPlan, field: str, value: object
) -> None:
    document = json.loads(encode_plan(plan))
    assert decode_plan(json.dumps(document).encode(), where="plan.json") == plan
    document["groups"][0]["inputs"][1][field] = value
    with pytest.raises(DocumentError) as refused:
        decode_plan(json.dumps(document).encode(), where="plan.json")
    assert refused.value.path == "plan.json"
    assert "groups" in refused.value.detail


@pytest.fixture
def plan(tmp_path_factory: pytest.TempPathFactory) -> ClusteringPlan:
    directory = tmp_path_factory.mktemp("table")
    return make_plan(directory, schema_json_of({"x": "long"}), [(FILES, 1)])
