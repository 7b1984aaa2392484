"""All pairs of a greedy run: what is wrong with each candidate completion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from parity.compare import integrity, stops
from parity.compare.columns import Pairs
from parity.compare.greedy import Walk, moved_beyond_doubt, walk
from parity.compare.justify import BoolArray, Opinion, gap_of_other
from parity.compare.leak import SPEAKING, Donors, Leak, Query
from parity.compare.reference import Reference, first_divergence_opinion, own_logprobs, penalised_tokens
from parity.compare.structure import Event
from parity.compare.types import CompareOptions, CompletionClass
from parity.records import Capture, Completion, Finding, Json, Key, Kind, Severity

CONTRADICTION = 0.25
"""Nats beyond the tolerance by which the reference must reject the baseline's own token to be taken as a
contradiction: the baseline chose it, with the noise of one more kernel."""

AFTER_GARBLE = 8
"""Tokens between the last fault and an end of the stream that still belong together."""


@dataclass(slots=True)
class Judged:
    """What was found in all pairs."""

    findings: list[Finding] = field(default_factory=list)
    classes: dict[Key, CompletionClass] = field(default_factory=dict)
    opinions: dict[Key, Opinion] = field(default_factory=dict)
    """Full scores of candidate completions that differ from the baseline's."""
    limited: dict[Key, int] = field(default_factory=dict)
    """Completions on which the reference has no say from this position on."""
    contradicted: list[Key] = field(default_factory=list)
    """Completions whose score rejects the baseline's own token where the two part."""


@dataclass(slots=True)
class _Case:
    """One pair on its way to findings."""

    a: Completion
    b: Completion
    walked: Walk
    view: Opinion | None
    events: list[Event]
    from_scores: bool


