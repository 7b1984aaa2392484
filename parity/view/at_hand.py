"""The run at hand: its directory, its captures, the command that started it, to build a next command from."""

from __future__ import annotations

import os
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import orjson

from parity.capture import MAX_LINE_BYTES, parse_header
from parity.capture.lines import open_capture
from parity.capture.shards import files_of, is_there
from parity.errors import ParityError
from parity.files import is_file
from parity.messages import Message, message
from parity.pipeline.directory import RunDirectory
from parity.plan.checkpoint import shipped_checkpoint
from parity.records import Header, Json
from parity.records.objects import object_of
from parity.view.arm import ArmView
from parity.view.run import RunView

REPLAY, SERVER = "replay", "server"
"""Backends whose arms are captures, and servers."""

MODEL: Final = "MODEL"
"""Stands in a command for a checkpoint that nobody has named."""

_CONTINUES: Final = ("--plan", "--resume")
_PLACES: Final = ("--out", "--db", "--json")
_FLAGS: Final = ("--json",)

MOST_PLANS: Final = 8
"""Runs of one another's plans, one after another, whose commands are joined."""


@dataclass(frozen=True)
class Here:
    """What there is to build a command from."""

    view: RunView

    @cached_property
    def directory(self) -> RunDirectory | None:
        """The run's directory, where it is still there."""
        run = self.view.run
        found = RunDirectory(Path(run.directory)) if run.directory and run.source == "run" else None
        return found if found is not None and is_file(found.plan_file) else None

    def on_captures(self, *options: str) -> tuple[str, ...] | None:
        """The run once more over its captures: engines start for what is asked in addition alone."""
        if self.directory is None:
            return None
        return ("run", "--resume", "--out", str(self.directory.root), *options)

    def on_plan(self, *options: str) -> tuple[str, ...] | None:
        """Its plan once more, in a run of its own."""
        if self.directory is None or any(arm.backend == REPLAY for arm in self.view.arms):
            return None
        db = self.directory.describe().db
        return (
            "run",
            "--plan",
            str(self.directory.plan_file),
            *(("--db", db) if db is not None else ()),
            *options,
        )

    def as_asked(self, *options: str, without: Sequence[str] = ()) -> tuple[str, ...] | None:
        """The command that the run was started with, and these options over its own; None where an arm is a recording,
        which answers what it was asked then."""
        if any(arm.backend == REPLAY for arm in self.view.arms):
            return None
        words = _words_of(self.view.run.command)
        for _ in range(MOST_PLANS):  # a run of a plan file that is another run's was started as that one was
            own = _value_of("--plan", words)
            before = RunDirectory(Path(own).parent).describe().command if own else None
            if before is None:
                break
            later = _without(words[2:], ("--plan", *_PLACES))
            words = [*_without(_words_of(before), [word for word in later if word.startswith("--")]), *later]
        if words[:2] != ["parity", "run"] or any(word.partition("=")[0] in _CONTINUES for word in words):
            return None
        left = _without(words[1:], (*_PLACES, *without))
        database = self.view.run.database
        return (*left, *options, *(("--db", database) if database else ()))

    def recordings(self, *, swapped_with: ArmView | None = None) -> tuple[str, ...] | None:
        """The captures of all arms as options, the baseline's first; None where one is gone. `swapped_with`: of the
        baseline and this arm alone, this one first."""
        baseline = next((arm for arm in self.view.arms if arm.is_baseline), None)
        if baseline is None:
            return None
        names = self.names
        options: list[str] = []
        for arm in (baseline, *self.view.candidates) if swapped_with is None else (swapped_with, baseline):
            if not arm.capture or not is_there(Path(arm.capture)):
                return None
            options += ["--replay", f"{names[arm.name]}={Path(arm.capture).absolute()}"]
        return tuple(options)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """A variant for each arm as a recording."""
        found: dict[str, str] = {}
        for arm in self.view.arms:
            name = re.sub(r"[^A-Za-z0-9._+-]+", "-", arm.name).strip("-._+") or "arm"
            while name in found.values():
                name += "-2"
            found[arm.name] = name
        return found

    def model(self) -> tuple[tuple[str, ...], Message | None]:
        """The option that names the checkpoint, and what to put in its place where nobody has named one."""
        run = self.view.run
        known = run.model_path or shipped_checkpoint(run.model)
        if known is None and os.path.isdir(run.model):
            known = Path(run.model)
        if known is not None:
            return ("--model", str(known)), None
        remark = message(
            "next.model", "{placeholder}: the directory of the checkpoint {model}", placeholder=MODEL, model=run.model
        )
        return ("--model", MODEL), remark

    @property
    def replays(self) -> bool:
        """Are both sides, the baseline and all that is compared with it, recordings?"""
        return all(arm.backend == REPLAY for arm in self.view.arms)

    def can_score(self, arm: ArmView) -> bool:
        """Whether its engine can score: a recording cannot, and a server only with prompt_logprobs (vLLM's)."""
        if arm.backend == REPLAY:
            return False
        served = self._served(arm)
        if served is None:
            return True
        dialect = object_of(served.get("server")).get("dialect")
        return dialect == "vllm" and served.get("token_source") == "server"

    def _served(self, arm: ArmView) -> Mapping[str, Json] | None:
        """What its capture says of the server that gave it; None for an engine of ours."""
        header = header_of(arm)
        found = None if header is None else header.extra.get("served")
        return found if isinstance(found, Mapping) else {} if arm.backend == SERVER else None


def recorded_of(arm: ArmView) -> ArmView:
    """The engine or server that a recording is of, as an arm; any other arm as it is."""
    header = header_of(arm) if arm.backend == REPLAY else None
    of = object_of(None if header is None else header.extra.get("replayed"))
    if not of:
        return arm
    engine = {**arm.engine, "asked": object_of(of.get("asked"))}
    return replace(arm, backend=str(of.get("backend")), variant=str(of.get("variant")), engine=engine)


def header_of(arm: ArmView) -> Header | None:
    """The first line of an arm's capture; None where it is gone or cannot be read."""
    if not arm.capture or not is_there(Path(arm.capture)):
        return None
    try:
        with open_capture(files_of(Path(arm.capture))[0]) as file:
            return parse_header(orjson.loads(file.readline(MAX_LINE_BYTES)))
    except (ParityError, OSError, EOFError, ValueError, TypeError, KeyError, zlib.error):
        return None  # the comparison has read it: whatever happened since, other steps are left


def _words_of(command: str) -> list[str]:
    """Of a command line; none of one that no shell takes."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """What an option is given, in either of the ways that there are."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else next(iter(words[at + 1 : at + 2]), None)
    return None


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """The words of a command without these options and their values."""
    left: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip and not word.startswith("--"):
            skip = False
            continue
        skip = name in options and not equals and name not in _FLAGS  # some may do without a value
        if name not in options:
            left.append(word)
    return left
