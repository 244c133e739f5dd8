"""Convert options of Azure Blob Storage to the arguments of adlfs.

Source: delta-rs uses the option names of the object_store crate, `AzureConfigKey`.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import ObjectAddress
from liquidlog.storage.options import StorageOptions, is_true

_ALIASES: Final[Mapping[str, Sequence[str]]] = {
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
    named = options.named(_ALIASES, prefixes, storage="Azure Blob Storage")
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
