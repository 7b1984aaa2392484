"""Steps as a worker sends them, each block checked; and the file of an arm of which a ring is kept.

It has what is sure, and after it what the ring holds now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from parity.capture.steps import (
    STEPS_SCHEMA,
    StepRequest,
    StepsBlock,
    StepsHeader,
    StepsLine,
    StepsStopped,
    StepsSummary,
    block_columns,
    check_requests,
    step_lines,
)
from parity.explain.invariants import invariants_of
from parity.explain.ring import LIMITS, Limits, Ring
from parity.messages import message
from parity.plan import Plan
from parity.records import Key, TokenIds
from parity.run.appending import Appender
from parity.run.beside import StepsAllowed, no_header
from parity.run.continued import kept_bytes
from parity.run.messages import ProtocolError, line_of


class Recorded:
    """The steps of an arm as they come, each block checked: a damaged file would hold up whatever reads it."""

    def __init__(self) -> None:
        self._requests: dict[int, dict[int, StepRequest]] = {}
        """By replica and number."""

    def check(self, line: StepsHeader | StepsBlock | StepsStopped, replica: int) -> None:
        """Raises ValueError, KeyError, TypeError for a damaged line."""
        if isinstance(line, StepsHeader):
            check_schema(line)
            self._requests[replica] = {}
        elif isinstance(line, StepsBlock):
            known = self._requests.get(replica)
            if known is None:
                raise no_header()
            known.update((one.number, one) for one in line.requests)
            check_requests(block_columns(line), known)


def kept_steps(path: Path, plan: Plan) -> int:
    """Bytes of a steps file that whoever continues it keeps. Raises RefusedFile where they are none that an arm of this
    plan may send."""
    recorded, allowed = Recorded(), StepsAllowed(plan)

    def check(line: StepsLine, size: int) -> None:
        if not isinstance(line, StepsSummary):  # of a ring: our own
            allowed.take(line, size)
            recorded.check(line, line.replica)

    return kept_bytes(path, step_lines, check)


def check_schema(header: StepsHeader) -> None:
    """Raises ValueError."""
    if header.schema != STEPS_SCHEMA:
        raise ValueError(f"schema is {header.schema!r}")


class RingFile:
    """Grows by what is kept for good. The lines after that are written anew at the end of each round, so that a run
    that is killed has lost no violation of the rounds that it need not run again."""

    def __init__(self, path: Path, *, keep_bytes: int, plan: Plan, limits: Limits = LIMITS) -> None:
        self._file = Appender(path, keep_bytes=keep_bytes)
        self._prompts, self._limits = PlanPrompts(plan), limits
        self._engines = {arm.name: arm.engine for arm in plan.arms}
        self._rings: dict[int, Ring] = {}
        """By replica."""
        self._gave_up: dict[int, StepsStopped] = {}
        """Recorders that did so before their first block."""
        self._end = keep_bytes

    def add(self, line: StepsHeader | StepsBlock | StepsStopped, replica: int) -> None:
        """Raises ValueError, KeyError, TypeError for a damaged line."""
        own = replace(line, replica=replica)
        if isinstance(own, StepsHeader):
            check_schema(own)
            if replica in self._rings:
                raise ProtocolError(message("run.steps_twice", "steps of one engine that begin twice"))
            held_to = invariants_of(self._engines.get(own.arm, {}))
            self._rings[replica] = Ring(own, self._prompts, self._limits, held_to)
        elif replica not in self._rings:
            if not isinstance(own, StepsStopped):
                raise no_header()
            self._gave_up.setdefault(replica, own)
        else:
            self._rings[replica].add(own)

    def pause(self, replica: int) -> None:
        """A replica has ended a round."""
        if replica in self._rings:
            self._rings[replica].pause()
            self._write(whole=False)

    def end(self) -> None:
        """All is there. Raises ValueError, KeyError, TypeError as `add`."""
        for ring in self._rings.values():
            ring.pause()
        self._write(whole=True)

    def close(self) -> None:
        """Of an arm that failed in `end`, what came is kept unasked."""
        try:
            self.end()
        except (ArithmeticError, LookupError, TypeError, ValueError):
            self._write(whole=True)
        finally:
            self._file.close()

    def _write(self, *, whole: bool) -> None:
        self._file.cut(self._end)
        for ring in self._rings.values():
            for line in ring.kept():
                self._file.add(line_of(line))
        self._end = self._file.end
        rest = (line for ring in self._rings.values() for line in ring.rest(whole=whole))
        for line in (*self._gave_up.values(), *rest):
            self._file.add(line_of(line))


class PlanPrompts(Mapping[Key, TokenIds]):
    """Token ids of the prompts of a plan, by completion."""

    def __init__(self, plan: Plan) -> None:
        self._of = {request.id: np.array(request.prompt_token_ids) for request in plan.requests}

    def __getitem__(self, key: Key) -> TokenIds:
        return self._of[key.request]

    def __iter__(self) -> Iterator[Key]:
        return (Key(name, 0, 0) for name in self._of)

    def __len__(self) -> int:
        return len(self._of)
