"""A process that reads stretches of large captures for another one.

    python -m parity.capture.read_child

A request is a line of JSON, [PATH, BEGIN, END]; its answer is the number of bytes in eight, and so many bytes
(`stretch.dumped`; none where there is no stretch). It ends with its input. Whatever goes wrong is no stretch: the one
that asks reads these lines itself, and says what is wrong with them.
"""

from __future__ import annotations

import json
import os
import sys

from parity.capture.remote import place_of
from parity.capture.stretch import dumped, stretch_of


def answered(path: str, begin: int, end: int) -> bytes:
    try:
        found = stretch_of(place_of(path), begin, end)
        return b"" if found is None else dumped(found)
    except Exception:  # noqa: BLE001 - the one that asks meets it as well, or does not
        return b""


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        data = answered(*json.loads(line))
        try:
            out.write(len(data).to_bytes(8, "little") + data)
            out.flush()
        except BrokenPipeError:
            os._exit(0)  # nobody is there any more


if __name__ == "__main__":
    main()
