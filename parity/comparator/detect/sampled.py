"""Findings for a run with random sampling: each completion against the reference, and the run's tests."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from parity.comparator.detect import findings, invalid_tokens, logprobs, stops, texts
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.pairs import Judged
from parity.comparator.detect.row_leaks import leaked, query_of
from parity.comparator.detect.structure import GARBLED_TOKENS
from parity.comparator.detect.trust import trusted_detokenizer
from parity.comparator.inputs.questions import temperature as temperature_of
from parity.comparator.population import sampled
from parity.comparator.reference.gaps import PENALTY_REACH, TokenGaps
from parity.comparator.reference.scores import Reference
from parity.comparator.stats import SamplingStats
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions, run_finding
from parity.messages import message
from parity.records import Capture, Completion, Finding, Key, Kind, TopLogprobs
from parity.records.evidence import EndEvidence, JudgedBy, RunEvidence

_RUN_KINDS = {
    "likelihood": Kind.UNJUSTIFIED,
    "surprisal": Kind.UNJUSTIFIED,
    "length": Kind.EARLY_STOP,
    "finish_reason": Kind.EARLY_STOP,
    "loops": Kind.REPETITION,
    "wording": Kind.UNJUSTIFIED,
}


def judge_sampled(
    baseline: Capture,
    candidate: Capture,
    pairs: Pairs,
    reference: Reference,
    options: CompareOptions,
    *,
    drops_eos: bool = False,
) -> tuple[Judged, SamplingStats]:
    """Judge every candidate completion by its likelihood, and the run by two-sample tests."""
    judged, arms = Judged(), (baseline, candidate)
    rules = stops.stop_rules(candidate.header, baseline)
    if drops_eos:
        rules = replace(rules, keeps_terminator=False)
    detokenize = trusted_detokenizer(options, baseline)
    vocab_size = candidate.header.vocab_size or baseline.header.vocab_size
    temperature = temperature_of(candidate) or temperature_of(baseline)
    scored = reference.all_gaps(candidate.header.arm, list(candidate))
    judged.gaps.update((key, gaps) for key, (gaps, _) in scored.items())
    baseline_scored = reference.all_gaps(baseline.header.arm, list(baseline))
    windows = sum(len(one.token_ids) for one in candidate) * len(sampled.WINDOWS)
    slack = sampled.SLACK
    if any(reference.shaping(one).penalises for one in candidate):
        slack += PENALTY_REACH / temperature  # a penalty on the likely tokens makes others likelier by that much
    lists = [one for one in baseline if one.logprobs is not None]
    raw = candidate.header.engine.get("logprobs_mode") == "raw_logprobs"
    lists_speak = (raw or bool(lists)) and not any(
        sampled.find_unlikely(
            sampled.tail_logs(one.logprobs, one.token_ids, temperature, vocab_size), windows, sampled.HABIT, slack
        )
        for one in lists
        if one.logprobs is not None
    )
    spans: list[tuple[Completion, Event]] = []
    for row, key in enumerate(pairs.keys):
        b = pairs.candidate[row]
        judged.classes[key] = "sampled"
        if not pairs.same_prompt[row]:
            judged.findings.append(findings.input_mismatch(arms, pairs.baseline[row], b))
            judged.classes[key] = "corrupt"
            continue
        events = invalid_tokens.invalid_tokens(b.token_ids, vocab_size)
        past = None if pairs.identical[row] else stops.overrun(b, rules)
        if past is not None:
            events.append(past)
        why = stops.unexplained_end(b, rules)
        if why is not None and stops.unexplained_end(pairs.baseline[row], rules) is None:
            events.append(Event(Kind.EARLY_STOP, len(b.token_ids), 0, EndEvidence(why=why)))
        broken = logprobs.broken_logprobs(b) or logprobs.unlisted_logprobs(b)
        if broken is not None:
            events.append(broken)
        top = scored[key][1] if key in scored else (b.logprobs if lists_speak and broken is None else None)
        top = None if reference.shaping(b).unknown else top
        if top is not None:
            logs = sampled.tail_logs(top, b.token_ids, temperature, vocab_size)
            stretches = sampled.find_unlikely(logs, windows, options.alpha, slack)
            for stretch in stretches:
                judged_by = JudgedBy.SCORES if key in scored else JudgedBy.OWN_LIST
                event = _unlikely_event(b, stretch, rules).but(judged_by=judged_by)
                if all(not (one.position <= event.position < one.end) for one in events):
                    spans.append((b, event))
            if key in scored and not events and not stretches:
                mismatch = logprobs.logprob_mismatch(b, scored[key][0], len(b.token_ids))
                if mismatch is not None:
                    events.append(mismatch)
        if detokenize is not None and not events:
            text = texts.text_mismatch(b, detokenize, cut_short=rules.has_stop_strings)
            if text is not None:
                events.append(text)
        judged.findings.extend(_finding(arms, b, event) for event in events)
    named = _with_leaks(baseline, candidate, pairs, spans)
    judged.findings.extend(_finding(arms, b, event) for b, event in named)
    for finding in judged.findings:
        judged.classes[finding.key] = "corrupt"
    whole = [(a, b) for a, b in zip(pairs.baseline, pairs.candidate, strict=True) if not (a.aborted or b.aborted)]

    def surprisals(arm: list[Completion], views: dict[Key, tuple[TokenGaps, TopLogprobs]]) -> list[float]:
        known = [(one, views[one.key][1]) for one in arm if one.key in views]
        return [
            sampled.mean_surprisal(sampled.tail_logs(top, one.token_ids, temperature, vocab_size)) for one, top in known
        ]

    tests = sampled.run_tests(
        [a for a, _ in whole],
        [b for _, b in whole],
        {key: view for key, (view, _) in baseline_scored.items()},
        {key: view for key, (view, _) in scored.items()},
        (surprisals([a for a, _ in whole], baseline_scored), surprisals([b for _, b in whole], scored)),
        temperature=temperature,
    )
    failed = tuple(sorted(name for name, p_value in tests.adjusted.items() if p_value < options.alpha))
    tests = msgspec.structs.replace(tests, failed=failed)
    for name, p_value in tests.adjusted.items():
        if name in failed:
            why = message(
                "run.test",
                "the {test} of the candidate's samples differs from the baseline's "
                "(p = {p_value:.2g} after adjustment)",
                test=name.replace("_", " "),
                p_value=p_value,
            )
            evidence = RunEvidence(why=why, test=name, p_value=p_value)
            judged.findings.append(run_finding(candidate.header.arm, baseline.header.arm, _RUN_KINDS[name], evidence))
    return judged, tests


def _unlikely_event(b: Completion, stretch: sampled.Unlikely, rules: stops.StopRules) -> Event:
    last = len(b.token_ids) - 1
    if stretch.position == last and int(b.token_ids[last]) in rules.terminators:
        why = message("early_stop.unlikely", "ends here, which the reference holds for next to impossible")
        return Event(Kind.EARLY_STOP, stretch.position, 1, EndEvidence(why=why, p_value=stretch.p_value))
    why = message(
        "unlikely.why",
        "the reference's distribution does not explain these {count} tokens",
        count=stretch.length,
    )
    kind = Kind.GARBLED if stretch.length >= GARBLED_TOKENS else Kind.UNJUSTIFIED
    return tokens_event(kind, stretch.position, stretch.length, why, p_value=stretch.p_value)


def _with_leaks(
    baseline: Capture, candidate: Capture, pairs: Pairs, spans: list[tuple[Completion, Event]]
) -> list[tuple[Completion, Event]]:
    """The spans, as row leaks where another request has their tokens."""
    if not spans:
        return []
    queries = [query_of(b.key.request, b.token_ids, event, None) for b, event in spans]
    found = Donors(baseline, candidate, pairs).search(queries)
    return [
        (b, leaked(event, leak, b.token_ids) if leak is not None and leak.covers(event.position) else event)
        for (b, event), leak in zip(spans, found, strict=True)
    ]


def _finding(arms: tuple[Capture, Capture], b: Completion, event: Event) -> Finding:
    return findings.finding(arms, b.key, event.kind, event.evidence, event.position, event.length)
