"""Completions that were drawn at random: what is wrong with each, by its likelihood and by the request's own rules.

The rules are asked in order; each gives events. What holds for the samples of the run as a whole is
population/sampled.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from parity.comparator.detect import crossings, findings, invalid_tokens, logprobs, stops, trials, wording
from parity.comparator.detect.cutoffs import Cutoffs, cutoffs
from parity.comparator.detect.donors import Asking, named
from parity.comparator.detect.draft_acceptance import proposed_drafts
from parity.comparator.detect.drawn_leaks import with_donors
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.pairs import Judged
from parity.comparator.detect.rules import Broken, Requested
from parity.comparator.detect.said import Writer
from parity.comparator.detect.structure import GARBLED_TOKENS
from parity.comparator.detect.temperatures import Temperatures, temperatures
from parity.comparator.detect.whole_draws import sums_of_arms
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.reference import surprisal
from parity.comparator.reference.draw_sums import own_temperature
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions
from parity.messages import message
from parity.records import Capture, Completion, Finding, Key, Kind, TopLogprobs
from parity.records.crossings import Crossed
from parity.records.evidence import EndEvidence, JudgedBy
from parity.records.next_steps import NextStep, Step

PENALTY_REACH = 5.0
"""Nats that a repetition penalty is allowed to take off a token seen before, where the logits are not recorded: one of
1.2 takes a sixth off a logit, and logits stay below 30."""


FEW_ODD, HALF_AS_MANY = 2, 0.5
"""Completions of the baseline with stretches that no sampler draws, and their number by that of the candidate's, from
which on neither arm is judged by such stretches."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The run as the rules find it."""

    baseline: Capture
    candidate: Capture
    reference: Reference
    temperature_of: Callable[[Completion], float]
    rules: stops.StopRules
    vocab_size: int | None
    scored: Mapping[Key, tuple[TokenGaps, TopLogprobs]]
    """Of the candidate's completions."""
    lists_show_draws: bool
    """The engine's own lists are what it drew from."""
    windows: int
    """Stretches looked at in the whole run."""
    alpha: float
    writer: Writer
    broken: Broken

    def distribution(self, b: Completion) -> TopLogprobs | None:
        """What a completion was drawn from: its score, else its own lists where they show that; else None."""
        if self.reference.shaping(b).unknown:
            return None
        if b.key in self.scored:
            return self.scored[b.key][1]
        return b.lists if self.lists_show_draws and _false_lists(b) is None else None


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
    draws, arms = _draws(inputs, reference, pairs, options, requested), (inputs.baseline, inputs.candidate)
    known = _known(inputs, reference, draws)
    bets, beyond = _bets(inputs, reference, draws, known), _cutoffs(inputs, reference, draws, known)
    foreign = named(Asking(crossed, draws.candidate, reference, draws.temperature_of, draws.alpha, draws.vocab_size))
    listed = [
        [(one, known[one.key]) for one in inputs.baseline if one.key in known],
        [(one, top) for one in inputs.candidate if (top := draws.distribution(one)) is not None],
    ]
    asked = draws.temperature_of
    sums, own = sums_of_arms(
        (bets.of_baseline, bets.drawn), listed, (inputs.baseline, inputs.candidate), reference, asked
    )
    draws_at = own_temperature(own, inputs.temperature)
    stretches = {one.key: made for one in pairs.candidate if (made := _unlikely(one, draws))}
    contradicted = _unlikely_too(len(stretches), inputs.baseline, known, draws) if stretches else []
    found: list[Finding] = []
    events: list[tuple[Completion, Event]] = []
    for row, (a, b) in enumerate(zip(pairs.baseline, pairs.candidate, strict=True)):
        if not pairs.same_prompt[row]:
            found.append(findings.input_mismatch(arms, a, b))
            continue
        plain = _by_the_rules(a, b, draws, is_identical=bool(pairs.identical[row]))
        unlikely = [] if contradicted or draws_at is not None else stretches.get(b.key, [])
        warmth = None if plain else bets.event(b, draws.temperature_of(b), _judged_by(b, draws), unlikely)
        if warmth is not None:
            events.append((b, warmth))
            continue
        inside = [one for one in unlikely if not any(rule.position <= one.position < rule.end for rule in plain)]
        cut_off = beyond.found.get(b.key) if not unlikely else None
        claims = plain or ([cut_off] if cut_off else _by_its_claims(b, draws, is_likely=not unlikely))
        events += [(b, one) for one in (*inside, *claims)]
    events = with_donors(events, donors, foreign, draws.candidate)
    found += [_finding(arms, b, event) for b, event in events]
    corrupt = frozenset(finding.key for finding in found)
    return Judged(
        findings=found,
        classes={key: "corrupt" if key in corrupt else "sampled" for key in pairs.keys},
        gaps={key: gaps for key, (gaps, _) in draws.scored.items()},
        contradicted=contradicted,
        notes=[*bets.notes, *beyond.notes],
        seen=_seen(draws, bets, pairs.candidate) if not corrupt else {},
        places=bets.by_place(corrupt | sums.not_counted, draws.alpha),
        proposed=proposed_drafts(inputs.candidate, bets.drawn, corrupt | sums.not_counted, draws.distribution),
        draws=sums.without(corrupt),
        baseline_draws_at=draws_at,
        next_steps=_whose(found, crossed, draws),
    )


