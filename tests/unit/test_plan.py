"""Documents of earlier releases: read where they still mean what they say, else refused."""

import json
import pickle
from contextlib import nullcontext as _nothing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.errors import DocumentError, ExecutorError, UsageError
from liquidlog.plan import (
    AskedPredicate,
    ClusteringPlan,
    FittedWorkload,
    InputFile,
    InputFiles,
    Interval,
    PlannedDeletionVector,
    SkippedFile,
    SkippedFiles,
    SkipReason,
    Term,
    decode_plan,
    decode_result,
    encode_plan,
    encode_rewritten_group,
    parsed_as,
    plan_document,
    plan_pieces,
    weighted_columns,
)
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.rewriting.groups import GroupRun
from liquidlog.table import Table
from support.plans import finished, make_plan, schema_json_of


def test_a_result_with_copied_row_groups_is_refused_with_what_to_do() -> None:
    group = finished()
    line = encode_rewritten_group(group)
    assert decode_result(line, where="result.jsonl").groups == (group,)
    document = json.loads(line)
    document["copied"] = {"row_groups": 1, "rows": 0}
    with pytest.raises(DocumentError, match=r"line 1: .*run the plan again"):
        decode_result(json.dumps(document).encode(), where="result.jsonl")


def test_a_plan_comes_in_pieces_with_a_line_for_each_file(tmp_path: Path) -> None:
    hostile = '      "inputs": -0,\n  "skipped": -0'
    files = tuple(
        InputFile(path=f'{number} "quoted"\\{hostile}', size_bytes=number)
        for number in range(20_000)
    )
    vector = PlannedDeletionVector(
        storage_type="u", path_or_inline_dv="-0", size_bytes=1, cardinality=2
    )
    other = InputFile(path="é", size_bytes=1, deletion_vector=vector)
    made = make_plan(tmp_path, schema_json_of({"x": "long"}), [(files, 3), ((other,), 1), ((), 1)])
    left = SkippedFile(path="left", size_bytes=1, reason=SkipReason.LONE_FILE)
    made = structs.replace(
        made,
        table_uri=hostile,
        notes=(hostile,),
        decided_by={hostile: "-0"},
        skipped=SkippedFiles.of([left]),
    )
    pieces = list(plan_pieces(made))
    assert max(map(len, pieces)) < sum(map(len, pieces)) / 2
    content = b"".join(pieces)
    assert content == encode_plan(made)
    assert decode_plan(content, where="plan.json") == made
    assert json.loads(content) == json.loads(msgspec.json.encode(plan_document(made)))
    assert content.count(b'\n        {"path":') == len(files) + 1


# A plan's files in columns read like a tuple of structs, from memory as from a document.


VECTOR = PlannedDeletionVector(
    storage_type="u", path_or_inline_dv="abc", offset=None, size_bytes=2, cardinality=3
)
FILES = (
    InputFile(path="a", size_bytes=10, num_records=7, deletion_vector=VECTOR),
    InputFile(path="b c", size_bytes=20, base_row_id=5, default_row_commit_version=1),
    InputFile(path="d", size_bytes=30),
)


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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size_bytes", "10"),
        ("size_bytes", 1 << 70),
        ("path", None),
        ("deletion_vector", {"storage_type": "u"}),
    ],
)
def test_documents_of_broken_files_refused(plan: ClusteringPlan, field: str, value: object) -> None:
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


# What readers ask, in plans: saved, read again, refused where it is no workload.


SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string()), ("y", pa.int64())])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table.create(tmp_path_factory.mktemp("t"), schema=SCHEMA, cluster_by=["x", "s"])
    for first in range(3):
        made.append(pa.table({"x": [first, 5], "s": ["a", "b"], "y": [1, 2]}, schema=SCHEMA))
    return made


def test_a_fitted_plan_is_read_as_it_was_written(table: Table) -> None:
    asked = (WeightedPredicate("x < 3 AND s >= 'a'"), WeightedPredicate("y = 1"))
    plan = table.plan(workload=asked, prefix="S")
    assert plan.prefix == (1,)
    assert plan.policy.prefix == (("s",),)
    assert plan.readers is not None
    assert [one.share for one in plan.readers.left_out] == [0.5]
    assert decode_plan(encode_plan(plan), where="here") == plan


@pytest.mark.parametrize("prefix", ["y", "nope", ["x", "X"]])
def test_a_prefix_must_be_of_clustering_columns(table: Table, prefix: Any) -> None:
    with pytest.raises(UsageError, match="prefix names"):
        table.plan(prefix=prefix)


WRONG = [
    FittedWorkload(predicates=(AskedPredicate(weight=1.0, any_of=()),)),
    FittedWorkload(predicates=(AskedPredicate(weight=1.0, any_of=((),)),)),
    FittedWorkload(
        predicates=(AskedPredicate(weight=1.0, any_of=((Term(column=0, intervals=()),),)),)
    ),
    *(
        FittedWorkload(
            predicates=(
                AskedPredicate(
                    weight=weight, any_of=((Term(column=column, intervals=(Interval(low=low),)),),)
                ),
            )
        )
        for weight, column, low in [
            (0.0, 0, "1"),
            (1.0, 2, "1"),
            (1.0, -1, "1"),
            (1.0, 0, "a"),
            (1.0, 0, "9" * 30),
        ]
    ),
    FittedWorkload(column_weights=(1.0,)),
]


@pytest.mark.parametrize("fitted", WRONG)
def test_an_executor_refuses_what_is_no_workload(table: Table, fitted: FittedWorkload) -> None:
    plan = structs.replace(table.plan(), fitted=fitted)
    with pytest.raises(ExecutorError, match="fitted workload is not valid"):
        GroupRun(plan=plan, group=plan.groups[0]).check()


def test_an_executor_refuses_a_prefix_of_other_columns(table: Table) -> None:
    made = table.plan()
    for prefix in ((("y",),), (("x",), ("x",))):
        plan = structs.replace(made, policy=structs.replace(made.policy, prefix=prefix))
        with pytest.raises(ExecutorError, match="prefix"):
            GroupRun(plan=plan, group=plan.groups[0]).check()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "-7"),
        (pa.float64(), "0.1"),
        (pa.string(), "é"),
        (pa.decimal128(12, 2), "-3.14"),
        (pa.date32(), "1995-01-31"),
        (pa.timestamp("us", "UTC"), "1704067200000001"),
    ],
)
def test_constants_are_of_their_column_s_type(kind: pa.DataType, text: str) -> None:
    found = parsed_as(kind, [text, None])
    assert found.type == kind
    assert found.is_valid().to_pylist() == [True, False]
    with pytest.raises(ValueError, match=r".") if not pa.types.is_string(kind) else _nothing():
        parsed_as(kind, ["no value"])


def test_weights_of_columns_add_up_to_one() -> None:
    assert weighted_columns([4, 1]).column_weights == (0.8, 0.2)
    assert weighted_columns([4, 1]).has_queries
    for wrong in ([0, 0], [-1, 2], [float("nan"), 1], [float("inf"), 1]):
        with pytest.raises(ValueError, match="weights"):
            weighted_columns(wrong)
    assert not msgspec.json.decode(
        msgspec.json.encode(FittedWorkload()), type=FittedWorkload
    ).has_queries
