"""Whether anybody answers where Spark is said to be: seconds, where Spark itself takes minutes."""

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from liquidlog.errors import ExecutorError

TIMEOUT_SECONDS: Final = 5.0
"""For each address, of which a master can have several."""

_MASTER: Final = "spark://"
_CONNECT: Final = "sc://"
_CONNECT_PORT: Final = 15002
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_HOST_AND_PORT: Final = re.compile(r"(?P<host>\[[^]]+\]|[^:\[\]]+)(?::(?P<port>\d+))?")

Address = tuple[str, int]


def require_answer(conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Refuse a standalone master or a Spark Connect server that no connection can be made to.

    Other masters, and addresses that are not understood, are left to Spark.

    Args:
        conf: Spark settings.
        environment: Variables that name what the settings do not.

    Raises:
        ExecutorError: If none of its addresses answers.
    """
    remote = conf.get("spark.remote") or environment.get("SPARK_REMOTE", "")
    if remote:
        if any(name in environment or name.upper() in environment for name in _PROXIES):
            return  # gRPC goes by the proxy, which may be the only way
        _require("Spark Connect server", "spark.remote", remote, _connect_addresses(remote))
        return
    names = ("MASTER", "SPARK_MASTER")
    named = next((environment[name] for name in names if name in environment), "")
    master = conf.get("spark.master", named)
    _require("Spark master", "spark.master", master, _master_addresses(master))


def _require(what: str, setting: str, named: str, addresses: Iterable[Address]) -> None:
    problems = []
    for address in addresses:
        problem = _problem(address)
        if problem is None:
            return
        problems.append(problem)
    if problems:
        shown = named.partition("/;")[0]
        reasons = ", ".join(dict.fromkeys(problems))
        raise ExecutorError(
            f"no {what} answers at {shown} ({reasons}); start it, or name another one with"
            f" --spark-conf {setting}=\u2026"
        )


def _problem(address: Address) -> str | None:
    """Return why no connection can be made, None if one can."""
    try:
        with socket.create_connection(address, timeout=TIMEOUT_SECONDS):
            return None
    except TimeoutError:
        return f"nothing within {TIMEOUT_SECONDS:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _master_addresses(master: str) -> tuple[Address, ...]:
    if not master.startswith(_MASTER):
        return ()
    return _addresses(master.removeprefix(_MASTER).split(","), port=None)


def _connect_addresses(remote: str) -> tuple[Address, ...]:
    if not remote.startswith(_CONNECT):
        return ()
    return _addresses([remote.removeprefix(_CONNECT).partition("/")[0]], port=_CONNECT_PORT)


def _addresses(texts: Iterable[str], *, port: int | None) -> tuple[Address, ...]:
    """Return host and port of every text; none at all if one of them is not understood."""
    found = []
    for text in texts:
        match = _HOST_AND_PORT.fullmatch(text.strip())
        number = match and (match["port"] or port)
        if match is None or number is None:
            return ()
        found.append((match["host"].strip("[]"), int(number)))
    return tuple(found)
