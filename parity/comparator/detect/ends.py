"""How one completion of a pair ended, given what was found inside it: too early, too late, or as it should."""

from __future__ import annotations

import numpy as np

from parity.comparator.detect import stops
from parity.comparator.detect.structure import Event
from parity.comparator.detect.walk import Walk
from parity.comparator.reference.gaps import gap_of_other
from parity.comparator.reference.scores import Reference
from parity.records import Completion, Json, Key, Kind
from parity.records.kinds import Stretch

AFTER_GARBLE = 8
"""Tokens between the last fault and an end of the stream that still belong together."""


class Ends:
    """Judges the ends of a run's pairs by its stop rules and, where the streams are equal up to there, scores."""

    def __init__(self, rules: stops.StopRules, reference: Reference, baseline_arm: str, tolerance: float) -> None:
        self._rules, self._reference = rules, reference
        self._baseline_arm, self._tolerance = baseline_arm, tolerance

    def judge(
        self,
        a: Completion,
        b: Completion,
        walked: Walk,
        past: Event | None,
        events: list[Event],
        baseline_ends: dict[Key, str],
    ) -> list[Event]:
        """early_stop and overrun, unless chunks lost or gained before explain the length.

        `baseline_ends`: gets the completions where it is the baseline's end that cannot be right, and why.
        """
        found: list[Event] = []
        self._corroborate(b, walked, past, events)
        shift = sum(event.kind.row.lengthens * event.length for event in events)
        if past is not None:
            by_length = "max_tokens" in past.evidence
            if by_length and self._name_gained(b, walked, past.length):
                shift = past.length
            if by_length and shift >= past.length:
                self._say_so(walked, b, past.position)
            if not (by_length and (shift >= past.length or self._stretched(walked, past))):
                found.append(past)
        why = stops.unexplained_end(b, self._rules)
        if why is not None and stops.unexplained_end(a, self._rules) is not None:
            why = None  # the baseline ends like that as well: a habit of this server
        if why is not None and any(event.kind is Kind.EARLY_STOP for event in events):
            why = None
        limit = self._rules.limit(b)
        if why is not None and b.finish_reason == "length" and limit is not None:
            missing = limit - len(b.token_ids)
            lost = sum(event.length for event in events if event.kind is Kind.OMISSION)
            if missing == lost or -shift >= missing or self._name_lost(walked, missing):
                why = None
                self._say_so(walked, b, limit)
        if why is not None:
            found.append(Event(Kind.EARLY_STOP, len(b.token_ids), 0, {"why": why}))
        elif walked.flip is None and len(b.token_ids) < len(a.token_ids) and past is None and not b.aborted:
            too_long = stops.overrun(a, self._rules)
            if too_long is not None and too_long.position <= len(b.token_ids) and not events:
                baseline_ends[b.key] = str(too_long.evidence["why"])
            else:
                found += self._prefix(a, b)
        elif self._ends_in_garble(a, b, events):
            at = len(b.token_ids) - 1
            note = "ends right after unsupported tokens, before the baseline does"
            found.append(Event(Kind.EARLY_STOP, at, 1, {"why": note}))
        goes_on = len(b.token_ids) > len(a.token_ids) and past is None and not events
        goes_on = goes_on and (walked.flip is None or walked.flip == len(a.token_ids))
        too_short = stops.unexplained_end(a, self._rules) if goes_on else None
        if too_short is not None:
            baseline_ends[b.key] = too_short
        elif goes_on and walked.flip is None and not self.is_open(a):
            at = len(a.token_ids)
            why = f"goes on for {len(b.token_ids) - at} tokens where the baseline ended ({a.finish_reason})"
            found.append(Event(Kind.OVERRUN, at, len(b.token_ids) - at, {"why": why}))
        return found

    def is_open(self, a: Completion) -> bool:
        """Might the baseline's completion have gone on behind its last token?

        It was taken back, or it stopped at a token that is not in the stream: only who knows how likely that
        token was can say whether going on is wrong.
        """
        if a.aborted:
            return True
        if a.finish_reason not in ("stop", None) or isinstance(a.stop_reason, str):
            return False
        return not (len(a.token_ids) and int(a.token_ids[-1]) in self._rules.terminators)

    def _corroborate(self, b: Completion, walked: Walk, past: Event | None, events: list[Event]) -> None:
        """A suspicion becomes a finding when the completion's length says the same.

        Short of its limit by just the tokens that are missing, or over it by tokens that stand twice: no near-tie
        does that.
        """
        suspect, limit = walked.suspect, self._rules.limit(b)
        if suspect is None or limit is None:
            return
        short = limit - len(b.token_ids) if b.finish_reason == "length" and not b.aborted else 0
        lost = suspect.kind is Kind.OMISSION and suspect.length == short
        gained = past is not None and "max_tokens" in past.evidence and 0 < past.length <= suspect.length
        if lost or (gained and suspect.kind is Kind.DUPLICATION):
            walked.events.append(suspect)
            events.append(suspect)
            self._say_so(walked, b, limit)
            walked.suspect = walked.unjudged_from = None

    @staticmethod
    def _say_so(walked: Walk, b: Completion, limit: int) -> None:
        """The chunks lost or gained are what the length lacks or has too much."""
        for event in walked.events:
            if event.kind.row.lengthens:
                event.evidence["corroborated_by"] = f"{len(b.token_ids)} tokens where max_tokens is {limit}"

    def _stretched(self, walked: Walk, past: Event) -> bool:
        """Too long because tokens were gained that could not be named: keep the cause, not the length."""
        return any(
            event.kind.row.stretch in (Stretch.FOREIGN, Stretch.UNSUPPORTED, Stretch.COPY)
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
        if event.kind.row.stretch is Stretch.COPY:
            event.evidence["ambiguous"] = f"the text repeats itself here; by its structure alone: {event.kind}"
        event.evidence["unsupported_tokens"] = event.length
        event.kind = Kind.OMISSION
        event.length = missing
        return True

    @staticmethod
    def _name_gained(b: Completion, walked: Walk, surplus: int) -> bool:
        """Tokens too many, and what seems lost in text that repeats itself: they stand twice, not too few times."""
        tokens = b.token_ids
        for event in walked.events:
            at = event.position
            again = at >= surplus and np.array_equal(tokens[at - surplus : at], tokens[at : at + surplus])
            if event.kind is Kind.OMISSION and again:
                event.evidence = {
                    "why": f"the {surplus} tokens before it are emitted again, and there are as many too many",
                    "ambiguous": f"the text repeats itself here; by its structure alone: omission of {event.length}",
                    "source_start": at - surplus,
                    "source_end": at,
                }
                event.kind, event.length = Kind.DUPLICATION, surplus
                return True
        return False

    def _ends_in_garble(self, a: Completion, b: Completion, events: list[Event]) -> bool:
        if b.finish_reason != "stop" or len(b.token_ids) >= len(a.token_ids) or not events:
            return False
        if not len(b.token_ids) or int(b.token_ids[-1]) not in self._rules.terminators:
            return False
        if any(event.kind is Kind.EARLY_STOP for event in events):
            return False
        last = max(event.end for event in events)
        return len(b.token_ids) - last <= AFTER_GARBLE and any(
            event.kind.row.stretch in (Stretch.UNSUPPORTED, Stretch.FOREIGN) for event in events
        )

    def _prefix(self, a: Completion, b: Completion) -> list[Event]:
        """The candidate is the baseline's beginning and ended there without a token that says so."""
        at = len(b.token_ids)
        top = self._reference.score(self._baseline_arm, a) or a.logprobs
        gaps = [gap_of_other(top, at, token) for token in sorted(self._rules.terminators)]
        known = [gap for gap in gaps if gap is not None]
        evidence: dict[str, Json] = {
            "why": f"ends here ({b.finish_reason}) where the baseline goes on for {len(a.token_ids) - at} tokens",
            "finish_reason": b.finish_reason,
        }
        if known:
            gap, exact = min(known)
            evidence["gap_of_ending_here"] = round(gap, 4)
            if gap <= self._tolerance:
                return [Event(Kind.NEAR_TIE, at, 1, evidence)] if exact else []
        elif b.finish_reason in ("stop", None) and not (self._rules.keeps_terminator and self._rules.terminators):
            return []  # undecidable: no reference for the end of the stream
        return [Event(Kind.EARLY_STOP, at, 0, evidence)]
