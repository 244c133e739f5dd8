"""Options from a callable: asked again when they may have expired, and never sent anywhere."""

import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from liquidlog.errors import StorageError, UsageError
from liquidlog.log.loader import open_store
from liquidlog.spec.paths import commit_name
from liquidlog.storage.clients import open_client
from liquidlog.storage.objects import Objects
from liquidlog.storage.options import StorageOptions, Supply, redacted
from liquidlog.table import Table
from support.arrow_executor import execute
from support.emulators import Emulator
from support.tokens import Tokens

ROWS = pa.table({"x": list(range(100)), "y": [n * 7919 % 100 for n in range(100)]})


class Numbered:
    """A callable that gives other options each time."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> Mapping[str, str]:
        self.asked += 1
        return {"aws_session_token": f"token {self.asked}"}


def test_a_callable_is_asked_once_a_minute_and_whenever_values_must_be_fresh() -> None:
    numbered, seconds = Numbered(), [1000.0]
    options = StorageOptions(supply=Supply(numbered, now_seconds=lambda: seconds[0]))
    assert numbered.asked == 0
    first = options.latest()
    assert first.given() == {"aws_session_token": "token 1"}
    seconds[0] += 59
    assert options.latest() is first
    seconds[0] += 2
    assert options.latest().given() == {"aws_session_token": "token 2"}
    assert options.fresh().given() == {"aws_session_token": "token 3"}
    assert options.latest().given() == {"aws_session_token": "token 3"}
    assert options.differ_from(first)
    assert numbered.asked == 3
    assert options.differ_from(options.latest())
    assert numbered.asked == 4


def test_the_same_values_do_not_differ() -> None:
    options = StorageOptions.of(lambda: {"aws_region": "r"})
    assert not options.differ_from(options.latest())
    assert not StorageOptions.of({"aws_region": "r"}).differ_from(StorageOptions())


def test_threads_that_ask_at_once_share_an_answer() -> None:
    numbered = Numbered()
    options = StorageOptions(supply=Supply(numbered, now_seconds=lambda: 1000.0))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: options.latest(), range(100)))
    assert numbered.asked == 1


def test_no_value_is_shown_and_no_callable_is_sent() -> None:
    options = StorageOptions.of(Numbered())
    assert options.latest().expiring
    assert "token" not in repr(options)
    assert redacted("bad token 1", options, {}) == "bad ***"
    with pytest.raises(TypeError):
        pickle.dumps(options)
    sent = pickle.loads(pickle.dumps(options.latest()))  # noqa: S301
    assert sent == options.latest()


def test_a_callable_that_fails_says_so_without_its_words() -> None:
    def fail() -> Mapping[str, str]:
        raise RuntimeError("S3ntinelSecret")

    with pytest.raises(StorageError) as failure:
        StorageOptions.of(fail).latest()
    assert failure.value.path == "storage_options"
    assert "RuntimeError" in failure.value.detail
    assert "S3ntinel" not in str(failure.value)


@pytest.mark.parametrize("found", [None, {"aws_region": 1}, [("aws_region", "r")]])
def test_a_callable_that_gives_no_options_is_refused(found: object) -> None:
    with pytest.raises(UsageError):
        StorageOptions.of(lambda: found).latest()  # type: ignore[return-value,arg-type]


def test_a_local_table_takes_no_callable(tmp_path: object) -> None:
    numbered = Numbered()
    with pytest.raises(UsageError):
        open_store(str(tmp_path), numbered)
    assert numbered.asked == 0


def test_few_clients_are_kept_for_options_that_expire(s3: Emulator) -> None:
    address = Objects.at("s3://bucket/x", StorageOptions.of(s3.options)).address

    def opened(number: int) -> object:
        options = StorageOptions.of(lambda: {**s3.options, "aws_session_token": f"t{number}"})
        return open_client(address, options.latest()).file_system

    first = opened(0)
    assert opened(0) is first
    for number in range(1, 20):
        assert opened(number) is not first
    assert opened(0) is not first


def test_a_request_with_an_expired_token_is_sent_again_with_another(s3: Emulator) -> None:
    given = Tokens(s3, lambda _: 1_000)
    store = open_store(s3.new_table(), given)
    assert store.put_log_if_absent(commit_name(0), b"x")
    for request in (
        lambda: store.read_log(commit_name(0)),
        lambda: len(store.list_log() or ()),
        lambda: store.open_log(commit_name(0)).read(),
        lambda: store.file_facts("x"),
        lambda: store.delete_file("x"),
        lambda: store.replace_log("_last_checkpoint", b"{}"),
    ):
        before = given.refused
        given.expire()
        request()
        assert given.refused > before
    before = given.refused
    given.expire()
    assert store.put_log_if_absent(commit_name(1), b"y")
    assert given.refused == before, "a commit asks for credentials, and is not refused first"


def test_a_put_with_an_expired_token_is_sent_again_with_another(s3: Emulator) -> None:
    given = Tokens(s3, lambda _: 1_000)
    address, options = s3.new_table(), StorageOptions.of(given)
    objects = Objects.at(address, options)
    given.expire()
    assert objects.put_if_absent(objects.path, b"x")
    given.expire()
    assert not objects.put_if_absent(objects.path, b"y")
    assert objects.read(objects.path) == b"x"


def test_what_stays_refused_is_an_error(s3: Emulator) -> None:
    given = Tokens(s3, lambda _: 0)
    store = open_store(s3.new_table(), given)
    with pytest.raises(StorageError) as failure:
        store.read_log(commit_name(0))
    assert "S3ntinel" not in str(failure.value)
    assert given.given == given.refused == 2
    with pytest.raises(StorageError):
        store.put_log_if_absent(commit_name(0), b"x")


def test_a_table_outlives_its_tokens(s3: Emulator) -> None:
    given = Tokens(s3, lambda number: 0 if number == 0 else 30)
    table = Table.create(
        s3.new_table(), schema=ROWS.schema, cluster_by=["x", "y"], storage_options=given
    )
    table.append(ROWS)
    given.expire()
    table.append(ROWS)
    given.expire()
    plan = table.plan()
    given.expire()
    groups = execute(plan, storage=StorageOptions.of(given))
    table.commit_each(plan, groups.groups).require_success()
    given.expire()
    assert list(table.orphans()) == []
    given.expire()
    again = Table.open(table.uri, storage_options=given)
    assert again.health().unclustered_file_count == 0
    assert given.refused >= 4
