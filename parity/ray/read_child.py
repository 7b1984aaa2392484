"""A process that has stretches of large captures read by the nodes of a Ray cluster, for another one.

    python -m parity.ray.read_child

Ray lives here alone: a process that has used it can no longer be copied, and the one that asks compares by copies of
itself. A request is a line of JSON, [PATH, BEGIN, END, VERSION of parity]. First, and then for each request, in their
order, there is an answer: a line of JSON and the bytes that `size` says (`stretch.dumped`; none where there is no
stretch). It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, Final

from parity import __version__
from parity.capture.remote import place_of
from parity.capture.stretch import dumped, stretch_of
from parity.errors import ParityError
from parity.ray.launcher import last_line

TRIES: Final = 5
"""Times that Ray begins again what a lost node was doing."""

MISSING, REFUSED, LOST = "missing", "refused", "lost"
"""Why there is no answer: the node does not see the file; it cannot read at all; it was lost again and again."""


def read_there(path: str, begin: int, end: int, version: str) -> bytes:
    """On a node. Raises FileNotFoundError where it does not see the file, RuntimeError for another parity."""
    if version != __version__:
        raise RuntimeError(f"parity {__version__}")
    place = place_of(path)
    if not place.is_file():
        raise FileNotFoundError(path)
    try:
        found = stretch_of(place, begin, end)
    except (OSError, ParityError):
        return b""  # the one that asks meets it as well, or does not
    return b"" if found is None else dumped(found)


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Ray prints what it knows of a lost node, on stdout, which is for answers
    import ray

    from parity.ray import read_child  # what is of this module the nodes have too; of __main__ they would get a copy

    try:
        ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no cluster to read on
        say(out, {"why": last_line(error)})
        return
    say(out, {"cores": int(ray.cluster_resources().get("CPU", 1))})
    task = ray.remote(num_cpus=1, max_retries=TRIES)(read_child.read_there)
    asked: SimpleQueue[Any] = SimpleQueue()

    def ask() -> None:
        for line in sys.stdin.buffer:
            asked.put(task.remote(*json.loads(line)))
        os._exit(0)  # nobody is there any more

    Thread(target=ask, daemon=True).start()
    while True:
        say(out, *answer(ray, asked.get()))


def answer(ray: Any, reference: Any) -> tuple[dict[str, Any], bytes]:
    try:
        data = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        kind = MISSING if isinstance(error, FileNotFoundError) else REFUSED
        return {"no": kind, "why": last_line(error)}, b""
    except ray.exceptions.RayError:
        return {"no": LOST}, b""
    return {}, data


def say(out: IO[bytes], what: dict[str, Any], data: bytes = b"") -> None:
    try:
        out.write(json.dumps({**what, "size": len(data)}).encode() + b"\n")
        out.write(data)
        out.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
