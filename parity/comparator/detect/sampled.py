"""Completions that were drawn at random: what is wrong with each, by its likelihood and by the request's own rules.

The rules are asked in order, and the first that finds anything has the say. What holds for the samples of the run as a
whole is population/sampled.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.classes import of_all, with_others
from parity.comparator.detect import crossings, findings, invalid_tokens, logprobs, stops, wording
from parity.comparator.detect.cutoffs import Cutoffs, as_end, cutoffs
from parity.comparator.detect.donors import Asking, named
from parity.comparator.detect.draft_acceptance import Proposed, proposed_drafts
from parity.comparator.detect.drawn_leaks import with_donors
from parity.comparator.detect.draws import Draws, draws_of, false_lists
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.pairs import Judged
from parity.comparator.detect.rules import Requested
from parity.comparator.detect.step_before import StepsBefore, steps_before
from parity.comparator.detect.temperatures import Temperatures, temperatures
from parity.comparator.detect.unlikely import (
    are_many,
    early_ends_seen,
    random_tokens_seen,
    rare,
    unlikely,
    unlikely_too,
)
from parity.comparator.detect.whole_draws import (
    AllOutcomes,
    ArmsDraws,
    all_outcomes,
    odds_of_arms,
    sums_of_arms,
    times_of_own_lists,
    with_rows,
)
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.settings import of_other_precision
from parity.comparator.reference.draw_sums import own_temperature
from parity.comparator.reference.own_logprobs import OwnNoise, noise_of
from parity.comparator.reference.scores import Reference
from parity.comparator.shared_out import of_each
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions
from parity.messages import Message, message
from parity.records import Capture, Completion, Finding, Key, Kind
from parity.records.crossings import Crossed
from parity.records.evidence import EndEvidence, LogprobEvidence
from parity.records.next_steps import EXCHANGED, NextStep, Step


def judge_sampled(
    inputs: Inputs,
    reference: Reference,
    pairs: Pairs,
    options: CompareOptions,
    donors: Callable[[], Donors],
    requested: Requested,
    crossed: Crossed,
) -> Judged:
    """Findings for each pair that was drawn at random; `inputs` and `pairs` are of these alone, `donors` of all."""
    draws = draws_of(inputs, reference, options, requested)
    shown = _shown(inputs, draws, pairs)
    notes: tuple[Message, ...] = ()
    if (times := times_of_own_lists(draws, shown.outcomes, shown.sums)) is not None:
        draws = replace(draws, lists_show_draws=False)
        shown, notes = _shown(inputs, draws, pairs), (_not_drawn_from(draws.candidate, times),)
    foreign, theirs = (
        named(Asking(crossed, arm, reference, draws.temperature_of, draws.alpha, draws.vocab_size))
        for arm in (draws.candidate, draws.baseline)
    )
    baseline_drawn = {**{key: event.evidence.why for key, event in theirs.items()}, **shown.baseline_drawn}
    sides = list(zip(pairs.baseline, pairs.candidate, pairs.identical.tolist(), strict=True))
    alike = pairs.same_prompt.tolist()
    found = list(findings.input_mismatches(inputs.arms, pairs))
    asked_alike = (Pair(*one) for one, same in zip(sides, alike, strict=True) if same)
    events = [(pair.b, event) for pair in asked_alike for event in _events(pair, draws, shown)]
    found += [
        findings.finding(inputs.arms, b.key, event.kind, event.evidence, event.position, event.length)
        for b, event in with_donors(events, donors, foreign, draws.candidate, partial(rare, draws=draws))
    ]
    corrupt = frozenset(finding.key for finding in found)
    unlike = _own_logprobs(draws, corrupt, {*shown.contradicted, *baseline_drawn})
    left_out = corrupt | shown.sums.not_counted
    return Judged(
        findings=found,
        classes=with_others(
            of_all(pairs.keys, "sampled"), {key: "corrupt" for key in pairs.keys if key in corrupt} if corrupt else {}
        ),
        gaps={key: gaps for key, (gaps, _) in draws.scored.items()},
        contradicted=shown.contradicted,
        doubtful={key: one for key, one in shown.beyond.lone.items() if key not in corrupt},
        baseline_ends=_ends_of_baseline(pairs, draws),
        baseline_drawn=baseline_drawn,
        baseline_logprobs=unlike,
        notes=[*notes, *shown.bets.notes, *shown.beyond.notes],
        seen={} if corrupt else _seen(draws, shown, pairs.candidate),
        places=shown.bets.by_place(left_out, draws.alpha),
        baseline_proposed=shown.baseline_proposed,
        proposed=proposed_drafts(inputs.candidate, shown.bets.drawn, left_out, draws.distribution),
        draws=shown.sums.without(corrupt),
        odds=odds_of_arms(shown.outcomes, left_out, shown.sums.factors, draws.spread),
        baseline_draws_at=shown.baseline_draws_at,
        beyond_cutoff=shown.beyond.together,
        next_steps=(*_whose(found, crossed, draws), *shown.beyond.next_steps),
    )


# ------------------------------------------------------------------ before any completion is judged


class Shown(Struct, frozen=True):
    """What all draws of a run show."""

    bets: Temperatures
    before: StepsBefore
    beyond: Cutoffs
    unlikely: Mapping[Key, Sequence[Event]]
    """Stretches of the candidate's completions that no sampler draws; none where the reference does not say what they
    were drawn from."""
    outcomes: AllOutcomes
    sums: ArmsDraws
    baseline_draws_at: float | None
    baseline_proposed: Proposed | None
    contradicted: list[Key]
    """Completions of the baseline with such stretches, where they are too many."""
    baseline_drawn: dict[Key, Message]
    """Completions of the baseline that were not drawn as asked, and how it shows."""


def _shown(inputs: Inputs, draws: Draws, pairs: Pairs) -> Shown:
    arms, asked, reference = (inputs.baseline, inputs.candidate), draws.temperature_of, draws.reference
    known = draws.of_baseline()
    theirs = [(one, known[one.key]) for one in inputs.baseline if one.key in known]
    mine = [(one, top) for one in inputs.candidate if (top := draws.distribution(one)) is not None]
    bets = temperatures(theirs, mine, arms, reference, asked, draws.alpha, draws.vocab_size, draws.spread)
    drawn = bets.of_baseline, bets.drawn
    before = steps_before((theirs, mine), drawn, draws.vocab_size, draws.alpha, draws.spread)
    judged = ((one, top, draws.judged_by(one)) for one, top in mine)
    same = not of_other_precision(inputs.differences)
    beyond = cutoffs(theirs, judged, arms, reference, asked, draws.vocab_size, same_precision=same)
    outcomes = all_outcomes(drawn, [theirs, mine], arms, reference, asked)
    sums, own = sums_of_arms(outcomes, arms, draws.spread)
    sums = with_rows(sums, [theirs, mine], arms, reference, asked, draws.spread)
    draws_at = own_temperature(own, inputs.temperature)
    looked = of_each(pairs.candidate, partial(unlikely, draws=draws), draws.spread)
    stretches = {one.key: made for one, made in zip(pairs.candidate, looked, strict=True) if made}
    odd = unlikely_too(known, draws)
    contradicted = list(odd) if are_many(len(odd), len(stretches)) else []
    by_them = not contradicted and draws_at is None
    theirs_alone = {} if contradicted or draws_at is not None else {**bets.odd_baseline, **before.odd_baseline, **odd}
    drafts = proposed_drafts(inputs.baseline, bets.of_baseline, draws.broken.baseline, lambda one: known.get(one.key))
    by_them_alone = stretches if by_them else {}
    return Shown(bets, before, beyond, by_them_alone, outcomes, sums, draws_at, drafts, contradicted, theirs_alone)


def _not_drawn_from(arm: Capture, times: float) -> Message:
    return message(
        "draws.other_lists",
        "{arm}: most of its completions look as if drawn at {times:.2f} times the temperature by its own logprobs: it "
        "draws so, or gives logprobs of another kind (after the temperature, to another base); which of these, scores "
        "say. They are left out",
        arm=arm.header.arm,
        times=times,
    )


# ------------------------------------------------------------------ the rules, in the order in which they are asked


class Pair(NamedTuple):
    """A completion of either arm, asked alike."""

    a: Completion
    b: Completion
    is_identical: bool


def _events(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    return next((found for rule in _RULES if (found := rule(pair, draws, shown))), ())


def _of_the_request(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    """What no distribution is needed for, and with it the unlikely stretches outside of that."""
    plain = _by_the_rules(pair.a, pair.b, draws, is_identical=pair.is_identical)
    beside = shown.unlikely.get(pair.b.key, ()) if plain else ()
    return [one for one in beside if not any(rule.position <= one.position < rule.end for rule in plain)] + plain


def _of_temperature(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    b = pair.b
    found = shown.bets.event(b, draws.temperature_of(b), draws.judged_by(b), shown.unlikely.get(b.key, ()))
    if found is None or shown.before.explains(b.key, shown.bets.found[b.key].log_won):
        return ()
    asked = draws.temperature_of(b)
    if shown.bets.found[b.key].looks_like > asked and (off := _other_logprobs(pair, draws, shown)):
        why = message(
            "unsupported.other_distribution",
            "by the scores these tokens do not follow from this prompt: they look drawn too hot, and {count} of "
            "{length} of the engine's own logprobs are not the scores either, as where another request's text is "
            "returned",
            count=off,
            length=len(b.token_ids),
        )
        return (tokens_event(Kind.GARBLED, found.position, found.length, why),)
    return (found,)


def _other_logprobs(pair: Pair, draws: Draws, shown: Shown) -> int:
    """How many of a completion's own logprobs are not those of the scores, where most are not: it was drawn from
    another distribution than the one that is asked about its tokens, whatever the temperature."""
    found = (one.evidence for one in _of_logprobs(pair, draws, shown))
    count = sum(one.count for one in found if isinstance(one, LogprobEvidence))
    return count if 2 * count > len(pair.b.token_ids) else 0


def _of_likelihood(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    """Unlikely stretches, and text that is not theirs: what is beyond a cut-off and other logprobs follow from them."""
    found = shown.unlikely.get(pair.b.key, ())
    return [*found, *_of_text(pair, draws, shown)] if found else ()


def _of_step_before(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    """Unlikely stretches at these tokens are the same fault; chunks said twice, and others elsewhere, have names of
    their own."""
    found = shown.before.event(pair.b.key, draws.judged_by(pair.b))
    if found is None or not all(_lies_in(one, found) for one in shown.unlikely.get(pair.b.key, ())):
        return ()
    return (found,)


def _lies_in(stretch: Event, found: Event) -> bool:
    plain = stretch.kind in (Kind.UNJUSTIFIED, Kind.GARBLED)
    return plain and found.position <= stretch.position and stretch.end <= found.end


def _of_cutoffs(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    found = shown.beyond.found.get(pair.b.key)
    return () if found is None else (as_end(found, pair.b, draws.rules.of(pair.b).terminators),)


def _of_logprobs(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    """Logprobs that are not those of the scores."""
    b = pair.b
    if b.key not in draws.scored or draws.distribution(b) is None:
        return ()
    noise = logprobs.noise_of(draws.reference)
    alone = logprobs.ALONE_AMONG_DRAWN
    found = logprobs.logprob_mismatch(b, draws.scored[b.key][0], len(b.token_ids), noise=noise, alone=alone)
    return () if found is None else (found,)


def _own_logprobs(draws: Draws, corrupt: frozenset[Key], known: Set[Key]) -> dict[Key, Message]:
    """Completions of the baseline whose own logprobs are not those of their tokens, beside those `known` to be wrong.
    What is usual, the candidate's completions say that are not `corrupt`."""
    looked_at = [one for one in draws.baseline if one.key not in known and not draws.reference.shaping(one).unknown]
    scored = draws.reference.all_gaps(draws.baseline.header.arm, looked_at)

    @cache
    def noise() -> OwnNoise | None:  # asked where something is off
        mine = ((one, draws.scored[one.key][0]) for one in draws.candidate if one.key in draws.scored)
        return noise_of((one, gaps) for one, gaps in mine if one.key not in corrupt)

    return logprobs.unlike_the_others([(one, scored[one.key][0]) for one in looked_at if one.key in scored], noise)


