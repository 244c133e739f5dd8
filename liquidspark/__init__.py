"""The Spark executor, plan in, result out; DataFrames written to tables; SQL on a session.

The names below are loaded on first use, so the package can be imported without pyspark.

- `executor` plan to result, group by group: the tasks of a group as Spark jobs, and their requests;
  the tasks that sample, place and write rows of a DataFrame
- `frames` append, overwrite, read, and streams into tables
- `session` Spark sessions with our settings, checks of the driver and the workers
- `cli` the entry point, `__main__` the program for spark-submit
- `tables` DeltaTable with Delta's names, and SQL on a session
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from liquidlog.version import __version__

if TYPE_CHECKING:
    from liquidspark.executor import ExecutorOptions, execute, execute_groups, session_tasks
    from liquidspark.frames import InlineClustering, append, overwrite, read, stream
    from liquidspark.tables import sql

__all__ = [
    "ExecutorOptions",
    "InlineClustering",
    "__version__",
    "append",
    "execute",
    "execute_groups",
    "overwrite",
    "read",
    "session_tasks",
    "sql",
    "stream",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

_MODULES = {
    "InlineClustering": "liquidspark.frames",
    "append": "liquidspark.frames",
    "overwrite": "liquidspark.frames",
    "read": "liquidspark.frames",
    "session_tasks": "liquidspark.executor",
    "sql": "liquidspark.tables",
    "stream": "liquidspark.frames",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  a module's attribute
    if name == "register":
        from liquidlog.errors import UsageError

        raise UsageError(
            'liquidspark.register and the format "liquid" are gone: read with liquidspark.read,'
            " write with liquidspark.append, overwrite and stream"
        )
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
