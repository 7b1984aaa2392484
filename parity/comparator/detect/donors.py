"""What the scorer says of completions after the text of other requests (`detect/crossings.py`): whose are they?

Two things say it. The tokens are far likelier after the other text than after their own, and that text explains them
from the first to the last (`reference/crossed.py`). Or the engine's own logprobs are those of the other text: they
disagree with the scores of the completion's own prompt, and agree with those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parity.comparator.detect.crossings import OTHER_DISTRIBUTIONS, SCORED
from parity.comparator.detect.events import Event
from parity.comparator.reference.crossed import Asked, explains, log_won, residual
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.temperature import Cut
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


@dataclass(frozen=True, slots=True)
class _Answer:
    crossing: Crossing
    log_won: float
    explains: bool
    apart: float
    """Times that own logprobs lie farther from the scores after the own prompt than from these; 0 where they are not
    those of either text."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Asking:
    """The run as it is looked at; `alpha`: the chance that a completion of it which was drawn after its own prompt is
    called another request's."""

    crossed: Crossed
    candidate: Capture
    reference: Reference
    temperature_of: Callable[[Completion], float]
    alpha: float
    vocab_size: int | None


def named(asking: Asking) -> dict[Key, Event]:
    """Completions that another request's text explains, as row leaks."""
    candidate = asking.candidate
    by_row: dict[Key, list[Crossing]] = {}
    for crossing in asking.crossed:
        if crossing.arm == candidate.header.arm and {crossing[1], crossing[2]} <= candidate.completions.keys():
            by_row.setdefault(crossing.receiver, []).append(crossing)
    usual = _usual_residual(asking) if by_row else None
    rows, found = len(candidate.completions), dict[Key, Event]()
    for key, asked in by_row.items():
        answers = list(_answers(asked, asking, usual))
        # With which token it begins was looked for: as many beginnings as there are places.
        tries = len(asked) * max(1, len(candidate.completions[key].token_ids)) * rows
        likely = [one for one in answers if one.apart >= APART]
        if not likely:
            likely = [one for one in answers if one.explains and one.log_won >= np.log(tries / asking.alpha)]
        if likely:
            best = max(likely, key=lambda one: (one.apart, one.log_won))
            found[key] = _event(best, likely, candidate, tries)
    return found


def _answers(asked: Iterable[Crossing], asking: Asking, usual: float | None) -> Iterator[_Answer]:
    candidate, vocab_size = asking.candidate, asking.vocab_size
    for crossing in asked:
        receiver, donor = candidate.completions[crossing.receiver], candidate.completions[crossing.donor]
        own, other = asking.reference.score(candidate.header.arm, receiver), asking.crossed[crossing]
        part = slice(crossing.start, crossing.start + SCORED)
        tokens = receiver.token_ids[part]
        if own is None or len(own) != len(receiver.token_ids) or not _is_of(other, tokens):
            continue
        if any(_shapes(asking, one) for one in (receiver, donor)):
            continue
        own = TopLogprobs(own.ids[part], own.values[part])
        how = [Asked(asking.temperature_of(one), Cut.of(candidate.sampling_of(one))) for one in (receiver, donor)]
        yield _Answer(
            crossing,
            log_won(own, other, tokens, (how[0], how[1]), vocab_size),
            explains(other, tokens, how[1].temperature, vocab_size),
            _apart(receiver, crossing.start, own, other, usual),
            len(tokens),
        )


def _apart(receiver: Completion, start: int, own: TopLogprobs, other: TopLogprobs, usual: float | None) -> float:
    said = receiver.logprobs
    if usual is None or said is None or len(said) != len(receiver.token_ids):
        return 0.0
    tokens = receiver.token_ids[start : start + len(own)]
    said = TopLogprobs(said.ids[start : start + len(own)], said.values[start : start + len(own)])
    here, there = residual(said, own, tokens), residual(said, other, tokens)
    return 0.0 if here is None or there is None or there > SAME * usual else here / max(there, usual)


def _usual_residual(asking: Asking) -> float | None:
    """Of the completions of the run, the middle one's."""
    arm = asking.candidate.header.arm
    scored = ((one, asking.reference.score(arm, one)) for one in asking.candidate)
    found = [
        far
        for one, top in scored
        if top is not None
        and one.logprobs is not None
        and len(one.logprobs) == len(one.token_ids) == len(top)
        and (far := residual(one.logprobs, top, one.token_ids)) is not None
    ]
    return float(np.median(found)) if found else None


def _shapes(asking: Asking, one: Completion) -> bool:
    """Something stands between the lists and what it was drawn from."""
    shaping, sampling = asking.reference.shaping(one), asking.candidate.sampling_of(one)
    return shaping.penalises or bool(shaping.unknown) or any(sampling.get(name) for name in OTHER_DISTRIBUTIONS)


def _is_of(top: TopLogprobs, tokens: TokenIds) -> bool:
    """Are these lists those of these tokens?"""
    return len(top) == len(tokens) > 0 and bool((top.ids == tokens[:, None]).any(axis=1).all())


def _event(best: _Answer, likely: Sequence[_Answer], candidate: Capture, tries: int) -> Event:
    crossing, start = best.crossing, best.crossing.start
    as_good = (one for one in likely if one.log_won > best.log_won - AS_GOOD and 2 * one.apart >= best.apart)
    others = {one.crossing.donor.request for one in as_good} - {crossing.donor.request}
    samples = [key for key in candidate.completions if key[:2] == crossing.donor[:2]]
    known = crossing.donor if start or len(samples) == 1 else None
    name = crossing.donor.request if known is None else str(known)
    length = len(candidate.completions[crossing.receiver].token_ids) - start
    evidence = LeakEvidence(
        why=_why(best, length, name),
        ambiguous=_as_well(others) if others else None,
        donor_request=crossing.donor.request,
        donor_round=None if known is None else known.round,
        donor_sample=None if known is None else known.sample,
        donor_part="continuation",
        donor_start=start,
        donor_end=start + length,
        expected_by_chance=0.0 if best.apart else float(np.exp(min(0.0, np.log(tries) - best.log_won))),
        requests_with_this_span=1 + len(others),
        judged_by=JudgedBy.SCORES,
    )
    return Event(Kind.ROW_LEAK, start, length, evidence)


def _why(best: _Answer, length: int, donor: str) -> Message:
    if best.apart:
        return message(
            "row_leak.crossed_logprobs",
            "the engine's logprobs of {count} tokens are those after the text of {donor}: {times} times nearer to them "
            "than to those after their own prompt",
            count=length,
            donor=donor,
            times=f"{best.apart:.0f}",
        )
    return message(
        "row_leak.crossed",
        "{count} tokens are unlikely after their own prompt and likely after the text of {donor}: by {nats} nats over "
        "{scored} tokens",
        count=length,
        donor=donor,
        nats=f"{best.log_won:.0f}",
        scored=best.tokens,
    )


def _as_well(others: Iterable[str]) -> Message:
    return message("row_leak.as_well", "the text of {others} explains them as well", others=sorted(others))
