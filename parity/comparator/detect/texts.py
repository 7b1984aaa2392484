"""Is the text what the token ids say?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.events import Event
from parity.comparator.detect.invalid_tokens import INT32_MAX
from parity.comparator.inputs.text import first_difference, same_text
from parity.messages import Message, message
from parity.records import Completion, Kind
from parity.records.evidence import TextEvidence


def text_mismatch(
    completion: Completion, detokenize: Callable[[Sequence[int]], str], *, cut_short: bool = False
) -> Event | None:
    """The text is not what the token ids say.

    Engines detokenise as tokens come: bytes that do not yet make a character are held back at the end, and a
    stop string is cut off. Both are allowed for. `cut_short`: stop strings were asked for, so that a text that ended
    by "stop" may be cut though the capture does not say at which.
    """
    if completion.text is None:
        return None
    ids = [int(token) for token in completion.token_ids if 0 <= token <= INT32_MAX]
    expected = detokenize(ids)
    if same_text(completion.text, expected):
        return None
    may_be_cut = isinstance(completion.stop_reason, str) or (
        cut_short and completion.finish_reason == "stop" and completion.stop_reason is None
    )
    if may_be_cut and expected.startswith(completion.text):
        return None
    at = first_difference(completion.text, expected)
    position = _token_at(ids, at, detokenize)
    why = message("text.not_the_tokens", "the text is not what the token ids detokenise to")
    evidence = _evidence(why, completion.text, expected, at)
    return Event(Kind.TEXT_MISMATCH, position, max(1, len(ids) - position), evidence)


def _evidence(why: Message, text: str, expected: str, at: int) -> TextEvidence:
    around = slice(max(0, at - 20), at + 40)
    return TextEvidence(why=why, character=at, text=text[around], expected=expected[around])


def _token_at(ids: list[int], character: int, detokenize: Callable[[Sequence[int]], str]) -> int:
    """The token whose text covers a character: by bisection over prefixes, whose texts only grow."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(detokenize(ids[: middle + 1]).rstrip("\ufffd")) > character:
            high = middle
        else:
            low = middle + 1
    return min(low, max(0, len(ids) - 1))


def _another_text(a: Completion, b: Completion, *, normalised: bool) -> Event | None:
    """Equal tokens, and no tokenizer at hand."""
    if b.text is None or a.text is None or same_text(a.text, b.text, normalised=normalised):
        return None
    why = message(
        "text.differs", "same token ids as the baseline, another text (no tokenizer at hand to say which is right)"
    )
    evidence = _evidence(why, b.text, a.text, first_difference(a.text, b.text))
    return Event(Kind.TEXT_MISMATCH, 0, len(b.token_ids), evidence)


def _look(case: Case, setup: Setup) -> Case:
    a, b = case.a, case.b
    if a.text == b.text if case.is_identical else setup.detokenize is None or case.has(Kind.INVALID_TOKEN):
        return case
    if setup.detokenize is not None:
        event = text_mismatch(b, setup.detokenize, cut_short=setup.rules.of(b).has_stop_strings)
    else:
        event = _another_text(a, b, normalised=not setup.rules.counts)
    return case if event is None else replace(case, events=(*case.events, event))


DETECTOR = Detector("texts", frozenset({Kind.TEXT_MISMATCH}), pair_by_pair(_look))
