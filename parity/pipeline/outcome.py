"""What a run came to."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from parity.comparator import PINNED, Comparison, Suspect, suspect_of_run
from parity.messages import Message, message
from parity.pipeline.compared import Compared, dumped
from parity.pipeline.controls import Control
from parity.records import Json, Verdict
from parity.records.words import of_arms

_ORDER = (Verdict.ERROR, Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.PASS)
"""The worst verdict of an arm is the run's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. `comparisons` by candidate arm; `failed` says why the others have none."""

    run_id: str
    directory: Path
    verdict: Verdict
    reasons: tuple[Message, ...]
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    suspect: Suspect | None = None
    """What the arms together point at, where several were compared."""
    failed: Mapping[str, Message] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {**self._head(), "arms": {name: comparison.to_json() for name, comparison in self.comparisons.items()}}

    def _head(self) -> dict[str, Json]:
        return {
            "schema": "parity.result/1",
            "run": self.run_id,
            "directory": str(self.directory),
            "verdict": str(self.verdict),
            "reasons": [str(reason) for reason in self.reasons],
            "messages": {"reasons": [reason.to_json() for reason in self.reasons]},
            **({"failed": {arm: str(why) for arm, why in self.failed.items()}} if self.failed else {}),
            "suspect": None if self.suspect is None else {"name": str(self.suspect.name), "why": str(self.suspect.why)},
        }

    def json_pieces(self) -> Iterator[bytes]:
        """`to_json` as indented JSON, a piece at a time."""
        yield dumped(self._head()).removesuffix(b"\n}")
        yield b',\n  "arms": {'
        for number, name in enumerate(self.comparisons):
            yield (b"," if number else b"") + b"\n    " + orjson.dumps(name) + b": "
            for piece in self._of_arm(name):
                yield piece.replace(b"\n", b"\n    ")
        yield b"\n  }\n}\n"

    def _of_arm(self, name: str) -> Iterator[bytes]:
        if isinstance(self.comparisons, Compared):
            return self.comparisons.json_pieces(name)
        return iter([dumped(self.comparisons[name].to_json())])


def conclude(
    run_id: str,
    directory: Path,
    baseline: str,
    comparisons: Compared,
    controlled: Sequence[Control],
    failed: Mapping[str, Message],
    ladders: Callable[[Mapping[str, Verdict]], Sequence[Message]] = lambda verdicts: (),
    *,
    as_deployed: Container[str] = (),
) -> Outcome:
    """The run's verdict and reasons, from those of its arms. `comparisons` holds one at least; `ladders` says what
    these come to along the arms of a ladder; `as_deployed` are the backends with an arm as production runs them, whose
    pinned arms need not say what they leave out.
    """
    verdicts = comparisons.verdicts()
    verdict = min(verdicts.values(), key=_ORDER.index)
    several = len(verdicts) + len(failed) > 1
    against = comparisons.against_baseline()
    numerics, faults, recorded = comparisons.numerics(), comparisons.faults_at(), comparisons.recorded()
    suspect = suspect_of_run(verdicts, baseline, against, numerics, faults, recorded)
    worst = {name: comparisons.reasons(name) for name, one in verdicts.items() if one is verdict}
    missed = [] if verdict is not Verdict.PASS else [one for one in controlled if not one.as_expected]
    reasons = (
        *(_failed(name, why) for name, why in failed.items()),
        *(control.sentence for control in missed),  # it is these that take the PASS away
        *_of_arms(worst, several, as_deployed),
        *ladders(verdicts),
        *(() if suspect is None else (_suspect(suspect),)),
        *(control.sentence for control in controlled if control not in missed),
    )
    if missed:
        verdict = Verdict.INCONCLUSIVE  # a run that misses a planted fault cannot clear anything
    return Outcome(run_id, directory, Verdict.ERROR if failed else verdict, reasons, comparisons, suspect, failed)


def _of_arms(reasons: Mapping[str, Sequence[Message]], several: bool, as_deployed: Container[str]) -> Iterator[Message]:
    """Each once, with the names of the arms that it is said of where there are several; last what is said of pinned
    settings, which needs no names where it is the same of all."""
    found: dict[str, tuple[Message, list[str]]] = {}
    for name, said in reasons.items():
        for reason in said:
            if reason.id != PINNED or name.partition("/")[0] not in as_deployed:
                found.setdefault(str(reason), (reason, []))[1].append(name)
    pinned = [one for one in found.values() if one[0].id == PINNED]
    for reason, names in (one for one in found.values() if one[0].id != PINNED):
        yield of_arms(names, reason) if several else reason
    for reason, names in pinned:
        yield reason if len(pinned) == 1 else of_arms(names, reason)


def _failed(arm: str, why: Message) -> Message:
    """Why an arm has no comparison: the first line of it, without the arm's name."""
    first = str(why).splitlines()[0].removeprefix(f"{arm}: ")
    return message("pipeline.arm_failed", "{arm} failed: {why}", arm=arm, why=first)


def _suspect(suspect: Suspect) -> Message:
    return message("pipeline.suspect", "suspect: {name}: {why}", name=suspect.name, why=suspect.why)
