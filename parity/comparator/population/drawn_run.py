"""The tests over all that was drawn at random in a run, and what they find."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as replaced
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from parity.comparator.detect import drawn_places
from parity.comparator.detect.draft_acceptance import Accepted, accepted_drafts, unchecked_seen
from parity.comparator.detect.drawn_places import OddPlace
from parity.comparator.detect.pairs import Judged
from parity.comparator.detect.temperatures import HEAVY, TESTS
from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.servers import text_alone
from parity.comparator.population import drawn_findings, missed, mixtures, sampled
from parity.comparator.population.drawn import LIKELY, Drawn, in_words, test_draws
from parity.comparator.population.drawn_ends import EndsSeen, ends_seen
from parity.comparator.population.whose import of_either
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.references import References
from parity.comparator.shared_out import of_each
from parity.comparator.stats import DraftsOff, Numerics, SamplingStats, WaySeen
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions, run_finding
from parity.messages import Message, message
from parity.records import Capture, Completion, Finding, Key, Kind, TokenIds, words
from parity.records.evidence import RunEvidence


class _Odd(Struct, frozen=True):
    """What is oddest about the draws and the drafts of a run."""

    draws: Drawn | None = None
    accepted: Accepted | None = None
    mixed: mixtures.Mixed | None = None


_KINDS_OF_TESTS: Mapping[str, Kind] = {
    "likelihood": Kind.UNJUSTIFIED,
    "surprisal": Kind.UNJUSTIFIED,
    "length": Kind.EARLY_STOP,
    "finish_reason": Kind.EARLY_STOP,
    "loops": Kind.REPETITION,
    "wording": Kind.UNJUSTIFIED,
}


def tested(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    judged: Judged,
    found: Numerics | None,
    options: CompareOptions,
) -> tuple[SamplingStats, tuple[Finding, ...], tuple[EndsSeen, ...]]:
    """(the tests, what failed of them, what those of ends would have seen); `inputs` and `pairs` are of what was drawn
    at random alone."""
    alpha, left_out = options.alpha, judged.draws.not_counted | judged.broken.baseline.keys()
    whole = [
        (a, b)
        for a, b in zip(pairs.baseline, pairs.candidate, strict=True)
        if not (a.aborted or b.aborted or b.key in left_out)
    ]
    room = _room(inputs)
    baseline, candidate = (_within(room, arm) for arm in ([a for a, _ in whole], [b for _, b in whole]))
    ends = inputs.ends_of_one_arm

    def looked_at(arm: Capture, completions: Sequence[Completion]) -> list[drawn_findings.Surprisals]:
        def of(one: Completion) -> drawn_findings.Surprisals | None:
            top = references.lookup.score(arm.header.arm, one)
            return None if top is None else drawn_findings.surprisals_of(one, _said(one, ends), top, inputs, references)

        return [one for one in of_each(completions, of, options.spread) if one is not None]

    surprisals = looked_at(inputs.baseline, baseline), looked_at(inputs.candidate, candidate)
    rounding = sampled.allowed_for_rounding(found, inputs.temperature)
    accepted = accepted_drafts(judged.proposed, rounding)
    odd, seen = test_draws(
        judged.draws.without(left_out),
        {one.key: one for one in candidate},
        inputs.temperature,
        rounding,
        HEAVY * alpha / TESTS,
    )
    mixed = None if judged.odds is None else mixtures.test_mixtures(judged.odds, rounding)
    tests = sampled.run_tests(
        [replaced(one, token_ids=_said(one, ends)) for one in baseline] if ends else baseline,
        [replaced(one, token_ids=_said(one, ends)) for one in candidate] if ends else candidate,
        _views(inputs.baseline, {key: gaps for key, (gaps, _) in references.baseline.items()}, left_out, ends),
        _views(inputs.candidate, judged.gaps, left_out, ends),
        ([one.mean for one in surprisals[0]], [one.mean for one in surprisals[1]]),
        places=judged.places,
        accepted=accepted,
        draws=odd,
        draws_seen=seen,
        mixed=mixed,
        baseline_draws_at=_baseline_at(judged, odd),
        draws_of_either=odd is not None and odd.of_either and odd.p_value < HEAVY * alpha / TESTS,
        temperature=inputs.temperature,
        rounding=rounding,
        noise_shared_by=judged.draws.noise_shared_by or _alike_alone(inputs, judged),
        own_ids=not any(text_alone(arm.header) for arm in inputs.given),
        names_tell=not any(text_alone(arm.header) and len(arm.finish_reasons) == 1 for arm in inputs.given),
    )
    failed = sorted(name for name, p_value in tests.adjusted.items() if p_value < alpha)
    one_seed = inputs.one_seed_for if failed and not judged.draws.apart else ()
    unchecked = unchecked_seen(judged.proposed, rounding, alpha / TESTS) if not failed else None
    tests = replace(
        tests,
        failed=tuple(failed),
        of_either=tuple(failed) if one_seed else of_either(tests, failed, judged, pairs),
        one_seed_for=one_seed,
        baseline_drafts=_off(accepted_drafts(judged.baseline_proposed, rounding), alpha / TESTS),
        unchecked_drafts_seen=unchecked,
        ways_seen=_ways_seen(judged, rounding, HEAVY * alpha / TESTS)
        if "mixture" in tests.p_values and not failed
        else (),
    )
    found_of_run = (
        *drawn_findings.same_numbers(inputs, judged),
        *drawn_findings.beyond_cutoff(inputs, judged, found),
        *(() if failed else drawn_findings.leaning(inputs, references, judged)),
        *drawn_findings.rare(inputs, judged, surprisals),
        *_findings(inputs, tests, judged, _Odd(odd, accepted, mixed)),
    )
    return tests, found_of_run, _ends_seen(inputs, baseline, candidate, tests, alpha / TESTS)


def _off(found: Accepted | None, level: float) -> DraftsOff | None:
    """Drafts of the baseline that are not accepted at their probability."""
    return None if found is None or found.p_value >= level else DraftsOff(**structs.asdict(found))


def _ends_seen(
    inputs: Inputs, baseline: Sequence[Completion], candidate: Sequence[Completion], tests: SamplingStats, level: float
) -> tuple[EndsSeen, ...]:
    """By the tests that were made; of finish reasons where there are two: among more it sees less."""
    asked = inputs.candidate.header.sampling.get("max_tokens")
    ends = terminators(inputs.baseline.header)

    def stopped(one: Completion) -> bool:
        return one.finish_reason == "stop" or (len(one.token_ids) > 0 and int(one.token_ids[-1]) in ends)

    def limit(one: Completion) -> int | None:
        return one.max_tokens or (asked if isinstance(asked, int) else None)

    return ends_seen(
        baseline,
        len(candidate),
        stopped,
        limit,
        level,
        missed.USEFUL,
        by_length="length" in tests.p_values,
        by_reason="finish_reason" in tests.p_values and len(tests.finish_reasons) == 2,
    )


def _room(inputs: Inputs) -> int | None:
    """Tokens of the shorter context, with the prompt; None where nothing says that one is shorter."""
    known: list[Any] = [arm.header.engine.get("max_model_len") for arm in (inputs.baseline, inputs.candidate)]
    sizes = [one for one in known if isinstance(one, int)]
    return min(sizes) if sizes and known[0] != known[1] else None


def _within(room: int | None, completions: list[Completion]) -> list[Completion]:
    """As far as both arms could go: what is drawn in a longer context ends later for that alone."""
    if room is None:
        return completions
    return [_ended_at(room - len(one.prompt_token_ids), one) for one in completions]


def _ended_at(size: int, one: Completion) -> Completion:
    if len(one.token_ids) <= max(0, size):
        return one
    return replaced(one, token_ids=one.token_ids[: max(0, size)], finish_reason="length")


def _ways_seen(judged: Judged, rounding: float, alpha: float) -> tuple[WaySeen, ...]:
    return () if judged.odds is None else mixtures.ways_seen(judged.odds, rounding, alpha)


def _alike_alone(inputs: Inputs, judged: Judged) -> tuple[str, ...]:
    return () if judged.draws.candidate_alone is None else (inputs.candidate.header.arm,)


def _said(one: Completion, ends: frozenset[int]) -> TokenIds:
    """Its tokens, without one of `ends` at the end."""
    tokens = one.token_ids
    return tokens[:-1] if ends and len(tokens) and int(tokens[-1]) in ends else tokens


def _views(
    arm: Capture, gaps: Mapping[Key, TokenGaps], left_out: Collection[Key], ends: frozenset[int]
) -> dict[Key, TokenGaps]:
    """Those of the completions that count, of the tokens that are `_said`."""
    known = {key: one for key, one in gaps.items() if key in arm.completions and key not in left_out}
    return {key: one.first(len(_said(arm.completions[key], ends))) for key, one in known.items()} if ends else known


def _baseline_at(judged: Judged, odd: Drawn | None) -> float | None:
    """Times the temperature asked for, that the baseline draws at, where the scores do not explain it, or where it is
    the baseline that makes the arms differ."""
    if judged.baseline_draws_at is not None or odd is None or odd.p_value > LIKELY:
        return judged.baseline_draws_at
    return odd.baseline_at


def _findings(inputs: Inputs, tests: SamplingStats, judged: Judged, odd: _Odd) -> tuple[Finding, ...]:
    arms = inputs.candidate.header.arm, inputs.baseline.header.arm
    found = []
    accusing = set(tests.failed) - set(tests.of_either)
    for name in sorted(accusing, key=lambda one: (tests.adjusted[one], one)):  # what shows most explains most
        p_value, kind = tests.adjusted[name], _KINDS_OF_TESTS.get(name, Kind.UNJUSTIFIED)
        why = message(
            "run.test",
            "by their {test} the candidate's samples differ from the baseline's (p = {p_value:.2g} after adjustment)",
            test=name.replace("_", " "),
            p_value=p_value,
        )
        if name == "places" and judged.places is not None and judged.places.worst is not None:
            why, kind = _odd_place(judged.places.worst, p_value)
        if name == "drafts" and odd.accepted is not None:
            why = _not_at_their_probability(odd.accepted, p_value)
        if name == "draws" and odd.draws is not None:
            why, kind = in_words(replace(odd.draws, p_value=p_value)), _kind_of_draws(odd.draws)
        if name == "mixture" and odd.mixed is not None:
            why, kind = _mixed(odd.mixed, p_value)
        evidence = RunEvidence(why=why, test=name, p_value=p_value)
        found.append(run_finding(*arms, kind, evidence))
    return tuple(found)


def _not_at_their_probability(found: Accepted, p_value: float) -> Message:
    if found.of_few:
        return message(
            "run.drafts_of_few",
            "drafts are not accepted at their probability in {completions}; the rest alone shows nothing (p = "
            "{p_value:.2g} after adjustment)",
            completions=words.completions(found.of_few),
            p_value=p_value,
        )
    if found.too_few:
        return message(
            "run.drafts_rejected",
            "drafts are rejected more often than by their probability: of {drafts} the candidate accepted {accepted}, "
            "where at least {worth:.0f} would be due (p = {p_value:.2g} after adjustment)",
            accepted=found.accepted,
            drafts=found.drafts,
            worth=found.worth,
            p_value=p_value,
        )
    return message(
        "run.drafts",
        "drafts are accepted more often than at their probability: the candidate accepted {accepted} of "
        "{drafts}, as many as {worth:.0f} drafts would give (p = {p_value:.2g} after adjustment)",
        accepted=found.accepted,
        drafts=found.drafts,
        worth=found.worth,
        p_value=p_value,
    )


def _mixed(found: mixtures.Mixed, p_value: float) -> tuple[Message, Kind]:
    if found.of_few:
        alone = message(
            "run.mixture_of_few",
            "the tokens of {completions} are too unlikely for what was asked; the rest alone shows nothing (p = "
            "{p_value:.2g} after adjustment)",
            completions=list(map(str, found.of_few)),
            p_value=p_value,
        )
        return alone, Kind.UNJUSTIFIED
    why = message(
        "run.mixture",
        "about {share:.0%} of the candidate's {completions} completions look as if drawn otherwise than asked: {way} "
        "(p = {p_value:.2g} after adjustment)",
        share=found.share,
        completions=found.completions,
        way=mixtures.in_words(found.way.name, found.way.size),
        p_value=p_value,
    )
    return why, Kind.WRONG_TEMPERATURE if found.way.name in ("temperature", "best") else Kind.UNJUSTIFIED


def _kind_of_draws(odd: Drawn) -> Kind:
    """Tokens that are too unlikely by their ranks may be anything."""
    return Kind.WRONG_TEMPERATURE if odd.name == "likely" or odd.times < 1 else Kind.UNJUSTIFIED


def _odd_place(odd: OddPlace, p_value: float) -> tuple[Message, Kind]:
    """Tokens that are too likely were drawn colder; those that are too unlikely may be anything."""
    why = message(
        "run.places",
        "{place} of the candidate's samples ({tokens} tokens) looks as if drawn at temperature {looks}, asked for was "
        "{asked} (p = {p_value:.2g} after adjustment)",
        place=drawn_places.in_words(odd.number),
        tokens=odd.tokens,
        looks=f"{odd.looks_like:g}",
        asked=f"{odd.asked:g}",
        p_value=p_value,
    )
    return why, Kind.WRONG_TEMPERATURE if odd.looks_like < odd.asked else Kind.UNJUSTIFIED