class PairJudge:
    """Judges greedy pairs one after the other; `finish` looks for leaks over all of them at once."""

    def __init__(
        self,
        baseline: Capture,
        candidate: Capture,
        reference: Reference,
        options: CompareOptions,
        tolerance: float,
    ) -> None:
        self._baseline, self._candidate = baseline, candidate
        self._reference, self._options, self._tolerance = reference, options, tolerance
        self._rules = stops.stop_rules(candidate.header, baseline)
        self._vocab_size = candidate.header.vocab_size or baseline.header.vocab_size
        self._plain = all(
            penalised_tokens(capture.header.sampling, completion) is None
            for capture in (baseline, candidate)
            for completion in list(capture)[:1]
        )
        self._detokenize = _trusted_detokenizer(options, baseline)
        self.result = Judged()
        self._cases: list[_Case] = []

    @property
    def checks_text(self) -> bool:
        return self._detokenize is not None

    def judge(self, pairs: Pairs) -> Judged:
        """Findings for every pair with the same prompt."""
        self.result.classes = dict.fromkeys(pairs.keys, "identical")
        invalid = self._invalid_rows(pairs)
        plain = pairs.identical & pairs.same_prompt
        for row in np.flatnonzero(~plain).tolist():
            a, b = pairs.baseline[row], pairs.candidate[row]
            if pairs.same_prompt[row]:
                self._differing(a, b)
            else:
                self.result.classes[b.key] = "corrupt"
                self.result.findings.append(self._input_mismatch(a, b))
        for row, (a, b) in enumerate(zip(pairs.baseline, pairs.candidate, strict=True)):
            if (
                a.finish_reason != b.finish_reason or a.text != b.text or b.logprobs is not None or row in invalid
            ) and plain[row]:
                self._identical(a, b, is_invalid=row in invalid)
        self._finish(pairs)
        return self.result

    def _invalid_rows(self, pairs: Pairs) -> set[int]:
        """Completions with a token id outside the vocabulary; counts even where both arms agree."""
        tokens = pairs.candidate_tokens
        limit = self._vocab_size if self._vocab_size is not None else integrity.INT32_MAX
        # Seen as unsigned, a negative id is larger than any limit: one pass over the tokens.
        if not len(tokens.flat) or int(tokens.flat.view(np.uint64).max()) < limit:
            return set()
        return set(tokens.rows_with(tokens.flat.view(np.uint64) >= limit))

    # ------------------------------------------------------------------ one pair

    def _identical(self, a: Completion, b: Completion, *, is_invalid: bool) -> None:
        events: list[Event] = []
        if is_invalid:
            events += integrity.invalid_tokens(b.token_ids, self._vocab_size)
        if a.finish_reason != b.finish_reason:
            events += self._changed_reason(a, b)
        if a.text != b.text:
            events += self._text(a, b)
        if b.logprobs is not None:
            view = self._own_reference(a, b)
            mismatch = integrity.logprob_mismatch(b, view, len(b.token_ids))
            if mismatch is not None:
                events.append(mismatch)
        self.result.classes[b.key] = "corrupt" if events else "identical"
        self.result.findings += [self._finding(b, event) for event in events]

    def _own_reference(self, a: Completion, b: Completion) -> Opinion | None:
        """For equal streams: the score of either, else the baseline's own logprobs."""
        for arm, completion in ((self._candidate.header.arm, b), (self._baseline.header.arm, a)):
            view = self._reference.opinion(arm, completion)
            if view is not None:
                return view
        return own_logprobs(a)

    def _changed_reason(self, a: Completion, b: Completion) -> list[Event]:
        evidence: dict[str, Json] = {
            "why": f"finish_reason {b.finish_reason!r} where the baseline, with the same tokens, "
            f"has {a.finish_reason!r}",
            "finish_reason": b.finish_reason,
            "baseline_finish_reason": a.finish_reason,
        }
        if a.finish_reason is None or b.finish_reason is None:
            return []
        return [Event(Kind.EARLY_STOP, len(b.token_ids), 0, evidence)]

    def _text(self, a: Completion, b: Completion) -> list[Event]:
        if self._detokenize is not None:
            event = integrity.text_mismatch(b, self._detokenize)
            return [] if event is None else [event]
        if b.text is None or a.text is None or not np.array_equal(a.token_ids, b.token_ids):
            return []
        at = next((n for n, (x, y) in enumerate(zip(a.text, b.text, strict=False)) if x != y), None)
        at = min(len(a.text), len(b.text)) if at is None else at
        evidence: dict[str, Json] = {
            "why": "same token ids as the baseline, another text (no tokenizer at hand to say which is right)",
            "character": at,
            "text": b.text[max(0, at - 20) : at + 40],
            "expected": a.text[max(0, at - 20) : at + 40],
        }
        return [Event(Kind.TEXT_MISMATCH, 0, len(b.token_ids), evidence)]

    def _differing(self, a: Completion, b: Completion) -> None:
        invalid = integrity.invalid_tokens(b.token_ids, self._vocab_size)
        past = stops.overrun(b, self._rules)
        masked_from = past.position if past is not None else None
        view = self._reference.opinion(self._candidate.header.arm, b)
        first = _first_difference(a, b)
        from_scores = view is not None
        if view is None:
            view = first_divergence_opinion(a, b, first, self._tolerance, self._candidate.header.sampling)
        unjustified = unknown = None
        best_ids = None
        if view is not None:
            unjustified, unknown = view.unjustified(self._tolerance), view.unknown(self._tolerance)
            best_ids = view.best_id
            if from_scores and self._contradicts_baseline(a, b, first):
                unjustified[first] = True
            for event in invalid:
                unjustified[event.position : event.end] = False
                unknown[event.position : event.end] = False
        walked = walk(
            a.token_ids,
            b.token_ids,
            unjustified,
            unknown,
            masked_from=masked_from,
            eos=self._rules.terminators,
            best_ids=best_ids,
        )
        events = [*walked.events, *invalid]
        if invalid and walked.unjudged_from is not None and walked.unjudged_from >= invalid[0].position:
            walked.unjudged_from = None  # nothing behind an invalid token can be scored
        events += self._end_of(a, b, walked, past, events)
        self._cases.append(_Case(a, b, walked, view, events, from_scores))
        if from_scores and view is not None:
            self.result.opinions[b.key] = view

    def _contradicts_baseline(self, a: Completion, b: Completion, first: int) -> bool:
        """The score of the candidate rejects the *baseline's* token where they part.

        Both sides saw the same text up to there and the baseline chose that token: the baseline is at fault
        there, or the score is not of these tokens. The candidate is not to blame for that, so it only permits
        what structure alone shows beyond doubt: a chunk lost or emitted again, with long agreement behind it.
        """
        if first >= min(len(a.token_ids), len(b.token_ids)) or not self._plain:
            return False
        rival = gap_of_other(self._reference.score(self._candidate.header.arm, b), first, int(a.token_ids[first]))
        if rival is None or rival[0] <= self._tolerance + CONTRADICTION:
            return False
        if moved_beyond_doubt(a.token_ids, b.token_ids, first):
            return True
        if rival[1]:
            self.result.contradicted.append(b.key)
        return False

    def _end_of(
        self, a: Completion, b: Completion, walked: Walk, past: Event | None, events: list[Event]
    ) -> list[Event]:
        """early_stop and overrun, unless chunks lost or gained before explain the length."""
        found: list[Event] = []
        shift = sum(
            event.length if event.kind is Kind.DUPLICATION else -event.length
            for event in events
            if event.kind in (Kind.DUPLICATION, Kind.OMISSION)
        )
        if past is not None:
            by_length = "max_tokens" in past.evidence
            if not (by_length and (shift >= past.length or self._stretched(walked, past))):
                found.append(past)
        why = stops.unexplained_end(b, self._rules)
        if why is not None and stops.unexplained_end(a, self._rules) is not None:
            why = None  # the baseline ends like that as well: a habit of this server
        if why is not None and any(event.kind is Kind.EARLY_STOP for event in events):
            why = None
        if why is not None and b.finish_reason == "length" and self._rules.max_tokens is not None:
            missing = self._rules.max_tokens - len(b.token_ids)
            if -shift >= missing or self._name_lost(walked, missing):
                why = None
        if why is not None:
            found.append(Event(Kind.EARLY_STOP, len(b.token_ids), 0, {"why": why}))
        elif walked.flip is None and len(b.token_ids) < len(a.token_ids) and past is None:
            found += self._prefix(a, b)
        elif self._ends_in_garble(a, b, events):
            at = len(b.token_ids) - 1
            note = "ends right after unsupported tokens, before the baseline does"
            found.append(Event(Kind.EARLY_STOP, at, 1, {"why": note}))
        if walked.flip is None and len(b.token_ids) > len(a.token_ids) and past is None and not events:
            at = len(a.token_ids)
            why = f"goes on for {len(b.token_ids) - at} tokens where the baseline ended ({a.finish_reason})"
            found.append(Event(Kind.OVERRUN, at, len(b.token_ids) - at, {"why": why}))
        return found

    def _stretched(self, walked: Walk, past: Event) -> bool:
        """Too long because tokens were gained that could not be named: keep the cause, not the length."""
        return any(
            event.kind in (Kind.ROW_LEAK, Kind.GARBLED, Kind.UNJUSTIFIED, Kind.DUPLICATION, Kind.REPETITION)
            and event.length >= past.length
            for event in walked.events
        )

    def _name_lost(self, walked: Walk, missing: int) -> bool:
        """The request asked for more tokens than came: a junction that is not supported is where they went."""
        loose = [event for event in walked.events if event.kind not in (Kind.OMISSION, Kind.EARLY_STOP)]
        if not loose or missing < 1:
            return False
        event = loose[0]
        event.evidence["why"] = (
            f"the tokens are not supported here, and {missing} tokens are missing from a completion "
            "that ended by length: they were lost here"
        )
        if event.kind in (Kind.DUPLICATION, Kind.REPETITION):
            event.evidence["ambiguous"] = f"the text repeats itself here; by its structure alone: {event.kind}"
        event.evidence["unsupported_tokens"] = event.length
        event.kind = Kind.OMISSION
        event.length = missing
        return True

    def _ends_in_garble(self, a: Completion, b: Completion, events: list[Event]) -> bool:
        if b.finish_reason != "stop" or len(b.token_ids) >= len(a.token_ids) or not events:
            return False
        if not len(b.token_ids) or int(b.token_ids[-1]) not in self._rules.terminators:
            return False
        if any(event.kind is Kind.EARLY_STOP for event in events):
            return False
        last = max(event.end for event in events)
        return len(b.token_ids) - last <= AFTER_GARBLE and any(
            event.kind in (Kind.GARBLED, Kind.UNJUSTIFIED, Kind.ROW_LEAK) for event in events
        )

    def _prefix(self, a: Completion, b: Completion) -> list[Event]:
        """The candidate is the baseline's beginning and ended there without a token that says so."""
        at = len(b.token_ids)
        top = self._reference.score(self._baseline.header.arm, a) or a.logprobs
        gaps = [gap_of_other(top, at, token) for token in sorted(self._rules.terminators)]
        known = [gap for gap in gaps if gap is not None]
        evidence: dict[str, Json] = {
            "why": f"ends here ({b.finish_reason}) where the baseline goes on for {len(a.token_ids) - at} tokens",
            "finish_reason": b.finish_reason,
        }
        if known:
            gap, exact = min(known)
            evidence["gap_of_ending_here"] = round(gap, 4)
            if exact and gap <= self._tolerance:
                self.result.findings.append(self._finding(b, Event(Kind.NEAR_TIE, at, 1, evidence), Severity.BENIGN))
                return []
        elif b.finish_reason == "stop" and not self._rules.keeps_terminator:
            return []  # undecidable: no reference for the end of the stream
        return [Event(Kind.EARLY_STOP, at, 0, evidence)]

    # ------------------------------------------------------------------ over all pairs

    def _finish(self, pairs: Pairs) -> None:
        loose = [
            (case, event)
            for case in self._cases
            for event in case.events
            if event.kind in (Kind.GARBLED, Kind.UNJUSTIFIED, Kind.DUPLICATION, Kind.REPETITION)
        ]
        if loose:
            donors = Donors(self._baseline, self._candidate, pairs)
            queries = [
                Query(
                    case.b.key.request,
                    case.b.token_ids,
                    max(event.earliest, event.position - 3),
                    min(len(case.b.token_ids), event.position + max(12, min(event.length, 64))),
                    event.earliest,
                    _unsupported(case, self._tolerance),
                )
                for case, event in loose
            ]
            for (case, event), leak in zip(loose, donors.search(queries), strict=True):
                if leak is not None and _leak_wins(event, leak, _unsupported(case, self._tolerance)):
                    _become_leak(case, event, leak)
        for case in self._cases:
            self._conclude(case)

    def _conclude(self, case: _Case) -> None:
        a, b, walked = case.a, case.b, case.walked
        events = _without_overlaps(case.events)
        start = min((event.position for event in events), default=len(b.token_ids))
        if b.logprobs is not None:
            broken = integrity.broken_logprobs(b)
            view = case.view if case.from_scores else own_logprobs(a)
            until = start if case.from_scores else min(start, walked.flip or 0)
            mismatch = broken or (None if events else integrity.logprob_mismatch(b, view, until))
            if mismatch is not None:
                events.append(mismatch)
        if self._detokenize is not None and not any(one.kind is Kind.INVALID_TOKEN for one in events):
            events += self._text(a, b)
        events.sort(key=lambda event: event.position)
        flip = walked.flip
        flip_known = (
            flip is not None
            and flip < len(b.token_ids)
            and (case.view is not None and not case.view.unknown(self._tolerance)[flip])
        )
        if (
            flip is not None
            and flip_known
            and all(not (e.position <= flip < max(e.end, e.position + 1)) for e in events)
        ):
            assert case.view is not None
            if not case.view.unjustified(self._tolerance)[flip]:
                evidence: dict[str, Json] = {"why": "both tokens are nearly as likely to the reference"}
                if not case.from_scores:
                    evidence["looked_until"] = flip
                    evidence["limit"] = "no scores: what follows this token could not be judged"
                self.result.findings.append(
                    self._finding(b, Event(Kind.NEAR_TIE, flip, 1, evidence), Severity.BENIGN, case)
                )
        for event in events:
            self.result.findings.append(self._finding(b, event, Severity.CORRUPT, case))
        benign_end = any(
            finding.key == b.key and finding.kind is Kind.NEAR_TIE for finding in self.result.findings[-3:]
        )
        if events:
            self.result.classes[b.key] = "corrupt"
        elif (flip is not None and not flip_known) or (flip is None and not benign_end):
            self.result.classes[b.key] = "unjudged"
        else:
            self.result.classes[b.key] = "near_tie"
        if walked.unjudged_from is not None and not events:
            self.result.limited[b.key] = walked.unjudged_from

    def _finding(
        self, b: Completion, event: Event, severity: Severity = Severity.CORRUPT, case: _Case | None = None
    ) -> Finding:
        evidence = dict(event.evidence)
        position = event.position
        if case is not None and position < len(b.token_ids):
            evidence.setdefault("candidate_token", int(b.token_ids[position]))
            if case.walked.flip is not None and position == case.walked.flip and position < len(case.a.token_ids):
                evidence.setdefault("baseline_token", int(case.a.token_ids[position]))
            if case.view is not None and np.isfinite(case.view.gap[position]):
                evidence |= case.view.at(position)
                evidence["tolerance"] = round(self._tolerance, 4)
                evidence["judged_by"] = "scores" if case.from_scores else "logprobs at the first divergent token"
                span = slice(position, max(event.end, position + 1))
                with np.errstate(invalid="ignore"):
                    over = np.flatnonzero(case.view.gap[span] > self._tolerance) + position
                if len(over):
                    evidence["unsupported_positions"] = over[:32].tolist()
                    evidence["largest_gap"] = round(float(min(1e9, np.nanmax(case.view.gap[span]))), 4)
            if case.walked.flip is not None and case.walked.flip < position:
                evidence["first_divergent_token"] = case.walked.flip
        return Finding(
            arm=self._candidate.header.arm,
            baseline=self._baseline.header.arm,
            request=b.key.request,
            round=b.key.round,
            sample=b.key.sample,
            kind=event.kind,
            severity=severity,
            position=event.position,
            length=event.length,
            evidence=evidence,
        )

    def _input_mismatch(self, a: Completion, b: Completion) -> Finding:
        left, right = a.prompt_token_ids, b.prompt_token_ids
        size = min(len(left), len(right))
        different = np.flatnonzero(left[:size] != right[:size])
        at = int(different[0]) if len(different) else size
        evidence: dict[str, Json] = {
            "why": f"the prompts differ from prompt token {at} on; nothing else is to be concluded",
            "prompt_position": at,
            "baseline_prompt_length": len(left),
            "candidate_prompt_length": len(right),
        }
        return Finding(
            arm=self._candidate.header.arm,
            baseline=self._baseline.header.arm,
            request=b.key.request,
            round=b.key.round,
            sample=b.key.sample,
            kind=Kind.INPUT_MISMATCH,
            severity=Severity.CORRUPT,
            position=None,
            length=None,
            evidence=evidence,
        )


