"""List the tables of a database in AWS Glue, through boto3."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from liquidlog.errors import StorageError, UsageError
from liquidlog.fleet.listing import MOST_TABLES, Entry, glue_location
from liquidlog.storage.options import StorageOptions, redacted

_NAMES: Final = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "aws_token": "aws_session_token",
    "aws_region": "region_name",
    "aws_default_region": "region_name",
}
_TIMEOUT_SECONDS: Final = 30


def glue_entries(database: str, options: StorageOptions) -> list[Entry]:
    """Return the tables of a database.

    Credentials and region are those of the storage options, else what boto3 finds: the environment,
    a profile, a role. AWS_ENDPOINT_URL_GLUE names another server than AWS's own.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise UsageError(
            f"glue://: boto3 is not installed ({error}); install the extra glue of liquidlog"
        ) from error
    where = f"glue://{database}"
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 5},
        connect_timeout=_TIMEOUT_SECONDS,
        read_timeout=_TIMEOUT_SECONDS,
    )
    try:
        session = boto3.session.Session(**_arguments(options))
        # A region may be missing where there is none to choose, as with another server.
        region = session.region_name or os.environ.get("AWS_REGION")
        client = session.client("glue", config=config, region_name=region)
        tables = islice(_tables(client, database), MOST_TABLES + 1)
        entries = [Entry(str(table["Name"]), glue_location(table)) for table in tables]
    except Exception as error:  # noqa: BLE001  boto3 raises what it likes; it may hold a secret
        detail = redacted(str(error), options, os.environ)
        raise StorageError(where, f"cannot be listed: {type(error).__name__}: {detail}") from None
    if len(entries) > MOST_TABLES:
        raise StorageError(where, f"has more than {MOST_TABLES} tables; name fewer")
    return entries


def _arguments(options: StorageOptions) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.given().items()}
    prefixed = {
        name if name.startswith("aws_") else f"aws_{name}": value for name, value in given.items()
    }
    return {_NAMES[name]: value for name, value in prefixed.items() if name in _NAMES}


def _tables(client: Any, database: str) -> Iterator[Any]:  # noqa: ANN401  boto3 has no types
    for page in client.get_paginator("get_tables").paginate(DatabaseName=database):
        yield from page["TableList"]
