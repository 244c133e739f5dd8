"""The first, small task of a rewrite: what a worker has, and whether it reaches the table.

It travels by value, as workers may lack this package. So this module imports nothing but what every
Python has; the task itself finds out what else there is.
"""

import json
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module, metadata
from typing import Any

ANSWER_SCHEMA = "answer string"


def probe_task(
    *, packages: Sequence[str], storage: Mapping[str, Any]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that yields one answer, a JSON object, for each batch.

    Args:
        packages: Whose versions are asked for.
        storage: Arguments of `probing.storage_problem`.
    """

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            answer = json.dumps(_answer(packages, storage))
            yield pa.RecordBatch.from_arrays([pa.array([answer])], names=["answer"])

    return run


def _answer(packages: Sequence[str], storage: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "host": socket.gethostname(),
        "executable": sys.executable,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "missing": None,
        "storage": None,
    }
    try:
        import_module("liquidspark.pipeline")
        problem_of = import_module("liquidspark.probing").storage_problem
    except ImportError as error:
        answer["missing"] = str(error)
    else:
        answer["storage"] = problem_of(**storage)
    return answer


def _version(package: str) -> str | None:
    """Return the version of an installed package, None for one that is not, or is a mere file."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
