"""All pairs of a greedy run: what is wrong with each candidate completion."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from parity.comparator.detect import integrity, stops
from parity.comparator.detect.ends import Ends
from parity.comparator.detect.findings import Case, Doubt, Findings, without_overlaps
from parity.comparator.detect.naming import name_leaks
from parity.comparator.detect.structure import Event
from parity.comparator.detect.walk import JUNCTION, Walk, walk
from parity.comparator.reference.gaps import TokenGaps, gap_of_other
from parity.comparator.reference.scores import (
    Reference,
    gaps_at_divergence,
    own_gaps,
    own_rejections,
    penalised_tokens,
)
from parity.comparator.reference.trust import own_lists_speak, scores_tell_lists, trusted_detokenizer
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions, CompletionClass
from parity.messages import Message, message
from parity.records import Capture, Completion, Finding, Json, Key, Kind, Severity

CONTRADICTION = 0.25
"""Nats beyond the tolerance by which the reference must reject the baseline's own token to be taken as a
contradiction: the baseline chose it, with the noise of one more kernel."""


@dataclass(slots=True)
class Judged:
    """What was found in all pairs."""

    findings: list[Finding] = field(default_factory=list)
    classes: dict[Key, CompletionClass] = field(default_factory=dict)
    gaps: dict[Key, TokenGaps] = field(default_factory=dict)
    """Full scores of candidate completions that differ from the baseline's."""
    limited: dict[Key, int] = field(default_factory=dict)
    """Completions on which the reference has no say from this position on."""
    suspects: dict[Key, Event] = field(default_factory=dict)
    """What unjudged completions look like."""
    doubtful: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """Completions with nothing wrong but a token or two little beyond the tolerance: position and gap of the worst."""
    contradicted: list[Key] = field(default_factory=list)
    """Completions whose score rejects the baseline's own token where the two part."""
    notes: list[Message] = field(default_factory=list)
    baseline_ends: dict[Key, str] = field(default_factory=dict)
    """Completions where it is the baseline's end that cannot be right, and why."""


