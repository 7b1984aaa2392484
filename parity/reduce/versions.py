"""Where an engine's versions change from clean to failing, or back: the first bad one, or the one that mended it.

A version whose environment cannot be built, or whose engine does not start, says nothing, and the search goes around
it, as `git bisect skip` does; where only such versions are left in between, all of them are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from parity.errors import BackendError, ParityError
from parity.messages import Say, message
from parity.plan import Arm
from parity.records import Json
from parity.reduce.case import Case, Setup, reference_of
from parity.reduce.oracle import Decision, Oracle, OutOfTime
from parity.reduce.sequential import Question, repeated
from parity.reduce.tried import DOES_NOT_FAIL, FAILS, Step, untried


def between(versions: Sequence[str], first: str, last: str) -> list[str]:
    """`versions` from `first` to `last`, oldest first, both in it whether listed or not.

    Raises ParityError where they are not in this order.
    """
    if version_key(first) >= version_key(last):
        raise ParityError(
            message("reduce.not_older_than", "{value} is not older than {last}", value=first, last=last),
            hint=message("reduce.name_older_first", "name the older version first"),
        )
    inside = {v for v in versions if version_key(first) < version_key(v) < version_key(last)}
    return sorted({first, last, *inside}, key=version_key)


def version_key(version: str) -> tuple[tuple[int, ...], int, str]:
    """Orders versions: by their numbers, 0.12.0 before 0.12.0.post2, 0.32.0rc1 before 0.32.0."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = tuple(int(part) for part in match.group().split(".")) if match else ()
    while numbers and not numbers[-1]:
        numbers = numbers[:-1]
    rest = version[match.end() :] if match else version
    early = -1 if re.match(r"\.?(a|b|rc|dev)", rest) else 0
    return numbers, early, rest


def at_version(arm: Arm, version: str) -> Arm:
    """The arm on another version of its backend's engine."""
    host, _, variant = arm.name.partition("/")
    return replace(
        arm,
        name=f"{host.partition('@')[0]}@{version}/{variant}",
        backend=f"{arm.backend.partition('@')[0]}@{version}",
        control=None,
    )


@dataclass(slots=True)
class FirstBad:
    """`good` is known to be clean, `bad` to fail, and they are the nearest such; those between could not be tried.

    With nothing between them the newer one is the first bad version, or with `mended` the first good one again.
    """

    versions: list[str]
    good: str
    bad: str
    untried: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    out_of_time: bool = False
    mended: bool = False
    """The older version fails and the newer is clean."""

    @property
    def named(self) -> bool:
        """Whether one version is named, and not a span."""
        return not self.untried and not self.out_of_time

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": "parity.bisect-versions/1",
            "versions": self.versions,
            **({"last_bad": self.bad, "first_good": self.good} if self.mended else {}),
            **({} if self.mended else {"last_good": self.good, "first_bad": self.bad}),
            "named": self.named,
            "untried": self.untried,
            "out_of_time": self.out_of_time,
            "steps": [step.to_json() for step in self.steps],
        }


