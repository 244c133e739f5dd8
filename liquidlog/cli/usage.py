"""What is wrong with the words of a command, in one sentence."""

import math
import re
from typing import Any, Final

import click

from liquidlog.spec.near import near_names

_NO_COMMAND: Final = re.compile(r"No such command '(.+?)'")


class WholeNumber(click.IntRange):
    """A whole number on the command line, from `min` on."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the number."""
        try:
            found: int = super().convert(value, param, ctx)
        except click.BadParameter:
            upto = "" if self.max is None else f" to {self.max}"
            self.fail(f"expected a whole number from {self.min}{upto}, found {value!r}", param, ctx)
        return found


class Number(click.FloatRange):
    """A finite number on the command line, from `min` on."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number."""
        try:
            found: float = super().convert(value, param, ctx)
        except click.BadParameter:
            found = math.nan
        if not math.isfinite(found):
            self.fail(f"expected a number from {self.min}, found {value!r}", param, ctx)
        return found


def click_message(error: click.ClickException) -> str:
    """Return what click found wrong, and where help is, as one sentence."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    where = "" if context is None else f"; see {context.command_path} --help"
    return f"{_problem(error)}{where}"


def _problem(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        known = _options(error.ctx)
        return f"there is no option {error.option_name}{_hint(error.option_name, known)}"
    message = error.format_message()
    verb = _NO_COMMAND.match(message)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if verb is not None and context is not None and isinstance(context.command, click.Group):
        known = context.command.list_commands(context)
        return f"there is no verb {verb[1]}{_hint(verb[1], known)}"
    return f"{message[:1].lower()}{message[1:]}".removesuffix(".")


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    return [name for parameter in context.command.params for name in parameter.opts]


def _hint(name: str, known: list[str]) -> str:
    near = near_names(name, known)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
