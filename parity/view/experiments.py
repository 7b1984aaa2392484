"""The next experiment on a suspected condition, as a complete command for the run at hand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from parity.explain.experiments import EXPERIMENTS
from parity.messages import Message, message
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
    condition: str
    aim: Literal["remove", "more"]
    what: Message
    options: tuple[str, ...]
    words: tuple[str, ...] = ()

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
            "condition": self.condition,
            "aim": self.aim,
            "what": str(self.what),
            "options": list(self.options),
            "command": self.text or None,
        }


def proposed(view: RunView, one: Why) -> list[Proposed]:
    """For what explains the faults of an arm best: without it, and with more of it. Each setting once."""
    here = Here(view)
    found: dict[tuple[str, ...], Proposed] = {}
    for name in [name for name in one.suspected if name in EXPERIMENTS][:PROPOSED]:
        for each in _of(here, one.arm, name):
            found.setdefault(each.options, each)
    return list(found.values())


def _of(here: Here, arm: str, name: str) -> Iterator[Proposed]:
    experiment = EXPERIMENTS[name]
    if experiment.remove:
        what = message(
            "why.remove", "try it without that ({condition}): do the faults stay away?", condition=condition(name)
        )
        removed = _made(here, Proposed(arm, name, "remove", what, experiment.remove), experiment.without)
        if _is_new(here, removed):
            yield removed
    if experiment.more:
        what = message("why.more", "try it with more of that ({condition}): do more faults come?",
                       condition=condition(name))  # fmt: skip
        more = _made(here, Proposed(arm, name, "more", what, experiment.more))
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
