"""Words of a statement: sqlglot's tokens in a dialect of ours, and errors that point at one.

The dialect is Spark's, in which every word is a name. Which words mean something is decided by the
statements, so that a column may be called `full` or `none`.
"""

from typing import ClassVar, Final, NoReturn

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from liquidlog.errors import UsageError
from liquidlog.spec.near import near_names

_MOST_SHOWN: Final = 40
_NAMES: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})


class StatementDialect(Spark):
    """Spark's quotes, comments and numbers; no keywords, and `$` inside names."""

    class Tokenizer(Spark.Tokenizer):
        """The tokenizer of this dialect."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {}
        VAR_SINGLE_TOKENS: ClassVar[set[str]] = {"$"}


class Words:
    """The words of one statement, read from the first to the last."""

    def __init__(self, text: str) -> None:
        """Split a text into words."""
        if not isinstance(text, str):
            raise UsageError(f"a statement must be text, found {type(text).__name__}")
        self.text = text
        try:
            found = StatementDialect().tokenize(text)
        except SqlglotError:
            refuse_unclosed(text)
        while found and found[-1].token_type is TokenType.SEMICOLON:
            found.pop()
        self._tokens = found
        self._next = 0

    @property
    def token(self) -> Token | None:
        """The next token, None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    @property
    def offset(self) -> int:
        """The position in the text where the next token begins."""
        return len(self.text.rstrip("; \t\r\n")) if self.token is None else self.token.start

    @property
    def end(self) -> int:
        """The position in the text behind the last token that was read."""
        return self._tokens[self._next - 1].end + 1 if self._next else 0

    def advance(self) -> Token:
        """Read the next token, which there must be."""
        token = self._tokens[self._next]
        self._next += 1
        return token

    def sees(self, *words: str) -> bool:
        """Return whether the next words are these, in any case."""
        ahead = self._tokens[self._next : self._next + len(words)]
        return len(ahead) == len(words) and all(
            token.token_type is TokenType.VAR and token.text.upper() == word
            for token, word in zip(ahead, words, strict=True)
        )

    def sees_kind(self, kind: TokenType) -> bool:
        """Return whether the next token is of a kind."""
        return self.token is not None and self.token.token_type is kind

    def take(self, *words: str) -> bool:
        """Read these words if they are the next; return whether they are."""
        found = self.sees(*words)
        if found:
            self._next += len(words)
        return found

    def take_kind(self, kind: TokenType) -> bool:
        """Read the next token if it is of a kind; return whether it is."""
        found = self.sees_kind(kind)
        if found:
            self._next += 1
        return found

    def expect(self, *words: str) -> None:
        """Read these words."""
        for word in words:
            if not self.take(word):
                self.refuse(word)

    def expect_kind(self, kind: TokenType, what: str) -> Token:
        """Read and return a token of a kind, called `what` in the error."""
        if not self.sees_kind(kind):
            self.refuse(what)
        return self.advance()

    def name(self, what: str) -> str:
        """Read one name, in backticks or bare."""
        if self.token is None or self.token.token_type not in _NAMES or not self.token.text:
            self.refuse(what)
        return self.advance().text

    def path(self, what: str) -> tuple[str, ...]:
        """Read names with points between them."""
        parts = [self.name(what)]
        while self.take_kind(TokenType.DOT):
            parts.append(self.name(what))
        return tuple(parts)

    def string(self, what: str) -> str:
        """Read a text in quotes."""
        return str(self.expect_kind(TokenType.STRING, what).text)

    def number(self, what: str) -> int:
        """Read a whole number."""
        token = self.token
        if token is None or token.token_type is not TokenType.NUMBER or not token.text.isdecimal():
            self.refuse(what)
        return int(self.advance().text)

    def finish(self, *more: str) -> None:
        """Require that the statement ends here; `more` is what could still have come."""
        if self.sees_kind(TokenType.SEMICOLON):
            self._next += 1
            self.fail("a second statement begins here; give one at a time")
        if self.token is not None:
            self.refuse(*more, "the end of the statement")

    def refuse(self, *expected: str) -> NoReturn:
        """Refuse the next token; says what was expected instead."""
        listed = (
            expected[0] if len(expected) == 1 else f"{', '.join(expected[:-1])} or {expected[-1]}"
        )
        if self.sees_kind(TokenType.LT):
            self.fail(
                f"expected {listed}, found a placeholder; put what it stands for in its place"
            )
        words = dict.fromkeys(one.partition(" ")[0] for one in expected)
        near = near_names(self._shown(), filter(str.isupper, words))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        self.fail(f"expected {listed}, found {self._shown()}{hint}")

    def fail(self, problem: str, *, at: Token | None = None) -> NoReturn:
        """Refuse the statement because of the next token, or of another."""
        token = at or self.token
        refuse_at(self.text, self.offset if token is None else token.start, problem)

    def _shown(self) -> str:
        token = self.token
        if token is None:
            return "the end of the statement"
        written = self.text[token.start : token.end + 1]
        return written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}..."


def refuse_at(text: str, offset: int, problem: str) -> NoReturn:
    """Refuse a statement because of what stands at an offset of its text."""
    before = text[:offset]
    line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
    raise UsageError(f"line {line}, column {column}: {problem}", line=line, column=column)


def refuse_unclosed(text: str) -> NoReturn:
    """Refuse a text in which a quote or a comment does not end; points at its beginning."""
    offset, length = 0, len(text)
    while offset < length:
        opener = next(
            (one for one in ("--", "/*", "'", '"', "`") if text.startswith(one, offset)), ""
        )
        behind = _behind(text, offset, opener) if opener else offset + 1
        if behind is None:
            what = "comment" if opener == "/*" else f"quote {opener}"
            refuse_at(text, offset, f"the {what} that begins here is not closed")
        offset = behind
    refuse_at(text, 0, "this is not a statement of SQL")


def _behind(text: str, offset: int, opener: str) -> int | None:
    """Return the offset behind a quote or a comment, None if it does not end."""
    if opener == "--":
        found = text.find("\n", offset)
        return len(text) if found < 0 else found + 1
    if opener == "/*":
        found = text.find("*/", offset + 2)
        return None if found < 0 else found + 2
    at = offset + 1
    while at < len(text):
        if text[at] == "\\" and opener != "`":
            at += 2
        elif text[at] == opener:
            return at + 1
        else:
            at += 1
    return None
