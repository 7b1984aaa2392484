"""Which settings flip the verdict: ddmin over what differs between an arm that fails and one that does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from parity.errors import BackendError, ParityError
from parity.messages import Message, Say, joined, message, verbatim
from parity.plan import Arm
from parity.records import Json
from parity.records.engine_settings import SPECULATION
from parity.reduce.case import Case, Setup
from parity.reduce.ddmin import ddmin
from parity.reduce.oracle import Decision, Oracle, OutOfTime
from parity.reduce.sequential import Question
from parity.reduce.tried import DOES_NOT_FAIL, FAILS, Step, shots_said, untried

ABSENT = object()
"""A setting that one of the arms does not have."""

ADDRESS = "url"
"""The setting that says which server it is."""

LIKELY = "speculation"
"""Asked about alone before anything else: what brings people here most often, and each question costs engine starts."""

PLANTED = "the planted fault"
"""A key too, which JSON has had since it was written out."""

TOGETHER = {
    LIKELY: SPECULATION,
    PLANTED: ("PARITY_FAULT", "PARITY_FAULT_BUNDLE", "PARITY_FAULT_LOG", "PYTHONPATH"),
}
"""Settings that mean nothing one without the other are one difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which two arms differ: engine settings and environment variables that belong together.

    `failing` and `passing` map a name to its value on that side; a name that a side lacks is not in it.
    """

    name: str
    """Of the setting, or of those that belong together: a key, in every language the same."""
    engine: tuple[str, ...]
    env: tuple[str, ...]
    failing: dict[str, Json] = field(hash=False)
    passing: dict[str, Json] = field(hash=False)

    @property
    def title(self) -> Message:
        """What the name stands for, in words."""
        return _TITLES.get(self.name) or verbatim(self.name)

    @property
    def said(self) -> Message:
        """Its settings, and their values on both sides."""
        shown = [name for name in (*self.engine, *self.env) if name not in _DULL] or [*self.engine, *self.env]
        values = [
            message(
                "reduce.setting",
                "{name} {passing} → {failing}",
                name=name,
                passing=_shown(self.passing, name),
                failing=_shown(self.failing, name),
            )
            for name in shown
        ]
        if self.name in shown:
            return joined(values, by=", ")
        return message("reduce.settings_together", "{title} ({values})", title=self.title, values=values)


_TITLES = {
    LIKELY: message("reduce.title.speculation", "speculation"),
    PLANTED: message("reduce.title.planted", "the planted fault"),
}


_DULL = ("per_request_spec_decode_metrics", "PARITY_FAULT_BUNDLE", "PARITY_FAULT_LOG", "PYTHONPATH")


def _shown(values: dict[str, Json], name: str) -> Message:
    return verbatim(json.dumps(values[name])) if name in values else message("reduce.not_set", "not set")


def differences(failing: Arm, passing: Arm) -> list[Difference]:
    """What differs between two arms, in the order of their settings; [] where they are the same."""
    engine = _differing(failing.engine, passing.engine)
    env = _differing(failing.env, passing.env)
    found: list[Difference] = []
    for name in (*engine, *env):
        if any(name in (*one.engine, *one.env) for one in found):
            continue
        group, members = next(((g, m) for g, m in TOGETHER.items() if name in m), (name, (name,)))
        found.append(
            Difference(
                group,
                tuple(each for each in engine if each in members),
                tuple(each for each in env if each in members),
                _values(failing, members),
                _values(passing, members),
            )
        )
    return found


def _values(arm: Arm, names: Sequence[str]) -> dict[str, Json]:
    both = {**arm.engine, **arm.env}
    return {name: both[name] for name in names if name in both}


def _differing(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[str]:
    return [name for name in dict.fromkeys([*a, *b]) if a.get(name, ABSENT) != b.get(name, ABSENT)]


def mixed(passing: Arm, failing: Arm, chosen: Sequence[Difference]) -> Arm:
    """The passing arm with these settings of the failing one; named like the failing one."""
    engine, env = dict(passing.engine), dict(passing.env)
    for one in chosen:
        for names, target in ((one.engine, engine), (one.env, env)):
            for name in names:
                if name in one.failing:
                    target[name] = one.failing[name]
                else:
                    target.pop(name, None)
    return replace(failing, engine=engine, env=env, control=None)


@dataclass(slots=True)
class Flip:
    """`settings` are those that flip the verdict, 1-minimal; None where the search did not get so far."""

    failing: str
    passing: str
    differ: list[Difference]
    settings: list[Difference] | None = None
    arm: Arm | None = None
    """The passing arm with them: fails."""
    steps: list[Step] = field(default_factory=list)
    out_of_time: bool = False

    def to_json(self) -> dict[str, Json]:
        def in_json(one: Difference) -> dict[str, Json]:
            def plain(values: dict[str, Json]) -> dict[str, Json]:
                return {name: value for name, value in values.items() if name != "PARITY_FAULT_BUNDLE"}

            return {"name": one.name, "failing": plain(one.failing), "passing": plain(one.passing)}

        return {
            "failing": self.failing,
            "passing": self.passing,
            "differ": [in_json(one) for one in self.differ],
            "settings": None if self.settings is None else [in_json(one) for one in self.settings],
            "out_of_time": self.out_of_time,
            "steps": [step.to_json() for step in self.steps],
        }


def flip_between(failing: Arm, passing: Arm) -> Flip:
    """What differs between two arms, of which nothing has been asked yet. Raises ParityError where there is nothing
    to bisect: known before any engine starts."""
    if failing.backend != passing.backend:
        raise ParityError(
            message(
                "reduce.different_backends_no",
                "{failing} and {passing} are on different backends: no setting turns one into the other",
                failing=failing.name,
                passing=passing.name,
            ),
            hint=message(
                "reduce.name_two_arms",
                "name two arms of one backend; `parity runs show` prints the suspect of arms on several",
            ),
        )
    flip = Flip(failing.name, passing.name, differences(failing, passing))
    if any(one.name == ADDRESS for one in flip.differ):
        raise ParityError(
            message(
                "reduce.different_servers",
                "{failing} and {passing} are different servers: no setting turns one into the other",
                failing=failing.name,
                passing=passing.name,
            ),
            hint=message(
                "reduce.compare_starts", "compare how they were started: `parity runs show` names what is known of it"
            ),
        )
    if not flip.differ:
        raise ParityError(
            message(
                "reduce.same_settings",
                "{failing} and {passing} have the same settings",
                failing=failing.name,
                passing=passing.name,
            ),
            hint=message("reduce.name_other_arms", "name other arms"),
        )
    return flip


class SettingsSearch:
    """Bisects the settings of two arms of one backend, over one case."""

    def __init__(
        self,
        oracle: Oracle,
        case: Case,
        reference: Arm,
        question: Question,
        *,
        suspected: Sequence[str] = (),
        say: Say = lambda line: None,
    ) -> None:
        """`suspected`: settings that are asked about first, each alone (`parity.explain.experiments`)."""
        self._oracle, self._case, self._reference = oracle, case, reference
        self._question, self._suspected, self._say = question, suspected, say

    def run(
        self,
        failing: Arm,
        passing: Arm,
        *,
        checked: bool = False,
        or_none: bool = False,
        called: Message | None = None,
    ) -> Flip:
        """The smallest set. `checked`: the failing arm is known to fail on this case. `or_none`: a passing arm that
        fails as well is no mistake, and none of the settings are needed. `called`: the passing arm in words, where it
        is not the one of its name.

        Raises ParityError where the arms are not one that fails and one that does not, BackendError, Interrupted.
        """
        flip = flip_between(failing, passing)
        try:
            self._search(flip, failing, passing, checked, or_none, called or verbatim(passing.name))
        except OutOfTime:
            flip.out_of_time = True
            self._say(message("reduce.time_spent_far", "the time is spent: this is as far as it went"))
        return flip

    def _search(self, flip: Flip, failing: Arm, passing: Arm, checked: bool, or_none: bool, called: Message) -> None:
        def fails(chosen: list[Difference]) -> bool:
            arm = mixed(passing, failing, chosen)
            what = message(
                "reduce.with_settings",
                "{arm} with {settings}",
                arm=called,
                settings=[one.title for one in chosen],
            )
            return self._ask(flip, arm, what).fails

        if not checked:
            decision = self._ask(flip, failing, verbatim(failing.name))
            if decision.unresolved:
                raise BackendError(
                    message(
                        "reduce.cannot_tried",
                        "{passing} cannot be tried: {unresolved}",
                        passing=failing.name,
                        unresolved=decision.unresolved,
                    )
                )
            if not decision.fails:
                raise ParityError(
                    message(
                        "reduce.not_fail_often",
                        "{failing} does not fail often enough on this case: {failures} of {shots} shots failed",
                        failing=failing.name,
                        failures=decision.failures,
                        shots=decision.shots,
                    ),
                    hint=message("reduce.give_case_fails", "give it a case that fails: `parity reduce` makes one"),
                )
        clean = self._ask(flip, mixed(passing, failing, []), called)
        if clean.unresolved:
            raise BackendError(
                message(
                    "reduce.cannot_tried",
                    "{passing} cannot be tried: {unresolved}",
                    passing=called,
                    unresolved=clean.unresolved,
                ),
                hint=message("reduce.name_another_passing", "name another PASSING arm"),
            )
        if clean.fails and or_none:
            flip.settings, flip.arm = [], mixed(passing, failing, [])
            return
        if clean.fails:
            raise ParityError(
                message(
                    "reduce.fails_too_there",
                    "{passing} fails too: there is nothing that its settings could flip",
                    passing=passing.name,
                ),
                hint=message("reduce.name_arm_passes", "name an arm that passes as PASSING"),
            )
        by_name = {one.name: one for one in flip.differ}
        first = [by_name[name] for name in dict.fromkeys((*self._suspected, LIKELY)) if name in by_name]
        settings = next(([one] for one in first if fails([one])), None) or ddmin(flip.differ, fails)
        flip.arm = mixed(passing, failing, settings)
        flip.settings = settings

    def _ask(self, flip: Flip, arm: Arm, what: Message) -> Decision:
        decision = self._oracle.decide(self._case, Setup(arm, self._reference), self._question)
        why = decision.unresolved
        flip.steps.append(Step(str(what), decision.fails, decision.shots, decision.failures, str(why or "")))
        answer = FAILS if decision.fails else DOES_NOT_FAIL if why is None else untried(why)
        self._say(shots_said(what, answer, decision))
        return decision