def _first_difference(a: Completion, b: Completion) -> int:
    size = min(len(a.token_ids), len(b.token_ids))
    different = np.flatnonzero(a.token_ids[:size] != b.token_ids[:size])
    return int(different[0]) if len(different) else size


def _trusted_detokenizer(options: CompareOptions, baseline: Capture) -> Callable[[Sequence[int]], str] | None:
    """The tokenizer, if it is the one these captures were made with: it must reproduce the baseline's text."""
    if options.detokenize is None:
        return None
    with_text = [one for one in baseline if one.text is not None and len(one.token_ids)][:32]
    if not with_text:
        return None
    wrong = sum(integrity.text_mismatch(one, options.detokenize) is not None for one in with_text)
    return options.detokenize if wrong * 4 <= len(with_text) else None


def _unsupported(case: _Case, tolerance: float) -> BoolArray | None:
    return case.view.unjustified(tolerance) if case.view is not None and case.from_scores else None


def _leak_wins(event: Event, leak: Leak, unsupported: BoolArray | None) -> bool:
    """Does the match with another request explain the event better than its structure does?"""
    end = leak.start + leak.length
    covers = leak.start <= event.position < end
    if event.kind not in (Kind.DUPLICATION, Kind.REPETITION):
        return covers
    if unsupported is None or not covers or leak.length < event.length + 4:
        return False
    # The copy explains its own tokens; only unsupported ones behind it speak for another request.
    return int(unsupported[event.end : end].sum()) >= SPEAKING


