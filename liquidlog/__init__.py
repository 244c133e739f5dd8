"""Liquid clustering for Delta tables: planned without a JVM, rewritten on Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liquidlog.table import Table as Table

__all__ = ["Table"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  a module's attribute
    # Resolved on first use: workers of an executor import submodules and need no log layer.
    if name == "Table":
        from liquidlog.table import Table

        return Table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
