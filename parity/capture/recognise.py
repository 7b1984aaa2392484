"""Whether a file is a capture, by its first line."""

from __future__ import annotations

import zlib
from pathlib import Path

import orjson

from parity.capture.lines import MAX_LINE_BYTES, open_capture
from parity.capture.parse import SCHEMA
from parity.capture.shards import files_of
from parity.errors import ParityError


def is_capture(path: Path) -> bool:
    """A file, or a directory of shards. False as well for one that cannot be read: whoever reads it as something else
    says why."""
    try:
        with open_capture(next(iter(files_of(path)), path)) as file:
            first = orjson.loads(file.readline(MAX_LINE_BYTES))
    except (ParityError, OSError, EOFError, ValueError, zlib.error):
        return False
    return isinstance(first, dict) and first.get("schema") == SCHEMA
