"""Text from outside without what looks like a credential: signatures, tokens, users in URIs."""

import re
from typing import Final

_SIGNED: Final = re.compile(
    r"(?i)((?:\bsig|signature|x-amz-security-token|x-amz-signature|x-amz-credential|accountkey"
    r"|sharedaccesssignature|access_token|client_secret|secret_access_key|session_token|password)"
    r"[\"']?\s*[=:]\s*[\"']?)[^&\s;,\"'<>]+"
)
_BEARER: Final = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_USER: Final = re.compile(r"(?i)\b(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<user>[^\s/?#@]+)@")
_CONTAINER: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes in which a container, and no user, stands before `@`."""
_MASK: Final = "***"


def masked(text: str) -> str:
    """Return `text` with `***` in place of signatures, tokens, and users with their passwords.

    Only what has a known form is found; values of storage options are to be replaced before.
    """
    text = _SIGNED.sub(rf"\1{_MASK}", text)
    if "@" in text:
        text = _USER.sub(_without_user, text)
    return _BEARER.sub(rf"\1{_MASK}", text)


def _without_user(found: re.Match[str]) -> str:
    if found["scheme"].lower() in _CONTAINER and ":" not in found["user"]:
        return found[0]
    return f"{found['scheme']}://{_MASK}@"
