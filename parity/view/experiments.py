"""The next experiment on a suspected condition, as a complete command for the run at hand."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from parity.explain.experiments import EXPERIMENTS
from parity.messages import Message, joined, message
from parity.records import Json
from parity.view.at_hand import Here
from parity.view.run import RunView
from parity.view.why import Why
from parity.view.why_said import condition

PROPOSED: Final = 2
"""Conditions of an arm that experiments are proposed for."""

MORE_ROUNDS: Final = 4
"""Times as many rounds, where the run has asked for as much of a condition as there is."""


class Proposed(Struct, frozen=True):
    """`words` after `parity`; none where the command that made the run is not known."""

    arm: str
    conditions: tuple[str, ...]
    """What it is proposed for, the best explanation first."""
    aim: Literal["remove", "more"]
    options: tuple[str, ...]
    words: tuple[str, ...] = ()

    @property
    def what(self) -> Message:
        said = joined([condition(name) for name in self.conditions], by="; ")
        if self.aim == "remove":
            return message("why.remove", "try it without that ({condition}): do the faults stay away?", condition=said)
        return message("why.more", "try it with more of that ({condition}): do more faults come?", condition=said)

    @property
    def text(self) -> str:
        return shlex.join(["parity", *self.words]) if self.words else ""

    @property
    def shown(self) -> str:
        """The command; where the one that made the run is not known, what is to stand in it."""
        return self.text or f"parity run … {shlex.join(self.options)} --record"

    def to_json(self) -> dict[str, Json]:
        return {
            "arm": self.arm,
            "condition": self.conditions[0],
            "conditions": list(self.conditions),
            "aim": self.aim,
            "what": str(self.what),
            "options": list(self.options),
            "command": self.text or None,
        }


def proposed(view: RunView, whys: Iterable[Why]) -> list[list[Proposed]]:
    """For each, what explains the faults best: without it, and with more of it. Each command once, at the first, for
    all that it is proposed for."""
    here = Here(view)
    found: dict[frozenset[str], Proposed] = {}
    firsts = []
    for one in whys:
        own = []
        for name in [name for name in one.suspected if name in EXPERIMENTS][:PROPOSED]:
            for each in _of(here, one.arm, name):
                command = frozenset(each.words or each.options)  # the order of options changes nothing
                known = found.get(command)
                if known is None:
                    own.append(command)
                    found[command] = each
                elif name not in known.conditions:
                    found[command] = replace(known, conditions=(*known.conditions, name))
        firsts.append(own)
    return [[found[command] for command in own] for own in firsts]


def _of(here: Here, arm: str, name: str) -> Iterator[Proposed]:
    experiment = EXPERIMENTS[name]
    if experiment.remove:
        removed = _made(here, Proposed(arm, (name,), "remove", experiment.remove), experiment.without)
        if _is_new(here, removed):
            yield removed
    if experiment.more:
        more = _made(here, Proposed(arm, (name,), "more", experiment.more))
        if _is_new(here, more):
            yield more
        else:
            yield _made(here, replace(more, options=("--rounds", str(MORE_ROUNDS * here.view.run.rounds)), words=()))


def _is_new(here: Here, one: Proposed) -> bool:
    """Would it ask something else than the run has asked?"""
    asked = here.as_asked()
    return asked is None or set(one.words) != {*asked, "--record"}


def _made(here: Here, one: Proposed, without: tuple[str, ...] = ()) -> Proposed:
    """The command that made the run, with these options in place of its own; --engine takes several."""
    names = [word for word in one.options if word.startswith("-") and word != "--engine"]
    words = here.as_asked(*one.options, without=(*names, *without))
    if words is None:
        return one
    return replace(one, words=words if "--record" in words else (*words, "--record"))
