"""The JVM of a local session, begun in the background while something else is done.

A JVM takes seconds to begin, and as long as it does, a plan can be made. It is taken over by a
session that starts with the same settings; if none does, it is ended.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import Any, Final

_begun: "Final[list[Launch]]" = []
"""The launch that a session may take over, if there is one."""


class Launch:
    """A JVM that is beginning with some settings; mutable: it is taken over, or ended.

    PySpark is imported before anything runs beside: where two threads import parts of a package
    that import each other, one of them gets a module that is not complete.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        import_module("pyspark.java_gateway")
        self._settings = dict(settings)
        self._gateway: Any = None
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  the JVM's stderr
        self._thread = Thread(target=self._launch, name="liquidspark-launch")
        self._thread.start()

    def _launch(self) -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        with suppress(Exception):  # whoever starts a session tries again, and says what is wrong
            kept = {"stderr": self._said}
            self._gateway = launch_gateway(conf, popen_kwargs=kept)  # type: ignore[no-untyped-call]

    def fits(self, settings: Mapping[str, str]) -> bool:
        """Return whether the JVM has begun with these settings; waits until it has, or failed."""
        self._thread.join()
        return self._gateway is not None and dict(settings) == self._settings

    def open_context(self) -> None:
        """Let the next session work on the JVM."""
        from pyspark import SparkConf, SparkContext

        conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        SparkContext(gateway=self._gateway, conf=conf)

    def said(self) -> str:
        """Return what the JVM said on stderr."""
        self._said.seek(0)
        return self._said.read()

    def end(self) -> None:
        """End the JVM, as soon as it has begun."""
        self._thread.join()
        self._said.close()
        if self._gateway is not None:
            with suppress(Exception):
                self._gateway.shutdown()
            process = self._gateway.proc
            process.kill()
            process.wait()
            process.stdin.close()


@contextmanager
def begun(settings: Mapping[str, str]) -> Iterator[None]:
    """Context manager: a JVM begins with these settings; it is ended, unless a session took it."""
    launch = Launch(settings)
    _begun.append(launch)
    try:
        yield
    finally:
        if launch in _begun:
            _begun.remove(launch)
            # What is said now need not wait until it can be ended.
            Thread(target=launch.end, name="liquidspark-end").start()


def taken(settings: Mapping[str, str]) -> Launch | None:
    """Return the JVM that was begun with these settings, for a session to open; None if none."""
    while _begun:
        launch = _begun.pop()
        if launch.fits(settings):
            return launch
        launch.end()
    return None


@contextmanager
def imported(*modules: str) -> Iterator[None]:
    """Context manager: modules are imported in the background, as far as they can be."""

    def run() -> None:
        for module in modules:
            with suppress(ImportError):
                import_module(module)

    thread = Thread(target=run, name="liquidspark-imports")
    thread.start()
    try:
        yield
    finally:
        thread.join()