def _of_text(pair: Pair, draws: Draws, shown: Shown) -> Sequence[Event]:
    """Text that is not that of the tokens."""
    if draws.writer.render is None or draws.writer.requests.of(pair.b).shapes_text:
        return ()
    found = wording.text_mismatch(pair.b, draws.writer)
    return () if found is None else (found,)


_RULES: Final = (_of_the_request, _of_temperature, _of_step_before, _of_likelihood, _of_cutoffs, _of_logprobs, _of_text)


def _by_the_rules(a: Completion, b: Completion, draws: Draws, *, is_identical: bool) -> list[Event]:
    """What no distribution is needed for: rules of the request, ids, ends, lists that are none."""
    events = list(draws.broken.candidate.get(b.key, ()))
    kinds = {event.kind for event in events}
    events += invalid_tokens.invalid_tokens(b.token_ids, draws.vocab_size)
    past = None if is_identical else stops.overrun(b, draws.rules)
    if past is not None and Kind.OVERRUN not in kinds:
        events.append(past)
    why = stops.unexplained_end(b, draws.rules)
    if why is not None and Kind.EARLY_STOP not in kinds and stops.unexplained_end(a, draws.rules) is None:
        events.append(Event(Kind.EARLY_STOP, len(b.token_ids), 0, EndEvidence(why=why)))
    broken = false_lists(b)
    return events if broken is None else [*events, broken]


