"""Convert options of S3 and compatible stores to the arguments of s3fs.

Source: delta-rs uses the option names of the object_store crate, `AmazonS3ConfigKey`.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import ObjectAddress
from liquidlog.storage.options import SINGLE_WRITER, StorageOptions, is_true, seconds

_ALIASES: Final[Mapping[str, Sequence[str]]] = {
    "access_key_id": (),
    "secret_access_key": (),
    "session_token": ("token",),
    "region": ("default_region",),
    "endpoint_url": ("endpoint", "endpoint_url_s3"),
    "allow_http": (),
    "virtual_hosted_style_request": (),
    "skip_signature": (),
    "request_payer": (),
    "server_side_encryption": (),
    "sse_kms_key_id": (),
    "sse_bucket_key_enabled": (),
    "timeout": (),
    "connect_timeout": (),
    "conditional_put": (),
    # Accepted since delta-rs users set it; without effect, as versions are always put
    # conditionally.
    "s3_allow_unsafe_rename": (),
    # Our own option, see ObjectTableStore; the client ignores it.
    SINGLE_WRITER: (),
}
_ENCRYPTION: Final = {
    "server_side_encryption": "ServerSideEncryption",
    "sse_kms_key_id": "SSEKMSKeyId",
}
_ATTEMPTS: Final = 4


def s3_arguments(
    address: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `s3fs.S3FileSystem`.

    Missing credentials are left to botocore, which reads the environment, profiles and instance
    roles; endpoint and region are also read from the variables of delta-rs.
    """
    del address
    named = options.named(_ALIASES, ("aws_",), storage="S3")
    if named.get("conditional_put", "etag") != "etag":
        raise UsageError("S3 without conditional puts cannot hold a table: conditional_put is etag")
    endpoint = endpoint_of(named, environment)
    region = named.get("region") or environment.get("AWS_REGION")
    return {
        "key": named.get("access_key_id"),
        "secret": named.get("secret_access_key"),
        "token": named.get("session_token"),
        "anon": is_true(named.get("skip_signature", "")),
        "endpoint_url": endpoint,
        "requester_pays": is_true(named.get("request_payer", "")),
        "fixed_upload_size": True,
        "client_kwargs": {"region_name": region} if region else {},
        "config_kwargs": _config(named, endpoint),
        "s3_additional_kwargs": _additional(named),
    }