def _become_leak(case: _Case, event: Event, leak: Leak) -> None:
    event.kind = Kind.ROW_LEAK
    event.position, event.length = leak.start, leak.length
    event.evidence = {
        **{name: value for name, value in event.evidence.items() if name in ("agree_again_for", "baseline_tokens")},
        **leak.to_json(),
        "why": f"{leak.length} tokens are those of the {leak.donor_part} of {leak.donor_request} "
        f"from its position {leak.donor_start} on",
        "leaked_tokens": case.b.token_ids[leak.start : leak.start + leak.length].tolist()[:64],
    }


_SPECIFIC = (
    Kind.INVALID_TOKEN,
    Kind.ROW_LEAK,
    Kind.OVERRUN,
    Kind.REPETITION,
    Kind.DUPLICATION,
    Kind.OMISSION,
    Kind.EARLY_STOP,
    Kind.GARBLED,
    Kind.UNJUSTIFIED,
)


def _without_overlaps(events: list[Event]) -> list[Event]:
    """The most specific event where several explain the same tokens."""
    kept: list[Event] = []
    for event in sorted(events, key=lambda one: _SPECIFIC.index(one.kind)):
        covered = any(
            other.position <= event.position < other.end + 3
            for other in kept
            if other.kind in (Kind.ROW_LEAK, Kind.OVERRUN, Kind.REPETITION, Kind.INVALID_TOKEN)
        )
        if covered and event.kind in (Kind.GARBLED, Kind.UNJUSTIFIED, Kind.DUPLICATION, Kind.ROW_LEAK):
            continue
        kept.append(event)
    return kept
