"""What differs between the versions of PySpark, 3.5 to 4.3, and between classic and Connect."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from liquidlog.spec.arguments import refuse
from liquidlog.storage.files import are_apart

if TYPE_CHECKING:  # partly absent from clients of Connect
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OWN_WORKERS: Final = "LIQUIDSPARK_WORKERS"
"""Variable of workers of a session that was started here: they run nothing but our tasks."""
_MADE_UP: Final = frozenset({"OneRowRelation", "Range"})
"""Leaves of plans that read nothing. The rows of a LocalRelation may be what was collected."""
_FIRST_WITH_ARROW: Final = 4
"""The major version from which on sessions take Arrow tables."""


def context_of(spark: "SparkSession") -> "SparkContext | None":
    """Return the context of a classic session; None for one of Spark Connect.

    Connect's sessions raise when they are asked: an AttributeError from 4.0 on.
    """
    try:
        return spark.sparkContext
    except (AttributeError, NotImplementedError):
        return None


def add_tag(spark: "SparkSession", tag: str) -> None:
    """Give a tag to the jobs that this thread starts from now on."""
    context = context_of(spark)
    if context is None:
        spark.addTag(tag)
    else:
        context.addJobTag(tag)


def remove_tag(spark: "SparkSession", tag: str) -> None:
    """Give the tag to no more jobs of this thread."""
    context = context_of(spark)
    if context is None:
        spark.removeTag(tag)
    else:
        context.removeJobTag(tag)


def cancel_tagged(spark: "SparkSession", tag: str) -> None:
    """Stop the jobs that have a tag."""
    context = context_of(spark)
    if context is None:
        spark.interruptTag(tag)
    else:
        context.cancelJobsWithTag(tag)


def reads_nothing_below(frame: "DataFrame", place: str) -> bool:
    """Return whether a DataFrame's plan shows all that it reads, and none of it is at an address.

    Rows of Python, RDDs, caches, streams, subqueries and sources other than files and numbers do
    not show what they were made of, nor do plans of Spark Connect.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if context_of(frame.sparkSession) is None:
        return False
    try:
        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  there is no other way
        leaves = plan.collectLeaves()
        shown = plan.subqueriesAll().isEmpty()
        return shown and all(_is_apart(leaves.apply(at), place) for at in range(leaves.size()))
    except (PySparkException, Py4JError):  # of a version whose plans are made of other parts
        return False


def _is_apart(leaf: Any, place: str) -> bool:  # noqa: ANN401  an object of the JVM
    kind = _class_of(leaf)
    if kind != "LogicalRelation":
        return kind in _MADE_UP
    relation = leaf.relation()
    if _class_of(relation) != "HadoopFsRelation":
        return False
    roots = relation.location().rootPaths()
    return all(
        are_apart(str(roots.apply(number).toString()), place) for number in range(roots.size())
    )


def _class_of(found: Any) -> str:  # noqa: ANN401  an object of the JVM
    return str(found.getClass().getSimpleName())


def require_frame(value: object, *, argument: str) -> None:
    """Refuse what is no DataFrame; before 4.0, those of Connect share no class with the others."""
    if not all(hasattr(type(value), name) for name in ("sparkSession", "mapInArrow")):
        refuse(argument, "a DataFrame", value)


def has_setting(spark: "SparkSession", name: str) -> bool:
    """Return whether a setting has a value: one that was set, or the default of its version."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.conf.get(name)
    except (PySparkException, Py4JError):  # before 4.0, what the JVM raised
        return False
    return True


def setting_of(spark: "SparkSession", name: str) -> str | None:
    """Return the value of a setting; None if it has none, or if the session does not say."""
    try:
        value: str | None = spark.conf.get(name, None)
    except Exception:  # noqa: BLE001  whatever a server raises
        return None
    return value


@contextmanager
def copied_session(spark: "SparkSession") -> "Iterator[SparkSession]":
    """Context manager: a session with the settings and files of another, or that one itself.

    Connect's client of PySpark 4.0 cannot copy one; those of 4.2 and 4.3 do, with their servers.
    Source: Spark, SparkSession.cloneSession.
    """
    given: Any = spark
    context, copy = context_of(spark), None
    with suppress(Exception):
        if context is None:
            copy = given.cloneSession()
        else:
            copy = type(given)(context, given._jsparkSession.cloneSession())  # noqa: SLF001
    try:
        yield spark if copy is None else copy
    finally:
        if copy is not None and context is None:
            with suppress(Exception):
                copy.client.release_session()
                copy.client.close()


def arrow_frame(spark: "SparkSession", rows: pa.Table, schema: str) -> "DataFrame":
    """Return Arrow rows as a DataFrame; `schema` says the same in Spark's words."""
    if int(spark.version.partition(".")[0]) >= _FIRST_WITH_ARROW:
        return spark.createDataFrame(rows)
    columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
    return spark.createDataFrame(list(zip(*columns, strict=True)), schema)


def spark_arrow_schema(schema: "StructType") -> pa.Schema:
    """Return the Arrow schema in which Spark takes rows of a schema from its Python workers."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.1, where it is UTC unless one says otherwise
        found = to_arrow_schema(schema)
    return found


def parsed_schema(spark: "SparkSession", schema: str) -> "StructType":
    """Return a schema that is given in Spark's words."""
    no_rows: list[tuple[Any, ...]] = []
    return spark.createDataFrame(no_rows, schema).schema
