"""Find tables by addresses and globs, on local disk, in object stores and in catalogs.

A directory is a table if it holds `_delta_log`. The search enters no table, and no directory whose
name begins with `_` or `.`. Catalogs give the addresses of their Delta tables: AWS Glue through
boto3, Unity Catalog through its REST API.

Source: unitycatalog, api/Apis/TablesApi.md, listTables. Databricks answers the same request.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from liquidlog.errors import LiquidlogError, StorageError, UsageError
from liquidlog.logs import Log
from liquidlog.spec.actions import LOG_DIR
from liquidlog.spec.text import masked
from liquidlog.storage.addresses import (
    NO_OPTIONS,
    StorageOptions,
    is_local,
    redacted,
    table_address,
    table_in_catalog,
)
from liquidlog.storage.files import entries, holds_any
from liquidlog.storage.unity import tables_of

_log: Final = Log(__name__)

T = TypeVar("T")

_WILD: Final = re.compile(r"[*?\[]")
_ANY_DEPTH: Final = "**"
_DEEPEST: Final = 32
"""The most levels below a `**`: links may form a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A table's address, or the problem with an address.

    `others` counts tables of other formats in catalogs; the first result has the sum.
    """

    address: str
    problem: str | None = None
    others: int = 0


def is_glob(address: str) -> bool:
    return _WILD.search(address) is not None


def find_tables(
    wanted: Sequence[str], excluded: Sequence[str], options: StorageOptions, *, below: bool = False
) -> tuple[Found, ...]:
    """Return the tables at addresses and globs, each once, in the order of `wanted`, then by name.

    `*`, `?` and `[…]` match parts of one name, `**` any number of directories. Any other address is
    that of a table; with `below`, it also matches tables below it. `glue://` and `unity://` list a
    catalog. An address that matches nothing becomes a problem.
    """
    listings = [address for address in excluded if is_listing(address)]
    if listings:
        raise UsageError(
            f"{listings[0]} cannot be excluded: exclude the addresses of its tables, or name fewer"
            " tables by a pattern",
            value=listings[0],
        )
    left_out = [_parts(address) for address in excluded]
    found: dict[str, Found] = {}
    others = 0
    for address in wanted:
        for one in _found(address, options, below=below):
            others += one.others
            if one.problem or not _is_excluded(one.address, left_out):
                found.setdefault(one.address, replace(one, others=0))
    kept = (*found.values(),)
    return (*(replace(first, others=others) for first in kept[:1]), *kept[1:])


def _found(address: str, options: StorageOptions, *, below: bool) -> Iterator[Found]:
    try:
        if is_listing(address):
            yield from _of_catalog(address, options)
        elif is_glob(address) or below:
            root, names = _parts(address)
            tables = sorted(_below(root, names or (_ANY_DEPTH,), options))
            if not tables:
                where = "at" if names else "at or below"
                yield Found(address=address, problem=f"no table is {where} {address}")
            yield from (Found(address=table) for table in tables)
        else:
            yield Found(address=table_address(address))
    except UsageError:
        raise
    except LiquidlogError as error:
        yield Found(address=address, problem=error.message)


def _of_catalog(address: str, options: StorageOptions) -> Iterator[Found]:
    catalog, place, pattern = _listing(address)
    listed = _glue_tables(place, options) if catalog == "glue" else tables_of(*place)
    entries = [*islice(listed, MOST_TABLES + 1)]
    if len(entries) > MOST_TABLES:
        where = f"{catalog}://{'.'.join(place)}"
        raise StorageError(where, f"has more than {MOST_TABLES} tables; name fewer")
    fitting = sorted(entry for entry in entries if fnmatchcase(entry[0], pattern))
    locations = [location for _, location in fitting if location]
    others = len(fitting) - len(locations)
    _log.info("%s: %d Delta tables, %d others left out", address, len(locations), others)
    if not locations:
        problem = f"no Delta table is listed by {address}, and {others} of other formats"
        yield Found(address=address, problem=problem, others=others)
    for location in locations:
        try:
            yield Found(address=table_address(location), others=others)
        except UsageError as error:
            # The catalog's location may hold a secret.
            yield Found(address=masked(location), problem=error.message, others=others)
        others = 0


def _parts(address: str) -> tuple[str, tuple[str, ...]]:
    """Return the directory before the first wildcard, and the names from there on."""
    if not is_glob(address):
        return table_address(address), ()
    scheme, mark, rest = address.partition("://")
    names = (rest if mark else address).rstrip("/").split("/")
    first = next(place for place, name in enumerate(names) if is_glob(name))
    if mark and scheme.lower() != "file" and first == 0:
        raise UsageError(f"{address} has a wildcard in its bucket; name the bucket", value=address)
    head = "/".join(names[:first])
    root = f"{scheme}://{head}" if mark else head or ("/" if address.startswith("/") else ".")
    return table_address(root), tuple(names[first:])


def _is_excluded(table: str, excluded: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
    for root, names in excluded:
        if f"{table}/".startswith(f"{root.rstrip('/')}/"):
            below = table.removeprefix(root.rstrip("/"))
            parts = tuple(part for part in below.split("/") if part)
            if any(_match(names, parts[:end]) for end in range(len(parts) + 1)):
                return True
    return False


def _match(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not names:
        return not parts
    if names[0] == _ANY_DEPTH:
        return any(_match(names[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], names[0]) and _match(names[1:], parts[1:])


def _below(root: str, names: tuple[str, ...], options: StorageOptions) -> set[str]:
    """Return the tables below a directory that match `names`, level by level."""
    level = {(root, names)}
    tables: set[str] = set()
    with ThreadPoolExecutor(16) as pool:
        for _ in range(_DEEPEST + len(names)):
            if not level:
                break
            steps = [*pool.map(partial(_step, options), sorted(level))]
            tables.update(table for step in steps for table in step[0])
            level = {place for step in steps for place in step[1]}
    return tables


def _step(
    given: StorageOptions, place: tuple[str, tuple[str, ...]]
) -> tuple[list[str], list[tuple[str, tuple[str, ...]]]]:
    """Return the tables at a place, and the places to look at next."""
    where, names = place
    options, base = own_options(where, given) or NO_OPTIONS, where.rstrip("/")
    # This takes one request; listing the table's data files could take a thousand.
    if holds_any(f"{base}/{LOG_DIR}", options):
        return ([where] if all(name == _ANY_DEPTH for name in names) else []), []
    if not names:
        return [], []
    name, rest = names[0], names[1:]
    if not is_glob(name):
        return [], [(f"{base}/{name}", rest)]
    inside = [
        found.rstrip("/")
        for found in entries(where, options) or ()
        if found.endswith("/") and not found.startswith(("_", "."))
    ]
    if name == _ANY_DEPTH:
        here = [(where, rest)] if rest else []
        below = [f"{base}/{found}" for found in inside]
        links = {one for one in below if is_local(one) and Path(one).is_symlink()}
        return [], [*here, *((one, names) for one in below if one not in links)]
    return [], [(f"{base}/{found}", rest) for found in inside if fnmatchcase(found, name)]


def own_options(address: str, options: T) -> T | None:
    """Return the storage options of a table; none on local disk."""
    return None if is_local(address) else options


MOST_TABLES: Final = 100_000
"""One run could not look at more tables; this ends an endless listing."""

_ADDRESS: Final = re.compile(r"(?i)(glue|unity)://([^/?#@:]+)(?:/([^/?#@]+))?/?")


def is_listing(address: str) -> bool:
    """Return whether an address names all tables in a part of a catalog."""
    is_catalog = address.lower().startswith(("glue://", "unity://"))
    return is_catalog and table_in_catalog(address) is None


def _listing(address: str) -> tuple[str, tuple[str, ...], str]:
    """Return a catalog, a database or schema in it, and a pattern of tables' names."""
    found = _ADDRESS.fullmatch(address)
    forms = "glue://database[/pattern] or unity://catalog.schema[/pattern]"
    if found is None:
        raise UsageError(f"an address of tables in a catalog has the form {forms}")
    catalog, pattern = found[1].lower(), unquote(found[3] or "*")
    parts = tuple(map(unquote, found[2].split(".") if catalog == "unity" else [found[2]]))
    count = 2 if catalog == "unity" else 1
    if any(map(is_glob, parts)) or not all(parts) or len(parts) != count:
        raise UsageError(
            f"{address}: expected {forms}, with wildcards only in the pattern", value=address
        )
    return catalog, parts, pattern


