"""What the recorder and the sketches of a rehearsal wrote, and why they did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.capture.sketches import read_sketches, sketches_path
from parity.capture.steps import read_steps, steps_path
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import Message, message, verbatim, words_heard
from parity.records import Capture


def recorded(path: Path, capture: Capture) -> tuple[int, tuple[Message, ...]]:
    """Row-steps beside a capture, and why there are none, or no more."""
    beside = steps_path(path)
    try:
        starts = read_steps(beside) if is_file(beside) else ()
    except ParityError as error:
        return 0, (error.message,)
    total = sum(len(one) for one in starts)
    stops = [one.stopped.why for one in starts if one.stopped is not None]
    why = _why(capture, "steps", "unrecorded", stops, missing=not total)
    return total, tuple(message("rehearsed.steps", "steps are not recorded: {why}", why=one) for one in why)


def sketched_tokens(paths: Sequence[Path], capture: Capture) -> tuple[int, tuple[Message, ...]]:
    """Tokens in the sketches beside a capture and a scores file, and why one of them has none, or no more."""
    total = 0
    found: list[Message] = []
    for path in paths:
        beside = sketches_path(path)
        try:
            starts = read_sketches(beside) if is_file(beside) else ()
        except ParityError as error:
            return total, (error.message,)
        tokens = sum(len(one) for one in starts)
        stops = [one.stopped.why for one in starts if one.stopped is not None and not one.stopped.enough]
        why = _why(capture, "sketches", "unsketched", stops, missing=not tokens)
        found += [one for one in why if one not in found]
        total += tokens
    return total, tuple(message("rehearsed.sketches", "activations are not sketched: {why}", why=one) for one in found)


def _why(capture: Capture, key: str, word: str, stops: Sequence[str], *, missing: bool) -> list[Message]:
    said = capture.header.extra.get(key)
    why = said.get(word) if isinstance(said, Mapping) else None
    if why is not None:
        return [words_heard(why)]
    if stops:
        return [verbatim(one) for one in stops]
    return [message("rehearsed.nothing", "the engine gave nothing, and no reason")] if missing else []
