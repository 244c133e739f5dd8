"""JSON nested deeper than a stack, and text that is no UTF-8, wherever a log holds a document."""

import json

import pytest

from liquidlog.clustering.columns import read_domain
from liquidlog.errors import CorruptLogError
from liquidlog.log.history import read_history
from liquidlog.log.segment import list_recent_log
from liquidlog.spec.paths import LAST_CHECKPOINT, commit_name
from support.memory_store import MemoryStore

DEEP = "[" * 50_000
TEXTS = {
    "deep": DEEP.encode(),
    "deep in an unknown field": b'{"x":%s' % DEEP.encode(),
    "not UTF-8": b'{"\xff":1}',
    "not JSON": b"?",
    "another document": b'["version"]',
    "a version that is none": b'{"version":-1}',
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_hint_that_cannot_be_read_is_no_hint(text: str) -> None:
    store = MemoryStore(log={commit_name(0): b"{}", LAST_CHECKPOINT: TEXTS[text]})
    assert list_recent_log(store).newest == 0


@pytest.mark.parametrize("text", ["deep", "deep in an unknown field", "not UTF-8"])
def test_a_commit_info_that_cannot_be_read_is_refused_with_its_line(text: str) -> None:
    line = b'{"commitInfo":{"x":%s' % TEXTS[text]
    with pytest.raises(CorruptLogError) as refusal:
        read_history(MemoryStore(log={commit_name(0): b"{}\n" + line}))
    assert refusal.value.line == 2


@pytest.mark.parametrize("text", [DEEP, '{"x":' + DEEP, json.dumps({"clusteringColumns": 1})])
def test_a_domain_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(CorruptLogError):
        read_domain(text)
