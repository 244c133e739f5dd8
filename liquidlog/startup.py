"""Beginning soon: what processes of our own need not import."""

import sys

import pyarrow as pa


class _WithoutPandas:
    """A finder that reports pandas as missing."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def do_without_pandas() -> None:
    """Keep pyarrow from importing pandas, seconds of work, for the first value it converts.

    pyarrow looks for pandas only once; later imports of pandas still work. Its compiled code would
    take None in sys.modules for the module.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)
