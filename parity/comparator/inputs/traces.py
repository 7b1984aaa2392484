"""Traces of speculative steps that begin with the step of the prompt, as a script writes one number for each step."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from parity.comparator.inputs.conventions import LOOKED_AT
from parity.comparator.inputs.servers import by_others
from parity.comparator.types import Remarks, note
from parity.messages import message
from parity.records import Capture, Completion, SpecTrace

FEW: Final = 4
"""Completions that must show it: of one whose last step was cut, the trace has a step too many as well."""


def without_prompt_steps(arm: Capture) -> tuple[Capture, Remarks]:
    """The arm with traces of decode steps alone.

    The first token comes of the prompt, in a step that proposes nothing. Where each trace begins with such a step, and
    has a token more than its completion, that is the step of the prompt: counted as a decode step it would put each
    draft a place too late.
    """
    if not by_others(arm.header):
        return arm, Remarks()
    looked = [one for one in islice(arm, LOOKED_AT) if one.spec is not None and len(one.token_ids)]
    if len(looked) < FEW or not all(map(_begins_early, looked)):
        return arm, Remarks()
    said = message(
        "inputs.prompt_steps",
        "{arm}: its traces of steps begin with that of the prompt: it is left out",
        arm=arm.header.arm,
    )
    cut = {one.key: replace(one, spec=_cut(one.spec)) for one in arm if one.spec is not None and _begins_early(one)}
    return arm.but(cut), note(said)


def _begins_early(one: Completion) -> bool:
    """May the first step be that of the prompt? By its other steps the trace has more tokens than the completion."""
    trace = one.spec
    if trace is None or not len(trace.drafted) or len(trace.drafted) != len(trace.accepted):
        return False
    more = int(trace.accepted.sum()) + len(trace.accepted) + 1 - len(one.token_ids)
    return not trace.drafted[0] and not trace.accepted[0] and more > 0


def _cut(trace: SpecTrace) -> SpecTrace:
    return SpecTrace(trace.accepted[1:], trace.drafted[1:], trace.tokens)
