"""What a shell is offered behind words that are typed: names, and files or directories."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def directories(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer directories: tables on local disk are some."""
    return [CompletionItem(typed, type="dir")]


def files(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer files."""
    return [CompletionItem(typed, type="file")]


def one_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Offer names, which are asked for only then: what knows them may take long to import."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in names() if name.startswith(typed)]

    return complete


def strategies() -> Iterable[str]:
    """Return the names of the strategies that are installed."""
    from liquidlog.operations.strategies import strategy_names

    return strategy_names()


def curves() -> Iterable[str]:
    """Return the names of the curves."""
    from liquidlog.curve.curves import Curve

    return [curve.value for curve in Curve]


def codecs() -> Iterable[str]:
    """Return the names of the codecs that files are written with."""
    from liquidlog.spec.arguments import Codec

    return [codec.value for codec in Codec]


def executors() -> Iterable[str]:
    """Return the names of the executors that are installed."""
    from liquidlog.operations.executors import executor_names

    return executor_names()
