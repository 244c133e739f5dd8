"""Documents of earlier releases: read where they still mean what they say, else refused."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from liquidlog.errors import DocumentError
from liquidlog.plan import (
    DEFAULT_ROW_GROUP_ROWS,
    InputFile,
    PlannedDeletionVector,
    RewrittenGroup,
    SkippedFile,
    SkippedFiles,
    SkipReason,
    decode_plan,
    decode_result,
    encode_plan,
    encode_rewritten_group,
    plan_document,
)
from liquidlog.plan.encoding import plan_pieces
from support.plans import make_plan, schema_json_of


def test_a_policy_with_a_field_that_is_no_option_any_more_is_read(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, schema_json_of({"x": "long"}), [])
    document = json.loads(encode_plan(plan))
    document["policy"]["max_deleted_share"] = 0.5
    assert decode_plan(json.dumps(document).encode(), where="plan.json") == plan


def test_a_plan_that_names_no_rows_of_row_groups_has_the_default(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, schema_json_of({"x": "long"}), [])
    assert "row_group_rows" not in json.loads(encode_plan(plan))["writer_options"]
    assert plan.writer_options.rows_of_a_group == DEFAULT_ROW_GROUP_ROWS
    options = structs.replace(plan.writer_options, row_group_rows=5_000)
    other = structs.replace(plan, writer_options=options)
    read = decode_plan(encode_plan(other), where="plan.json")
    assert read.writer_options.rows_of_a_group == 5_000


def test_a_result_with_copied_row_groups_is_refused_with_what_to_do() -> None:
    group = RewrittenGroup(
        plan_id="p",
        group_id=0,
        run="0" * 12,
        outputs=(),
        rows_read=0,
        rows_written=0,
        checksum_read="0" * 32,
        checksum_written="0" * 32,
        seconds=0.0,
    )
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