def _ends_of_baseline(pairs: Pairs, draws: Draws) -> dict[Key, Message]:
    """Completions of the baseline alone that end where nothing explains it; what most of them do is its habit."""
    sides = zip(pairs.baseline, pairs.candidate, pairs.same_prompt.tolist(), strict=True)
    found = {
        a.key: why
        for a, b, same_prompt in sides
        if same_prompt
        and (why := stops.unexplained_end(a, draws.rules)) is not None
        and stops.unexplained_end(b, draws.rules) is None
    }
    return found if 2 * len(found) <= len(pairs.keys) else {}


def _seen(draws: Draws, shown: Shown, drawn: Sequence[Completion]) -> dict[str, float]:
    """The share of hits that would be found, by fault."""
    return {
        "random_tokens": random_tokens_seen(drawn, draws),
        "early_end": early_ends_seen(drawn, draws),
        "greedy": shown.bets.greedy_seen * shown.bets.completions / len(drawn) if drawn else 0.0,
        "step_before": shown.before.seen * shown.before.completions / len(drawn) if drawn else 0.0,
        **_of_cut(shown.beyond, len(drawn)),
    }


def _of_cut(found: Cutoffs, drawn: int) -> dict[str, float]:
    """Nothing where no request cuts anything off, or nothing was compared."""
    return {"no_cutoff": found.would_be_seen() * found.completions / drawn} if found.completions and drawn else {}


def _whose(found: list[Finding], crossed: Crossed, draws: Draws) -> tuple[NextStep, ...]:
    """Where nothing says whose unlikely tokens are, or whether completions were exchanged, and nobody was asked, what
    would."""
    prompts = {one.prompt_token_ids.tobytes() for one in draws.candidate}
    asked = any(one.arm == draws.candidate.header.arm for one in crossed)
    if asked or len(prompts) < 2:
        return ()
    if crossings.suspicious(draws.candidate, found):
        return (NextStep(Step.DONORS, ""),)
    scored = (one for one in draws.candidate if one.key in draws.scored)
    silent = islice((one for one in scored if crossings.may_be_strange(draws.candidate, one)), 2)
    return (NextStep(Step.DONORS, EXCHANGED),) if len(list(silent)) == 2 else ()
