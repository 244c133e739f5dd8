"""Options of a storage, under the names that delta-rs users know. Values are never shown.

An option is known by its delta-rs name in upper or lower case, with or without the prefix of its
storage. Names are all that a message, a repr or a document ever holds of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.spec.arguments import text_mapping
from liquidlog.spec.near import near_names

_SECRET: Final = re.compile(r"key|secret|token|sas|password|credential", re.IGNORECASE)
_SIGNATURES: Final = re.compile(
    r"(?i)((?:sig|signature|x-amz-security-token|x-amz-signature|x-amz-credential"
    r"|accountkey|sharedaccesssignature|access_token)\s*[=:]\s*)[^&\s;,\"'<>]+"
)
SINGLE_WRITER: Final = "liquidlog_single_writer"
"""An option of ours: never given to a client."""
_SHORTEST_SECRET: Final = 6
_MOST_SHOWN: Final = 300
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options as the user gave them; travels to workers, is never part of a document."""

    items: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def of(cls, options: Mapping[str, str] | None) -> "StorageOptions":
        """Return the options of a mapping; None is no options.

        Raises:
            UsageError: If it is no mapping of texts.
        """
        if options is None:
            return cls()
        return cls(tuple(sorted(text_mapping(options, argument="storage_options").items())))

    def __repr__(self) -> str:
        """Return the names only."""
        return f"StorageOptions({', '.join(name for name, _ in self.items)})"

    def __bool__(self) -> bool:
        """Return whether there is any option."""
        return bool(self.items)

    def given(self) -> dict[str, str]:
        """Return name to value, as given, without what is ours; for clients only."""
        return {name: value for name, value in self.items if name.lower() != SINGLE_WRITER}

    @property
    def single_writer(self) -> bool:
        """Whether the user vouches that nobody commits to the table in a way we cannot see."""
        return any(name.lower() == SINGLE_WRITER and is_true(value) for name, value in self.items)

    def named(
        self, aliases: Mapping[str, Sequence[str]], prefixes: Sequence[str], *, storage: str
    ) -> dict[str, str]:
        """Return the values under one name each.

        Args:
            aliases: Name to all spellings without a prefix.
            prefixes: Which prefixes may stand before a spelling.
            storage: What the options are for, in words.

        Raises:
            UsageError: If options are unknown; names every one of them.
        """
        known = {
            prefix + spelling: name
            for name, spellings in aliases.items()
            for spelling in (name, *spellings)
            for prefix in ("", *prefixes)
        }
        unknown = [name for name, _ in self.items if name.lower() not in known]
        if unknown:
            usual = sorted(prefixes[0] + name for name in aliases)
            near = dict.fromkeys(one for name in unknown for one in near_names(name, usual))
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(usual)}"
            raise UsageError(
                f"{storage} has no option {', '.join(unknown)}; {hint}", options=unknown
            )
        return {known[name.lower()]: value for name, value in self.items}


NO_OPTIONS: Final = StorageOptions()


def redacted(text: str, options: StorageOptions, environment: Mapping[str, str]) -> str:
    """Return the first line of a client's message without any secret, and not long."""
    line = text.strip().partition("\n")[0]
    for secret in sorted(_secrets(options, environment), key=len, reverse=True):
        line = line.replace(secret, "***")
    line = _SIGNATURES.sub(r"\1***", line)
    return line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "..."


def is_true(value: str) -> bool:
    """Return whether an option's text means yes."""
    return value.strip().lower() in {"1", "true", "yes", "y", "on"}


def seconds(name: str, value: str) -> float:
    """Return a duration such as 30s, 500ms or 2m in seconds.

    Raises:
        UsageError: If it is none.
    """
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise UsageError(
            f"the storage option {name} must be a duration such as 30s", options=[name]
        )
    return float(found[1]) * _SECONDS[found[2]]


def _secrets(options: StorageOptions, environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in (*options.items, *environment.items()):
        if not _SECRET.search(name):
            continue
        # Clients put parts of a secret into addresses: a SAS token arrives as its parameters.
        parts = [part.partition("=")[2] for part in value.split("&")]
        for piece in (value, *parts, *value.replace("\\n", "\n").splitlines()):
            if len(piece) >= _SHORTEST_SECRET:
                yield piece
