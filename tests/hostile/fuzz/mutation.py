"""Mutations that keep most of an input's shape: of bytes, and of the JSON in its lines. The same seed, the same inputs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31 - 1, 2**31, 2**63, -(2**63) - 1, 2**200, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "x",
    "\x1b[2J\u202e\x00", "[red]x[/red]", "\ud800", "é" * 40, "x" * 3000, [], {}, [[]], [[[1, 2]]], [None], {"a": {}}, {"int32": "AAAA"},
    {"int32": "!"}, {"text": "x", "id": "y", "parameters": {"z": {"text": "\x1b"}}}, [[5, -1.0]], list(range(40)), "record", "a/base", "p0",
)  # fmt: skip
BYTES = (
    b"\x00",
    b"\xff",
    b"\n",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"1e999",
    b"NaN",
    b"\\ud800",
    b"\\u0000",
    b"9" * 30,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:40]) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def changed(rng: random.Random, value: Any) -> Any:
    """One place of a JSON value as something else: odd, gone, twice, or another place's value."""
    everywhere = list(places(value))
    path = rng.choice(everywhere)
    if not path:
        return rng.choice(ODD)
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    how, last = rng.randrange(6), path[-1]
    if how == 0:
        del holder[last]
    elif how == 1 and isinstance(holder, list):
        holder.insert(last, holder[last])
    elif how == 2:
        other = value
        for step in rng.choice(everywhere):
            other = other[step]
        holder[last] = json.loads(json.dumps(other))
    elif how == 3 and isinstance(holder[last], int) and not isinstance(holder[last], bool):
        holder[last] += rng.choice((-1, 1, 7, 2**31, -(2**40)))
    elif how == 4 and isinstance(holder, dict):
        holder[rng.choice(("x", "record", "n", "stop", "server", "spec", "aborted", "replica", "sampling"))] = (
            rng.choice(ODD)
        )
    else:
        holder[last] = rng.choice(ODD)
    return value


def of_json(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        lines[at] = json.dumps(changed(rng, json.loads(lines[at]))).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return of_bytes(rng, data)
    return b"\n".join(lines)


def of_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(3)
    if how == 0:
        del lines[a]
    elif how == 1:
        lines.insert(a, lines[b])
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def of_bytes(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    how = rng.randrange(4)
    if how == 0:
        return data[:at] + rng.choice(BYTES) + data[at:]
    if how == 1:
        return data[:at] + data[at + rng.randrange(1, 20) :]
    if how == 2:
        return data[:at]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def mutated(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice((of_json, of_json, of_json, of_lines, of_bytes))(rng, data)
    return data