def endpoint_of(named: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """Return the address of a compatible store, None for AWS itself."""
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    found = [environment[name] for name in variables if environment.get(name)]
    endpoint = named.get("endpoint_url") or next(iter(found), None)
    allowed = named.get("allow_http") or environment.get("AWS_ALLOW_HTTP", "")
    if endpoint and endpoint.lower().startswith("http:") and not is_true(allowed):
        raise UsageError("the S3 endpoint is http: set the storage option aws_allow_http=true")
    return endpoint


def _config(named: Mapping[str, str], endpoint: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {"retries": {"mode": "standard", "total_max_attempts": _ATTEMPTS}}
    if endpoint:
        # Stores other than AWS often support neither host names of buckets nor the newer checksums.
        config["s3"] = {"addressing_style": "path"}
        config["request_checksum_calculation"] = "when_required"
        config["response_checksum_validation"] = "when_required"
    if is_true(named.get("virtual_hosted_style_request", "")):
        config["s3"] = {"addressing_style": "virtual"}
    if "timeout" in named:
        config["read_timeout"] = seconds("timeout", named["timeout"])
    if "connect_timeout" in named:
        config["connect_timeout"] = seconds("connect_timeout", named["connect_timeout"])
    return config


def _additional(named: Mapping[str, str]) -> dict[str, Any]:
    additional: dict[str, Any] = {
        argument: named[name] for name, argument in _ENCRYPTION.items() if name in named
    }
    if is_true(named.get("sse_bucket_key_enabled", "")):
        additional["BucketKeyEnabled"] = True
    return additional


# Convert options of Google Cloud Storage to the arguments of gcsfs
#
# Source: delta-rs uses the option names of the object_store crate, `GoogleConfigKey`.

_ALIASES_OF_GCS: Final[Mapping[str, Sequence[str]]] = {
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
    named = options.named(_ALIASES_OF_GCS, ("google_", "gcs_"), storage="Google Cloud Storage")
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


# Convert options of Azure Blob Storage to the arguments of adlfs
#
# Source: delta-rs uses the option names of the object_store crate, `AzureConfigKey`.

_ALIASES_OF_AZURE: Final[Mapping[str, Sequence[str]]] = {
    "account_name": (),
    "account_key": ("access_key", "master_key"),
    "sas_token": ("sas_key",),
    "client_id": (),
    "client_secret": (),
    "tenant_id": ("authority_id",),
    "endpoint": (),
    "use_emulator": (),
    "skip_signature": (),
    "allow_http": (),
}
_EMULATOR_ACCOUNT: Final = "devstoreaccount1"
_EMULATOR_KEY: Final = (  # public, the same in every installation of the emulator
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def azure_arguments(
    address: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `adlfs.AzureBlobFileSystem`.

    Missing options are taken from the environment. Without a key, a SAS token or a client secret,
    Azure's default credential is used (environment, managed identity, command line).
    """
    named = _completed(options, environment)
    account = named.get("account_name") or address.account
    if account is None:
        raise UsageError("no Azure account: set the storage option azure_storage_account_name")
    if address.account not in {None, account}:
        raise UsageError(
            f"the address is in the Azure account {address.account}, the options in {account}"
        )
    key = _signing_key(named)
    arguments: dict[str, Any] = {"account_name": account, "assume_container_exists": True}
    endpoint = _endpoint(named, environment)
    if endpoint is not None:
        credential = f"AccountKey={key};" if key else ""
        if not key and "sas_token" in named:
            credential = f"SharedAccessSignature={named['sas_token'].lstrip('?')};"
        text = f"AccountName={account};{credential}BlobEndpoint={endpoint};"
        return {**arguments, "connection_string": text}
    names = ("account_key", "sas_token", "client_id", "client_secret", "tenant_id")
    arguments.update({name: named[name] for name in names if name in named})
    if is_true(named.get("skip_signature", "")):
        arguments["anon"] = True
    return arguments


def _completed(options: StorageOptions, environment: Mapping[str, str]) -> dict[str, str]:
    prefixes = ("azure_storage_", "azure_")
    named = options.named(_ALIASES_OF_AZURE, prefixes, storage="Azure Blob Storage")
    if is_true(named.get("use_emulator") or environment.get("AZURE_STORAGE_USE_EMULATOR", "")):
        url = environment.get("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000")
        usual = {
            "account_name": _EMULATOR_ACCOUNT,
            "account_key": _EMULATOR_KEY,
            "endpoint": f"{url.rstrip('/')}/{_EMULATOR_ACCOUNT}",
            "allow_http": "true",
        }
        return {**usual, **named}
    if "account_name" not in named:
        found = environment.get("AZURE_STORAGE_ACCOUNT_NAME")
        named.update({"account_name": found} if found else {})
    if not {"account_key", "sas_token", "client_secret", "skip_signature"} & set(named):
        # Credentials come from one place: those of the environment are used only if the options
        # have none.
        for name in ("account_key", "sas_token", "client_id", "client_secret", "tenant_id"):
            found = environment.get(f"AZURE_STORAGE_{name.upper()}")
            named.update({name: found} if found else {})
    return named


def _signing_key(named: Mapping[str, str]) -> str | None:
    """Return the account's key, None if there is none.

    The client finds a key that it cannot decode when it signs a request, and takes that for a fault
    that may pass.
    """
    key = named.get("account_key")
    try:
        base64.b64decode(key or "")
    except ValueError:
        raise UsageError(
            "the Azure account key is not base64: set the storage option azure_storage_account_key"
            " to the whole key, with the = at its end",
            options=["azure_storage_account_key"],
        ) from None
    return key


def _endpoint(named: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    endpoint = named.get("endpoint") or environment.get("AZURE_STORAGE_ENDPOINT")
    if endpoint is None:
        return None
    if endpoint.lower().startswith("http:") and not is_true(named.get("allow_http", "")):
        raise UsageError("the Azure endpoint is http: set the storage option azure_allow_http=true")
    return endpoint.rstrip("/")
