"""A completion whose unsupported tokens are all what the reference would choose with other penalties than asked for.

One explanation for all of them is what they are found by: that the rest of the completion loops, or looks like another
one's, follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.events import tokens_event
from parity.comparator.reference.gaps import token_gaps
from parity.comparator.reference.penalties import Penalised, Penalties, other_ways
from parity.messages import Message, message
from parity.records import Kind

FEW = 2
"""Unsupported tokens that another penalty must explain to be named: one alone has many explanations."""

EXPLAINED = 0.98
"""Share of the tokens after the first divergent one that must be what those penalties ask for."""

_STRETCHES = frozenset(
    {Kind.UNJUSTIFIED, Kind.GARBLED, Kind.REPETITION, Kind.DUPLICATION, Kind.OMISSION, Kind.ROW_LEAK}
)


def _is_asked(setup: Setup) -> bool:
    return setup.reference.penalises


def _look(case: Case, setup: Setup) -> Case:
    events = [event for event in case.events if event.kind in _STRETCHES]
    penalised = setup.reference.shaping(case.b).penalised(case.b)
    top = setup.reference.score(setup.arms[1], case.b) if case.from_scores else None
    if not events or case.gaps is None or top is None or penalised is None:
        return case
    bad = np.flatnonzero(case.gaps.unsupported(setup.tolerance))
    if len(bad) < FEW:
        return case
    tokens = case.b.token_ids
    for why, penalties in _instead(penalised, setup):
        gap = token_gaps(top, tokens, penalised.but(penalties)).gap
        fits = gap <= setup.tolerance
        if fits[bad].all() and fits[case.parts_at :].mean() >= EXPLAINED:
            first, length = int(bad[0]), int(bad[-1] - bad[0]) + 1
            event = replace(tokens_event(Kind.UNJUSTIFIED, first, length, why), earliest=events[0].earliest)
            return replace(case, events=(event, *(one for one in case.events if one.kind not in _STRETCHES)))
    return case


def _instead(penalised: Penalised, setup: Setup) -> Iterator[tuple[Message, Penalties]]:
    """What an engine at fault may have applied, the simplest first."""
    own = penalised.penalties
    for name, penalties in other_ways(own).items():
        way = name.partition("_by_")[0]
        is_bias = way == "ignored" and own == Penalties(bias=own.bias)
        yield _WHY["bias_ignored" if is_bias else way], penalties
    for penalties in setup.reference.penalties_asked:
        if penalties not in (own, Penalties()):
            yield _WHY["another"], penalties


_WHY = {
    "ignored": message(
        "penalties.ignored",
        "its penalties were ignored: each token that the reference does not support is the one it would choose without "
        "them",
    ),
    "bias_ignored": message(
        "penalties.bias_ignored",
        "its logit_bias was ignored: each token that the reference does not support is the one it would choose without "
        "it",
    ),
    "late": message(
        "penalties.late",
        "its penalties were applied late: each token that the reference does not support is the one it would choose "
        "if the tokens just before were not counted",
    ),
    "prompt_skipped": message(
        "penalties.prompt_skipped",
        "its repetition penalty left out the prompt: each token that the reference does not support is the one it "
        "would choose so",
    ),
    "prompt_counted": message(
        "penalties.prompt_counted",
        "its penalties counted the prompt: each token that the reference does not support is the one it would choose "
        "so",
    ),
    "another": message(
        "penalties.another",
        "the penalties of another request were applied: each token that the reference does not support is the one it "
        "would choose so",
    ),
}


def reason_of(name: str) -> Message:
    """What an arm did instead, by its name in `other_ways`."""
    return _DID[name.partition("_by_")[0]]


_DID = {
    "ignored": message("penalties.ignores", "ignore their penalties"),
    "late": message("penalties.applies_late", "apply their penalties late"),
    "prompt_skipped": message("penalties.skips_prompt", "leave the prompt out of their repetition penalty"),
    "prompt_counted": message("penalties.counts_prompt", "count the prompt in their penalties"),
}


def did_another() -> Message:
    """The same of an engine that applied another request's."""
    return message("penalties.applies_another", "apply the penalties of another request")


DETECTOR = Detector(frozenset({Kind.UNJUSTIFIED}), pair_by_pair(_look), is_asked=_is_asked)