def _known(inputs: Inputs, reference: Reference, draws: Draws) -> dict[Key, TopLogprobs]:
    """What the baseline's completions were drawn from."""
    own = {one.key: one.lists for one in inputs.baseline if one.lists is not None} if draws.lists_show_draws else {}
    scored = {
        key: top for key, (_, top) in reference.all_gaps(inputs.baseline.header.arm, list(inputs.baseline)).items()
    }
    return {**own, **scored}


def _bets(inputs: Inputs, reference: Reference, draws: Draws, known: Mapping[Key, TopLogprobs]) -> Temperatures:
    """The bets on the temperature of each completion of the candidate."""
    drawn = ((one, draws.distribution(one)) for one in inputs.candidate)
    return temperatures(
        ((one, known[one.key]) for one in inputs.baseline if one.key in known),
        ((one, top) for one, top in drawn if top is not None),
        (inputs.baseline, inputs.candidate),
        reference,
        draws.temperature_of,
        draws.alpha,
        draws.vocab_size,
    )


def _cutoffs(inputs: Inputs, reference: Reference, draws: Draws, known: Mapping[Key, TopLogprobs]) -> Cutoffs:
    drawn = ((one, draws.distribution(one)) for one in inputs.candidate)
    return cutoffs(
        ((one, known[one.key]) for one in inputs.baseline if one.key in known),
        ((one, top, _judged_by(one, draws)) for one, top in drawn if top is not None),
        (inputs.baseline, inputs.candidate),
        reference,
        draws.temperature_of,
        draws.vocab_size,
    )


def _judged_by(b: Completion, draws: Draws) -> JudgedBy:
    return JudgedBy.SCORES if b.key in draws.scored else JudgedBy.OWN_LIST


def _draws(inputs: Inputs, reference: Reference, pairs: Pairs, options: CompareOptions, requested: Requested) -> Draws:
    baseline, candidate = inputs.baseline, inputs.candidate
    rules = stops.stop_rules(candidate.header, baseline)
    windows = len(candidate.tokens.flat) * len(surprisal.WINDOWS)
    vocab_size = candidate.header.vocab_size or baseline.header.vocab_size
    return Draws(
        baseline=baseline,
        candidate=candidate,
        reference=reference,
        temperature_of=inputs.temperature_of,
        rules=replace(rules, keeps_terminator=False) if inputs.candidate_drops_eos else rules,
        vocab_size=vocab_size,
        scored=reference.all_gaps(candidate.header.arm, list(candidate)),
        lists_show_draws=_lists_show_draws(inputs, reference, windows, vocab_size),
        windows=windows,
        alpha=options.alpha,
        writer=requested.writer,
        broken=requested.broken,
    )


def _lists_show_draws(inputs: Inputs, reference: Reference, windows: int, vocab_size: int | None) -> bool:
    """Are the engines' own lists what they drew from? The baseline's tokens are likely by its own, then."""
    lists = [(one, one.lists) for one in inputs.baseline if one.lists is not None]
    raw = inputs.candidate.header.engine.get("logprobs_mode") == "raw_logprobs"

    def is_unlikely(one: Completion, top: TopLogprobs) -> bool:
        logs, slack = _tail_logs(one, top, reference, inputs.temperature_of(one), vocab_size)
        return bool(surprisal.find_unlikely(logs, windows, surprisal.HABIT, slack))

    return (raw or bool(lists)) and not any(is_unlikely(one, top) for one, top in lists)


