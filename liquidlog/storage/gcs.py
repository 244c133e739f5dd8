"""Convert options of Google Cloud Storage to the arguments of gcsfs.

Source: delta-rs uses the option names of the object_store crate, `GoogleConfigKey`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import ObjectAddress
from liquidlog.storage.options import StorageOptions, is_true

_ALIASES: Final[Mapping[str, Sequence[str]]] = {
    "service_account": ("service_account_path",),
    "service_account_key": (),
    "application_credentials": (),
    "skip_signature": (),
    "base_url": (),
    "allow_http": (),
}


def gcs_arguments(
    address: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `gcsfs.GCSFileSystem`.

    Without an option or variable that names a service account, Google's application default
    credentials are used.
    """
    del address
    named = options.named(_ALIASES, ("google_", "gcs_"), storage="Google Cloud Storage")
    endpoint = named.get("base_url") or environment.get("STORAGE_EMULATOR_HOST")
    if (
        endpoint
        and endpoint.lower().startswith("http:")
        and not is_true(named.get("allow_http", ""))
    ):
        raise UsageError("the GCS endpoint is http: set the storage option allow_http=true")
    return {"token": _token(named, environment), "endpoint_url": endpoint}


def _token(named: Mapping[str, str], environment: Mapping[str, str]) -> Any:  # noqa: ANN401  gcsfs's
    if is_true(named.get("skip_signature", "")):
        return "anon"
    key = named.get("service_account_key")
    path = named.get("service_account") or named.get("application_credentials")
    if key is None and path is None:
        key = environment.get("GOOGLE_SERVICE_ACCOUNT_KEY")
        path = environment.get("GOOGLE_SERVICE_ACCOUNT")
    if key is None:
        return path or "google_default"
    try:
        return json.loads(key)
    except ValueError as error:
        # A parser's message could quote the key.
        del error
        raise UsageError("google_service_account_key is not JSON") from None
