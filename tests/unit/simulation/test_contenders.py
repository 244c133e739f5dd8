"""Contenders and settings of simulations, and which arguments would have no effect."""

from typing import Any

import pytest

from liquidlog.errors import UsageError
from liquidlog.plan import DEFAULT_MAX_FILE_BYTES, DEFAULT_MIN_CUBE_BYTES
from liquidlog.simulation.contenders import CONTENDERS, contenders, setting
from liquidlog.simulation.rounds import EVERYTHING
from liquidlog.simulation.table import empty_table


def test_all_take_part_unless_some_are_named() -> None:
    assert [one.name.split()[0] for one in contenders()] == list(CONTENDERS)
    assert [one.name for one in contenders(["new", "all", "new"])] == ["new", "all"]


def test_sized_contenders_take_part_once_for_each_size() -> None:
    found = contenders(["cube", "overlap", "all"], min_cube_bytes=[1 << 30, 1 << 20, 1 << 30])
    sizes = [(one.strategy, one.policy.min_cube_bytes) for one in found]
    both = [1 << 30, 1 << 20]
    assert sizes[:4] == [(name, size) for name in ("cube", "overlap") for size in both]
    assert sizes[4:] == [("cube", EVERYTHING)]
    assert [one.policy.target_cube_bytes for one in found[:2]] == [3 << 29, 3 << 19]
    (alone,) = contenders(["cube"])
    assert alone.policy.min_cube_bytes == DEFAULT_MIN_CUBE_BYTES


def test_settings_reach_the_policies_that_listen() -> None:
    found = contenders(max_file_size="1MiB", curve="zorder", tolerance=2.0)
    assert {(one.policy.max_file_bytes, one.policy.curve) for one in found} == {(1 << 20, "zorder")}
    tolerant = {one.strategy for one in found if one.policy.tolerance == 2.0}
    assert tolerant == {"overlap"}


@pytest.mark.parametrize(
    ("names", "arguments", "option"),
    [
        (["cube"], {"tolerance": 2.0}, "tolerance"),
        (["all", "new"], {"min_cube_bytes": [1 << 30]}, "min_cube_size"),
    ],
)
def test_arguments_without_effect_are_refused(
    names: list[str], arguments: dict[str, Any], option: str
) -> None:
    with pytest.raises(UsageError) as refused:
        contenders(names, **arguments)
    assert refused.value.fields["option"] == option


def test_an_unknown_contender_is_refused() -> None:
    with pytest.raises(UsageError):
        contenders(["none"])


def test_a_setting_has_the_defaults_of_plans() -> None:
    made = setting(empty_table(2), scenario="merge", rounds=3, append_bytes=1 << 20)
    assert (made.max_file_bytes, made.curve) == (DEFAULT_MAX_FILE_BYTES, "hilbert")
    named: dict[str, Any] = {"max_file_size": "1MiB", "curve": "kd"}
    made = setting(empty_table(2), scenario="merge", rounds=3, append_bytes=1, **named)
    assert (made.max_file_bytes, made.curve) == (1 << 20, "kd")


def test_a_curve_of_one_column_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        setting(empty_table(1), scenario="merge", rounds=1, append_bytes=1, curve="kd")
    assert refused.value.fields["option"] == "curve"
