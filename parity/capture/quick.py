"""Records with long lists of numbers, read by simdjson where it is installed (`pip install parity-mtp[fast]`).

Token ids and logprobs come out as arrays at once; Python's numbers and lists in between take three times the time. What
is not exactly as expected is left to the ordinary way, which says what is wrong with it: this one refuses in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from parity.records import TopLogprobs

FROM_BYTES = 1024
"""Shorter lines are read as quickly without."""

_TOKENS = ("token_ids", "prompt_token_ids")
_PLAIN = frozenset({str, int, float, bool, type(None)})


class QuickReader:
    """Reads the lines of one file."""

    def __init__(self) -> None:
        self._parse: Callable[[bytes], Any] | None = None

    def record(self, raw: bytes) -> dict[str, Any] | None:
        """The record of a line, with arrays for its token ids and logprobs; None where the ordinary way has to read
        it."""
        if len(raw) < FROM_BYTES or not raw.startswith(b"{"):
            return None
        if self._parse is None:
            self._parse = _parser()
        try:
            record = self._parse(raw)
            return _arrays({name: record[name] for name in record.keys()}, raw)  # noqa: SIM118  (it is no mapping)
        except (ValueError, TypeError, RuntimeError):
            return None


def _parser() -> Callable[[bytes], Any]:
    try:
        parse: Callable[[bytes], Any] = import_module("simdjson").Parser().parse
    except ImportError:
        return _refuse
    return parse


def _refuse(raw: bytes) -> NoReturn:
    raise ValueError("simdjson is not installed")


def _arrays(fields: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """Lists and objects as Python has them, but for those of numbers. Raises ValueError or TypeError."""
    lists = 0
    for name, value in fields.items():
        if type(value) in _PLAIN:
            continue
        if not hasattr(value, "as_buffer"):
            fields[name] = value.as_dict()
        elif name in _TOKENS:
            lists += 1
            fields[name] = np.frombuffer(value.as_buffer(of_type="i"), dtype=np.int64)
        else:
            fields[name] = _logprobs(value, raw) if name == "logprobs" else value.as_list()
    # `as_buffer` does not show lists in a list: there are none in a line without other brackets.
    if lists and raw.count(b"[") != lists:
        for name in _TOKENS:
            _check_flat(name, raw)
    return fields


def _after(name: str, raw: bytes) -> int:
    """Where a field's value begins. In a string its quotes would be escaped, so what stands once is the field."""
    sign = b'"%s":' % name.encode()
    if raw.count(sign) != 1 or b"\\u00" in raw:
        raise ValueError(name)
    return raw.index(sign) + len(sign)


def _check_flat(name: str, raw: bytes) -> None:
    begin = _after(name, raw)
    if raw.count(b"[", begin, raw.index(b"]", begin)) != 1:
        raise ValueError(name)


def _logprobs(value: Any, raw: bytes) -> TopLogprobs:
    begin = _after("logprobs", raw)
    shape = raw[begin : raw.rindex(b"]]]", begin) + 3].translate(None, b" -+.0123456789eE")
    if not (shape.startswith(b"[[[") and shape.endswith(b"]]]")):
        raise ValueError("no lists of lists")
    entries = shape[3:-3].split(b"]],[[")
    if any(entry != b"],[".join([b","] * (len(entry) // 4 + 1)) for entry in set(entries)):
        raise ValueError("no lists of pairs")
    widths = np.fromiter(map(len, entries), dtype=np.int64, count=len(entries)) // 4 + 1
    return TopLogprobs.from_numbers(np.frombuffer(value.as_buffer(of_type="d")), widths)
