"""Liquid clustering for Delta tables: planned without a JVM, rewritten on Spark.

`Table` is the way in. What `liquidlog.plan` defines and what this module, `liquidlog.errors`,
`liquidlog.table`, `liquidspark` and `liquidspark.tables` list in `__all__` is public; everything
else may change from release to release.

- `table` the facade, one method per stage and per question
- `plan` what planner, executor and commit say to each other: documents of plans and results
- `snapshot` the table at one version, columnar, and log actions reconciled into it
- `commit` an opened table, and changes to its next version
- `local` the executor without Spark
- `sql` statements of SQL about tables, text to values
- `advice` the candidates for a layout, and the choice among them
- `doctor` findings about a table, and the actions that repair it
- `errors` the tree of errors, codes, exit statuses, and the reasons that errors hold
- `version` of this distribution
- `logs` lines for Python's logging
- `startup` what processes of our own need not import
"""

from importlib import import_module

from liquidlog.version import __version__

TYPE_CHECKING = False  # typing takes long to import, before an interrupt of a command is understood
if TYPE_CHECKING:
    from typing import Any

    from liquidlog import errors
    from liquidlog.errors import LiquidlogError
    from liquidlog.plan import ClusteringPlan, RewriteResult
    from liquidlog.table import Table

__all__ = ["ClusteringPlan", "LiquidlogError", "RewriteResult", "Table", "__version__", "errors"]

_FROM = {
    "ClusteringPlan": "liquidlog.plan",
    "LiquidlogError": "liquidlog.errors",
    "RewriteResult": "liquidlog.plan",
    "Table": "liquidlog.table",
}


def __getattr__(name: str) -> "Any":  # noqa: ANN401  a module's attribute
    # Resolved on first use: workers of an executor import submodules and need no log layer.
    if name == "errors":
        return import_module("liquidlog.errors")
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
