"""The oracle: does this case fail often enough on this setup? Shots are taken until the sequential test answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from parity.errors import BackendError, said_by
from parity.messages import Message, message
from parity.reduce.case import Case, CaseUnresolved, Laboratory, Setup, Shot, Unresolved
from parity.reduce.notebook import Notebook
from parity.reduce.sequential import Answer, Question, Tally


class OutOfTime(Exception):
    """The time allowed is spent; what was found so far stands."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer and what it rests on. `unresolved` says why there was nothing to count."""

    fails: bool
    shots: int
    failures: int
    kinds: tuple[str, ...] = ()
    repeats: bool = False
    """Two or more shots, all failed, with the same output token by token: it is deterministic."""
    unresolved: Message | None = None
    of_case: bool = False
    """It is this case alone that cannot be tried: the engine starts."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Shots that no decision has seen."""

    failures: int
    shots: int
    alike: bool = False
    """All failed, with the same output token by token."""
    passed_over: int = 0
    """Shots that were taken and not counted, since an engine that was started anew may have repeated itself."""


class Oracle:
    """Takes shots in a laboratory, writes them into a notebook, and stops when the time is spent.

    `kinds`: only findings of these kinds count as the failure; None: any corrupt one.
    """

    def __init__(
        self,
        laboratory: Laboratory,
        notebook: Notebook,
        *,
        kinds: frozenset[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._laboratory, self._notebook = laboratory, notebook
        self._kinds, self._clock = kinds, clock
        self._began = clock()
        self._seconds: float | None = None
        self._seen: dict[tuple[str, str], int] = {}
        """Shots that decisions have seen, by setup and case."""

    def until(self, seconds: float | None) -> None:
        """From here on, shots may be taken until this much is spent; None: without end."""
        self._seconds = seconds

    @property
    def spent(self) -> float:
        """Seconds, those of earlier attempts included."""
        return self._notebook.earlier_seconds + self._clock() - self._began

    @property
    def shots(self) -> int:
        return self._notebook.shots

    @property
    def tokens(self) -> int:
        return self._notebook.tokens

    @property
    def starts(self) -> int:
        return self._notebook.starts

    def failed(self, shot: Shot) -> bool:
        if self._kinds is None:
            return shot.failed
        return not self._kinds.isdisjoint(shot.kinds)

    def decide(self, case: Case, setup: Setup, question: Question) -> Decision:
        """Asks until there is an answer. Raises OutOfTime, BackendError, Interrupted."""
        tally = Tally(question)
        seen: list[Shot] = []
        try:
            while tally.answer is None:
                seen.append(self._shot(case, setup, len(seen)))
                tally.add(self.failed(seen[-1]))
        except Unresolved as error:
            of_case = isinstance(error, CaseUnresolved)
            return Decision(False, len(seen), tally.failures, unresolved=said_by(error), of_case=of_case)
        key = setup.digest(), case.digest()
        self._seen[key] = max(len(seen), self._seen.get(key, 0))
        repeats = len(seen) > 1 and tally.failures == len(seen) and len({shot.streams for shot in seen}) == 1
        kinds = tuple(sorted({kind for shot in seen for kind in shot.kinds}))
        return Decision(tally.answer is Answer.FAILS, tally.shots, tally.failures, kinds, repeats)

    def glance(self, case: Case, setup: Setup) -> bool:
        """Does the first shot fail? A hint, no answer. Raises OutOfTime, BackendError, Interrupted."""
        try:
            return self.failed(self._shot(case, setup, 0))
        except Unresolved:
            return False

    def count(self, case: Case, setup: Setup, shots: int) -> Fresh:
        """`shots` shots that no decision has seen; fewer when the time is spent. How many does not depend on them.

        Raises BackendError where the engine dies of it, and Interrupted.
        """
        first = number = self._seen.get((setup.digest(), case.digest()), 0)
        new: list[Shot] = []
        try:
            while len(new) < shots:
                shot = self._shot(case, setup, number)
                if not self._notebook.anew(case, setup, first, number):
                    new.append(shot)
                number += 1
        except OutOfTime:
            pass
        except Unresolved as error:
            raise BackendError(
                said_by(error),
                hint=message(
                    "reduce.log_beside_notebook", "its log is beside the notebook; the same command tries again"
                ),
            ) from error
        failures = sum(map(self.failed, new))
        alike = failures == len(new) and len({shot.streams for shot in new}) == 1
        return Fresh(failures, len(new), alike, number - first - len(new))

    def _shot(self, case: Case, setup: Setup, number: int) -> Shot:
        known = self._notebook.of(case, setup)
        if number < len(known):
            return known[number]
        if self._seconds is not None and self.spent >= self._seconds:
            raise OutOfTime
        try:
            shot = self._laboratory.shot(case, setup, number)
        except CaseUnresolved as error:
            self._notebook.ended(case, setup, str(error))
            raise
        except Unresolved as error:
            self._notebook.refuse(setup, str(error))
            raise
        self._notebook.add(case, setup, shot)
        return shot
