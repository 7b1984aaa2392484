"""`parity locate`: what the sketches of a stored run say of each arm."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from parity.capture import read_capture
from parity.capture.sketches import sketches_path
from parity.explain.located import Located, Locating
from parity.files import is_file
from parity.messages import Message, message
from parity.pipeline.beneath import (
    clean,
    drafter_in_part,
    look_beneath,
    of_drafter,
    unjudged,
    why_drafter,
    why_located,
)
from parity.records import Json, Key
from parity.store import Store
from parity.view.find import Absent, find_target, known_arm
from parity.view.msprobe import msprobe


@dataclass(frozen=True)
class ArmLocated:
    """What the sketches of one arm say."""

    arm: str
    is_baseline: bool
    locating: Locating
    only: Key | None = None
    """Of this completion alone."""

    @property
    def located(self) -> tuple[Located, ...]:
        return tuple(one for one in self.locating.located if self.only in (None, one.key))

    def said(self) -> list[Message]:
        """The answers as sentences, the first about the whole arm."""
        return [message("locate.arm", "{arm}", arm=self.arm), *(said for said, _ in self.answers())]

    def answers(self) -> list[tuple[Message, Located | None]]:
        """The sentences after the first, and the fault that each is about, where it is about one."""
        found = self.locating
        answers: list[tuple[Message, Located | None]] = [_at(one, why_located(one)) for one in self.located]
        if not answers and found.judged:
            answers = [(clean(found), None)]
        return [*answers, *((said, None) for said in unjudged(found)), *self._of_drafter()]

    def _of_drafter(self) -> list[tuple[Message, Located | None]]:
        drafter = self.locating.drafter
        if drafter is None:
            return []
        said: list[tuple[Message, Located | None]] = [
            _at(one, why_drafter(one)) for one in drafter.located if self.only in (None, one.key)
        ]
        if self.only is not None:
            return said
        in_part = drafter_in_part(drafter)
        return [*(said or [(of_drafter(drafter), None)]), *([] if in_part is None else [(in_part, None)])]

    @property
    def msprobe(self) -> Message | None:
        return msprobe((one.module, one.type, one.step) for one in self.located)

    def to_json(self) -> dict[str, Json]:
        said: dict[str, Json] = {"arm": self.arm, "is_baseline": self.is_baseline, **self._json_of(self.locating)}
        if self.locating.drafter is not None:
            said["drafter"] = self._json_of(self.locating.drafter)
        return said

    def _json_of(self, found: Locating) -> dict[str, Json]:
        return {
            "tokens": found.tokens,
            "completions": found.completions,
            "judged": found.judged,
            "unpaired": dict(found.unpaired),
            "located": [
                {**asdict(one), "key": one.key._asdict()} for one in found.located if self.only in (None, one.key)
            ],
            "noise": [asdict(one) for one in found.noise],
        }


def _at(one: Located, why: Message) -> tuple[Message, Located]:
    return message("locate.at", "{key}: {why}", key=str(one.key), why=why), one


def locating(store: Store, target: str | None, arm: str | None = None) -> list[ArmLocated]:
    """Of each sketched arm of a run, or of a finding's arm and completion.

    Raises ParityError where nothing was sketched."""
    run, finding = find_target(store, target)
    known_arm(store, run, arm)
    of_run = store.run(run)
    scores = Path(of_run.directory or "") / "scores.jsonl"
    wanted = arm or (finding.arm if finding is not None else None)
    only = None if finding is None else Key(finding.request, finding.round, finding.sample)
    found = []
    paths = {one.name: Path(one.capture) for one in store.arms(run) if one.capture}
    paths = {name: path for name, path in paths.items() if is_file(sketches_path(path))}
    beside = paths.get(of_run.baseline)
    baseline = None if beside is None else (read_capture(beside, partial=True), beside)
    for name, path in paths.items():
        if wanted not in (None, name):
            continue
        own = name == of_run.baseline
        looked = look_beneath(read_capture(path, partial=True), path, scores, None if own else baseline)
        if looked is not None:
            found.append(ArmLocated(name, own, looked, only))
    if not found:
        raise Absent(
            run, message("locate.nothing_sketched", "nothing was sketched in run {run}, or the files are gone", run=run)
        )
    return found
