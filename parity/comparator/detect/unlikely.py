"""What no sampler draws: unlikely stretches of drawn completions, and chunks said twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.comparator.detect import stops, trials
from parity.comparator.detect.draws import Draws
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.detect.structure import GARBLED_TOKENS
from parity.comparator.reference import copies, surprisal
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.gaps import BoolArray
from parity.comparator.shared_out import of_each
from parity.messages import Message, message
from parity.records import Completion, Key, Kind, TopLogprobs
from parity.records.evidence import EndEvidence

FEW_ODD, HALF_AS_MANY = 2, 0.5
"""Completions of the baseline with stretches that no sampler draws, and their number by that of the candidate's, from
which on neither arm is judged by such stretches."""

SEAM = 2
"""Tokens before and after a copy that may look odd because of it."""


def unlikely(b: Completion, draws: Draws) -> list[Event]:
    """Stretches that the distribution does not explain."""
    top = draws.distribution(b)
    if top is None:
        return []
    stretches, copy = _odd(b, top, draws)
    events = [_event(b, one, draws.rules) for one in stretches if copy is None or not _is_seam(one, copy)]
    events += [_copied(copy)] if copy else []
    by = draws.judged_by(b)
    return [one.but(judged_by=by) for one in sorted(events, key=lambda one: one.position)]


def rare(b: Completion, draws: Draws) -> BoolArray | None:
    """Tokens that a sampler draws once in a hundred places or less, shape (T,); None without a distribution."""
    top = draws.distribution(b)
    return None if top is None else np.asarray(draws.tail_logs(b, top)[0] < -surprisal.RARE)


def unlikely_too(known: Mapping[Key, TopLogprobs], draws: Draws) -> dict[Key, Message]:
    """The baseline's own completions with tokens that no sampler draws, and which these are."""

    def why(one: Completion) -> Message | None:
        stretches, copy = _odd(one, known[one.key], draws)
        if not stretches and not copy:
            return None
        return (_copied(copy) if copy else _event(one, stretches[0], draws.rules)).evidence.why

    drawn = [one for one in draws.baseline if one.key in known and not draws.reference.shaping(one).unknown]
    odd = zip(drawn, of_each(drawn, why, draws.spread), strict=True)
    return {one.key: said for one, said in odd if said is not None}


def are_many(odd: int, candidate: int) -> bool:
    """Are the odd completions of the baseline too many beside those of the candidate? Where both arms show it, the
    reference does not say what they were drawn from."""
    return odd >= max(FEW_ODD, candidate * HALF_AS_MANY) and candidate > 0


def _is_seam(stretch: surprisal.Unlikely, copy: copies.Copied) -> bool:
    """Is the stretch no more than where the copy begins or ends?"""
    first, end = copy.position - SEAM, copy.position + copy.length + SEAM
    inside = first <= stretch.position and stretch.position + stretch.length <= end
    return inside and stretch.length <= copy.length + SEAM


def _copied(copy: copies.Copied) -> Event:
    source = copy.position - copy.length
    why = message(
        "duplication.unlikely",
        "the token at position {source} is emitted again, which the reference holds for next to impossible",
        plural="the {count} tokens from position {source} are emitted again, which the reference holds for next to "
        "impossible",
        count=copy.length,
        source=source,
    )
    place = {"source_start": source, "source_end": copy.position, "p_value": copy.p_value}
    return tokens_event(Kind.DUPLICATION, copy.position, copy.length, why, **place)


def _odd(b: Completion, top: TopLogprobs, draws: Draws) -> tuple[list[surprisal.Unlikely], copies.Copied | None]:
    """Unlikely stretches, and a chunk that stands twice."""
    logs, slack = draws.tail_logs(b, top)
    chances = logs
    if draws.reference.shaping(b).none:
        cut = Cut.of(draws.candidate.sampling_of(b))
        temperature = max(draws.temperature_of(b), surprisal.COLDEST)
        chances = np.fmin(logs, copies.chance_logs(top, b.token_ids, temperature, cut))
    return (
        surprisal.find_unlikely(logs, draws.windows, draws.alpha, slack),
        copies.find_copy(b.token_ids, chances, draws.candidate.tokens.total, draws.alpha, slack),
    )


def _event(b: Completion, stretch: surprisal.Unlikely, rules: stops.StopRules) -> Event:
    last = len(b.token_ids) - 1
    if stretch.position == last and int(b.token_ids[last]) in rules.of(b).terminators:
        why = message("early_stop.unlikely", "ends here, which the reference holds for next to impossible")
        return Event(Kind.EARLY_STOP, stretch.position, 1, EndEvidence(why=why, p_value=stretch.p_value))
    why = message(
        "unlikely.why",
        "the reference's distribution does not explain this token",
        plural="the reference's distribution does not explain these {count} tokens",
        count=stretch.length,
    )
    kind = Kind.GARBLED if stretch.length >= GARBLED_TOKENS else Kind.UNJUSTIFIED
    return tokens_event(kind, stretch.position, stretch.length, why, p_value=stretch.p_value)


def random_tokens_seen(drawn: Sequence[Completion], draws: Draws) -> float:
    """The share of completions in which random tokens would be found (`trials.random_tokens_seen`)."""
    return trials.random_tokens_seen(
        drawn, draws.distribution, lambda one, top: bool(_odd(one, top, draws)[0]), draws.vocab_size, draws.spread
    )


def early_ends_seen(drawn: Sequence[Completion], draws: Draws) -> float:
    """The share of completions in which an end token at a random place would be found by itself; 0 where it does not
    stand in their tokens."""

    def end_of(one: Completion) -> int | None:
        rules = draws.rules.of(one)
        return min(rules.eos or rules.terminators, default=None) if rules.keeps_terminator else None

    return trials.early_ends_seen(
        drawn,
        end_of,
        draws.distribution,
        lambda one, top: bool(_odd(one, top, draws)[0]),
        draws.vocab_size,
        draws.spread,
    )