def glue_location(table: Mapping[str, Any]) -> str | None:
    """Return the location of a table in Glue's `get_tables`, None if it is no Delta table.

    Spark, Athena and Glue's crawler mark Delta tables differently. In a database without a
    location, Spark writes a placeholder, and puts the path into the properties of the SerDe.
    """
    properties = {
        name.lower(): str(value).lower() for name, value in (table.get("Parameters") or {}).items()
    }
    marks = ("spark.sql.sources.provider", "table_type", "classification")
    if all(properties.get(mark) != "delta" for mark in marks):
        return None
    descriptor = table.get("StorageDescriptor") or {}
    serialization = (descriptor.get("SerdeInfo") or {}).get("Parameters") or {}
    location = str(descriptor.get("Location") or "")
    if not location or location.endswith("-__PLACEHOLDER__"):
        location = str(serialization.get("path") or "")
    return location or None


_GLUE_OPTIONS: Final = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "aws_token": "aws_session_token",
    "aws_region": "region_name",
    "aws_default_region": "region_name",
}


def _glue_tables(place: tuple[str, ...], options: StorageOptions) -> Iterator[tuple[str, str]]:
    """Yield (name, location) of the tables of a database; the location of other formats is empty.

    boto3 finds credentials and region that the options lack, and knows AWS_ENDPOINT_URL_GLUE.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise UsageError(
            f"glue://: boto3 is not installed ({error}); install the extra glue of liquidlog"
        ) from error
    (database,) = place
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=30, read_timeout=30
    )
    try:
        session = boto3.session.Session(**_arguments(options))
        # Other servers than AWS may need no region.
        region = session.region_name or os.environ.get("AWS_REGION")
        client = session.client("glue", config=config, region_name=region)
        for page in client.get_paginator("get_tables").paginate(DatabaseName=database):
            for table in page["TableList"]:
                yield str(table["Name"]), glue_location(table) or ""
    except Exception as error:  # noqa: BLE001  any error of boto3; its text may hold a secret
        where, detail = f"glue://{database}", redacted(str(error), options, os.environ)
        raise StorageError(where, f"cannot be listed: {type(error).__name__}: {detail}") from None


def _arguments(options: StorageOptions) -> dict[str, str]:
    given = (
        (f"aws_{name.lower().removeprefix('aws_')}", it) for name, it in options.given().items()
    )
    return {_GLUE_OPTIONS[name]: value for name, value in given if name in _GLUE_OPTIONS}
