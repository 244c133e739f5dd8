"""Words of a statement, sqlglot's trees of a text, and errors that point at a word.

Every word is a name, as in Spark. The statements decide which words have a meaning, so a column may
be called `full` or `none`.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar, Final, NoReturn, TypeVar

from sqlglot import Token, TokenType
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.expressions import Expr

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import near_names
from liquidlog.sql.statements import TableAt, TableName, table_of

T = TypeVar("T")

A_TABLE: Final = "a table, as delta.`/data/sales`"
_MOST_SHOWN: Final = 40
_QUOTED: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER})
_CLOSED: Final = re.compile(
    r"""(?:--[^\n]*|/\*.*?\*/|'(?:\\.|[^\\'])*'|"(?:\\.|[^\\"])*"|`[^`]*`|(?!/\*|['"`]).)*""",
    re.DOTALL,
)
"""Matches a text up to its first quote or comment that does not end."""


class _UnreadableError(ParseError):
    """The word at `offset` in the text cannot be parsed; at its end if None."""

    def __init__(self, message: str, offset: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class _Words(Databricks):
    """Splits quotes, comments and numbers of Databricks' SQL; knows no keywords."""

    class Tokenizer(Databricks.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {}


class _Trees(Databricks):
    """Parses Databricks' SQL and leaves no statement unparsed."""

    class Parser(Databricks.Parser):  # type: ignore[misc,valid-type]  # a class
        def raise_error(self, message: str, token: Token | None = None) -> None:
            at = token or self._curr
            raise _UnreadableError(message, at.start if at else None)

        def _parse_as_command(self, start: Token) -> NoReturn:  # noqa: ARG002  sqlglot's signature
            self.raise_error("Expecting the end of the statement" if self._curr else "")
            raise AssertionError

        def _warn_unsupported(self) -> None:
            self.raise_error("")


class Words:
    """The words of one statement, taken from the first to the last."""

    def __init__(self, text: str) -> None:
        """Split a text into words."""
        if not isinstance(text, str):
            raise UsageError(f"a statement must be text, found {type(text).__name__}")
        self.text = text
        try:
            self._tokens = _Words().tokenize(text)
        except SqlglotError:
            self._refuse_unclosed()
        while self._tokens and self._tokens[-1].token_type is TokenType.SEMICOLON:
            self._tokens.pop()
        self._next = 0
        for one, other in pairwise(self._tokens):
            if one.token_type is TokenType.SEMICOLON:
                self.fail("a second statement begins here; give one at a time", at=other.start)

    @property
    def token(self) -> Token | None:
        """The next token, None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    @property
    def offset(self) -> int:
        """The position in the text where the next token begins."""
        return len(self.text.rstrip("; \t\r\n")) if self.token is None else self.token.start

    def sees(self, *words: str) -> bool:
        """Return whether the next words or signs are these, in any case and not in quotes."""
        ahead = self._tokens[self._next : self._next + len(words)]
        return len(ahead) == len(words) and all(
            token.token_type not in _QUOTED and token.text.upper() == word
            for token, word in zip(ahead, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Take these words if they are next; return whether they were."""
        found = self.sees(*words)
        self._next += len(words) if found else 0
        return found

    def expect(self, *words: str, what: str | None = None) -> None:
        """Take these words, called `what` in the error."""
        for word in words:
            if not self.take(word):
                self.refuse(what or word)

    def name(self, what: str = "a column's name") -> str:
        """Take one name, in backticks or bare."""
        return self._text(TokenType.VAR, TokenType.IDENTIFIER, what=what)

    def path(self, what: str = "a column's name") -> tuple[str, ...]:
        """Take names with points between them."""
        return self.listed(lambda: self.name(what), between=".")

    def listed(self, read: Callable[[], T], *, between: str = ",") -> tuple[T, ...]:
        """Take a list of what `read` takes."""
        found = [read()]
        while self.take(between):
            found.append(read())
        return tuple(found)

    def columns(self) -> tuple[str, ...]:
        """Take names of columns, in parentheses or bare, and return them as `Table` takes them."""
        closes = self.take("(")
        found = self.listed(self.path)
        if closes:
            self.expect(")", what=", or )")
        return tuple(map(quote_path, found))

    def sees_string(self) -> bool:
        """Return whether a text in quotes is next."""
        return self.token is not None and self.token.token_type is TokenType.STRING

    def string(self, what: str) -> str:
        """Take a text in quotes."""
        return self._text(TokenType.STRING, what=what, empty=True)

    def number(self, what: str) -> int:
        """Take a whole number."""
        if self.token is None or not self.token.text.isdecimal():
            self.refuse(what)
        return int(self._text(TokenType.NUMBER, what=what))

    def _text(self, *kinds: TokenType, what: str, empty: bool = False) -> str:
        token = self.token
        if token is None or token.token_type not in kinds or not (token.text or empty):
            self.refuse(what)
        self._next += 1
        return token.text

    def table(self) -> TableName:
        """Take a table: a name, delta.`path`, or a path in quotes."""
        if not self.sees_string():
            return table_of(self.path(A_TABLE))
        begin, uri = self.offset, self.string(A_TABLE)
        return TableAt(uri or self.fail("the path of a table is empty", at=begin))

    def condition(self, *ends: str) -> str | None:
        """Take WHERE and a condition up to one of the words `ends`; return None without WHERE."""
        if not self.take("WHERE"):
            return None
        begin, depth = self.offset, 0
        while self.token is not None and (depth or not any(map(self.sees, ends))):
            depth += self.sees("(") - self.sees(")")
            self._next += 1
        text = self.text[begin : self._tokens[self._next - 1].end + 1]
        if not text:
            self.fail("expected a condition behind WHERE, found none")
        self._tree(text, begin, "the condition cannot be read here")
        try:
            parse_condition(text)
        except UsageError:
            self.fail("expected a condition, as day >= '2026-01-31'", at=begin)
        return text

    def tree(
        self, head: str | None = None, tail: str = "", *, closing: str = "a type, a comma or )"
    ) -> Expr:
        """Take all that is left; return sqlglot's tree of the whole statement.

        With `head` and `tail`, the tree has what is left between these; offsets stay as they are.
        `closing` is what errors expect where a parenthesis could have ended.
        """
        begin, self._next = self.offset, len(self._tokens)
        left = self.text[: self.offset]
        text = left if head is None else f"{head.ljust(begin)}{left[begin:]}{tail}"
        return self._tree(text, 0, "this cannot be read here", closing)

    def _tree(self, text: str, begin: int, problem: str, closing: str = ")") -> Expr:
        try:
            (found,) = _Trees().parse(text)
            assert found is not None  # noqa: S101  there is text
        except _UnreadableError as error:
            at = begin + (len(text) if error.offset is None else error.offset)
            self._next = next(
                (n for n, one in enumerate(self._tokens) if one.start >= at), len(self._tokens)
            )
            expected, _, what = error.message.partition("Expecting ")
            if what and not expected:
                self.refuse({")": closing, ">": "a type, a comma or >"}.get(what, what))
            self.fail(f"{problem}, found {self._shown()}")
        except Exception as error:
            if isinstance(error, RecursionError):
                raise
            self.fail(problem, at=begin)
        return found

    def seek(self, *words: str, after: int = 0) -> int:
        """Return the first offset from `after` on where one of these words begins, else `after`."""
        found = (one.start for one in self._tokens if one.text.upper() in words)
        return next((start for start in found if start >= after), after)

    def finish(self, *more: str) -> None:
        """Require the end of the statement; `more` could still have come."""
        if self.token is not None:
            self.refuse(*more, "the end of the statement")

    def refuse(self, *expected: str) -> NoReturn:
        """Refuse the next token, and say what was expected."""
        *others, last = expected
        listed = f"{', '.join(others)} or {last}" if others else last
        if self.sees("<"):
            self.fail(
                f"expected {listed}, found a placeholder; put what it stands for in its place"
            )
        words = dict.fromkeys(one.partition(" ")[0] for one in expected)
        shown = self._shown()
        near = near_names(shown, (one for one in words if one.isupper() and one != shown.upper()))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        self.fail(f"expected {listed}, found {self._shown()}{hint}")

    def fail(self, problem: str, *, at: int | None = None) -> NoReturn:
        """Refuse the statement because of the next token, or of the text at an offset."""
        before = self.text[: self.offset if at is None else at]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise UsageError(f"line {line}, column {column}: {problem}", line=line, column=column)

    def _shown(self) -> str:
        if self.token is None:
            return "the end of the statement"
        written = " ".join(self.text[self.token.start : self.token.end + 1].split())
        return written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}..."

    def _refuse_unclosed(self) -> NoReturn:
        found = _CLOSED.match(self.text)
        offset = 0 if found is None else found.end()
        if offset == len(self.text):
            self.fail("this is not a statement of SQL", at=0)
        opener = self.text[offset]
        what = "comment" if opener == "/" else f"quote {opener}"
        self.fail(f"the {what} that begins here is not closed", at=offset)