def _tail_logs(
    one: Completion, top: TopLogprobs, reference: Reference, temperature: float, vocab_size: int | None
) -> tuple[FloatArray, float]:
    """(`surprisal.tail_logs` under the request's penalties, nats of slack for each token). Where the lists do not show
    exactly what a penalty leaves of them, the slack allows for it: on the likely tokens it makes others likelier by as
    much."""
    penalised = reference.shaping(one).penalised(one)
    if penalised is None or surprisal.shows_penalties(top, penalised):
        return surprisal.tail_logs(top, one.token_ids, temperature, vocab_size, penalised), surprisal.SLACK
    logs = surprisal.tail_logs(top, one.token_ids, temperature, vocab_size)
    return logs, surprisal.SLACK + PENALTY_REACH / temperature


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
    broken = _false_lists(b)
    return events if broken is None else [*events, broken]


def _by_its_claims(b: Completion, draws: Draws, *, is_likely: bool) -> list[Event]:
    """Logprobs that are not those of the scores, text that is not that of the tokens."""
    if is_likely and b.key in draws.scored and draws.distribution(b) is not None:
        noise = logprobs.noise_of(draws.reference)
        mismatch = logprobs.logprob_mismatch(b, draws.scored[b.key][0], len(b.token_ids), noise=noise)
        if mismatch is not None:
            return [mismatch]
    if draws.writer.render is None or draws.writer.requests.of(b).shapes_text:
        return []
    text = wording.text_mismatch(b, draws.writer)
    return [] if text is None else [text]


def _false_lists(b: Completion) -> Event | None:
    return logprobs.broken_logprobs(b) or logprobs.unlisted_logprobs(b)


def _unlikely(b: Completion, draws: Draws) -> list[Event]:
    """Stretches that the distribution does not explain."""
    top = draws.distribution(b)
    if top is None:
        return []
    return [
        _unlikely_event(b, stretch, draws.rules).but(judged_by=_judged_by(b, draws))
        for stretch in _stretches(b, top, draws)
    ]


def _unlikely_too(count: int, baseline: Capture, known: Mapping[Key, TopLogprobs], draws: Draws) -> list[Key]:
    """The baseline's own completions with tokens that no sampler draws; [] where they are few beside those of the
    candidate, `count`. Where both arms show it, the reference does not say what they were drawn from."""
    drawn = (one for one in baseline if one.key in known and not draws.reference.shaping(one).unknown)
    odd = [one.key for one in drawn if _stretches(one, known[one.key], draws)]
    return odd if len(odd) >= max(FEW_ODD, count * HALF_AS_MANY) else []


def _stretches(b: Completion, top: TopLogprobs, draws: Draws) -> list[surprisal.Unlikely]:
    logs, slack = _tail_logs(b, top, draws.reference, draws.temperature_of(b), draws.vocab_size)
    return surprisal.find_unlikely(logs, draws.windows, draws.alpha, slack)


def _seen(draws: Draws, bets: Temperatures, drawn: Sequence[Completion]) -> dict[str, float]:
    """The share of hits that would be found, by fault."""
    return {
        "random_tokens": trials.random_tokens_seen(
            drawn, draws.distribution, lambda one, top: bool(_stretches(one, top, draws)), draws.vocab_size
        ),
        "greedy": bets.greedy_seen * bets.completions / len(drawn) if drawn else 0.0,
    }


def _unlikely_event(b: Completion, stretch: surprisal.Unlikely, rules: stops.StopRules) -> Event:
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


def _whose(found: list[Finding], crossed: Crossed, draws: Draws) -> tuple[NextStep, ...]:
    """Where nothing says whose unlikely tokens are, and nobody was asked, what would."""
    prompts = {one.prompt_token_ids.tobytes() for one in draws.candidate}
    if crossed or len(prompts) < 2 or not crossings.suspicious(draws.candidate, found):
        return ()
    return (NextStep(Step.DONORS, ""),)


def _finding(arms: tuple[Capture, Capture], b: Completion, event: Event) -> Finding:
    return findings.finding(arms, b.key, event.kind, event.evidence, event.position, event.length)
