"""The Spark executor: a ClusteringPlan in, a RewriteResult out.

The names below are loaded on first use: without pyspark the package can still be imported, and
`liquidspark.session` says what is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from liquidspark.executor import ExecutorOptions, execute, execute_groups

__all__ = ["ExecutorOptions", "execute", "execute_groups"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("liquidspark.executor"), name)
