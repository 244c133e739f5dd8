"""The Spark executor, plan in, result out; DataFrames written to tables; SQL on a session.

The names below are loaded on first use: without pyspark the package can still be imported, and
`liquidspark.session` says what is missing.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from liquidlog.version import __version__

if TYPE_CHECKING:
    from liquidspark.executor import ExecutorOptions, execute, execute_groups
    from liquidspark.registering import read, register
    from liquidspark.statements import sql
    from liquidspark.streaming import InlineClustering, stream
    from liquidspark.tasks import session_tasks
    from liquidspark.writing import append, overwrite

__all__ = [
    "ExecutorOptions",
    "InlineClustering",
    "__version__",
    "append",
    "execute",
    "execute_groups",
    "overwrite",
    "read",
    "register",
    "session_tasks",
    "sql",
    "stream",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

_MODULES = {
    "InlineClustering": "liquidspark.streaming",
    "append": "liquidspark.writing",
    "overwrite": "liquidspark.writing",
    "read": "liquidspark.registering",
    "register": "liquidspark.registering",
    "session_tasks": "liquidspark.tasks",
    "sql": "liquidspark.statements",
    "stream": "liquidspark.streaming",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  a module's attribute
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES.get(name, "liquidspark.executor")), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyspark":
            raise
        from liquidlog.errors import ExecutorError
        from liquidspark.session import PYSPARK_MISSING

        raise ExecutorError(PYSPARK_MISSING) from error


def __dir__() -> list[str]:
    return sorted(__all__)
