"""What the scorer says of completions after the text of other requests (`detect/crossings.py`): whose are they?

Two things say it. The tokens are far likelier after the other text than after their own, and that text explains them
from the first to the last (`reference/crossed.py`). Or the engine's own logprobs are those of the other text: they
disagree with the scores of the completion's own prompt, and agree with those. Each is evidence whose mean is at most 1
for a completion that was made after its own prompt, so `alpha` holds for both, all questions of a run together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from parity.comparator.detect.crossings import SCORED
from parity.comparator.detect.events import Event
from parity.comparator.detect.leak import NAMED, as_well
from parity.comparator.reference.crossed import (
    Asked,
    explains,
    log_over_blind,
    log_won,
    residual,
    residual_sizes,
    set_apart,
)
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.scores import Reference
from parity.comparator.statistics import FloatArray
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Kind, TokenIds, TopLogprobs
from parity.records.crossings import Crossed, Crossing
from parity.records.evidence import JudgedBy, LeakEvidence

AS_GOOD = 3.0
"""Nats by which another donor may explain the tokens less well and still be as good an answer."""

SAME = 4.0
"""Times the residuals that are usual in the run, up to which own logprobs are those of a text."""

APART = 4.0
"""Times the residuals after the other text, from which on own logprobs are not those of the completion's own prompt."""


class _Answer(Struct, frozen=True):
    crossing: Crossing
    log_won: float
    log_over_blind: float
    explains: bool
    apart: float
    """Times that own logprobs lie farther from the scores after the own prompt than from these; 0 where they are not
    those of either text."""
    log_apart: float
    """Log of the evidence that they are those of the other text (`set_apart`)."""
    tokens: int

    @property
    def log_least(self) -> float:
        """By how much the other text explains the tokens better than their own does, and than chance."""
        return min(self.log_won, self.log_over_blind)


class Asking(Struct, frozen=True):
    """The run as it is looked at; `alpha`: the chance that a completion of it which was drawn after its own prompt is
    called another request's."""

    crossed: Crossed
    arm: Capture
    """Whose completions are asked about."""
    reference: Reference
    temperature_of: Callable[[Completion], float]
    alpha: float
    vocab_size: int | None


def named(asking: Asking) -> dict[Key, Event]:
    """Completions that another request's text explains, as row leaks."""
    arm = asking.arm
    by_row: dict[Key, list[Crossing]] = {}
    for crossing in asking.crossed:
        if crossing.arm == arm.header.arm and {crossing[1], crossing[2]} <= arm.completions.keys():
            by_row.setdefault(crossing.receiver, []).append(crossing)
    usual = _usual(asking, by_row) if by_row else None
    rows, found = len(arm.completions), dict[Key, Event]()
    for key, asked in by_row.items():
        answers = list(_answers(asked, asking, usual))
        # With which token it begins was looked for: as many beginnings as there are places. Half of the error rate is
        # the first one's.
        places = max(1, len(arm.completions[key].token_ids))
        tries = {one.start: 2 * len(asked) * rows * (places if one.start else 1) for one in asked}
        least = {start: float(np.log(count / asking.alpha)) for start, count in tries.items()}
        likely = [one for one in answers if one.apart >= APART and one.log_apart >= least[one.crossing.start]]
        if not likely:
            likely = [one for one in answers if one.explains and one.log_least >= least[one.crossing.start]]
        if likely:
            best = max(likely, key=lambda one: (one.apart, one.log_won))
            found[key] = _event(best, likely, arm, tries[best.crossing.start])
    return found


def _answers(asked: Iterable[Crossing], asking: Asking, usual: Usual | None) -> Iterator[_Answer]:
    arm, vocab_size = asking.arm, asking.vocab_size
    for crossing in asked:
        receiver, donor = arm.completions[crossing.receiver], arm.completions[crossing.donor]
        own, other = asking.reference.score(arm.header.arm, receiver), asking.crossed[crossing]
        part = slice(crossing.start, crossing.start + SCORED)
        tokens = receiver.token_ids[part]
        if own is None or len(own) != len(receiver.token_ids) or not _is_of(other, tokens):
            continue
        if not all(asking.reference.shaping(one).none for one in (receiver, donor)):
            continue
        own = TopLogprobs(own.ids[part], own.values[part])
        how = [Asked(asking.temperature_of(one), Cut.of(arm.sampling_of(one))) for one in (receiver, donor)]
        apart, log_apart = _apart(receiver, crossing.start, own, other, usual)
        yield _Answer(
            crossing,
            log_won(own, other, tokens, (how[0], how[1]), vocab_size),
            log_over_blind(other, tokens, how[1], vocab_size),
            explains(other, tokens, how[1].temperature, vocab_size),
            apart,
            log_apart,
            len(tokens),
        )