class PairJudge:
    """Judges greedy pairs one after the other; `finish` looks for leaks over all of them at once."""

    def __init__(
        self,
        baseline: Capture,
        candidate: Capture,
        reference: Reference,
        options: CompareOptions,
        tolerance: float,
        doubt: Doubt,
        *,
        drops_eos: bool = False,
    ) -> None:
        """`doubt`: what convicts nobody. `drops_eos`: the candidate leaves out the token that it stopped at."""
        self._baseline, self._candidate = baseline, candidate
        self._reference, self._options, self._tolerance, self._doubt = reference, options, tolerance, doubt
        self._rules = stops.stop_rules(candidate.header, baseline)
        if drops_eos:
            self._rules = replace(self._rules, keeps_terminator=False)
        self._vocab_size = candidate.header.vocab_size or baseline.header.vocab_size
        self._plain = all(
            penalised_tokens(capture.header.sampling, completion) is None
            for capture in (baseline, candidate)
            for completion in list(capture)[:1]
        )
        self._ends = Ends(self._rules, reference, baseline.header.arm, tolerance)
        self._make = Findings(candidate.header.arm, baseline.header.arm, tolerance)
        self._lists_speak = own_lists_speak(baseline, tolerance, plain=self._plain)
        self._scores_tell_lists = True
        self._detokenize = trusted_detokenizer(options, baseline)
        self.result = Judged()
        self._cases: list[Case] = []

    def judge(self, pairs: Pairs) -> Judged:
        """Findings for every pair with the same prompt."""
        self.result.classes = dict.fromkeys(pairs.keys, "identical")
        invalid = integrity.invalid_rows(pairs.candidate_tokens, self._vocab_size)
        plain = pairs.identical & pairs.same_prompt
        self._scores_tell_lists = scores_tell_lists(
            pairs, self._reference, self._baseline.header.arm, self._candidate.header.arm
        )
        if not self._scores_tell_lists:
            self.result.notes.append(
                message(
                    "detect.other_logprobs",
                    "the baseline's own logprobs are not those of the scores (another temperature or kind of "
                    "logprobs?): the arms' logprobs were compared with each other",
                )
            )
        differing = np.flatnonzero(~pairs.identical & pairs.same_prompt).tolist()
        others = [pairs.candidate[row] for row in differing]
        scored = self._reference.all_gaps(self._candidate.header.arm, others)
        too_long = stops.may_overrun(others, self._rules)
        for row, b, may_overrun in zip(differing, others, too_long, strict=True):
            view = scored[b.key][0] if b.key in scored else None
            past = stops.overrun(b, self._rules) if may_overrun else None
            bad_ids = integrity.invalid_tokens(b.token_ids, self._vocab_size) if row in invalid else []
            self._differing(pairs.baseline[row], b, int(pairs.parts_at[row]), view, past, bad_ids)
        for row in np.flatnonzero(~plain).tolist():
            a, b = pairs.baseline[row], pairs.candidate[row]
            if not pairs.same_prompt[row]:
                self.result.classes[b.key] = "corrupt"
                self.result.findings.append(self._make.input_mismatch(a, b))
        for row, (a, b) in enumerate(zip(pairs.baseline, pairs.candidate, strict=True)):
            if (
                a.finish_reason != b.finish_reason or a.text != b.text or b.logprobs is not None or row in invalid
            ) and plain[row]:
                self._identical(a, b, is_invalid=row in invalid)
        self._finish(pairs)
        return self.result

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
            mismatch = integrity.logprob_mismatch(b, view, len(b.token_ids), baseline=a)
            if mismatch is not None:
                events.append(mismatch)
        self.result.classes[b.key] = "corrupt" if events else "identical"
        self.result.findings += [self._make.of(b, event) for event in events]

    def _own_reference(self, a: Completion, b: Completion) -> TokenGaps | None:
        """For equal streams: the score of either, else the baseline's own logprobs."""
        for arm, completion in ((self._candidate.header.arm, b), (self._baseline.header.arm, a)):
            if not self._scores_tell_lists:
                break
            view = self._reference.gaps(arm, completion)
            if view is not None:
                return view
        return own_gaps(a)

    def _changed_reason(self, a: Completion, b: Completion) -> list[Event]:
        evidence: dict[str, Json] = {
            "why": f"finish_reason {b.finish_reason!r} where the baseline, with the same tokens, "
            f"has {a.finish_reason!r}",
            "finish_reason": b.finish_reason,
            "baseline_finish_reason": a.finish_reason,
        }
        if a.finish_reason is None or b.finish_reason is None or a.aborted or b.aborted:
            return []
        if stops.same_end(a, b, self._rules):
            return []
        fault = stops.unexplained_end(a, self._rules)
        if fault is not None and stops.unexplained_end(b, self._rules) is None:
            self.result.baseline_ends[b.key] = fault
            return []
        return [Event(Kind.EARLY_STOP, len(b.token_ids), 0, evidence)]

    def _text(self, a: Completion, b: Completion) -> list[Event]:
        if self._detokenize is not None:
            event = integrity.text_mismatch(b, self._detokenize, cut_short=self._rules.has_stop_strings)
            return [] if event is None else [event]
        if b.text is None or a.text is None or not np.array_equal(a.token_ids, b.token_ids):
            return []
        if integrity.same_text(a.text, b.text, normalised=not self._rules.counts):
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

    def _differing(
        self,
        a: Completion,
        b: Completion,
        first: int,
        view: TokenGaps | None,
        past: Event | None,
        invalid: list[Event],
    ) -> None:
        """One pair that parts at `first`; `view` is the score, `past` and `invalid` what is known already."""
        masked_from = past.position if past is not None else None
        from_scores, of_the_other, contradicted = view is not None, False, False
        if view is None and not self._reference.shaped_by:
            sampling = self._candidate.header.sampling
            found = gaps_at_divergence(a, b, first, self._tolerance, sampling)
            view, of_the_other = (None, False) if found is None else found
            if b.logprobs is not None and self._lists_speak:
                view = own_rejections(b, view, first, self._tolerance, sampling)
        unjustified = unknown = None
        best_ids = None
        if view is not None:
            unjustified, unknown = view.unsupported(self._tolerance), view.unknown(self._tolerance)
            best_ids = view.best_id
            contradicted = from_scores and self._contradicts_baseline(a, b, first)
            for event in invalid:
                unjustified[event.position : event.end + JUNCTION] = False
                unknown[event.position : event.end] = False
        walked = walk(
            a.token_ids,
            b.token_ids,
            unjustified,
            unknown,
            masked_from=masked_from,
            eos=self._rules.terminators,
            best_ids=best_ids,
            parts_at=first,
            open_end=self._ends.is_open(a),
        )
        if walked.flip is None and first == len(a.token_ids) and self._ends.is_open(a):
            self._behind_the_end(a, b, walked, is_judged=from_scores)
        events = [*walked.events, *invalid]
        if invalid and walked.unjudged_from is not None and walked.unjudged_from >= invalid[0].position:
            walked.unjudged_from = None  # nothing behind an invalid token can be scored
        ends = self._ends.judge(a, b, walked, past, events, self.result.baseline_ends)
        benign = [event for event in ends if event.kind is Kind.NEAR_TIE]
        self.result.findings += [self._make.of(b, event, Severity.BENIGN) for event in benign]
        events += [event for event in ends if event.kind is not Kind.NEAR_TIE]
        case = Case(a, b, walked, view, events, from_scores, ends_at_near_tie=bool(benign))
        case.gap_is_the_others, case.contradicted = of_the_other, contradicted
        self._cases.append(case)
        if from_scores and view is not None:
            self.result.gaps[b.key] = view

    @staticmethod
    def _behind_the_end(a: Completion, b: Completion, walked: Walk, *, is_judged: bool) -> None:
        """The candidate has all of the baseline's tokens and more, and nothing says that there must be no more."""
        end = len(a.token_ids)
        if not a.aborted:
            walked.flip = end  # the other branch was to end here
        if not is_judged:
            walked.unjudged_from = end

    def _contradicts_baseline(self, a: Completion, b: Completion, first: int) -> bool:
        """Does the score of the candidate reject the *baseline's* token where they part?

        Both sides saw the same text up to there and the baseline chose that token: the baseline is at fault
        there, or the score is not of these tokens. The candidate is not to blame for that.
        """
        if first >= min(len(a.token_ids), len(b.token_ids)) or not self._plain:
            return False
        top = self._reference.score(self._candidate.header.arm, b)
        rival = gap_of_other(top, first, int(a.token_ids[first]), own=int(b.token_ids[first]))
        return rival is not None and rival[0] > self._tolerance + CONTRADICTION

    # ------------------------------------------------------------------ over all pairs

    def _finish(self, pairs: Pairs) -> None:
        name_leaks(self._cases, self._baseline, self._candidate, pairs, self._tolerance)
        for case in self._cases:
            self._conclude(case)

    def _conclude(self, case: Case) -> None:
        a, b, walked = case.a, case.b, case.walked
        events = self._without_doubtful(case, without_overlaps(case.events))
        start = min((event.position for event in events), default=len(b.token_ids))
        if b.logprobs is not None:
            whole = integrity.broken_logprobs(b) or (None if events else integrity.unlisted_logprobs(b))
            by_scores = case.from_scores and self._scores_tell_lists
            view = case.view if by_scores else own_gaps(a)
            until = start if by_scores else min(start, walked.flip or 0)
            mismatch = whole or (None if events else integrity.logprob_mismatch(b, view, until, baseline=a))
            if mismatch is not None:
                events.append(mismatch)
        if self._detokenize is not None and not any(one.kind is Kind.INVALID_TOKEN for one in events):
            events += self._text(a, b)
        events.sort(key=lambda event: event.position)
        flip = walked.flip
        supported = None
        if flip is not None and flip < len(b.token_ids) and case.view is not None:
            supported = case.view.supports(flip, self._tolerance)
        if case.contradicted:
            self.result.contradicted.append(b.key)
        if (
            flip is not None
            and supported
            and not case.contradicted
            and all(not (one.position <= flip < max(one.end, one.position + 1)) for one in events)
        ):
            evidence = self._near_tie_evidence(case, flip)
            if not case.from_scores:
                evidence["looked_until"] = flip
                evidence["limit"] = "no scores: what follows this token could not be judged"
            near_tie = Event(Kind.NEAR_TIE, flip, 1, evidence)
            self.result.findings.append(self._make.of(b, near_tie, Severity.BENIGN, case))
        for event in events:
            self.result.findings.append(self._make.of(b, event, Severity.CORRUPT, case))
        if events:
            self.result.classes[b.key] = "corrupt"
        elif b.key in self.result.baseline_ends or case.contradicted:
            self.result.classes[b.key] = "unjudged"  # it is the baseline that is wrong there
        elif flip is None and (a.aborted or b.aborted):
            self.result.classes[b.key] = "identical"  # as far as they go
        elif b.key in self.result.doubtful:
            self.result.classes[b.key] = "near_tie"
        elif (flip is not None and supported is None) or (flip is None and not case.ends_at_near_tie):
            self.result.classes[b.key] = "unjudged"
            if walked.suspect is not None:
                self.result.suspects[b.key] = walked.suspect
        else:
            self.result.classes[b.key] = "near_tie"
        if walked.unjudged_from is not None and not events:
            self.result.limited[b.key] = walked.unjudged_from

    def _near_tie_evidence(self, case: Case, flip: int) -> dict[str, Json]:
        """Why it is one, and how good the baseline's token is there, where the list says it."""
        a, b = case.a, case.b
        if case.gap_is_the_others:
            return {"why": "the candidate's own logprobs hold the baseline's token for nearly as likely as its own"}
        evidence: dict[str, Json] = {"why": "the reference holds the candidate's token for nearly as good as its best"}
        if flip < len(a.token_ids):
            top = self._reference.score(self._candidate.header.arm, b) if case.from_scores else a.logprobs
            rival = gap_of_other(top, flip, int(a.token_ids[flip]), own=int(b.token_ids[flip]))
            if rival is not None and (rival[1] or rival[0] > 0):
                evidence["gap_of_baseline_token"] = round(rival[0], 4)
                if not rival[1]:
                    evidence["gap_of_baseline_token_is_lower_bound"] = True
                elif rival[0] <= self._tolerance:
                    evidence["why"] = "both tokens are nearly as likely to the reference"
        return evidence

    def _without_doubtful(self, case: Case, events: list[Event]) -> list[Event]:
        """The events without those that convict nobody; all of them where any is beyond doubt."""
        if case.view is None or not events:
            return events
        if not self._doubt.covers(events, case, self._tolerance):
            return events
        places = [place for event in events for place in event.places(len(case.view.gap))]
        gaps = np.nan_to_num(case.view.gap[places], nan=0.0)
        worst = places[int(gaps.argmax())]
        self.result.doubtful[case.b.key] = worst, float(gaps.max())
        evidence: dict[str, Json] = {
            "why": "a token or two little beyond the tolerance, and nothing else: two kernels may differ by that much",
            "would_be": str(events[0].kind),
        }
        finding = self._make.of(case.b, Event(Kind.NEAR_TIE, worst, 1, evidence), Severity.BENIGN, case)
        self.result.findings.append(finding)
        return []
