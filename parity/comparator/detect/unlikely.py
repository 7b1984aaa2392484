"""Stretches of drawn completions that no sampler draws, by what they were drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parity.comparator.detect import stops, trials
from parity.comparator.detect.draws import Draws
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.detect.structure import GARBLED_TOKENS
from parity.comparator.reference import surprisal
from parity.messages import message
from parity.records import Completion, Key, Kind, TopLogprobs
from parity.records.evidence import EndEvidence

FEW_ODD, HALF_AS_MANY = 2, 0.5
"""Completions of the baseline with stretches that no sampler draws, and their number by that of the candidate's, from
which on neither arm is judged by such stretches."""


def unlikely(b: Completion, draws: Draws) -> list[Event]:
    """Stretches that the distribution does not explain."""
    top = draws.distribution(b)
    if top is None:
        return []
    by = draws.judged_by(b)
    return [_event(b, stretch, draws.rules).but(judged_by=by) for stretch in _stretches(b, top, draws)]


def unlikely_too(count: int, known: Mapping[Key, TopLogprobs], draws: Draws) -> list[Key]:
    """The baseline's own completions with tokens that no sampler draws; [] where they are few beside those of the
    candidate, `count`. Where both arms show it, the reference does not say what they were drawn from."""
    drawn = (one for one in draws.baseline if one.key in known and not draws.reference.shaping(one).unknown)
    odd = [one.key for one in drawn if _stretches(one, known[one.key], draws)]
    return odd if len(odd) >= max(FEW_ODD, count * HALF_AS_MANY) else []


def _stretches(b: Completion, top: TopLogprobs, draws: Draws) -> list[surprisal.Unlikely]:
    logs, slack = draws.tail_logs(b, top)
    return surprisal.find_unlikely(logs, draws.windows, draws.alpha, slack)


def _event(b: Completion, stretch: surprisal.Unlikely, rules: stops.StopRules) -> Event:
    last = len(b.token_ids) - 1
    if stretch.position == last and int(b.token_ids[last]) in rules.of(b).terminators:
        why = message("early_stop.unlikely", "ends here, which the reference holds for next to impossible")
        return Event(Kind.EARLY_STOP, stretch.position, 1, EndEvidence(why=why, p_value=stretch.p_value))
    why = message(
        "unlikely.why",
        "the reference's distribution does not explain these {count} tokens",
        count=stretch.length,
    )
    kind = Kind.GARBLED if stretch.length >= GARBLED_TOKENS else Kind.UNJUSTIFIED
    return tokens_event(kind, stretch.position, stretch.length, why, p_value=stretch.p_value)


def random_tokens_seen(drawn: Sequence[Completion], draws: Draws) -> float:
    """The share of completions in which random tokens would be found (`trials.random_tokens_seen`)."""
    return trials.random_tokens_seen(
        drawn, draws.distribution, lambda one, top: bool(_stretches(one, top, draws)), draws.vocab_size
    )
