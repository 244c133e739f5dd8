"""A table in an object store: a version is one conditional put.

Source: docs/adr/0005, for which stores are trusted and how a lost response is detected.
"""

import re
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from liquidlog.errors import StorageError, UnsupportedFeatureError
from liquidlog.log.store import AmbiguousPutError
from liquidlog.spec.paths import LOG_DIR, VERSION_DIGITS, LogFile, parse_log_file
from liquidlog.storage.addresses import file_address
from liquidlog.storage.files import FileFacts, Source, delete_file, file_facts
from liquidlog.storage.objects import Objects
from liquidlog.storage.options import SINGLE_WRITER, StorageOptions
from liquidlog.storage.reading import KnownObject, ObjectReader

_PARALLEL_READS: Final = 16
PROBE_PREFIX: Final = "_liquidlog-probe-"
_DYNAMODB_DIR: Final = ".tmp"
"""Directory in which a commit is prepared. Source: Delta Spark, BaseExternalLogStore."""
_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")
"""Characters that delta-rs decodes or refuses even if quoted; commits need its second opinion."""


class ObjectTableStore:
    """A table in S3, Google Cloud Storage or Azure."""

    def __init__(self, uri: str, options: StorageOptions) -> None:
        """Make the client; no request is sent yet."""
        self._uri = uri
        self._options = options
        self._objects = Objects.at(uri, options)
        self._root = self._objects.path
        self._log = f"{self._root}/{LOG_DIR}"
        self._proved = not self._objects.client.own_endpoint
        self._visible = self._objects.address.family != "s3" or options.single_writer

    @property
    def uri(self) -> str:
        """The URI of the table, without a trailing slash."""
        return self._uri

    @property
    def storage(self) -> StorageOptions:
        """The options as given."""
        return self._options

    def require_writable(self) -> None:
        """See TableStore. A server other than the cloud's own has to prove its conditional put.

        Delta Spark's DynamoDB log store keeps a table's versions in DynamoDB and overwrites
        versions that others created, so a table whose log has traces of it is refused.
        """
        if _MISREAD.search(self._uri):
            reason = "a percent-encoded or control character in its address"
            raise UnsupportedFeatureError(self._uri, "written", (reason,))
        if not self._visible and self._objects.holds_any(f"{self._log}/{_DYNAMODB_DIR}"):
            reason = (
                f"Delta Spark's DynamoDB log store ({LOG_DIR}/{_DYNAMODB_DIR} holds its commits),"
                " in which our versions are not recorded; if no writer uses it any more, give"
                f" the storage option {SINGLE_WRITER}=true"
            )
            raise UnsupportedFeatureError(self._uri, "written", (reason,))
        self._visible = True
        if self._proved:
            return
        # The name is hidden from everything that lists data files, and is outside of the log.
        probe = f"{self._root}/{PROBE_PREFIX}{secrets.token_hex(8)}"
        try:
            first = self._put(probe, b"first")
            second = self._put(probe, b"second")
            kept = self._objects.read(probe)
        except AmbiguousPutError as error:
            raise StorageError(self._uri, f"cannot be written: {error}") from None
        finally:
            with suppress(StorageError):
                self._objects.delete(probe)
        if not first or second or kept != b"first":
            reason = "a storage whose server ignores the condition of a conditional put,"
            raise UnsupportedFeatureError(self._uri, "written", (reason,))
        self._proved = True

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        """See TableStore."""
        first = f"{first_version:0{VERSION_DIGITS}d}" if first_version else ""
        found = self._objects.list_directory(self._log, first)
        if found is None:
            return None
        files = (
            parse_log_file(item.name, item.size_bytes, item.modification_time_ms, item.etag)
            for item in found
        )
        return tuple(sorted((f for f in files if f is not None), key=lambda file: file.name))

    def read_log(self, name: str) -> bytes | None:
        """See TableStore."""
        return self._objects.read(f"{self._log}/{name}")

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        """See TableStore."""
        if not names:
            return ()
        with ThreadPoolExecutor(min(len(names), _PARALLEL_READS)) as pool:
            return tuple(pool.map(self.read_log, names))

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        """See TableStore."""
        self._options.fresh()  # for the whole of the commit, and what reads it back
        self.require_writable()
        return self._put(f"{self._log}/{name}", content)

    def replace_log(self, name: str, content: bytes) -> None:
        """See TableStore."""
        self.require_writable()
        self._objects.replace(f"{self._log}/{name}", content)

    def open_log(self, name: str) -> Source:
        """See TableStore."""
        path = f"{self._log}/{name}"
        facts = self._objects.facts(path)
        if facts is None:
            raise FileNotFoundError(path)
        return ObjectReader(KnownObject(self._objects, path, facts.size_bytes))

    def file_facts(self, path: str) -> FileFacts | None:
        """See TableStore."""
        return file_facts(self.data_path(path), self._options)

    def delete_file(self, path: str) -> None:
        """See TableStore."""
        delete_file(self.data_path(path), self._options)

    def temporaries(self) -> tuple[str, ...]:
        """See TableStore."""
        return tuple(sorted(self._objects.names_with_prefix(self._root, PROBE_PREFIX)))

    def data_path(self, path: str) -> str:
        """See TableStore."""
        return file_address(self._uri, path)

    def _put(self, path: str, content: bytes) -> bool:
        return self._objects.put_if_absent(path, content)
