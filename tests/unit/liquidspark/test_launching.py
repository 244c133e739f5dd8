"""JVMs that begin ahead: taken over by the session they were begun for, ended otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from threading import Event
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway

from liquidspark import session
from liquidspark.session import begun, taken
from support.processes import eventually

SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "1g"}


@dataclass
class Gateway:
    """Stands for a JVM that has begun, and for its process."""

    settings: dict[str, str]
    ended: Event = field(default_factory=Event)

    @property
    def proc(self) -> "Gateway":
        return self

    @property
    def stdin(self) -> BytesIO:
        return BytesIO()

    def shutdown(self) -> None:
        raise OSError("it does not answer")

    def kill(self) -> None:
        self.ended.set()

    def wait(self) -> None:
        assert self.ended.is_set()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Gateway]]:
    """Begin no JVM, as if none had begun; return what would have been begun."""
    gateways: list[Gateway] = []
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)

    def launch(conf: Any, popen_kwargs: Any) -> Gateway:
        popen_kwargs["stderr"].write("it began\n")
        gateways.append(Gateway(dict(conf.getAll())))
        return gateways[-1]

    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    yield gateways
    assert session._begun == []


def test_the_session_it_was_begun_for_takes_it_over(launched: list[Gateway]) -> None:
    with begun(SETTINGS):
        launch = taken(dict(reversed(SETTINGS.items())))
        assert launch is not None
        assert launch.said() == "it began\n"
    assert [gateway.settings for gateway in launched] == [SETTINGS]
    assert not launched[0].ended.is_set()
    launch.end()


def test_a_session_with_other_settings_gets_none_and_it_is_ended(launched: list[Gateway]) -> None:
    with begun(SETTINGS):
        assert taken({**SETTINGS, "spark.driver.memory": "2g"}) is None
        assert launched[0].ended.is_set()
        assert taken(SETTINGS) is None


def test_one_that_nobody_takes_is_ended(launched: list[Gateway]) -> None:
    with pytest.raises(KeyError), begun(SETTINGS):
        raise KeyError
    assert eventually(lambda: launched)[0].ended.wait(30)


def test_one_that_does_not_begin_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, launched: list[Gateway]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("no such program")

    monkeypatch.setattr(java_gateway, "launch_gateway", fails)
    with begun(SETTINGS):
        assert taken(SETTINGS) is None
    assert launched == []


@pytest.mark.parametrize(
    ("conf", "variables", "begins"),
    [
        ({}, {}, True),
        ({"spark.master": "local[1]"}, {}, True),
        ({"spark.master": "spark://host:7077"}, {}, False),
        ({"spark.remote": "sc://host"}, {}, False),
        ({}, {"SPARK_REMOTE": "sc://host"}, False),
        ({}, {"MASTER": "spark://host:7077"}, False),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ({}, {"JAVA_HOME": "/nothing"}, False),
    ],
)
def test_only_sessions_that_would_be_new_and_local_begin_early(
    monkeypatch: pytest.MonkeyPatch,
    launched: list[Gateway],
    conf: dict[str, str],
    variables: dict[str, str],
    begins: object,
) -> None:
    if "JAVA_HOME" not in variables:
        monkeypatch.setattr(session, "_require_java", lambda: None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with session.begun_early(conf):
        found = session._begun[:]
        assert bool(found) == begins
        launch = taken(session._local_settings(conf)) if begins else None
        if launch is not None:
            launch.end()
    assert bool(launched) == begins
