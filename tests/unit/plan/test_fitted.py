"""What readers ask, in plans: saved, read again, refused where it is no workload."""

from contextlib import nullcontext as _nothing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.clustering.planning.readers import fitted_to, require_fitted
from liquidlog.errors import ExecutorError, UsageError
from liquidlog.plan import (
    AskedPredicate,
    FittedWorkload,
    Interval,
    Term,
    decode_plan,
    encode_plan,
    parsed_as,
    weighted_columns,
)
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.rewriting.groups import GroupRun
from liquidlog.table import Table

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string()), ("y", pa.int64())])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    made = Table.create(tmp_path_factory.mktemp("t"), schema=SCHEMA, cluster_by=["x", "s"])
    for first in range(3):
        made.append(pa.table({"x": [first, 5], "s": ["a", "b"], "y": [1, 2]}, schema=SCHEMA))
    return made


def test_a_plan_without_readers_says_nothing_of_them(table: Table) -> None:
    document = encode_plan(table.plan())
    assert b'"fitted"' not in document
    assert b'"prefix"' not in document


def test_a_fitted_plan_is_read_as_it_was_written(table: Table) -> None:
    asked = (WeightedPredicate("x < 3 AND s >= 'a'"), WeightedPredicate("y = 1"))
    plan = table.plan(workload=asked, prefix="S")
    assert plan.prefix == (1,)
    assert plan.policy.prefix == (("s",),)
    assert plan.readers is not None
    assert [one.share for one in plan.readers.left_out] == [0.5]
    assert decode_plan(encode_plan(plan), where="here") == plan


def test_a_workload_without_effect_is_refused(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="narrows by no clustering column"):
        table.plan(workload=(WeightedPredicate("y = 1"),))
    plain = Table.create(tmp_path / "plain", schema=SCHEMA)
    with pytest.raises(UsageError, match="without clustering columns"):
        plain.plan(workload=(WeightedPredicate("y = 1"),))
    plan = plain.plan()
    assert fitted_to(plan, (WeightedPredicate("y = 1"),)) is plan
    with pytest.raises(UsageError):
        require_fitted(plan)


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
    assert weighted_columns([4, 1]).asks
    for wrong in ([0, 0], [-1, 2], [float("nan"), 1], [float("inf"), 1]):
        with pytest.raises(ValueError, match="weights"):
            weighted_columns(wrong)
    assert not msgspec.json.decode(msgspec.json.encode(FittedWorkload()), type=FittedWorkload).asks
