"""The lock answers every dependency that the project names, with hashes."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.repository import text

PROJECT = tomllib.loads(text("pyproject.toml"))
PINNED = re.compile(r"^([\w.-]+)==(\S+)((?:.*\\\n)*.*)$", re.MULTILINE)


def _named() -> Iterator[str]:
    yield from PROJECT["project"]["dependencies"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        yield from extra
    for group in ("test", "lint", "build", "docs"):
        yield from PROJECT["dependency-groups"][group]


def _locked(lock: str) -> dict[str, list[str]]:
    locked: dict[str, list[str]] = {}
    for name, version, _ in PINNED.findall(text(lock)):
        locked.setdefault(canonicalize_name(name), []).append(version)
    return locked


@pytest.mark.parametrize("requirement", sorted(set(_named())))
def test_lock_satisfies_what_the_project_names(requirement: str) -> None:
    named = Requirement(requirement)
    versions = _locked("requirements.lock").get(canonicalize_name(named.name), [])
    assert versions
    assert all(named.specifier.contains(version) for version in versions)


def test_every_pin_is_asked_for_by_the_project_or_another_pin() -> None:
    locked = _locked("requirements.lock")
    installed = [d for d in distributions() if canonicalize_name(d.name) in locked]
    asked = {Requirement(text).name for d in installed for text in d.requires or ()}
    asked |= {Requirement(text).name for text in _named()}
    assert set(locked) - {canonicalize_name(name) for name in asked} == set()


@pytest.mark.parametrize("lock", ["requirements.lock", "tools/uv.txt", "tools/java.txt"])
def test_every_pin_has_a_hash(lock: str) -> None:
    pins = PINNED.findall(text(lock))
    assert pins
    assert [name for name, _, rest in pins if "--hash=sha256:" not in rest] == []
