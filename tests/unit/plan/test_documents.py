"""A saved plan is read whatever else its policy was asked for when it was made."""

import json
from pathlib import Path

import msgspec
from msgspec import structs

from liquidlog.plan import (
    InputFile,
    PlannedDeletionVector,
    SkippedFile,
    SkippedFiles,
    SkipReason,
    decode_plan,
    encode_plan,
    plan_document,
)
from liquidlog.plan.encoding import plan_pieces
from support.plans import make_plan, schema_json_of


def test_a_policy_with_a_field_that_is_no_option_any_more_is_read(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, schema_json_of({"x": "long"}), [])
    document = json.loads(encode_plan(plan))
    document["policy"]["max_deleted_share"] = 0.5
    assert decode_plan(json.dumps(document).encode(), where="plan.json") == plan


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
