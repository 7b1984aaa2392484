"""The table of operators: a name, its stand-in, and how often it was called."""

from __future__ import annotations

import collections
import functools
import os
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

CALLS: collections.Counter[str] = collections.Counter()
"""Calls of operators, kernels and replacements in this process: what really ran."""

NAMESPACE = "_C_ascend"
"""Of vllm-ascend's own operators, `torch.ops._C_ascend`."""

STAND_INS: dict[str, Callable[..., Any]] = {}
"""By name, torch_npu's and vllm-ascend's; by full name where the two differ under one name."""

_PREFIXES = ("npu_", "_npu_", "get_npu_", "empty_with_format", "_weak_ref_tensor")
_HOME = os.path.dirname(os.path.dirname(__file__))

Operator = TypeVar("Operator", bound=Callable[..., Any])


class NotEmulated(NotImplementedError):
    """An operator, or a way to call one, that has no stand-in."""


def operator(function: Operator) -> Operator:
    """Make a function the stand-in of the operator of its name."""
    STAND_INS[function.__name__] = function
    return function


def of_torch_npu(name: str, function: Callable[..., Any]) -> None:
    """Make a function the stand-in of torch_npu's operator of a name that vllm-ascend's own has too."""
    STAND_INS[f"torch_npu.{name}"] = function


def is_operator(name: str) -> bool:
    """Does this name of torch_npu belong to something that computes?"""
    return name in STAND_INS or name.startswith(_PREFIXES)


def caller() -> str:
    """File and line of the code outside this package and torch that called; "?" where there is none."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HOME) and "/torch/" not in file and not file.startswith("<frozen"):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def refuse(operator: str, what: str) -> NotEmulated:
    """The error for a way of calling that the stand-in of `operator` does not know."""
    return NotEmulated(f"{operator}: {what} is not emulated; called by {caller()}")


def only(operator: str, **expected: tuple[Any, Any]) -> None:
    """Raise NotEmulated unless each argument has the value that the stand-in computes with: (given, known)."""
    for name, (given, known) in expected.items():
        if given != known:
            raise refuse(operator, f"{name}={given!r}")


def unused(operator: str, arguments: dict[str, Any]) -> None:
    """Raise NotEmulated for an argument that is set and has no meaning here."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise refuse(operator, f"argument {name}")


def shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value)[:40] if shape is None else f"{value.dtype}{list(shape)}"


@functools.cache
def operator_of(name: str, home: str) -> Callable[..., Any]:
    """What is called as `home.name`: the stand-in, counted; or one that raises with name, arguments and caller."""
    full = f"{home}.{name}"
    function = STAND_INS.get(full, STAND_INS.get(name))
    if function is None:

        def absent(*args: Any, **kwargs: Any) -> Any:
            said = ", ".join([*map(shown, args), *(f"{key}={shown(value)}" for key, value in kwargs.items())])
            raise NotEmulated(f"{full} has no stand-in; called by {caller()} with ({said})")

        absent.__name__ = name
        return absent

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        CALLS[full] += 1
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # the call itself
                raise refuse(full, f"this call ({error})") from error
            raise

    return counted
