"""What a command does before it begins, so that it begins soon."""

import sys

import pyarrow as pa


class _WithoutPandas:
    """A finder of modules that says that there is no pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(name=fullname)


def do_without_pandas() -> None:
    """Keep pyarrow from importing pandas, seconds of work, for the first value it converts.

    It looks once whether there is one; whoever wants pandas objects later still gets them. A None
    in sys.modules would not do: pyarrow's compiled code takes it for the module.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)
