"""The tree drawn in the docstring of liquidlog.errors is the tree of classes."""

import inspect
import re

from liquidlog import errors


def _drawn() -> dict[str, str]:
    """Return {class: base} as drawn: each level is four columns of lines."""
    path: list[str] = []
    bases = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+Error)\b", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        path[depth:] = [found[2]]
        if depth:
            bases[found[2]] = path[depth - 1]
    return bases


def _classes() -> dict[str, type[errors.LiquidlogError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.LiquidlogError)
    }


def test_drawn_tree_is_the_tree_of_classes() -> None:
    root = errors.LiquidlogError
    actual = {name: value.__bases__[0].__name__ for name, value in _classes().items()}
    del actual[root.__name__]
    assert _drawn() == actual


def test_codes_are_unique() -> None:
    codes = [value.code for value in _classes().values()]
    assert sorted(codes) == sorted(set(codes))