class VersionSearch:
    """Asks about versions, over one case.

    `baseline`: moves from version to version with the candidate, or stays where it is with `fixed_baseline` (then a
    change of behaviour shows, whatever the version's own baseline says).
    """

    def __init__(
        self,
        oracle: Oracle,
        case: Case,
        candidate: Arm,
        baseline: Arm,
        question: Question,
        *,
        fixed_baseline: bool = False,
        say: Say = lambda line: None,
    ) -> None:
        self._oracle, self._case, self._candidate, self._baseline = oracle, case, candidate, baseline
        self._question, self._fixed, self._say = question, fixed_baseline, say

    def run(self, versions: Sequence[str]) -> FirstBad:
        """The first bad one of `versions` (oldest first), or the first good one where the oldest fails and the newest
        does not. Raises ParityError where both ends fail or both are clean.

        Raises BackendError where one of them cannot be tried, and Interrupted; time that runs out is no error.
        """
        found = FirstBad(list(versions), versions[0], versions[-1])
        try:
            self._ends(found)
            self._search(found)
        except OutOfTime:
            found.out_of_time = True
            self._say(message("reduce.time_spent_far", "the time is spent: this is as far as it went"))
        return found

    def _ends(self, found: FirstBad) -> None:
        """Of the oldest and the newest version that can be tried one must fail."""
        newest, last = self._end(found, found.versions[::-1])
        if last.fails:
            found.bad = newest
        oldest, first = self._end(found, found.versions[: found.versions.index(newest)])
        if last.fails and first.fails:
            raise self._neither(oldest, first)
        if not last.fails and not first.fails:
            raise self._neither(newest, last)
        found.mended = first.fails
        found.good, found.bad = (newest, oldest) if first.fails else (oldest, newest)

    def _end(self, found: FirstBad, versions: Sequence[str]) -> tuple[str, Decision]:
        """The first of these that says anything, and what. Where it always fails alike, few shots are an answer."""
        version, decision = self._first_tried(found, versions)
        if decision.fails and decision.repeats and self._question.p1 < 0.5:
            self._say(
                message(
                    "reduce.fails_each_time_same",
                    "it fails each time with the same output: few shots are an answer from here on",
                )
            )
            self._question = repeated(self._question.alpha, self._question.beta)
        return version, decision

    def _first_tried(self, found: FirstBad, versions: Sequence[str]) -> tuple[str, Decision]:
        """The first of these that says anything, and what. Raises BackendError where none does."""
        why = message("reduce.no_other_version", "there is no other version")
        for version in versions:
            decision = self._ask(found, version)
            if not decision.unresolved:
                return version, decision
            why = decision.unresolved
        raise BackendError(
            message("reduce.none_can_tried", "none of {versions} can be tried: {why}", versions=versions, why=why),
            hint=message("reduce.name_other_versions", "name other versions"),
        )

    @staticmethod
    def _neither(version: str, decision: Decision) -> ParityError:
        """The error for ends that answer alike; this one is not what the first bad version would need."""
        what = message("reduce.fails_already", "fails already") if decision.fails else DOES_NOT_FAIL
        return ParityError(
            message(
                "reduce.shots_2",
                "{version} {what} ({failures} of {shots} shots)",
                version=version,
                what=what,
                failures=decision.failures,
                shots=decision.shots,
            ),
            hint=message(
                "reduce.one_end_fails",
                "name two versions of which one fails and one is clean; --plan gives the case to ask with",
            ),
        )

    def _search(self, found: FirstBad) -> None:
        skipped: set[str] = set()
        while True:
            older, newer = sorted((found.versions.index(found.good), found.versions.index(found.bad)))
            inside = found.versions[older + 1 : newer]
            open_ = [version for version in inside if version not in skipped]
            if not open_:
                found.untried = inside
                return
            version = open_[len(open_) // 2]
            decision = self._ask(found, version)
            if decision.unresolved:
                skipped.add(version)
            elif decision.fails:
                found.bad = version
            else:
                found.good = version

    def _ask(self, found: FirstBad, version: str) -> Decision:
        baseline = self._baseline if self._fixed else at_version(self._baseline, version)
        setup = Setup(at_version(self._candidate, version), reference_of(baseline))
        decision = self._oracle.decide(self._case, setup, self._question)
        why = decision.unresolved
        found.steps.append(Step(version, decision.fails, decision.shots, decision.failures, str(why or "")))
        answer = FAILS if decision.fails else message("reduce.clean", "clean") if why is None else untried(why)
        self._say(
            message(
                "reduce.shots",
                "{what}: {answer} ({failures} of {shots} shots)",
                what=version,
                answer=answer,
                failures=decision.failures,
                shots=decision.shots,
            )
        )
        return decision
