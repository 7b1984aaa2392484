"""Modules that only the hardware's software has: every name in them exists and does nothing when it is used.

Operators are the exception: one that has no stand-in raises when it is called (`operators.missing`), for an operator
that does nothing would be a wrong answer.
"""

from __future__ import annotations

import types
from typing import Any


class _Nothing(type):
    """Of classes that stand for a name: each attribute is another such class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return named(name, cls.__name__)

    def __iter__(cls) -> Any:
        return iter(())

    def __int__(cls) -> int:
        return 0


def named(name: str, home: str) -> Any:
    """What `home.name` is: an operator's stand-in, or one that raises; nothing for any other name."""
    from parity_emulated_npu.operators import is_operator, operator_of

    return operator_of(name, home) if is_operator(name) else nothing(f"{home}.{name}")


def nothing(path: str) -> Any:
    """A class called `path`: it can be called, entered, decorated with and subclassed, and none of it does anything."""

    def attribute(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return nothing(f"{path}().{name}")

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # a decorator
        return made()

    body = {
        "__init__": lambda self, *args, **kwargs: None,
        "__getattr__": attribute,
        "__call__": call,
        "__enter__": lambda self: self,
        "__exit__": lambda self, *error: False,
        "__iter__": lambda self: iter(()),
    }
    made = _Nothing(path, (), body)
    made.__qualname__ = path
    return made


class Absent(types.ModuleType):
    """A module of such names."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.value_of(name)
        setattr(self, name, value)
        return value

    def value_of(self, name: str) -> Any:
        return nothing(f"{self.__name__}.{name}")


class AbsentOperators(Absent):
    """`torch_npu` and its kin: names of operators lead to the stand-ins, or to one that raises."""

    def value_of(self, name: str) -> Any:
        return named(name, self.__name__)
