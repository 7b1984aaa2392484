"""What corrupt requests have in common and the others have not: the hint that people look for first.

From prompts and findings alone; with recorded steps `parity why` asks far more (docs/steps.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from parity.comparator.statistics import fisher_more
from parity.messages import Message
from parity.records import Kind
from parity.report.prose import Code
from parity.report.texts import sentence as say
from parity.view import ArmView, FindingView, RunView

CHANCE: Final = 0.01
"""Chance, of all conditions that are looked at together, below which one is named that may well be chance."""
LOOKED_AT: Final = 3
"""Such conditions: prompts from a length on, up to a length, places at the start of a block."""
BLOCK: Final = 16
"""Tokens; vLLM's block size unless a setting says otherwise."""
FAULTY: Final = frozenset({"corrupt", "missing"})
"""Classes of completions."""
FEWEST: Final = 3
"""Completions of which a place in common says something."""


def shared_conditions(view: RunView) -> Iterator[Message]:
    """For each accused arm; nothing where the report is about one finding."""
    if view.asked_for_finding:
        return
    lengths = {request.name: len(request.prompt_token_ids) for request in view.requests}
    for arm in view.suspected:
        found = [one for one in view.corrupt if one.arm == arm.name and not one.of_run]
        bad = {key.request for key, cls in view.classes_of(arm.name).items() if cls in FAULTY}
        yield from _by_length(arm, lengths, sorted((bad | {one.request for one in found}) & set(lengths)))
        if view.total_findings <= len(view.findings):  # else the places of some are not at hand
            yield from _by_place(arm, lengths, found)


def _by_length(arm: ArmView, lengths: Mapping[str, int], bad: Sequence[str]) -> Iterator[Message]:
    """One length is named where there are others; from or up to a length only where that is no chance."""
    if len(bad) < 2:
        return
    low, high = (edge(lengths[name] for name in bad) for edge in (min, max))
    bounds = (
        ("measured.length", {"tokens": low}, low, high),
        ("measured.length.from", {"tokens": low}, low, max(lengths.values())),
        ("measured.length.to", {"tokens": high}, 0, high),
    )
    for name, values, least, most in bounds:
        same = sum(least <= length <= most for length in lengths.values())
        others = len(lengths) - same
        one_length = name == "measured.length"
        if not others or (one_length and low != high):
            continue
        if one_length or fisher_more(len(bad), same, 0, others) * LOOKED_AT < CHANCE:
            yield say(name, arm=Code(arm.name), bad=len(bad), same=same, others=others, **values)
            return


def _by_place(arm: ArmView, lengths: Mapping[str, int], found: Sequence[FindingView]) -> Iterator[Message]:
    """Where each corrupt completion first goes wrong: at one output token, or at the start of a block."""
    first: dict[tuple[str, int, int], int] = {}
    for one in found:
        if one.position is not None and one.request in lengths and Kind(one.kind).row.one_place:
            key = (one.request, one.key.round, one.key.sample)
            first[key] = min(one.position, first.get(key, one.position))
    if len(first) < FEWEST:
        return
    if len(set(first.values())) == 1:
        yield say("measured.place", arm=Code(arm.name), bad=len(first), position=next(iter(first.values())))
        return
    starts = all((lengths[key[0]] + place) % BLOCK == 0 for key, place in first.items())
    if starts and BLOCK ** -len(first) * LOOKED_AT < CHANCE:
        yield say("measured.block", arm=Code(arm.name), bad=len(first), block=BLOCK)
