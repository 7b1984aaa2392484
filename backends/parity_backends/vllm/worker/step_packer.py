"""Blocks of the steps file, packed in a process of their own.

A thread that packs takes the interpreter's lock from the engine's own again and again. A process takes none, and being
nice it works while the engine's processors have a pause. It is forked before the engine's code is loaded: it is small,
knows of no device, and nothing of the engine is written twice.
"""

from __future__ import annotations

import contextlib
import marshal
import mmap
import multiprocessing
import os
import signal
import traceback
from itertools import accumulate
from typing import Any, Optional

import numpy as np

from parity.capture.step_table import Ragged

from .step_blocks import Packed, Packing, PackingInThread, Unpackable
from .step_requests import New, Said
from .step_sight import Flat, Sight

NICE = 10
"""Of the process: the engine goes first, and on a machine without a pause a tenth is left."""

ALIVE_SECONDS = 5.0
"""So often the process looks whether the engine's is still there."""

ROOM = 8 << 20
"""Bytes that both processes share: a block of 2,048 row-steps is one million."""

ARRAY, RAGGED, FLAT = "array", "ragged", "flat"
"""What a tuple stands for begins with this."""


def can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


class PackingApart(Packing):
    """In the engine's process: hands steps over, and gets blocks back."""

    def __init__(self) -> None:
        """Forks. Nothing that a fork does not survive may be loaded yet: no device, no engine."""
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.room = mmap.mmap(-1, ROOM)
        self.process = context.Process(target=pack_for, args=(theirs, self.pipe, self.room, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, groups: int) -> None:
        self._send(groups)

    def pack(self, sights: list[Sight]) -> Packed:
        sizes, at = [], 0
        for sight in sights:  # one by one: a large piece of memory is handed over page by page each time
            step = marshal.dumps(sent(sight))
            if at + len(step) > ROOM:
                break
            self.room[at : at + len(step)] = step
            sizes.append(len(step))
            at += len(step)
        rest = [sent(sight) for sight in sights[len(sizes) :]]
        self._send((sizes, rest))
        try:
            block, said = marshal.loads(self.pipe.recv_bytes())
        except (OSError, EOFError):
            raise self._gone() from None
        return block, None if said is None else Unpackable(*said)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()

    def _send(self, what: Any) -> None:
        try:
            self.pipe.send_bytes(marshal.dumps(what))
        except OSError:
            raise self._gone() from None

    def _gone(self) -> Unpackable:
        self.process.join(ALIVE_SECONDS)
        return Unpackable("the process that packs steps has ended (exit code %s)" % self.process.exitcode, "")


def pack_for(pipe: Any, other_end: Any, room: Any, engine: int) -> None:
    """The process: packs what stands in `room`, or comes through `pipe`, until nobody holds `other_end`, or `engine` is
    not its parent."""
    other_end.close()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # who reads the engine's output would wait for this process too
        os.dup2(null, standard)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is held is still to be packed
    os.nice(NICE)
    packing = PackingInThread()
    with contextlib.suppress(OSError, EOFError):
        while True:
            while not pipe.poll(ALIVE_SECONDS):
                if os.getppid() != engine:
                    return
            asked = marshal.loads(pipe.recv_bytes())
            if type(asked) is int:
                packing.begin(asked)
            else:
                pipe.send_bytes(marshal.dumps(answer(packing, steps_in(room, *asked))))


def steps_in(room: Any, sizes: list[int], rest: list[Any]) -> list[Any]:
    """Steps of these sizes that lie end to end in the room, and those that found none there."""
    ends = list(accumulate(sizes))
    return [marshal.loads(room[end - size : end]) for size, end in zip(sizes, ends)] + rest  # noqa: B905


def answer(packing: Packing, steps: list[dict[str, Any]]) -> tuple[Optional[dict[str, Any]], Optional[tuple[str, str]]]:
    """A block, and why it is shorter or none: in a line, and where."""
    try:
        block, error = packing.pack([received(step) for step in steps])
    except Exception as failed:
        block, error = None, failed
    if error is None:
        return block, None
    where = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return block, ("%s: %s" % (type(error).__name__, error), where)


# ------------------------------------------------------------------ what was seen, as `marshal` takes it


READINGS = ("proposed", "prompt_lengths", "plain", "numbers", "lists", "held", "arrays", "groups")
"""Attributes of a `Sight` that hold arrays. The others are numbers, names, and lists and dictionaries of these."""


def sent(sight: Sight) -> dict[str, Any]:
    """Raises TypeError for what is no number, text, array, nor made of these."""
    fields = dict(vars(sight))
    for name in READINGS:
        fields[name] = as_plain(fields[name])
    fields["said"] = [_said(one) for one in sight.said]
    return fields


def _said(said: Said) -> tuple[Any, ...]:
    """As it is, in plain tuples and lists."""
    total, scheduled, finished, new, *running, resumed = said
    return (total, scheduled, finished, [tuple(one) for one in new], *running, list(resumed))


def received(fields: dict[str, Any]) -> Sight:
    """What `sent` was given."""
    sight = Sight.__new__(Sight)
    vars(sight).update(fields)
    for name in READINGS:
        setattr(sight, name, made(fields[name]))
    said = [Said(*one) for one in fields["said"]]
    sight.said = [one._replace(new=[New._make(new) for new in one.new]) for one in said]
    return sight


def as_plain(value: Any) -> Any:
    kind = type(value)
    if kind is np.ndarray and value.dtype.kind in "biuf":
        return ARRAY, value.dtype.str, value.shape, value if value.flags.c_contiguous else value.tobytes()
    if kind is dict:
        return value if _is_plain(value.values()) else {name: as_plain(one) for name, one in value.items()}
    if kind is list:
        return value if _is_plain(value) else list(map(as_plain, value))
    if kind is Ragged or kind is Flat:
        return RAGGED if kind is Ragged else FLAT, *map(as_plain, value)
    if isinstance(value, np.generic):  # `marshal` would take it for bytes
        return value.item()
    if kind in _WRITTEN:
        return value
    raise TypeError("%s.%s cannot be handed to the process that packs" % (kind.__module__, kind.__name__))


_PLAIN = frozenset((int, str))

_WRITTEN = frozenset((*_PLAIN, bytes, float, bool, type(None)))


def _is_plain(values: Any) -> bool:
    return _PLAIN.issuperset(map(type, values))


def made(value: Any) -> Any:
    """What `as_plain` was given; arrays that cannot be changed."""
    kind = type(value)
    if kind is tuple:
        if value[0] == ARRAY:
            _, dtype, shape, buffer = value
            return np.frombuffer(buffer, dtype=dtype).reshape(shape)
        return (Ragged if value[0] == RAGGED else Flat)(*map(made, value[1:]))
    if kind is dict:
        return value if _is_plain(value.values()) else {name: made(one) for name, one in value.items()}
    if kind is list:
        return value if _is_plain(value) else list(map(made, value))
    return value
