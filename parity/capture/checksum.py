"""A record's checksum: CRC-32 of the line's bytes before it, as the line's last field.

    {"record":"completion", … ,"crc32":"0a1b2c3d"}

It finds a byte that a disk, a cable or an editor changed, not a forger. It can be looked at without parsing the line,
and `json.loads` sees one more string. Files without are read as ever; a file of which one record has a checksum owes it
for every record after it, so that no flipped byte can take a checksum away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from parity.capture.sealing import AFTER, BEFORE
from parity.messages import Message, message

_DIGITS: Final = 8
_LENGTH: Final = len(BEFORE) + _DIGITS + len(AFTER)

WRONG: Final = message(
    "capture.checksum_wrong",
    "its checksum is wrong: these are not the bytes that were written, or somebody edited them",
)
MISSING: Final = message(
    "capture.checksum_missing", "it has no checksum, as the records before it have: somebody changed the file"
)
HINT: Final = message(
    "capture.checksum_hint",
    "copy the file again from where it was made, or let `parity run --resume RUN` capture the arm anew; edited on "
    "purpose: `{sed} FILE > EDITED` takes the checksums off",
    sed="""sed -E 's/,"crc32":"[0-9a-f]{8}"\\}$/}/'""",
)


def seal_of(line: bytes) -> bool | None:
    """Whether the checksum of a line is right; None where it has none."""
    end = len(line) - line.endswith(b"\n")
    begin = end - _LENGTH
    if begin < 0 or line[begin : begin + len(BEFORE)] != BEFORE or line[end - len(AFTER) : end] != AFTER:
        return None
    return line[begin + len(BEFORE) : end - len(AFTER)] == b"%08x" % crc32(memoryview(line)[:begin])


@dataclass
class Seals:
    """The checksums of a file's lines, looked at in their order."""

    owed: bool = False

    def problem(self, line: bytes) -> Message | None:
        """What is wrong with a line; of one that is cut off others say so."""
        right = seal_of(line)
        self.owed |= right is not None
        if right is None:
            return MISSING if self.owed and line.endswith(b"\n") else None
        return None if right else WRONG


def hint_for(what: Message, otherwise: Message) -> Message:
    """What to do about a problem of a file."""
    return HINT if what.id in (WRONG.id, MISSING.id) else otherwise
