"""Types of option values: text on the command line to numbers, shares, sizes and pairs."""

import math
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from liquidlog.errors import UsageError
from liquidlog.spec.text import parse_size

Value = TypeVar("Value")
"""What the text of an option stands for."""

_WHOLE: Final = 100.0


class Parsed(click.ParamType[Value], ABC):
    """A type of option values that are parsed from text."""

    @abstractmethod
    def parse(self, text: str) -> Value:
        """Return the value."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Value:
        """Return the value; one that is no text is a default, or was parsed before."""
        if not isinstance(value, str):
            return cast("Value", value)
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


class WholeNumber(Parsed[int]):
    """A whole number on the command line, from `least` to `most`."""

    name = "integer"

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least = least
        self._most = most

    def parse(self, text: str) -> int:
        """Return the number."""
        number: int | None = None
        with suppress(ValueError):
            number = int(text)
        most = math.inf if self._most is None else self._most
        if number is None or not self._least <= number <= most:
            upto = "" if self._most is None else f" to {self._most}"
            raise UsageError(f"expected a whole number from {self._least}{upto}, found {text!r}")
        return number


class Number(Parsed[float]):
    """A finite number on the command line, at least `least`."""

    name = "number"

    def __init__(self, least: float) -> None:
        self._least = least

    def parse(self, text: str) -> float:
        """Return the number."""
        number = math.nan
        with suppress(ValueError):
            number = float(text)
        if not self._least <= number < math.inf:
            raise UsageError(f"expected a number from {self._least}, found {text!r}")
        return number


class Positive(Number):
    """A finite number above 0 on the command line."""

    def __init__(self) -> None:
        super().__init__(0)

    def parse(self, text: str) -> float:
        """Return the number."""
        number = super().parse(text)
        if not number:
            raise UsageError(f"expected a number above 0, found {text!r}")
        return number


class Percentage(Parsed[float]):
    """A share on the command line: 10% or 0.1."""

    name = "share"

    def parse(self, text: str) -> float:
        """Return the share, from 0 to 1."""
        found = text.strip()
        share = math.nan
        with suppress(ValueError):
            share = float(found.removesuffix("%")) / (_WHOLE if found.endswith("%") else 1)
        if not 0 <= share <= 1:
            raise UsageError(f"expected a share like 10% or 0.1, found {text!r}")
        return share


class SizeType(Parsed[int]):
    """A size on the command line: bytes, or a number with a unit."""

    name = "size"

    def parse(self, text: str) -> int:
        """Return the size in bytes."""
        return parse_size(text)


class PairsType(Parsed[tuple[str, str]]):
    """A `key=value` on the command line."""

    name = "k=v"

    def parse(self, text: str) -> tuple[str, str]:
        """Return (key, value)."""
        key, found, value = text.partition("=")
        if not found or not key:
            # The text is not repeated: it may be a secret without its name.
            raise UsageError("a value is not of the form key=value")
        return key, value


SIZE = SizeType()
PAIR = PairsType()
LOCAL_FILE = click.Path(dir_okay=False, path_type=Path)
