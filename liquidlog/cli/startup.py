"""What a command does before it begins, so that it begins soon."""

import sys
from typing import Final

import pyarrow as pa

_LEFT_OUT: Final = frozenset({"pandas", "dateutil"})


class _WithoutThem:
    """A finder of modules that says that these are not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in _LEFT_OUT:
            raise ModuleNotFoundError(name=fullname)


def do_without_pandas() -> None:
    """Keep pyarrow from importing pandas, seconds of work, for the first value it converts.

    It looks once whether there is one, and whether there are intervals of dateutil; whoever wants
    pandas objects later still gets them. A None in sys.modules would not do: pyarrow's compiled
    code takes it for the module.
    """
    finder = _WithoutThem()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)
