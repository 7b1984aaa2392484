"""The checksum of a record's line, with the standard library alone: it travels with a kit (Python 3.9 or newer).

What it finds and what it does not: `parity.capture.checksum`, which looks at it.
"""

from __future__ import annotations

from zlib import crc32

FIELD = "crc32"
BEFORE = (',"%s":"' % FIELD).encode()
AFTER = b'"}'


def sealed(line: bytes) -> bytes:
    """The line of a JSON object, ended by a newline, with its checksum."""
    body = line[:-2]
    return b"".join((body, BEFORE, b"%08x" % crc32(body), AFTER, b"\n"))
