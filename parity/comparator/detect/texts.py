"""Is the text what the token ids say?"""

from __future__ import annotations

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.events import Event
from parity.comparator.detect.wording import text_evidence, text_mismatch
from parity.comparator.inputs.text import first_difference, same_text
from parity.messages import message
from parity.records import Completion, Kind


def _another_text(a: Completion, b: Completion) -> Event | None:
    """Equal tokens, and no tokenizer at hand."""
    if b.text is None or a.text is None or same_text(a.text, b.text):
        return None
    if _stopped_otherwise(a, b) and (a.text.startswith(b.text) or b.text.startswith(a.text)):
        return None
    why = message(
        "text.differs", "same token ids as the baseline, another text (no tokenizer at hand to say which is right)"
    )
    evidence = text_evidence(why, b.text, a.text, first_difference(a.text, b.text))
    return Event(Kind.TEXT_MISMATCH, 0, len(b.token_ids), evidence)


def _stopped_otherwise(a: Completion, b: Completion) -> bool:
    """Did two of the stop strings end them? Where both are complete in one token, versions take one or the other."""
    reasons = {a.stop_reason, b.stop_reason}
    return len(reasons) == 2 and all(isinstance(one, str) for one in reasons)


def _look(case: Case, setup: Setup) -> Case:
    a, b, writer = case.a, case.b, setup.writer
    if a.text == b.text if case.is_identical else writer.render is None or case.has(Kind.INVALID_TOKEN):
        return case
    if writer.render is not None:
        by_rule = writer.requests.of(b).shapes_text  # rules.py has looked
        event = None if by_rule else text_mismatch(b, writer)
    elif case.baseline_broke or case.has(Kind.TEXT_MISMATCH) or setup.broken.excuses(b.key):
        return case
    else:
        event = _another_text(a, b)
    return case if event is None else replace(case, events=(*case.events, event))


DETECTOR = Detector(frozenset({Kind.TEXT_MISMATCH}), pair_by_pair(_look))
