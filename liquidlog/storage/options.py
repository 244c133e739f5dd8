"""Storage options under the names that delta-rs uses. Their values are never shown.

An option may be spelled in upper or lower case, with or without the prefix of its storage.
Messages, reprs and documents contain only the names of options.
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
"""An option of our own, never passed to a client."""
_SHORTEST_SECRET: Final = 6
_MOST_SHOWN: Final = 300
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options as the user gave them; they are sent to workers but are never part of a document."""

    items: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def of(cls, options: Mapping[str, str] | None) -> "StorageOptions":
        """Return the options in a mapping; None means no options.

        Raises:
            UsageError: If the argument is not a mapping from str to str.
        """
        if options is None:
            return cls()
        return cls(tuple(sorted(text_mapping(options, argument="storage_options").items())))

    def __repr__(self) -> str:
        """Return the names only."""
        return f"StorageOptions({', '.join(name for name, _ in self.items)})"

    def __bool__(self) -> bool:
        """Return whether there are any options."""
        return bool(self.items)

    def given(self) -> dict[str, str]:
        """Return the given options without our own, by name; for clients only."""
        return {name: value for name, value in self.items if name.lower() != SINGLE_WRITER}

    @property
    def single_writer(self) -> bool:
        """Whether the user vouches that no writer commits to the table in a way we cannot see."""
        return any(name.lower() == SINGLE_WRITER and is_true(value) for name, value in self.items)

    def named(
        self, aliases: Mapping[str, Sequence[str]], prefixes: Sequence[str], *, storage: str
    ) -> dict[str, str]:
        """Return the values, each under its canonical name.

        Args:
            aliases: All spellings of each canonical name, without a prefix.
            prefixes: The prefixes that a spelling may have.
            storage: The name of the storage, for messages.

        Raises:
            UsageError: If options are unknown; names all of them.
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
    """Return the first line of a client's message, shortened and without secrets."""
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
        UsageError: If the text is not a duration.
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
        # Clients put parts of a secret into URLs: those of a SAS token appear as query parameters.
        parts = [part.partition("=")[2] for part in value.split("&")]
        for piece in (value, *parts, *value.replace("\\n", "\n").splitlines()):
            if len(piece) >= _SHORTEST_SECRET:
                yield piece
