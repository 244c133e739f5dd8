"""Convert options of S3 and compatible stores to the arguments of s3fs.

Source: delta-rs uses the option names of the object_store crate, `AmazonS3ConfigKey`.
"""

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
