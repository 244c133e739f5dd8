"""What errors say, as values: reasons with a stable kind, the facts, and a clause in words.

`liquidlog.errors` exports them; read them there.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Conflict:
    """One reason why a change can no longer be committed; its `str` is a clause of a sentence.

    `kind` is the stable name of the class; the fields of each class are the facts.
    """

    kind: ClassVar[str] = "conflict"

    def document(self) -> dict[str, object]:
        """Return the conflict as a JSON object: kind, message and the fields of its class."""
        facts = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return {"kind": self.kind, "message": str(self), **facts}


@dataclass(frozen=True, slots=True)
class Outdated(Conflict):
    """The table is not the one that the change was made for; `detail` says why."""

    kind = "outdated"
    detail: str

    def __str__(self) -> str:
        """Return the conflict as a clause of a sentence."""
        return self.detail


class SchemaProblemKind(StrEnum):
    """Why a table cannot have a change of its schema or properties; the values are stable."""

    COLUMN_UNKNOWN = "column_unknown"
    COLUMN_EXISTS = "column_exists"
    COLUMN_NAME_RESERVED = "column_name_reserved"
    COLUMN_IS_THE_LAST = "column_is_the_last"
    COLUMN_IS_CLUSTERED_BY = "column_is_clustered_by"
    COLUMN_IS_PARTITIONED_BY = "column_is_partitioned_by"
    COLUMN_HAS_BLOOM_FILTER = "column_has_bloom_filter"
    COLUMN_HAS_CHAR_TYPE = "column_has_char_type"
    COLUMN_IS_USED = "column_is_used"
    COLUMN_LOSES_STATISTICS = "column_loses_statistics"
    COLUMN_MAPPING_IS_OFF = "column_mapping_is_off"
    COLUMN_MAPPING_IS_FIXED = "column_mapping_is_fixed"
    CHANGE_DATA_FEED_IS_ON = "change_data_feed_is_on"
    SCHEMA_IS_NOT_WRITABLE = "schema_is_not_writable"
    PROPERTY_MISSING = "property_missing"
    PROPERTY_UNKNOWN = "property_unknown"
    PROPERTY_IS_FIXED = "property_is_fixed"
    PROPERTY_SET_AND_UNSET = "property_set_and_unset"
    PROPERTY_VALUE = "property_value"
    FEATURE_MISSING = "feature_missing"


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One reason why a table cannot have a change of its schema or properties.

    Attributes:
        kind: What is wrong.
        text: The same in words; what `str` returns.
        column: The column that stands in the way, as a user writes it.
        property: The property that does, of the table or of that column's field.
        feature: The table feature that is missing.
    """

    kind: SchemaProblemKind
    text: str
    column: str | None = None
    property: str | None = None
    feature: str | None = None

    def __str__(self) -> str:
        """Return the problem as a clause of a sentence."""
        return self.text

    def document(self) -> dict[str, object]:
        """Return the problem as a JSON object: kind, message, and what it is about, if anything."""
        facts = {"column": self.column, "property": self.property, "feature": self.feature}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        return {"kind": self.kind.value, "message": self.text, **known}


def plain(value: object) -> object:
    """Return a fact as plain JSON values: sequences as lists, reasons as their documents."""
    if isinstance(value, Conflict | SchemaProblem):
        return value.document()
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value
