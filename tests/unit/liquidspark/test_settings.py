"""Settings on a session that meets the contract of `spark.conf`, from one thread and from many."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidspark import session
from liquidspark.session import settings_applied

STATIC = "spark.sql.warehouse.dir"
OURS = {"spark.a": "1", "spark.b": "2", "spark.c": "3"}


class Conf:
    """As Spark's: what is unset is None, what is static cannot be set."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)

    def get(self, key: str, default: str | None) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        if key == STATIC:
            raise ValueError(key)
        self.values[key] = value

    def unset(self, key: str) -> None:
        self.values.pop(key, None)


class Session:
    """One of several objects for the session of that id."""

    def __init__(self, conf: Conf, session_id: str | None = None) -> None:
        self.conf = conf
        if session_id is not None:
            self.session_id = session_id


def user_values() -> dict[str, str]:
    return {"spark.a": "before", "spark.other": "x"}


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_any_overlap_of_users_restores_exactly(moves: list[int], values: list[int]) -> None:
    conf = Conf(user_values())
    running: dict[int, AbstractContextManager[None]] = {}
    for number, value in zip(moves, values, strict=False):
        if number in running:
            running.pop(number).__exit__(None, None, None)
        else:
            running[number] = settings_applied(Session(conf, "s"), {"spark.a": str(value)})
            running[number].__enter__()
            assert conf.values["spark.a"] == str(value)
        assert running or conf.values == user_values()
    for user in running.values():
        user.__exit__(None, None, None)
    assert conf.values == user_values()
    assert not session._in_use


def test_threads_never_see_a_setting_missing() -> None:
    conf, threads = Conf(user_values()), 8
    together = Barrier(threads)

    def rewrite(_: int) -> bool:
        kept = True
        together.wait()
        for _ in range(300):
            with settings_applied(Session(conf, "s"), OURS):
                kept &= conf.values.items() >= OURS.items()
        return kept

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(rewrite, range(threads)))
    assert conf.values == user_values()
    assert not session._in_use


def test_what_the_user_sets_meanwhile_stays() -> None:
    conf = Conf(user_values())
    with settings_applied(Session(conf, "s"), OURS):
        conf.set("spark.a", "user")
        conf.unset("spark.b")
    assert conf.values == user_values() | {"spark.a": "user"}


def test_what_the_user_sets_comes_back_after_those_that_begin_later() -> None:
    conf = Conf(user_values())
    session = Session(conf, "s")
    with settings_applied(session, OURS):
        conf.set("spark.a", "user")
        with settings_applied(session, OURS):
            assert conf.values.items() >= OURS.items()
        assert conf.values["spark.a"] == "1"
    assert conf.values == user_values() | {"spark.a": "user"}


@pytest.mark.parametrize("others", [0, 1])
def test_nothing_stays_of_settings_of_which_one_is_refused(others: int) -> None:
    conf = Conf(user_values())
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(settings_applied(Session(conf, "s"), OURS))
        held = dict(conf.values)
        with (
            pytest.raises(ValueError, match=STATIC),
            settings_applied(Session(conf, "s"), {"spark.a": "9", "spark.d": "9", STATIC: "9"}),
        ):
            pytest.fail("a refused setting was taken")
        assert conf.values == held
    assert conf.values == user_values()
    assert not session._in_use
