"""Drawn tokens that the request's top_k, top_p or min_p had cut off, by the reference.

One far beyond it, or a few a little beyond it that add up: rounding moves a token over the edge by hundredths of a nat.
Where the baseline's own completions show the same, its engine cuts off by other rules, and nobody is accused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
from msgspec import Struct

from parity.comparator.detect.events import Event
from parity.comparator.inputs.servers import served
from parity.comparator.reference.cutoff import beyond
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.temperature import Cut
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Kind, TopLogprobs
from parity.records.evidence import CutoffEvidence, JudgedBy

EDGE = 0.25
"""Nats: nearer to the edge, a token says nothing."""

FAR = 1.0
"""Nats beyond the edge, those of all tokens of a completion together, from which on it is at fault."""

HABIT = 0.02
"""Share of the baseline's own completions that may lie so far beyond, before its engine is taken to cut off by other
rules."""

USUAL = 0.5
"""The same share of the candidate's where nothing is known of the baseline's."""


class Cutoffs(Struct, frozen=True):
    """What was drawn beyond a cut-off."""

    found: Mapping[Key, Event]
    notes: tuple[Message, ...] = ()


def cutoffs(
    baseline: Iterable[tuple[Completion, TopLogprobs]],
    candidate: Iterable[tuple[Completion, TopLogprobs, JudgedBy]],
    arms: tuple[Capture, Capture],
    reference: Reference,
    temperature_of: Callable[[Completion], float],
    vocab_size: int | None,
) -> Cutoffs:
    """Of all completions with lists whose requests cut the distribution off."""
    theirs = [(one, top) for one, top in baseline if _is_cut(arms[0], one, reference)]
    mine = [(one, top, by) for one, top, by in candidate if _is_cut(arms[1], one, reference)]
    if not mine:
        return Cutoffs({})

    def event(arm: Capture, one: Completion, top: TopLogprobs, by: JudgedBy | None, order: _Order) -> Event | None:
        return _event(one, top, order(temperature_of(one)), Cut.of(arm.sampling_of(one)), by, vocab_size)

    orders = _ORDERS if theirs and not any(served(arm.header) for arm in arms) else _ORDERS[-1:]
    odd = [sum(event(arms[0], one, top, None, order) is not None for one, top in theirs) for order in orders]
    order = next((one for one, count in zip(orders, odd, strict=True) if count <= HABIT * len(theirs)), None)
    if order is None:
        return Cutoffs({}, (_habit(arms[0], odd[-1], len(theirs)),))
    found = {one.key: made for one, top, by in mine if (made := event(arms[1], one, top, by, order)) is not None}
    if not theirs and len(found) > USUAL * len(mine):
        return Cutoffs({}, (_habit(arms[1], len(found), len(mine)),))
    return Cutoffs(found)


_Order = Callable[[float], frozenset[float]]

_ORDERS: tuple[_Order, ...] = (
    lambda temperature: frozenset({temperature}),
    lambda temperature: frozenset({1.0}),
    lambda temperature: frozenset({1.0, temperature}),
)
"""Where the temperature may come: before the cut-off, after it, or nobody knows. The first that the baseline keeps to
counts; that of a server nobody knows."""


def _habit(arm: Capture, odd: int, of: int) -> Message:
    return message(
        "beyond_cutoff.habit",
        "by its scores {odd} of {of} completions of {arm} are drawn beyond top_k, top_p or min_p (cut off by other "
        "rules?): no completion was judged by them",
        odd=odd,
        of=of,
        arm=arm.header.arm,
    )


def _is_cut(arm: Capture, one: Completion, reference: Reference) -> bool:
    return reference.shaping(one).none and Cut.of(arm.sampling_of(one)) != Cut()


def _event(
    one: Completion,
    top: TopLogprobs,
    tempered: Collection[float],
    cut: Cut,
    judged_by: JudgedBy | None,
    vocab_size: int | None,
) -> Event | None:
    far = beyond(top, one.token_ids, tempered, cut, vocab_size)
    places = np.flatnonzero(far >= EDGE)
    if not len(places) or far[places].sum() < FAR:
        return None
    first, last = int(places[0]), int(places[-1])
    asked = _asked(cut)
    why = message(
        "beyond_cutoff.why",
        "{count} token lies beyond what {asked} leaves, by up to {nats} nats",
        plural="{count} tokens lie beyond what {asked} leaves, by up to {nats} nats",
        count=len(places),
        asked=", ".join(f"{name}={value:g}" for name, value in asked.items()),
        nats=f"{far[places].max():.2f}",
    )
    evidence = CutoffEvidence(
        why=why,
        asked=asked,
        positions=tuple(places[:32].tolist()),
        farthest=round(float(far[places].max()), 4),
        judged_by=judged_by,
    )
    return Event(Kind.BEYOND_CUTOFF, first, last - first + 1, evidence)


def _asked(cut: Cut) -> dict[str, float]:
    named = {"top_k": cut.top_k, "top_p": cut.top_p, "min_p": cut.min_p}
    return {name: value for name, value in named.items() if value != getattr(Cut(), name)}
