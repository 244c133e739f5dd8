import socket
import time
from collections.abc import Iterator, Mapping

import pytest

from liquidlog.errors import ExecutorError
from liquidspark import session
from liquidspark.session import require_answer


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server on this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port on this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
    return number


def test_what_answers_is_left_to_spark(port: int, closed_port: int) -> None:
    require_answer({"spark.master": f"spark://127.0.0.1:{port}"}, {})
    require_answer({"spark.master": f"spark://127.0.0.1:{closed_port},127.0.0.1:{port}"}, {})
    require_answer({"spark.remote": f"sc://127.0.0.1:{port}/;token=secret"}, {})
    require_answer({}, {"SPARK_REMOTE": f"sc://127.0.0.1:{port}"})


def test_what_does_not_answer_is_refused_at_once(closed_port: int) -> None:
    where = f"127.0.0.1:{closed_port}"
    master, remote = f"spark://{where}", f"sc://{where}/;token=secret"
    cases: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
        ({"spark.master": master}, {}),
        ({"spark.master": f"{master},localhost:{closed_port}"}, {}),
        ({}, {"MASTER": master}),
        ({"spark.remote": remote}, {"MASTER": "local"}),
        ({}, {"SPARK_REMOTE": remote}),
    ]
    for conf, environment in cases:
        started = time.monotonic()
        with pytest.raises(ExecutorError) as caught:
            require_answer(conf, environment)
        assert time.monotonic() - started < 2
        assert where in caught.value.message
        assert "refused" in caught.value.message
        assert "secret" not in caught.value.message


def test_a_host_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        address = server.getsockname()
        # A full backlog drops further requests to connect, as a firewall does.
        held = []
        for _ in range(4):
            waiting = socket.socket()
            waiting.settimeout(0)
            waiting.connect_ex(address)
            held.append(waiting)
        started = time.monotonic()
        with pytest.raises(ExecutorError) as caught:
            require_answer({"spark.master": f"spark://{address[0]}:{address[1]}"}, {})
        assert 0.2 <= time.monotonic() - started < 2
        assert caught.value.failures == ()
        for waiting in held:
            waiting.close()


def test_an_address_to_which_no_way_leads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_SECONDS", 0.2)
    for conf in (
        {"spark.master": "spark://192.0.2.1:7077"},  # of a net that is for documents
        {"spark.remote": "sc://192.0.2.1"},
    ):
        started = time.monotonic()
        with pytest.raises(ExecutorError, match=r"nothing within|unreachable|refused|no route"):
            require_answer(conf, {})
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"spark.master": "local[2]"},
        {"spark.master": "yarn"},
        {"spark.master": "k8s://https://127.0.0.1:1"},
        {"spark.master": "spark://no-port"},
        {"spark.master": "spark://127.0.0.1:1,::"},
        {"spark.remote": "local[2]", "spark.master": "spark://127.0.0.1:1"},
    ],
)
def test_other_addresses_are_left_to_spark(conf: dict[str, str]) -> None:
    require_answer(conf, {})


def test_behind_a_proxy_spark_connect_is_left_to_grpc() -> None:
    require_answer({"spark.remote": "sc://127.0.0.1:1"}, {"https_proxy": "http://proxy:3128"})


def test_addresses_are_read_as_spark_does() -> None:
    assert session._connect_addresses("sc://host") == (("host", 15002),)
    assert session._connect_addresses("sc://[::1]:7/;x=1") == (("::1", 7),)
    assert session._master_addresses("spark://a:1,b:2") == (("a", 1), ("b", 2))
