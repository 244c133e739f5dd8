"""A saved plan is read whatever else its policy was asked for when it was made."""

import json
from pathlib import Path

from liquidlog.plan import decode_plan, encode_plan
from support.plans import make_plan, schema_json_of


def test_a_policy_with_a_field_that_is_no_option_any_more_is_read(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, schema_json_of({"x": "long"}), [])
    document = json.loads(encode_plan(plan))
    document["policy"]["max_deleted_share"] = 0.5
    assert decode_plan(json.dumps(document).encode(), where="plan.json") == plan