def _apart(
    receiver: Completion, start: int, own: TopLogprobs, other: TopLogprobs, usual: Usual | None
) -> tuple[float, float]:
    said = receiver.logprobs
    if usual is None or said is None or len(said) != len(receiver.token_ids):
        return 0.0, 0.0
    tokens = receiver.token_ids[start : start + len(own)]
    said = TopLogprobs(said.ids[start : start + len(own)], said.values[start : start + len(own)])
    here, there = residual(said, own, tokens), residual(said, other, tokens)
    if here is None or there is None or there > SAME * usual.of_a_row:
        return 0.0, 0.0
    return here / max(there, usual.of_a_row), set_apart(said, own, other, tokens, usual.sizes)


class Usual(Struct, frozen=True):
    """Residuals of the run, nats. of_a_row: the middle one of completions'. sizes: of single tokens of completions that
    nobody asks about, ascending."""

    of_a_row: float
    sizes: FloatArray


def _usual(asking: Asking, asked: Collection[Key]) -> Usual | None:
    rows, sizes = [], []
    for one in asking.arm:
        top = asking.reference.score(asking.arm.header.arm, one)
        if top is None or one.logprobs is None or not len(one.logprobs) == len(one.token_ids) == len(top):
            continue
        far = residual(one.logprobs, top, one.token_ids)
        if far is not None:
            rows.append(far)
        if one.key not in asked:
            sizes.append(residual_sizes(one.logprobs, top, one.token_ids))
    return Usual(float(np.median(rows)), np.sort(np.concatenate(sizes or [np.empty(0)]))) if rows else None


def _is_of(top: TopLogprobs, tokens: TokenIds) -> bool:
    """Are these lists those of these tokens?"""
    return len(top) == len(tokens) > 0 and bool((top.ids == tokens[:, None]).any(axis=1).all())


def _event(best: _Answer, likely: Sequence[_Answer], arm: Capture, tries: int) -> Event:
    crossing, start = best.crossing, best.crossing.start
    as_good = (one for one in likely if one.log_won > best.log_won - AS_GOOD and 2 * one.apart >= best.apart)
    others = {one.crossing.donor.request for one in as_good} - {crossing.donor.request}
    samples = [key for key in arm.completions if key[:2] == crossing.donor[:2]]
    known = crossing.donor if start or len(samples) == 1 else None
    name = crossing.donor.request if known is None else str(known)
    length = len(arm.completions[crossing.receiver].token_ids) - start
    evidence = LeakEvidence(
        why=_why(best, length, name),
        ambiguous=as_well(sorted(others)[:NAMED], len(others)),
        donor_request=crossing.donor.request,
        donor_round=None if known is None else known.round,
        donor_sample=None if known is None else known.sample,
        donor_part="continuation",
        donor_start=start,
        donor_end=start + length,
        expected_by_chance=float(np.exp(min(0.0, np.log(tries) - max(best.log_won, best.log_apart)))),
        requests_with_this_span=1 + len(others),
        judged_by=JudgedBy.SCORES,
    )
    return Event(Kind.ROW_LEAK, start, length, evidence)


def _why(best: _Answer, length: int, donor: str) -> Message:
    if best.apart:
        return message(
            "row_leak.crossed_logprobs",
            "the engine's logprobs, of {count} tokens, are those after the text of {donor}: {times} times nearer to "
            "them than to those after this request's prompt",
            count=length,
            donor=donor,
            times=f"{best.apart:.0f}",
        )
    return message(
        "row_leak.crossed",
        "{count} tokens are unlikely after this request's prompt and likely after the text of {donor}: by {nats} nats "
        "over {scored} tokens",
        count=length,
        donor=donor,
        nats=f"{best.log_won:.0f}",
        scored=best.tokens,
    )
