"""Which modules of the comparator are given the candidate's capture, in the order of the calls.

    python tools/capture_walk.py BASELINE CANDIDATE [--scores SCORES]

A stay is a run of calls in one module that have the capture, or a part of its completions, among their arguments, alone
or in a tuple. What is made of it and carried on as another value does not count. "Back up": a stay on a floor before
that of the stay before it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

from parity.capture import read_capture
from parity.comparator import compare
from parity.records import Capture, Scores

PACKAGE = "parity.comparator."
FLOORS = ("comparing", "inputs", "streams", "reference", "detect", "population", "conclude")


class Walk(NamedTuple):
    """The stays of one comparison."""

    stays: tuple[str, ...]
    """Modules, without the name of the package."""

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(self.stays)

    @property
    def back_up(self) -> tuple[tuple[str, str], ...]:
        """(from, to) of each step to an earlier floor."""
        return tuple((one, other) for one, other in pairwise(self.stays) if floor_of(other) < floor_of(one))


def floor_of(module: str) -> int:
    return FLOORS.index(module.partition(".")[0])


def walk(baseline: Capture, candidate: Capture, scores: Scores | None, work: Callable[..., Any] = compare) -> Walk:
    """Compare, and note which modules get the candidate's capture; the arms need names of their own."""
    arm, stays = candidate.header.arm, list[str]()

    def is_it(value: object) -> bool:
        many = value if isinstance(value, tuple) else (value,)
        return any(isinstance(one, Capture) and one.header.arm == arm for one in many)

    def look(frame: FrameType, event: str, _: object) -> None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if event != "call" or not module.startswith(PACKAGE) or code.co_filename == "<string>":
            return  # "<string>": the __init__ of a dataclass, which makes the value that is carried on
        module, given = module.removeprefix(PACKAGE), frame.f_locals
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if stays[-1:] != [module] and any(is_it(given.get(name)) for name in names):
            stays.append(module)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work(baseline, candidate, scores)
    finally:
        sys.setprofile(before)
    return Walk(tuple(stays))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline")
    parser.add_argument("candidate")
    parser.add_argument("--scores")
    options = parser.parse_args()
    scores = read_capture(options.scores).scores if options.scores else None
    found = walk(read_capture(options.baseline), read_capture(options.candidate), scores)
    for number, module in enumerate(found.stays):
        print(module, "(again)" if module in found.stays[:number] else "")
    print(f"{len(found.stays)} stays in {len(found.modules)} modules, {len(found.back_up)} times back up a floor")


if __name__ == "__main__":
    main()
